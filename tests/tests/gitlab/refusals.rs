//! What GitLab refuses, and what the hub says of it.

use nabu_hub::forge::ForgeError;
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::gitlab::{BOT, Role, TokenState};

use serde_json::{Value, json};

use crate::bed::{Bed, DENY};

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_a_token_is_told_and_no_token_is_in_an_address_or_a_body() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    for (state, word) in [
        (TokenState::Revoked, "revoked"),
        (TokenState::Expired, "expired"),
    ] {
        bed.gitlab.set_token_state(state);
        let detail = bed
            .expect(&intent, ErrorType::Unauthorized, "CredentialRejected")
            .await;
        assert!(
            detail.contains(&format!(
                "Token {}",
                if word == "revoked" {
                    "was revoked"
                } else {
                    "is expired"
                }
            )),
            "{detail}"
        );
    }
    bed.gitlab.set_token_state(TokenState::Active);
    bed.pull(&intent).await;
    for request in bed.gitlab.requests() {
        assert!(
            !request.path.contains(bed.gitlab.token()),
            "{}",
            request.path
        );
        assert!(!request.body.contains(bed.gitlab.token()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_with_too_little_scope_or_role_is_named() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let denied = async |words: &str| {
        let detail = bed
            .expect(&intent, ErrorType::Unauthorized, "PermissionDenied")
            .await;
        assert!(detail.contains(words), "{detail}");
    };

    bed.gitlab.set_token_scopes(&["read_user"]);
    denied("higher privileges").await;
    bed.gitlab.set_token_scopes(&["read_api"]);
    denied("lacks the scope api").await;
    bed.gitlab.set_token_scopes(&["api"]);
    bed.project.set_role(BOT, Some(Role::Reporter)).unwrap();
    denied("give it the role Developer").await;
    bed.project.set_role(BOT, Some(Role::Developer)).unwrap();
    bed.project
        .protect("nabu/*", Role::Maintainer, Role::Maintainer)
        .unwrap();
    denied("not allowed to push into this branch").await;
    assert_eq!(bed.project.branches().unwrap(), ["main"]);

    bed.project.set_role(BOT, None).unwrap();
    bed.expect(&intent, ErrorType::Permanent, "RepositoryNotFound")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_is_named() {
    let bed = Bed::new().await;
    let mut bad = bed.intent("u-2", &DENY);
    bad.branch = "nabu/prod-eu/a..b/u-2".to_owned();
    let detail = bed.expect(&bad, ErrorType::Permanent, "Rejected").await;
    assert!(detail.contains("Branch name is invalid"), "{detail}");
    bed.project.set_merge_requests_enabled(false).unwrap();
    bed.expect(
        &bed.intent("u-4", &DENY),
        ErrorType::Unauthorized,
        "PermissionDenied",
    )
    .await;
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_that_moved_is_named() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.project.rename("ninsun-labs/elsewhere").unwrap();
    bed.expect(&intent, ErrorType::Permanent, "Moved").await;
    let posts = bed.count("POST");
    assert_eq!(posts, 1, "the question; nothing is written");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_in_maintenance_is_waited_for() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.set_read_only(true);
    let (made, _) = bed.make(&intent).await;
    assert!(
        matches!(made, Err(ForgeError::Unavailable { .. })),
        "{made:?}"
    );
    bed.gitlab.set_read_only(false);
    assert_eq!(bed.pull(&intent).await.1, 3);
}

/// The n-th request is answered so; the attempt fails so, and with these words; the next one makes up for it.
async fn refused(number: u32, answer: (u16, Value), expected: (ErrorType, &str), words: &str) {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (status, body) = answer;
    let reply = Reply::json(status, &body);
    if number == 1 {
        // The question is refused, and then what is asked over the REST API.
        let again = Effect::Answer(reply.clone());
        bed.gitlab.fail(Fault::new(again).at(2));
    }
    bed.gitlab
        .fail(Fault::new(Effect::Answer(reply)).at(number));
    let error = bed.failure(&intent).await;
    let said = (error.kind, error.reason.as_str());
    assert_eq!(said, expected, "{body}: {}", error.detail);
    assert!(error.detail.contains(words), "{body}: {}", error.detail);
    bed.pull(&intent).await;
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}

fn text(status: u16, text: &str) -> (u16, Value) {
    (status, json!({ "message": text }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_lookup_or_commit_is_told_in_gitlabs_words() {
    let said = text(403, "403 Forbidden");
    let denied = (ErrorType::Unauthorized, "PermissionDenied");
    refused(1, said, denied, "403 Forbidden").await;
    let said = text(404, "404 Project Not Found");
    let missing = (ErrorType::Permanent, "RepositoryNotFound");
    refused(1, said, missing, "no access").await;

    let rejected = (ErrorType::Permanent, "Rejected");
    refused(2, text(413, "too large"), rejected, "too large").await;
    let said = text(
        400,
        "Could not update refs/heads/x. Please refresh and try again.",
    );
    refused(
        2,
        said,
        (ErrorType::Transient, "BranchBusy"),
        "at this moment",
    )
    .await;
    let said = text(500, "500 Internal Server Error");
    refused(2, said, (ErrorType::Transient, "ForgeError"), "500").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_words_of_a_refusal_tell_comes_with_a_remedy() {
    use ErrorType::{Conflicting, Permanent, Transient, Unauthorized};

    let rules = "push rules";
    for (status, words, kind, reason, remedy) in [
        (
            400,
            "Commit message does not follow the pattern '^A-'",
            Permanent,
            "RulesetForbids",
            rules,
        ),
        (
            400,
            "File name x.key was prohibited by the pattern key$.",
            Permanent,
            "RulesetForbids",
            rules,
        ),
        (
            400,
            "File x is larger than the allowed size of 1 MB",
            Permanent,
            "RulesetForbids",
            rules,
        ),
        (
            400,
            "PUSH BLOCKED: Secrets detected in code changes",
            Permanent,
            "RulesetForbids",
            "secret",
        ),
        (
            403,
            "You are not allowed to push code to protected branches on this project.",
            Permanent,
            "RulesetForbids",
            "branchPrefix",
        ),
        (
            400,
            "pre-receive hook declined",
            Permanent,
            "RulesetForbids",
            "administrators",
        ),
        (
            400,
            "The path 'rbac' is locked by Alice",
            Conflicting,
            "Conflict",
            "lock",
        ),
        (
            405,
            "Non GET methods are not allowed for moved projects",
            Permanent,
            "Moved",
            "correct repository",
        ),
        (
            403,
            "The request requires higher privileges than provided by the access token.",
            Unauthorized,
            "PermissionDenied",
            "scope api",
        ),
        (
            500,
            "cannot lock ref 'refs/heads/x': is at 1 but expected 0",
            Transient,
            "BranchBusy",
            "next attempt",
        ),
    ] {
        refused(2, text(status, words), (kind, reason), remedy).await;
        refused(3, text(status, words), (kind, reason), words).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repository_that_takes_nothing_now_is_waited_for() {
    let words = "The repository is temporarily read-only. Please try again later.";
    for number in [2, 3] {
        let bed = Bed::new().await;
        let reply = Reply::json(400, &json!({ "message": words }));
        bed.gitlab
            .fail(Fault::new(Effect::Answer(reply)).at(number));
        let (made, _) = bed.make(&bed.intent("u-1", &DENY)).await;
        let waits = matches!(made, Err(ForgeError::Unavailable { .. }));
        assert!(waits, "{made:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_git_cannot_keep_beside_another_is_named() {
    let bed = Bed::new().await;
    for (uid, other) in [
        ("u-1", "nabu/prod-eu/u-1/more"),
        ("u-2/more", "nabu/prod-eu/u-2"),
    ] {
        bed.project.add_branch(other, "main").unwrap();
        let mut intent = bed.intent(&uid.replace('/', "-"), &DENY);
        intent.branch = format!("nabu/prod-eu/{uid}");
        let detail = bed
            .expect(&intent, ErrorType::Conflicting, "BranchTaken")
            .await;
        assert!(
            detail.contains(&format!("beside the branch {other},")),
            "{detail}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_merge_request_is_told_in_gitlabs_words() {
    let rejected = (ErrorType::Permanent, "Rejected");
    let said = (400, json!({ "message": { "title": ["can't be blank"] } }));
    refused(3, said, rejected, "title: can't be blank").await;
    let said = (422, json!({ "message": ["no fork", "no branch"] }));
    refused(3, said, rejected, "no fork; no branch").await;
    let denied = (ErrorType::Unauthorized, "PermissionDenied");
    refused(3, text(403, "403 Forbidden"), denied, "Developer").await;
    let said = (
        409,
        json!({ "message": ["Another open merge request already exists"] }),
    );
    refused(3, said, (ErrorType::Conflicting, "Conflict"), "Another").await;
    let said = json!({ "error": "invalid_token", "error_description": "Token is expired." });
    let expired = (ErrorType::Unauthorized, "CredentialRejected");
    refused(3, (401, said), expired, "Token is expired").await;
}
