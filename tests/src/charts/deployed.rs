//! Runs what a rendered Deployment says, without a kubelet: the container's own arguments, environment and mounted files,
//! and the token of its service account, as a process.
//!
//! Mounts become folders below one root; a path of a mount in an argument or a variable is one of that root then.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cluster::TestCluster;
use crate::process::{Process, tail, workspace_binary};
use crate::wait::ready;

/// The name of the pod that there would be.
const POD: &str = "pod-of-the-test";

/// The one container of a Deployment or a Pod, as a process.
pub struct Deployed {
    dir: TempDir,
    name: String,
    namespace: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    mounts: Vec<String>,
    writable: Vec<String>,
    ports: BTreeMap<String, u16>,
    token: Option<String>,
    process: Option<Process>,
}

impl Deployed {
    /// Reads a Deployment, and the Secrets and ConfigMaps that it mounts from the cluster; starts nothing.
    pub async fn prepare(cluster: &TestCluster, deployment: &Value) -> Result<Self> {
        let namespace = text(&deployment["metadata"]["namespace"])?.to_owned();
        let pod = match deployment["kind"].as_str() {
            Some("Pod") => &deployment["spec"],
            _ => &deployment["spec"]["template"]["spec"],
        };
        let container = &pod["containers"][0];
        let dir = TempDir::with_prefix("nabu-deployed-")?;
        let mut deployed = Self {
            dir,
            name: text(&container["image"])?.to_owned(),
            namespace,
            arguments: Vec::new(),
            environment: BTreeMap::new(),
            mounts: Vec::new(),
            writable: Vec::new(),
            ports: BTreeMap::new(),
            token: None,
            process: None,
        };
        // The image's entry point has the image's name.
        deployed.name = deployed
            .name
            .split(['@', ':'])
            .next()
            .and_then(|image| image.rsplit('/').next())
            .context("an image without a name")?
            .to_owned();
        for argument in items(&container["args"]) {
            deployed.arguments.push(text(argument)?.to_owned());
        }
        for port in items(&container["ports"]) {
            let number = u16::try_from(port["containerPort"].as_u64().context("no port")?)?;
            deployed
                .ports
                .insert(text(&port["name"])?.to_owned(), number);
        }
        if container.get("envFrom").is_some() {
            bail!("envFrom is not supported here");
        }
        for variable in items(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => POD,
                Some(other) => bail!("fieldRef {other} is not supported here"),
                None => text(&variable["value"])?,
            };
            let name = text(&variable["name"])?.to_owned();
            deployed.environment.insert(name, value.to_owned());
        }
        deployed.write_volumes(cluster, pod, container).await?;
        if pod["automountServiceAccountToken"] != false {
            let account = text(&pod["serviceAccountName"])?;
            deployed.write_token(cluster, account).await?;
        }
        Ok(deployed)
    }

    async fn write_volumes(
        &mut self,
        cluster: &TestCluster,
        pod: &Value,
        container: &Value,
    ) -> Result<()> {
        for mount in items(&container["volumeMounts"]) {
            let path = text(&mount["mountPath"])?;
            let folder = self.inside(path);
            std::fs::create_dir_all(&folder)?;
            self.mounts.push(path.to_owned());
            if mount["readOnly"] != true {
                self.writable.push(path.to_owned());
            }
            let volume = items(&pod["volumes"]).find(|volume| volume["name"] == mount["name"]);
            let volume = volume.with_context(|| format!("no volume for the mount {path}"))?;
            let sources = match &volume["projected"]["sources"] {
                Value::Array(sources) => sources.clone(),
                _ => vec![volume.clone()],
            };
            for source in sources {
                for (file, content) in self.files(cluster, &source).await? {
                    let file = folder.join(file);
                    std::fs::create_dir_all(file.parent().context("no folder")?)?;
                    std::fs::write(file, content)?;
                }
            }
        }
        Ok(())
    }

    /// The files of one source of a volume; none for what begins empty.
    async fn files(&self, cluster: &TestCluster, source: &Value) -> Result<Vec<(String, Vec<u8>)>> {
        let data: BTreeMap<String, Vec<u8>> = if let Some(secret) = source.get("secret") {
            let name = text(secret.get("secretName").unwrap_or(&secret["name"]))?;
            let secrets: Api<Secret> = Api::namespaced(cluster.client(), &self.namespace);
            let found = secrets
                .get(name)
                .await
                .with_context(|| format!("Secret {name}"))?;
            let data = found.data.into_iter().flatten();
            data.map(|(key, value)| (key, value.0)).collect()
        } else if let Some(map) = source.get("configMap") {
            let name = text(&map["name"])?;
            let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), &self.namespace);
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

    /// A kubeconfig with a token of the service account, and nothing else to get in by.
    async fn write_token(&mut self, cluster: &TestCluster, account: &str) -> Result<()> {
        let token = service_account_token(cluster, &self.namespace, account).await?;
        let path = self.dir.path().join("kubeconfig");
        write_kubeconfig(cluster, &path, &self.namespace, &token)?;
        let path = path.display().to_string();
        self.environment.insert("KUBECONFIG".to_owned(), path);
        self.token = Some(token);
        Ok(())
    }

    /// Where a path of the container is here.
    pub fn inside(&self, path: &str) -> PathBuf {
        self.dir
            .path()
            .join("root")
            .join(path.trim_start_matches('/'))
    }

    /// The arguments, with the paths of mounts as they are here.
    pub fn arguments(&self) -> Vec<String> {
        let here = |argument: &String| {
            self.mounts
                .iter()
                .fold(argument.clone(), |argument, mount| {
                    let inside = self.inside(mount).display().to_string();
                    argument.replace(&format!("={mount}"), &format!("={inside}"))
                })
        };
        self.arguments.iter().map(here).collect()
    }

    /// Starts the process without waiting.
    pub fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(workspace_binary(&self.name)?);
        command
            .args(self.arguments())
            .env_remove("KUBECONFIG")
            .envs(&self.environment);
        let log = self.dir.path().join("log");
        self.process = Some(Process::start(&self.name, &mut command, &log)?);
        Ok(())
    }

    /// Starts the container's program as a runtime would: in the unpacked image as its only, read-only root, as `uid` without
    /// any capability, with the container's own paths, and within `memory` bytes where a memory cgroup can be made. What is mounted
    /// to be written to is the same folder as of [`Deployed::inside`], and belongs to `uid`.
    pub fn launch_in(
        &mut self,
        cluster: &TestCluster,
        image: &Path,
        (uid, memory): (u32, Option<&MemoryLimit>),
    ) -> Result<()> {
        for mount in &self.mounts {
            copy(
                &self.inside(mount),
                &image.join(mount.trim_start_matches('/')),
            )?;
        }
        let mut command = Command::new("unshare");
        command.env_clear();
        for (name, value) in self
            .environment
            .iter()
            .filter(|(name, _)| *name != "KUBECONFIG")
        {
            command.env(name, value);
        }
        if let Some(token) = &self.token {
            let account = image.join("var/run/secrets/kubernetes.io/serviceaccount");
            std::fs::create_dir_all(&account)?;
            let admin = serde_json::to_value(Kubeconfig::read_from(cluster.kubeconfig())?)?;
            let server = &admin["clusters"][0]["cluster"];
            let authority = text(&server["certificate-authority-data"])?;
            let authority = base64::engine::general_purpose::STANDARD.decode(authority)?;
            std::fs::write(account.join("token"), token)?;
            std::fs::write(account.join("ca.crt"), authority)?;
            std::fs::write(account.join("namespace"), &self.namespace)?;
            let address = text(&server["server"])?.trim_start_matches("https://");
            let (host, port) = address.split_once(':').context("a server without a port")?;
            command
                .env("KUBERNETES_SERVICE_HOST", host)
                .env("KUBERNETES_SERVICE_PORT", port);
        }
        // The shell is of the host; nothing of it is left when the program runs.
        let mut binds = String::new();
        for mount in &self.writable {
            own(&self.inside(mount), uid)?;
            let (from, to) = (
                self.inside(mount),
                image.join(mount.trim_start_matches('/')),
            );
            write!(
                binds,
                "mount --bind '{}' '{}' && ",
                from.display(),
                to.display()
            )?;
        }
        let script = format!(
            "if [ -n \"$2\" ]; then echo $$ > \"$2/cgroup.procs\"; fi && mount --bind \"$1\" \"$1\" && \
            mount -o remount,ro,bind \"$1\" && {binds} root=$1 uid=$3 && shift 3 && \
            exec unshare --root \"$root\" --setgid \"$uid\" --setuid \"$uid\" -- \"$@\""
        );
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .args([
                "--mount",
                "--propagation",
                "private",
                "sh",
                "-c",
                &script,
                "sh",
            ])
            .arg(image)
            .arg(memory.map_or(Path::new(""), |limit| limit.folder.as_path()))
            .arg(uid.to_string())
            .arg(format!("/{}", self.name))
            .args(&self.arguments);
        let log = self.dir.path().join("log");
        self.process = Some(Process::start(&self.name, &mut command, &log)?);
        Ok(())
    }

    /// Starts the process and waits until its readiness probe says yes.
    pub async fn start(&mut self) -> Result<()> {
        self.launch()?;
        self.ready(Duration::from_secs(30)).await
    }

    /// Waits until the readiness probe says yes.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let url = format!("{}/readyz", self.ops_url()?);
        let process = self.process.as_mut().context("it does not run")?;
        let waited = ready(&format!("{} is ready", self.name), process, &url, limit).await;
        waited.with_context(|| tail(&self.log(), 20))
    }

    /// Runs to the end: a Pod of `helm test`. Its names of Services become addresses here.
    pub fn run_to_the_end(&mut self, addresses: &[(String, String)]) -> Result<ExitStatus> {
        for argument in &mut self.arguments {
            for (name, address) in addresses {
                *argument = argument.replace(name, address);
            }
        }
        self.launch()?;
        let process = self.process.as_mut().context("it does not run")?;
        process.wait(Duration::from_mins(1))
    }

    /// The running process.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("it does not run")
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().context("it does not run")?.kill()
    }

    /// Where health and metrics are.
    pub fn ops_url(&self) -> Result<String> {
        Ok(format!("http://127.0.0.1:{}", self.port("metrics")?))
    }

    /// A port of the container.
    pub fn port(&self, name: &str) -> Result<u16> {
        self.ports
            .get(name)
            .copied()
            .with_context(|| format!("no port {name}"))
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

/// A memory cgroup of one test.
pub struct MemoryLimit {
    folder: PathBuf,
}

impl MemoryLimit {
    /// Limits memory to this many bytes; nothing where cgroups cannot be made, as for users without rights.
    pub fn create(bytes: u64) -> Option<Self> {
        let name = format!("nabu-test-{}", std::process::id());
        for (parent, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(parent).join(&name);
            if std::fs::create_dir(&folder).is_ok() {
                let limit = Self { folder };
                if std::fs::write(limit.folder.join(file), bytes.to_string()).is_ok() {
                    return Some(limit);
                }
            }
        }
        None
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Copies a folder, readable for whoever the program runs as.
/// Gives a folder and what is in it to `uid`, as a volume with `fsGroup` is.
fn own(path: &Path, uid: u32) -> Result<()> {
    std::os::unix::fs::chown(path, Some(uid), Some(uid))?;
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            own(&entry?.path(), uid)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            std::fs::write(target, std::fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// A token by the `TokenRequest` API, as a kubelet gets it.
async fn service_account_token(
    cluster: &TestCluster,
    namespace: &str,
    account: &str,
) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), namespace);
    let request: TokenRequest = serde_json::from_value(json!({"spec": {"audiences": []}}))?;
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .with_context(|| format!("a token for {namespace}/{account}"))?;
    Ok(answer.status.context("no token")?.token)
}

/// A client with the token of a service account.
pub async fn client_as(
    cluster: &TestCluster,
    namespace: &str,
    account: &str,
) -> Result<kube::Client> {
    let folder = TempDir::with_prefix("nabu-client-")?;
    let path = folder.path().join("kubeconfig");
    let token = service_account_token(cluster, namespace, account).await?;
    write_kubeconfig(cluster, &path, namespace, &token)?;
    let config = Kubeconfig::read_from(path)?;
    let config =
        kube::Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?;
    Ok(kube::Client::try_from(config)?)
}

/// A kubeconfig file with this token.
fn write_kubeconfig(
    cluster: &TestCluster,
    path: &Path,
    namespace: &str,
    token: &str,
) -> Result<()> {
    let admin = serde_json::to_value(Kubeconfig::read_from(cluster.kubeconfig())?)?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": admin["clusters"][0]["cluster"]}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
    });
    Ok(std::fs::write(path, serde_json::to_string(&config)?)?)
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}
