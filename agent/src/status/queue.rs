//! Owns the order of status writes: the newest per object, one write per object at a time, a bounded number in all.
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
    next: Option<Box<StatusUpdate>>,
    /// What is being written was given up: if it fails, it is not tried again.
    abandoned: bool,
    running: bool,
    paused: bool,
    failures: u32,
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
    pub fn offer(&mut self, update: Box<StatusUpdate>) {
        let lane = self.lanes.entry(update.uid.clone()).or_default();
        let outdated = lane.next.as_ref().is_some_and(|waiting| {
            waiting.session == update.session
                && waiting.revision > update.revision
                && update.revision.is_some()
        });
        if outdated {
            return;
        }
        let uid = update.uid.clone();
        let fresh = lane.next.replace(update).is_none();
        if fresh && !lane.running && !lane.paused {
            self.ready.push_back(uid);
        }
    }

    /// The next status to write now, if there is one and room for it.
    pub fn next(&mut self, now: Instant) -> Option<Box<StatusUpdate>> {
        while let Some(timer) = self.timers.first_entry()
            && timer.key().0 <= now
        {
            let uid = timer.remove();
            if let Some(lane) = self.lanes.get_mut(&uid) {
                lane.paused = false;
                self.ready.push_back(uid);
            }
        }
        while self.running < self.limit {
            let uid = self.ready.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&uid) else {
                continue;
            };
            if lane.running {
                continue;
            }
            let Some(update) = lane.next.take() else {
                self.lanes.remove(&uid);
                continue;
            };
            lane.running = true;
            lane.abandoned = false;
            self.running += 1;
            return Some(update);
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
        lane.running = false;
        let report = match outcome {
            Outcome::Failed(update) => {
                if lane.next.is_none() && !lane.abandoned {
                    lane.next = Some(update);
                }
                lane.failures += 1;
                let pause = FIRST_PAUSE
                    .saturating_mul(1 << (lane.failures - 1).min(16))
                    .min(LONGEST_PAUSE);
                if lane.next.is_some() {
                    lane.paused = true;
                    self.timer_count += 1;
                    self.timers
                        .insert((now + pause, self.timer_count), uid.clone());
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
            self.ready.push_back(uid.clone());
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
            lane.paused = false;
            lane.abandoned = true;
            lane.running
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::status::Phase;

    fn status(uid: &str, revision: u64) -> StatusUpdate {
        StatusUpdate {
            uid: uid.parse().unwrap(),
            name: uid.to_owned(),
            session: 1,
            revision: Some(Revision(revision)),
            phase: Phase::Running,
            fields: Map::new(),
        }
    }

    fn finish(
        queue: &mut Queue,
        now: Instant,
        written: &StatusUpdate,
        outcome: Outcome,
    ) -> Option<Report> {
        queue.done(now, &written.uid, written.revision, outcome)
    }

    #[test]
    fn only_the_newest_status_of_an_object_is_written() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        for revision in [1, 3, 2] {
            queue.offer(Box::new(status("a", revision)));
        }
        let written = queue.next(now).unwrap();
        assert_eq!(written.revision, Some(Revision(3)));
        assert!(queue.next(now).is_none());
        let report = finish(&mut queue, now, &written, Outcome::Stored);
        assert_eq!(
            report,
            Some(Report::Applied("a".parse().unwrap(), Revision(3)))
        );
        assert!(queue.lanes.is_empty());
    }

    #[test]
    fn an_object_has_one_write_at_a_time_and_others_do_not_wait_for_it() {
        let (mut queue, now) = (Queue::new(2), Instant::now());
        queue.offer(Box::new(status("a", 1)));
        let first = queue.next(now).unwrap();
        queue.offer(Box::new(status("a", 2)));
        queue.offer(Box::new(status("b", 1)));
        queue.offer(Box::new(status("c", 1)));
        assert_eq!(queue.next(now).unwrap().name, "b");
        assert!(queue.next(now).is_none(), "the limit is two");
        finish(&mut queue, now, &first, Outcome::Stored);
        assert_eq!(queue.next(now).unwrap().name, "c");
    }

    #[test]
    fn a_failure_of_the_api_server_is_retried_with_the_newest_status() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        queue.offer(Box::new(status("a", 1)));
        let written = queue.next(now).unwrap();
        queue.offer(Box::new(status("a", 2)));
        assert_eq!(
            finish(&mut queue, now, &written.clone(), Outcome::Failed(written)),
            None
        );
        assert!(queue.next(now).is_none(), "not at once");
        let due = queue.next_wake().unwrap();
        assert_eq!(due, now + FIRST_PAUSE);
        assert_eq!(queue.next(due).unwrap().revision, Some(Revision(2)));
    }

    #[test]
    fn pauses_double_and_a_newer_status_does_not_jump_them() {
        let (mut queue, mut now) = (Queue::new(4), Instant::now());
        queue.offer(Box::new(status("a", 1)));
        let mut pauses = Vec::new();
        for revision in 2..10 {
            let written = queue.next(now).unwrap();
            finish(&mut queue, now, &written.clone(), Outcome::Failed(written));
            queue.offer(Box::new(status("a", revision)));
            assert!(queue.next(now).is_none());
            pauses.push((queue.next_wake().unwrap() - now).as_millis());
            now = queue.next_wake().unwrap();
        }
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    #[test]
    fn a_refused_status_is_reported_and_the_newer_one_still_written() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        queue.offer(Box::new(status("a", 1)));
        let written = queue.next(now).unwrap();
        queue.offer(Box::new(status("a", 2)));
        let report = finish(
            &mut queue,
            now,
            &written,
            Outcome::Refused("gone".to_owned()),
        );
        assert_eq!(
            report,
            Some(Report::Refused(
                "a".parse().unwrap(),
                Revision(1),
                "gone".to_owned()
            ))
        );
        assert_eq!(queue.next(now).unwrap().revision, Some(Revision(2)));
    }

    #[test]
    fn a_status_of_a_later_session_counts_whatever_its_revision() {
        let (mut queue, now) = (Queue::new(4), Instant::now());
        queue.offer(Box::new(status("a", 9)));
        queue.offer(Box::new(StatusUpdate {
            session: 2,
            ..status("a", 1)
        }));
        assert_eq!(queue.next(now).unwrap().revision, Some(Revision(1)));
    }

    #[test]
    fn what_was_abandoned_is_not_tried_again() {
        let (mut queue, now) = (Queue::new(1), Instant::now());
        queue.offer(Box::new(status("a", 1)));
        queue.offer(Box::new(status("b", 1)));
        let written = queue.next(now).unwrap();
        queue.abandon();
        finish(&mut queue, now, &written.clone(), Outcome::Failed(written));
        assert!(queue.next(now).is_none() && queue.next_wake().is_none() && queue.lanes.is_empty());
    }
}
