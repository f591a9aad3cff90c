//! The order of writes, as sentences.

use serde_json::Map;

use super::*;
use crate::status::Phase;

/// A status that ends its response.
fn ended(uid: &str, revision: u64) -> StatusUpdate {
    StatusUpdate {
        uid: uid.parse().unwrap(),
        name: uid.to_owned(),
        session: 1,
        watched: false,
        known_spec: None,
        revision: Some(Revision(revision)),
        phase: Phase::Succeeded,
        fields: Map::new(),
    }
}

fn under_way(uid: &str, revision: u64) -> StatusUpdate {
    StatusUpdate {
        phase: Phase::Running,
        ..ended(uid, revision)
    }
}

fn offer(queue: &mut Queue, now: Instant, update: StatusUpdate) {
    queue.offer(now, Box::new(update));
}

fn finish(
    queue: &mut Queue,
    now: Instant,
    written: &StatusUpdate,
    outcome: Outcome,
) -> Option<Report> {
    queue.done(now, &written.uid, written.revision, outcome)
}

fn applied(uid: &str, revision: u64) -> Report {
    Report::Applied(uid.parse().unwrap(), Revision(revision))
}

#[test]
fn only_the_newest_status_of_an_object_is_written_and_reported_once() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    for revision in [1, 3, 2] {
        offer(&mut queue, now, ended("a", revision));
    }
    let written = queue.next(now).unwrap();
    assert_eq!(written.revision, Some(Revision(3)));
    assert!(queue.next(now).is_none());
    let report = finish(&mut queue, now, &written, Outcome::Stored);
    assert_eq!(report, Some(applied("a", 3)));
    assert!(queue.next(now).is_none() && queue.lanes.is_empty() && queue.ready.is_empty());
    let again = finish(&mut queue, now, &written, Outcome::Stored);
    assert_eq!(again, None);
}

#[test]
fn a_response_that_succeeds_at_once_costs_one_write() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, under_way("a", 1));
    offer(&mut queue, now, under_way("a", 2));
    assert!(queue.next(now).is_none());
    offer(&mut queue, now, ended("a", 3));
    let written = queue.next(now).unwrap();
    assert_eq!(written.revision, Some(Revision(3)), "the end does not wait");
    assert_eq!(
        finish(&mut queue, now, &written, Outcome::Stored),
        Some(applied("a", 3))
    );
    assert!(queue.next(now + SETTLE).is_none() && queue.lanes.is_empty());
    assert!(queue.timers.is_empty());
}

#[test]
fn a_response_that_takes_longer_shows_that_it_runs() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, under_way("a", 1));
    offer(&mut queue, now + SETTLE / 2, under_way("a", 2));
    assert_eq!(
        queue.next_wake(),
        Some(now + SETTLE),
        "news do not put it off"
    );
    let written = queue.next(now + SETTLE).unwrap();
    assert_eq!(written.revision, Some(Revision(2)));
    offer(&mut queue, now + SETTLE, ended("a", 3));
    finish(&mut queue, now + SETTLE, &written, Outcome::Stored);
    assert_eq!(
        queue.next(now + SETTLE).unwrap().revision,
        Some(Revision(3))
    );
}

#[test]
fn an_object_has_one_write_at_a_time_and_others_do_not_wait_for_it() {
    let (mut queue, now) = (Queue::new(2), Instant::now());
    offer(&mut queue, now, ended("a", 1));
    let first = queue.next(now).unwrap();
    offer(&mut queue, now, ended("a", 2));
    offer(&mut queue, now, ended("b", 1));
    offer(&mut queue, now, ended("c", 1));
    assert_eq!(queue.next(now).unwrap().name, "b");
    assert!(queue.next(now).is_none(), "the limit is two");
    finish(&mut queue, now, &first, Outcome::Stored);
    assert_eq!(queue.next(now).unwrap().name, "c");
}

#[test]
fn a_failure_of_the_api_server_is_retried_with_the_newest_status() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, ended("a", 1));
    let written = queue.next(now).unwrap();
    offer(&mut queue, now, ended("a", 2));
    let failed = Outcome::Failed(written.clone());
    assert_eq!(finish(&mut queue, now, &written, failed), None);
    assert!(queue.next(now).is_none(), "not at once");
    let due = queue.next_wake().unwrap();
    assert_eq!(due, now + FIRST_PAUSE);
    assert_eq!(queue.next(due).unwrap().revision, Some(Revision(2)));
}

#[test]
fn a_conflict_keeps_the_status_until_it_is_stored() {
    let (mut queue, mut now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, ended("a", 7));
    for _ in 0..15 {
        let written = queue.next(now).unwrap();
        let failed = Outcome::Failed(written.clone());
        assert_eq!(finish(&mut queue, now, &written, failed), None);
        now = queue.next_wake().unwrap();
    }
    let written = queue.next(now).unwrap();
    assert_eq!(
        finish(&mut queue, now, &written, Outcome::Stored),
        Some(applied("a", 7))
    );
    assert!(queue.lanes.is_empty() && queue.next_wake().is_none());
}

#[test]
fn pauses_double_and_a_newer_status_does_not_jump_them() {
    let (mut queue, mut now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, ended("a", 1));
    let mut pauses = Vec::new();
    for revision in 2..10 {
        let written = queue.next(now).unwrap();
        let failed = Outcome::Failed(written.clone());
        finish(&mut queue, now, &written, failed);
        offer(&mut queue, now, ended("a", revision));
        assert!(queue.next(now).is_none());
        pauses.push((queue.next_wake().unwrap() - now).as_millis());
        now = queue.next_wake().unwrap();
    }
    assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
}

#[test]
fn a_refused_status_is_reported_and_the_newer_one_still_written() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, ended("a", 1));
    let written = queue.next(now).unwrap();
    offer(&mut queue, now, ended("a", 2));
    let refused = Outcome::Refused("gone".to_owned());
    let report = finish(&mut queue, now, &written, refused);
    let expected = Report::Refused("a".parse().unwrap(), Revision(1), "gone".to_owned());
    assert_eq!(report, Some(expected));
    assert_eq!(queue.next(now).unwrap().revision, Some(Revision(2)));
}

#[test]
fn the_hub_waits_for_no_answer_to_a_status_of_our_own_making() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    let own = StatusUpdate {
        revision: None,
        ..ended("a", 1)
    };
    offer(&mut queue, now, own);
    let written = queue.next(now).unwrap();
    assert_eq!(finish(&mut queue, now, &written, Outcome::Stored), None);
    assert!(queue.lanes.is_empty());
}

#[test]
fn a_status_of_a_later_session_counts_whatever_its_revision() {
    let (mut queue, now) = (Queue::new(4), Instant::now());
    offer(&mut queue, now, ended("a", 9));
    let later = StatusUpdate {
        session: 2,
        ..ended("a", 1)
    };
    offer(&mut queue, now, later);
    assert_eq!(queue.next(now).unwrap().revision, Some(Revision(1)));
}

#[test]
fn what_was_abandoned_is_not_tried_again() {
    let (mut queue, now) = (Queue::new(1), Instant::now());
    offer(&mut queue, now, ended("a", 1));
    offer(&mut queue, now, ended("b", 1));
    offer(&mut queue, now, under_way("c", 1));
    let written = queue.next(now).unwrap();
    queue.abandon();
    let failed = Outcome::Failed(written.clone());
    finish(&mut queue, now, &written, failed);
    assert!(queue.next(now).is_none() && queue.next_wake().is_none() && queue.lanes.is_empty());
}

#[test]
fn a_storm_of_writes_leaves_nothing_behind() {
    let (mut queue, mut now) = (Queue::new(32), Instant::now());
    for number in 0..1000 {
        offer(&mut queue, now, under_way(&format!("er-{number}"), 1));
        offer(&mut queue, now, ended(&format!("er-{number}"), 2));
    }
    let mut reports = 0;
    while reports < 1000 {
        let writes: Vec<_> = std::iter::from_fn(|| queue.next(now)).collect();
        assert!(writes.len() <= 32 && queue.running() <= 32);
        for written in writes {
            let report = finish(&mut queue, now, &written, Outcome::Stored);
            reports += usize::from(report.is_some());
        }
        now += Duration::from_millis(1);
    }
    assert!(queue.next(now + SETTLE).is_none());
    assert!(queue.lanes.is_empty() && queue.ready.is_empty() && queue.timers.is_empty());
}
