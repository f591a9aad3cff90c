//! An agent for a test: the real binary as a process, for one test cluster and one hub.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::cluster::TestCluster;
use crate::hub::TestHub;
use crate::process::{Process, free_port, workspace_binary};
use crate::wait::ready;

/// A running agent; it ends with this value.
pub struct TestAgent {
    dir: TempDir,
    cluster_id: String,
    kubeconfig: PathBuf,
    hub_url: String,
    shown: Shown,
    ops_port: u16,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    log_level: &'static str,
    process: Option<Process>,
}

/// How an agent shows who it is.
enum Shown {
    /// By files in a folder.
    Files(PathBuf),
    /// By what it enrols for with the token in its folder.
    Joined { pins: String, place: Vec<String> },
}

impl TestAgent {
    /// Starts an agent that enrols with a join token and keeps its identity in a folder, and waits until it is in session.
    pub async fn join(
        cluster: &TestCluster,
        cluster_id: &str,
        hub: &TestHub,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut agent = Self::prepare_join(cluster, cluster_id, hub, None, arguments)?;
        agent.start_again().await?;
        Ok(agent)
    }

    /// The same, not started; with an identity in a Secret if one is named.
    pub fn prepare_join(
        cluster: &TestCluster,
        cluster_id: &str,
        hub: &TestHub,
        secret: Option<&str>,
        arguments: &[&str],
    ) -> Result<Self> {
        let added = hub.add_cluster(cluster_id, &[])?;
        let mut agent = Self::prepare_with(cluster, cluster_id, hub, PathBuf::new(), arguments)?;
        let pins: Vec<_> = added["caPins"]
            .as_array()
            .context("no pins")?
            .iter()
            .collect();
        let pins: Vec<_> = pins.iter().filter_map(|pin| pin.as_str()).collect();
        let place = if let Some(name) = secret {
            vec!["--identity-secret".to_owned(), name.to_owned()]
        } else {
            let folder = agent.state_dir().display().to_string();
            vec!["--state-dir".to_owned(), folder]
        };
        agent.shown = Shown::Joined {
            pins: pins.join(","),
            place,
        };
        agent.give_token(added["token"].as_str().context("no token")?)?;
        Ok(agent)
    }

    /// Where an agent that enrols keeps its identity, unless it does so in a Secret.
    pub fn state_dir(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    /// Where the agent reads its join token.
    pub fn token_file(&self) -> PathBuf {
        self.dir.path().join("token")
    }

    /// Puts a join token there.
    pub fn give_token(&self, token: &str) -> Result<()> {
        Ok(std::fs::write(self.token_file(), token)?)
    }

    /// Starts the agent of `cluster` under this cluster id and waits until it is in session.
    pub async fn start(
        cluster: &TestCluster,
        cluster_id: &str,
        hub: &TestHub,
        arguments: &[&str],
    ) -> Result<Self> {
        let mut agent = Self::prepare(cluster, cluster_id, hub, arguments)?;
        agent.start_again().await?;
        Ok(agent)
    }

    /// An agent that is not started yet.
    pub fn prepare(
        cluster: &TestCluster,
        cluster_id: &str,
        hub: &TestHub,
        arguments: &[&str],
    ) -> Result<Self> {
        let tls = hub.issue_agent(cluster_id)?;
        Self::prepare_with(cluster, cluster_id, hub, tls, arguments)
    }

    fn prepare_with(
        cluster: &TestCluster,
        cluster_id: &str,
        hub: &TestHub,
        tls: PathBuf,
        arguments: &[&str],
    ) -> Result<Self> {
        Ok(Self {
            dir: TempDir::with_prefix("nabu-agent-")?,
            cluster_id: cluster_id.to_owned(),
            kubeconfig: cluster.kubeconfig(),
            hub_url: hub.agents_url(),
            shown: Shown::Files(tls),
            ops_port: free_port()?,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: Vec::new(),
            log_level: "info,nabu_agent=debug",
            process: None,
        })
    }

    /// Speaks to another address than the hub's own: a proxy in between.
    pub fn with_hub_url(mut self, url: &str) -> Self {
        url.clone_into(&mut self.hub_url);
        self
    }

    /// With a clock that is off by so many seconds; time-outs are as they are.
    pub fn with_clock_off(mut self, seconds: i32) -> Result<Self> {
        let off = if seconds < 0 { "" } else { "+" };
        for (name, value) in [
            ("LD_PRELOAD", faketime()?.display().to_string()),
            ("FAKETIME", format!("{off}{seconds}s")),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ] {
            self.environment.push((name.to_owned(), value));
        }
        Ok(self)
    }

    /// In a pod, as the environment tells.
    pub fn in_pod(mut self, name: &str, uid: &str) -> Self {
        for (variable, value) in [("POD_NAME", name), ("POD_UID", uid)] {
            self.environment
                .push((variable.to_owned(), value.to_owned()));
        }
        self
    }

    /// Logs as little as in production.
    pub fn quiet(mut self) -> Self {
        self.log_level = "warn";
        self
    }

    /// Starts the process and waits until it is in session.
    pub async fn start_again(&mut self) -> Result<()> {
        self.launch()?;
        self.ready(Duration::from_mins(2)).await
    }

    /// Starts the process without waiting.
    pub fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(workspace_binary("nabu-agent")?);
        command
            .args(["--cluster-id", &self.cluster_id, "--hub", &self.hub_url])
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.ops_port))
            .env("NABU_LOG_LEVEL", self.log_level)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("KUBECONFIG", &self.kubeconfig);
        match &self.shown {
            Shown::Files(tls) => {
                command
                    .arg("--tls-ca")
                    .arg(tls.join("ca.crt"))
                    .arg("--tls-cert")
                    .arg(tls.join("tls.crt"))
                    .arg("--tls-key")
                    .arg(tls.join("tls.key"));
            }
            Shown::Joined { pins, place } => {
                command
                    .args(place)
                    .args(["--hub-ca-pin", pins, "--join-token-file"])
                    .arg(self.token_file());
            }
        }
        self.process = Some(Process::start(
            "nabu-agent",
            &mut command,
            &self.dir.path().join("agent.log"),
        )?);
        Ok(())
    }

    /// Waits until `/readyz` says yes: the watch and the session are up.
    pub async fn ready(&mut self, limit: Duration) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/readyz", self.ops_port);
        let process = self.process.as_mut().context("the agent does not run")?;
        ready("the agent is ready", process, &url, limit).await
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.process
            .take()
            .context("the agent does not run")?
            .kill()
    }

    /// SIGTERM; gives the exit status.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process
            .take()
            .context("the agent does not run")?
            .terminate(Duration::from_secs(30))
    }

    /// The running process.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the agent does not run")
    }

    /// Everything that the agent has logged, over restarts.
    pub fn log(&self) -> String {
        let log = std::fs::read(self.dir.path().join("agent.log"));
        String::from_utf8_lossy(&log.unwrap_or_default()).into_owned()
    }

    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub fn ops_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ops_port)
    }

    /// What `/metrics` says.
    pub async fn metrics(&self) -> Result<String> {
        Ok(
            reqwest::get(format!("http://127.0.0.1:{}/metrics", self.ops_port))
                .await?
                .text()
                .await?,
        )
    }

    /// The value of one series of `/metrics`, by its full name with labels; 0 if it is not there.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        Ok(crate::hub::value_of(&self.metrics().await?, series))
    }
}

/// Where the package `faketime` has its library for programs with threads.
fn faketime() -> Result<PathBuf> {
    let libraries = std::fs::read_dir("/usr/lib")?.filter_map(Result::ok);
    let mut places = libraries.map(|one| one.path().join("faketime/libfaketimeMT.so.1"));
    let found = places.find(|place| place.exists());
    found.context("libfaketime is missing; `make prerequisites` installs it")
}
