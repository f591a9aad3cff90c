//! What the hub has forgotten stays in its cluster as it is, and makes no second pull request.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use nabu_tests::objects::write_file;
use nabu_tests::wait::eventually;
use serde_json::json;

use crate::bed::{ACTION, ForgeBed, LIMIT, condition, eu, small_change};

/// Waits until the hub does not know a response any more.
async fn forgotten(stage: &ForgeBed, name: &str) -> Result<()> {
    let listed = ["response", "list", "-o", "name"];
    let full = format!("prod-eu/{name}");
    eventually(&format!("{name} is forgotten"), LIMIT, || async {
        let names = stage.bed.hub.nabuctl(&listed).ok()?;
        (!names.lines().any(|line| line == full)).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_event_response_outlives_its_record_and_is_adopted_if_its_status_is_wiped()
-> Result<()> {
    let arguments = ["--follow-seconds", "1", "--retain-finished", "3s"];
    let mut stage =
        ForgeBed::start_with("      deleteBranchAfterMerge: true\n", &arguments).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    let before = eu().await.finished(&name, LIMIT).await?;
    stage.repository.merge_pull_request(1).await?;
    eu().await
        .status_where(&name, "is merged", LIMIT, |status| {
            condition(status, "PullRequest", "True").is_some_and(|one| one["reason"] == "Merged")
        })
        .await?;
    // The newest change of all is kept in any case; this one's pull request stays open.
    let other = write_file(ACTION, "rbac/other.yaml", "revoked: true\n");
    let (newer, _) = stage.bed.ask(eu().await, other).await?;
    eu().await.finished(&newer, LIMIT).await?;
    forgotten(&stage, &name).await?;

    // An agent that begins anew does not tell of what is finished.
    stage.bed.eu.kill()?;
    stage.bed.eu.start_again().await?;
    let third = write_file(ACTION, "rbac/third.yaml", "revoked: true\n");
    let (newest, _) = stage.bed.ask(eu().await, third).await?;
    eu().await.finished(&newest, LIMIT).await?;
    forgotten(&stage, &name).await?;
    assert_eq!(stage.repository.pull_requests().await?.len(), 3);

    let wiped = Patch::Merge(json!({"status": null}));
    let api = eu().await.api("EventResponse");
    api.patch_status(&name, &PatchParams::default(), &wiped)
        .await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(status["providerRef"], before["providerRef"], "{status:#}");
    assert_eq!(stage.repository.pull_requests().await?.len(), 3);
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(!stage.repository.branches().await?.contains(&branch));
    Ok(())
}
