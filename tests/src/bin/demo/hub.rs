//! The hub and the agents of the demo: started by hand, or (`CHARTS=1`) from what the Helm charts render.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nabu_hub::pki::Subject;
use nabu_tests::agent::TestAgent;
use nabu_tests::charts::deployed::Deployed;
use nabu_tests::charts::release::{
    Pki, agent_values, apply, create_namespace, deployed, hub_values, release,
};
use nabu_tests::cluster::TestCluster;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::process::workspace_binary;
use serde_json::Value;

const NAMESPACE: &str = "nabu-system";
const CONFIG_NAMESPACE: &str = "ugallu-system";

/// A hub.
pub(crate) enum Hub {
    Plain(Box<TestHub>),
    Chart(Box<Chart>),
}

/// A hub from its chart, in the first cluster.
pub(crate) struct Chart {
    pki: Pki,
    hub: Deployed,
    admin: PathBuf,
}

/// An agent; it ends with this value.
#[expect(dead_code, reason = "they are only held")]
pub(crate) enum Agent {
    Plain(Box<TestAgent>),
    Chart(Box<Deployed>),
}

impl Hub {
    /// Starts a hub with these documents; with the charts, as objects of `cluster`.
    pub(crate) async fn start(
        charts: bool,
        cluster: &TestCluster,
        documents: &[(&str, String)],
    ) -> Result<Self> {
        if !charts {
            let hub = TestHub::start(documents, HubOptions::certifying(&[])).await?;
            return Ok(Self::Plain(Box::new(hub)));
        }
        for namespace in [NAMESPACE, CONFIG_NAMESPACE] {
            create_namespace(cluster, namespace)?;
        }
        let objects: Result<Vec<Value>, _> = documents
            .iter()
            .map(|(_, text)| serde_saphyr::from_str(text))
            .collect();
        apply(cluster, &objects?, &[])?;
        let pki = Pki::create()?;
        pki.hub_secret(cluster, NAMESPACE)?;
        let admin = pki.secret(cluster, NAMESPACE, "admin", &Subject::admin("demo"))?;
        let (mut values, _) = hub_values()?;
        values.push(format!("config.namespace={CONFIG_NAMESPACE}"));
        release(cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
        let mut hub = deployed(cluster, NAMESPACE, "nabu-hub").await?;
        hub.start().await?;
        Ok(Self::Chart(Box::new(Chart { pki, hub, admin })))
    }

    /// Starts the agent of a cluster.
    pub(crate) async fn start_agent(&self, cluster: &TestCluster, id: &str) -> Result<Agent> {
        match self {
            Self::Plain(hub) => {
                let agent = TestAgent::join(cluster, id, hub, &["--leader-elect=false"]).await?;
                Ok(Agent::Plain(Box::new(agent)))
            }
            Self::Chart(chart) => {
                create_namespace(cluster, NAMESPACE)?;
                chart.pki.agent_secret(cluster, NAMESPACE, id)?;
                let port = chart.hub.port("agents")?;
                let values = agent_values(id, crate::RESPONDER, port)?;
                release(cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
                let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
                agent.start().await?;
                Ok(Agent::Chart(Box::new(agent)))
            }
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        match self {
            Self::Plain(hub) => hub.kill(),
            Self::Chart(chart) => chart.hub.kill(),
        }
    }

    /// Starts it with what it had before.
    pub(crate) async fn start_again(&mut self) -> Result<()> {
        match self {
            Self::Plain(hub) => hub.start_again().await,
            Self::Chart(chart) => chart.hub.start().await,
        }
    }

    /// Runs nabuctl.
    pub(crate) fn nabuctl(&self, arguments: &[&str]) -> Result<String> {
        let output = Command::new(workspace_binary("nabuctl")?)
            .args(["--hub", &self.admin_url()?, "--tls-dir"])
            .arg(self.admin_tls())
            .args(arguments)
            .output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "nabuctl {arguments:?} failed: {errors}"
        );
        String::from_utf8(output.stdout).context("nabuctl does not write text")
    }

    /// Where administrators dial.
    pub(crate) fn admin_url(&self) -> Result<String> {
        match self {
            Self::Plain(hub) => Ok(hub.admin_url()),
            Self::Chart(chart) => Ok(format!("https://127.0.0.1:{}", chart.hub.port("admin")?)),
        }
    }

    /// The folder with an administrator's certificate.
    pub(crate) fn admin_tls(&self) -> PathBuf {
        match self {
            Self::Plain(hub) => hub.admin_tls(),
            Self::Chart(chart) => chart.admin.clone(),
        }
    }

    /// Where the configuration can be edited.
    pub(crate) fn configuration(&self) -> String {
        match self {
            Self::Plain(hub) => hub.config_dir().display().to_string(),
            Self::Chart(_) => {
                format!("gitopsresponderconfigs in namespace {CONFIG_NAMESPACE} of prod-eu")
            }
        }
    }
}
