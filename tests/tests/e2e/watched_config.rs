//! Configuration as objects of the hub's own cluster.

use std::process::Command;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::{Crds, TestCluster, unreachable_kubeconfig};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, forgejo_config};
use nabu_tests::process::workspace_binary;
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::{LIMIT, forge, small_change, unique};

async fn condition(configs: &Api<DynamicObject>, kind: &str) -> Option<(String, String)> {
    let object = configs.get("default").await.ok()?;
    let conditions = object.data["status"]["conditions"].as_array()?.clone();
    let found = conditions
        .into_iter()
        .find(|condition| condition["type"] == kind)?;
    let text = |field: &str| found[field].as_str().map(str::to_owned);
    Some((text("status")?, text("message")?))
}

async fn create_namespace(cluster: &TestCluster, secret: Value) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": "ugallu-system"}}))?;
    let namespaces: Api<Namespace> = Api::all(cluster.client());
    namespaces
        .create(&PostParams::default(), &namespace)
        .await?;
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "ugallu-system");
    secrets
        .create(&PostParams::default(), &serde_json::from_value(secret)?)
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_watched_reported_on_and_reloaded_live() -> Result<()> {
    let cluster = TestCluster::start(Crds::Nabu).await?;
    let repository = forge().await.create_repository(&unique("gitops")).await?;
    let token = |token: &str| json!({"metadata": {"name": "bot"}, "stringData": {"token": token}});
    create_namespace(&cluster, token("wrong")).await?;
    let configs = cluster.namespaced("GitOpsResponderConfig", "ugallu-system");
    let document = forgejo_config(&forge().await.url(), &repository.full_name);
    let object: DynamicObject = serde_saphyr::from_str(&document)?;
    configs.create(&PostParams::default(), &object).await?;

    let kubeconfig = cluster.kubeconfig().display().to_string();
    let options = HubOptions {
        environment: vec![("KUBECONFIG".to_owned(), kubeconfig)],
        watch_config: true,
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[], options).await?;
    let _agent = TestAgent::start(&cluster, "own", &hub, &["--leader-elect=false"]).await?;
    eventually("the config is reported valid", LIMIT, || async {
        (condition(&configs, "Valid").await?.0 == "True").then_some(())
    })
    .await?;

    let ask = |name: &'static str| async {
        let spec = event_response("nobody", "ugallu-gitops-responder", small_change());
        cluster.create_event_response(name, spec).await?;
        cluster.finished(name, LIMIT).await
    };
    assert_eq!(
        ask("with-wrong-token").await?["error"]["type"],
        "Unauthorized"
    );

    let secrets: Api<Secret> = Api::namespaced(cluster.client(), "ugallu-system");
    let patch = Patch::Merge(token(forge().await.token()));
    secrets
        .patch("bot", &PatchParams::default(), &patch)
        .await?;
    let bad = json!({"spec": {"routes": [{"provider": {"kind": "noop", "repository": "x"}}]}});
    configs
        .patch("default", &PatchParams::default(), &Patch::Merge(bad))
        .await?;
    eventually("the bad edit is reported", LIMIT, || async {
        let (status, message) = condition(&configs, "Valid").await?;
        (status == "False" && message.contains("spec.routes[0].provider.repository")).then_some(())
    })
    .await?;
    let status = ask("with-right-token").await?;
    assert_eq!(
        status["phase"], "Succeeded",
        "the last good route, the new token: {status:#}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_folder_and_without_a_cluster_the_hub_says_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = unreachable_kubeconfig(folder.path())?;
    let hub = TestHub::start(&[], HubOptions::default()).await?;
    let tls = hub.dir().join("tls");
    let output = Command::new(workspace_binary("nabu-hub")?)
        .args([
            "--listen-agents",
            "127.0.0.1:0",
            "--listen-admin",
            "127.0.0.1:0",
        ])
        .args(["--listen-ops", "127.0.0.1:0", "--store"])
        .arg(folder.path().join("nabu.db"))
        .arg("--tls-ca")
        .arg(tls.join("ca.crt"))
        .arg("--tls-cert")
        .arg(tls.join("tls.crt"))
        .arg("--tls-key")
        .arg(tls.join("tls.key"))
        .env("KUBECONFIG", kubeconfig)
        .output()?;
    assert!(!output.status.success());
    let text = String::from_utf8(output.stderr)?;
    let last = text.lines().last().unwrap_or_default();
    assert!(
        last.contains("cannot be reached") && last.contains("--config-dir"),
        "{text}"
    );
    Ok(())
}
