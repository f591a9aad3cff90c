//! What the hub wants to hear of though it is finished.

use nabu_common::ids::ResponseUid;

use super::*;
use crate::object::{End, SpecPrint};
use crate::session::KnownSpec;

fn uid(name: &str) -> ResponseUid {
    name.parse().unwrap()
}

fn gone(name: &str) -> String {
    let frame = ToHub::Deleted {
        uid: uid(name),
        name: String::new(),
        still_there: false,
        own_success: false,
    };
    words(&Effect::Send(frame))
}

fn watching(rig: &mut Rig, names: &[&str], more: bool) -> Vec<String> {
    let responses = names.iter().map(|name| (uid(name), None)).collect();
    rig.handle(Event::Watching { responses, more })
}

/// A list on which these are finished.
fn list_finished(rig: &mut Rig, names: &[&str]) -> Vec<String> {
    let mut said = rig.handle(Event::ListBegins);
    for name in names {
        said.extend(rig.handle(Event::Settled(uid(name))));
    }
    said.extend(rig.handle(Event::ListEnds));
    said
}

#[test]
fn a_watched_object_that_is_deleted_is_told_and_another_is_not() {
    let mut rig = Rig::new();
    list_finished(&mut rig, &["a", "b"]);
    rig.open(8);
    assert_eq!(watching(&mut rig, &["a"], false), [""; 0]);
    assert_eq!(rig.handle(Event::Deleted(uid("b"))), [""; 0]);
    assert_eq!(rig.handle(Event::Deleted(uid("a"))), [gone("a")]);
    assert_eq!(rig.handle(Event::Deleted(uid("a"))), [""; 0], "once");
}

#[test]
fn an_object_is_watched_from_its_final_status_on() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.stored("a", 1);
    rig.handle(Event::FinalStatusOrdered(uid("a")));
    let said = rig.handle(Event::Watched {
        uid: uid("a"),
        watched: true,
        spec: None,
    });
    assert_eq!(said, [""; 0], "it is there");
    let uid: ResponseUid = "a".parse().unwrap();
    assert_eq!(rig.handle(Event::Settled(uid.clone())), [""; 0]);
    assert_eq!(rig.handle(Event::Deleted(uid)), [gone("a")]);
}

#[test]
fn what_was_deleted_while_the_agent_was_away_is_told_once_everything_is_known() {
    let mut rig = Rig::new();
    rig.open(8);
    assert_eq!(watching(&mut rig, &["a", "b"], true), [""; 0]);
    assert_eq!(
        watching(&mut rig, &["c"], false),
        [""; 0],
        "nothing is known of what is there"
    );
    rig.handle(Event::ListBegins);
    rig.handle(Event::Settled(uid("a")));
    rig.handle(Event::Listed(object("b", 1)));
    let said = rig.handle(Event::ListEnds);
    assert!(said.contains(&gone("c")), "{said:?}");
    assert!(!said.contains(&gone("a")) && !said.contains(&gone("b")));
}

#[test]
fn nothing_is_taken_for_deleted_while_a_list_runs_and_what_it_leaves_out_is() {
    let mut rig = Rig::new();
    list_finished(&mut rig, &["a", "b"]);
    rig.open(8);
    rig.handle(Event::ListBegins);
    assert_eq!(watching(&mut rig, &["a", "b"], false), [""; 0]);
    rig.handle(Event::Settled(uid("b")));
    assert_eq!(rig.handle(Event::ListEnds), [gone("a")]);
}

#[test]
fn a_newer_list_of_watched_objects_replaces_the_older_one() {
    let mut rig = Rig::new();
    list_finished(&mut rig, &["a", "b"]);
    rig.open(8);
    watching(&mut rig, &["a"], false);
    watching(&mut rig, &["b"], false);
    assert_eq!(rig.handle(Event::Deleted(uid("a"))), [""; 0]);
    assert_eq!(rig.handle(Event::Deleted(uid("b"))), [gone("b")]);
}

#[test]
fn a_session_that_ends_leaves_no_watched_object_behind() {
    let mut rig = Rig::new();
    list_finished(&mut rig, &["a"]);
    rig.open(8);
    watching(&mut rig, &["a"], false);
    rig.handle(Event::SessionClosed);
    assert_eq!(rig.handle(Event::Deleted(uid("a"))), [""; 0]);
    rig.open(8);
    assert_eq!(
        watching(&mut rig, &["a"], false),
        [gone("a")],
        "the next session asks again"
    );
}

/// A spec as the hub knows it.
fn known(name: &str, revision: u8) -> (ResponseUid, Option<KnownSpec>) {
    let print = SpecPrint::of(&[revision; 32]);
    let name = name.to_owned();
    (uid(&name), Some(KnownSpec { print, name }))
}

fn watching_specs(rig: &mut Rig, known: Vec<(ResponseUid, Option<KnownSpec>)>) -> Vec<String> {
    let (responses, more) = (known, false);
    rig.handle(Event::Watching { responses, more })
}

fn finished(rig: &mut Rig, name: &str, revision: u8) -> Vec<String> {
    let spec = SpecPrint::of(&[revision; 32]);
    let (uid, end) = (uid(name), End::Other(spec));
    rig.handle(Event::Finished { uid, end })
}

/// A list on which these are finished, with a spec of this revision.
fn list_specs(rig: &mut Rig, specs: &[(&str, u8)]) -> Vec<String> {
    let mut said = rig.handle(Event::ListBegins);
    for (name, revision) in specs {
        said.extend(finished(rig, name, *revision));
    }
    said.extend(rig.handle(Event::ListEnds));
    said
}

#[test]
fn a_finished_object_whose_spec_changes_is_read_and_sent_once_if_the_hub_wants_that() {
    let mut rig = Rig::new();
    list_specs(&mut rig, &[("a", 1), ("b", 1)]);
    rig.open(8);
    assert_eq!(
        watching_specs(&mut rig, vec![known("a", 1), (uid("b"), None)]),
        [""; 0]
    );
    assert_eq!(
        finished(&mut rig, "a", 1),
        [""; 0],
        "only its status has changed"
    );
    assert_eq!(
        finished(&mut rig, "b", 2),
        [""; 0],
        "the hub wants to hear of its end only"
    );
    assert_eq!(finished(&mut rig, "a", 2), ["read a"]);
    assert_eq!(finished(&mut rig, "a", 2), [""; 0]);
    assert_eq!(rig.prepared("a", 2), ["observed a 2"]);
    assert_eq!(rig.stored("a", 2), [""; 0]);
    assert_eq!(finished(&mut rig, "a", 2), [""; 0]);
    assert_eq!(rig.handle(Event::Deleted(uid("a"))), [gone("a")]);
    rig.assert_empty();
}

#[test]
fn what_changed_while_the_agent_was_away_is_told_whichever_comes_first() {
    for list_first in [true, false] {
        let mut rig = Rig::new();
        let mut said = Vec::new();
        if list_first {
            list_specs(&mut rig, &[("a", 2), ("b", 1)]);
        }
        rig.open(8);
        said.extend(watching_specs(&mut rig, vec![known("a", 1), known("b", 1)]));
        if !list_first {
            assert_eq!(said, [""; 0], "nothing is known of what is there");
            said = list_specs(&mut rig, &[("a", 2), ("b", 1)]);
        }
        said.retain(|word| word.starts_with("read") || word.starts_with("gone"));
        assert_eq!(said, ["read a"], "{list_first}");
    }
}

#[test]
fn a_spec_that_changes_while_it_is_read_is_sent_as_well() {
    let mut rig = Rig::new();
    list_specs(&mut rig, &[("a", 1)]);
    rig.open(8);
    watching_specs(&mut rig, vec![known("a", 1)]);
    assert_eq!(finished(&mut rig, "a", 2), ["read a"]);
    assert_eq!(finished(&mut rig, "a", 3), [""; 0]);
    assert_eq!(rig.prepared("a", 2), ["observed a 2"]);
    assert_eq!(rig.stored("a", 2), ["read a"]);
    assert_eq!(rig.prepared("a", 3), ["observed a 3"]);
    assert_eq!(rig.stored("a", 3), [""; 0]);
}

#[test]
fn a_changed_spec_that_the_hub_refuses_leaves_the_status_alone() {
    let mut rig = Rig::new();
    list_specs(&mut rig, &[("a", 1)]);
    rig.open(8);
    watching_specs(&mut rig, vec![known("a", 1)]);
    finished(&mut rig, "a", 2);
    rig.prepared("a", 2);
    let refusal = Refusal {
        uid: uid("a"),
        reason: "TooLarge",
        message: String::new(),
    };
    assert_eq!(rig.handle(Event::Refused(refusal)), [""; 0]);
    assert_eq!(finished(&mut rig, "a", 2), [""; 0]);
}

#[test]
fn a_session_that_ends_forgets_what_was_to_be_told_and_the_next_one_asks_again() {
    let mut rig = Rig::new();
    list_specs(&mut rig, &[("a", 1)]);
    rig.open(8);
    watching_specs(&mut rig, vec![known("a", 1)]);
    assert_eq!(finished(&mut rig, "a", 2), ["read a"]);
    rig.handle(Event::SessionClosed);
    let said = rig.open(8);
    assert_eq!(said, ["resync", "begin 1", "end 1 of 0"]);
    assert_eq!(watching_specs(&mut rig, vec![known("a", 1)]), ["read a"]);
    // A list in between takes it neither for unfinished nor for gone.
    let said = list_specs(&mut rig, &[("a", 2)]);
    assert_eq!(said, [""; 0]);
    assert_eq!(rig.prepared("a", 2), ["observed a 2"]);
    rig.stored("a", 2);
    rig.assert_empty();
}
