//! What words of a forge mean: the form of the tables, one for each forge, and the one way to read them.
//!
//! A table is about words, because forges change statuses more often than texts, and tell with one status what has many
//! causes. What no row knows is judged by its status ([`super::http`]) or by a look at the repository.

use super::ForgeError;
use super::http::failed;
use crate::response::ErrorType;

/// What a row makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The attempt failed.
    Failed(ErrorType),
    /// The response waits for people.
    Parked(ErrorType),
    /// The forge takes nothing from anybody now; the response waits for it.
    Waits,
}

/// What an error with these words means.
#[derive(Debug)]
pub(super) struct Row {
    /// Words of the message, in lower case.
    words: &'static str,
    pub(super) outcome: Outcome,
    pub(super) reason: &'static str,
    remedy: &'static str,
}

pub(super) const fn row(
    words: &'static str,
    outcome: Outcome,
    reason: &'static str,
    remedy: &'static str,
) -> Row {
    Row {
        words,
        outcome,
        reason,
        remedy,
    }
}

impl Row {
    /// The error of a forge that said this of a place.
    pub(super) fn meaning(&self, place: &str, said: &str) -> ForgeError {
        let detail = detail(place, said, self.remedy);
        match self.outcome {
            Outcome::Failed(kind) => failed(kind, self.reason, detail),
            Outcome::Parked(kind) => ForgeError::parked(kind, self.reason, detail),
            Outcome::Waits => ForgeError::Unavailable { detail },
        }
    }
}

/// The sentence for people.
pub(super) fn detail(place: &str, said: &str, remedy: &str) -> String {
    format!("{place} says {said:?}; {remedy}")
}

/// The first row whose words an error has, whatever case they are in.
pub(super) fn known(table: &'static [Row], said: &str) -> Option<&'static Row> {
    let said = said.to_lowercase();
    table.iter().find(|row| said.contains(row.words))
}
