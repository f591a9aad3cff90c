//! The hub's durable record of one EventResponse, as plain values.
//!
//! [`Response`] is what the store gives and `plan` reads. Its [`Progress`] changes only through the functions of
//! [`crate::plan::progress`], which are pure: the same record, event and time give the same next record. The store
//! runs them inside its transaction; nobody else edits a `Progress`.

use jiff::Timestamp;
use nabu_common::ids::{ResponseKey, Revision};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::change::Intent;

/// Where a response stands; `status.phase` of the EventResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted; no attempt runs.
    Pending,
    /// An attempt runs.
    Running,
    /// The pull request is open, or the change is already on the base branch.
    Succeeded,
    /// Given up.
    Failed,
    /// Not wanted any more.
    Cancelled,
}

impl Phase {
    /// A terminal phase never changes.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// The word in statuses, in the store and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }

    /// Reads [`Phase::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Pending,
            Self::Running,
            Self::Succeeded,
            Self::Failed,
            Self::Cancelled,
        ]
        .into_iter()
        .find(|phase| phase.as_str() == word)
    }
}

/// How an error is to be taken; `status.error.type` of the EventResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ErrorType {
    /// May pass; the only one that is retried by itself.
    Transient,
    /// The same request would fail again.
    Permanent,
    /// Somebody else's work is in the way.
    Conflicting,
    /// The credential is missing, wrong, or lacks a right.
    Unauthorized,
}

impl ErrorType {
    /// The word in statuses, in the store and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "Transient",
            Self::Permanent => "Permanent",
            Self::Conflicting => "Conflicting",
            Self::Unauthorized => "Unauthorized",
        }
    }

    /// Reads [`ErrorType::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Transient,
            Self::Permanent,
            Self::Conflicting,
            Self::Unauthorized,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == word)
    }
}

/// A typed failure; `status.error` of the EventResponse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResponseError {
    /// How it is to be taken.
    pub kind: ErrorType,
    /// A CamelCase word for programs.
    pub reason: String,
    /// A sentence for people, with the remedy. Holds no credential.
    pub detail: String,
}

impl ResponseError {
    /// An error with its three parts.
    pub fn new(kind: ErrorType, reason: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            kind,
            reason: reason.into(),
            detail: detail.into(),
        }
    }
}

/// What an ended response came to; `status.outcome.type` of the EventResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum OutcomeType {
    /// A pull request exists.
    ActionTaken,
    /// The base branch already has the change.
    NoActionNeeded,
    /// Nothing was done, on purpose.
    Skipped,
    /// It failed.
    Errored,
}

impl OutcomeType {
    /// The word in statuses, in the store and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ActionTaken => "ActionTaken",
            Self::NoActionNeeded => "NoActionNeeded",
            Self::Skipped => "Skipped",
            Self::Errored => "Errored",
        }
    }
}

/// `status.outcome` of the EventResponse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The kind of result.
    pub kind: OutcomeType,
    /// A sentence for people.
    pub message: String,
}

/// A Kubernetes condition of the EventResponse.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// `Accepted`, `Routed`, `PullRequest` or `SecurityEvent`.
    pub kind: String,
    /// True, false, or (`None`) unknown.
    pub status: Option<bool>,
    /// A CamelCase word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// When `status` last changed.
    pub last_transition_time: Timestamp,
    /// The generation of the EventResponse that it was set for.
    pub observed_generation: i64,
}

/// Why an EventResponse came without its SecurityEvent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SecurityEventAbsence {
    /// No object of that name within the time the agent waits.
    NotFound,
    /// An object of that name with another UID.
    UidMismatch,
    /// The agent may not read SecurityEvents, or the cluster does not have the kind.
    NotReadable,
    /// Too large to travel with its EventResponse.
    TooLarge,
}

/// What the agent could read of the object.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The objects as the cluster has them, hostile until `plan` has checked each value.
    Objects {
        /// The EventResponse.
        event_response: Value,
        /// The SecurityEvent, or why it is not there.
        security_event: Result<Value, SecurityEventAbsence>,
    },
    /// The object is known by name only.
    Unserveable {
        /// A CamelCase word for programs.
        reason: String,
        /// A sentence that names the field or the size.
        message: String,
    },
}

/// An EventResponse as an agent observed it.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    /// Cluster (from the certificate) and UID.
    pub key: ResponseKey,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.responder.name`.
    pub responder: String,
    /// SHA-256 of the canonical JSON of `spec`.
    pub spec_hash: [u8; 32],
    /// The objects.
    pub content: Content,
}

/// The durable record of one EventResponse.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The EventResponse as it was observed last.
    pub observation: Observation,
    /// When it was first stored.
    pub observed_at: Timestamp,
    /// How far the hub has come with it.
    pub progress: Progress,
}

impl Response {
    /// The key of the response.
    pub fn key(&self) -> &ResponseKey {
        &self.observation.key
    }
}

/// What is to be done about the pull request of a response that has ended, and how far that has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowUp {
    /// What.
    pub kind: FollowUpKind,
    /// Whether something may have been written to the forge for it.
    pub begun: bool,
    /// Failures so far.
    pub failures: u32,
    /// Waits for a limit or an outage in a row; decides how long the next one is.
    pub waits: u32,
    /// Not before this time.
    pub next_at: Option<Timestamp>,
}

/// What is to be done about a pull request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FollowUpKind {
    /// It is closed, for this reason.
    Close {
        /// Completes "closed by Nabu: …".
        reason: String,
    },
    /// It is made to show what this spec asks for.
    Update {
        /// The spec.
        asked: SpecVersion,
        /// The change that the spec comes to, from before the first write for it on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        intent: Option<Box<Intent>>,
    },
}

/// One spec of an EventResponse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecVersion {
    /// `metadata.generation`.
    pub generation: i64,
    /// SHA-256 of the canonical JSON of `spec`.
    #[serde(with = "hash_text")]
    pub hash: [u8; 32],
}

impl SpecVersion {
    /// That of an observation.
    pub fn of(observation: &Observation) -> Self {
        Self {
            generation: observation.generation,
            hash: observation.spec_hash,
        }
    }
}

/// A response asks for something else than its change is of, and its route lets the change follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Renewal {
    /// What the change is of.
    pub decided: SpecVersion,
    /// What is asked for.
    pub asked: SpecVersion,
}

/// How far the hub has come with a response, and what the outside may know of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "facts that hold beside each other, each stored by its name"
)]
pub struct Progress {
    /// Where it stands.
    pub phase: Phase,
    /// Attempts that count (interrupted ones and waits for a limit do not).
    pub attempts: u32,
    /// When the first attempt began.
    pub started_at: Option<Timestamp>,
    /// When the last attempt began.
    pub last_attempt_at: Option<Timestamp>,
    /// No attempt before this time.
    pub next_attempt_at: Option<Timestamp>,
    /// When the terminal phase was reached.
    pub completed_at: Option<Timestamp>,
    /// The result, in a terminal phase.
    pub outcome: Option<Outcome>,
    /// The last error.
    pub error: Option<ResponseError>,
    /// The change that was decided, from before the first write on. Stored beside the record, not in it: it can be
    /// large, and lists do not need it.
    #[serde(skip)]
    pub intent: Option<Intent>,
    /// The pull request.
    pub url: Option<String>,
    /// The commit's object id in hex.
    pub commit: Option<String>,
    /// Why it was cancelled.
    pub cancel_reason: Option<String>,
    /// Somebody wants it cancelled, for this reason; `plan` decides when.
    pub cancel_requested: Option<String>,
    /// The EventResponse is gone from its cluster.
    pub deleted: bool,
    /// Waits for a limit or an outage in a row; decides how long the next one is.
    pub waits: u32,
    /// An attempt was begun and has not ended; after a restart: was interrupted.
    pub attempt_open: bool,
    /// Until when at least a limit, which stands in the audit log, holds up or held up the next attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limited_until: Option<Timestamp>,
    /// What is still to be done about the pull request, though the response has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follow_up: Option<FollowUp>,
    /// Its pull request is that of its group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// It is not wanted any more, and that was said on the pull request, which stays open for others of the group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub withdrawn: bool,
    /// Why, as long as the pull request is to be closed once nobody is left for whom it stays open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withdrawal: Option<String>,
    /// The response has ended, and it matters if its EventResponse is deleted all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub watched: bool,
    /// The response has ended, and it matters if the spec of its EventResponse changes all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spec_watched: bool,
    /// How often the observation was replaced by another: what was decided on an older one is decided again.
    #[serde(default)]
    pub taken: u32,
    /// The observation is of another spec than the intent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal: Option<Renewal>,
    /// The forge may have something of this response that is not recorded here: an attempt or an update was interrupted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unrecorded: bool,
    /// Paths that may be changed on the branch though the intent does not name them: an update did not come to its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leftovers: Vec<String>,
    /// The conditions that the agent writes.
    pub conditions: Vec<Condition>,
    /// Grows with every change of the outward status.
    pub revision: Revision,
    /// The newest revision that the cluster's API server has stored or refused for good.
    pub acknowledged_revision: Revision,
}

/// A hash as text, in hex.
mod hash_text {
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        hash: &[u8; 32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).map_err(D::Error::custom)?;
        Ok(hash)
    }
}
