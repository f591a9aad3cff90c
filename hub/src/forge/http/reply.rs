//! The part of an answer that a forge looks at, and what a status means when nobody knows better.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::de::DeserializeOwned;

use super::super::ForgeError;
use super::super::text::{one_line, without};
use super::limit;
use crate::response::{ErrorType, ResponseError};

/// An answer for the forge that asked.
#[derive(Debug)]
pub(in super::super) struct Reply {
    /// The HTTP status.
    pub(in super::super) status: StatusCode,
    body: Vec<u8>,
    message: String,
    place: String,
    date: Option<Timestamp>,
    reset_wait: Option<Duration>,
    /// What the request was authorized with, to be left out of texts.
    token: SecretString,
}

impl Reply {
    pub(super) fn new(status: StatusCode, body: Vec<u8>, message: String, place: String) -> Self {
        Self {
            status,
            body,
            message,
            place,
            date: None,
            reset_wait: None,
            token: SecretString::from(""),
        }
    }

    /// The answer to a request that was authorized so.
    pub(super) fn to(self, token: SecretString) -> Self {
        Self { token, ..self }
    }

    /// A text of the answer's body, without the token should the forge have sent it back.
    pub(in super::super) fn without_token(&self, text: &str) -> String {
        without(text, &self.token)
    }

    /// The same answer with what its headers say of times.
    pub(super) fn timed(self, headers: &HeaderMap) -> Self {
        Self {
            date: limit::date(headers),
            reset_wait: limit::until_reset(headers),
            ..self
        }
    }

    /// How long until a budget that is used up begins anew.
    pub(in super::super) fn reset_wait(&self) -> Option<Duration> {
        self.reset_wait
    }

    /// The forge's own time of the answer, if it said it.
    pub(in super::super) fn date(&self) -> Option<Timestamp> {
        self.date
    }

    /// Reads the JSON of a success; any other status is its error.
    pub(in super::super) fn json<T: DeserializeOwned>(&self) -> Result<T, ForgeError> {
        if !self.status.is_success() {
            return Err(self.error());
        }
        serde_json::from_slice(&self.body).map_err(|error| {
            let detail = format!(
                "the forge of {} gave an answer that cannot be read ({}); is baseURL the address of the forge?",
                self.place,
                one_line(&error.to_string())
            );
            failed(ErrorType::Transient, "ForgeError", detail)
        })
    }

    /// Like [`Reply::json`], and `None` for what is not there.
    pub(in super::super) fn found<T: DeserializeOwned>(&self) -> Result<Option<T>, ForgeError> {
        if self.status == StatusCode::NOT_FOUND {
            Ok(None)
        } else {
            self.json().map(Some)
        }
    }

    /// Whether the forge said these words.
    pub(in super::super) fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }

    /// The number that follows these words.
    pub(in super::super) fn number_after(&self, words: &str) -> Option<u64> {
        let (_, rest) = self.message.split_once(words)?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..end].parse().ok()
    }

    /// What the forge said, fit for a text.
    pub(in super::super) fn message(&self) -> &str {
        &self.message
    }

    /// The text between these words, up to the last of the latter.
    pub(in super::super) fn text_between(&self, start: &str, end: &str) -> Option<&str> {
        let (_, rest) = self.message.split_once(start)?;
        rest.rsplit_once(end).map(|(text, _)| text)
    }

    /// What the forge said, as the end of a sentence: empty, or ` ("…")`.
    pub(in super::super) fn said(&self) -> String {
        said(&self.message)
    }

    /// What this status means when nobody knows better.
    pub(in super::super) fn error(&self) -> ForgeError {
        let (place, status, said) = (&self.place, self.status, self.said());
        if status == StatusCode::LOCKED {
            let detail = format!("{place} is locked{said}; unarchive it or change the route");
            return ForgeError::parked(ErrorType::Permanent, "RepositoryArchived", detail);
        }
        let (kind, reason, detail) = match status.as_u16() {
            403 => (
                ErrorType::Unauthorized,
                "PermissionDenied",
                format!(
                    "the token may not do this in {place}{said}; give it write access to code and pull requests"
                ),
            ),
            404 => (
                ErrorType::Permanent,
                "NotFound",
                format!(
                    "the forge does not find what belongs to {place}{said}; are pull requests enabled there?"
                ),
            ),
            409 => (
                ErrorType::Conflicting,
                "Conflict",
                format!("somebody else's work is in the way in {place}{said}"),
            ),
            500..=599 => (
                ErrorType::Transient,
                "ForgeError",
                format!("the forge of {place} answers {status}{said}"),
            ),
            _ => (
                ErrorType::Permanent,
                "Rejected",
                format!("the forge of {place} rejects the change with {status}{said}"),
            ),
        };
        failed(kind, reason, detail)
    }
}

/// A failure that counts as an attempt.
pub(in super::super) fn failed(
    kind: ErrorType,
    reason: &str,
    detail: impl Into<String>,
) -> ForgeError {
    ForgeError::Failed(ResponseError::new(kind, reason, detail))
}

pub(super) fn said(message: &str) -> String {
    if message.is_empty() {
        String::new()
    } else {
        format!(" ({message:?})")
    }
}
