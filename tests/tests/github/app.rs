//! The App: one token for everybody, replaced in time, and a key that changes without a restart.

use nabu_hub::forge::ForgeError;
use nabu_hub::response::ErrorType;
use nabu_tests::intents::set_secret;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use serde_json::json;

use crate::bed::{Bed, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_users_share_one_token() {
    let bed = std::sync::Arc::new(Bed::of_app().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let bed = std::sync::Arc::clone(&bed);
        tasks.spawn(async move {
            let path = format!("responses/{number}.yaml");
            let files = [(path.as_str(), Some("kind: X\n"))];
            bed.pull(&bed.intent(&format!("u-{number}"), &files)).await;
        });
    }
    tasks.join_all().await;
    assert_eq!(bed.github.minted_tokens(), 1);
    assert_eq!(bed.repository.pulls().unwrap().len(), 100);
    let author = &bed.repository.pulls().unwrap()[0].author;
    assert!(author.contains("[bot]"), "{author}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_rejected_is_replaced_once() {
    let bed = Bed::of_app().await;
    bed.pull(&bed.intent("u-1", &REVOKE)).await;
    bed.github.expire_installation_tokens();
    let (_, requests) = bed.pull(&bed.intent("u-2", &REVOKE)).await;
    assert_eq!(requests, 4, "refused, minted, and the usual two");
    assert_eq!(bed.github.minted_tokens(), 2);

    let rejected = Reply::json(401, &json!({ "message": "Bad credentials" }));
    bed.github.fault(
        Fault::new(Effect::Answer(rejected))
            .path("graphql")
            .always(),
    );
    let error = bed.failure(&bed.intent("u-3", &REVOKE)).await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Unauthorized, "CredentialRejected")
    );
    assert_eq!(
        bed.github.minted_tokens(),
        3,
        "tried once more, and no more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn long_tokens_are_taken_and_client_ids_too() {
    let bed = Bed::of_app().await;
    bed.github.set_long_tokens(true);
    let app = bed.github.app();
    set_secret(
        &bed.hub.credentials,
        &[
            ("client-id", &app.client_id),
            ("installation-id", &app.installation_id.to_string()),
            ("private-key.pem", &app.private_key),
        ],
    );
    bed.pull(&bed.intent("u-1", &REVOKE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_in_the_secret_is_used_at_once() {
    let bed = Bed::of_app().await;
    bed.pull(&bed.intent("u-1", &REVOKE)).await;
    let (id, installation) = (
        bed.github.app().id.to_string(),
        bed.github.app().installation_id.to_string(),
    );
    let secret = |key: &'static str, pem: &str| {
        set_secret(
            &bed.hub.credentials,
            &[
                ("app-id", &id),
                ("installation-id", &installation),
                (key, pem),
            ],
        );
    };
    let other = nabu_tests::test_forge::github::App::generate(1, "other", 2).unwrap();
    for (key, pem, reason) in [
        (
            "private-key.pem",
            other.private_key.as_str(),
            "CredentialRejected",
        ),
        ("private-key.pem", "no key", "CredentialRejected"),
        ("token", "x", "CredentialMissing"),
    ] {
        secret(key, pem);
        let error = bed.failure(&bed.intent("u-2", &REVOKE)).await;
        assert_eq!(error.reason, reason, "{}", error.detail);
        assert!(!error.detail.contains("BEGIN"), "{}", error.detail);
    }
    secret("private-key.pem", &bed.github.app().private_key);
    bed.pull(&bed.intent("u-2", &REVOKE)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_installation_parks_and_goes_on_by_itself() {
    let bed = Bed::of_app().await;
    let suspended = Reply::json(
        403,
        &json!({ "message": "This installation has been suspended" }),
    );
    bed.github
        .fault(Fault::new(Effect::Answer(suspended)).path("access_tokens"));
    let (made, _) = bed.make(&bed.intent("u-1", &REVOKE)).await;
    let Err(ForgeError::Parked(error)) = made else {
        panic!("not parked: {made:?}");
    };
    assert_eq!(error.reason, "InstallationSuspended");
    bed.pull(&bed.intent("u-1", &REVOKE)).await;
}
