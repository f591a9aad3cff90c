//! What became of a merge request after it was opened.

use nabu_hub::forge::PullRequestState;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn ends_are_seen_with_their_commit_and_time_in_one_request() {
    let bed = Bed::new().await;
    for uid in ["u-1", "u-2", "u-3"] {
        bed.pull(&bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]))
            .await;
    }
    bed.project.merge(1).unwrap();
    bed.project.close(2).unwrap();

    let (mut observed, requests) = bed.observe(&[1, 2, 3, 99]).await;

    assert_eq!(requests, 1);
    observed.sort_by_key(|pull| pull.number);
    let states: Vec<_> = observed
        .iter()
        .map(|pull| (pull.number, pull.state))
        .collect();
    let expected = [
        (1, PullRequestState::Merged),
        (2, PullRequestState::Closed),
        (3, PullRequestState::Open),
    ];
    assert_eq!(states, expected, "one that is gone is left out");
    let merged = bed.project.commit("main").unwrap().oid;
    assert_eq!(observed[0].merge_commit.as_deref(), Some(merged.as_str()));
    assert_eq!(
        (&observed[1].merge_commit, &observed[2].merge_commit),
        (&None, &None)
    );
    let ended: Vec<_> = observed
        .iter()
        .map(|pull| pull.ended_at.is_some())
        .collect();
    assert_eq!(ended, [true, true, false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_are_asked_for_fifty_at_a_time() {
    let bed = Bed::new().await;
    let numbers: Vec<u64> = (1..=120).collect();
    assert_eq!(bed.observe(&numbers).await, (Vec::new(), 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_cannot_be_seen_any_more_says_nothing() {
    let bed = Bed::new().await;
    bed.project
        .set_role(nabu_tests::test_forge::gitlab::BOT, None)
        .unwrap();
    assert_eq!(bed.observe(&[1]).await, (Vec::new(), 1));
}
