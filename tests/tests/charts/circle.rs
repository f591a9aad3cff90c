//! The whole circle with both charts and a real forge: documents and Secrets as objects and as a mounted folder, the rights that the
//! charts give and no others, probes, and an end in the time that the pods have.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, ListParams};
use nabu_hub::pki::Subject;
use nabu_tests::charts::deployed::{Deployed, client_as};
use nabu_tests::charts::release::{
    Pki, agent_values, apply, create_namespace, deployed, hub_values, release, tls_secret,
};
use nabu_tests::cluster::TestCluster;
use nabu_tests::fault_proxy::{Fault, FaultProxy};
use nabu_tests::forge::TestForge;
use nabu_tests::objects::{event_response, security_event, write_file};
use serde_json::{Value, json};

use crate::bed::{LIMIT, shared};
use crate::rights::forbidden;

/// The Secret with the token of the forge.
fn bot(namespace: &str, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bot", "namespace": namespace},
        "stringData": {"token": token},
    })
}

/// Asks for one file.
async fn ask(cluster: &TestCluster, name: &str, responder: &str) -> Result<()> {
    let event = format!("se-{name}");
    cluster
        .create_security_event(&event, security_event("ClusterAdminGranted", "evil"))
        .await?;
    let change = write_file("any", &format!("{name}.yaml"), "a: 1\n");
    let spec = event_response(&event, responder, change);
    cluster.create_event_response(name, spec).await?;
    Ok(())
}

/// An agent from its chart, in the hub's namespace. The authority of the hub comes from a `ConfigMap`, and what is beside its own certificate is
/// another one.
async fn start_agent(
    cluster: &TestCluster,
    (pki, namespace, id): (&Pki, &str, &str),
    hub: u16,
) -> Result<Deployed> {
    let folder = pki.secret(
        cluster,
        namespace,
        &format!("{id}-tls"),
        &Subject::cluster(&id.parse()?),
    )?;
    let mut secret = tls_secret(&folder, namespace, &format!("{id}-tls"))?;
    let authority = secret["stringData"]["ca.crt"].take();
    let others = Pki::create()?;
    let other = others.secret(cluster, namespace, "other", &Subject::hub("other"))?;
    secret["stringData"]["ca.crt"] = std::fs::read_to_string(other.join("ca.crt"))?.into();
    let bundle = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bundle", "namespace": namespace},
        "data": {"bundle.pem": authority},
    });
    apply(cluster, &[secret, bundle], &[])?;
    let mut values = agent_values(id, id, hub)?;
    values.push("identity.ca.configMapName=bundle,identity.ca.key=bundle.pem".to_owned());
    release(cluster, "install", ("nabu-agent", namespace), &values)?;
    let mut agent = deployed(cluster, namespace, "nabu-agent").await?;
    agent.start().await?;
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_charts_open_real_pull_requests_and_end_in_the_time_that_their_pods_have() -> Result<()>
{
    const NAMESPACE: &str = "circle";
    const CONFIGS: &str = "circle-config";
    let cluster = shared().await;
    let forge = TestForge::shared().await?;
    let repository = forge.create_repository("charts-circle").await?;
    let proxy = FaultProxy::start(&forge.url()).await?;
    for namespace in [NAMESPACE, CONFIGS] {
        create_namespace(cluster, namespace)?;
    }
    let pki = Pki::create()?;
    pki.hub_secret(cluster, NAMESPACE)?;
    let provider = json!({
        "kind": "forgejo-token", "baseURL": proxy.url(), "repository": repository.full_name, "baseBranch": "main",
        "credentialsRef": {"name": "bot"},
    });
    let document = json!({
        "apiVersion": "security.ugallu.io/v1alpha1", "kind": "GitOpsResponderConfig",
        "metadata": {"name": "default", "namespace": CONFIGS}, "spec": {"routes": [{"provider": provider}]},
    });
    apply(cluster, &[document, bot(CONFIGS, forge.token())], &[])?;
    let (mut values, port) = hub_values()?;
    values.extend([
        format!("config.namespace={CONFIGS}"),
        "followSeconds=0".to_owned(),
    ]);
    release(cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
    let mut hub = deployed(cluster, NAMESPACE, "nabu-hub").await?;
    hub.start().await?;
    let mut agent = start_agent(cluster, (&pki, NAMESPACE, "circle"), port).await?;

    ask(cluster, "circle-first", "circle").await?;
    let status = cluster.finished("circle-first", LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    let opened = repository.pull_requests().await?;
    assert_eq!(opened.len(), 1, "{opened:?}");
    // The forge tells its own address, not that of the proxy before it.
    let path = |url: &Value| {
        url.as_str().and_then(|url| {
            url.split_once("/ninsun-labs/")
                .map(|(_, path)| path.to_owned())
        })
    };
    assert_eq!(path(&status["providerRef"]), path(&opened[0]["html_url"]));
    let branch = opened[0]["head"]["ref"].as_str().context("no branch")?;
    let file = repository.file(branch, "circle-first.yaml").await?;
    assert_eq!(file.as_deref(), Some("a: 1\n"));

    // Of Secrets, the hub reads those beside its documents, and not those beside itself: there is the key of its authority.
    let client = client_as(cluster, NAMESPACE, "nabu-hub").await?;
    let own: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(forbidden(own.list(&ListParams::default()).await));
    assert!(forbidden(own.get("nabu-hub-tls").await));
    let documents: Api<Secret> = Api::namespaced(client, CONFIGS);
    assert!(documents.list(&ListParams::default()).await.is_ok());

    // An attempt that does not come to its end holds nobody up for longer than the pod has.
    proxy.add(Fault::HoldBefore(proxy.requests() + 1));
    ask(cluster, "circle-second", "circle").await?;
    proxy.reached().await?;
    let ended = hub.stop()?;
    assert!(ended.success(), "{ended}: {}", hub.log());
    proxy.release();
    hub.start().await?;
    let status = cluster.finished("circle-second", LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert_eq!(repository.pull_requests().await?.len(), 2);
    let ended = agent.stop()?;
    assert!(ended.success(), "{ended}: {}", agent.log());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_without_rights_serves_from_its_mounted_folder_and_sees_a_new_token() -> Result<()> {
    const NAMESPACE: &str = "folder";
    let cluster = shared().await;
    let forge = TestForge::shared().await?;
    let repository = forge.create_repository("charts-folder").await?;
    create_namespace(cluster, NAMESPACE)?;
    let pki = Pki::create()?;
    pki.hub_secret(cluster, NAMESPACE)?;
    apply(cluster, &[bot(NAMESPACE, "not-the-token")], &[])?;
    let (mut values, port) = hub_values()?;
    let provider = "config.documents.default.routes[0].provider";
    values.extend([
        "config.source=folder".to_owned(),
        "config.existingSecrets[0].name=bot,config.existingSecrets[0].keys={token}".to_owned(),
        "config.secrets.spare.token=from-the-values".to_owned(),
        format!(
            "{provider}.kind=forgejo-token,{provider}.baseURL={}",
            forge.url()
        ),
        format!(
            "{provider}.repository={},{provider}.baseBranch=main",
            repository.full_name
        ),
        format!("{provider}.credentialsRef.name=bot"),
    ]);
    release(cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
    let mut hub = deployed(cluster, NAMESPACE, "nabu-hub").await?;
    let mut files = BTreeSet::new();
    for name in ["default.yaml", "secrets/bot/token", "secrets/spare/token"] {
        let file = hub.inside("/etc/nabu/config").join(name);
        files.insert(std::fs::read_to_string(&file).with_context(|| file.display().to_string())?);
    }
    assert!(files.contains("not-the-token"), "{files:?}");
    hub.start().await?;
    let _agent = start_agent(cluster, (&pki, NAMESPACE, "folder"), port).await?;

    let tried =
        |status: &Value| status["phase"] == "Succeeded" || status["error"]["reason"].is_string();
    ask(cluster, "folder-first", "folder").await?;
    let status = cluster
        .status_where("folder-first", "was tried", LIMIT, tried)
        .await?;
    assert_ne!(status["phase"], "Succeeded", "{status:#}");
    assert!(repository.pull_requests().await?.is_empty());

    apply(cluster, &[bot(NAMESPACE, forge.token())], &[])?;
    hub.refresh_mounts(cluster).await?;
    let deadline = tokio::time::Instant::now() + LIMIT;
    for round in 0.. {
        let name = format!("folder-again-{round}");
        ask(cluster, &name, "folder").await?;
        let status = cluster
            .status_where(&name, "was tried", LIMIT, tried)
            .await?;
        if status["phase"] == "Succeeded" {
            break;
        }
        ensure!(
            tokio::time::Instant::now() < deadline,
            "the new token is not seen: {status:#}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    assert!(!repository.pull_requests().await?.is_empty());
    Ok(())
}
