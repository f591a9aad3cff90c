//! The volumes of a pod without a kubelet: which files a mount has, and how they get there and change.
//!
//! Files of Secrets, ConfigMaps and projected volumes are laid out as a kubelet does it: in a hidden folder, with links through `..data`, so that
//! a change is one rename.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use serde_json::Value;

use super::deployed::{items, text};
use crate::cluster::TestCluster;

/// The link that a kubelet moves when files change.
const DATA: &str = "..data";

/// A mount of the container.
pub(super) struct Mount {
    /// Where it is in the container.
    pub(super) path: String,
    /// Whether it is a claim, which outlives the pod.
    pub(super) claim: bool,
    /// Whether the container may write to it.
    pub(super) writable: bool,
    sources: Vec<Value>,
}

impl Mount {
    /// The mounts of a container.
    pub(super) fn all(pod: &Value, container: &Value) -> Result<Vec<Self>> {
        let mount = |mount: &Value| {
            let path = text(&mount["mountPath"])?;
            let volume = items(&pod["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let volume = volume.with_context(|| format!("no volume for the mount {path}"))?;
            let sources = match &volume["projected"]["sources"] {
                Value::Array(sources) => sources.clone(),
                _ => vec![volume.clone()],
            };
            Ok(Self {
                path: path.to_owned(),
                writable: mount["readOnly"] != true,
                claim: volume.get("persistentVolumeClaim").is_some(),
                sources,
            })
        };
        items(&container["volumeMounts"]).map(mount).collect()
    }

    /// Writes the files that the cluster has for it now; a mount that begins empty stays as it is.
    pub(super) async fn write(
        &self,
        cluster: &TestCluster,
        namespace: &str,
        folder: &Path,
    ) -> Result<()> {
        std::fs::create_dir_all(folder)?;
        let mut files = Vec::new();
        for source in &self.sources {
            files.extend(files_of(cluster, namespace, source).await?);
        }
        if files.is_empty() {
            return Ok(());
        }
        let hidden = tempfile::Builder::new().prefix("..").tempdir_in(folder)?;
        let hidden = hidden.keep();
        for (file, content) in &files {
            let file = hidden.join(file);
            std::fs::create_dir_all(file.parent().context("no folder")?)?;
            std::fs::write(file, content)?;
        }
        let old = std::fs::read_link(folder.join(DATA)).ok();
        let link = folder.join("..data_tmp");
        std::os::unix::fs::symlink(hidden.file_name().context("no name")?, &link)?;
        std::fs::rename(link, folder.join(DATA))?;
        for entry in std::fs::read_dir(&hidden)? {
            let name = entry?.file_name();
            if std::fs::symlink_metadata(folder.join(&name)).is_err() {
                std::os::unix::fs::symlink(Path::new(DATA).join(&name), folder.join(&name))?;
            }
        }
        if let Some(old) = old {
            std::fs::remove_dir_all(folder.join(old))?;
        }
        Ok(())
    }
}

/// The files of one source of a volume; none for what begins empty, or is optional and not there.
async fn files_of(
    cluster: &TestCluster,
    namespace: &str,
    source: &Value,
) -> Result<Vec<(String, Vec<u8>)>> {
    let data: BTreeMap<String, Vec<u8>> = if let Some(secret) = source.get("secret") {
        let name = text(secret.get("secretName").unwrap_or(&secret["name"]))?;
        let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
        let found = secrets.get_opt(name).await?;
        if found.is_none() && secret["optional"] == true {
            return Ok(Vec::new());
        }
        let found = found.with_context(|| format!("there is no Secret {name}"))?;
        let data = found.data.into_iter().flatten();
        data.map(|(key, value)| (key, value.0)).collect()
    } else if let Some(map) = source.get("configMap") {
        let name = text(&map["name"])?;
        let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), namespace);
        let found = maps
            .get(name)
            .await
            .with_context(|| format!("ConfigMap {name}"))?;
        let data = found.data.into_iter().flatten();
        data.map(|(key, value)| (key, value.into_bytes())).collect()
    } else {
        return Ok(Vec::new());
    };
    let chosen = source.get("secret").or(source.get("configMap"));
    let Some(chosen) = chosen.and_then(|source| source["items"].as_array()) else {
        return Ok(data.into_iter().collect());
    };
    let file = |item: &Value| {
        let key = text(&item["key"])?;
        let content = data.get(key).with_context(|| format!("no key {key}"))?;
        Ok((text(&item["path"])?.to_owned(), content.clone()))
    };
    chosen.iter().map(file).collect()
}
