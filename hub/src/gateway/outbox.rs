//! The statuses that one agent shall get: only the newest of each response, and not more at once than it can take.
//!
//! A status that is not final is held for a moment, because most responses end right away and one write to the object
//! is better than three. What does not fit is found again in the store.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nabu_common::ids::{ResponseUid, Revision};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::ResponseSummary;

/// How long a status that is not final is held.
const HOLD: Duration = Duration::from_millis(100);
/// Statuses that may wait in memory; more are read from the store later.
const CAPACITY: usize = 4096;

/// The mailbox of one session.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The newest status of each response that waits.
    waiting: HashMap<ResponseUid, Arc<ResponseSummary>>,
    /// In which order they go; may name what has gone already.
    ready: VecDeque<ResponseUid>,
    /// Those that are held, by the time at which they go.
    held: VecDeque<(Instant, ResponseUid)>,
    /// Sent, and neither stored nor refused yet.
    in_flight: HashMap<ResponseUid, Revision>,
    window: usize,
    /// The store is to be read for statuses, from the start.
    rescan: bool,
    /// While the store is read: what was acknowledged meanwhile, so that an older page does not bring it back.
    settled: Option<HashMap<ResponseUid, Revision>>,
}

/// What is to be done now.
#[derive(Debug)]
pub(super) enum Next {
    /// Send these.
    Send(Vec<Arc<ResponseSummary>>),
    /// Read the store from the start.
    Rescan,
    /// Nothing before this time, or before something changes.
    Wait(Option<Instant>),
}

impl Outbox {
    /// A mailbox that begins with a look into the store. At most `window` statuses are on their way at one time.
    pub(super) fn new(window: usize) -> Self {
        let state = State {
            waiting: HashMap::new(),
            ready: VecDeque::new(),
            held: VecDeque::new(),
            in_flight: HashMap::new(),
            window: window.max(1),
            rescan: true,
            settled: None,
        };
        Self {
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// A newer status is committed.
    pub(super) fn publish(&self, summary: Arc<ResponseSummary>) {
        if self.lock().add(summary, true) {
            self.changed.notify_one();
        }
    }

    /// A status that was found in the store.
    pub(super) fn found(&self, summary: Arc<ResponseSummary>) {
        self.lock().add(summary, false);
    }

    /// The API server has stored or refused a revision.
    pub(super) fn acknowledged(&self, uid: &ResponseUid, revision: Revision) {
        let mut state = self.lock();
        if let Some(settled) = &mut state.settled {
            settled.insert(uid.clone(), revision);
        }
        if state
            .in_flight
            .get(uid)
            .is_some_and(|sent| *sent <= revision)
        {
            state.in_flight.remove(uid);
            self.changed.notify_one();
        }
    }

    /// Forgets what is on its way and looks into the store again.
    pub(super) fn start_over(&self) {
        let mut state = self.lock();
        state.in_flight.clear();
        state.rescan = true;
        self.changed.notify_one();
    }

    /// The store was read; if not to its end, it is to be read again when what waits has gone.
    pub(super) fn scanned(&self, whole: bool) {
        let mut state = self.lock();
        state.settled = None;
        state.rescan |= !whole;
    }

    /// Whether more statuses from the store would find room.
    pub(super) fn has_room(&self) -> bool {
        let state = self.lock();
        state.waiting.len() < CAPACITY / 2
    }

    /// Returns when something has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What is to be done at this time.
    pub(super) fn next(&self, now: Instant) -> Next {
        self.lock().next(now)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Whether anything is new.
    fn add(&mut self, summary: Arc<ResponseSummary>, hold: bool) -> bool {
        let uid = summary.key.uid.clone();
        let revision = summary.progress.revision;
        let newer = |known: Revision| known >= revision;
        if self.in_flight.get(&uid).copied().is_some_and(newer)
            || self
                .waiting
                .get(&uid)
                .is_some_and(|known| newer(known.progress.revision))
            || self
                .settled
                .as_ref()
                .and_then(|settled| settled.get(&uid))
                .copied()
                .is_some_and(newer)
        {
            return false;
        }
        if self.waiting.len() >= CAPACITY && !self.waiting.contains_key(&uid) {
            self.rescan = true;
            return true;
        }
        if summary.progress.phase.is_terminal() || !hold {
            self.ready.push_back(uid.clone());
        } else if !self.waiting.contains_key(&uid) {
            self.held.push_back((Instant::now() + HOLD, uid.clone()));
        }
        self.waiting.insert(uid, summary);
        true
    }

    fn next(&mut self, now: Instant) -> Next {
        while let Some((due, _)) = self.held.front()
            && *due <= now
        {
            self.ready.extend(self.held.pop_front().map(|(_, uid)| uid));
        }
        let mut batch = Vec::new();
        while self.in_flight.len() < self.window {
            let Some(uid) = self.ready.pop_front() else {
                break;
            };
            if let Some(summary) = self.waiting.remove(&uid) {
                self.in_flight.insert(uid, summary.progress.revision);
                batch.push(summary);
            }
        }
        if !batch.is_empty() {
            return Next::Send(batch);
        }
        if self.rescan && self.waiting.is_empty() {
            self.rescan = false;
            self.settled = Some(HashMap::new());
            return Next::Rescan;
        }
        Next::Wait(self.held.front().map(|(due, _)| *due))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures::{event_response, key, observation};
    use crate::plan::progress::accept;
    use crate::response::Phase;

    fn status(number: u32, revision: u64, phase: Phase) -> Arc<ResponseSummary> {
        let seen = observation(key(number), event_response(json!({})));
        let mut progress = accept(&seen, jiff::Timestamp::UNIX_EPOCH);
        progress.revision = Revision(revision);
        progress.phase = phase;
        Arc::new(ResponseSummary {
            key: key(number),
            name: seen.name,
            generation: 1,
            spec_hash: seen.spec_hash,
            observed_at: jiff::Timestamp::UNIX_EPOCH,
            progress,
            routed: None,
        })
    }

    fn outbox(window: usize) -> Outbox {
        let outbox = Outbox::new(window);
        assert!(
            matches!(outbox.next(Instant::now()), Next::Rescan),
            "a session begins with the store"
        );
        outbox
    }

    fn sent(outbox: &Outbox, now: Instant) -> Vec<u64> {
        match outbox.next(now) {
            Next::Send(batch) => batch
                .iter()
                .map(|summary| summary.progress.revision.0)
                .collect(),
            _ => Vec::new(),
        }
    }

    #[tokio::test]
    async fn a_response_that_ends_at_once_costs_one_status() {
        let outbox = outbox(10);
        outbox.publish(status(1, 1, Phase::Pending));
        outbox.publish(status(1, 2, Phase::Running));
        outbox.publish(status(1, 3, Phase::Succeeded));
        assert_eq!(sent(&outbox, Instant::now()), [3]);
        assert_eq!(
            sent(&outbox, Instant::now() + HOLD * 2),
            [] as [u64; 0],
            "what was held has gone with it"
        );
    }

    #[tokio::test]
    async fn a_status_that_is_not_final_goes_when_its_time_has_come() {
        let outbox = outbox(10);
        outbox.publish(status(1, 1, Phase::Pending));
        assert!(matches!(outbox.next(Instant::now()), Next::Wait(Some(_))));
        assert_eq!(sent(&outbox, Instant::now() + HOLD * 2), [1]);
    }

    #[tokio::test]
    async fn an_older_status_never_follows_a_newer_one() {
        let outbox = outbox(10);
        outbox.publish(status(1, 3, Phase::Succeeded));
        assert_eq!(sent(&outbox, Instant::now()), [3]);
        outbox.found(status(1, 2, Phase::Running));
        outbox.found(status(1, 3, Phase::Succeeded));
        assert_eq!(sent(&outbox, Instant::now() + HOLD), [] as [u64; 0]);
    }

    #[tokio::test]
    async fn a_page_of_the_store_does_not_bring_back_what_was_acknowledged_meanwhile() {
        let outbox = outbox(10);
        outbox.publish(status(1, 3, Phase::Succeeded));
        assert_eq!(sent(&outbox, Instant::now()), [3]);
        outbox.acknowledged(&key(1).uid, Revision(3));
        outbox.found(status(1, 2, Phase::Running));
        assert_eq!(sent(&outbox, Instant::now() + HOLD), [] as [u64; 0]);
    }

    #[tokio::test]
    async fn no_more_statuses_are_on_their_way_than_the_agent_takes() {
        let outbox = outbox(2);
        for number in 1..=3 {
            outbox.publish(status(number, u64::from(number), Phase::Failed));
        }
        assert_eq!(sent(&outbox, Instant::now()), [1, 2]);
        assert_eq!(sent(&outbox, Instant::now()), [] as [u64; 0]);
        outbox.acknowledged(&key(1).uid, Revision(0));
        assert_eq!(
            sent(&outbox, Instant::now()),
            [] as [u64; 0],
            "an older revision frees nothing"
        );
        outbox.acknowledged(&key(1).uid, Revision(1));
        assert_eq!(sent(&outbox, Instant::now()), [3]);
    }

    #[tokio::test]
    async fn what_does_not_fit_is_read_from_the_store_again() {
        let outbox = outbox(1);
        for number in 0..=u32::try_from(CAPACITY).unwrap() {
            outbox.publish(status(number, 1, Phase::Failed));
        }
        let mut sent = 0;
        loop {
            match outbox.next(Instant::now()) {
                Next::Send(batch) => {
                    sent += batch.len();
                    outbox.acknowledged(&batch[0].key.uid, Revision(1));
                }
                Next::Rescan => break,
                Next::Wait(_) => panic!("it forgot the one that did not fit"),
            }
        }
        assert_eq!(sent, CAPACITY);
    }
}
