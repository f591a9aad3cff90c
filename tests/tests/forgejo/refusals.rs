//! What the server refuses, and what the hub says of it.

use nabu_hub::change::Intent;
use nabu_hub::credentials::Credentials;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{ForgeError, Made};
use nabu_hub::response::ErrorType;
use nabu_tests::forge::TestForge;
use prometheus_client::registry::Registry;

use crate::bed::{Bed, REVOKE, intent, make, set_token, target};

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_name_that_is_too_long_and_a_person_who_may_only_read_are_named() {
    let bed = Bed::new("refusals").await;
    let expect = async |intent: &Intent, kind, reason: &str| {
        let error = bed.failure(intent).await;
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (kind, reason),
            "{}",
            error.detail
        );
        assert!(
            error.detail.contains("ninsun-labs/") || error.detail.contains("nabu/"),
            "{}",
            error.detail
        );
    };
    let mut long = bed.intent("u-1", &REVOKE);
    long.branch = format!("nabu/prod-eu-{}/u-1", "x".repeat(100));
    expect(&long, ErrorType::Permanent, "Rejected").await;

    bed.repository.add_collaborator("read").await.unwrap();
    set_token(&bed.hub.credentials, bed.forge.person_token());
    let intent = bed.intent("u-2", &REVOKE);
    expect(&intent, ErrorType::Unauthorized, "PermissionDenied").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_server_forbids_is_named_with_a_remedy() {
    let bed = Bed::new("forbidden").await;
    let expect = async |intent: &Intent, kind, reason: &str, words: &str| {
        let error = bed.failure(intent).await;
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (kind, reason), "{}", error.detail);
        assert!(error.detail.contains(words), "{}", error.detail);
    };
    let scopes = "read:repository";
    let reader = bed.forge.scoped_token("reader", scopes).unwrap();
    set_token(&bed.hub.credentials, &reader);
    let intent = bed.intent("u-1", &REVOKE);
    let denied = ErrorType::Unauthorized;
    expect(&intent, denied, "PermissionDenied", "write:repository").await;
    let stranger = bed.forge.scoped_token("stranger", "read:user").unwrap();
    set_token(&bed.hub.credentials, &stranger);
    expect(&intent, denied, "PermissionDenied", "required scope").await;
    let writer = bed
        .forge
        .scoped_token("writer", "write:repository")
        .unwrap();
    set_token(&bed.hub.credentials, &writer);
    bed.pull(&intent).await;

    // To git, a branch is a folder for those that begin with its name.
    for (uid, other) in [
        ("u-2", "nabu/prod-eu/u-2/more"),
        ("u-3/more", "nabu/prod-eu/u-3"),
    ] {
        bed.repository.add_branch(other, "main").await.unwrap();
        let mut in_the_way = bed.intent(&uid.replace('/', "-"), &REVOKE);
        in_the_way.branch = format!("nabu/prod-eu/{uid}");
        expect(
            &in_the_way,
            ErrorType::Conflicting,
            "BranchTaken",
            "branchPrefix",
        )
        .await;
    }

    bed.repository.protect("nabu/**").await.unwrap();
    let protected = bed.intent("u-4", &REVOKE);
    expect(
        &protected,
        ErrorType::Permanent,
        "RulesetForbids",
        "branchPrefix",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_no_failure_and_ends_with_the_server() {
    let mut forge = TestForge::start().await.unwrap();
    let repository = forge.create_repository("outage").await.unwrap();
    let credentials = Credentials::default();
    set_token(&credentials, forge.token());
    let forges = Forges::new(
        credentials,
        ForgeMetrics::register(&mut Registry::default()),
    );
    let intent = intent(target(&forge.url(), &repository.full_name), "u-1", &REVOKE);

    forge.stop().unwrap();
    let (made, _) = make(&forges, &intent).await;
    assert!(
        matches!(made, Err(ForgeError::Unavailable { .. })),
        "{made:?}"
    );

    forge.restart().await.unwrap();
    let (made, requests) = make(&forges, &intent).await;
    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    assert_eq!(requests, 3);
}
