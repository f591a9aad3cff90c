//! Owns the vocabulary of the inventory: what happens to it, what it asks for, and what bounds it.

use std::time::Duration;

use nabu_common::ids::ResponseUid;

use crate::object::{End, Object};
use crate::session::{KnownSpec, Observation, Refusal, ToHub};

/// What bounds the inventory.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many objects may be read, or wait in the session's queue, at one time.
    pub slots: usize,
    /// How much JSON may be kept, in bytes.
    pub kept_bytes: usize,
    /// How long to wait for a SecurityEvent that is not there.
    pub security_event_wait: Duration,
    /// How often the inventory is sent again, unless the hub says otherwise.
    pub resync: Duration,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// A list of all objects begins: after it, what was not [`Event::Listed`] is gone.
    ListBegins,
    /// An unfinished object of ours is on the list.
    Listed(Box<Object>),
    /// The list is complete.
    ListEnds,
    /// An unfinished object of ours appeared or changed.
    Applied(Box<Object>),
    /// An object is finished, or not ours any more. It is known by its UID; the last state may still interest the hub.
    Settled(ResponseUid),
    /// An object is finished and of our kind.
    Finished {
        /// The response.
        uid: ResponseUid,
        /// How it has ended.
        end: End,
    },
    /// An object was deleted.
    Deleted(ResponseUid),
    /// The hub said Welcome.
    SessionOpened {
        /// Tells this session from the ones before it.
        session: u64,
        /// Observed frames that may be sent.
        credit: u32,
        /// The hub's wish for the resync interval.
        resync: Option<Duration>,
    },
    /// The session is over.
    SessionClosed,
    /// More Observed frames may be sent.
    Credit(u32),
    /// The hub stored an observed state.
    Accepted {
        /// The response.
        uid: ResponseUid,
        /// Which state.
        spec_hash: [u8; 32],
    },
    /// The hub refused an observed state.
    Refused(Refusal),
    /// The hub ordered a status with a terminal phase, so what the watch will show is known to the hub.
    FinalStatusOrdered(ResponseUid),
    /// The hub wants to hear if an EventResponse is deleted, though it is finished (`watched`), or not any more.
    Watched {
        /// The response.
        uid: ResponseUid,
        /// Whether it wants that.
        watched: bool,
        /// The spec that it knows, if another one matters.
        spec: Option<KnownSpec>,
    },
    /// A part of the whole list of those.
    Watching {
        /// The responses of this part, with the spec that the hub knows if another one matters.
        responses: Vec<(ResponseUid, Option<KnownSpec>)>,
        /// Further parts follow.
        more: bool,
    },
    /// The hub asks for what it holds as unfinished and the last inventory did not name.
    Missing(Vec<ResponseUid>),
    /// What [`Effect::Prepare`] asked for.
    Prepared {
        /// The session that it was prepared for.
        session: u64,
        /// The whole state.
        observation: Box<Observation>,
    },
    /// The EventResponse is there, its SecurityEvent is not.
    SecurityEventMissing {
        /// The session that it was prepared for.
        session: u64,
        /// The response.
        uid: ResponseUid,
    },
    /// The API server failed.
    PrepareFailed {
        /// The session that it was prepared for.
        session: u64,
        /// The response.
        uid: ResponseUid,
    },
    /// The EventResponse is not there any more (gone, or another of that name), or needs nothing any more.
    Vanished {
        /// The session that it was prepared for.
        session: u64,
        /// The response.
        uid: ResponseUid,
        /// It is there, and finished or not ours.
        finished: bool,
    },
    /// The transport took a frame of [`Effect::Send`] that holds a slot.
    FrameSent {
        /// The session of the frame.
        session: u64,
    },
    /// Time passed; see [`Inventory::next_wake`].
    Tick,
}

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// Read what is missing and come back with one of [`Event::Prepared`], [`Event::SecurityEventMissing`],
    /// [`Event::PrepareFailed`] or [`Event::Vanished`].
    Prepare(Prepare),
    /// Hand a frame to the session, behind those before it.
    Send(ToHub),
    /// Write the terminal status that a refusal means.
    WriteRefusal {
        /// What the hub said.
        refusal: Refusal,
        /// `metadata.name` of the EventResponse.
        name: String,
    },
    /// Every object is known now.
    Synced,
    /// An inventory is on its way to the hub.
    ResyncStarted,
}

/// An object to be read and sent.
#[derive(Debug, PartialEq)]
pub struct Prepare {
    /// The session that it is meant for.
    pub session: u64,
    /// The response.
    pub uid: ResponseUid,
    /// `metadata.name` of the EventResponse.
    pub name: String,
    /// The object, if it is still at hand.
    pub object: Option<Box<Object>>,
    /// A missing SecurityEvent is not waited for any longer.
    pub without_security_event: bool,
    /// It is finished, and wanted all the same.
    pub finished: bool,
}
