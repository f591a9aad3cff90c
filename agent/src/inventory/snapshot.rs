//! Owns which objects an inventory on the wire still has to name, and when it may end.
//!
//! The hub asks for what `SnapshotEnd` leaves unnamed, and a hub of an older version takes it as deleted. So an inventory
//! ends only when everything that was there when it began was sent or is gone, and never before the first list of the API
//! server is complete.

use std::collections::HashSet;

use nabu_common::ids::ResponseUid;

/// An inventory on its way to the hub.
#[derive(Debug)]
pub(super) struct Snapshot {
    id: u64,
    remaining: HashSet<ResponseUid>,
    sent: u64,
    /// The list of the API server is not complete: more may appear that belongs to it.
    open_ended: bool,
}

impl Snapshot {
    pub(super) fn new(id: u64, remaining: HashSet<ResponseUid>, open_ended: bool) -> Self {
        Self {
            id,
            remaining,
            sent: 0,
            open_ended,
        }
    }

    /// An object became known.
    pub(super) fn appeared(&mut self, uid: &ResponseUid) {
        if self.open_ended {
            self.remaining.insert(uid.clone());
        }
    }

    /// An object was sent.
    pub(super) fn sent(&mut self, uid: &ResponseUid) {
        self.sent += 1;
        self.remaining.remove(uid);
    }

    /// An object needs no sending any more.
    pub(super) fn settled(&mut self, uid: &ResponseUid) {
        self.remaining.remove(uid);
    }

    /// The list of the API server is complete.
    pub(super) fn all_known(&mut self) {
        self.open_ended = false;
    }

    /// The id and the number of Observed frames, once nothing is missing.
    pub(super) fn complete(&self) -> Option<(u64, u64)> {
        (!self.open_ended && self.remaining.is_empty()).then_some((self.id, self.sent))
    }
}
