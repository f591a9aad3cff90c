//! Requests that pull requests cost, on a real Gitea.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::row;
use crate::agent::TestAgent;
use crate::cluster::{Crds, TestCluster};
use crate::forge::TestForge;
use crate::hub::{HubOptions, TestHub};
use crate::objects::{config, event_response, security_event, token_secret, write_file};

const COUNT: u32 = 40;

pub(super) async fn run() -> Result<()> {
    let (cluster, forge) = tokio::try_join!(TestCluster::start(Crds::Nabu), TestForge::start())?;
    let repository = forge.create_repository("bench").await?;
    let route = format!(
        "  routes:\n    - provider: {{ kind: forgejo-token, baseURL: \"{}\", repository: {}, baseBranch: main, \
        credentialsRef: {{ name: bot }} }}\n",
        forge.url(),
        repository.full_name
    );
    let documents = [
        ("config.yaml", config(&route)),
        ("secret.yaml", token_secret("bot", forge.token())),
    ];
    let mut hub = TestHub::start(&documents, HubOptions::quiet()).await?;
    let agent = TestAgent::start(&cluster, "bench", &hub, &["--leader-elect=false"]).await?;
    cluster
        .create_security_event("se", security_event("ClusterAdminGranted", "evil"))
        .await?;
    let started = Instant::now();
    for number in 0..COUNT {
        let parameters = write_file("revoke", &format!("rbac/{number}.yaml"), "gone: true\n");
        let spec = event_response("se", "ugallu-gitops-responder", parameters);
        cluster
            .create_event_response(&format!("er-{number}"), spec)
            .await?;
    }
    for number in 0..COUNT {
        cluster
            .finished(&format!("er-{number}"), Duration::from_mins(5))
            .await?;
    }
    let taken = started.elapsed();
    let requests = requests(&hub).await?;
    row(
        "requests per new pull request, Gitea",
        &format!("{:.2}", requests / f64::from(COUNT)),
        "3",
    );
    row(
        "pull requests on one Gitea repository",
        &format!("{:.1}/s", f64::from(COUNT) / taken.as_secs_f64()),
        "",
    );
    // The same EventResponses, seen by a hub that has its store, and by one that has lost it.
    hub.stop()?;
    hub.start_again().await?;
    drop(agent);
    let agent = TestAgent::start(&cluster, "bench", &hub, &["--leader-elect=false"]).await?;
    row(
        "requests per pull request, run again with the store intact",
        &format!("{:.2}", self::requests(&hub).await? / f64::from(COUNT)),
        "0",
    );
    drop(agent);
    Ok(())
}

/// All requests to the forge since the hub was started.
async fn requests(hub: &TestHub) -> Result<f64> {
    let text = hub.metrics().await?;
    let counts = text
        .lines()
        .filter(|line| line.starts_with("nabu_hub_forge_requests_total"));
    let values = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    Ok(values.fold(0.0, |sum, value| sum + value))
}
