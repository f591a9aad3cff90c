//! What became of a merge request after it was opened.

use crate::bed::Bed;

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
