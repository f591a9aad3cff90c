//! Owns the way of a status from the hub's frame into the object: which one is written when, and how.
//!
//! `queue` decides (pure), `write` talks to the API server, `schema` leaves out what the served schema lacks. Only the
//! newest status of an object matters, and an object has at most one write at a time.

mod queue;
mod write;

use jiff::Timestamp;
use nabu_common::ids::{ResponseUid, Revision};
use serde_json::{Map, Value, json};

pub use self::queue::{Outcome, Queue, Report};
pub(crate) use self::write::chain;
pub use self::write::{Writer, Written};
use crate::session::{KnownSpec, Refusal};

/// Where a response stands; `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Accepted; no attempt runs.
    Pending,
    /// An attempt runs.
    Running,
    /// The pull request is open, or not needed.
    Succeeded,
    /// Given up.
    Failed,
    /// Not wanted any more.
    Cancelled,
}

impl Phase {
    /// The word in the object.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }

    /// A terminal phase never changes.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// A whole outward status of one EventResponse.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusUpdate {
    /// `metadata.uid`: another object of the same name is not touched.
    pub uid: ResponseUid,
    /// `metadata.name`.
    pub name: String,
    /// The session it came on; revisions compare only within one.
    pub session: u64,
    /// The hub wants to hear if the object is deleted, though it is finished.
    pub watched: bool,
    /// The spec that the hub knows, if it wants to hear of another one though the EventResponse is finished.
    pub known_spec: Option<KnownSpec>,
    /// The hub's revision; `None` if the status is of our own making and the hub waits for no answer.
    pub revision: Option<Revision>,
    /// `status.phase`, which is among the fields too.
    pub phase: Phase,
    /// `status`.
    pub fields: Map<String, Value>,
}

impl StatusUpdate {
    /// The terminal status of what the hub refused to take.
    pub fn refused(refusal: &Refusal, name: &str, session: u64, now: Timestamp) -> Self {
        let fields = json!({
            "phase": Phase::Failed.as_str(),
            "completedAt": now.to_string(),
            "outcome": {"type": "Errored", "message": "the hub refused the EventResponse"},
            "error": {"type": "Permanent", "reason": refusal.reason, "detail": refusal.message},
        });
        let Value::Object(fields) = fields else {
            unreachable!("json! of braces is an object")
        };
        Self {
            uid: refusal.uid.clone(),
            name: name.to_owned(),
            session,
            watched: false,
            known_spec: None,
            revision: None,
            phase: Phase::Failed,
            fields,
        }
    }

    /// The sentence that a person wants to read: the error of a failure, else the outcome.
    pub fn sentence(&self) -> &str {
        let text = |object: &str, field: &str| {
            self.fields
                .get(object)
                .and_then(|parts| parts.get(field))
                .and_then(Value::as_str)
                .filter(|s| !s.is_empty())
        };
        text("error", "detail")
            .filter(|_| self.phase != Phase::Succeeded)
            .or(text("outcome", "message"))
            .unwrap_or("")
    }
}
