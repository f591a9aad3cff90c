//! Errors of the forge: what is retried, how often, and what ends a response.

use anyhow::Result;
use nabu_tests::fault_proxy::Fault;
use nabu_tests::objects::{forgejo_config, token_secret};
use serde_json::json;

use crate::bed::{Bed, ForgeBed, LIMIT, eu, forge, small_change};

#[tokio::test(flavor = "multi_thread")]
async fn a_permanent_error_ends_a_response_after_one_attempt() -> Result<()> {
    let documents = [
        (
            "config.yaml",
            forgejo_config(&forge().await.url(), "ninsun-labs/not-there"),
        ),
        ("secret.yaml", token_secret("bot", forge().await.token())),
    ];
    let bed = Bed::start(&documents).await?;
    let (name, _) = bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    assert_eq!(status["phase"], "Failed");
    assert_eq!(status["attempts"], 1);
    assert_eq!(status["error"]["type"], "Permanent");
    assert_eq!(status["error"]["reason"], "RepositoryNotFound");
    assert!(
        status["error"]["detail"]
            .as_str()
            .unwrap()
            .contains("not-there")
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn transient_errors_are_tried_again_as_often_as_the_object_asks() -> Result<()> {
    let stage = ForgeBed::start().await?;
    stage.proxy.add(Fault::AnswerAll(500));
    let retry = json!({"maxAttempts": 2, "backoffStrategy": "Fixed", "initialDelay": "1s"});
    let (name, _) = stage
        .bed
        .ask_with(eu().await, small_change(), retry)
        .await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["attempts"], 2);
    assert_eq!(status["error"]["type"], "Transient");
    let answer = stage.bed.explain("prod-eu", &name)?;
    let log = answer["attemptLog"].as_array().unwrap();
    let time = |index: usize, field: &str| {
        log[index][field]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap()
    };
    let waited = time(1, "startedAt").duration_since(time(0, "endedAt"));
    assert!(waited.as_secs() >= 1, "the delay is the object's: {waited}");
    assert!(stage.repository.pull_requests().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transient_error_at_each_request_still_gives_one_pull_request() -> Result<()> {
    let stage = ForgeBed::start().await?;
    for number in [1, 3, 6] {
        stage.proxy.add(Fault::Answer(number, 500));
    }
    let retry = json!({"maxAttempts": 9, "backoffStrategy": "None"});
    let (name, _) = stage
        .bed
        .ask_with(eu().await, small_change(), retry)
        .await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    assert!(status["attempts"].as_i64() > Some(1), "{status:#}");
    assert!(
        status["error"].is_null(),
        "an error that passed is forgotten"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forge_that_is_down_costs_no_attempt() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.proxy.stop();
    let (name, _) = stage
        .bed
        .ask_with(eu().await, small_change(), json!({"maxAttempts": 1}))
        .await?;
    let waiting = eu()
        .await
        .status_where(&name, "waits", LIMIT, |status| {
            status["error"]["reason"] == "ForgeUnavailable" && status["phase"] == "Pending"
        })
        .await?;
    assert!(!waiting["nextAttemptAt"].is_null());
    // Several waits in a row are still none too many.
    stage
        .bed
        .explained("prod-eu", &name, "has waited three times", |answer| {
            answer["attemptLog"]
                .as_array()
                .is_some_and(|log| log.len() >= 3)
        })
        .await?;
    stage.proxy.start_again().await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    assert_eq!(status["attempts"], 1);
    Ok(())
}
