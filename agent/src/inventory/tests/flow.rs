//! Credit, slots and room: nothing grows beyond its bound.

use super::*;

#[test]
fn each_observed_frame_costs_one_credit() {
    let mut rig = Rig::listed(&[]);
    rig.open(2);
    assert_eq!(rig.applied("a", 1), ["prepare a"]);
    assert_eq!(rig.applied("b", 1), ["prepare b"]);
    assert!(rig.applied("c", 1).is_empty());
    rig.prepared("a", 1);
    assert!(rig.stored("a", 1).is_empty(), "only the hub gives credit");
    assert_eq!(rig.handle(Event::Credit(1)), ["prepare c"]);
}

#[test]
fn without_credit_deletions_are_still_told() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(1);
    rig.prepared("a", 1);
    let said = rig.handle(Event::Deleted("a".parse().unwrap()));
    assert_eq!(said, ["deleted a"]);
}

#[test]
fn an_object_that_waits_for_its_security_event_holds_no_credit() {
    let mut rig = Rig::listed(&[]);
    rig.open(1);
    rig.applied("a", 1);
    rig.applied("b", 1);
    assert_eq!(rig.missing("a"), ["prepare b"]);
}

#[test]
fn an_object_that_cannot_be_read_holds_no_credit() {
    let mut rig = Rig::listed(&[]);
    rig.open(1);
    rig.applied("a", 1);
    rig.applied("b", 1);
    let (session, uid) = (rig.session, "a".parse().unwrap());
    assert_eq!(
        rig.handle(Event::PrepareFailed { session, uid }),
        ["prepare b"]
    );
}

#[test]
fn the_credit_of_an_object_that_vanished_goes_to_the_next() {
    let mut rig = Rig::listed(&[]);
    rig.open(1);
    rig.applied("a", 1);
    rig.applied("b", 1);
    rig.handle(Event::Deleted("a".parse().unwrap()));
    assert_eq!(rig.prepared("a", 1), ["prepare b"]);
}

#[test]
fn credit_of_an_older_session_is_worth_nothing() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.handle(Event::SessionClosed);
    rig.handle(Event::Credit(100));
    assert_eq!(rig.open(0), ["resync", "begin 1"]);
}

#[test]
fn readings_and_unsent_frames_share_the_slots() {
    let mut rig = Rig::with(|settings| settings.slots = 2);
    rig.list(&[]);
    rig.open(100);
    for name in ["a", "b", "c"] {
        rig.applied(name, 1);
    }
    assert_eq!(
        rig.prepared("a", 1),
        ["observed a 1"],
        "the frame holds the slot"
    );
    let said = rig.handle(Event::FrameSent { session: 1 });
    assert_eq!(said, ["prepare c"]);
}

#[test]
fn objects_are_sent_in_the_order_of_their_appearance() {
    let mut rig = Rig::with(|settings| settings.slots = 1);
    rig.list(&[]);
    rig.open(100);
    let mut order = Vec::new();
    for name in ["c", "a", "b"] {
        order.extend(rig.applied(name, 1));
    }
    for name in ["c", "a", "b"] {
        rig.prepared(name, 1);
        order.extend(rig.handle(Event::FrameSent { session: 1 }));
    }
    assert_eq!(order, ["prepare c", "prepare a", "prepare b"]);
}

#[test]
fn what_there_is_no_room_for_is_read_again_when_its_turn_comes() {
    let mut rig = Rig::with(|settings| settings.kept_bytes = 250);
    rig.list(&["a", "b", "c", "d"]);
    assert_eq!(rig.inventory.kept_bytes, 200);
    let said = rig.open(8);
    let kept = said
        .iter()
        .filter(|said| said.starts_with("prepare"))
        .count();
    let read = said.iter().filter(|said| said.starts_with("read")).count();
    assert_eq!((kept, read), (2, 2));
    assert_eq!(rig.inventory.kept_bytes, 0);
}

#[test]
fn objects_that_come_and_go_without_credit_leave_nothing_behind() {
    let mut rig = Rig::listed(&[]);
    rig.open(0);
    for number in 0..10_000 {
        let name = format!("er-{number}");
        rig.applied(&name, 1);
        rig.handle(Event::Deleted(name.parse().unwrap()));
        rig.handle(Event::FrameSent { session: 1 });
    }
    assert!(
        rig.inventory.queue.len() < 200,
        "{}",
        rig.inventory.queue.len()
    );
    assert_eq!(rig.inventory.kept_bytes, 0);
    assert!(rig.inventory.is_empty() && rig.inventory.gone.is_empty());
}
