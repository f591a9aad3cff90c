//! Failures on the way: what they mean, and that the next attempt finds whatever was done.

use nabu_hub::forge::{ForgeError, Made};
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::github::{File, Protection, Rule};
use serde_json::json;

use crate::bed::{BINDINGS, Bed, REVOKE};

/// After any failure of any request, the next attempt ends with one pull request.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_the_next_attempt_ends_with_one_pull_request() {
    for number in 1..=3 {
        for effect in [
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::Truncate(20),
            Effect::AnswerAfter(Reply::html(200)),
            Effect::AnswerAfter(Reply::html(500)),
            Effect::AnswerAfter(Reply::html(502)),
            Effect::OnlyFirst(1),
            Effect::OnlyFirst(2),
        ] {
            let mut bed = Bed::new().await;
            let mut intent = bed.intent("u-1", &REVOKE);
            intent.labels = vec!["security".to_owned()];
            bed.github.fault(Fault::new(effect.clone()).at(number));
            let (first, _) = bed.make(&intent).await;
            if let Err(error) = &first {
                let passes = match error {
                    ForgeError::Failed(error) => error.kind == ErrorType::Transient,
                    _ => true,
                };
                assert!(passes, "{effect:?} at {number}: {error}");
            }
            bed.github.faults().clear();
            bed.forget();
            bed.pull(&intent).await;
            let pulls = bed.repository.pulls().unwrap();
            assert_eq!(pulls.len(), 1, "{effect:?} at {number}");
            assert_eq!(pulls[0].labels, ["security"], "{effect:?} at {number}");
            let file = bed.file(&intent.branch, BINDINGS);
            assert_eq!(file.as_deref(), Some("bindings: []\n"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_lag_behind_make_no_second_pull_request() {
    let mut bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.github.freeze();
    bed.pull(&intent).await;
    bed.forget();
    bed.github
        .fault(Fault::new(Effect::Frozen).times(2).operation("repository"));
    let (pull, _) = bed.pull(&intent).await;
    assert!(pull.adopted);
    bed.github.faults().clear();
    bed.github
        .fault(Fault::new(Effect::Frozen).always().operation("repository"));
    bed.forget();
    let error = bed.failure(&intent).await;
    assert_eq!(error.kind, ErrorType::Transient, "{}", error.detail);
    let pulls = bed.repository.pulls().unwrap();
    assert_eq!(pulls.len(), 1, "{pulls:?}");
    assert_eq!(pulls[0].state, "open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ruleset_that_forbids_our_branches_is_named() {
    let bed = Bed::new().await;
    bed.repository
        .protect(Rule {
            branches: "nabu/*".to_owned(),
            protection: Protection::Ruleset,
            message: "Cannot create ref due to creations being restricted.".to_owned(),
        })
        .unwrap();
    let error = bed.failure(&bed.intent("u-1", &REVOKE)).await;
    let said = (error.kind, error.reason.as_str());
    assert_eq!(said, (ErrorType::Permanent, "RulesetForbids"));
    assert_eq!(bed.repository.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_repository_parks_and_goes_on_by_itself() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    bed.repository.archive(true).unwrap();
    let (made, requests) = bed.make(&intent).await;
    let Err(ForgeError::Parked(error)) = made else {
        panic!("not parked: {made:?}");
    };
    assert_eq!((error.reason.as_str(), requests), ("RepositoryArchived", 1));
    bed.repository.archive(false).unwrap();
    bed.pull(&intent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_fails_as_a_whole_is_transient() {
    let bed = Bed::new().await;
    let body = json!({ "data": null, "errors": [{ "message": "Something went wrong while executing your query." }] });
    bed.github
        .fault(Fault::new(Effect::Answer(Reply::json(200, &body))));
    let error = bed.failure(&bed.intent("u-1", &REVOKE)).await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Transient, "ForgeError")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_repository_is_found_by_its_old_name() {
    let bed = Bed::new().await;
    bed.repository.rename("renamed").unwrap();
    let (made, requests) = bed.make(&bed.intent("u-1", &REVOKE)).await;
    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    assert_eq!(requests, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_github_sends_back_in_a_document_is_not_shown() {
    let bed = Bed::new().await;
    let message = format!("no access for {}", bed.github.token());
    let body = json!({
        "data": { "r0": null },
        "errors": [{ "type": "FORBIDDEN", "path": ["r0"], "message": message }],
    });
    bed.github
        .fault(Fault::new(Effect::Answer(Reply::json(200, &body))));
    let error = bed.failure(&bed.intent("u-1", &REVOKE)).await;
    assert_eq!(error.reason, "PermissionDenied");
    assert!(
        error.detail.contains("no access for ***"),
        "{}",
        error.detail
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_elses_commit_that_appears_meanwhile_gets_no_pull_request() {
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
