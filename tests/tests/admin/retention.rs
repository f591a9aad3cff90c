//! What the hub forgets, what it keeps, and what becomes of a forgotten EventResponse that is shown again.

use std::time::Duration;

use anyhow::{Context as _, Result};
use nabu_proto::admin_v1::Response;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::{ListAuditEventsRequest, ListResponsesRequest};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{config, forge_config, token_secret, write_file};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::wait::eventually;

use crate::bed::{Agent, hub};

/// What must come comes within this time, on a busy machine too.
const LIMIT: Duration = Duration::from_mins(2);
/// The action of the example's route.
const ACTION: &str = "revoke-clusterrolebinding";

async fn responses(hub: &TestHub) -> Result<Vec<Response>> {
    let mut client = AdminServiceClient::new(hub.admin_channel().await?);
    let answer = client.list_responses(ListResponsesRequest::default()).await;
    Ok(answer?.into_inner().responses)
}

/// Waits until the hub knows these responses, newest first, and no other.
async fn known(hub: &TestHub, wanted: &[&str]) -> Result<Vec<Response>> {
    eventually(&format!("{wanted:?} are left"), LIMIT, || async {
        let responses = responses(hub).await.ok()?;
        let names = responses.iter().map(|one| one.name.as_str());
        names.eq(wanted.iter().copied()).then_some(responses)
    })
    .await
}

/// The cluster stores this status, and the hub has noted that. What is observed afterwards is the newer change.
async fn applied(hub: &TestHub, agent: &Agent, uid: &str, revision: u64) -> Result<()> {
    agent.applied(uid, revision).await?;
    eventually("the hub has noted it", LIMIT, || async {
        let responses = responses(hub).await.ok()?;
        let mut responses = responses.iter();
        let noted = responses.all(|one| one.uid != uid || one.acknowledged_revision >= revision);
        noted.then_some(())
    })
    .await
}

/// A response that has ended; its status is stored by the cluster.
async fn acknowledged(hub: &TestHub, agent: &mut Agent, number: u32, path: &str) -> Result<()> {
    let file = write_file("here", path, "a: 1\n");
    let uid = agent.observe(number, file).await?;
    let ended = agent.status(&uid, |status| status.completed_at.is_some());
    let revision = ended.await?.revision;
    applied(hub, agent, &uid, revision).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_goes_and_what_is_not_acknowledged_or_not_ended_stays() -> Result<()> {
    let port = nabu_tests::process::free_port()?;
    let routes = config(&format!(
        "  routes:\n    - match: {{ actionRef: here }}\n      provider: {{ kind: noop, repository: o/r }}\n    \
        - match: {{ actionRef: nowhere }}\n      provider: {{ kind: forgejo-token, baseURL: \"http://127.0.0.1:{port}\", \
        repository: o/r, credentialsRef: {{ name: bot }} }}\n"
    ));
    let documents = format!("{routes}\n---\n{}", token_secret("bot", "t0ken"));
    let hub = hub(
        documents,
        &["--retain-finished", "4s", "--retain-audit", "4s"],
    )
    .await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    // Each of the first two is as old as the third, which goes.
    let waiting = agent
        .observe(1, write_file("nowhere", "a.yaml", "a: 1\n"))
        .await?;
    agent
        .status(&waiting, |status| status.next_attempt_at.is_some())
        .await?;
    let unheard = agent
        .observe(2, write_file("here", "b.yaml", "a: 1\n"))
        .await?;
    let ended = agent.status(&unheard, |status| status.completed_at.is_some());
    let unheard_revision = ended.await?.revision;
    acknowledged(&hub, &mut agent, 3, "c.yaml").await?;
    agent
        .observe(4, write_file("nowhere", "d.yaml", "a: 1\n"))
        .await?;
    known(&hub, &["er-4", "er-2", "er-1"]).await?;
    eventually("it is counted", LIMIT, || async {
        let pruned = hub.metric("nabu_hub_pruned_total{kind=\"response\"}");
        (pruned.await.ok()? >= 1.0).then_some(())
    })
    .await?;

    // The cluster stores it after all.
    applied(&hub, &agent, &unheard, unheard_revision).await?;
    agent
        .observe(5, write_file("nowhere", "e.yaml", "a: 1\n"))
        .await?;
    known(&hub, &["er-5", "er-4", "er-1"]).await?;

    // The log of what was removed is a part of the log.
    let client = OperationsServiceClient::new(hub.admin_channel().await?);
    let request = ListAuditEventsRequest {
        action: "AuditPruned".to_owned(),
        ..ListAuditEventsRequest::default()
    };
    let pruned = eventually("the log says what was removed", LIMIT, || {
        let (mut client, request) = (client.clone(), request.clone());
        async move {
            let lines = client.list_audit_events(request).await.ok()?.into_inner();
            lines.events.into_iter().next()
        }
    })
    .await?;
    assert!(pruned.detail.contains("lines of this log"), "{pruned:?}");
    let request = ListAuditEventsRequest {
        action: "Routed".to_owned(),
        ..ListAuditEventsRequest::default()
    };
    eventually("the old lines are gone", LIMIT, || {
        let (mut client, request) = (client.clone(), request.clone());
        async move {
            let lines = client.list_audit_events(request).await.ok()?.into_inner();
            lines.events.is_empty().then_some(())
        }
    })
    .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_event_response_that_is_shown_again_gets_no_second_pull_request() -> Result<()>
{
    let github = TestGithub::start().await?;
    let repository = github.create_repository("o/r").await?;
    let route = forge_config("github-token", github.url(), "o/r");
    let noop =
        "    - match: { actionRef: here }\n      provider: { kind: noop, repository: o/r }\n";
    let documents = [route + noop, token_secret("bot", github.token())].join("\n---\n");
    let arguments = ["--retain-finished", "3s", "--follow-seconds", "1"];
    let hub = hub(documents, &arguments).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let asked = || write_file(ACTION, "a.yaml", "a: 1\n");
    let uid = agent.observe(1, asked()).await?;
    let open = agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    applied(&hub, &agent, &uid, open.revision).await?;

    // For as long as the pull request waits for people, the response is kept: what ended after it has gone.
    acknowledged(&hub, &mut agent, 2, "b.yaml").await?;
    agent
        .observe(3, write_file("here", "c.yaml", "a: 1\n"))
        .await?;
    known(&hub, &["er-3", "er-1"]).await?;

    let number = repository
        .pulls()?
        .first()
        .context("no pull request")?
        .number;
    repository.merge(number)?;
    let branch = repository.pulls()?.remove(0).head;
    repository.delete_branch(&branch)?;
    let merged = agent
        .status(&uid, |status| status.revision > open.revision)
        .await?;
    applied(&hub, &agent, &uid, merged.revision).await?;
    agent
        .observe(4, write_file("here", "d.yaml", "a: 1\n"))
        .await?;
    known(&hub, &["er-4", "er-3"]).await?;

    // Its status was wiped, so that its agent shows it again.
    agent.observe(1, asked()).await?;
    let again = agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    let evidence = |status: &nabu_proto::agent_v1::Status| status.provider_ref.clone();
    assert_eq!(evidence(&again), evidence(&open));
    let outcome = again.outcome.context("no outcome")?;
    assert!(outcome.message.contains("found"), "{outcome:?}");
    assert_eq!(repository.pulls()?.len(), 1);
    assert_eq!(github.violations(), Vec::<String>::new());
    Ok(())
}
