//! What exists already: ours is taken up where it was left, everybody else's stays as it is.

use nabu_hub::forge::{ForgeError, Made, PullRequestState};
use nabu_hub::response::ErrorType;

use crate::bed::{BINDINGS, Bed, DENY, NEW, OBSOLETE};

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_merge_request_is_never_opened_again() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.pull(&intent).await;
    bed.project.close(1).unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(
        (pull.state, requests, pull.adopted),
        (PullRequestState::Closed, 1, true)
    );
    let all = bed.project.merge_requests().unwrap();
    assert_eq!((all.len(), all[0]["state"].as_str()), (1, Some("closed")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_one_is_given_back_though_its_branch_is_gone() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &DENY);
    intent.options.delete_branch_after_merge = true;
    bed.pull(&intent).await;
    bed.project.merge(1).unwrap();
    assert_eq!(bed.project.branches().unwrap(), ["main"]);

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(
        (pull.state, requests, pull.adopted),
        (PullRequestState::Merged, 1, true)
    );
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_people_opened_again_goes_before_the_closed_one() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.pull(&intent).await;
    bed.project.close(1).unwrap();
    bed.project
        .add_merge_request(&intent.branch, "Again", &intent.body)
        .unwrap();
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.state, requests), (PullRequestState::Open, 1));
    assert!(pull.url.ends_with("/2"), "{}", pull.url);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_that_people_rewrote_makes_it_no_less_ours() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (first, _) = bed.pull(&intent).await;
    bed.project.describe(1, "Looks good").unwrap();
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.url, requests), (first.url, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_request_from_a_fork_is_never_adopted() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let foreign = bed
        .project
        .add_merge_request_from_fork(&intent.branch, &intent.commit_message, &intent.body)
        .unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!((requests, pull.adopted), (3, false));
    assert!(!pull.url.ends_with(&format!("/{foreign}")), "{}", pull.url);
    assert_eq!(bed.project.merge_requests().unwrap().len(), 2);
    assert_eq!(bed.pull(&intent).await.1, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_work_on_our_branch_is_left_alone() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.project
        .add_file_as_person("main", &intent.branch, "mine.txt", "mine\n")
        .unwrap();
    let tip = bed.project.commit(&intent.branch).unwrap();

    let detail = bed
        .expect(&intent, ErrorType::Conflicting, "BranchTaken")
        .await;

    assert!(detail.contains(&intent.branch), "{detail}");
    assert_eq!(bed.project.commit(&intent.branch).unwrap(), tip);
    assert!(bed.project.merge_requests().unwrap().is_empty());

    // Nor does a merge request make somebody's branch ours.
    bed.project
        .add_merge_request(&intent.branch, "Mine", "")
        .unwrap();
    bed.expect(&intent, ErrorType::Conflicting, "BranchTaken")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_somebody_else_on_top_of_ours_is_not_passed_off_as_the_change() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.commit_only(&intent, NEW, "deny: all\n");
    bed.project
        .add_file_as_person(&intent.branch, &intent.branch, "mine.txt", "mine\n")
        .unwrap();
    bed.expect(&intent, ErrorType::Conflicting, "BranchTaken")
        .await;
    assert!(bed.project.merge_requests().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_after_the_commit_ends_in_exactly_one_merge_request() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.commit_only(&intent, NEW, "deny: all\n");
    let tip = bed.project.commit(&intent.branch).unwrap();

    let (pull, _) = bed.pull(&intent).await;
    let (again, requests) = bed.pull(&intent).await;

    assert_eq!(pull.commit.as_ref(), Some(&tip.oid));
    assert_eq!((again.url, requests), (pull.url, 1));
    assert_eq!(bed.project.commit(&intent.branch).unwrap(), tip);
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn our_commit_with_other_contents_is_not_passed_off_as_the_change() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.commit_only(&intent, NEW, "deny: some\n");
    let detail = bed
        .expect(&intent, ErrorType::Conflicting, "BranchTaken")
        .await;
    assert!(detail.contains(NEW), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_before_an_empty_commit_was_taken_back_leaves_nothing_behind() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &[(BINDINGS, Some("bindings: [ops-admin]\n"))]);
    bed.commit_only(&intent, BINDINGS, "bindings: [ops-admin]\n");
    let (made, _) = bed.make(&intent).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_without_a_commit_is_used_only_while_it_is_the_base() {
    let bed = Bed::new().await;
    for (uid, files) in [
        ("u-1", &DENY[..]),
        ("u-2", &[(OBSOLETE, None), ("gone.yaml", None)][..]),
    ] {
        let intent = bed.intent(uid, files);
        bed.project.add_branch(&intent.branch, "main").unwrap();
        bed.pull(&intent).await;
    }
    let nothing = bed.intent("u-3", &[("gone.yaml", None)]);
    bed.project.add_branch(&nothing.branch, "main").unwrap();
    let (made, _) = bed.make(&nothing).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");

    let late = bed.intent("u-4", &DENY);
    bed.project.add_branch(&late.branch, "main").unwrap();
    bed.project
        .add_files("main", &[("later.txt", "later\n")])
        .unwrap();
    bed.expect(&late, ErrorType::Conflicting, "BranchTaken")
        .await;
    assert_eq!(bed.project.merge_requests().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_goes_before_its_merge_request_is_open_is_made_anew() {
    use nabu_tests::test_forge::faults::{Effect, Fault};

    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.fail(
        Fault::new(Effect::HoldBefore)
            .method("POST")
            .path("merge_requests"),
    );
    let ((made, _), ()) = tokio::join!(bed.make(&intent), async {
        bed.gitlab.faults().reached().await;
        bed.project.delete_branch(&intent.branch).unwrap();
        bed.gitlab.faults().release();
    });
    let error = crate::bed::failure(made);
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Transient, "BranchGone")
    );
    assert_eq!(bed.pull(&intent).await.1, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_at_the_same_time_make_one_merge_request() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
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
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}
