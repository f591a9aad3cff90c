//! Durations as Go and Kubernetes write them: `10s`, `1h30m`, `1.5s`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A duration in the text form of Go's `time.ParseDuration`, not negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GoDuration(pub Duration);

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write for example 10s, 5m or 1h30m")]
pub struct InvalidDuration(String);

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

impl FromStr for GoDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidDuration(text.chars().take(40).collect());
        let mut rest = text.strip_prefix('+').unwrap_or(text);
        if rest == "0" {
            return Ok(Self(Duration::ZERO));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut sum = Duration::ZERO;
        while !rest.is_empty() {
            let number_end = rest
                .find(|c: char| !c.is_ascii_digit() && c != '.')
                .ok_or_else(invalid)?;
            let (number, tail) = rest.split_at(number_end);
            let unit_end = tail
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(tail.len());
            let (unit, tail) = tail.split_at(unit_end);
            let number: f64 = number.parse().map_err(|_| invalid())?;
            let (_, seconds) = UNITS
                .iter()
                .find(|(name, _)| *name == unit)
                .ok_or_else(invalid)?;
            let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| invalid())?;
            sum = sum.checked_add(part).ok_or_else(invalid)?;
            rest = tail;
        }
        Ok(Self(sum))
    }
}

impl TryFrom<String> for GoDuration {
    type Error = InvalidDuration;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<GoDuration> for Duration {
    fn from(duration: GoDuration) -> Self {
        duration.0
    }
}

impl From<GoDuration> for String {
    fn from(duration: GoDuration) -> Self {
        duration.to_string()
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if hours > 0 || minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        let rest = Duration::new(seconds % 60, self.0.subsec_nanos());
        write!(f, "{}s", rest.as_secs_f64())
    }
}

impl JsonSchema for GoDuration {
    fn schema_name() -> Cow<'static, str> {
        "GoDuration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "A duration such as 10s, 5m or 1h30m." })
    }

    fn inline_schema() -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, millis) in [
            ("10s", 10_000),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("0", 0),
            ("0s", 0),
            ("1m0.5s", 60_500),
        ] {
            assert_eq!(
                text.parse::<GoDuration>().unwrap().0,
                Duration::from_millis(millis),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "10",
            "s",
            "-5s",
            "10 s",
            "1d",
            "1..5s",
            "99999999999999999999h",
            "1e5s",
        ] {
            assert!(text.parse::<GoDuration>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_printed_duration_is_read_back() {
        for seconds in [0, 1, 59, 60, 61, 3_600, 5_400, 86_400] {
            let duration = GoDuration(Duration::from_secs(seconds));
            assert_eq!(duration.to_string().parse(), Ok(duration));
        }
    }
}
