//! Adopting what exists of a change, and nothing that is somebody else's.

use nabu_hub::forge::{Made, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::github::File;

use crate::bed::{BINDINGS, Bed, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_a_commit_is_gone_on_with() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.repository.add_branch(&intent.branch, "main").unwrap();
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 2);
    let file = bed.file(&intent.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_was_left_behind_by_its_base_follows_it() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.repository.add_branch(&intent.branch, "main").unwrap();
    let new = File::plain("new.yaml", "kind: New\n");
    bed.repository.add_files("main", &[new]).unwrap();
    let (pull, _) = bed.pull(&intent).await;
    assert!(!pull.adopted);
    assert!(bed.file(&intent.branch, "new.yaml").is_some());
    assert_eq!(bed.repository.pulls().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_commit_without_a_pull_request_gets_one() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    let file = File::plain(BINDINGS, "bindings: []\n");
    bed.repository
        .add_commit(&intent.branch, &intent.commit_message, &[file])
        .unwrap();
    let commit = bed.repository.commit(&intent.branch).unwrap().oid;
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.commit, requests), (Some(commit), 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn our_commit_with_another_content_is_somebody_elses_work() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    let file = File::plain(BINDINGS, "bindings: [mallory]\n");
    bed.repository
        .add_commit(&intent.branch, &intent.commit_message, &[file])
        .unwrap();
    taken(&bed, "u-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_commit_on_our_branch_is_never_touched() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    let file = File::plain("work.yaml", "kind: Work\n");
    bed.repository
        .add_commit(&intent.branch, "My work", &[file])
        .unwrap();
    let before = bed.repository.commit(&intent.branch).unwrap().oid;
    taken(&bed, "u-1").await;
    assert_eq!(bed.repository.commit(&intent.branch).unwrap().oid, before);
    assert!(bed.repository.pulls().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_never_goes_to_the_base_branch_whatever_that_is() {
    let bed = Bed::new().await;
    bed.repository.add_branch("develop", "main").unwrap();
    bed.repository.set_default_branch("develop").unwrap();
    let before = bed.repository.commit("develop").unwrap().oid;
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.base_branch = None;
    intent.branch = "develop".to_owned();
    let (made, _) = nabu_tests::intents::make_for(&bed.hub.forges, "u-1", &intent).await;
    let error = nabu_tests::intents::failure(made);
    assert_eq!(error.reason, "BranchNotAllowed", "{}", error.detail);
    assert_eq!(bed.repository.commit("develop").unwrap().oid, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_of_a_name_that_others_may_use_is_never_taken_for_an_empty_one_of_ours() {
    let bed = Bed::new().await;
    bed.repository.add_branch("staging", "main").unwrap();
    let before = bed.repository.commit("staging").unwrap().oid;
    for behind in [false, true] {
        if behind {
            let new = File::plain("new.yaml", "kind: New\n");
            bed.repository.add_files("main", &[new]).unwrap();
        }
        let mut intent = bed.intent("u-1", &REVOKE);
        intent.branch = "staging".to_owned();
        let (made, _) = nabu_tests::intents::make_for(&bed.hub.forges, "u-1", &intent).await;
        let error = nabu_tests::intents::failure(made);
        assert_eq!(error.reason, "BranchTaken", "{}", error.detail);
        assert_eq!(bed.repository.commit("staging").unwrap().oid, before);
    }
}

async fn taken(bed: &Bed, uid: &str) {
    let error = bed.failure(&bed.intent(uid, &REVOKE)).await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Conflicting, "BranchTaken"),
        "{}",
        error.detail
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_commit_that_appears_meanwhile_gets_no_pull_request() {
    use nabu_tests::test_forge::faults::{Effect, Fault};

    let bed = std::sync::Arc::new(Bed::new().await);
    let intent = bed.intent("u-1", &REVOKE);
    bed.github
        .fault(Fault::new(Effect::HoldBefore).operation("createRef"));
    let attempt = tokio::spawn({
        let (bed, intent) = (std::sync::Arc::clone(&bed), intent.clone());
        async move { bed.failure(&intent).await }
    });
    bed.github.faults().reached().await;
    let file = File::plain("work.yaml", "kind: Work\n");
    bed.repository
        .add_commit(&intent.branch, "My work", &[file])
        .unwrap();
    bed.github.faults().release();
    let error = attempt.await.unwrap();
    assert_eq!(error.reason, "BranchTaken", "{}", error.detail);
    let pulls = bed.repository.pulls().unwrap();
    assert!(pulls.iter().all(|pull| pull.state == "closed"), "{pulls:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_of_our_branch_that_is_not_ours_is_left_alone() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    let file = File::plain("work.yaml", "kind: Work\n");
    bed.repository
        .add_commit(&intent.branch, "My work", &[file])
        .unwrap();
    bed.repository
        .add_pull(&intent.branch, "main", "Mine", "no marker")
        .unwrap();
    taken(&bed, "u-1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_from_a_fork_is_never_taken_for_ours() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.repository.set_public(true).unwrap();
    let fork = bed.github.fork(&bed.repository).await.unwrap();
    let file = File::plain(BINDINGS, "bindings: [mallory]\n");
    fork.add_commit(&intent.branch, &intent.commit_message, &[file])
        .unwrap();
    let head = format!(
        "{}:{}",
        fork.full_name().unwrap().split('/').next().unwrap(),
        intent.branch
    );
    bed.repository
        .add_pull(&head, "main", &intent.title, &intent.body)
        .unwrap();

    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.adopted, requests), (false, 2));
    let pulls = bed.repository.pulls().unwrap();
    assert_eq!(pulls.len(), 2);
    let file = bed.file(&intent.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_people_ended_is_given_back_as_it_is() {
    let bed = Bed::new().await;
    let closed = bed.intent("u-1", &REVOKE);
    bed.pull(&closed).await;
    bed.repository.close(1).unwrap();
    bed.repository.delete_branch(&closed.branch).unwrap();
    let (pull, requests) = bed.pull(&closed).await;
    assert_eq!((pull.state, requests), (PullRequestState::Closed, 1));

    let merged = bed.intent("u-2", &REVOKE);
    bed.pull(&merged).await;
    bed.repository.merge(2).unwrap();
    bed.repository.delete_branch(&merged.branch).unwrap();
    let (pull, requests) = bed.pull(&merged).await;
    assert_eq!((pull.state, requests), (PullRequestState::Merged, 1));
    assert_eq!(bed.repository.pulls().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_the_same_time_make_one_pull_request() {
    let bed = std::sync::Arc::new(Bed::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let bed = std::sync::Arc::clone(&bed);
        tasks.spawn(async move {
            let intent = bed.intent("u-1", &REVOKE);
            bed.make(&intent).await.0
        });
    }
    let mut urls = std::collections::BTreeSet::new();
    for made in tasks.join_all().await {
        match made.unwrap() {
            Made::PullRequest(pull) => urls.insert(pull.url),
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(urls.len(), 1);
    assert_eq!(bed.repository.pulls().unwrap().len(), 1);
    assert_eq!(
        bed.repository
            .log(&bed.intent("u-1", &REVOKE).branch)
            .unwrap()
            .len(),
        bed.repository.log("main").unwrap().len() + 1
    );
}
