//! A Kubernetes cluster for a test: a real API server with its etcd, in one process, on loopback.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::discovery::ApiResource;
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::process::{Process, testbed_path};
use crate::wait::eventually;

/// Which CRDs a cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crds {
    /// Ours, as `make crds` writes them.
    Nabu,
    /// Ours, without the rule that makes `spec` immutable, as the book says how.
    Editable,
    /// An EventResponse kind as ugallu installs it: no `providerRef`, `spec` immutable.
    Upstream,
    /// None yet.
    None,
}

/// A running cluster; it ends with this value.
pub struct TestCluster {
    dir: TempDir,
    process: Option<Process>,
    config: Config,
    /// A client belongs to the runtime that it was made on; tests that share a cluster have one each.
    clients: Mutex<HashMap<tokio::runtime::Id, Client>>,
}

impl TestCluster {
    /// Starts an API server and installs CRDs.
    pub async fn start(crds: Crds) -> Result<Self> {
        let dir = TempDir::with_prefix("nabu-cluster-")?;
        let process = start_server(dir.path()).await?;
        let config = client_config(dir.path()).await?;
        let cluster = Self {
            dir,
            process: Some(process),
            config,
            clients: Mutex::default(),
        };
        cluster.install_crds(crds).await?;
        Ok(cluster)
    }

    /// A client with all rights, for the runtime that asks.
    pub fn client(&self) -> Client {
        let runtime = tokio::runtime::Handle::current().id();
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let make =
            || Client::try_from(self.config.clone()).expect("a client was made of it before");
        clients.entry(runtime).or_insert_with(make).clone()
    }

    /// A kubeconfig file with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("admin.kubeconfig")
    }

    /// A kubeconfig file of somebody without a name and without rights.
    pub fn powerless_kubeconfig(&self) -> Result<PathBuf> {
        let mut config = Kubeconfig::read_from(self.kubeconfig())?;
        for user in &mut config.auth_infos {
            user.auth_info = Some(kube::config::AuthInfo::default());
        }
        let path = self.dir.path().join("powerless.kubeconfig");
        // JSON is YAML.
        std::fs::write(&path, serde_json::to_string(&config)?)?;
        Ok(path)
    }

    /// Stops the API server and its etcd; the data stay.
    pub fn stop(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.terminate(Duration::from_secs(30))?;
        }
        Ok(())
    }

    /// Starts the API server again, with its data and on its old port.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = Some(start_server(self.dir.path()).await?);
        Ok(())
    }

    async fn install_crds(&self, crds: Crds) -> Result<()> {
        let api: Api<CustomResourceDefinition> = Api::all(self.client());
        let documents = match crds {
            Crds::Nabu => nabu_common::crd::all(),
            Crds::Editable => editable_crds()?,
            Crds::Upstream => upstream_crds()?,
            Crds::None => return Ok(()),
        };
        for document in documents {
            let name = document
                .metadata
                .name
                .clone()
                .context("a CRD without a name")?;
            api.create(&PostParams::default(), &document)
                .await
                .with_context(|| format!("create CRD {name}"))?;
            let condition = kube::runtime::wait::conditions::is_crd_established();
            let established = kube::runtime::wait::await_condition(api.clone(), &name, condition);
            tokio::time::timeout(Duration::from_secs(30), established).await??;
        }
        // Established is said a moment before the endpoints are served.
        for kind in ["EventResponse", "SecurityEvent"] {
            let api = self.api(kind);
            eventually(
                &format!("{kind} is served"),
                Duration::from_secs(30),
                || async {
                    api.list(&kube::api::ListParams::default().limit(1))
                        .await
                        .ok()
                },
            )
            .await?;
        }
        Ok(())
    }

    /// The objects of a cluster-scoped kind of ugallu's group.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::all_with(self.client(), &resource(kind))
    }

    /// The objects of a namespaced kind of ugallu's group.
    pub fn namespaced(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client(), namespace, &resource(kind))
    }

    /// Creates a SecurityEvent; gives its UID.
    pub async fn create_security_event(&self, name: &str, spec: Value) -> Result<String> {
        self.create("SecurityEvent", name, json!({}), spec).await
    }

    /// Creates an EventResponse; gives its UID.
    pub async fn create_event_response(&self, name: &str, spec: Value) -> Result<String> {
        self.create("EventResponse", name, json!({}), spec).await
    }

    /// Creates an object with labels; gives its UID.
    pub async fn create(
        &self,
        kind: &str,
        name: &str,
        labels: Value,
        spec: Value,
    ) -> Result<String> {
        let object = serde_json::from_value(json!({
            "apiVersion": "security.ugallu.io/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
        }))?;
        let created = self
            .api(kind)
            .create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("create {kind} {name}"))?;
        created.metadata.uid.context("created without a UID")
    }

    /// Deletes an EventResponse.
    pub async fn delete_event_response(&self, name: &str) -> Result<()> {
        self.api("EventResponse")
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    /// Annotates an EventResponse, as other software does.
    pub async fn annotate(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {key: value}}}));
        self.api("EventResponse")
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Makes an EventResponse ask for something else.
    pub async fn ask_anew(&self, name: &str, parameters: Value) -> Result<()> {
        let replace = json!([
            {"op": "replace", "path": "/spec/action/parameters", "value": parameters},
        ]);
        let patch: Patch<()> = Patch::Json(serde_json::from_value(replace)?);
        self.api("EventResponse")
            .patch(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// `status` of an EventResponse as it is now; null if it has none.
    pub async fn status(&self, name: &str) -> Result<Value> {
        let object = self.api("EventResponse").get(name).await?;
        Ok(object.data.get("status").cloned().unwrap_or_default())
    }

    /// Ends an EventResponse as somebody else would: by a status of another field manager.
    pub async fn end_as_somebody_else(&self, name: &str) -> Result<()> {
        let status = json!({"status": {"phase": "Failed", "outcome": {"type": "Errored", "message": "by hand"}}});
        self.api("EventResponse")
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await?;
        Ok(())
    }

    /// Waits until an EventResponse is in a terminal phase; gives its status.
    pub async fn finished(&self, name: &str, limit: Duration) -> Result<Value> {
        eventually(&format!("{name} ends"), limit, || async {
            let status = self.status(name).await.ok()?;
            matches!(
                status["phase"].as_str(),
                Some("Succeeded" | "Failed" | "Cancelled")
            )
            .then_some(status)
        })
        .await
    }

    /// Waits until an EventResponse has a status for which `wanted` holds; gives it.
    pub async fn status_where(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(&format!("{name} {what}"), limit, || async {
            let status = self.status(name).await.ok()?;
            wanted(&status).then_some(status)
        })
        .await
    }
}

/// A kubeconfig file that names an API server which does not answer.
pub fn unreachable_kubeconfig(folder: &Path) -> Result<PathBuf> {
    let path = folder.join("unreachable.kubeconfig");
    // Nothing listens on the discard port.
    std::fs::write(
        &path,
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
        clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n\
        users: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n",
    )?;
    Ok(path)
}

fn resource(kind: &str) -> ApiResource {
    let gvk = kube::core::GroupVersionKind::gvk("security.ugallu.io", "v1alpha1", kind);
    ApiResource::from_gvk(&gvk)
}

async fn start_server(dir: &Path) -> Result<Process> {
    let mut command = Command::new(testbed_path("apiserver")?);
    command.arg("--data-dir").arg(dir).arg("--exit-with-stdin");
    let log = dir.join("server.log");
    // The log tells of earlier starts too: only what comes after this point counts.
    let seen = std::fs::metadata(&log).map_or(0, |file| file.len());
    let mut process = Process::start("kube-apiserver", &mut command, &log)?;
    let limit = Duration::from_secs(90);
    let ready = eventually("the API server is ready", limit, || {
        let ended = process.assert_running();
        let text = process.output();
        let fresh = text
            .get(usize::try_from(seen).unwrap_or(usize::MAX)..)
            .unwrap_or_default();
        let ready = fresh.lines().any(|line| line.starts_with("ready "));
        async move {
            if ended.is_err() {
                Some(ended)
            } else {
                ready.then_some(Ok(()))
            }
        }
    });
    ready.await??;
    Ok(process)
}

async fn client_config(dir: &Path) -> Result<Config> {
    nabu_common::tls::install_crypto_provider();
    let kubeconfig = Kubeconfig::read_from(dir.join("admin.kubeconfig"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Client::try_from(config.clone())?;
    Ok(config)
}

/// Our CRDs with the book's patch: `spec` may be edited.
fn editable_crds() -> Result<Vec<CustomResourceDefinition>> {
    let mut crds = serde_json::to_value(nabu_common::crd::all())?;
    let rules = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    for crd in crds.as_array_mut().into_iter().flatten() {
        if crd["spec"]["names"]["kind"] != "EventResponse" {
            continue;
        }
        let spec = crd.pointer_mut(rules).and_then(Value::as_object_mut);
        let removed = spec.and_then(|spec| spec.remove("x-kubernetes-validations"));
        removed.context("the CRD has no rule for spec")?;
    }
    Ok(serde_json::from_value(crds)?)
}

/// CRDs in the form of an ugallu installation: written for the tests from its documented fields.
fn upstream_crds() -> Result<Vec<CustomResourceDefinition>> {
    let text = include_str!("../fixtures/upstream-crds.yaml");
    text.split("\n---\n")
        .map(|document| {
            serde_saphyr::from_str(document).context("tests/fixtures/upstream-crds.yaml")
        })
        .collect()
}
