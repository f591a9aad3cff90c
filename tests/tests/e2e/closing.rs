//! A pull request goes with its EventResponse where the route says so, whoever dies on the way.

use anyhow::Result;
use nabu_tests::fault_proxy::Fault;
use nabu_tests::objects::config;
use reqwest::Method;
use serde_json::Value;

use crate::bed::{Bed, ForgeBed, LIMIT, condition, eu, small_change};

const CLOSES: &str = "      closeOnCancel: true\n      deleteBranchAfterClose: true\n";
/// Nobody but the test looks at pull requests.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];

/// What the audit log says of an action.
fn happened(answer: &Value, action: &str) -> Option<String> {
    let mut history = answer["history"].as_array()?.iter();
    let found = history.find(|entry| entry["action"] == action)?;
    Some(found["detail"].to_string())
}

/// Waits until the one pull request is closed; fails unless it says why, once, and its branch is gone.
async fn closed_once(stage: &ForgeBed, name: &str, uid: &str) -> Result<()> {
    stage
        .bed
        .explained("prod-eu", name, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    let pulls = stage.repository.pull_requests().await?;
    let states: Vec<_> = pulls.iter().map(|pull| &pull["state"]).collect();
    assert_eq!(states, ["closed"]);
    let path = "/issues/1/comments";
    let comments = stage.repository.call(Method::GET, path, None).await?;
    let comments = comments.as_array().cloned().unwrap_or_default();
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let text = comments[0]["body"].as_str().unwrap_or_default();
    assert!(
        text.contains("the EventResponse was deleted") && text.contains(name),
        "{text}"
    );
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(!stage.repository.branches().await?.contains(&branch));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_event_response_takes_its_pull_request_along() -> Result<()> {
    let stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.delete_event_response(&name).await?;
    closed_once(&stage, &name, &uid).await?;
    let answer = stage.bed.explain("prod-eu", &name)?;
    assert_eq!(
        answer["phase"], "Succeeded",
        "a terminal phase never changes"
    );
    let said = happened(&answer, "PullRequestClosed").unwrap_or_default();
    assert!(said.contains("the EventResponse was deleted"), "{said}");
    let series = "nabu_hub_closings_total{provider=\"forgejo-token\",outcome=\"closed\"}";
    let counted = stage.bed.hub.metric(series).await?;
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_while_the_agent_was_away_is_found_out_afterwards() -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    let (other, _) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.finished(&other, LIMIT).await?;
    stage.bed.eu.kill()?;
    eu().await.delete_event_response(&name).await?;
    stage.bed.eu.start_again().await?;
    stage
        .bed
        .explained("prod-eu", &name, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    let branches = stage.repository.branches().await?;
    assert!(!branches.contains(&format!("nabu/prod-eu/{uid}")));
    let kept = eu().await.status(&other).await?;
    let kept = condition(&kept, "PullRequest", "True").map(|condition| &condition["reason"]);
    assert_eq!(kept, Some(&Value::from("Open")), "it is still there");
    Ok(())
}

/// Kills the hub while the forge's n-th answer is outstanding; the first three are those of the change.
async fn kill_at(fault: Fault) -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(fault);
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.delete_event_response(&name).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    closed_once(&stage, &name, &uid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_looks_at_the_pull_request_to_be_closed() -> Result<()> {
    kill_at(Fault::HoldBefore(4)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_says_why() -> Result<()> {
    kill_at(Fault::HoldBefore(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_it_said_why() -> Result<()> {
    kill_at(Fault::HoldAfter(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_pull_request_is_closed() -> Result<()> {
    kill_at(Fault::HoldBefore(6)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_pull_request_was_closed() -> Result<()> {
    kill_at(Fault::HoldAfter(6)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_branch_is_removed() -> Result<()> {
    kill_at(Fault::HoldBefore(8)).await
}

/// The attempt was interrupted with the pull request open and nobody told; meanwhile the EventResponse went.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_attempt_has_left_goes_with_its_event_response() -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(Fault::HoldAfter(3));
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    eu().await.delete_event_response(&name).await?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    closed_once(&stage, &name, &uid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_route_that_says_so_closes() -> Result<()> {
    let routes = config(
        "  routes:\n    - match: { actionRef: closes }\n      closeOnCancel: true\n      \
        provider: { kind: noop, repository: o/r }\n    - provider: { kind: noop, repository: o/r }\n",
    );
    let bed = Bed::start(&[("config.yaml", routes)]).await?;
    let mut names = Vec::new();
    for action in ["keeps", "closes"] {
        let change = nabu_tests::objects::write_file(action, "a.yaml", "x: 1\n");
        let (name, _) = bed.ask(eu().await, change).await?;
        eu().await.finished(&name, LIMIT).await?;
        names.push(name);
    }
    for name in &names {
        eu().await.delete_event_response(name).await?;
    }
    bed.explained("prod-eu", &names[1], "is closed", |answer| {
        happened(answer, "PullRequestClosed").is_some()
    })
    .await?;
    let kept = bed.explain("prod-eu", &names[0])?;
    assert_eq!(happened(&kept, "PullRequestClosed"), None);
    Ok(())
}
