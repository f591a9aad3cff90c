//! One object from its appearance to its end.

use super::*;

#[test]
fn an_object_is_read_sent_and_then_only_remembered() {
    let mut rig = Rig::listed(&[]);
    assert_eq!(rig.open(8), ["resync", "begin 1", "end 1 of 0"]);
    assert_eq!(rig.applied("a", 1), ["prepare a"]);
    assert_eq!(rig.inventory.backlog(), 1);
    assert_eq!(rig.prepared("a", 1), ["observed a 1"]);
    assert!(rig.stored("a", 1).is_empty());
    assert_eq!((rig.inventory.backlog(), rig.inventory.len()), (0, 1));
    assert_eq!(rig.inventory.kept_bytes, 0, "its JSON is not needed again");
}

#[test]
fn a_finished_and_acknowledged_object_leaves_nothing_in_memory() {
    let mut rig = Rig::listed(&[]);
    rig.open(1000);
    for number in 0..100 {
        let name = format!("er-{number}");
        rig.applied(&name, 1);
        rig.prepared(&name, 1);
        rig.stored(&name, 1);
        let uid = name.parse().unwrap();
        rig.handle(Event::FinalStatusOrdered(uid));
        let uid = name.parse().unwrap();
        let said = rig.handle(Event::Settled(uid));
        assert!(said.is_empty(), "the hub ordered it: {said:?}");
    }
    rig.assert_empty();
}

#[test]
fn finished_objects_of_a_list_are_not_remembered() {
    let mut rig = Rig::new();
    rig.handle(Event::ListBegins);
    for number in 0..1000 {
        let uid = format!("er-{number}").parse().unwrap();
        assert!(rig.handle(Event::Settled(uid)).is_empty());
    }
    assert_eq!(rig.handle(Event::ListEnds), ["synced"]);
    rig.assert_empty();
}

#[test]
fn an_object_that_somebody_else_finished_is_out_of_the_hubs_hands() {
    for status in [
        json!({"phase": "Cancelled"}),
        json!({"providerRef": "https://forge.example/pulls/1"}),
        json!({"evidence": [{"url": "https://forge.example/pulls/1"}]}),
    ] {
        let mut rig = Rig::listed(&["a"]);
        rig.open(8);
        rig.prepared("a", 1);
        rig.stored("a", 1);
        let said = rig.watch(&status).unwrap();
        assert_eq!(said, ["out of hands a"], "it is there: {status}");
        rig.assert_empty();
    }
}

#[test]
fn an_object_with_a_pull_request_or_evidence_from_the_start_is_finished() {
    for status in [json!({"providerRef": "u"}), json!({"evidence": [{}]})] {
        let mut rig = Rig::listed(&[]);
        rig.open(8);
        assert_eq!(rig.watch(&status).unwrap(), [""; 0]);
        rig.assert_empty();
    }
}

#[test]
fn annotations_and_statuses_of_others_are_no_news() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    for attempt in 0..15 {
        let said = rig.watch(&json!({"phase": "Running", "attempts": attempt}));
        assert_eq!(said, None, "the generation is the same");
        let said = rig.applied("a", 1);
        assert!(said.is_empty(), "the spec is the same: {said:?}");
    }
}

#[test]
fn a_generation_that_grows_without_a_change_of_the_spec_is_no_news() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    let mut touched = object("a", 1);
    touched.generation = 7;
    assert!(rig.handle(Event::Applied(touched)).is_empty());
    assert!(rig.inventory.knows(&"a".parse().unwrap(), 7));
}

#[test]
fn a_changed_spec_is_sent_again() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    assert_eq!(rig.applied("a", 2), ["prepare a"]);
    assert_eq!(rig.prepared("a", 2), ["observed a 2"]);
}

#[test]
fn a_spec_that_changes_while_it_is_read_is_read_again() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    assert!(rig.applied("a", 2).is_empty(), "one reading at a time");
    assert_eq!(rig.prepared("a", 1), ["read a"]);
    assert_eq!(
        rig.prepared("a", 2),
        ["observed a 2", "end 1 of 1"],
        "the old state is never sent"
    );
}

#[test]
fn an_acknowledgement_of_an_older_state_does_not_count() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.applied("a", 2);
    rig.prepared("a", 2);
    rig.stored("a", 1);
    assert_eq!(rig.inventory.backlog(), 1);
    rig.stored("a", 2);
    assert_eq!(rig.inventory.backlog(), 0);
}

#[test]
fn an_object_deleted_while_it_is_read_is_not_sent_any_more() {
    let mut rig = Rig::listed(&[]);
    rig.open(8);
    rig.applied("a", 1);
    let said = rig.handle(Event::Deleted("a".parse().unwrap()));
    assert_eq!(said, ["deleted a"]);
    assert!(rig.prepared("a", 1).is_empty());
    rig.assert_empty();
}

#[test]
fn an_object_deleted_after_it_was_sent_is_told_to_the_hub_once() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    let said = rig.handle(Event::Deleted("a".parse().unwrap()));
    assert_eq!(said, ["deleted a"]);
    assert!(rig.handle(Event::Deleted("a".parse().unwrap())).is_empty());
    assert!(rig.stored("a", 1).is_empty());
    rig.assert_empty();
}

#[test]
fn an_object_that_is_gone_when_it_is_read_is_deleted() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    let said = rig.handle(Event::Vanished {
        session: 1,
        uid: "a".parse().unwrap(),
        finished: false,
    });
    assert_eq!(said, ["end 1 of 0", "deleted a"]);
    rig.assert_empty();
}

#[test]
fn a_refusal_becomes_a_terminal_status_and_the_state_is_never_sent_again() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    let said = rig.handle(Event::Refused(refusal("a")));
    assert_eq!(said, ["refused a Invalid"]);
    assert!(rig.applied("a", 1).is_empty());
    rig.handle(Event::SessionClosed);
    assert_eq!(rig.open(8), ["resync", "begin 1", "end 1 of 0"]);
    let said = rig.handle(Event::Settled("a".parse().unwrap()));
    assert!(said.is_empty(), "the hub knows: {said:?}");
    rig.assert_empty();
}

#[test]
fn a_refusal_that_comes_while_the_object_is_read_again_stops_the_sending() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    rig.wake();
    rig.handle(Event::Refused(refusal("a")));
    assert!(rig.prepared("a", 1).is_empty());
}

#[test]
fn a_refusal_of_an_object_that_is_gone_writes_nothing() {
    let mut rig = Rig::listed(&[]);
    rig.open(8);
    assert!(rig.handle(Event::Refused(refusal("a"))).is_empty());
}

#[test]
fn a_missing_security_event_is_waited_for_within_bounds_and_then_done_without() {
    let mut rig = Rig::listed(&["a"]);
    let started = rig.now;
    assert_eq!(rig.open(8), ["resync", "begin 1", "prepare a"]);
    let mut looks = 0;
    loop {
        assert!(rig.missing("a").is_empty());
        let said = rig.wake();
        looks += 1;
        assert!(looks < 20, "looks are spread");
        if said == ["read a without its event"] {
            break;
        }
        assert_eq!(said, ["read a"]);
    }
    assert_eq!(rig.now - started, PATIENCE);
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 1 of 1"]);
}

#[test]
fn a_security_event_that_comes_late_ends_the_waiting() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.missing("a");
    assert_eq!(rig.wake(), ["read a"]);
    assert_eq!(rig.prepared("a", 1), ["observed a 1", "end 1 of 1"]);
    assert_eq!(rig.inventory.timers.len(), 0);
}

#[test]
fn a_new_session_does_not_start_the_waiting_anew() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.missing("a");
    rig.now += PATIENCE;
    assert_eq!(
        rig.open(8),
        ["resync", "begin 1", "read a without its event"]
    );
}

#[test]
fn an_api_server_that_fails_is_asked_again_with_growing_pauses() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let (session, uid) = (rig.session, "a".parse().unwrap());
        rig.handle(Event::PrepareFailed { session, uid });
        let before = rig.now;
        assert_eq!(rig.wake(), ["read a"]);
        pauses.push((rig.now - before).as_millis());
    }
    assert_eq!(
        pauses,
        [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000, 5000]
    );
}

#[test]
fn a_final_status_that_overtakes_the_first_list_is_remembered_until_the_list_ends() {
    let mut rig = Rig::new();
    rig.open(8);
    rig.handle(Event::ListBegins);
    for name in ["a", "finished-long-ago"] {
        rig.handle(Event::FinalStatusOrdered(name.parse().unwrap()));
    }
    rig.handle(Event::Listed(object("a", 1)));
    rig.prepared("a", 1);
    assert_eq!(rig.handle(Event::ListEnds), ["synced", "end 1 of 1"]);
    let said = rig.handle(Event::Settled("a".parse().unwrap()));
    assert!(said.is_empty(), "the hub ordered it: {said:?}");
    assert!(rig.inventory.early_ends.is_empty());
    rig.assert_empty();
}
