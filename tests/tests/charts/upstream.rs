//! Both charts in a cluster that has ugallu's own CRDs.

use anyhow::Result;
use kube::api::PostParams;
use nabu_tests::charts::kubectl_on;
use nabu_tests::charts::release::{Pki, create_namespace, deployed, hub_values, release};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::wait::eventually;
use serde_json::json;

use crate::bed::LIMIT;

const NAMESPACE: &str = "ugallu-system";

/// The reasons and types of the Kubernetes Events about a document.
fn events(cluster: &TestCluster, name: &str) -> Result<Vec<String>> {
    let selector =
        format!("--field-selector=regarding.kind=GitOpsResponderConfig,regarding.name={name}");
    let output = "-o=jsonpath={range .items[*]}{.type}/{.reason}{\"\\n\"}{end}";
    let arguments = [
        "get",
        "events.events.k8s.io",
        "-n",
        NAMESPACE,
        &selector,
        output,
    ];
    let (said, _) = kubectl_on(&cluster.kubeconfig(), &arguments)?;
    Ok(said.lines().map(str::to_owned).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_reads_documents_of_ugallus_kind_and_tells_in_events_what_it_thinks_of_them()
-> Result<()> {
    let cluster = TestCluster::start(Crds::Upstream).await?;
    create_namespace(&cluster, NAMESPACE)?;
    let crds = "customresourcedefinitions.apiextensions.k8s.io";
    let versions = "-o=jsonpath={.items[*].metadata.uid} {.items[*].metadata.resourceVersion}";
    let before = kubectl_on(&cluster.kubeconfig(), &["get", crds, versions])?;
    Pki::create()?.hub_secret(&cluster, NAMESPACE)?;
    let (values, _) = hub_values()?;
    release(&cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
    assert_eq!(
        kubectl_on(&cluster.kubeconfig(), &["get", crds, versions])?,
        before
    );

    let mut hub = deployed(&cluster, NAMESPACE, "nabu-hub").await?;
    hub.start().await?;
    let spec = |pattern: &str| {
        json!({
            "providers": [{"name": "forge", "type": "forgejo", "host": "git.example.org",
                "auth": {"mode": "pat", "secretRef": {"name": "gitops-bot"}}}],
            "defaultProvider": "forge",
            "defaultRepo": {"owner": "platform", "repo": "gitops", "branch": "main"},
            "bot": {"name": "Nabu", "email": "nabu@example.org"},
            "branchStrategy": {"namingTemplate": pattern},
        })
    };
    for (name, pattern, expected) in [
        ("good", "nabu/{{ .Source.SE.Type }}", "Normal/Valid"),
        ("bad", "nabu/{{ .Source.SE.Type", "Warning/Invalid"),
    ] {
        let document = serde_json::from_value(json!({
            "apiVersion": "security.ugallu.io/v1alpha1",
            "kind": "GitOpsResponderConfig",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec(pattern),
        }))?;
        let documents = cluster.namespaced("GitOpsResponderConfig", NAMESPACE);
        documents.create(&PostParams::default(), &document).await?;
        eventually("the hub says what it thinks", LIMIT, || async {
            (events(&cluster, name).ok()? == [expected]).then_some(())
        })
        .await?;
    }
    Ok(())
}
