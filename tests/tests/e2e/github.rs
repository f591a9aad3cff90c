//! The whole circle with GitHub at its end: the example's route, and `kill -9` at every step.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use nabu_tests::objects::{forge_config, token_secret, write_file};
use nabu_tests::test_forge::faults::{Effect, Fault, Limit};
use nabu_tests::test_forge::github::{TestGithub, TestRepository};
use nabu_tests::wait::eventually;
use serde_json::Value;

use crate::bed::{ACTION, Bed, LIMIT, eu, small_change};
use crate::identity::sqlite;

struct Stage {
    bed: Bed,
    github: TestGithub,
    repository: TestRepository,
}

impl Stage {
    async fn start() -> Result<Self> {
        let github = TestGithub::start().await?;
        let name = "ninsun-labs/gitops";
        let repository = github.create_repository(name).await?;
        let route = forge_config("github-token", github.url(), name) + "      labels: [security]\n";
        let secret = token_secret("bot", github.token());
        let documents = [("config.yaml", route), ("secret.yaml", secret)];
        Ok(Self {
            bed: Bed::start(&documents).await?,
            github,
            repository,
        })
    }

    /// Fails unless the status shows the only pull request, which is whole.
    fn assert_the_one_pull_request(&self, status: &Value) -> Result<()> {
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        let pulls = self.repository.pulls()?;
        assert_eq!(pulls.len(), 1, "{pulls:?}");
        let url = status["providerRef"].as_str().unwrap_or_default();
        assert!(
            url.ends_with(&format!("/pull/{}", pulls[0].number)),
            "{url}"
        );
        assert_eq!(pulls[0].labels, ["security"]);
        let file = self
            .repository
            .read(&pulls[0].head, "rbac/evil-binding.yaml")?;
        assert_eq!(file.as_deref(), Some(&b"revoked: true\n"[..]));
        assert_eq!(self.github.violations(), Vec::<String>::new());
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_response_becomes_a_pull_request_on_github() -> Result<()> {
    let stage = Stage::start().await?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status)?;
    let answer = stage.bed.explain("prod-eu", &name)?;
    assert_eq!(answer["attemptLog"][0]["forgeRequests"], 3, "{answer:#}");
    Ok(())
}

/// Kills the hub while the answer to a request is outstanding, with what else happens to that request.
async fn kill_at(number: u32, effects: &[Effect]) -> Result<()> {
    let mut stage = Stage::start().await?;
    for effect in effects {
        stage.github.fault(Fault::new(effect.clone()).at(number));
    }
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.github.faults().reached().await;
    stage.bed.hub.kill()?;
    stage.github.faults().release();
    stage.bed.hub.start_again().await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_lookup() -> Result<()> {
    kill_at(1, &[Effect::HoldBefore]).await?;
    kill_at(1, &[Effect::HoldAfter]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_and_after_the_document_that_writes() -> Result<()> {
    kill_at(2, &[Effect::HoldBefore]).await?;
    kill_at(2, &[Effect::HoldAfter]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_inside_the_document_that_writes() -> Result<()> {
    kill_at(2, &[Effect::OnlyFirst(1), Effect::HoldAfter]).await?;
    kill_at(2, &[Effect::OnlyFirst(2), Effect::HoldAfter]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_document_for_labels() -> Result<()> {
    kill_at(3, &[Effect::HoldBefore]).await?;
    kill_at(3, &[Effect::HoldAfter]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_is_kept_to_over_a_restart_and_by_everybody_with_the_credential() -> Result<()> {
    let mut stage = Stage::start().await?;
    let limit = Limit::Secondary {
        status: 403,
        retry_after: Some(Duration::from_secs(15)),
    };
    stage.github.fault(Fault::new(Effect::Limit(limit)).at(1));
    let (first, _) = stage.bed.ask(eu().await, small_change()).await?;
    let limited = |status: &Value| status["error"]["reason"] == "RateLimited";
    let status = eu()
        .await
        .status_where(&first, "is limited", LIMIT, limited)
        .await?;
    assert_eq!(status["attempts"], 0, "{status:#}");
    let until: Timestamp = serde_json::from_value(status["nextAttemptAt"].clone())?;

    eventually("the limit is stored", LIMIT, || async {
        let stored = sqlite(&stage.bed.hub, "SELECT count(*) FROM gates").ok()?;
        (stored.trim().parse::<u32>().ok()? >= 1).then_some(())
    })
    .await?;
    stage.bed.hub.kill()?;
    stage.bed.hub.start_again().await?;
    let parameters = write_file(ACTION, "rbac/other.yaml", "revoked: true\n");
    let (second, _) = stage.bed.ask(eu().await, parameters).await?;
    for name in [&first, &second] {
        let status = eu().await.finished(name, LIMIT).await?;
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        let begun: Timestamp = serde_json::from_value(status["startedAt"].clone())?;
        // The second one had not begun when the limit was hit, so nothing but the stored limit held it up.
        let waited = name == &first || begun >= until - Duration::from_secs(2);
        assert!(waited, "{name} began at {begun}, before {until}");
    }
    assert_eq!(stage.repository.pulls()?.len(), 2);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archived_repository_parks_its_responses_and_is_seen() -> Result<()> {
    let stage = Stage::start().await?;
    stage.repository.archive(true)?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    let parked = |status: &Value| status["error"]["reason"] == "RepositoryArchived";
    let status = eu()
        .await
        .status_where(&name, "is parked", LIMIT, parked)
        .await?;
    assert_eq!(
        (&status["phase"], &status["attempts"]),
        (&"Pending".into(), &0.into()),
        "{status:#}"
    );
    let series = "ugallu_gitops_responder_attempts_total{outcome=\"parked\"}";
    assert!(stage.bed.hub.metric(series).await? >= 1.0);
    let answer = stage.bed.explain("prod-eu", &name)?;
    assert_eq!(
        answer["error"]["reason"], "RepositoryArchived",
        "{answer:#}"
    );

    stage.repository.archive(false)?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status)
}
