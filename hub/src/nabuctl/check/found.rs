//! What a check says of one thing: how well it is, and the command that mends it.

use jiff::{SignedDuration, Timestamp};

/// How well something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Ok,
    /// It cannot be judged yet, or not from here.
    Skipped,
    Warning,
    Error,
}

impl Level {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Skipped => "skipped",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// What was found about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// What was looked at, as a word for programs.
    pub(super) check: &'static str,
    pub(super) level: Level,
    pub(super) message: String,
    /// The command that mends it, or by which it can be judged; empty if all is well.
    pub(super) remedy: String,
}

impl Found {
    pub(super) fn ok(check: &'static str, message: impl Into<String>) -> Self {
        Self::bad(check, Level::Ok, message, "")
    }

    pub(super) fn skipped(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::bad(check, Level::Skipped, message, remedy)
    }

    pub(super) fn warning(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::bad(check, Level::Warning, message, remedy)
    }

    pub(super) fn error(
        check: &'static str,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::bad(check, Level::Error, message, remedy)
    }

    pub(super) fn bad(
        check: &'static str,
        level: Level,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            level,
            message: message.into(),
            remedy: remedy.into(),
        }
    }
}

/// Who makes the certificates of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certifier {
    /// The hub, by its own authority.
    Hub,
    /// The fleet's own PKI.
    OwnPki,
    /// The hub could not be asked.
    Unknown,
}

/// No certificate is worth a warning sooner than that before its end.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Whether a certificate of this lifetime ends soon: less than a fifth of it is left, and less than seven days. What renews
/// itself has done so by then.
pub(super) fn ends_soon(lifetime: SignedDuration, until: Timestamp, now: Timestamp) -> bool {
    until.duration_since(now) < SOON.min(lifetime / 5)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Programs whose commands a remedy may name.
    const PROGRAMS: [&str; 6] = [
        "nabuctl ",
        "nabu-hub ",
        "kubectl ",
        "helm ",
        "timedatectl ",
        "openssl ",
    ];

    /// Fails unless everything that is not well has a command that mends it, and nothing else has; and unless the book tells of
    /// what was looked at.
    pub(in crate::nabuctl::check) fn assert_remedies(all: &[Found]) {
        let book = format!("{}/../docs/src/check.md", env!("CARGO_MANIFEST_DIR"));
        let book = std::fs::read_to_string(book).unwrap();
        for found in all {
            let line = format!("\n| `{}` |", found.check);
            assert!(
                book.contains(&line),
                "the book does not have {}",
                found.check
            );
            let command = PROGRAMS
                .iter()
                .any(|program| found.remedy.contains(program));
            assert_eq!(command, found.level != Level::Ok, "{found:?}");
            assert!(!found.message.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_certificate_ends_soon_when_what_renews_itself_would_have_been_renewed() {
        let until = Timestamp::from_second(1_800_000_000).unwrap();
        let hour = SignedDuration::from_hours(1);
        for (lifetime, left, soon) in [
            (365 * 24, 8 * 24, false),
            (365 * 24, 6 * 24, true),
            (24, 7, false),
            (24, 4, true),
            (24, -1, true),
        ] {
            let now = until - hour * left;
            assert_eq!(
                ends_soon(hour * lifetime, until, now),
                soon,
                "{lifetime} h, {left} h left"
            );
        }
    }
}
