//! Owns what is remembered of finished `EventResponses`: that they are there, and which of them the hub wants to hear of,
//! because they are deleted or because their spec is another than the hub knows.
//!
//! There may be many, and nothing is kept of one but a hash of its UID and one of its spec. Two with the same hash would hide
//! a deletion until the other is gone as well; never is a deletion told of what is there.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use nabu_common::ids::ResponseUid;

use crate::object::{End, SpecPrint};
use crate::session::KnownSpec;

/// Finished objects by the hash of their UID, with how they have ended if they are of our kind.
type There = HashMap<u64, Option<End>>;

/// Watched objects, with the spec that the hub knows if another one matters.
type Watched = HashMap<ResponseUid, Option<KnownSpec>>;

/// The finished `EventResponses` of this cluster.
#[derive(Debug, Default)]
pub(super) struct Finished {
    hasher: RandomState,
    there: There,
    /// What the list that runs has named so far.
    listed: Option<HashSet<u64>>,
    watched: Watched,
    /// The parts of a new list of watched ones that have come.
    parts: Watched,
}

impl Finished {
    /// A list of all objects begins.
    pub(super) fn list_begins(&mut self) {
        self.listed = Some(HashSet::new());
    }

    /// The list is complete: what it did not name is gone.
    pub(super) fn list_ends(&mut self) {
        if let Some(listed) = self.listed.take() {
            self.there.retain(|hash, _| listed.contains(hash));
        }
    }

    /// One is there; how it has ended, if it is of our kind.
    pub(super) fn seen(&mut self, uid: &ResponseUid, end: Option<End>) {
        let hash = self.hasher.hash_one(uid);
        self.there.insert(hash, end);
        if let Some(listed) = &mut self.listed {
            listed.insert(hash);
        }
    }

    /// Whether one is there.
    pub(super) fn is_there(&self, uid: &ResponseUid) -> bool {
        self.there.contains_key(&self.hasher.hash_one(uid))
    }

    /// How one has ended that is there, and of our kind.
    pub(super) fn end_of(&self, uid: &ResponseUid) -> Option<End> {
        self.there
            .get(&self.hasher.hash_one(uid))
            .copied()
            .flatten()
    }

    /// One was deleted. Says whether the hub wants to hear of that.
    pub(super) fn deleted(&mut self, uid: &ResponseUid) -> bool {
        let hash = self.hasher.hash_one(uid);
        self.there.remove(&hash);
        if let Some(listed) = &mut self.listed {
            listed.remove(&hash);
        }
        self.watched.remove(uid).is_some()
    }

    /// The hub wants to hear of one, or not any more.
    pub(super) fn watch(&mut self, uid: ResponseUid, watched: bool, spec: Option<KnownSpec>) {
        if watched {
            self.watched.insert(uid, spec);
        } else {
            self.watched.remove(&uid);
        }
    }

    /// A part of the whole list of watched ones came. Says whether the list is complete.
    pub(super) fn watch_list(
        &mut self,
        responses: Vec<(ResponseUid, Option<KnownSpec>)>,
        more: bool,
    ) -> bool {
        self.parts.extend(responses);
        if !more {
            self.watched = std::mem::take(&mut self.parts);
        }
        !more
    }

    /// The hub has stored this spec of one.
    pub(super) fn hub_knows(&mut self, uid: &ResponseUid, spec: SpecPrint) {
        if let Some(Some(known)) = self.watched.get_mut(uid) {
            known.print = spec;
        }
    }

    /// Watched ones, or this one, that are there with another spec than the hub knows; with their names. Each spec is given
    /// once. Nobody knows while a list runs.
    pub(super) fn take_changed(
        &mut self,
        only: Option<&ResponseUid>,
    ) -> Vec<(ResponseUid, String)> {
        if self.listed.is_some() {
            return Vec::new();
        }
        let (there, hasher) = (&self.there, &self.hasher);
        let is_changed = |uid: &ResponseUid, known: &mut Option<KnownSpec>| {
            let known = known.as_mut()?;
            let now = there.get(&hasher.hash_one(uid)).copied().flatten()?.spec();
            if now == known.print {
                return None;
            }
            known.print = now;
            Some((uid.clone(), known.name.clone()))
        };
        let Some(uid) = only else {
            let all = self.watched.iter_mut();
            return all
                .filter_map(|(uid, known)| is_changed(uid, known))
                .collect();
        };
        let known = self.watched.get_mut(uid);
        let changed = known.and_then(|known| is_changed(uid, known));
        changed.into_iter().collect()
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
            |uid: &ResponseUid| !there.contains_key(&hasher.hash_one(uid)) && !unfinished(uid);
        let gone = self.watched.extract_if(|uid, _| is_missing(uid));
        gone.map(|(uid, _)| uid).collect()
    }

    /// The session is over: the next one brings a list of its own.
    pub(super) fn forget_watched(&mut self) {
        self.watched = HashMap::new();
        self.parts = HashMap::new();
    }
}
