//! One member that is not wanted any more does not take the others along.

use nabu_hub::forge::{Closing, PullRequestState};
use nabu_tests::intents::closing;

use crate::on_every_forge;
use crate::stage::{BRANCH, Stage};

on_every_forge!(
    while_others_are_in_it_it_is_only_said,
    the_last_one_closes_it_and_its_branch_goes,
    a_branch_with_a_commit_of_somebody_else_stays,
);

async fn while_others_are_in_it_it_is_only_said(stage: &mut Stage) {
    let first = stage.writer("u-1");
    stage.share(&first).await;
    stage.share(&stage.writer("u-2")).await;
    let number = stage.the_pull().await.number;
    for again in [false, true] {
        let wish = Closing {
            comment: "Not wanted any more.",
            stays_open: true,
            remove_branch: true,
            again,
            ..closing(Some(number))
        };
        let closed = stage.close(&first, &wish).await.unwrap().unwrap();
        assert_eq!(closed.pull.state, PullRequestState::Open);
    }
    assert_eq!(stage.the_pull().await.state, "open");
    let comments = stage.comments(number).await;
    assert_eq!(comments.len(), 1, "{comments:?}");
    assert!(comments[0].contains("uid=u-1"), "{comments:?}");
    assert_eq!(stage.members().await, ["u-1", "u-2"]);
}

async fn the_last_one_closes_it_and_its_branch_goes(stage: &mut Stage) {
    let first = stage.writer("u-1");
    stage.share(&first).await;
    stage.share(&stage.writer("u-2")).await;
    let wish = Closing {
        remove_branch: true,
        ..closing(Some(stage.the_pull().await.number))
    };
    let closed = stage.close(&first, &wish).await.unwrap().unwrap();
    assert_eq!(closed.pull.state, PullRequestState::Closed);
    assert!(!stage.branches().await.contains(&BRANCH.to_owned()));
}

async fn a_branch_with_a_commit_of_somebody_else_stays(stage: &mut Stage) {
    let first = stage.writer("u-1");
    stage.share(&first).await;
    stage.commit_as_person(BRANCH, "mine.txt", "mine\n").await;
    let wish = Closing {
        remove_branch: true,
        ..closing(Some(stage.the_pull().await.number))
    };
    stage.close(&first, &wish).await.unwrap().unwrap();
    assert_eq!(stage.the_pull().await.state, "closed");
    assert!(stage.branches().await.contains(&BRANCH.to_owned()));
}
