//! The charts' defaults: the hub certifies, the agent joins with a token, and its identity outlives an upgrade without one.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use nabu_tests::charts::deployed::{Deployed, client_as};
use nabu_tests::charts::release::{
    apply, create_namespace, deployed, deployment, hub_values, release, render,
};
use nabu_tests::cluster::TestCluster;
use nabu_tests::objects::{event_response, write_file};
use nabu_tests::process::{free_port, workspace_binary};
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::{LIMIT, shared};
use crate::rights::{Missing, apply_account, take_away};

const NAMESPACE: &str = "join";
/// As the chart names the Service for administrators.
const SERVER_NAME: &str = "nabu-hub-admin.join.svc";
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
    let home = tempfile::tempdir()?;
    let path = |flag: &str, path: &str| format!("{flag}={}", hub.inside(path).display());
    let credentials = run(Command::new(workspace_binary("nabu-hub")?)
        .args(["init-admin", "tester", "--out", "-"])
        .arg(path("--store", "/var/lib/nabu/nabu.db"))
        .arg(path("--ca-encryption-key-file", "/etc/nabu/ca/key")))?;
    let kept = home.path().join("admin.pem");
    std::fs::write(&kept, credentials)?;
    let nabuctl = || {
        let mut command = Command::new(workspace_binary("nabuctl")?);
        command.env("NABU_CONTEXTS", home.path().join("contexts.yaml"));
        anyhow::Ok(command)
    };
    let url = format!("https://127.0.0.1:{}", hub.port("admin")?);
    run(nabuctl()?
        .args(["--hub", &url, "--server-name", SERVER_NAME])
        .args(["context", "set", "fleet", "--certificate"])
        .arg(&kept))?;
    let text = run(nabuctl()?.args(["-o", "json", "cluster", "add", id]))?;
    Ok(serde_json::from_str(&text)?)
}

/// Values with which an agent joins.
fn join_values(hub: &Deployed, port: u16, id: &str) -> Result<Vec<String>> {
    let joined = add_cluster(hub, id)?;
    let pin = joined["caPins"][0].as_str().context("no pin")?;
    let token = joined["token"].as_str().context("no token")?;
    Ok(vec![
        "listenAddress=127.0.0.1".to_owned(),
        format!("clusterId={id}"),
        format!("responders={{{id}}}"),
        format!("hub.url=https://127.0.0.1:{port}"),
        format!("hub.caPin={pin}"),
        format!("metrics.containerPort={}", free_port()?),
        format!("joinToken={token}"),
    ])
}

/// Without this verb on the Secret with its identity, an agent cannot join, and says so.
async fn assert_not_joined_without(
    cluster: &TestCluster,
    (hub, port): (&Deployed, u16),
    verb: &str,
) -> Result<()> {
    let id = format!("join-without-{verb}");
    let values = join_values(hub, port, &id)?;
    let mut objects = render(
        "nabu-agent",
        &format!("nabu-agent-{verb}"),
        NAMESPACE,
        &values,
    )?;
    let missing = Missing {
        resource: "secrets".to_owned(),
        verb: verb.to_owned(),
    };
    take_away(&mut objects, &missing);
    apply_account(cluster, &objects)?;
    let secrets: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == "Secret")
        .cloned()
        .collect();
    apply(cluster, &secrets, &[])?;
    let mut agent = Deployed::prepare(cluster, deployment(&objects)?).await?;
    agent.launch()?;
    eventually("it says what is missing", LIMIT, || async {
        agent
            .log()
            .contains("must allow get and update on it")
            .then_some(())
    })
    .await
    .with_context(|| agent.log())?;
    agent.kill()
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
    for verb in ["get", "update"] {
        assert_not_joined_without(cluster, (&hub, port), verb).await?;
    }
    let mut values = join_values(&hub, port, "join")?;
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
