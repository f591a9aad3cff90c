//! The hourly budget, and the answers when a limit is reached.

use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;

use super::server::{Server, lock};
use crate::test_forge::faults::{Limit, Reply};

/// Requests in an hour.
const HOURLY: u32 = 5000;

/// What is left of the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Of an hour.
    pub limit: u32,
    /// Left.
    pub remaining: u32,
    /// Used up.
    pub used: u32,
    /// When it is filled again.
    pub reset: Timestamp,
}

/// From now on only so many requests are left, until `reset`.
pub(super) fn leave(server: &Server, remaining: u32, reset: Timestamp) {
    *lock(&server.resets_at) = Some(reset);
    let used = HOURLY.saturating_sub(remaining);
    server.used.store(used, Ordering::Relaxed);
}

/// What is left now; it is filled again at the next full hour, or when a test said.
pub(super) fn current(server: &Server) -> Budget {
    let moment = Timestamp::now();
    let mut resets_at = lock(&server.resets_at);
    if resets_at.is_some_and(|reset| reset <= moment) {
        *resets_at = None;
        server.used.store(0, Ordering::Relaxed);
    }
    let used = server.used.load(Ordering::Relaxed).min(HOURLY);
    let now = moment.as_second();
    let next_hour = now - now.rem_euclid(3600) + 3600;
    let next_hour = Timestamp::from_second(next_hour).unwrap_or(Timestamp::MAX);
    Budget {
        limit: HOURLY,
        remaining: HOURLY - used,
        used,
        reset: resets_at.unwrap_or(next_hour),
    }
}

/// The headers of a budget.
pub(super) fn headers(budget: &Budget, resource: &str) -> Vec<(String, String)> {
    let values = [
        ("limit", budget.limit.to_string()),
        ("remaining", budget.remaining.to_string()),
        ("used", budget.used.to_string()),
        ("reset", budget.reset.as_second().to_string()),
        ("resource", resource.to_owned()),
    ];
    let name = |(name, value)| (format!("x-ratelimit-{name}"), value);
    values.into_iter().map(name).collect()
}

/// GitHub's answer at a limit.
pub(super) fn reply(limit: Limit, resource: &str) -> Reply {
    match limit {
        Limit::Primary { status, reset } => {
            let body = json!({
                "message": "API rate limit exceeded for user ID 1001. If you reach out to GitHub Support for help, please include the request ID 0000:000000:000000:000000:00000000.",
                "documentation_url": "https://docs.github.com/rest/overview/rate-limits-for-the-rest-api",
                "status": status.to_string(),
            });
            used_up(Reply::json(status, &body), reset, resource)
        }
        Limit::PrimaryInGraphql { reset } => {
            let body = json!({
                "errors": [{
                    "type": "RATE_LIMITED",
                    "code": "graphql_rate_limit",
                    "message": "API rate limit already exceeded for user ID 1001.",
                }],
            });
            used_up(Reply::json(200, &body), reset, resource)
        }
        Limit::Secondary {
            status,
            retry_after,
        } => {
            let body = json!({
                "message": "You have exceeded a secondary rate limit. Please wait a few minutes before you try again. If you reach out to GitHub Support for help, please include the request ID 0000:000000:000000:000000:00000000.",
                "documentation_url": "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits",
                "status": status.to_string(),
            });
            let reply = Reply::json(status, &body);
            match retry_after {
                Some(wait) => reply.header("retry-after", &wait.as_secs().to_string()),
                None => reply,
            }
        }
    }
}

fn used_up(mut reply: Reply, reset: Duration, resource: &str) -> Reply {
    let reset = Timestamp::now() + reset;
    let budget = Budget {
        limit: HOURLY,
        remaining: 0,
        used: HOURLY,
        reset,
    };
    reply.headers.extend(headers(&budget, resource));
    reply
}
