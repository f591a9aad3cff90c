//! Responses explained, watched, retried and cancelled.

use anyhow::{Context as _, Result};
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::{
    CancelResponseRequest, ExplainResponseRequest, ExplainResponseResponse, ListResponsesRequest,
    ResponseFilter, RetryResponseRequest, WatchResponsesRequest,
};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{config, forge_config, noop_config, token_secret, write_file};
use nabu_tests::wait::eventually;
use tonic::Code;
use tonic::transport::Channel;

use crate::bed::{Agent, LIMIT, hub};

/// A route to a forge that nobody listens at: everything waits for it.
fn to_nowhere() -> Result<String> {
    let port = nabu_tests::process::free_port()?;
    let config = forge_config("forgejo-token", &format!("http://127.0.0.1:{port}"), "o/r");
    Ok(format!("{config}\n---\n{}", token_secret("bot", "t0ken")))
}

async fn client(hub: &TestHub) -> Result<ResponseServiceClient<Channel>> {
    Ok(ResponseServiceClient::new(hub.admin_channel().await?))
}

async fn explain(
    client: &mut ResponseServiceClient<Channel>,
    name: &str,
) -> Result<ExplainResponseResponse> {
    let request = ExplainResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: name.to_owned(),
    };
    Ok(client.explain_response(request).await?.into_inner())
}

fn kinds(story: &ExplainResponseResponse) -> Vec<&str> {
    story.steps.iter().map(|step| step.kind.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_succeeded_is_told_from_its_observation_to_its_acknowledgement()
-> Result<()> {
    let routes = "  routes:
    - match: { clusters: [prod-us] }
      provider: { kind: noop, repository: o/of-others }
    - provider: { kind: noop, repository: o/r }
";
    let hub = hub(config(routes), &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent
        .observe(1, write_file("x", "a.yaml", "a: 1\n"))
        .await?;
    let status = agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    agent.applied(&uid, status.revision).await?;
    let mut client = client(&hub).await?;
    let story = eventually("the acknowledgement is told", LIMIT, || {
        let mut client = client.clone();
        async move {
            let story = explain(&mut client, "er-1").await.ok()?;
            (kinds(&story).last() == Some(&"Acknowledged")).then_some(story)
        }
    })
    .await?;
    assert_eq!(
        kinds(&story),
        [
            "Observed",
            "Routed",
            "Intent",
            "Attempt",
            "Succeeded",
            "Acknowledged"
        ]
    );
    assert!(
        story
            .steps
            .iter()
            .all(|step| !step.cause.is_empty() && step.at.is_some())
    );
    let cause = &story.steps[1].cause;
    assert!(
        cause.contains("/0: clusters wants prod-us, and it is \"prod-eu\""),
        "{cause}"
    );
    assert!(story.waiting.is_none());
    let routing = story.routing.context("no routing")?;
    assert_eq!(routing.route, story.response.context("no response")?.route);
    let missing = explain(&mut client, "er-2").await.unwrap_err();
    assert!(
        missing
            .to_string()
            .contains("there is no response prod-eu/er-2"),
        "{missing}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_waits_says_for_what_and_is_retried_and_cancelled() -> Result<()> {
    let hub = hub(to_nowhere()?, &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent
        .observe(
            1,
            write_file("revoke-clusterrolebinding", "a.yaml", "a: 1\n"),
        )
        .await?;
    agent
        .status(&uid, |status| status.next_attempt_at.is_some())
        .await?;
    let mut client = client(&hub).await?;
    // An attempt may be under way just now.
    eventually("it says for what it waits", LIMIT, || {
        let (mut client, uid) = (client.clone(), uid.clone());
        async move {
            let waiting = explain(&mut client, &uid).await.ok()?.waiting?;
            ["Outage", "Attempt"]
                .contains(&&*waiting.reason)
                .then_some(())
        }
    })
    .await?;

    // Whether it can be done is said without doing it.
    let cancel = |validate_only| CancelResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: "er-1".to_owned(),
        reason: "not wanted".to_owned(),
        validate_only,
    };
    let rehearsed = client.cancel_response(cancel(true)).await?.into_inner();
    assert!(!rehearsed.message.is_empty());
    assert!(!kinds(&explain(&mut client, &uid).await?).contains(&"CancelRequested"));

    client.cancel_response(cancel(false)).await?;
    let status = agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    let outcome = status.outcome.context("no outcome")?;
    assert_eq!(outcome.message, "cancelled by admin/tester: not wanted");
    let story = explain(&mut client, &uid).await?;
    let wish = story
        .steps
        .iter()
        .find(|step| step.kind == "CancelRequested");
    assert_eq!(wish.context("not told")?.actor, "admin/tester");

    let retry = RetryResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: uid,
        validate_only: false,
    };
    let refused = client.retry_response(retry).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("new EventResponse"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_change_something() -> Result<()> {
    let hub = hub(to_nowhere()?, &["--admin-role", "viewer:*"]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent
        .observe(
            1,
            write_file("revoke-clusterrolebinding", "a.yaml", "a: 1\n"),
        )
        .await?;
    agent
        .status(&uid, |status| status.next_attempt_at.is_some())
        .await?;
    let mut client = client(&hub).await?;
    explain(&mut client, &uid).await?;
    let request = RetryResponseRequest {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: uid,
        validate_only: true,
    };
    let refused = client.retry_response(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(
        refused.message().contains("needs the role operator"),
        "{refused}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_goes_on_where_a_list_or_an_earlier_watch_ended_even_over_a_restart() -> Result<()>
{
    let mut hub = hub(noop_config("o/r"), &[]).await?;
    let list = AdminServiceClient::new(hub.admin_channel().await?)
        .list_responses(ListResponsesRequest::default())
        .await?
        .into_inner();
    assert!(list.responses.is_empty());
    let watch = |token: &str| WatchResponsesRequest {
        resume_token: token.to_owned(),
        filter: Some(ResponseFilter {
            phases: vec!["Succeeded".to_owned()],
            ..ResponseFilter::default()
        }),
    };
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    agent
        .observe(1, write_file("x", "a.yaml", "a: 1\n"))
        .await?;
    let mut changes = client(&hub)
        .await?
        .watch_responses(watch(&list.resume_token))
        .await?
        .into_inner();
    let first = changes.message().await?.context("the watch ended")?;
    assert_eq!(first.response.context("no response")?.name, "er-1");
    drop(changes);

    let uid = agent
        .observe(2, write_file("x", "b.yaml", "b: 1\n"))
        .await?;
    agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    assert!(hub.stop()?.success());
    hub.start_again().await?;
    let mut changes = client(&hub)
        .await?
        .watch_responses(watch(&first.resume_token))
        .await?
        .into_inner();
    let second = changes.message().await?.context("the watch ended")?;
    assert_eq!(second.response.context("no response")?.name, "er-2");
    // The hub's end ends the watch, with the remedy.
    let ended = async {
        loop {
            if let Err(status) = changes.message().await {
                return status;
            }
        }
    };
    let stopping = tokio::task::spawn_blocking(move || hub.stop());
    let status = tokio::time::timeout(LIMIT, ended).await?;
    assert!(stopping.await??.success());
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    Ok(())
}
