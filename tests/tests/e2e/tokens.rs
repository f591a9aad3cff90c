//! Join tokens and identities at their end: what is kept of a token, and what is left of a cluster.

use anyhow::{Context as _, Result, ensure};
use nabu_proto::agent_v1::GoodbyeReason;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::TestHub;
use serde_json::Value;
use tonic::{Code, Status};

use crate::bed::{eu, unique};
use crate::enrolment::{changes, hub};
use crate::refusals::{enrol, say_hello};

/// Everything that a hub keeps: its database with what is not merged yet, and its log.
fn kept(hub: &TestHub) -> Result<Vec<u8>> {
    let mut all = hub.log().into_bytes();
    for end in ["", "-wal", "-shm"] {
        let mut path = hub.store_path().into_os_string();
        path.push(end);
        match std::fs::read(&path) {
            Ok(bytes) => all.extend(bytes),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_shown_once_and_kept_nowhere_in_clear() -> Result<()> {
    let hub = hub(&[]).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::prepare_join(eu().await, "prod-eu", &hub, None, &arguments)?;
    let first = std::fs::read_to_string(agent.token_file())?;
    let unused = hub.add_cluster("prod-us", &[])?;
    let unused_token = unused["token"].as_str().context("no token")?.to_owned();
    agent.start_again().await?;
    changes(&responder, &unique("er")).await?;

    let shown = [
        hub.nabuctl(&["-o", "json", "cluster", "token", "list"])?,
        hub.nabuctl(&["-o", "json", "cluster", "list"])?,
        hub.nabuctl(&["-o", "json", "audit", "list"])?,
        agent.log(),
    ];
    let kept = kept(&hub)?;
    let id = unused["tokenId"].as_str().context("no id")?;
    ensure!(holds(&kept, id), "what is looked through is not the store");
    ensure!(shown[0].contains(id));
    for token in [first.trim(), &unused_token] {
        // Its secret is what comes last.
        let secret = token.rsplit('.').next().context("no secret")?;
        ensure!(secret.len() > 40, "{} characters", secret.len());
        ensure!(!holds(&kept, secret), "the hub keeps a token");
        for text in &shown {
            ensure!(!text.contains(secret), "a token is shown again");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_from_before_a_revocation_lets_nobody_in_after_it() -> Result<()> {
    let hub = hub(&[]).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    hub.nabuctl(&["cluster", "revoke", "prod-eu"])?;
    let refused = enrol(&hub, &added, "prod-eu").await.err();
    let refused = refused.context("it was let in")?;
    let status = refused.downcast_ref::<Status>().context("no status")?;
    ensure!(status.code() == Code::PermissionDenied, "{status}");
    // That is all that was wrong with it.
    hub.nabuctl(&["cluster", "restore", "prod-eu"])?;
    enrol(&hub, &added, "prod-eu").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_cluster_keeps_its_audit_and_its_agent_is_refused_and_leaves_no_series()
-> Result<()> {
    let hub = hub(&[]).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let agent = enrol(&hub, &added, "prod-eu").await?;
    let (answer, frames, answers) = say_hello(&hub, &agent).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    drop((frames, answers));
    hub.nabuctl(&["cluster", "remove", "prod-eu"])?;
    for _ in 0..2 {
        let (answer, ..) = say_hello(&hub, &agent).await?;
        let Answer::Goodbye(goodbye) = answer else {
            anyhow::bail!("it was let in: {answer:?}")
        };
        ensure!(goodbye.reason() == GoodbyeReason::Revoked, "{goodbye:?}");
    }
    let audited = hub.nabuctl(&["-o", "json", "audit", "list", "--cluster", "prod-eu"])?;
    let lines: Value = serde_json::from_str(&audited)?;
    let lines = lines.as_array().context("no list")?;
    for action in [
        "TokenCreated",
        "Enrolled",
        "ClusterRemoved",
        "SessionRefused",
    ] {
        let there = lines.iter().any(|line| line["action"] == action);
        ensure!(there, "{action}: {audited}");
    }
    nabu_tests::wait::eventually("its series end", crate::bed::LIMIT, || async {
        let metrics = hub.metrics().await.ok()?;
        (!metrics.contains("cluster=\"prod-eu\"")).then_some(())
    })
    .await
}
