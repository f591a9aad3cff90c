//! Times as people read them.

use jiff::Timestamp;

pub(in crate::nabuctl) fn time(at: Option<prost_types::Timestamp>) -> String {
    timestamp(at)
        .map(|at| format!("{at:.0}"))
        .unwrap_or_default()
}

pub(in crate::nabuctl) fn timestamp(at: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    let at = at?;
    Timestamp::new(at.seconds, at.nanos).ok()
}

/// How long ago, in the largest unit that says enough.
pub(in crate::nabuctl) fn age(at: Option<prost_types::Timestamp>, now: Timestamp) -> String {
    let Some(at) = timestamp(at) else {
        return String::new();
    };
    let seconds = now.duration_since(at).as_secs().max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7_199 => format!("{}m", seconds / 60),
        7_200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// A span in seconds.
pub(in crate::nabuctl) fn seconds(span: Option<prost_types::Duration>) -> Option<f64> {
    let span = span?;
    let whole = span
        .seconds
        .saturating_mul(1000)
        .saturating_add(i64::from(span.nanos / 1_000_000));
    #[expect(clippy::cast_precision_loss, reason = "no clock is that far off")]
    let seconds = whole as f64 / 1000.0;
    Some(seconds)
}

/// How far a clock is off, for people: `+` is ahead of the hub's.
pub(in crate::nabuctl) fn skew(span: Option<prost_types::Duration>) -> String {
    seconds(span)
        .map(|seconds| format!("{seconds:+.1}s"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_goes_slow_has_a_minus() {
        let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        assert_eq!(skew(span(-1, -500_000_000)), "-1.5s");
        assert_eq!(skew(span(90, 0)), "+90.0s");
        assert_eq!(skew(None), "");
    }

    #[test]
    fn an_age_has_one_unit() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        for (seconds, text) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (7_200, "2h"),
            (200_000, "2d"),
            (-3, "0s"),
        ] {
            let at = prost_types::Timestamp {
                seconds: 1_000_000 - seconds,
                nanos: 0,
            };
            assert_eq!(age(Some(at), now), text);
        }
        assert_eq!(age(None, now), "");
    }
}
