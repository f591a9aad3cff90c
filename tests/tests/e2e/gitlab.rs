//! The whole circle with GitLab at its end: the example's route, and `kill -9` at every step.

use anyhow::Result;
use nabu_tests::objects::{forge_config, token_secret};
use nabu_tests::test_forge::faults::{Effect, Fault};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};
use serde_json::Value;

use crate::bed::{Bed, LIMIT, eu, small_change};

struct Stage {
    bed: Bed,
    gitlab: TestGitlab,
    project: TestProject,
}

impl Stage {
    async fn start() -> Result<Self> {
        let gitlab = TestGitlab::start().await?;
        let name = "ninsun-labs/fleet/gitops";
        let project = gitlab.create_project(name)?;
        let route =
            forge_config("gitlab-token", &gitlab.url(), name) + "      labels: [security]\n";
        let secret = token_secret("bot", gitlab.token());
        let documents = [("config.yaml", route), ("secret.yaml", secret)];
        Ok(Self {
            bed: Bed::start(&documents).await?,
            gitlab,
            project,
        })
    }

    /// Fails unless the status shows the only merge request, which is whole.
    fn assert_the_one_merge_request(&self, status: &Value) -> Result<()> {
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        let requests = self.project.merge_requests()?;
        assert_eq!(requests.len(), 1, "{requests:?}");
        assert_eq!(status["providerRef"], requests[0]["web_url"], "{status:#}");
        let branch = requests[0]["source_branch"].as_str().unwrap_or_default();
        let file = self.project.file(branch, "rbac/evil-binding.yaml")?;
        assert_eq!(file.as_deref(), Some("revoked: true\n"));
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_response_becomes_a_merge_request_on_gitlab() -> Result<()> {
    let stage = Stage::start().await?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_merge_request(&status)?;
    let answer = stage.bed.explain("prod-eu", &name)?;
    assert_eq!(answer["attemptLog"][0]["forgeRequests"], 3, "{answer:#}");
    Ok(())
}

/// Kills the hub while the answer to a request is outstanding.
async fn kill_at(number: u32) -> Result<()> {
    for effect in [Effect::HoldBefore, Effect::HoldAfter] {
        let mut stage = Stage::start().await?;
        stage.gitlab.fail(Fault::new(effect).at(number));
        let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
        stage.gitlab.faults().reached().await;
        stage.bed.hub.kill()?;
        stage.gitlab.faults().release();
        stage.bed.hub.start_again().await?;
        let status = eu().await.finished(&name, LIMIT).await?;
        stage.assert_the_one_merge_request(&status)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_lookup_on_gitlab() -> Result<()> {
    kill_at(1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_commit_on_gitlab() -> Result<()> {
    kill_at(2).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_opening_on_gitlab() -> Result<()> {
    kill_at(3).await
}
