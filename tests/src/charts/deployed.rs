//! Runs what a rendered Deployment says, without a kubelet: the container's own arguments, environment and mounted files,
//! and the token of its service account, as a process, with its own probes and the time that it has to end.
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
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::memory::MemoryLimit;
use super::volumes::Mount;
use crate::cluster::TestCluster;
use crate::process::{Process, tail, workspace_binary};
use crate::wait::ready;

/// The name of the pod that there would be.
const POD: &str = "pod-of-the-test";
/// Its UID.
const POD_UID: &str = "00000000-0000-4000-8000-000000000000";

/// The one container of a Deployment or a Pod, as a process.
pub struct Deployed {
    dir: TempDir,
    name: String,
    namespace: String,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    mounts: Vec<Mount>,
    ports: BTreeMap<String, u16>,
    probes: BTreeMap<&'static str, String>,
    grace: Duration,
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
            mounts: Mount::all(pod, container)?,
            ports: BTreeMap::new(),
            probes: BTreeMap::new(),
            // As Kubernetes has it if nobody says.
            grace: Duration::from_secs(pod["terminationGracePeriodSeconds"].as_u64().unwrap_or(30)),
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
        for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
            let asked = &container[probe]["httpGet"];
            if asked.is_object() {
                let port = match &asked["port"] {
                    Value::String(name) => deployed.port(name)?,
                    number => u16::try_from(number.as_u64().context("no port")?)?,
                };
                let url = format!("http://127.0.0.1:{port}{}", text(&asked["path"])?);
                deployed.probes.insert(probe, url);
            }
        }
        if container.get("envFrom").is_some() {
            bail!("envFrom is not supported here");
        }
        for variable in items(&container["env"]) {
            let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
                Some("metadata.name") => POD,
                Some("metadata.uid") => POD_UID,
                Some(other) => bail!("fieldRef {other} is not supported here"),
                None => text(&variable["value"])?,
            };
            let name = text(&variable["name"])?.to_owned();
            deployed.environment.insert(name, value.to_owned());
        }
        deployed.refresh_mounts(cluster).await?;
        if pod["automountServiceAccountToken"] != false {
            let account = text(&pod["serviceAccountName"])?;
            deployed.write_token(cluster, account).await?;
        }
        Ok(deployed)
    }

    /// Gives mounts the files that the cluster has for them now, as a kubelet does some time after a change.
    pub async fn refresh_mounts(&self, cluster: &TestCluster) -> Result<()> {
        for mount in &self.mounts {
            let folder = self.inside(&mount.path);
            mount.write(cluster, &self.namespace, &folder).await?;
        }
        Ok(())
    }

    /// Takes over what is in the claims of another pod, which does not run any more.
    pub fn take_claims(&self, from: &Self) -> Result<()> {
        for mount in self.mounts.iter().filter(|mount| mount.claim) {
            let (old, new) = (from.inside(&mount.path), self.inside(&mount.path));
            std::fs::remove_dir(&new)?;
            std::fs::rename(old, new)?;
        }
        Ok(())
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
        let here = |argument: &String| self.here(argument);
        self.arguments.iter().map(here).collect()
    }

    /// An argument, with the path of a mount in it as it is here.
    pub fn here(&self, argument: &str) -> String {
        let here = |argument: String, mount: &Mount| {
            let inside = self.inside(&mount.path).display().to_string();
            // Not a mount that begins with the name of another one.
            argument.replace(&format!("={}/", mount.path), &format!("={inside}/"))
        };
        let argument = self.mounts.iter().fold(argument.to_owned(), here);
        let whole = self
            .mounts
            .iter()
            .find(|mount| argument.ends_with(&format!("={}", mount.path)));
        whole.map_or(argument.clone(), |mount| {
            let inside = self.inside(&mount.path).display().to_string();
            argument.replace(&mount.path, &inside)
        })
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
    /// any capability, with the container's own paths, and within `memory`. What is mounted to be written to is the same folder as of
    /// [`Deployed::inside`], and belongs to `uid`.
    pub fn launch_in(
        &mut self,
        cluster: &TestCluster,
        image: &Path,
        (uid, memory): (u32, Option<&MemoryLimit>),
    ) -> Result<()> {
        for mount in &self.mounts {
            copy(
                &self.inside(&mount.path),
                &image.join(mount.path.trim_start_matches('/')),
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
        for mount in self.mounts.iter().filter(|mount| mount.writable) {
            let (from, to) = (
                self.inside(&mount.path),
                image.join(mount.path.trim_start_matches('/')),
            );
            own(&from, uid)?;
            let (from, to) = (from.display(), to.display());
            write!(binds, "mount --bind '{from}' '{to}' && ")?;
        }
        let script = format!(
            "if [ -n \"$2\" ]; then echo $$ > \"$2/cgroup.procs\"; fi && mount --bind \"$1\" \"$1\" && \
            mount -o remount,ro,bind \"$1\" && {binds} root=$1 uid=$3 data=$4 && shift 4 && \
            exec ${{data:+prlimit --data=$data --}} unshare --root \"$root\" --setgid \"$uid\" --setuid \"$uid\" -- \"$@\""
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
            .arg(memory.map_or(Path::new(""), MemoryLimit::folder))
            .arg(uid.to_string())
            .arg(memory.map(MemoryLimit::data).unwrap_or_default())
            .arg(format!("/{}", self.name))
            .args(&self.arguments);
        let log = self.dir.path().join("log");
        self.process = Some(Process::start(&self.name, &mut command, &log)?);
        Ok(())
    }

    /// Starts the process and waits until its readiness probe says yes.
    pub async fn start(&mut self) -> Result<()> {
        self.launch()?;
        self.ready(Duration::from_mins(2)).await
    }

    /// Waits until the readiness probe says yes.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let url = self.probe("readinessProbe")?;
        let process = self.process.as_mut().context("it does not run")?;
        let waited = ready(&format!("{} is ready", self.name), process, &url, limit).await;
        waited.with_context(|| tail(&self.log(), 20))?;
        // Whoever is ready is alive, and has started.
        for probe in ["livenessProbe", "startupProbe"] {
            let answer = reqwest::get(self.probe(probe)?).await?;
            anyhow::ensure!(answer.status().is_success(), "{probe}: {answer:?}");
        }
        Ok(())
    }

    /// The address of a probe.
    pub fn probe(&self, name: &str) -> Result<String> {
        let url = self.probes.get(name).cloned();
        url.with_context(|| format!("the container has no {name}"))
    }

    /// SIGTERM, and the time that a kubelet gives before it kills: an error if that is not enough.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        let grace = self.grace;
        let mut process = self.process.take().context("it does not run")?;
        process.terminate(grace)
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

/// Copies a folder, readable for whoever the program runs as.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("..") {
            continue;
        }
        let target = to.join(name);
        // What a link leads to.
        if std::fs::metadata(entry.path())?.is_dir() {
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

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn text(value: &Value) -> Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}
