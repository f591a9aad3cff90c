//! `--dry-run` of everything that changes something: it says what would happen, is refused where the order would be, and
//! changes nothing.

mod older;
mod refused;

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{Heartbeat, Hello};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{forge_config, noop_config, token_secret, write_file};
use nabu_tests::process::workspace_binary;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::bed::{Agent, hub};

/// nabuctl against a hub, with a context file of its own.
fn nabuctl(hub: &TestHub, arguments: &[&str]) -> Result<Output> {
    let output = Command::new(workspace_binary("nabuctl")?)
        .args(["--hub", &hub.admin_url(), "--tls-dir"])
        .arg(hub.admin_tls())
        .args(arguments)
        .env("NABU_CONTEXTS", hub.dir().join("contexts/contexts.yaml"))
        .output()?;
    Ok(output)
}

/// The same order as a dry run.
fn rehearsed<'a>(order: &[&'a str]) -> Vec<&'a str> {
    [order, &["--dry-run"]].concat()
}

fn said(output: &Output) -> Result<String> {
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{error}");
    Ok(String::from_utf8(output.stdout.clone())?)
}

/// What an order can change: what the hub stores, and digests of the administrator's own files. A response that is tried
/// again meanwhile (`Running`) and waits again (`Pending`) does so without an order.
fn stored(hub: &TestHub) -> Result<String> {
    let rows = Command::new("sqlite3")
        .args(["-cmd", ".timeout 5000"])
        .arg(hub.store_path())
        .arg(
            "SELECT cluster, kube_system_uid, labels, registered_at, revoked_at, removed_at, epoch FROM clusters;
            SELECT * FROM join_tokens; SELECT * FROM certificates; SELECT * FROM revoked_administrators;
            SELECT pin, retired_at FROM authorities; SELECT * FROM authority_state;
            SELECT cluster, uid, iif(phase IN ('Pending', 'Running'), 'Unfinished', phase), deleted FROM responses;
            SELECT * FROM audit WHERE method IS NULL AND actor LIKE 'admin/%'",
        )
        .output()?;
    ensure!(rows.status.success(), "{rows:?}");
    let mut all = String::from_utf8_lossy(&rows.stdout).into_owned();
    for folder in ["admin", "grace", "contexts", "contexts/kept"] {
        all += &files(&hub.dir().join(folder));
    }
    Ok(all)
}

/// The same, with what the hub says: that comes from its memory in part.
fn everything(hub: &TestHub) -> Result<String> {
    let mut all = stored(hub)?;
    for list in [
        &["cluster", "list"][..],
        &["admin", "list"],
        &["ca", "rotate", "status"],
    ] {
        let output = nabuctl(hub, &[list, &["-o", "json"]].concat())?;
        all += &String::from_utf8_lossy(&output.stdout);
    }
    Ok(all)
}

fn files(folder: &Path) -> String {
    let mut all = folder.exists().to_string();
    for file in ["ca.crt", "tls.crt", "tls.key", "contexts.yaml"] {
        let text = std::fs::read(folder.join(file)).unwrap_or_default();
        all += &hex::encode(Sha256::digest(text));
    }
    all
}

/// Rehearses an order, sees that this says what is wanted and changes nothing, and gives it.
fn rehearse_and_give(hub: &TestHub, order: &[&str], wanted: &[&str]) -> Result<()> {
    let before = everything(hub)?;
    rehearse(hub, order, wanted)?;
    let given = said(&nabuctl(hub, order)?).with_context(|| format!("{order:?}"))?;
    ensure!(!given.contains("dry run"), "{order:?}: {given}");
    ensure!(everything(hub)? != before, "{order:?} did nothing: {given}");
    Ok(())
}

fn rehearse(hub: &TestHub, order: &[&str], wanted: &[&str]) -> Result<()> {
    let before = everything(hub)?;
    let would = nabuctl(hub, &rehearsed(order))?;
    let would = said(&would).with_context(|| format!("{order:?}"))?;
    for part in [wanted, &["(dry run)"]].concat() {
        ensure!(would.contains(part), "{order:?}: {part}: {would}");
    }
    let after = everything(hub)?;
    ensure!(
        after == before,
        "{order:?} changed:\n{before}\nto:\n{after}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_about_identities_are_rehearsed_without_a_trace_and_then_given() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let add = [
        "cluster", "add", "prod-eu", "--label", "env=prod", "--ttl", "15m",
    ];
    let wanted = [
        "cluster prod-eu would get a join token",
        "good for 15m, until 20",
        "env=prod",
    ];
    rehearse_and_give(&hub, &add, &wanted)?;
    let again = ["cluster", "add", "prod-eu"];
    rehearse(&hub, &again, &["good for 1h", "keep its labels"])?;
    let tokens = nabuctl(&hub, &["cluster", "token", "list", "-o", "name"])?;
    let token = said(&tokens)?.trim().to_owned();
    let revoke = ["cluster", "token", "revoke", &token];
    rehearse_and_give(&hub, &revoke, &["of cluster prod-eu would be revoked"])?;

    let folder = hub.dir().join("grace").display().to_string();
    let add = ["admin", "add", "grace", "--out", &folder];
    rehearse_and_give(
        &hub,
        &add,
        &["would write ca.crt", "of grace to", "until 20"],
    )?;
    let renew = ["admin", "renew"];
    rehearse_and_give(&hub, &renew, &["of tester to", "in place of"])?;
    let revoke = ["admin", "revoke", "grace", "--reason", "away"];
    rehearse_and_give(
        &hub,
        &revoke,
        &["admin/grace would be", "1 good certificate"],
    )?;
    let restore = ["admin", "restore", "grace"];
    rehearse_and_give(&hub, &restore, &["admin/grace would be restored"])?;

    let step = |step: &'static str| ["ca", "rotate", step];
    let wanted = [
        "Rotating (dry run)",
        "(a new one)",
        "waits for",
        "of tester to",
    ];
    rehearse_and_give(&hub, &step("start"), &wanted)?;
    rehearse_and_give(&hub, &step("rollback"), &["RollingBack (dry run)"])?;
    rehearse_and_give(&hub, &step("finish"), &["Settled (dry run)"])?;
    said(&nabuctl(&hub, &step("start"))?)?;
    let forced = ["ca", "rotate", "finish", "--force"];
    let wanted = ["Settled (dry run)", "left behind: admin/grace"];
    rehearse_and_give(&hub, &forced, &wanted)?;
    let acts = hub.log();
    let acts = acts.matches("an administrator acts").count();
    ensure!(acts == 9, "the log tells of what did not happen: {acts}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_socket_a_rotation_is_rehearsed_and_started_without_a_certificate_of_ones_own()
-> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("admin.sock").display().to_string();
    let options = HubOptions::certifying(&["--admin-socket", &socket]);
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let at_socket = |order: &[&str]| hub.nabuctl_at(&format!("unix:{socket}"), order);
    let before = stored(&hub)?;
    let would = at_socket(&["ca", "rotate", "start", "--dry-run"])?;
    ensure!(would.starts_with("Rotating (dry run)\n"), "{would}");
    ensure!(!would.contains("tls.key"), "{would}");
    ensure!(stored(&hub)? == before);
    let own = files(&hub.admin_tls());
    let started = at_socket(&["ca", "rotate", "start"])?;
    ensure!(started.starts_with("Rotating\n"), "{started}");
    ensure!(files(&hub.admin_tls()) == own, "it is of somebody else");
    Ok(())
}

/// An agent that answers is one whose session goes on.
async fn answers(agent: &mut Agent) -> Result<()> {
    agent.say(Frame::Heartbeat(Heartbeat::default())).await?;
    loop {
        match agent.hear().await? {
            Answer::HeartbeatAck(_) => return Ok(()),
            Answer::Goodbye(goodbye) => anyhow::bail!("{goodbye:?}"),
            _ => {}
        }
    }
}

async fn ends(agent: &mut Agent) -> Result<()> {
    while !matches!(agent.hear().await?, Answer::Goodbye(_)) {}
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_goes_on_over_every_rehearsal_and_ends_with_the_order() -> Result<()> {
    let port = nabu_tests::process::free_port()?;
    let nowhere = forge_config("forgejo-token", &format!("http://127.0.0.1:{port}"), "o/r");
    let config = format!("{nowhere}\n---\n{}", token_secret("bot", "t0ken"));
    let hub = hub(config, &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent
        .observe(1, write_file("revoke-clusterrolebinding", "a.yaml", "a: 1"))
        .await?;
    agent
        .status(&uid, |status| status.next_attempt_at.is_some())
        .await?;

    let revoke = ["cluster", "revoke", "prod-eu"];
    rehearse(&hub, &revoke, &["would be revoked; 1 session would end"])?;
    answers(&mut agent).await?;
    rehearse_and_give(&hub, &revoke, &[])?;
    ends(&mut agent).await?;
    drop(agent);
    let restore = ["cluster", "restore", "prod-eu"];
    rehearse(&hub, &restore, &["prod-eu would be restored"])?;
    ensure!(Agent::connect(&hub, "prod-eu").await.is_err());
    rehearse_and_give(&hub, &restore, &[])?;

    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let rebind = ["cluster", "rebind", "prod-eu", "--to", "another"];
    let wanted = [
        "is bound to kube-system-of-prod-eu, and would be to another",
        "1 session would end",
    ];
    rehearse(&hub, &rebind, &wanted)?;
    answers(&mut agent).await?;
    rehearse_and_give(&hub, &rebind, &[])?;
    ends(&mut agent).await?;
    drop(agent);
    // To where it is bound already: nothing ends.
    rehearse(&hub, &rebind, &["no session would end"])?;

    let hello = Hello {
        protocol_version: PROTOCOL_VERSION,
        kube_system_uid: "another".to_owned(),
        ..Hello::default()
    };
    let mut agent = Agent::connect_with(&hub, "prod-eu", hello).await?;
    let remove = ["cluster", "remove", "prod-eu"];
    let wanted = [
        "1 session would end",
        "no usable join token would be revoked",
        "1 unfinished response would be asked to end",
    ];
    rehearse(&hub, &remove, &wanted)?;
    answers(&mut agent).await?;
    rehearse_and_give(&hub, &remove, &[])?;
    ends(&mut agent).await
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_what_would_be_as_they_get_what_is_and_never_a_token() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let value = |arguments: &[&str]| -> Result<Value> {
        let json = said(&nabuctl(&hub, &[arguments, &["-o", "json"]].concat())?)?;
        let yaml = said(&nabuctl(&hub, &[arguments, &["-o", "yaml"]].concat())?)?;
        let (json, yaml): (Value, Value) =
            (serde_json::from_str(&json)?, serde_saphyr::from_str(&yaml)?);
        let alike = |value: &Value| {
            value
                .as_object()
                .map(|map| map.keys().cloned().collect::<Vec<_>>())
        };
        ensure!(alike(&json) == alike(&yaml), "{json} {yaml}");
        Ok(json)
    };
    let add = ["cluster", "add", "prod-eu", "--label", "env=prod"];
    let would = value(&rehearsed(&add))?;
    ensure!(would["dryRun"] == true && would["labels"]["env"] == "prod");
    ensure!(would.get("token").is_none() && would.get("tokenId").is_none());
    let is = value(&add)?;
    for same in ["clusterId", "hub", "caPins", "trustDomain"] {
        ensure!(is[same] == would[same], "{same}: {is:#} {would:#}");
    }
    ensure!(is.get("token").is_some() && is.get("dryRun").is_none());
    let would = value(&["ca", "rotate", "start", "--dry-run"])?;
    ensure!(would["dryRun"] == true && would["state"] == "Rotating");
    ensure!(would["authorities"][0]["pin"] == "", "{would:#}");
    ensure!(value(&["ca", "rotate", "status"])?["state"] == "Settled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_tells_a_rehearsal_from_an_order() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = Agent::connect(&hub, "prod-eu").await?;
    for (cluster, good) in [("prod-eu", true), ("nowhere", false)] {
        for order in ["restore", "revoke"] {
            let order = ["cluster", order, cluster, "--dry-run"];
            ensure!(nabuctl(&hub, &order)?.status.success() == good);
        }
    }
    said(&nabuctl(&hub, &["cluster", "revoke", "prod-eu"])?)?;
    let list = ["audit", "list", "--action", "RevokeCluster", "-o", "json"];
    let lines: Vec<Value> = serde_json::from_str(&said(&nabuctl(&hub, &list)?)?)?;
    let lines: Vec<_> = lines
        .iter()
        .map(|line| (line["outcome"].as_str(), line["detail"].as_str()))
        .collect();
    let [order, refused, rehearsal] = lines.as_slice() else {
        anyhow::bail!("{lines:?}")
    };
    ensure!(rehearsal == &(Some("Ok"), Some("dry run")), "{lines:?}");
    ensure!(refused.0 == Some("NotFound"), "{lines:?}");
    let detail = refused.1.context("no detail")?;
    ensure!(
        detail.starts_with("dry run: there is no cluster"),
        "{lines:?}"
    );
    ensure!(order.1.is_none_or(|detail| !detail.contains("dry run")));
    let list = ["audit", "list", "--action", "ClusterRevoked", "-o", "name"];
    ensure!(said(&nabuctl(&hub, &list)?)?.lines().count() == 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn contexts_and_certificates_in_files_are_rehearsed_without_a_file_written() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let text = hub.dir().join("credentials.pem");
    let part = |name: &str| std::fs::read_to_string(hub.admin_tls().join(name));
    std::fs::write(
        &text,
        part("tls.key")? + &part("tls.crt")? + &part("ca.crt")?,
    )?;
    let text = text.display().to_string();
    let set = ["context", "set", "kept", "--certificate", &text];
    rehearse_and_give(&hub, &set, &["*", "kept", "contexts.yaml"])?;
    rehearse_and_give(&hub, &["context", "set", "other"], &["other"])?;
    rehearse_and_give(&hub, &["context", "use", "other"], &["*        other"])?;
    rehearse_and_give(&hub, &["context", "delete", "kept"], &["*        other"])?;

    let (authority, folder) = (hub.dir().join("new-pki"), hub.dir().join("grace"));
    let (authority_path, out) = (
        authority.display().to_string(),
        folder.display().to_string(),
    );
    let init = ["pki", "init", "--dir", &authority_path];
    rehearse(
        &hub,
        &init,
        &["would make the authority of trust domain nabu"],
    )?;
    ensure!(!authority.exists());
    said(&nabuctl(&hub, &init)?)?;
    let issue = ["pki", "issue", "--ca", &authority_path, "--out", &out];
    let subject = ["admin", "grace"];
    let would = nabuctl(&hub, &[&issue[..], &subject, &["--dry-run"]].concat())?;
    ensure!(said(&would)?.contains("would write ca.crt"));
    ensure!(!folder.exists());
    said(&nabuctl(&hub, &[&issue[..], &subject].concat())?)?;
    ensure!(folder.join("tls.key").exists());
    Ok(())
}
