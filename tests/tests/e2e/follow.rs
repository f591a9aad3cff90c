//! After the pull request is open: its end shows in the status of the object, long after the response has succeeded.

use anyhow::Result;
use nabu_tests::process::free_port;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bed::{ForgeBed, LIMIT, condition, eu, forge, small_change};

const OFTEN: [&str; 2] = ["--follow-seconds", "1"];

/// Waits until the condition `PullRequest` has this reason; gives the status.
async fn pull_request_becomes(name: &str, status: &str, reason: &str) -> Result<Value> {
    eventually(&format!("{name} becomes {reason}"), LIMIT, || async {
        let shown = eu().await.status(name).await.ok()?;
        let condition = condition(&shown, "PullRequest", status)?;
        (condition["reason"] == reason).then_some(shown)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_told_with_its_commit_and_the_branch_goes_if_the_route_says_so() -> Result<()> {
    let stage = ForgeBed::start_with("      deleteBranchAfterMerge: true\n", &OFTEN).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    let before = eu().await.finished(&name, LIMIT).await?;
    stage.repository.merge_pull_request(1).await?;
    let status = pull_request_becomes(&name, "True", "Merged").await?;
    assert_eq!(
        (&status["phase"], &status["completedAt"]),
        (&before["phase"], &before["completedAt"]),
        "a terminal phase never changes"
    );
    let merged = stage.repository.pull_request(1).await?;
    let commit = merged["merge_commit_sha"].as_str().unwrap();
    let message = condition(&status, "PullRequest", "True").unwrap()["message"].to_string();
    assert!(message.contains(commit), "{message}");
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(!stage.repository.branches().await?.contains(&branch));
    let series = "nabu_hub_pull_requests_ended_total{provider=\"forgejo-token\",state=\"merged\"}";
    let counted = stage.bed.hub.metric(series).await?;
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_that_was_closed_while_the_hub_was_away_is_told_afterwards() -> Result<()> {
    let mut stage = ForgeBed::start_with("", &OFTEN).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    stage.bed.hub.stop()?;
    stage.repository.close_pull_request(1).await?;
    stage.bed.hub.start_again().await?;
    let status = pull_request_becomes(&name, "False", "Closed").await?;
    assert_eq!(status["phase"], "Succeeded");
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(stage.repository.branches().await?.contains(&branch));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_the_forge_makes_the_hub_look_at_once_and_a_forged_one_does_nothing()
-> Result<()> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["--follow-seconds", "0", "--listen-webhooks", &address];
    let stage = ForgeBed::start_with("", &arguments).await?;
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{ name: bot, namespace: ugallu-system }}\n\
        stringData: {{ token: {}, webhook-secret: loopback-only-2 }}\n",
        forge().await.token()
    );
    stage.bed.hub.write_config("secret.yaml", &secret)?;
    let url = format!("http://{address}/webhooks/forgejo");
    let hook = |secret: &str| {
        json!({
            "type": "gitea", "active": true, "events": ["pull_request"],
            "config": { "url": url, "content_type": "json", "secret": secret },
        })
    };
    for secret in ["loopback-only-2", "guessed"] {
        let body = Some(hook(secret));
        stage.repository.call(Method::POST, "/hooks", body).await?;
    }
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    stage.repository.merge_pull_request(1).await?;
    pull_request_becomes(&name, "True", "Merged").await?;
    let refused = "nabu_hub_webhooks_total{forge=\"forgejo\",result=\"unsigned\"}";
    eventually("the forged ones are refused", LIMIT, || async {
        let count = stage.bed.hub.metric(refused).await.ok()?;
        (count >= 2.0).then_some(())
    })
    .await
}
