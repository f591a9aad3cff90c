//! Owns what is remembered of finished `EventResponses`: that they are there, and which of them the hub wants to hear of.
//!
//! There may be many, and nothing is kept of one but a hash of its UID. Two with the same hash would hide a deletion until
//! the other is gone as well; never is a deletion told of what is there.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use nabu_common::ids::ResponseUid;

/// The finished `EventResponses` of this cluster.
#[derive(Debug, Default)]
pub(super) struct Finished {
    hasher: RandomState,
    there: HashSet<u64>,
    /// What the list that runs has named so far.
    listed: Option<HashSet<u64>>,
    watched: HashSet<ResponseUid>,
    /// The parts of a new list of watched ones that have come.
    parts: HashSet<ResponseUid>,
}

impl Finished {
    /// A list of all objects begins.
    pub(super) fn list_begins(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// The list is complete: what it did not name is gone.
    pub(super) fn list_ends(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.there = listed;
        }
    }

    /// One is there.
    pub(super) fn seen(&mut self, uid: &ResponseUid) {
        let hash = self.hasher.hash_one(uid);
        self.there.insert(hash);
        if let Some(listed) = &mut self.listed {
            listed.insert(hash);
        }
    }

    /// One was deleted. Says whether the hub wants to hear of that.
    pub(super) fn deleted(&mut self, uid: &ResponseUid) -> bool {
        let hash = self.hasher.hash_one(uid);
        self.there.remove(&hash);
        if let Some(listed) = &mut self.listed {
            listed.remove(&hash);
        }
        self.watched.remove(uid)
    }

    /// The hub wants to hear of one, or not any more.
    pub(super) fn watch(&mut self, uid: ResponseUid, watched: bool) {
        if watched {
            self.watched.insert(uid);
        } else {
            self.watched.remove(&uid);
        }
    }

    /// A part of the whole list of watched ones came. Says whether the list is complete.
    pub(super) fn watch_list(&mut self, uids: Vec<ResponseUid>, more: bool) -> bool {
        self.parts.extend(uids);
        if !more {
            self.watched = std::mem::take(&mut self.parts);
        }
        !more
    }

    /// Watched ones that are neither there nor, as `unfinished` knows, unfinished. Each is given once. Nobody knows while
    /// a list runs.
    pub(super) fn take_missing(
        &mut self,
        unfinished: impl Fn(&ResponseUid) -> bool,
    ) -> Vec<ResponseUid> {
        if self.listed.is_some() {
            return Vec::new();
        }
        let (there, hasher) = (&self.there, &self.hasher);
        let is_missing =
            |uid: &ResponseUid| !there.contains(&hasher.hash_one(uid)) && !unfinished(uid);
        self.watched.extract_if(is_missing).collect()
    }

    /// The session is over: the next one brings a list of its own.
    pub(super) fn forget_watched(&mut self) {
        self.watched = HashSet::new();
        self.parts = HashSet::new();
    }
}
