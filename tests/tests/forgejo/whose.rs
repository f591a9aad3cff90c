//! What exists already: ours is taken up where it was left, everybody else's stays as it is.

use nabu_hub::forge::{ForgeError, Made, PullRequestState};
use nabu_hub::response::ErrorType;
use reqwest::Method;
use serde_json::json;

use crate::bed::{BINDINGS, Bed, OBSOLETE, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_pull_request_is_never_opened_again() {
    let bed = Bed::new("closed").await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.pull(&intent).await;
    bed.repository.close_pull_request(1).await.unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(
        (pull.state, requests, pull.adopted),
        (PullRequestState::Closed, 1, true)
    );
    let pulls = bed.repository.pull_requests().await.unwrap();
    assert_eq!(
        (pulls.len(), pulls[0]["state"].as_str()),
        (1, Some("closed"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_pull_request_is_given_back_though_its_branch_is_gone() {
    let bed = Bed::new("merged").await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.pull(&intent).await;
    bed.repository.merge_pull_request(1).await.unwrap();
    assert_eq!(bed.repository.branches().await.unwrap(), ["main"]);

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(
        (pull.state, requests, pull.adopted),
        (PullRequestState::Merged, 1, true)
    );
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_people_rewrote_makes_a_pull_request_no_less_ours() {
    let bed = Bed::new("rewritten").await;
    let intent = bed.intent("u-1", &REVOKE);
    let (first, _) = bed.pull(&intent).await;
    let body = Some(json!({ "body": "Looks good" }));
    bed.repository
        .call(Method::PATCH, "/pulls/1", body)
        .await
        .unwrap();
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.url, requests), (first.url, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_from_a_fork_is_never_adopted() {
    let bed = Bed::new("forked").await;
    let intent = bed.intent("u-1", &REVOKE);
    let foreign = bed
        .repository
        .add_pull_request_from_fork(&intent.branch, &intent.commit_message, &intent.body)
        .await
        .unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!((requests, pull.adopted), (3, false));
    assert!(!pull.url.ends_with(&format!("/{foreign}")), "{}", pull.url);
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_work_on_our_branch_is_left_alone() {
    let bed = Bed::new("taken").await;
    bed.repository.add_collaborator("write").await.unwrap();
    let intent = bed.intent("u-1", &REVOKE);
    let theirs = bed
        .repository
        .add_file_as_person("main", &intent.branch, "mine.txt", "mine\n");
    theirs.await.unwrap();
    let tip = bed.repository.commit(&intent.branch).await.unwrap();

    let error = bed.failure(&intent).await;

    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Conflicting, "BranchTaken")
    );
    assert!(error.detail.contains(&intent.branch), "{}", error.detail);
    assert_eq!(bed.repository.commit(&intent.branch).await.unwrap(), tip);
    assert!(bed.repository.pull_requests().await.unwrap().is_empty());

    // Nor does a pull request make somebody's branch ours.
    let pull = json!({ "base": "main", "head": intent.branch, "title": "Mine" });
    bed.repository
        .call(Method::POST, "/pulls", Some(pull))
        .await
        .unwrap();
    assert_eq!(bed.failure(&intent).await.reason, "BranchTaken");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_commit_ends_in_exactly_one_pull_request() {
    let bed = Bed::new("crash").await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.commit_only(&intent, "bindings: []\n").await;
    let tip = bed.repository.commit(&intent.branch).await.unwrap();

    let (pull, _) = bed.pull(&intent).await;
    let (again, requests) = bed.pull(&intent).await;

    assert_eq!(pull.commit.as_ref(), Some(&tip.id));
    assert_eq!((again.url, requests), (pull.url, 1));
    assert_eq!(bed.repository.commit(&intent.branch).await.unwrap(), tip);
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_the_server_has_forgotten_and_git_has_not_is_adopted() {
    let bed = Bed::new("forgotten").await;
    let intent = bed.intent("u-1", &REVOKE);
    // What is left when a server is interrupted between git's push and its own note of it.
    bed.commit_only(&intent, "bindings: []\n").await;
    let tip = bed.repository.commit(&intent.branch).await.unwrap();
    bed.forge.forget_branch(&intent.branch).unwrap();

    let (pull, _) = bed.pull(&intent).await;

    assert_eq!(pull.commit.as_ref(), Some(&tip.id));
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_commit_with_other_contents_is_not_passed_off_as_the_change() {
    let bed = Bed::new("other-contents").await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.commit_only(&intent, "bindings: [somebody]\n").await;
    let error = bed.failure(&intent).await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Conflicting, "BranchTaken")
    );
    assert!(error.detail.contains(BINDINGS), "{}", error.detail);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_an_empty_commit_was_taken_back_leaves_nothing_behind() {
    let bed = Bed::new("crash-empty").await;
    let intent = bed.intent("u-1", &[(BINDINGS, Some("bindings: [ops-admin]\n"))]);
    bed.commit_only(&intent, "bindings: [ops-admin]\n").await;
    let (made, _) = bed.make(&intent).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(bed.repository.branches().await.unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_a_commit_is_used_only_while_it_is_the_base() {
    let bed = Bed::new("bare-branch").await;
    for (uid, files) in [
        ("u-1", &REVOKE[..]),
        ("u-2", &[(OBSOLETE, None), ("gone.yaml", None)][..]),
    ] {
        let intent = bed.intent(uid, files);
        bed.repository
            .add_branch(&intent.branch, "main")
            .await
            .unwrap();
        bed.pull(&intent).await;
    }
    let nothing = bed.intent("u-3", &[("gone.yaml", None)]);
    bed.repository
        .add_branch(&nothing.branch, "main")
        .await
        .unwrap();
    assert!(matches!(
        bed.make(&nothing).await.0,
        Ok(Made::NoActionNeeded { .. })
    ));

    let late = bed.intent("u-4", &REVOKE);
    bed.repository
        .add_branch(&late.branch, "main")
        .await
        .unwrap();
    bed.repository
        .add_file("main", "later.txt", "later\n")
        .await
        .unwrap();
    assert_eq!(bed.failure(&late).await.reason, "BranchTaken");
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_the_same_time_make_one_pull_request() {
    let bed = Bed::new("together").await;
    let intent = bed.intent("u-1", &REVOKE);
    let attempts = (0..4).map(|_| bed.make(&intent));
    let mut urls: Vec<String> = Vec::new();
    for (made, _) in futures::future::join_all(attempts).await {
        match made {
            Ok(Made::PullRequest(pull)) => urls.push(pull.url),
            Err(ForgeError::Failed(error)) => {
                assert_eq!(error.kind, ErrorType::Transient, "{error:?}");
            }
            other => panic!("{other:?}"),
        }
    }
    urls.push(bed.pull(&intent).await.0.url);
    urls.dedup();
    assert_eq!(urls.len(), 1, "{urls:?}");
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}
