//! Owns what the agent knows of unfinished `EventResponses`, and decides what to read and send next.
//!
//! [`Inventory::handle`] is synchronous and knows no runtime, no clock and no wire: an [`Event`] and the time go in,
//! [`Effect`]s come out, and `serve` makes them happen. The API server is the log; what is kept here is a small record
//! for each unfinished EventResponse, plus the JSON of the first few of them up to [`Settings::kept_bytes`], which saves
//! a read. Whatever is forgotten is read again when its turn comes.

mod entry;
mod event;
mod finished;
mod missing;
mod session;
mod snapshot;
#[cfg(test)]
mod tests;
mod timing;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Instant;

use nabu_common::ids::ResponseUid;

use self::entry::{Entry, State};
pub use self::event::{Effect, Event, Prepare, Settings};
use self::finished::Finished;
use self::session::Live;
use crate::object::{Object, SpecPrint};
use crate::session::{Observation, Refusal, ToHub};

/// So many names of objects that are gone may stay in the queue.
const QUEUE_SLACK: usize = 64;

/// The unfinished `EventResponses` of this cluster that are ours.
#[derive(Debug)]
pub struct Inventory {
    settings: Settings,
    entries: HashMap<ResponseUid, Entry>,
    /// Entries in [`State::Waiting`], oldest first; may name entries that moved on.
    queue: VecDeque<ResponseUid>,
    /// What the hub must learn to be gone, or out of our hands.
    gone: VecDeque<Gone>,
    /// When entries in [`State::Delayed`] are due, made unique by a count; may name entries that moved on.
    timers: BTreeMap<(Instant, u64), ResponseUid>,
    timer_count: u64,
    live: Option<Live>,
    /// Reads that have not come back.
    preparing: usize,
    kept_bytes: usize,
    /// The first list is complete.
    synced: bool,
    /// What the list that runs has named so far.
    listing: Option<HashSet<ResponseUid>>,
    /// Final statuses that the hub ordered before the first list named their objects.
    early_ends: HashSet<ResponseUid>,
    finished: Finished,
    /// What the hub has asked for and a list that runs keeps from being answered.
    asked: HashSet<ResponseUid>,
}

/// An EventResponse that the hub must not wait for any more.
#[derive(Debug)]
struct Gone {
    uid: ResponseUid,
    name: String,
    /// It is there, but finished or not ours any more.
    still_there: bool,
    /// Its status says Succeeded, and is ours.
    own_success: bool,
}

impl Inventory {
    /// Knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            entries: HashMap::new(),
            queue: VecDeque::new(),
            gone: VecDeque::new(),
            timers: BTreeMap::new(),
            timer_count: 0,
            live: None,
            preparing: 0,
            kept_bytes: 0,
            synced: false,
            listing: None,
            early_ends: HashSet::new(),
            finished: Finished::default(),
            asked: HashSet::new(),
        }
    }

    /// Takes an event and says what follows.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::ListBegins => {
                self.listing = Some(HashSet::new());
                self.finished.list_begins();
            }
            Event::Listed(object) => {
                if let Some(listing) = &mut self.listing {
                    listing.insert(object.uid.clone());
                }
                self.observe(object, &mut effects);
            }
            Event::ListEnds => self.end_list(&mut effects),
            Event::Applied(object) => self.observe(object, &mut effects),
            Event::Settled(uid) => {
                self.finished.seen(&uid, None);
                self.settle(&uid, &mut effects);
            }
            Event::Finished { uid, end } => {
                self.finished.seen(&uid, Some(end));
                self.settle(&uid, &mut effects);
                self.tell_changed(Some(&uid));
            }
            Event::Deleted(uid) => {
                let watched = self.finished.deleted(&uid);
                if self.entries.contains_key(&uid) {
                    self.delete(&uid, false, &mut effects);
                } else if watched {
                    self.tell_gone(uid, String::new(), false);
                }
            }
            Event::Watched { uid, watched, spec } => {
                self.finished.watch(uid.clone(), watched, spec);
                self.tell_missing();
                self.tell_changed(Some(&uid));
            }
            Event::Watching { responses, more } => {
                if self.finished.watch_list(responses, more) {
                    self.tell_missing();
                    self.tell_changed(None);
                }
            }
            Event::Missing(uids) => {
                self.asked.extend(uids);
                self.answer_missing();
            }
            Event::SessionOpened {
                session,
                credit,
                resync,
            } => {
                self.open(now, session, credit, resync, &mut effects);
            }
            Event::SessionClosed => self.close(),
            Event::Credit(more) => self.grant(more),
            Event::Accepted { uid, spec_hash } => self.accept(&uid, &spec_hash, &mut effects),
            Event::Refused(refusal) => self.refuse(&refusal, &mut effects),
            Event::FinalStatusOrdered(uid) => {
                if let Some(entry) = self.entries.get_mut(&uid) {
                    entry.final_status_ordered = true;
                } else if !self.synced {
                    self.early_ends.insert(uid);
                }
            }
            Event::Prepared {
                session,
                observation,
            } => self.send(session, observation, &mut effects),
            Event::SecurityEventMissing { session, uid } => {
                self.wait_for_security_event(now, session, &uid);
            }
            Event::PrepareFailed { session, uid } => self.read_later(now, session, &uid),
            Event::Vanished {
                session,
                uid,
                finished,
            } => {
                self.came_back(session, false);
                if finished {
                    self.finished.seen(&uid, None);
                    self.stop_telling(&uid);
                    self.settle(&uid, &mut effects);
                } else {
                    self.delete(&uid, false, &mut effects);
                }
            }
            Event::FrameSent { session } => {
                if let Some(live) = self.live.as_mut().filter(|live| live.number == session) {
                    live.queued = live.queued.saturating_sub(1);
                }
            }
            Event::Tick => self.tick(now, &mut effects),
        }
        self.pump(now, &mut effects);
        effects
    }

    /// When [`Event::Tick`] is due; `None` if nothing waits for a time.
    pub fn next_wake(&self) -> Option<Instant> {
        let timer = self.timers.keys().next().map(|(due, _)| *due);
        let resync = self.live.as_ref().map(|live| live.next_resync);
        timer.into_iter().chain(resync).min()
    }

    /// `EventResponses` that the hub has not accepted yet.
    pub fn backlog(&self) -> usize {
        self.entries
            .values()
            .filter(|entry| entry.in_backlog())
            .count()
    }

    /// `EventResponses` that are remembered.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn observe(&mut self, object: Box<Object>, effects: &mut Vec<Effect>) {
        let uid = object.uid.clone();
        if let Some(entry) = self.entries.get_mut(&uid) {
            if entry.spec_hash == object.spec_hash {
                entry.generation = object.generation;
                return;
            }
            self.kept_bytes -= entry.drop_kept();
            entry.update(&object);
            if let State::Preparing { stale } = &mut entry.state {
                *stale = true;
                return;
            }
        } else {
            let mut entry = Entry::new(&object);
            entry.final_status_ordered = self.early_ends.remove(&uid);
            self.entries.insert(uid.clone(), entry);
            if let Some(snapshot) = self.snapshot() {
                snapshot.appeared(&uid);
            }
        }
        self.keep(object);
        self.enqueue(uid);
        self.end_snapshot_if_complete(effects);
    }

    /// Keeps the object until it is sent, as long as there is room.
    fn keep(&mut self, object: Box<Object>) {
        let size = object.json.len();
        if self.kept_bytes + size <= self.settings.kept_bytes
            && let Some(entry) = self.entries.get_mut(&object.uid)
        {
            entry.kept = Some(object);
            self.kept_bytes += size;
        }
    }

    /// Without a session nothing is queued: opening one queues everything.
    fn enqueue(&mut self, uid: ResponseUid) {
        let Some(entry) = self.entries.get_mut(&uid) else {
            return;
        };
        entry.state = State::Waiting;
        if self.live.is_some() && !entry.queued {
            entry.queued = true;
            self.queue.push_back(uid);
        }
    }

    fn end_list(&mut self, effects: &mut Vec<Effect>) {
        let Some(listed) = self.listing.take() else {
            return;
        };
        self.finished.list_ends();
        let missing: Vec<_> = self
            .entries
            .iter()
            .filter(|(uid, entry)| !entry.finished && !listed.contains(*uid))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in missing {
            self.delete(&uid, false, effects);
        }
        if !self.synced {
            self.synced = true;
            self.early_ends = HashSet::new();
            effects.push(Effect::Synced);
        }
        self.tell_missing();
        self.answer_missing();
        self.tell_changed(None);
        if let Some(snapshot) = self.snapshot() {
            snapshot.all_known();
        }
        self.end_snapshot_if_complete(effects);
    }

    /// Tells the hub of what it watches and what is gone, once everything that is there is known.
    fn tell_missing(&mut self) {
        if !self.synced {
            return;
        }
        let entries = &self.entries;
        let missing = self.finished.take_missing(|uid| entries.contains_key(uid));
        for uid in missing {
            self.tell_gone(uid, String::new(), false);
        }
    }

    fn tell_gone(&mut self, uid: ResponseUid, name: String, still_there: bool) {
        if self.live.is_some() {
            self.gone.push_back(Gone {
                uid,
                name,
                still_there,
                own_success: false,
            });
        }
    }

    /// Finished is usually our own status coming back, and the hub has no need to hear of it. Else somebody else ended it,
    /// or an agent before us wrote a status that is still on its way to us: the hub can tell these apart.
    fn settle(&mut self, uid: &ResponseUid, effects: &mut Vec<Effect>) {
        if self.entries.get(uid).is_some_and(|entry| entry.finished) {
            return;
        }
        if self
            .entries
            .get(uid)
            .is_none_or(|entry| entry.final_status_ordered)
        {
            self.forget(uid, effects);
        } else {
            self.delete(uid, true, effects);
        }
    }

    fn delete(&mut self, uid: &ResponseUid, still_there: bool, effects: &mut Vec<Effect>) {
        if let Some(entry) = self.forget(uid, effects) {
            self.tell_gone(uid.clone(), entry.name, still_there);
        }
    }

    fn forget(&mut self, uid: &ResponseUid, effects: &mut Vec<Effect>) -> Option<Entry> {
        let mut entry = self.entries.remove(uid)?;
        self.kept_bytes -= entry.drop_kept();
        // Without credit nothing takes names off the queue, and objects may come and go all the time.
        if self.queue.len() > 2 * self.entries.len() + QUEUE_SLACK {
            let entries = &self.entries;
            self.queue.retain(|uid| entries.contains_key(uid));
        }
        if let Some(snapshot) = self.snapshot() {
            snapshot.settled(uid);
        }
        self.end_snapshot_if_complete(effects);
        Some(entry)
    }

    fn accept(&mut self, uid: &ResponseUid, spec_hash: &[u8; 32], effects: &mut Vec<Effect>) {
        if let Some(entry) = self.entries.get_mut(uid)
            && entry.state == State::Offered
            && entry.spec_hash == *spec_hash
        {
            entry.state = State::Accepted;
            if entry.finished {
                self.forget(uid, effects);
                self.finished.hub_knows(uid, SpecPrint::of(spec_hash));
                self.tell_changed(Some(uid));
            }
        }
    }

    /// Has finished objects read and sent whose spec is another than the hub knows: this one, or all.
    fn tell_changed(&mut self, only: Option<&ResponseUid>) {
        if !self.synced || self.live.is_none() {
            return;
        }
        for (uid, name) in self.finished.take_changed(only) {
            if !self.entries.contains_key(&uid) {
                self.entries.insert(uid.clone(), Entry::finished(name));
                self.enqueue(uid);
            }
        }
    }

    /// A finished object is not told of any more: it is not ours by now, or the hub does not want it.
    fn stop_telling(&mut self, uid: &ResponseUid) {
        if self.entries.get(uid).is_some_and(|entry| entry.finished) {
            self.entries.remove(uid);
        }
    }

    fn refuse(&mut self, refusal: &Refusal, effects: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get_mut(&refusal.uid) else {
            tracing::warn!(uid = %refusal.uid, message = refusal.message, "the hub refused an EventResponse that is gone");
            return;
        };
        if entry.finished {
            // It has the status of its end, which stays.
            tracing::warn!(uid = %refusal.uid, message = refusal.message, "the hub refused a changed spec");
            return self.stop_telling(&refusal.uid);
        }
        entry.state = State::Refused;
        entry.final_status_ordered = true;
        effects.push(Effect::WriteRefusal {
            refusal: refusal.clone(),
            name: entry.name.clone(),
        });
        if let Some(snapshot) = self.snapshot() {
            snapshot.settled(&refusal.uid);
        }
        self.end_snapshot_if_complete(effects);
    }

    fn send(&mut self, session: u64, observation: Box<Observation>, effects: &mut Vec<Effect>) {
        if !self.came_back(session, true) {
            return;
        }
        let uid = observation.uid.clone();
        let Some(entry) = self.entries.get_mut(&uid) else {
            return self.grant(1);
        };
        if entry.state == State::Refused {
            return self.grant(1);
        }
        // A change that the watch showed meanwhile, and that this reading has not seen, is read again.
        if entry.state == (State::Preparing { stale: true })
            && observation.spec_hash != entry.spec_hash
            && observation.generation <= entry.generation
        {
            self.grant(1);
            return self.enqueue(uid);
        }
        entry.offer(&observation);
        if let Some(live) = &mut self.live {
            live.queued += 1;
        }
        if let Some(snapshot) = self.snapshot() {
            snapshot.sent(&uid);
        }
        effects.push(Effect::Send(ToHub::Observed(observation)));
        self.end_snapshot_if_complete(effects);
    }

    /// A read came back. Says whether it was for the live session, and returns its credit if that is not used.
    fn came_back(&mut self, session: u64, used: bool) -> bool {
        self.preparing = self.preparing.saturating_sub(1);
        let live = self
            .live
            .as_ref()
            .is_some_and(|live| live.number == session);
        self.grant(u32::from(live && !used));
        live
    }

    fn grant(&mut self, more: u32) {
        if let Some(live) = &mut self.live {
            live.credit = live.credit.saturating_add(more);
        }
    }

    /// Whether this generation of an object is known already, so that its spec need not be read.
    pub fn knows(&self, uid: &ResponseUid, generation: i64) -> bool {
        generation > 0
            && self
                .entries
                .get(uid)
                .is_some_and(|entry| entry.generation == generation)
    }
}
