//! Merging by itself, where a route wants that.

use nabu_hub::change::MergeMethod;
use nabu_hub::forge::PullRequestState;
use nabu_tests::test_forge::gitlab::{BOT, Pipeline, Role};

use crate::bed::{Bed, DENY};

async fn bed_of_a_maintainer() -> Bed {
    let bed = Bed::new().await;
    bed.project.set_role(BOT, Some(Role::Maintainer)).unwrap();
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn gitlab_is_asked_to_merge_once_its_rules_allow_it() {
    for rule in ["pipeline", "approval"] {
        let bed = bed_of_a_maintainer().await;
        match rule {
            "pipeline" => bed.project.set_pipeline(Pipeline::Running).unwrap(),
            _ => bed.project.set_approvals_missing(true).unwrap(),
        }
        let mut intent = bed.intent("u-1", &DENY);
        intent.options.auto_merge = Some(MergeMethod::Squash);
        let (pull, requests) = bed.pull(&intent).await;
        assert_eq!(
            (pull.state, requests),
            (PullRequestState::Open, 4),
            "{rule}"
        );
        let all = bed.project.merge_requests().unwrap();
        assert_eq!(all[0]["merge_when_pipeline_succeeds"], true);
        assert_eq!(all[0]["squash"], true);
        assert_eq!(bed.pull(&intent).await.1, 1, "it is set already");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_nothing_is_left_to_people() {
    let bed = bed_of_a_maintainer().await;
    let mut intent = bed.intent("u-1", &DENY);
    intent.options.auto_merge = Some(MergeMethod::Merge);
    // Two more than usual: "nothing to wait for", and a look that says why.
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.state, requests), (PullRequestState::Open, 5));
    assert!(
        pull.notes[0].starts_with("auto-merge: "),
        "{:?}",
        pull.notes
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_gitlab_still_looks_at_is_waited_for() {
    let bed = bed_of_a_maintainer().await;
    bed.project.set_pipeline(Pipeline::Running).unwrap();
    bed.project.set_checking(2).unwrap();
    let mut intent = bed.intent("u-1", &DENY);
    intent.options.auto_merge = Some(MergeMethod::Merge);
    bed.pull(&intent).await;
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all[0]["merge_when_pipeline_succeeds"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_to_merge_is_no_failure() {
    // A developer may not merge; a draft is not merged; and a look that never ends is given up.
    for why in ["role", "draft", "checking"] {
        let bed = bed_of_a_maintainer().await;
        let mut intent = bed.intent("u-1", &DENY);
        intent.options.auto_merge = Some(MergeMethod::Merge);
        match why {
            "role" => bed.project.set_role(BOT, Some(Role::Developer)).unwrap(),
            "draft" => intent.draft = true,
            _ => bed.project.set_checking(u32::MAX).unwrap(),
        }
        let (pull, _) = bed.pull(&intent).await;
        assert_eq!(pull.state, PullRequestState::Open, "{why}");
        let words = if why == "role" {
            "the token may not merge"
        } else {
            "refused with 405"
        };
        let [note] = pull.notes.as_slice() else {
            panic!("{why}: {pull:?}")
        };
        assert!(
            note.starts_with("auto-merge: ") && note.contains(words),
            "{note}"
        );
        let all = bed.project.merge_requests().unwrap();
        assert_eq!((all.len(), &all[0]["state"]), (1, &"opened".into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_the_wish_to_merge_is_made_up_for() {
    let bed = bed_of_a_maintainer().await;
    bed.project.set_pipeline(Pipeline::Running).unwrap();
    let mut intent = bed.intent("u-1", &DENY);
    bed.pull(&intent).await;
    intent.options.auto_merge = Some(MergeMethod::Merge);
    assert_eq!(bed.pull(&intent).await.1, 2);
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all[0]["merge_when_pipeline_succeeds"], true);
}
