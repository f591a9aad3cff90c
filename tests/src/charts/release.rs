//! What a release needs beside its chart: namespaces, certificates in Secrets, values for loopback, helm itself.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use nabu_hub::pki::{Authority, Subject};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::deployed::Deployed;
use super::{folder, helm, helm_on, kubectl_on, object, objects, path};
use crate::cluster::TestCluster;
use crate::process::free_port;

/// Applies objects.
pub fn apply(cluster: &TestCluster, objects: &[Value], flags: &[&str]) -> Result<String> {
    let folder = TempDir::with_prefix("nabu-apply-")?;
    let file = folder.path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, serde_json::to_vec(&list)?)?;
    let mut arguments = vec![
        "apply",
        "--server-side",
        "--force-conflicts",
        "-f",
        path(&file)?,
    ];
    arguments.extend(flags);
    let (output, warnings) = kubectl_on(&cluster.kubeconfig(), &arguments)?;
    Ok(output + &warnings)
}

/// A namespace in which the API server enforces the Pod Security Standard `restricted`.
pub fn create_namespace(cluster: &TestCluster, name: &str) -> Result<()> {
    let levels =
        ["enforce", "warn", "audit"].map(|mode| format!("pod-security.kubernetes.io/{mode}"));
    let labels: serde_json::Map<_, _> = levels
        .into_iter()
        .map(|label| (label, json!("restricted")))
        .collect();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    apply(cluster, &[namespace], &[]).map(drop)
}

/// An authority, and the Secrets that charts mount.
pub struct Pki {
    dir: TempDir,
    authority: Authority,
}

impl Pki {
    /// A new authority.
    pub fn create() -> Result<Self> {
        nabu_common::tls::install_crypto_provider();
        let dir = TempDir::with_prefix("nabu-pki-")?;
        let authority = Authority::create(&dir.path().join("ca"), "nabu")?;
        Ok(Self { dir, authority })
    }

    /// Makes the Secret `name` with a certificate.
    pub fn secret(
        &self,
        cluster: &TestCluster,
        namespace: &str,
        name: &str,
        subject: &Subject,
    ) -> Result<PathBuf> {
        let folder = self.dir.path().join(format!("{namespace}-{name}"));
        self.authority.issue_into(subject, &folder)?;
        let secret = tls_secret(&folder, namespace, name)?;
        apply(cluster, &[secret], &[])?;
        Ok(folder)
    }

    /// The Secret of a hub on loopback.
    pub fn hub_secret(&self, cluster: &TestCluster, namespace: &str) -> Result<()> {
        let subject = Subject::hub("test").with_ip("127.0.0.1");
        self.secret(cluster, namespace, "nabu-hub-tls", &subject)?;
        Ok(())
    }

    /// The Secret of an agent.
    pub fn agent_secret(&self, cluster: &TestCluster, namespace: &str, id: &str) -> Result<()> {
        let subject = Subject::cluster(&id.parse()?);
        self.secret(cluster, namespace, &format!("{id}-tls"), &subject)?;
        Ok(())
    }
}

/// A Secret with the three files of a folder.
pub fn tls_secret(folder: &Path, namespace: &str, name: &str) -> Result<Value> {
    let file = |name: &str| std::fs::read_to_string(folder.join(name));
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
        "stringData": {"ca.crt": file("ca.crt")?, "tls.crt": file("tls.crt")?, "tls.key": file("tls.key")?},
    }))
}

/// Values with which the hub listens on free ports of loopback; its port for agents, too.
pub fn hub_values() -> Result<(Vec<String>, u16)> {
    let agents = free_port()?;
    let values = vec![
        "listenAddress=127.0.0.1".to_owned(),
        "tls.mode=files".to_owned(),
        "tls.secretName=nabu-hub-tls".to_owned(),
        format!("agents.containerPort={agents}"),
        format!("admin.containerPort={}", free_port()?),
        format!("metrics.containerPort={}", free_port()?),
    ];
    Ok((values, agents))
}

/// Values of an agent that dials this port.
pub fn agent_values(id: &str, responder: &str, hub: u16) -> Result<Vec<String>> {
    Ok(vec![
        "listenAddress=127.0.0.1".to_owned(),
        format!("clusterId={id}"),
        format!("responders={{{responder}}}"),
        format!("hub.url=https://127.0.0.1:{hub}"),
        "identity.mode=files".to_owned(),
        format!("identity.secretName={id}-tls"),
        format!("metrics.containerPort={}", free_port()?),
    ])
}

/// What helm renders for a release, for a cluster.
pub fn render(
    chart: &str,
    release: &str,
    namespace: &str,
    values: &[String],
) -> Result<Vec<Value>> {
    let folder = folder(chart);
    let mut arguments = vec![
        "template",
        release,
        path(&folder)?,
        "--namespace",
        namespace,
        "--no-hooks",
    ];
    for value in values {
        arguments.extend(["--set", value]);
    }
    objects(&helm(&arguments)?)
}

/// Runs helm for a release of a chart (`install`, `upgrade`).
pub fn release(
    cluster: &TestCluster,
    verb: &str,
    (chart, namespace): (&str, &str),
    values: &[String],
) -> Result<String> {
    let folder = folder(chart);
    let mut arguments = vec![verb, chart, path(&folder)?, "--namespace", namespace];
    for value in values {
        arguments.extend(["--set", value]);
    }
    helm_on(&cluster.kubeconfig(), &arguments)
}

/// The Deployment of a release as it is in the cluster, as a process that does not run yet.
pub async fn deployed(cluster: &TestCluster, namespace: &str, name: &str) -> Result<Deployed> {
    let arguments = [
        "get",
        "deployment",
        name,
        "--namespace",
        namespace,
        "-o",
        "json",
    ];
    let (text, _) = kubectl_on(&cluster.kubeconfig(), &arguments)?;
    Deployed::prepare(cluster, &serde_json::from_str(&text)?).await
}

/// The one Deployment among rendered objects.
pub fn deployment(objects: &[Value]) -> Result<&Value> {
    object(objects, "Deployment").context("rendered")
}
