//! Owns the small record of one unfinished EventResponse, and where it stands between the API server and the hub.

use std::time::{Duration, Instant};

use crate::object::Object;
use crate::session::Observation;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// To be read and sent.
    Waiting,
    /// To be read again at this time.
    Delayed(Instant),
    /// Being read; `stale` if it changed since.
    Preparing {
        /// The watch showed a change after the reading began.
        stale: bool,
    },
    /// Sent, not answered.
    Offered,
    /// Stored by the hub.
    Accepted,
    /// Refused by the hub: this state is never sent again.
    Refused,
}

/// One unfinished EventResponse.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) generation: i64,
    pub(super) spec_hash: [u8; 32],
    pub(super) state: State,
    /// The queue names it.
    pub(super) queued: bool,
    /// The object, if there was room for it.
    pub(super) kept: Option<Box<Object>>,
    /// From this time on it is sent without its SecurityEvent.
    pub(super) give_up_at: Option<Instant>,
    /// The hub knows that it ends: that the watch shows it finished is no news.
    pub(super) final_status_ordered: bool,
    /// It is finished, and sent once more because its spec has changed.
    pub(super) finished: bool,
    failures: u8,
}

impl Entry {
    pub(super) fn new(object: &Object) -> Self {
        Self {
            name: object.name.clone(),
            generation: object.generation,
            spec_hash: object.spec_hash,
            state: State::Waiting,
            queued: false,
            kept: None,
            give_up_at: None,
            final_status_ordered: false,
            finished: false,
            failures: 0,
        }
    }

    /// A finished object whose spec the hub is to hear of; it is read when its turn comes.
    pub(super) fn finished(name: String) -> Self {
        Self {
            name,
            generation: 0,
            spec_hash: [0; 32],
            state: State::Waiting,
            queued: false,
            kept: None,
            give_up_at: None,
            final_status_ordered: true,
            finished: true,
            failures: 0,
        }
    }

    /// Takes over another state of the same object.
    pub(super) fn update(&mut self, object: &Object) {
        self.generation = object.generation;
        self.spec_hash = object.spec_hash;
        self.finished = false;
        self.failures = 0;
    }

    /// Notes what was sent.
    pub(super) fn offer(&mut self, observation: &Observation) {
        self.generation = observation.generation;
        self.spec_hash = observation.spec_hash;
        self.state = State::Offered;
        self.failures = 0;
    }

    /// Lets go of the object and says how many bytes that frees.
    pub(super) fn drop_kept(&mut self) -> usize {
        self.kept.take().map_or(0, |object| object.json.len())
    }

    /// The hub has not stored it yet, and shall.
    pub(super) fn in_backlog(&self) -> bool {
        !self.finished && !matches!(self.state, State::Accepted | State::Refused)
    }

    /// How long to wait after one more failure: doubles from `first` to `longest`.
    pub(super) fn next_pause(&mut self, first: Duration, longest: Duration) -> Duration {
        let pause = first
            .saturating_mul(1 << self.failures.min(16))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        pause
    }
}
