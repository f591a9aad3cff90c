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

/// Some forges and proxies say 403 for a limit, and mark it by headers.
pub(super) fn is_limit(status: StatusCode, headers: &HeaderMap) -> bool {
    let none_left = headers
        .get("x-ratelimit-remaining")
        .is_some_and(|left| left.as_bytes() == b"0");
    status == StatusCode::TOO_MANY_REQUESTS
        || status == StatusCode::FORBIDDEN && (headers.contains_key(RETRY_AFTER) || none_left)
}

/// `Retry-After` in seconds or as a date, else the time at which GitLab's limit begins anew; both are measured against
/// the forge's own clock.
pub(super) fn retry_after(headers: &HeaderMap) -> Duration {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let date = |text: &str| rfc2822::parse(text).ok().map(|zoned| zoned.timestamp());
    let from_now = |until: Timestamp| {
        let now = date(text(DATE.as_str())?)?;
        Duration::try_from(until.duration_since(now)).ok()
    };
    let seconds = |text: &str| text.trim().parse().ok().map(Duration::from_secs);
    let after =
        text(RETRY_AFTER.as_str()).map(|after| seconds(after).or_else(|| from_now(date(after)?)));
    let reset = || {
        let until = text("ratelimit-reset")?.trim().parse().ok()?;
        from_now(Timestamp::from_second(until).ok()?)
    };
    after
        .unwrap_or_else(reset)
        .unwrap_or(DEFAULT_WAIT)
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
            (vec![("ratelimit-reset", "1445412525"), date], 45),
            (vec![("ratelimit-reset", "1445412525")], 60),
        ] {
            assert_eq!(
                retry_after(&headers(&pairs)).as_secs(),
                seconds,
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn a_403_is_a_limit_only_if_its_headers_say_so() {
        assert!(is_limit(
            StatusCode::FORBIDDEN,
            &headers(&[("retry-after", "1")])
        ));
        assert!(is_limit(
            StatusCode::FORBIDDEN,
            &headers(&[("x-ratelimit-remaining", "0")])
        ));
        assert!(!is_limit(
            StatusCode::FORBIDDEN,
            &headers(&[("x-ratelimit-remaining", "5")])
        ));
        assert!(!is_limit(StatusCode::OK, &headers(&[("retry-after", "1")])));
    }
}
