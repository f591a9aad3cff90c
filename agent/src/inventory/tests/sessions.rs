//! What a session begins with, and what it repeats.

use super::*;

#[test]
fn without_a_session_nothing_is_read_or_sent() {
    let mut rig = Rig::new();
    assert_eq!(rig.list(&["a", "b"]), ["synced"]);
    assert!(rig.applied("c", 1).is_empty());
    assert_eq!(rig.inventory.backlog(), 3);
}

#[test]
fn an_inventory_names_exactly_what_is_unfinished() {
    let mut rig = Rig::listed(&["a", "b", "c"]);
    rig.handle(Event::FinalStatusOrdered("b".parse().unwrap()));
    rig.handle(Event::Settled("b".parse().unwrap()));
    let mut said = rig.open(8);
    said[2..].sort();
    assert_eq!(said, ["resync", "begin 1", "prepare a", "prepare c"]);
    assert_eq!(rig.prepared("a", 1), ["observed a 1"]);
    assert_eq!(rig.prepared("c", 1), ["observed c 1", "end 1 of 2"]);
}

#[test]
fn an_inventory_ends_without_what_ended_meanwhile() {
    let mut rig = Rig::listed(&["a", "b"]);
    rig.open(8);
    rig.prepared("a", 1);
    let said = rig.handle(Event::Deleted("b".parse().unwrap()));
    assert_eq!(said, ["end 1 of 1", "deleted b"]);
}

#[test]
fn what_appears_during_an_inventory_does_not_hold_its_end() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    assert_eq!(rig.applied("b", 1), ["prepare b"]);
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 1 of 1"]);
    assert_eq!(rig.prepared("b", 1), ["observed b 1"]);
}

#[test]
fn an_inventory_does_not_end_before_the_list_is_complete() {
    let mut rig = Rig::new();
    assert_eq!(rig.open(8), ["resync", "begin 1"]);
    rig.handle(Event::ListBegins);
    let said = rig.handle(Event::Listed(object("a", 1)));
    assert_eq!(said, ["prepare a"], "work begins with the first page");
    assert_eq!(rig.prepared("a", 1), ["observed a 1"]);
    rig.handle(Event::Listed(object("b", 1)));
    assert_eq!(rig.handle(Event::ListEnds), ["synced"]);
    assert_eq!(rig.prepared("b", 1), ["observed b 1", "end 1 of 2"]);
}

#[test]
fn listing_again_sends_nothing_twice() {
    let mut rig = Rig::listed(&["a", "b"]);
    rig.open(8);
    for name in ["a", "b"] {
        rig.prepared(name, 1);
        rig.stored(name, 1);
    }
    assert!(rig.list(&["a", "b"]).is_empty());
    assert!(rig.list(&["b", "a"]).is_empty());
}

#[test]
fn listing_again_shows_what_was_deleted_while_nobody_watched() {
    let mut rig = Rig::listed(&["a", "b"]);
    rig.open(8);
    for name in ["a", "b"] {
        rig.prepared(name, 1);
        rig.stored(name, 1);
    }
    assert_eq!(rig.list(&["b", "c"]), ["prepare c", "deleted a"]);
}

#[test]
fn a_list_that_breaks_off_deletes_nothing() {
    let mut rig = Rig::listed(&["a", "b"]);
    rig.open(8);
    rig.handle(Event::ListBegins);
    rig.handle(Event::Listed(object("a", 1)));
    let said = rig.list(&["a", "b"]);
    assert!(said.is_empty(), "{said:?}");
}

#[test]
fn a_new_session_sends_everything_unfinished_again() {
    let mut rig = Rig::listed(&["a", "b"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    rig.handle(Event::SessionClosed);
    let mut said = rig.open(8);
    said[2..].sort();
    // The first lost its JSON when it was sent, the second when it was handed out for reading.
    assert_eq!(said, ["resync", "begin 1", "read a", "read b"]);
}

#[test]
fn what_was_read_for_an_older_session_is_not_sent_on_the_new_one() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.open(8);
    let late = Event::Prepared {
        session: 1,
        observation: Box::new(observation("a", 1)),
    };
    assert!(rig.handle(late).is_empty());
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 1 of 1"]);
}

#[test]
fn deletions_before_a_session_are_told_by_its_inventory_alone() {
    let mut rig = Rig::listed(&["a"]);
    rig.handle(Event::Deleted("a".parse().unwrap()));
    assert_eq!(rig.open(8), ["resync", "begin 1", "end 1 of 0"]);
}

#[test]
fn every_interval_the_inventory_is_sent_again() {
    let mut rig = Rig::listed(&["a"]);
    let opened = rig.now;
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    assert_eq!(rig.wake(), ["resync", "begin 2", "read a"]);
    assert_eq!(rig.now - opened, RESYNC);
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 2 of 1"]);
}

#[test]
fn an_inventory_that_is_still_under_way_is_not_begun_again() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    assert!(rig.wake().is_empty());
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 1 of 1"]);
}

#[test]
fn the_hub_may_choose_the_interval() {
    let mut rig = Rig::listed(&[]);
    rig.handle(Event::SessionOpened {
        session: 1,
        credit: 1,
        resync: Some(Duration::from_secs(7)),
    });
    let due = rig.inventory.next_wake().unwrap();
    assert_eq!(due - rig.now, Duration::from_secs(7));
}
