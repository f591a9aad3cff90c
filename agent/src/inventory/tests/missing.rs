//! What the hub asks for because an inventory left it out.

use nabu_common::ids::ResponseUid;

use super::*;
use crate::object::{End, SpecPrint};
use crate::status::Phase;

fn uid(name: &str) -> ResponseUid {
    name.parse().unwrap()
}

fn ask(rig: &mut Rig, names: &[&str]) -> Vec<String> {
    let mut said = rig.handle(Event::Missing(names.iter().map(|name| uid(name)).collect()));
    said.sort();
    said
}

fn finished(rig: &mut Rig, name: &str, end: fn(SpecPrint) -> End) {
    let end = end(SpecPrint::of(&[1; 32]));
    rig.handle(Event::Finished {
        uid: uid(name),
        end,
    });
}

#[test]
fn only_what_is_not_there_is_told_as_gone() {
    let mut rig = Rig::new();
    rig.handle(Event::ListBegins);
    rig.handle(Event::Settled(uid("theirs")));
    finished(&mut rig, "ended", End::Other);
    finished(&mut rig, "done", End::OwnSuccess);
    rig.handle(Event::ListEnds);
    rig.open(8);
    assert_eq!(
        ask(&mut rig, &["theirs", "ended", "done", "lost"]),
        [
            "ended ended",
            "ended theirs",
            "gone lost",
            "own success done"
        ]
    );
    assert_eq!(ask(&mut rig, &[]), [""; 0], "each is answered once");
    assert_eq!(ask(&mut rig, &["lost"]), ["gone lost"], "as often as asked");
}

#[test]
fn an_end_is_written_over_by_no_status_that_is_none_and_a_success_of_ours_by_no_other_end() {
    let mut rig = Rig::new();
    rig.handle(Event::ListBegins);
    finished(&mut rig, "ended", End::Other);
    finished(&mut rig, "done", End::OwnSuccess);
    rig.handle(Event::ListEnds);
    let keeps = |name: &str, phase| rig.inventory.keeps_its_status_from(&uid(name), phase);
    for name in ["ended", "done"] {
        assert!(keeps(name, Phase::Pending) && keeps(name, Phase::Running));
        assert!(!keeps(name, Phase::Succeeded), "{name}");
    }
    for phase in [Phase::Failed, Phase::Cancelled] {
        assert!(keeps("done", phase), "a hub that comes from a backup");
        assert!(!keeps("ended", phase));
        assert!(!keeps("unknown", phase));
    }
}

#[test]
fn what_is_unfinished_is_sent_again() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    assert_eq!(ask(&mut rig, &["a"]), [""; 0], "it is being read");
    rig.prepared("a", 1);
    rig.stored("a", 1);
    assert_eq!(ask(&mut rig, &["a"]), ["read a"]);
}

#[test]
fn what_the_hub_refuses_is_about_to_end() {
    let mut rig = Rig::listed(&["a"]);
    rig.open(8);
    rig.prepared("a", 1);
    rig.handle(Event::Refused(refusal("a")));
    assert_eq!(ask(&mut rig, &["a"]), ["out of hands a"]);
}

#[test]
fn nothing_is_answered_while_a_list_runs_or_after_the_session() {
    let mut rig = Rig::new();
    rig.list(&[]);
    rig.open(8);
    rig.handle(Event::ListBegins);
    assert_eq!(ask(&mut rig, &["a", "b"]), [""; 0]);
    finished(&mut rig, "b", End::Other);
    let mut said = rig.handle(Event::ListEnds);
    said.sort();
    assert_eq!(said, ["ended b", "gone a"]);

    rig.handle(Event::ListBegins);
    ask(&mut rig, &["a"]);
    rig.handle(Event::SessionClosed);
    rig.handle(Event::ListEnds);
    assert_eq!(rig.open(8), ["resync", "begin 1", "end 1 of 0"]);
    rig.assert_empty();
    assert!(rig.inventory.asked.is_empty());
}
