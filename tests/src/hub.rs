//! A hub for a test: the real binary as a process, with its own PKI, store and configuration folder.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_hub::pki::{Authority, Subject};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};

use crate::process::{Process, free_port, workspace_binary};
use crate::wait::ready;

/// How a hub is started, beside what every test needs.
#[derive(Clone, Debug, Default)]
pub struct HubOptions {
    /// More arguments for `nabu-hub`.
    pub arguments: Vec<String>,
    /// More environment variables.
    pub environment: Vec<(String, String)>,
    /// Watches objects of the cluster in `KUBECONFIG` instead of reading the folder.
    pub watch_config: bool,
    /// Certifies agents and administrators by its built-in authority, instead of using files.
    pub certifies: bool,
}

impl HubOptions {
    /// With the built-in authority, and these further arguments.
    pub fn certifying(arguments: &[&str]) -> Self {
        Self {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            certifies: true,
            ..Self::default()
        }
    }

    /// Logs as little as in production.
    pub fn quiet() -> Self {
        let arguments = ["--log-level", "warn"].map(str::to_owned).to_vec();
        Self {
            arguments,
            ..Self::default()
        }
    }
}

/// A running hub; it ends with this value.
pub struct TestHub {
    dir: TempDir,
    authority: Authority,
    options: HubOptions,
    agents_port: u16,
    admin_port: u16,
    ops_port: u16,
    process: Option<Process>,
}

impl TestHub {
    /// Starts a hub with these configuration documents (file name and text) and waits until it is ready.
    pub async fn start(documents: &[(&str, String)], options: HubOptions) -> Result<Self> {
        let mut hub = Self::prepare(documents, options)?;
        hub.start_again().await?;
        Ok(hub)
    }

    /// A hub that is not started yet.
    pub fn prepare(documents: &[(&str, String)], options: HubOptions) -> Result<Self> {
        nabu_common::tls::install_crypto_provider();
        let dir = TempDir::with_prefix("nabu-hub-")?;
        let authority = Authority::create(&dir.path().join("pki"), "nabu")?;
        authority.issue_into(
            &Subject::hub("test")
                .with_ip("127.0.0.1")
                .with_dns("localhost"),
            &dir.path().join("tls"),
        )?;
        authority.issue_into(&Subject::admin("tester"), &dir.path().join("admin"))?;
        std::fs::create_dir(dir.path().join("config"))?;
        let hub = Self {
            dir,
            authority,
            options,
            agents_port: free_port()?,
            admin_port: free_port()?,
            ops_port: free_port()?,
            process: None,
        };
        for (name, text) in documents {
            hub.write_config(name, text)?;
        }
        if hub.options.certifies {
            let key = base64::engine::general_purpose::STANDARD.encode(rand_key()?);
            std::fs::write(hub.sealing_key(), key)?;
            std::fs::remove_dir_all(hub.admin_tls())?;
            hub.init_admin("tester", &hub.admin_tls())?;
        }
        Ok(hub)
    }

    fn sealing_key(&self) -> PathBuf {
        self.dir.path().join("sealing.key")
    }

    /// `nabu-hub init-admin`, on the hub's own machine.
    pub fn init_admin(&self, name: &str, out: &Path) -> Result<()> {
        let output = Command::new(workspace_binary("nabu-hub")?)
            .envs(
                self.options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            )
            .args(["init-admin", name, "--out"])
            .arg(out)
            .arg("--store")
            .arg(self.store_path())
            .arg("--ca-encryption-key-file")
            .arg(self.sealing_key())
            .output()?;
        anyhow::ensure!(
            output.status.success(),
            "init-admin failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Adds a cluster; gives what `nabuctl -o json cluster add` prints.
    pub fn add_cluster(&self, cluster: &str, arguments: &[&str]) -> Result<serde_json::Value> {
        let url = self.agents_url();
        let fixed = [
            "-o",
            "json",
            "cluster",
            "add",
            cluster,
            "--agents-url",
            &url,
        ];
        let printed = self.nabuctl(&[&fixed, arguments].concat())?;
        Ok(serde_json::from_str(&printed)?)
    }

    /// Writes a configuration document, in one step, as a mount of a Secret or a careful editor would.
    pub fn write_config(&self, name: &str, text: &str) -> Result<()> {
        let folder = self.dir.path().join("config");
        let new = self.dir.path().join("config.new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, folder.join(name))?;
        Ok(())
    }

    /// Starts the hub, with what it had before, and waits until it is ready.
    pub async fn start_again(&mut self) -> Result<()> {
        self.launch()?;
        let url = format!("{}/readyz", self.ops_url());
        let process = self.process()?;
        ready("the hub is ready", process, &url, Duration::from_mins(2)).await
    }

    /// Starts the process without waiting.
    pub fn launch(&mut self) -> Result<()> {
        let tls = self.dir.path().join("tls");
        let mut command = Command::new(workspace_binary("nabu-hub")?);
        command
            .arg("--listen-agents")
            .arg(format!("127.0.0.1:{}", self.agents_port))
            .arg("--listen-admin")
            .arg(format!("127.0.0.1:{}", self.admin_port))
            .arg("--listen-ops")
            .arg(format!("127.0.0.1:{}", self.ops_port))
            .arg("--store")
            .arg(self.store_path())
            .env("NABU_LOG_LEVEL", "info,nabu_hub=debug")
            .args(&self.options.arguments)
            .envs(
                self.options
                    .environment
                    .iter()
                    .map(|(name, value)| (name, value)),
            );
        if self.options.certifies {
            command
                .arg("--ca-encryption-key-file")
                .arg(self.sealing_key())
                .args(["--server-name", "127.0.0.1", "--server-name", "localhost"]);
        } else {
            command
                .arg("--tls-ca")
                .arg(tls.join("ca.crt"))
                .arg("--tls-cert")
                .arg(tls.join("tls.crt"))
                .arg("--tls-key")
                .arg(tls.join("tls.key"));
        }
        if !self.options.watch_config {
            command.arg("--config-dir").arg(self.config_dir());
        }
        self.process = Some(Process::start("nabu-hub", &mut command, &self.log_path())?);
        Ok(())
    }

    /// `kill -9`.
    pub fn kill(&mut self) -> Result<()> {
        self.process.take().context("the hub does not run")?.kill()
    }

    /// SIGTERM; gives the exit status.
    pub fn stop(&mut self) -> Result<ExitStatus> {
        self.process
            .take()
            .context("the hub does not run")?
            .terminate(Duration::from_secs(30))
    }

    /// The running process.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("the hub does not run")
    }

    /// Where agents dial.
    pub fn agents_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.agents_port)
    }

    /// Where administrators dial.
    pub fn admin_url(&self) -> String {
        format!("https://127.0.0.1:{}", self.admin_port)
    }

    /// Where `/livez`, `/readyz` and `/metrics` are.
    pub fn ops_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ops_port)
    }

    /// A connection of an administrator.
    pub async fn admin_channel(&self) -> Result<Channel> {
        nabu_common::tls::install_crypto_provider();
        let tls = ClientTls::load(TlsFiles::in_folder(&self.admin_tls()))?;
        let endpoint = Endpoint::from_shared(self.admin_url())?;
        Ok(endpoint.connect_with_connector(tls.connector(None)).await?)
    }

    /// The folder with an administrator's `ca.crt`, `tls.crt` and `tls.key`.
    pub fn admin_tls(&self) -> PathBuf {
        self.dir.path().join("admin")
    }

    /// The database.
    pub fn store_path(&self) -> PathBuf {
        self.dir.path().join("nabu.db")
    }

    /// The configuration folder.
    pub fn config_dir(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// A folder of the hub that lives as long as it.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("hub.log")
    }

    /// Everything that the hub has logged, over restarts.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.log_path()).unwrap_or_default()).into_owned()
    }

    /// Makes a certificate for the agent of a cluster; gives the folder with its files.
    pub fn issue_agent(&self, cluster: &str) -> Result<PathBuf> {
        let folder = self.dir.path().join("agents").join(cluster);
        self.authority
            .issue_into(&Subject::cluster(&cluster.parse()?), &folder)?;
        Ok(folder)
    }

    /// Makes a certificate for an administrator; gives the folder with its files.
    pub fn issue_admin(&self, name: &str) -> Result<PathBuf> {
        let folder = self.dir.path().join("admins").join(name);
        self.authority.issue_into(&Subject::admin(name), &folder)?;
        Ok(folder)
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
        Ok(value_of(&self.metrics().await?, series))
    }

    /// Runs nabuctl against this hub; its standard output, or an error with its standard error.
    pub fn nabuctl(&self, arguments: &[&str]) -> Result<String> {
        self.nabuctl_at(&self.admin_url(), arguments)
    }

    /// The same at another address of this hub.
    pub fn nabuctl_at(&self, url: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(workspace_binary("nabuctl")?)
            .args(["--hub", url, "--tls-dir"])
            .arg(self.admin_tls())
            .args(arguments)
            .output()?;
        anyhow::ensure!(
            output.status.success(),
            "nabuctl {arguments:?} failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

fn rand_key() -> Result<[u8; 32]> {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).map_err(|_| anyhow::anyhow!("no random numbers"))?;
    Ok(key)
}

/// The value of one series in the text of `/metrics`; 0 if it is not there.
pub(crate) fn value_of(text: &str, series: &str) -> f64 {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}
