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
    tls: PathBuf,
    ops_port: u16,
    arguments: Vec<String>,
    log_level: &'static str,
    process: Option<Process>,
}

impl TestAgent {
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
        Ok(Self {
            dir: TempDir::with_prefix("nabu-agent-")?,
            cluster_id: cluster_id.to_owned(),
            kubeconfig: cluster.kubeconfig(),
            hub_url: hub.agents_url(),
            tls: hub.issue_agent(cluster_id)?,
            ops_port: free_port()?,
            arguments: arguments.iter().map(ToString::to_string).collect(),
            log_level: "info,nabu_agent=debug",
            process: None,
        })
    }

    /// Speaks to another address than the hub's own: a proxy in between.
    pub fn with_hub_url(mut self, url: &str) -> Self {
        url.clone_into(&mut self.hub_url);
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
        self.ready(Duration::from_secs(30)).await
    }

    /// Starts the process without waiting.
    pub fn launch(&mut self) -> Result<()> {
        let mut command = Command::new(workspace_binary("nabu-agent")?);
        command
            .args(["--cluster-id", &self.cluster_id, "--hub", &self.hub_url])
            .arg("--listen")
            .arg(format!("127.0.0.1:{}", self.ops_port))
            .arg("--tls-ca")
            .arg(self.tls.join("ca.crt"))
            .arg("--tls-cert")
            .arg(self.tls.join("tls.crt"))
            .arg("--tls-key")
            .arg(self.tls.join("tls.key"))
            .env("NABU_LOG_LEVEL", self.log_level)
            .args(&self.arguments)
            .env("KUBECONFIG", &self.kubeconfig);
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
            .terminate(Duration::from_secs(10))
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
