//! When a forge says "later", and how much later.

use std::time::Duration;

use http::StatusCode;
use http::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use jiff::Timestamp;
use jiff::fmt::rfc2822;

/// The wait for a limit that names no time.
const DEFAULT_WAIT: Duration = Duration::from_mins(1);

/// The longest wait that a forge can ask for.
const MAX_WAIT: Duration = Duration::from_hours(1);

/// What GitHub says of its limits where no header does, in lower case.
const LIMIT_WORDS: [&str; 4] = [
    "secondary rate limit",
    "api rate limit exceeded",
    "abuse detection",
    "was submitted too quickly",
];

/// Whether an error speaks of a limit that passes.
pub(in super::super) fn speaks_of_limit(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    LIMIT_WORDS.iter().any(|words| message.contains(words))
}

/// Some forges and proxies say 403 (or, GitHub, 422) for a limit, and mark it by headers or words.
pub(super) fn is_limit(status: StatusCode, headers: &HeaderMap, message: &str) -> bool {
    match status {
        StatusCode::TOO_MANY_REQUESTS => true,
        StatusCode::FORBIDDEN => {
            headers.contains_key(RETRY_AFTER) || none_left(headers) || speaks_of_limit(message)
        }
        StatusCode::UNPROCESSABLE_ENTITY => speaks_of_limit(message),
        _ => false,
    }
}

fn none_left(headers: &HeaderMap) -> bool {
    ["x-ratelimit-remaining", "ratelimit-remaining"]
        .iter()
        .any(|name| {
            headers
                .get(*name)
                .is_some_and(|left| left.as_bytes() == b"0")
        })
}

/// The forge's own time.
pub(in super::super) fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(DATE)?.to_str().ok()?;
    Some(rfc2822::parse(text).ok()?.timestamp())
}

/// When the budget that is used up begins anew, as seconds since 1970. GitHub says that with every answer
/// (`X-RateLimit-Reset`), GitLab when it refuses one (`RateLimit-Reset`).
pub(super) fn until_reset(headers: &HeaderMap) -> Option<Duration> {
    let second = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
    let reset = second("ratelimit-reset")
        .or_else(|| second("x-ratelimit-reset").filter(|_| none_left(headers)))?;
    let until = Timestamp::from_second(reset).ok()?;
    let now = date(headers).unwrap_or_else(Timestamp::now);
    // One second more: the forge counts in whole ones.
    let wait: Duration = until.duration_since(now).try_into().ok()?;
    Some(wait + Duration::from_secs(1))
}

/// `Retry-After` in seconds or as a date, else the end of a used up budget; both against the forge's own clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Duration {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let moment = |text: &str| rfc2822::parse(text).ok().map(|zoned| zoned.timestamp());
    let Some(after) = text(RETRY_AFTER.as_str()) else {
        return until_reset(headers)
            .unwrap_or(DEFAULT_WAIT)
            .clamp(Duration::from_secs(1), MAX_WAIT);
    };
    let wait = after
        .trim()
        .parse()
        .ok()
        .map(Duration::from_secs)
        .or_else(|| {
            let (until, now) = (moment(after)?, date(headers)?);
            until.duration_since(now).try_into().ok()
        });
    wait.unwrap_or(DEFAULT_WAIT)
        .clamp(Duration::from_secs(1), MAX_WAIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    http::HeaderName::from_static(name),
                    HeaderValue::from_static(value),
                )
            })
            .collect()
    }

    #[test]
    fn a_wait_is_taken_from_seconds_or_a_date_and_bounded() {
        let date = ("date", "Wed, 21 Oct 2015 07:28:00 GMT");
        for (pairs, seconds) in [
            (vec![], 60),
            (vec![("retry-after", "7")], 7),
            (vec![("retry-after", "0")], 1),
            (vec![("retry-after", "999999")], 3600),
            (vec![("retry-after", "soon")], 60),
            (
                vec![("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT"), date],
                30,
            ),
            (
                vec![("retry-after", "Wed, 21 Oct 2015 07:27:00 GMT"), date],
                60,
            ),
            (vec![("retry-after", "Wed, 21 Oct 2015 07:28:30 GMT")], 60),
            // 1445412520 is 07:28:40 of that day.
            (
                vec![
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1445412520"),
                    date,
                ],
                41,
            ),
            (vec![("ratelimit-reset", "1445412520"), date], 41),
            (
                vec![
                    ("x-ratelimit-remaining", "7"),
                    ("x-ratelimit-reset", "1445412520"),
                    date,
                ],
                60,
            ),
        ] {
            assert_eq!(
                retry_after(&headers(&pairs)).as_secs(),
                seconds,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_403_is_a_limit_only_if_headers_or_words_say_so() {
        let retry = headers(&[("retry-after", "1")]);
        let used_up = headers(&[("x-ratelimit-remaining", "0")]);
        let left = headers(&[("x-ratelimit-remaining", "5")]);
        let words = "You have exceeded a secondary rate limit. Please wait.";
        for (status, headers, message, limit) in [
            (403, &retry, "", true),
            (403, &used_up, "", true),
            (403, &left, "", false),
            (403, &left, words, true),
            (422, &left, "pull request was submitted too quickly", true),
            (422, &retry, "Validation Failed", false),
            (429, &left, "", true),
            (200, &retry, words, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(
                is_limit(status, headers, message),
                limit,
                "{status} {message}"
            );
        }
    }
}
