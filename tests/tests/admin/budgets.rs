//! A forge's budget is kept before it is used up: whoever has the credential waits, and nobody else.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::{
    ExplainResponseRequest, ExplainResponseResponse, Forge, ListForgesRequest,
};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{config, token_secret, write_file};
use nabu_tests::test_forge::faults::{Effect, Fault, Limit};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::test_forge::gitlab::TestGitlab;
use nabu_tests::wait::eventually;

use crate::bed::{Agent, hub};

/// What must come comes within this time, on a busy machine too.
const LIMIT: Duration = Duration::from_mins(2);

/// Nobody but the test has requests counted.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];

struct Stage {
    hub: TestHub,
    github: TestGithub,
    gitlab: TestGitlab,
}

/// A hub with the route `github` and the route `gitlab`.
async fn stage(arguments: &[&str]) -> Result<Stage> {
    let (github, gitlab) = (TestGithub::start().await?, TestGitlab::start().await?);
    github.create_repository("o/r").await?;
    gitlab.create_project("o/r")?;
    let route = |kind: &str, url: &str| {
        format!(
            "    - match: {{ actionRef: {kind} }}\n      provider: {{ kind: {kind}-token, baseURL: \"{url}\", repository: o/r, \
            credentialsRef: {{ name: {kind} }}, baseBranch: main }}\n"
        )
    };
    let documents = [
        config(&format!(
            "  routes:\n{}{}",
            route("github", github.url()),
            route("gitlab", &gitlab.url())
        )),
        token_secret("github", github.token()),
        token_secret("gitlab", gitlab.token()),
    ];
    let hub = hub(documents.join("\n---\n"), arguments).await?;
    Ok(Stage {
        hub,
        github,
        gitlab,
    })
}

async fn explain(hub: &TestHub, name: &str) -> Result<ExplainResponseResponse> {
    let request = ExplainResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: name.to_owned(),
    };
    let mut client = ResponseServiceClient::new(hub.admin_channel().await?);
    Ok(client.explain_response(request).await?.into_inner())
}

async fn succeeded(hub: &TestHub, name: &str) -> Result<ExplainResponseResponse> {
    eventually("it succeeds", LIMIT, || async {
        let story = explain(hub, name).await.ok()?;
        (story.response.as_ref()?.phase == "Succeeded").then_some(story)
    })
    .await
}

/// Waits until a response is held up by its forge's budget; gives until when.
async fn held(hub: &TestHub, name: &str) -> Result<Timestamp> {
    let until = eventually("it waits for the budget", LIMIT, || async {
        let story = explain(hub, name).await.ok()?;
        let waiting = story
            .waiting
            .as_ref()
            .filter(|_| !limits(&story).is_empty())?;
        (waiting.reason == "ForgeLimit" && waiting.detail.contains("requests are left"))
            .then_some(waiting.until)?
    })
    .await?;
    Ok(Timestamp::new(until.seconds, until.nanos)?)
}

/// The limits that a story tells of.
fn limits(story: &ExplainResponseResponse) -> Vec<&str> {
    let steps = story.steps.iter().filter(|step| step.kind == "Limited");
    steps.map(|step| step.cause.as_str()).collect()
}

async fn forge(hub: &TestHub, provider: &str) -> Result<Forge> {
    let mut client = OperationsServiceClient::new(hub.admin_channel().await?);
    let forges = client.list_forges(ListForgesRequest {}).await?.into_inner();
    let mut forges = forges.forges.into_iter();
    forges
        .find(|one| one.provider == provider)
        .context("no such forge")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_runs_out_is_spared_over_a_restart_and_holds_up_nobody_else() -> Result<()> {
    for (short, other) in [("github", "gitlab"), ("gitlab", "github")] {
        let mut stage = stage(&UNFOLLOWED).await?;
        let reset = Timestamp::now() + Duration::from_mins(30);
        if short == "github" {
            stage.github.leave_budget(40, reset);
        } else {
            stage.gitlab.leave_budget(40, reset);
        }
        let agent = Agent::connect(&stage.hub, "prod-eu").await?;
        agent
            .observe(1, write_file(short, "a.yaml", "a: 1\n"))
            .await?;
        succeeded(&stage.hub, "er-1").await?;
        agent
            .observe(2, write_file(short, "b.yaml", "b: 1\n"))
            .await?;
        let until = held(&stage.hub, "er-2").await?;
        assert!(until >= reset - Duration::from_secs(2), "{until} {reset}");
        agent
            .observe(3, write_file(other, "c.yaml", "c: 1\n"))
            .await?;
        succeeded(&stage.hub, "er-3").await?;
        let shown = forge(&stage.hub, &format!("{short}-token")).await?;
        assert_eq!((&*shown.state, shown.waiting), ("Limited", 1), "{shown:?}");

        // After a restart the forge has said nothing yet.
        stage.hub.kill()?;
        stage.hub.start_again().await?;
        held(&stage.hub, "er-2").await?;
        assert_eq!(
            forge(&stage.hub, &format!("{short}-token")).await?.limits,
            []
        );
        let agent = Agent::connect(&stage.hub, "prod-eu").await?;
        agent
            .observe(4, write_file(other, "d.yaml", "d: 1\n"))
            .await?;
        succeeded(&stage.hub, "er-4").await?;
        let story = explain(&stage.hub, "er-2").await?;
        assert!(
            story.steps.iter().all(|step| step.kind != "Attempt"),
            "{story:?}"
        );
        // Whoever asks later sees what held it up, once, though it stood in line anew after the restart.
        let limits = limits(&story);
        assert_eq!(limits.len(), 1, "{story:?}");
        assert!(limits[0].contains("requests are left"), "{limits:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_that_was_spared_is_used_again_when_it_begins_anew() -> Result<()> {
    let stage = stage(&[]).await?;
    let reset = Timestamp::now() + Duration::from_secs(20);
    stage.github.leave_budget(40, reset);
    let agent = Agent::connect(&stage.hub, "prod-eu").await?;
    agent
        .observe(1, write_file("github", "a.yaml", "a: 1\n"))
        .await?;
    succeeded(&stage.hub, "er-1").await?;
    agent
        .observe(2, write_file("github", "b.yaml", "b: 1\n"))
        .await?;
    let story = succeeded(&stage.hub, "er-2").await?;
    let first = story.steps.iter().find(|step| step.kind == "Attempt");
    let begun = first.and_then(|step| step.attempt.as_ref()?.started_at);
    let begun = begun.context("no attempt")?.seconds;
    assert!(begun >= reset.as_second(), "{begun} {reset}");
    let kinds: Vec<_> = story.steps.iter().map(|step| step.kind.as_str()).collect();
    let observed = story.steps[0].at.context("no time")?.seconds;
    if observed + 5 < reset.as_second() {
        assert_eq!(kinds[..2], ["Observed", "Limited"], "{kinds:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_s_own_budget_is_a_limit_that_a_story_tells_of() -> Result<()> {
    let stage = stage(&["--github-per-minute", "1"]).await?;
    let agent = Agent::connect(&stage.hub, "prod-eu").await?;
    agent
        .observe(1, write_file("github", "a.yaml", "a: 1\n"))
        .await?;
    succeeded(&stage.hub, "er-1").await?;
    agent
        .observe(2, write_file("github", "b.yaml", "b: 1\n"))
        .await?;
    let story = eventually("it waits for the budget", LIMIT, || async {
        let story = explain(&stage.hub, "er-2").await.ok()?;
        let waiting = story.waiting.as_ref()?;
        (waiting.reason == "Budget" && !limits(&story).is_empty()).then_some(story)
    })
    .await?;
    assert!(
        limits(&story)[0].contains("--github-per-minute"),
        "{story:?}"
    );
    // What waited to its end is told as well.
    stage
        .hub
        .nabuctl(&["response", "cancel", "prod-eu", "er-2"])?;
    let story = eventually("it is cancelled", LIMIT, || async {
        let story = explain(&stage.hub, "er-2").await.ok()?;
        (story.response.as_ref()?.phase == "Cancelled").then_some(story)
    })
    .await?;
    assert_eq!(limits(&story).len(), 1, "{story:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_reserve_a_budget_is_used_to_its_end() -> Result<()> {
    let stage = stage(&["--rate-limit-reserve", "0", "--follow-seconds", "0"]).await?;
    let reset = Timestamp::now() + Duration::from_mins(30);
    stage.gitlab.leave_budget(40, reset);
    let agent = Agent::connect(&stage.hub, "prod-eu").await?;
    for number in [1, 2] {
        let file = write_file("gitlab", &format!("{number}.yaml"), "a: 1\n");
        agent.observe(number, file).await?;
        succeeded(&stage.hub, &format!("er-{number}")).await?;
    }
    stage.gitlab.leave_budget(1, reset);
    agent
        .observe(3, write_file("gitlab", "3.yaml", "a: 1\n"))
        .await?;
    succeeded(&stage.hub, "er-3").await?;
    agent
        .observe(4, write_file("gitlab", "4.yaml", "a: 1\n"))
        .await?;
    held(&stage.hub, "er-4").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_comes_after_a_response_stands_in_line_is_told_as_well() -> Result<()> {
    /// Attempts that run in one repository at a time.
    const WIDTH: u32 = 4;
    let stage = stage(&[]).await?;
    let limit = Limit::Secondary {
        status: 403,
        retry_after: Some(Duration::from_secs(3)),
    };
    for effect in [Effect::HoldBefore, Effect::Limit(limit)] {
        stage.github.fault(Fault::new(effect).at(1));
    }
    let agent = Agent::connect(&stage.hub, "prod-eu").await?;
    let file = |number: u32| write_file("github", &format!("{number}.yaml"), "a: 1\n");
    let mut name = String::new();
    for number in 1..=WIDTH + 1 {
        agent.observe(number, file(number)).await?;
        let reason = if number > WIDTH { "Line" } else { "Attempt" };
        name = format!("er-{number}");
        let story = eventually(reason, LIMIT, || async {
            let story = explain(&stage.hub, &name).await.ok()?;
            (story.waiting.as_ref()?.reason == reason).then_some(story)
        })
        .await?;
        assert_eq!(limits(&story), [""; 0], "{story:?}");
    }
    stage.github.faults().release();
    let story = succeeded(&stage.hub, &name).await?;
    let limits = limits(&story);
    assert_eq!(limits.len(), 1, "{story:?}");
    assert!(limits[0].contains("everybody with this credential waits"));
    let kinds = story.steps.iter().map(|step| step.kind.as_str());
    let kinds: Vec<_> = kinds.filter(|kind| *kind != "SecurityEvent").collect();
    assert_eq!(kinds[..4], ["Observed", "Limited", "Routed", "Intent"]);
    Ok(())
}
