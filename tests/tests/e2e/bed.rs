//! Servers that tests share, and a hub with agents for one test.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::forge::TestForge;
use nabu_tests::hub::{HubOptions, TestHub};
use serde_json::Value;
use tokio::sync::OnceCell;

/// What must come comes within this time, on a busy machine too.
pub const LIMIT: Duration = Duration::from_secs(60);

static EU: OnceCell<TestCluster> = OnceCell::const_new();
static US: OnceCell<TestCluster> = OnceCell::const_new();
static FORGE: OnceCell<TestForge> = OnceCell::const_new();
static NUMBER: AtomicU32 = AtomicU32::new(0);

/// The first shared cluster. Its process ends with this one, because it reads our end of a pipe.
pub async fn eu() -> &'static TestCluster {
    EU.get_or_init(|| async { TestCluster::start(Crds::Nabu).await.unwrap() })
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
        Self::with_options(documents, HubOptions::default()).await
    }

    /// Starts everything, the hub with further arguments.
    pub async fn with_options(documents: &[(&str, String)], options: HubOptions) -> Result<Self> {
        let responder = unique("responder");
        let (eu, us) = tokio::join!(eu(), us());
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
}

/// The message of a condition, if it has this status.
pub fn condition<'a>(status: &'a Value, kind: &str, wanted: &str) -> Option<&'a Value> {
    status["conditions"]
        .as_array()?
        .iter()
        .find(|condition| condition["type"] == kind && condition["status"] == wanted)
}
