//! Owns the order of status writes: the newest per object, one write per object at a time, a bounded number in all.
//!
//! A status that ends its response is written at once. One that does not waits a moment for a newer one, because a
//! response that succeeds at once then costs one write instead of three.
//!
//! Synchronous and without a clock; `serve` starts what [`Queue::next`] gives and reports back with [`Queue::done`].

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use nabu_common::ids::{ResponseUid, Revision};

use super::StatusUpdate;

/// The first pause after a failure of the API server; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause: an API server that comes back is not kept waiting.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a status that does not end its response waits for a newer one.
const SETTLE: Duration = Duration::from_millis(100);

/// How a write ended.
#[derive(Debug)]
pub enum Outcome {
    /// The API server has it.
    Stored,
    /// It never will, for this reason.
    Refused(String),
    /// It may, later: the status comes back to be tried again.
    Failed(Box<StatusUpdate>),
}

/// What the hub is to learn of a write that ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    /// Stored.
    Applied(ResponseUid, Revision),
    /// Refused for good.
    Refused(ResponseUid, Revision, String),
}

/// Statuses that wait, and those that are being written.
#[derive(Debug)]
pub struct Queue {
    limit: usize,
    running: usize,
    lanes: HashMap<ResponseUid, Lane>,
    ready: VecDeque<ResponseUid>,
    /// When lanes may run again, made unique by a count; may name lanes that moved on.
    timers: BTreeMap<(Instant, u64), ResponseUid>,
    timer_count: u64,
}

/// One object.
#[derive(Debug, Default)]
struct Lane {
    state: State,
    next: Option<Box<StatusUpdate>>,
    /// What is being written was given up: if it fails, it is not tried again.
    abandoned: bool,
    failures: u32,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// In the queue.
    Ready,
    /// A newer status may come, until this time.
    Settling(Instant),
    /// The API server failed; not before this time.
    Failing(Instant),
    /// A status is being written.
    Running,
}

impl Queue {
    /// At most `limit` writes at one time.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            running: 0,
            lanes: HashMap::new(),
            ready: VecDeque::new(),
            timers: BTreeMap::new(),
            timer_count: 0,
        }
    }

    /// Takes a status; it replaces what waits for the same object, unless that is newer.
    pub fn offer(&mut self, now: Instant, update: Box<StatusUpdate>) {
        let uid = update.uid.clone();
        let lane = self.lanes.entry(uid.clone()).or_default();
        let outdated = lane.next.as_ref().is_some_and(|waiting| {
            waiting.session == update.session
                && update.revision.is_some()
                && waiting.revision > update.revision
        });
        if outdated {
            return;
        }
        lane.next = Some(update);
        if matches!(lane.state, State::Idle | State::Settling(_)) {
            self.arrange(now, uid);
        }
    }

    /// Puts a lane that has something to write into the queue, or lets it settle first.
    fn arrange(&mut self, now: Instant, uid: ResponseUid) {
        let Some(lane) = self.lanes.get_mut(&uid) else {
            return;
        };
        let ends = lane
            .next
            .as_ref()
            .is_some_and(|next| next.phase.is_terminal());
        if ends {
            lane.state = State::Ready;
            self.ready.push_back(uid);
        } else if !matches!(lane.state, State::Settling(_)) {
            lane.state = State::Settling(now + SETTLE);
            self.wake_at(now + SETTLE, uid);
        }
    }

    fn wake_at(&mut self, due: Instant, uid: ResponseUid) {
        self.timer_count += 1;
        self.timers.insert((due, self.timer_count), uid);
    }

    /// The next status to write now, if there is one and room for it.
    pub fn next(&mut self, now: Instant) -> Option<Box<StatusUpdate>> {
        while let Some(timer) = self.timers.first_entry()
            && timer.key().0 <= now
        {
            let ((due, _), uid) = timer.remove_entry();
            if let Some(lane) = self.lanes.get_mut(&uid)
                && [State::Settling(due), State::Failing(due)].contains(&lane.state)
            {
                lane.state = State::Ready;
                self.ready.push_back(uid);
            }
        }
        while self.running < self.limit {
            let uid = self.ready.pop_front()?;
            if let Some(lane) = self.lanes.get_mut(&uid)
                && lane.state == State::Ready
                && let Some(update) = lane.next.take()
            {
                lane.state = State::Running;
                lane.abandoned = false;
                self.running += 1;
                return Some(update);
            }
        }
        None
    }

    /// A write ended. Says what the hub is to learn.
    pub fn done(
        &mut self,
        now: Instant,
        uid: &ResponseUid,
        revision: Option<Revision>,
        outcome: Outcome,
    ) -> Option<Report> {
        self.running = self.running.saturating_sub(1);
        let lane = self.lanes.get_mut(uid)?;
        lane.state = State::Idle;
        let report = match outcome {
            Outcome::Failed(update) => {
                if lane.next.is_none() && !lane.abandoned {
                    lane.next = Some(update);
                }
                if lane.next.is_some() {
                    let pause = FIRST_PAUSE
                        .saturating_mul(1 << lane.failures.min(16))
                        .min(LONGEST_PAUSE);
                    lane.failures += 1;
                    lane.state = State::Failing(now + pause);
                    self.wake_at(now + pause, uid.clone());
                    return None;
                }
                None
            }
            Outcome::Stored => revision.map(|revision| Report::Applied(uid.clone(), revision)),
            Outcome::Refused(reason) => {
                revision.map(|revision| Report::Refused(uid.clone(), revision, reason))
            }
        };
        lane.failures = 0;
        if lane.next.is_some() {
            self.arrange(now, uid.clone());
        } else {
            self.lanes.remove(uid);
        }
        report
    }

    /// When [`Queue::next`] may have something again without a new event.
    pub fn next_wake(&self) -> Option<Instant> {
        self.timers.keys().next().map(|(due, _)| *due)
    }

    /// Writes that are under way.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Lets go of everything that waits: another agent has the session now and will be told the same.
    pub fn abandon(&mut self) {
        self.ready.clear();
        self.timers.clear();
        self.lanes.retain(|_, lane| {
            lane.next = None;
            lane.abandoned = true;
            lane.state == State::Running
        });
    }
}

#[cfg(test)]
mod tests;
