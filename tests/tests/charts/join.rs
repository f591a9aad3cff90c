//! The charts' defaults: the hub certifies, the agent joins with a token, and its identity outlives an upgrade without one.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use nabu_tests::charts::deployed::{Deployed, client_as};
use nabu_tests::charts::release::{apply, create_namespace, deployed, hub_values, release};
use nabu_tests::cluster::TestCluster;
use nabu_tests::objects::{event_response, write_file};
use nabu_tests::process::{free_port, workspace_binary};
use serde_json::{Value, json};

use crate::bed::{LIMIT, shared};

const NAMESPACE: &str = "join";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Runs a program of ours; its standard output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

async fn start_hub(cluster: &TestCluster) -> Result<(Deployed, u16)> {
    create_namespace(cluster, NAMESPACE)?;
    let key = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": NAMESPACE},
        "stringData": {"key": KEY},
    });
    apply(cluster, &[key], &[])?;
    let (mut values, port) = hub_values()?;
    values.retain(|value| !value.starts_with("tls."));
    let provider = "config.documents.default.routes[0].provider";
    values.extend([
        "tls.builtin.encryptionKeySecret=key".to_owned(),
        "tls.builtin.serverNames={127.0.0.1}".to_owned(),
        format!("{provider}.kind=noop,{provider}.repository=o/r,{provider}.baseBranch=main"),
    ]);
    release(cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
    let mut hub = deployed(cluster, NAMESPACE, "nabu-hub").await?;
    hub.start().await?;
    Ok((hub, port))
}

/// What `nabuctl cluster add` says.
fn add_cluster(hub: &Deployed, id: &str) -> Result<Value> {
    let admin = tempfile::tempdir()?;
    let path = |flag: &str, path: &str| format!("{flag}={}", hub.inside(path).display());
    run(Command::new(workspace_binary("nabu-hub")?)
        .args(["init-admin", "tester", "--out"])
        .arg(admin.path())
        .arg(path("--store", "/var/lib/nabu/nabu.db"))
        .arg(path("--ca-encryption-key-file", "/etc/nabu/ca/key")))?;
    let url = format!("https://127.0.0.1:{}", hub.port("admin")?);
    let text = run(Command::new(workspace_binary("nabuctl")?)
        .args(["--hub", &url, "-o", "json", "--tls-dir"])
        .arg(admin.path())
        .args(["cluster", "add", id]))?;
    Ok(serde_json::from_str(&text)?)
}

async fn served(cluster: &TestCluster, name: &str) -> Result<()> {
    let spec = event_response("nobody", "join", write_file("any", "a.yaml", "a: 1\n"));
    cluster.create_event_response(name, spec).await?;
    assert_eq!(cluster.finished(name, LIMIT).await?["phase"], "Succeeded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_joins_with_a_token_and_keeps_its_identity_over_an_upgrade_without_one()
-> Result<()> {
    let help = run(Command::new(workspace_binary("nabu-hub")?).arg("--help"))?;
    if !help.contains("--ca-encryption-key-file") {
        eprintln!("left out: these programs are built without enrolment");
        return Ok(());
    }
    let cluster = shared().await;
    let (hub, port) = start_hub(cluster).await?;
    let joined = add_cluster(&hub, "join")?;
    let pin = joined["caPins"][0].as_str().context("no pin")?;
    let mut values = vec![
        "listenAddress=127.0.0.1".to_owned(),
        "clusterId=join".to_owned(),
        "responders={join}".to_owned(),
        format!("hub.url=https://127.0.0.1:{port}"),
        format!("hub.caPin={pin}"),
        format!("metrics.containerPort={}", free_port()?),
        format!(
            "joinToken={}",
            joined["token"].as_str().context("no token")?
        ),
    ];
    release(cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
    let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
    agent.start().await?;
    served(cluster, "join-first").await?;
    agent.kill()?;

    values.pop();
    release(cluster, "upgrade", ("nabu-agent", NAMESPACE), &values)?;
    let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
    assert!(
        !agent
            .arguments()
            .iter()
            .any(|one| one.contains("join-token"))
    );
    agent.start().await?;
    served(cluster, "join-second").await?;

    let client = client_as(cluster, NAMESPACE, "nabu-agent").await?;
    let secrets: Api<Secret> = Api::namespaced(client, NAMESPACE);
    assert!(secrets.get("nabu-agent-identity").await.is_ok());
    let refused = secrets.get("key").await.unwrap_err().to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    Ok(())
}
