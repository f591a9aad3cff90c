//! What the hub wants to hear of though it is finished.

use nabu_common::ids::ResponseUid;

use super::*;

fn uid(name: &str) -> ResponseUid {
    name.parse().unwrap()
}

fn gone(name: &str) -> String {
    let frame = ToHub::Deleted {
        uid: uid(name),
        name: String::new(),
        still_there: false,
    };
    words(&Effect::Send(frame))
}

fn watching(rig: &mut Rig, names: &[&str], more: bool) -> Vec<String> {
    let uids = names.iter().map(|name| uid(name)).collect();
    rig.handle(Event::Watching { uids, more })
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
    let watched = true;
    let uid = uid("a");
    let said = rig.handle(Event::Watched { uid, watched });
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
