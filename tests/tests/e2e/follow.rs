//! After the pull request is open: its end shows in the status of the object, long after the response has succeeded.

use anyhow::Result;
use nabu_tests::objects::{forge_config, webhook_secret};
use nabu_tests::process::free_port;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::gitlab::TestGitlab;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bed::{Bed, ForgeBed, LIMIT, WEBHOOK_SECRET, condition, eu, small_change};

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
async fn a_webhook_that_came_while_the_forge_could_not_be_asked_is_not_forgotten() -> Result<()> {
    let (address, repository) = (format!("127.0.0.1:{}", free_port()?), "ninsun-labs/gitops");
    let gitlab = TestGitlab::start().await?;
    let project = gitlab.create_project(repository)?;
    let secret = webhook_secret("bot", gitlab.token(), "loopback-only-3");
    let documents = [
        (
            "config.yaml",
            forge_config("gitlab-token", &gitlab.url(), repository),
        ),
        ("secret.yaml", secret),
    ];
    let arguments = ["--follow-seconds", "0", "--listen-webhooks", &address];
    let bed = Bed::start_with(&documents, &arguments).await?;
    let (name, uid) = bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    project.merge(1)?;
    gitlab.fail(Fault::new(Effect::Answer(Reply::html(503))));
    let hint = json!({
        "object_kind": "merge_request", "project": { "path_with_namespace": repository },
        "object_attributes": {
            "source_branch": format!("nabu/prod-eu/{uid}"), "source_project_id": 1, "target_project_id": 1,
        },
    });
    let sent = reqwest::Client::new()
        .post(format!("http://{address}/webhooks/gitlab"))
        .header("x-gitlab-event", "Merge Request Hook")
        .header("x-gitlab-token", "loopback-only-3")
        .body(hint.to_string())
        .send();
    assert!(sent.await?.status().is_success());
    pull_request_becomes(&name, "True", "Merged").await?;
    let in_vain = "nabu_hub_forge_requests_total{provider=\"gitlab-token\",operation=\"observe\",result=\"unavailable\"}";
    let count = bed.hub.metric(in_vain).await?;
    assert!((count - 1.0).abs() < f64::EPSILON, "{count}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_of_the_forge_makes_the_hub_look_at_once_and_a_forged_one_does_nothing()
-> Result<()> {
    let address = format!("127.0.0.1:{}", free_port()?);
    let arguments = ["--follow-seconds", "0", "--listen-webhooks", &address];
    let stage = ForgeBed::start_with("", &arguments).await?;
    let url = format!("http://{address}/webhooks/forgejo");
    let hook = |secret: &str| {
        json!({
            "type": "gitea", "active": true, "events": ["pull_request"],
            "config": { "url": url, "content_type": "json", "secret": secret },
        })
    };
    for secret in [WEBHOOK_SECRET, "guessed"] {
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
