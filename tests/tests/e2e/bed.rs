//! Servers that tests share, and a hub with agents for one test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::fault_proxy::FaultProxy;
use nabu_tests::forge::TestForge;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{
    event_response, forgejo_config, security_event, webhook_secret, write_file,
};
use nabu_tests::repository::TestRepository;
use nabu_tests::wait::eventually;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// What must come comes within this time, on a busy machine too.
pub const LIMIT: Duration = Duration::from_mins(2);

/// What the forge of a [`ForgeBed`] signs webhooks with; the hub knows it from its start.
pub const WEBHOOK_SECRET: &str = "loopback-only-2";

/// The action of the example's route.
pub const ACTION: &str = "revoke-clusterrolebinding";

static EU: OnceCell<TestCluster> = OnceCell::const_new();
static US: OnceCell<TestCluster> = OnceCell::const_new();
static FORGE: OnceCell<TestForge> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The first shared cluster, where a `spec` may be edited. Its process ends with this one, because it reads our end of a
/// pipe.
pub async fn eu() -> &'static TestCluster {
    EU.get_or_init(|| async { TestCluster::start(Crds::Editable).await.unwrap() })
        .await
}

/// The second shared cluster.
pub async fn us() -> &'static TestCluster {
    US.get_or_init(|| async { TestCluster::start(Crds::Nabu).await.unwrap() })
        .await
}

/// The shared forge.
pub async fn forge() -> &'static TestForge {
    FORGE
        .get_or_init(|| async { TestForge::start().await.unwrap() })
        .await
}

/// A name that no other test uses.
pub fn unique(prefix: &str) -> String {
    format!("{prefix}-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// A hub with agents on both shared clusters, for responses of one responder name.
pub struct Bed {
    pub responder: String,
    pub hub: TestHub,
    pub eu: TestAgent,
    pub us: TestAgent,
}

impl Bed {
    /// Starts everything with these configuration documents.
    pub async fn start(documents: &[(&str, String)]) -> Result<Self> {
        Self::start_with(documents, &[]).await
    }

    /// The same with more arguments for the hub.
    pub async fn start_with(documents: &[(&str, String)], arguments: &[&str]) -> Result<Self> {
        let responder = unique("responder");
        let (eu, us) = tokio::join!(eu(), us());
        let options = HubOptions {
            arguments: arguments.iter().map(ToString::to_string).collect(),
            ..HubOptions::default()
        };
        let hub = TestHub::start(documents, options).await?;
        let arguments = ["--responder", &responder, "--leader-elect=false"];
        let eu = TestAgent::start(eu, "prod-eu", &hub, &arguments).await?;
        let us = TestAgent::start(us, "prod-us", &hub, &arguments).await?;
        Ok(Self {
            responder,
            hub,
            eu,
            us,
        })
    }

    /// Creates a SecurityEvent and an EventResponse on a cluster; gives the name and UID of the latter.
    pub async fn ask(&self, cluster: &TestCluster, parameters: Value) -> Result<(String, String)> {
        self.ask_with(cluster, parameters, json!({})).await
    }

    /// The same with a retry policy.
    pub async fn ask_with(
        &self,
        cluster: &TestCluster,
        parameters: Value,
        retry: Value,
    ) -> Result<(String, String)> {
        let (event, name) = (unique("se"), unique("er"));
        let spec = security_event("ClusterAdminGranted", "evil-binding");
        cluster.create_security_event(&event, spec).await?;
        let mut spec = event_response(&event, &self.responder, parameters);
        spec["retryPolicy"] = retry;
        let uid = cluster.create_event_response(&name, spec).await?;
        Ok((name, uid))
    }

    /// What nabuctl knows of a response.
    pub fn explain(&self, cluster: &str, name: &str) -> Result<Value> {
        let text = self
            .hub
            .nabuctl(&["-o", "json", "response", "get", cluster, name])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Waits until nabuctl knows of a response something for which `wanted` holds.
    pub async fn explained(
        &self,
        cluster: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        eventually(&format!("{name} {what}"), LIMIT, || async {
            self.explain(cluster, name)
                .ok()
                .filter(|answer| wanted(answer))
        })
        .await
    }
}

/// A bed whose route goes to a repository of the real forge, through a proxy.
pub struct ForgeBed {
    pub bed: Bed,
    pub repository: TestRepository,
    pub proxy: FaultProxy,
}

impl ForgeBed {
    /// Starts everything on a repository of its own.
    pub async fn start() -> Result<Self> {
        Self::start_with("", &[]).await
    }

    /// The same with more fields of the route, indented by six, and more arguments for the hub.
    pub async fn start_with(route: &str, arguments: &[&str]) -> Result<Self> {
        let forge = forge().await;
        let repository = forge.create_repository(&unique("gitops")).await?;
        let proxy = FaultProxy::start(&forge.url()).await?;
        let documents = [
            (
                "config.yaml",
                forgejo_config(&proxy.url(), &repository.full_name) + route,
            ),
            (
                "secret.yaml",
                webhook_secret("bot", forge.token(), WEBHOOK_SECRET),
            ),
        ];
        let bed = Bed::start_with(&documents, arguments).await?;
        Ok(Self {
            bed,
            repository,
            proxy,
        })
    }

    /// Fails unless the status shows the only pull request of the repository.
    pub async fn assert_the_one_pull_request(&self, status: &Value) -> Result<()> {
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        let pull_requests = self.repository.pull_requests().await?;
        let urls: Vec<_> = pull_requests.iter().map(|one| &one["html_url"]).collect();
        assert_eq!(urls, [&status["providerRef"]], "{status:#}");
        Ok(())
    }
}

/// Parameters of a small change that the example's route takes.
pub fn small_change() -> Value {
    write_file(ACTION, "rbac/evil-binding.yaml", "revoked: true\n")
}

/// A condition, if it has this status.
pub fn condition<'a>(status: &'a Value, kind: &str, wanted: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind && condition["status"] == wanted)
}

/// The message of the commit at the tip of a branch.
pub async fn commit_of(repository: &TestRepository, branch: &str) -> Result<String> {
    Ok(repository
        .commit(branch)
        .await
        .context("no such branch")?
        .message)
}
