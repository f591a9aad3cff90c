//! A response that waits for its next attempt, and an operator who does not want to wait.

use anyhow::{Context as _, Result, ensure};
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::{ExplainResponseRequest, ExplainResponseResponse, RetryResponseRequest};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{forge_config, token_secret, write_file};
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::wait::eventually;
use serde_json::json;

use crate::bed::{Agent, LIMIT, hub};

async fn explain(hub: &TestHub, name: &str) -> Result<ExplainResponseResponse> {
    let request = ExplainResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: name.to_owned(),
    };
    let mut client = ResponseServiceClient::new(hub.admin_channel().await?);
    Ok(client.explain_response(request).await?.into_inner())
}

/// Its object asks for an hour between attempts, so that nothing happens by itself.
async fn waits_for_an_hour(hub: &TestHub, name: &str) -> Result<ExplainResponseResponse> {
    eventually("it waits for its next attempt", LIMIT, || async {
        let story = explain(hub, name).await.ok()?;
        (story.waiting.as_ref()?.reason == "Backoff").then_some(story)
    })
    .await
}

fn steps<'a>(story: &'a ExplainResponseResponse, kinds: &[&str]) -> Vec<&'a str> {
    let steps = story.steps.iter().map(|step| step.kind.as_str());
    steps.filter(|kind| kinds.contains(kind)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_retried_makes_its_next_attempt_now_and_the_story_says_who_wanted_it()
-> Result<()> {
    let github = TestGithub::start().await?;
    let repository = github.create_repository("ninsun-labs/gitops").await?;
    let broken = Reply::json(500, &json!({"message": "Server Error"}));
    github.fault(Fault::new(Effect::Answer(broken)).times(2));
    let config = forge_config("github-token", github.url(), "ninsun-labs/gitops");
    let secret = token_secret("bot", github.token());
    let hub = hub(format!("{config}\n---\n{secret}"), &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let file = write_file("revoke-clusterrolebinding", "a.yaml", "a: 1\n");
    let uid = agent.observe(1, file).await?;
    let story = waits_for_an_hour(&hub, "er-1").await?;
    ensure!(steps(&story, &["Attempt", "Retried"]) == ["Attempt"]);

    // Whether it can be done is said without doing it.
    let mut client = ResponseServiceClient::new(hub.admin_channel().await?);
    let retry = |validate_only| RetryResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: uid.clone(),
        validate_only,
    };
    let rehearsed = client.retry_response(retry(true)).await?.into_inner();
    ensure!(rehearsed.message.contains("made now"), "{rehearsed:?}");
    let story = explain(&hub, "er-1").await?;
    ensure!(steps(&story, &["Attempt", "Retried"]) == ["Attempt"]);

    // Through the API: the forge fails once more.
    client.retry_response(retry(false)).await?;
    let wanted = ["Attempt", "Retried", "Attempt"];
    let story = eventually("another attempt fails", LIMIT, || async {
        let story = waits_for_an_hour(&hub, "er-1").await.ok()?;
        (steps(&story, &["Attempt", "Retried"]) == wanted).then_some(story)
    })
    .await?;
    let mut told = story.steps.iter().filter(|step| step.kind == "Retried");
    let told = told.next().context("it is not told")?;
    ensure!(told.actor == "admin/tester", "{told:?}");

    // Through nabuctl: it works now.
    let said = hub.nabuctl(&["response", "retry", "prod-eu", "er-1"])?;
    ensure!(said.contains("made now"), "{said}");
    let ended = |status: &nabu_proto::agent_v1::Status| status.completed_at.is_some();
    let status = agent.status(&uid, ended).await?;
    ensure!(status.attempts == 3, "{status:?}");
    ensure!(repository.pulls()?.len() == 1);
    let story = explain(&hub, "er-1").await?;
    let wanted = [&wanted[..], &["Retried", "Attempt"]].concat();
    ensure!(
        steps(&story, &["Attempt", "Retried"]) == wanted,
        "{story:?}"
    );
    let audited = hub.nabuctl(&["audit", "list", "--action", "RetryResponse"])?;
    // The rehearsal was a call as well.
    ensure!(audited.matches("admin/tester").count() == 3, "{audited}");
    Ok(())
}
