//! Install, the whole circle, `helm test`, upgrade, rollback and uninstall, on an API server that was empty before.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nabu_hub::pki::Subject;
use nabu_tests::charts::deployed::Deployed;
use nabu_tests::charts::release::{
    Pki, agent_values, create_namespace, deployed, hub_values, release,
};
use nabu_tests::charts::{helm_on, kubectl_on, objects};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::objects::{event_response, security_event, write_file};
use nabu_tests::process::{repository_root, workspace_binary};
use nabu_tests::wait::eventually;
use serde_json::Value;

use crate::bed::LIMIT;

const NAMESPACE: &str = "nabu-system";
const NOOP: &str = "config.documents.default.routes[0].provider";

/// The names of everything in the cluster.
fn everything(cluster: &TestCluster) -> Result<BTreeSet<String>> {
    let kubeconfig = cluster.kubeconfig();
    let (kinds, _) = kubectl_on(
        &kubeconfig,
        &["api-resources", "--verbs=list", "-o", "name"],
    )?;
    // Events expire, and the API server keeps its own list of what it serves.
    let kinds: Vec<_> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("events") && !kind.starts_with("apiservices"))
        .collect();
    let template = "{range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}{\"\\n\"}{end}";
    let output = format!("jsonpath={template}");
    let (names, _) = kubectl_on(
        &kubeconfig,
        &["get", &kinds.join(","), "--all-namespaces", "-o", &output],
    )?;
    let passing =
        |name: &&str| !name.starts_with("Lease/kube-system") && !name.contains("IPAddress");
    Ok(names.lines().filter(passing).map(str::to_owned).collect())
}

fn helm_in(cluster: &TestCluster, arguments: &[&str]) -> Result<String> {
    let mut all = arguments.to_vec();
    all.extend(["--namespace", NAMESPACE]);
    helm_on(&cluster.kubeconfig(), &all)
}

/// The Pod of `helm test`, run as a process.
async fn helm_test(cluster: &TestCluster, name: &str, address: &str) -> Result<bool> {
    let hooks = objects(&helm_in(cluster, &["get", "hooks", name])?)?;
    let pod = hooks
        .iter()
        .find(|hook| hook["kind"] == "Pod")
        .context("no Pod")?;
    let service = format!(
        "{name}-metrics.{NAMESPACE}:{}",
        if name == "nabu-hub" { 8080 } else { 8081 }
    );
    let mut test = Deployed::prepare(cluster, pod).await?;
    Ok(test
        .run_to_the_end(&[(service, address.to_owned())])?
        .success())
}

async fn ask(cluster: &TestCluster, name: &str) -> Result<Value> {
    let event = format!("se-{name}");
    cluster
        .create_security_event(&event, security_event("ClusterAdminGranted", "evil"))
        .await?;
    let change = write_file("any", "a.yaml", "a: 1\n");
    cluster
        .create_event_response(name, event_response(&event, "lifecycle", change))
        .await?;
    cluster.finished(name, LIMIT).await
}

/// The next pod of the hub, on the volume of the one before, whose end it waits for.
async fn next_pod(cluster: &TestCluster, hub: &mut Deployed) -> Result<Deployed> {
    let ended = hub.stop()?;
    ensure!(ended.success(), "{ended}: {}", hub.log());
    let mut next = deployed(cluster, NAMESPACE, "nabu-hub").await?;
    next.take_claims(hub)?;
    next.start().await?;
    Ok(next)
}

/// Whether the hub knows these responses.
fn knows(hub: &Deployed, admin: &Path, names: &[&str]) -> Result<bool> {
    let url = format!("https://127.0.0.1:{}", hub.port("admin")?);
    let output = Command::new(workspace_binary("nabuctl")?)
        .args(["--hub", &url, "--tls-dir"])
        .arg(admin)
        .args(["-o", "json", "response", "list"])
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{errors}");
    let listed = String::from_utf8(output.stdout)?;
    Ok(names
        .iter()
        .all(|name| listed.contains(&format!("\"{name}\""))))
}

/// What stays is what the book says.
fn assert_left(left: &BTreeSet<String>) -> Result<()> {
    let crd = |name: &str| format!("CustomResourceDefinition//{name}.security.ugallu.io");
    let asked = ["first", "second", "third"].iter().flat_map(|name| {
        [
            format!("EventResponse//{name}"),
            format!("SecurityEvent//se-{name}"),
        ]
    });
    let expected: BTreeSet<_> = ["eventresponses", "securityevents", "gitopsresponderconfigs"]
        .map(crd)
        .into_iter()
        .chain(asked)
        .chain([
            format!("PersistentVolumeClaim/{NAMESPACE}/nabu-hub-data"),
            format!("Lease/{NAMESPACE}/nabu-agent"),
        ])
        .collect();
    assert_eq!(*left, expected);
    let book = std::fs::read_to_string(repository_root().join("docs/src/installation/upgrade.md"))?;
    for said in ["nabu-hub-data", "the Lease `nabu-agent`", "CRDs"] {
        assert!(book.contains(said), "{said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn releases_come_work_change_and_go_and_leave_what_the_book_says() -> Result<()> {
    let cluster = TestCluster::start(Crds::None).await?;
    let pki = Pki::create()?;
    create_namespace(&cluster, NAMESPACE)?;
    pki.hub_secret(&cluster, NAMESPACE)?;
    pki.agent_secret(&cluster, NAMESPACE, "prod-eu")?;
    let admin = pki.secret(&cluster, NAMESPACE, "admin", &Subject::admin("ada"))?;
    let before = everything(&cluster)?;

    let (mut hub_values, port) = hub_values()?;
    let mut values = agent_values("prod-eu", "lifecycle", port)?;
    values.push("test.waitSeconds=2".to_owned());
    let noop = format!("{NOOP}.kind=noop,{NOOP}.repository=o/first,{NOOP}.baseBranch=main");
    hub_values.push(noop);
    let notes = release(&cluster, "install", ("nabu-hub", NAMESPACE), &hub_values)?;
    assert!(
        notes.contains("helm -n nabu-system test nabu-hub"),
        "{notes}"
    );
    let notes = release(&cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
    assert!(notes.contains("logs deployment/nabu-agent"), "{notes}");

    let mut hub = deployed(&cluster, NAMESPACE, "nabu-hub").await?;
    let mut agent = deployed(&cluster, NAMESPACE, "nabu-agent").await?;
    hub.start().await?;
    agent.start().await?;
    for (name, program) in [("nabu-hub", &hub), ("nabu-agent", &agent)] {
        let address = format!("127.0.0.1:{}", program.port("metrics")?);
        assert!(helm_test(&cluster, name, &address).await?, "{name}");
    }
    let status = ask(&cluster, "first").await?;
    assert!(
        status["providerRef"]
            .as_str()
            .unwrap()
            .contains("/o/first/"),
        "{status:#}"
    );

    // A document is read live; a flag needs the new pod.
    hub_values.pop();
    hub_values.push(format!(
        "{NOOP}.kind=noop,{NOOP}.repository=o/second,{NOOP}.baseBranch=main"
    ));
    hub_values.push("maxAttempts=7".to_owned());
    release(&cluster, "upgrade", ("nabu-hub", NAMESPACE), &hub_values)?;
    let configs = cluster.namespaced("GitOpsResponderConfig", NAMESPACE);
    eventually("the new document is in force", LIMIT, || async {
        let config = configs.get("default").await.ok()?;
        let seen = config.data["status"]["observedGeneration"].as_i64();
        (seen == config.metadata.generation).then_some(())
    })
    .await?;
    let mut hub = next_pod(&cluster, &mut hub).await?;
    assert!(hub.arguments().contains(&"--max-attempts=7".to_owned()));
    assert!(knows(&hub, &admin, &["first"])?, "the volume stays");
    let status = ask(&cluster, "second").await?;
    assert!(
        status["providerRef"]
            .as_str()
            .unwrap()
            .contains("/o/second/"),
        "{status:#}"
    );

    helm_in(&cluster, &["rollback", "nabu-hub", "1"])?;
    let mut hub = next_pod(&cluster, &mut hub).await?;
    assert!(hub.arguments().contains(&"--max-attempts=0".to_owned()));
    let status = ask(&cluster, "third").await?;
    assert!(
        status["providerRef"]
            .as_str()
            .unwrap()
            .contains("/o/first/"),
        "{status:#}"
    );
    assert!(knows(&hub, &admin, &["first", "second", "third"])?);
    assert!(!knows(&hub, &admin, &["fourth"])?);

    agent.kill()?;
    hub.kill()?;
    assert!(
        !helm_test(&cluster, "nabu-agent", "127.0.0.1:9").await?,
        "nobody answers"
    );
    for name in ["nabu-agent", "nabu-hub"] {
        helm_in(&cluster, &["uninstall", name])?;
    }
    assert_left(&everything(&cluster)?.difference(&before).cloned().collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_crds_of_ugallu_stay_as_they_are() -> Result<()> {
    let cluster = TestCluster::start(Crds::Upstream).await?;
    create_namespace(&cluster, "ugallu-system")?;
    let crds = |output: &str| {
        let names =
            ["eventresponses", "securityevents"].map(|name| format!("{name}.security.ugallu.io"));
        let arguments = ["get", "crd", &names[0], &names[1], "-o", output];
        Ok::<_, anyhow::Error>(kubectl_on(&cluster.kubeconfig(), &arguments)?.0)
    };
    let versions = "jsonpath={.items[*].metadata.uid} {.items[*].metadata.resourceVersion}";
    let before = crds(versions)?;
    let values = agent_values("prod-eu", "x", 8443)?;
    release(
        &cluster,
        "install",
        ("nabu-agent", "ugallu-system"),
        &values,
    )?;
    helm_on(
        &cluster.kubeconfig(),
        &["uninstall", "nabu-agent", "--namespace", "ugallu-system"],
    )?;
    assert_eq!(crds(versions)?, before);
    Ok(())
}
