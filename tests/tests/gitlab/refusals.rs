//! What GitLab refuses, and what the hub says of it.

use std::collections::HashMap;

use nabu_hub::forge::ForgeError;
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::gitlab::{BOT, Role, TokenState};

use serde_json::json;

use crate::bed::{BINDINGS, Bed, DENY, set_token};

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_needs_no_restart_and_no_token_is_ever_shown() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);

    bed.credentials.replace(HashMap::new());
    let error = bed.failure(&intent).await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Unauthorized, "CredentialMissing")
    );
    assert!(
        error.detail.contains("ugallu-system/forge-token"),
        "{}",
        error.detail
    );

    let unknown = "glpat-0123456789abcdef";
    set_token(&bed.credentials, unknown);
    bed.expect(&intent, ErrorType::Unauthorized, "CredentialRejected")
        .await;
    let error = bed.failure(&intent).await;
    assert!(!format!("{error:?} {:?}", bed.forges).contains(unknown));
    set_token(&bed.credentials, "a\nb");
    assert_eq!(bed.failure(&intent).await.reason, "CredentialRejected");

    set_token(&bed.credentials, bed.gitlab.token());
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
async fn what_is_missing_is_named() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);

    let mut elsewhere = intent.clone();
    elsewhere.target.repository = "ninsun-labs/nowhere".to_owned();
    bed.expect(&elsewhere, ErrorType::Permanent, "RepositoryNotFound")
        .await;
    elsewhere.base_branch = None;
    bed.expect(&elsewhere, ErrorType::Permanent, "RepositoryNotFound")
        .await;

    for files in [
        &DENY[..],
        &[("gone.yaml", None)],
        &[(BINDINGS, Some("x"))],
        &[],
    ] {
        let mut baseless = bed.intent("u-2", files);
        baseless.base_branch = Some("release".to_owned());
        let detail = bed
            .expect(&baseless, ErrorType::Permanent, "BaseBranchNotFound")
            .await;
        assert!(detail.contains("\"main\""), "{detail}");
    }

    let empty = bed
        .gitlab
        .create_empty_project("ninsun-labs/empty")
        .unwrap();
    let mut first = intent.clone();
    first.target.repository = "ninsun-labs/empty".to_owned();
    bed.expect(&first, ErrorType::Permanent, "RepositoryEmpty")
        .await;
    assert!(empty.branches().unwrap().is_empty());
    first.base_branch = None;
    bed.expect(&first, ErrorType::Permanent, "RepositoryEmpty")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_written_is_named() {
    let bed = Bed::new().await;
    let path = format!("{BINDINGS}/x");
    let through_a_file = bed.intent("u-1", &[(&path, Some("x"))]);
    bed.expect(&through_a_file, ErrorType::Permanent, "Rejected")
        .await;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_project_and_one_that_moved_are_named() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.project.archive().unwrap();
    bed.expect(&intent, ErrorType::Permanent, "RepositoryArchived")
        .await;

    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.project.rename("ninsun-labs/elsewhere").unwrap();
    bed.expect(&intent, ErrorType::Permanent, "Moved").await;
    let posts = bed.count("POST");
    assert_eq!(posts, 0, "the token goes nowhere else");
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

#[tokio::test(flavor = "multi_thread")]
async fn any_other_refusal_is_told_in_gitlabs_words() {
    use ErrorType::{Permanent, Transient, Unauthorized};

    let text = |text: &str| json!({ "message": text });
    for (number, status, body, kind, reason, words) in [
        (
            1,
            403,
            text("403 Forbidden"),
            Unauthorized,
            "PermissionDenied",
            "403 Forbidden",
        ),
        (
            1,
            404,
            text("404 Project Not Found"),
            Permanent,
            "RepositoryNotFound",
            "no access",
        ),
        (1, 429, text("x"), Transient, "RateLimited", ""),
        (
            2,
            400,
            text("Commit message does not follow the pattern"),
            Permanent,
            "Rejected",
            "the pattern",
        ),
        (
            2,
            400,
            text("Could not update refs/heads/x. Please refresh and try again."),
            Transient,
            "BranchBusy",
            "made",
        ),
        (
            2,
            405,
            text("Non GET methods are not allowed for moved projects"),
            Permanent,
            "Moved",
            "moved",
        ),
        (
            2,
            413,
            text("too large"),
            Permanent,
            "Rejected",
            "too large",
        ),
        (
            2,
            500,
            text("500 Internal Server Error"),
            Transient,
            "ForgeError",
            "500",
        ),
        (
            3,
            400,
            json!({ "message": { "title": ["can't be blank"] } }),
            Permanent,
            "Rejected",
            "title: can't be blank",
        ),
        (
            3,
            422,
            json!({ "message": ["no fork", "no branch"] }),
            Permanent,
            "Rejected",
            "no fork; no branch",
        ),
        (
            3,
            403,
            text("403 Forbidden"),
            Unauthorized,
            "PermissionDenied",
            "Developer",
        ),
        (
            3,
            409,
            json!({ "message": ["Another open merge request already exists"] }),
            ErrorType::Conflicting,
            "Conflict",
            "Another",
        ),
        (
            3,
            401,
            json!({ "error": "invalid_token", "error_description": "Token is expired." }),
            Unauthorized,
            "CredentialRejected",
            "expired",
        ),
    ] {
        let bed = Bed::new().await;
        let intent = bed.intent("u-1", &DENY);
        bed.gitlab
            .fail(Fault::new(Effect::Answer(Reply::json(status, &body))).at(number));
        let (made, _) = bed.make(&intent).await;
        match made {
            Err(ForgeError::Failed(error)) => {
                assert_eq!(
                    (error.kind, &*error.reason),
                    (kind, reason),
                    "{body}: {}",
                    error.detail
                );
                assert!(error.detail.contains(words), "{}", error.detail);
            }
            Err(ForgeError::RateLimited { retry_after, .. }) => {
                assert_eq!((reason, retry_after.as_secs()), ("RateLimited", 60));
            }
            other => panic!("{body}: {other:?}"),
        }
        bed.pull(&intent).await;
        assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
    }
}
