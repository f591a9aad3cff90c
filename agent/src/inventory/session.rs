//! Owns what a live session changes in the inventory: what may be sent, and when the whole inventory is due.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::entry::State;
use super::snapshot::Snapshot;
use super::{Effect, Inventory, Prepare};
use crate::session::ToHub;

/// A live session.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) number: u64,
    pub(super) credit: u32,
    /// Frames that hold a slot and were not taken by the transport yet.
    pub(super) queued: usize,
    pub(super) next_resync: Instant,
    pub(super) snapshot: Option<Snapshot>,
    resync: Duration,
    last_snapshot_id: u64,
}

impl Inventory {
    pub(super) fn open(
        &mut self,
        now: Instant,
        number: u64,
        credit: u32,
        resync: Option<Duration>,
        effects: &mut Vec<Effect>,
    ) {
        self.close();
        let resync = resync.unwrap_or(self.settings.resync);
        self.live = Some(Live {
            number,
            credit,
            queued: 0,
            next_resync: now + resync,
            snapshot: None,
            resync,
            last_snapshot_id: 0,
        });
        self.begin_snapshot(now, effects);
    }

    /// Nothing that is on its way arrives any more: everything is to be sent again.
    pub(super) fn close(&mut self) {
        self.live = None;
        self.queue.clear();
        self.gone.clear();
        self.finished.forget_watched();
        self.asked = HashSet::new();
        self.entries.retain(|_, entry| !entry.finished);
        self.timers.clear();
        for entry in self.entries.values_mut() {
            entry.queued = false;
            if entry.state != State::Refused {
                entry.state = State::Waiting;
            }
        }
    }

    /// Starts an inventory, unless one is still on its way.
    pub(super) fn begin_snapshot(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(live) = &mut self.live else { return };
        live.next_resync = now + live.resync;
        if live.snapshot.is_some() {
            return;
        }
        live.last_snapshot_id += 1;
        let id = live.last_snapshot_id;
        let mut remaining = HashSet::new();
        let mut again = Vec::new();
        for (uid, entry) in &self.entries {
            if entry.state == State::Refused || entry.finished {
                continue;
            }
            remaining.insert(uid.clone());
            if matches!(
                entry.state,
                State::Waiting | State::Offered | State::Accepted
            ) {
                again.push(uid.clone());
            }
        }
        live.snapshot = Some(Snapshot::new(id, remaining, !self.synced));
        effects.push(Effect::ResyncStarted);
        effects.push(Effect::Send(ToHub::SnapshotBegin { id }));
        for uid in again {
            self.enqueue(uid);
        }
        self.end_snapshot_if_complete(effects);
    }

    pub(super) fn end_snapshot_if_complete(&mut self, effects: &mut Vec<Effect>) {
        if let Some(live) = &mut self.live
            && let Some((id, count)) = live.snapshot.as_ref().and_then(Snapshot::complete)
        {
            live.snapshot = None;
            effects.push(Effect::Send(ToHub::SnapshotEnd { id, count }));
        }
    }

    pub(super) fn snapshot(&mut self) -> Option<&mut Snapshot> {
        self.live.as_mut()?.snapshot.as_mut()
    }

    /// Starts as much as credit and slots allow.
    pub(super) fn pump(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        let Some(live) = &mut self.live else { return };
        while self.preparing + live.queued < self.settings.slots {
            if let Some(gone) = self.gone.pop_front() {
                live.queued += 1;
                effects.push(Effect::Send(ToHub::Deleted {
                    uid: gone.uid,
                    name: gone.name,
                    still_there: gone.still_there,
                    own_success: gone.own_success,
                }));
                continue;
            }
            if live.credit == 0 {
                return;
            }
            let Some(uid) = self.queue.pop_front() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&uid) else {
                continue;
            };
            entry.queued = false;
            if entry.state != State::Waiting {
                continue;
            }
            live.credit -= 1;
            self.preparing += 1;
            let object = entry.kept.take();
            self.kept_bytes -= object.as_ref().map_or(0, |object| object.json.len());
            entry.state = State::Preparing { stale: false };
            effects.push(Effect::Prepare(Prepare {
                session: live.number,
                uid,
                name: entry.name.clone(),
                object,
                without_security_event: entry.give_up_at.is_some_and(|deadline| deadline <= now),
                finished: entry.finished,
            }));
        }
    }
}
