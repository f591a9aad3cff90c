//! From a join token to a certificate that is renewed, and its end.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, PostParams};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::{LIMIT, eu, small_change, unique, us};
use crate::under_load::Load;

pub(crate) async fn hub(arguments: &[&str]) -> Result<TestHub> {
    let documents = [("config.yaml", noop_config("o/r"))];
    TestHub::start(&documents, HubOptions::certifying(arguments)).await
}

/// One row of `cluster list`.
fn listed(hub: &TestHub, cluster: &str) -> Result<Value> {
    let listed: Value = serde_json::from_str(&hub.nabuctl(&["-o", "json", "cluster", "list"])?)?;
    let rows = listed.as_array().context("no list")?;
    let row = rows.iter().find(|row| row["clusterId"] == cluster);
    Ok(row.cloned().unwrap_or_default())
}

/// Asks for a change and waits until it is made.
pub(crate) async fn changes(responder: &str, id: &str) -> Result<()> {
    let cluster = eu().await;
    let spec = nabu_tests::objects::event_response(id, responder, small_change());
    cluster.create_event_response(id, spec).await?;
    let status = cluster.finished(id, LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_enrols_with_a_token_once_and_needs_none_after_a_restart() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    changes(&responder, &unique("er")).await?;
    let row = listed(&hub, "prod-eu")?;
    assert_eq!(row["state"], "Active");
    let until: jiff::Timestamp = row["certificateNotAfter"]
        .as_str()
        .context("no end")?
        .parse()?;
    let lives = until.duration_since(jiff::Timestamp::now());
    assert!((1..=24).contains(&lives.as_hours()), "{row:#}");
    let tokens = hub.nabuctl(&["cluster", "token", "list"])?;
    assert!(tokens.contains("Used"), "{tokens}");

    agent.stop()?;
    std::fs::remove_file(agent.token_file())?;
    agent.start_again().await?;
    changes(&responder, &unique("er")).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_in_a_secret_is_there_for_the_next_pod() -> Result<()> {
    let hub = hub(&[]).await?;
    let (responder, name) = (unique("responder"), unique("identity"));
    let api = Api::<Secret>::default_namespaced(eu().await.client());
    let empty = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    api.create(&PostParams::default(), &empty).await?;
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::prepare_join(eu().await, "prod-eu", &hub, Some(&name), &arguments)?;
    agent.start_again().await?;
    agent.kill()?;
    std::fs::remove_file(agent.token_file())?;
    agent.start_again().await?;
    changes(&responder, &unique("er")).await?;
    let kept = api.get(&name).await?.data.unwrap_or_default();
    assert!(kept.contains_key("identity.json"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_used_token_is_refused_to_another_agent_which_says_what_it_needs() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let first = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let token = std::fs::read_to_string(first.token_file())?;
    let mut second = TestAgent::prepare_join(us().await, "prod-eu", &hub, None, &arguments)?;
    second.give_token(&token)?;
    second.launch()?;
    let needed = "nabu_agent_join_token_needed";
    let asks = eventually("the agent asks for a token", LIMIT, || async {
        let needs_one = second.metric(needed).await.ok()? > 0.0;
        let says_so = second.log().contains("nabuctl cluster add prod-eu");
        (needs_one && says_so).then_some(())
    });
    asks.await.with_context(|| second.log())?;
    // Another one, and it joins without a restart; but the id is bound to the first cluster.
    let added = hub.add_cluster("prod-eu", &[])?;
    second.give_token(added["token"].as_str().context("no token")?)?;
    eventually("the second cluster is seen", LIMIT, || async {
        (listed(&hub, "prod-eu").ok()?["state"] == "Conflict").then_some(())
    })
    .await?;
    let row = listed(&hub, "prod-eu")?;
    assert_eq!(
        row["connected"], true,
        "the first keeps its session: {row:#}"
    );
    // The second one's certificate is newer, and may be used once the id is bound to its cluster.
    let uid = row["refusedKubeSystemUid"].as_str().context("no UID")?;
    hub.nabuctl(&["cluster", "rebind", "prod-eu", "--to", uid])?;
    second.ready(LIMIT).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_that_live_for_seconds_are_renewed_under_load_and_nothing_is_lost()
-> Result<()> {
    let hub = hub(&["--agent-certificate-lifetime", "30s"]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let load = Load::start(eu().await, &responder);
    let renewals = "nabu_agent_certificate_renewals_total";
    let renewed = eventually("certificates are renewed", LIMIT, || async {
        (agent.metric(renewals).await.ok()? >= 2.0).then_some(())
    });
    renewed.await.with_context(|| logs(&hub, &agent))?;
    all_succeeded_at_once(&hub, &agent, &load.end().await?).await
}

fn all_responses(hub: &TestHub) -> Result<usize> {
    let names = hub.nabuctl(&["-o", "name", "response", "list", "--limit", "100000"])?;
    Ok(names.lines().count())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_certificate_ran_out_asks_for_a_token_and_loses_nothing() -> Result<()> {
    let hub = hub(&["--agent-certificate-lifetime", "12s"]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let pod = unique("pod");
    let mut agent = TestAgent::prepare_join(eu().await, "prod-eu", &hub, None, &arguments)?
        .in_pod(&pod, "00000000-0000-4000-8000-000000000001");
    agent.start_again().await?;
    agent.stop()?;
    tokio::time::sleep(std::time::Duration::from_secs(13)).await;
    agent.launch()?;
    eventually("the agent asks for a token", LIMIT, || async {
        (agent.metric("nabu_agent_join_token_needed").await.ok()? > 0.0).then_some(())
    })
    .await?;
    let wanted = "its certificate ran out";
    let remedy = "run `nabuctl cluster add prod-eu`";
    let asks = |text: &str| text.contains(wanted) && text.contains(remedy);
    let readiness = format!("{}/readyz?verbose", agent.ops_url());
    eventually("readiness says what the agent needs", LIMIT, || async {
        let said = reqwest::get(&readiness).await.ok()?.text().await.ok()?;
        let mut lines = said.lines();
        lines.find(|line| line.starts_with("[-]session") && asks(line))?;
        Some(())
    })
    .await?;
    let log = agent.log();
    ensure!(log.lines().any(asks), "{log}");
    let events = Api::<Event>::default_namespaced(eu().await.client());
    let of_pod = ListParams::default().fields(&format!("regarding.kind=Pod,regarding.name={pod}"));
    eventually("an Event on its pod says it", LIMIT, || async {
        let events = events.list(&of_pod).await.ok()?.items;
        events
            .iter()
            .find(|event| event.note.as_deref().is_some_and(asks))
            .map(|event| assert_eq!(event.reason.as_deref(), Some("NotCertified")))
    })
    .await?;
    // It watches on: what is created now, it knows, before anybody gives it a token.
    let name = unique("er");
    let spec = nabu_tests::objects::event_response(&name, &responder, small_change());
    eu().await.create_event_response(&name, spec).await?;
    eventually("the new one waits", LIMIT, || async {
        let tracked = agent.metric("nabu_agent_tracked").await.ok()?;
        let backlog = agent.metric("nabu_agent_backlog").await.ok()?;
        (tracked > 0.0 && backlog > 0.0).then_some(())
    })
    .await?;
    ensure!(eu().await.status(&name).await?.is_null());
    let added = hub.add_cluster("prod-eu", &[])?;
    agent.give_token(added["token"].as_str().context("no token")?)?;
    let finished = eu().await.finished(&name, LIMIT).await;
    let status = finished.with_context(|| logs(&hub, &agent))?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    let said = reqwest::get(&readiness).await?.text().await?;
    ensure!(!said.contains(remedy), "{said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_cluster_is_out_until_it_is_restored_across_restarts() -> Result<()> {
    let mut hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    hub.nabuctl(&["cluster", "revoke", "prod-eu"])?;
    let out = async |hub: &TestHub| {
        eventually("the session ends", LIMIT, || async {
            let row = listed(hub, "prod-eu").ok()?;
            (row["connected"] == false && row["state"] == "Revoked").then_some(())
        })
        .await
    };
    out(&hub).await?;
    assert!(hub.add_cluster("prod-eu", &[]).is_err());
    hub.stop()?;
    hub.start_again().await?;
    eventually("the agent was turned away again", LIMIT, || async {
        let refused = "nabu_hub_sessions_refused_total{reason=\"Revoked\"}";
        (hub.metric(refused).await.ok()? > 0.0).then_some(())
    })
    .await?;
    out(&hub).await?;
    hub.nabuctl(&["cluster", "restore", "prod-eu"])?;
    eventually("it is back", LIMIT, || async {
        (listed(&hub, "prod-eu").ok()?["connected"] == true).then_some(())
    })
    .await?;
    drop(agent);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_cluster_leaves_no_series_and_stays_out() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let _agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    changes(&responder, &unique("er")).await?;
    let series = "cluster=\"prod-eu\"";
    assert!(hub.metrics().await?.contains(series));
    hub.nabuctl(&["cluster", "remove", "prod-eu"])?;
    eventually("its series end", LIMIT, || async {
        (!hub.metrics().await.ok()?.contains(series)).then_some(())
    })
    .await?;
    assert_eq!(listed(&hub, "prod-eu")?, Value::Null);
    assert_eq!(all_responses(&hub)?, 1, "what is finished stays");
    Ok(())
}

/// Creates EventResponses one after the other until `done` says so; gives their names.
async fn load_until(
    responder: &str,
    mut done: impl AsyncFnMut() -> Result<bool>,
) -> Result<Vec<String>> {
    let mut names = Vec::new();
    while !done().await? {
        let name = unique("er");
        let spec = nabu_tests::objects::event_response(&name, responder, small_change());
        eu().await.create_event_response(&name, spec).await?;
        names.push(name);
        anyhow::ensure!(names.len() < 20_000, "it does not come to an end");
    }
    Ok(names)
}

async fn all_succeeded_at_once(hub: &TestHub, agent: &TestAgent, names: &[String]) -> Result<()> {
    for name in names {
        let finished = eu().await.finished(name, LIMIT).await;
        let status = finished.with_context(|| logs(hub, agent))?;
        assert_eq!(status["phase"], "Succeeded", "{name}: {status:#}");
        assert_eq!(status["attempts"], 1, "{name}: {status:#}");
    }
    assert_eq!(all_responses(hub)?, names.len());
    Ok(())
}

/// The ends of both logs, for a test that failed.
pub(crate) fn logs(hub: &TestHub, agent: &TestAgent) -> String {
    let end = |text: &str| nabu_tests::process::tail(text, 40);
    format!("hub:\n{}\nagent:\n{}", end(&hub.log()), end(&agent.log()))
}

fn rotation(hub: &TestHub, step: &str) -> Result<Value> {
    let printed = hub.nabuctl(&["-o", "json", "ca", "rotate", step])?;
    Ok(serde_json::from_str(&printed)?)
}

fn nobody_waits(hub: &TestHub) -> Result<bool> {
    let status = rotation(hub, "status")?;
    Ok(status["waitingFor"].as_array().is_some_and(Vec::is_empty))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_authority_is_rotated_under_load_and_nobody_is_left_behind() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let before = rotation(&hub, "status")?["authorities"][0]["pin"].clone();
    rotation(&hub, "start")?;
    let refused = hub.nabuctl(&["ca", "rotate", "start"]).unwrap_err();
    assert!(refused.to_string().contains("under way"), "{refused}");
    let mut names = load_until(&responder, async || nobody_waits(&hub)).await?;
    let after = rotation(&hub, "finish")?;
    assert_eq!(after["state"], "Settled", "{after:#}");
    assert_eq!(after["authorities"].as_array().map(Vec::len), Some(1));
    assert_ne!(after["authorities"][0]["pin"], before);
    agent.stop()?;
    agent.start_again().await?;
    let mut more = 3;
    let done = async || {
        more -= 1;
        Ok(more < 0)
    };
    names.extend(load_until(&responder, done).await?);
    all_succeeded_at_once(&hub, &agent, &names).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_is_rolled_back_under_load_and_survives_a_restart_of_the_hub() -> Result<()> {
    let mut hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let before = rotation(&hub, "status")?["authorities"][0]["pin"].clone();
    rotation(&hub, "start")?;
    let mut names = load_until(&responder, async || nobody_waits(&hub)).await?;
    // While it is away, it does not renew before anybody has looked.
    agent.stop()?;
    rotation(&hub, "rollback")?;
    assert!(
        !nobody_waits(&hub)?,
        "the agent has a certificate of the new authority"
    );
    assert!(hub.nabuctl(&["ca", "rotate", "finish"]).is_err());
    hub.kill()?;
    hub.start_again().await?;
    agent.start_again().await?;
    names.extend(load_until(&responder, async || nobody_waits(&hub)).await?);
    let after = rotation(&hub, "finish")?;
    assert_eq!(after["authorities"][0]["pin"], before);
    all_succeeded_at_once(&hub, &agent, &names).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_on_another_replica_ends_the_session_here() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let _agent = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    // Two hubs on one database are emulated: this is what another replica would write, and all that this one can see of
    // it. That it looks often enough is a unit test of the gateway, on a clock that stands.
    let written = std::process::Command::new("sqlite3")
        .arg(hub.store_path())
        .arg("PRAGMA busy_timeout = 5000; UPDATE clusters SET revoked_at = 1 WHERE cluster = 'prod-eu'")
        .status()?;
    assert!(written.success());
    eventually("the session ends", LIMIT, || async {
        (listed(&hub, "prod-eu").ok()?["connected"] == false).then_some(())
    })
    .await?;
    Ok(())
}
