//! Owns the one stream to the hub: connecting, staying connected, and what crosses the wire.
//!
//! The rest of the agent sees plain values ([`ToHub`], [`FromHub`]); generated types end in `convert`. What to send
//! when is `inventory`'s decision, what to do with a status is `status`'s.

mod backoff;
mod client;
mod convert;
mod outbox;
mod renewal;

use std::time::Duration;

use bytes::Bytes;
use nabu_common::ids::{ResponseUid, Revision};

pub use self::backoff::Backoff;
pub use self::client::{Client, Introduction};
pub use self::outbox::{Outbox, Overflow};
use crate::object::SpecPrint;
use crate::status::StatusUpdate;

/// The state of one EventResponse, as it goes to the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// `metadata.uid`.
    pub uid: ResponseUid,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `spec.responder.name`.
    pub responder: String,
    /// SHA-256 of the canonical JSON of `spec`.
    pub spec_hash: [u8; 32],
    /// The EventResponse as JSON.
    pub event_response: Bytes,
    /// The SecurityEvent as JSON, or why it is not there.
    pub security_event: Result<Bytes, Absence>,
}

/// Why an EventResponse goes without its SecurityEvent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Not there within the time that we wait, or not named at all.
    NotFound,
    /// An object of that name has another UID.
    UidMismatch,
    /// We may not read it, or the cluster does not have the kind.
    NotReadable,
}

/// A frame to the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToHub {
    /// An inventory begins.
    SnapshotBegin {
        /// Grows with each one.
        id: u64,
    },
    /// The state of one EventResponse.
    Observed(Box<Observation>),
    /// The inventory is complete.
    SnapshotEnd {
        /// The id of its begin.
        id: u64,
        /// How many Observed frames went since.
        count: u64,
    },
    /// An EventResponse is gone, or out of our hands.
    Deleted {
        /// `metadata.uid`.
        uid: ResponseUid,
        /// `metadata.name`.
        name: String,
        /// It is there, but finished or not ours any more.
        still_there: bool,
        /// It is there, and says that it has succeeded by a status that one of our agents wrote.
        own_success: bool,
    },
    /// A status is stored by the API server.
    Applied {
        /// The response.
        uid: ResponseUid,
        /// What was stored.
        revision: Revision,
    },
    /// A status is refused by the API server for good.
    StatusRefused {
        /// The response.
        uid: ResponseUid,
        /// What was refused.
        revision: Revision,
        /// A sentence for people.
        reason: String,
    },
}

/// The spec of a finished EventResponse that the hub knows; it wants to hear of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSpec {
    /// What tells it from another.
    pub print: SpecPrint,
    /// `metadata.name` of the EventResponse.
    pub name: String,
}

/// A frame from the hub that concerns others than the session itself.
#[derive(Debug)]
pub enum FromHub {
    /// A state is stored durably.
    Accepted {
        /// The response.
        uid: ResponseUid,
        /// Which state.
        spec_hash: [u8; 32],
    },
    /// A state is refused.
    Refused(Refusal),
    /// A whole outward status.
    Status(Box<StatusUpdate>),
    /// More Observed frames may be sent.
    Credit(u32),
    /// A part of the list of finished `EventResponses` whose deletion the hub wants to hear of.
    Watching {
        /// The responses, with the spec that the hub knows if another one matters.
        responses: Vec<(ResponseUid, Option<KnownSpec>)>,
        /// Further parts follow.
        more: bool,
    },
    /// What the hub holds as unfinished and the last inventory did not name: is it gone?
    Missing(Vec<ResponseUid>),
}

/// Why a state was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The response.
    pub uid: ResponseUid,
    /// A CamelCase word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub message: String,
}

/// What the session has to tell.
#[derive(Debug)]
pub enum SessionEvent {
    /// The hub said Welcome.
    Opened {
        /// Tells this session from others of this process.
        session: u64,
        /// Takes frames for the hub.
        outbox: Outbox,
        /// Observed frames that may be sent.
        credit: u32,
        /// The hub's wish for the resync interval.
        resync: Option<Duration>,
    },
    /// A frame arrived.
    Frame {
        /// The session it came on.
        session: u64,
        /// What it says.
        frame: FromHub,
    },
    /// The transport took a frame that holds a slot.
    FrameSent {
        /// The session it went on.
        session: u64,
    },
    /// The session is over.
    Closed {
        /// Another agent of this cluster took over: what waits here is its business now.
        superseded: bool,
    },
}
