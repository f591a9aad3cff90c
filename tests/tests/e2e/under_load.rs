//! Everything that can happen to identities, while responses keep coming: certificates that live for seconds, a revocation
//! with its end, and a rotation of the authority. The forge counts the pull requests.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::TestCluster;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, forge_config, token_secret};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::wait::eventually;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::bed::{LIMIT, eu, small_change, unique, us};
use crate::enrolment::logs;

/// So many come at once.
const AT_ONCE: usize = 2;
/// How long the next ones wait at most for the end of these: the load goes on while nobody is served, and does not outrun a
/// forge on a busy machine.
const PAUSE: Duration = Duration::from_secs(6);
const RENEWALS: &str = "nabu_agent_certificate_renewals_total";

/// EventResponses that are created in one cluster, some at a time, until somebody wants them all.
pub(crate) struct Load {
    cluster: &'static TestCluster,
    /// Names of those that are created.
    names: watch::Receiver<Vec<String>>,
    enough: CancellationToken,
    task: JoinHandle<Result<()>>,
}

impl Load {
    pub(crate) fn start(cluster: &'static TestCluster, responder: &str) -> Self {
        let (sender, names) = watch::channel(Vec::new());
        let responder = responder.to_owned();
        let enough = CancellationToken::new();
        let wanted = enough.clone();
        let task = tokio::spawn(async move {
            while !wanted.is_cancelled() {
                let mut last = String::new();
                for _ in 0..AT_ONCE {
                    last = unique("er");
                    let spec = event_response("se", &responder, small_change());
                    cluster.create_event_response(&last, spec).await?;
                    sender.send_modify(|names| names.push(last.clone()));
                }
                let served = tokio::time::timeout(PAUSE, cluster.finished(&last, PAUSE));
                let _ = wanted.run_until_cancelled(served).await;
            }
            Ok(())
        });
        Self {
            cluster,
            names,
            enough,
            task,
        }
    }

    /// The next one that is created after this call.
    async fn next(&self) -> Result<String> {
        let known = self.names.borrow().len();
        let mut names = self.names.clone();
        // The one after the next: that one may be on its way to the API server already.
        let names = names.wait_for(|names| names.len() > known + 1).await?;
        names.last().cloned().context("no name")
    }

    /// Waits until one that is created from now on has succeeded.
    pub(crate) async fn goes_on(&self) -> Result<()> {
        let name = self.next().await?;
        let status = self.cluster.finished(&name, LIMIT).await?;
        ensure!(status["phase"] == "Succeeded", "{name}: {status:#}");
        Ok(())
    }

    /// Ends it; gives the names of all that were created.
    pub(crate) async fn end(self) -> Result<Vec<String>> {
        ensure!(!self.task.is_finished(), "the load has ended by itself");
        // What is being created is waited for: the hub hears of it.
        self.enough.cancel();
        self.task.await??;
        Ok(self.names.borrow().clone())
    }

    /// Ends it, and waits for all that were created; gives the addresses of their pull requests.
    async fn all(self) -> Result<Vec<String>> {
        let cluster = self.cluster;
        let mut urls = Vec::new();
        for name in &self.end().await? {
            let status = cluster.finished(name, LIMIT).await?;
            ensure!(status["phase"] == "Succeeded", "{name}: {status:#}");
            ensure!(status["attempts"] == 1, "{name}: {status:#}");
            let url = status["providerRef"].as_str().context("no address")?;
            urls.push(url.to_owned());
        }
        Ok(urls)
    }
}

/// Waits until an agent has renewed so many certificates since it was started.
async fn renewed(agent: &TestAgent, times: f64) -> Result<()> {
    eventually("certificates are renewed", LIMIT, || async {
        (agent.metric(RENEWALS).await.ok()? >= times).then_some(())
    })
    .await
}

async fn row(hub: &TestHub, cluster: &str, wanted: impl Fn(&Value) -> bool) -> Result<()> {
    eventually(&format!("the state of {cluster}"), LIMIT, || async {
        let listed = hub.nabuctl(&["-o", "json", "cluster", "list"]).ok()?;
        let listed: Value = serde_json::from_str(&listed).ok()?;
        let mut rows = listed.as_array()?.iter();
        rows.find(|row| row["clusterId"] == cluster && wanted(row))
            .map(drop)
    })
    .await
}

fn rotation(hub: &TestHub, step: &str) -> Result<Value> {
    let printed = hub.nabuctl(&["-o", "json", "ca", "rotate", step])?;
    Ok(serde_json::from_str(&printed)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn renewals_a_revocation_and_a_rotation_under_load_lose_and_double_nothing() -> Result<()> {
    let github = TestGithub::start().await?;
    let repository = github.create_repository("ninsun-labs/gitops").await?;
    let documents = [
        (
            "config.yaml",
            forge_config("github-token", github.url(), "ninsun-labs/gitops"),
        ),
        ("secret.yaml", token_secret("bot", github.token())),
    ];
    let arguments = [
        "--agent-certificate-lifetime",
        "15s",
        "--github-per-minute",
        "0",
        "--github-per-hour",
        "0",
    ];
    let hub = TestHub::start(&documents, HubOptions::certifying(&arguments)).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut first = TestAgent::join(eu().await, "prod-eu", &hub, &arguments).await?;
    let second = TestAgent::join(us().await, "prod-us", &hub, &arguments).await?;
    let first_load = Load::start(eu().await, &responder);
    let second_load = Load::start(us().await, &responder);
    renewed(&first, 1.0).await?;
    renewed(&second, 1.0).await?;

    // One is out, and the other goes on.
    hub.nabuctl(&["cluster", "revoke", "prod-eu"])?;
    row(&hub, "prod-eu", |row| row["connected"] == false).await?;
    let waits = first_load.next().await?;
    second_load.goes_on().await?;
    second_load.goes_on().await?;
    let status = eu().await.status(&waits).await?;
    ensure!(status.is_null(), "a revoked cluster is served: {status:#}");
    row(&hub, "prod-us", |row| row["state"] == "Active").await?;

    // Its certificate may run out meanwhile. An operator gives another token, and does not wait for the end of the minute
    // that the agent was told to keep away.
    hub.nabuctl(&["cluster", "restore", "prod-eu"])?;
    let added = hub.add_cluster("prod-eu", &[])?;
    first.stop()?;
    first.give_token(added["token"].as_str().context("no token")?)?;
    first.start_again().await?;
    let back = first_load.goes_on().await;
    back.with_context(|| logs(&hub, &first))?;

    let before = rotation(&hub, "status")?["authorities"][0]["pin"].clone();
    rotation(&hub, "start")?;
    eventually("nobody needs the old authority", LIMIT, || async {
        let status = rotation(&hub, "status").ok()?;
        status["waitingFor"].as_array()?.is_empty().then_some(())
    })
    .await?;
    let after = rotation(&hub, "finish")?;
    ensure!(after["authorities"][0]["pin"] != before, "{after:#}");
    for (agent, load) in [(&first, &first_load), (&second, &second_load)] {
        let renewals = agent.metric(RENEWALS).await?;
        let renewed = renewed(agent, renewals + 1.0).await;
        renewed.with_context(|| logs(&hub, agent))?;
        load.goes_on().await.with_context(|| logs(&hub, agent))?;
    }

    let mut urls = first_load.all().await?;
    urls.extend(second_load.all().await?);
    let pulls = repository.pulls()?;
    let opened = pulls
        .iter()
        .map(|pull| pull.number)
        .collect::<BTreeSet<_>>();
    let told = urls.iter().map(|url| {
        let number = url.rsplit('/').next().unwrap_or_default();
        number.parse::<u64>()
    });
    let told = told.collect::<Result<BTreeSet<_>, _>>()?;
    ensure!(told.len() == urls.len(), "two share a pull request");
    ensure!(opened == told, "{:?}", opened.symmetric_difference(&told));
    let heads = pulls.iter().map(|pull| &pull.head).collect::<BTreeSet<_>>();
    ensure!(heads.len() == pulls.len(), "two of one branch");
    ensure!(github.violations().is_empty(), "{:?}", github.violations());
    let listed = hub.nabuctl(&["-o", "name", "response", "list", "--limit", "100000"])?;
    ensure!(listed.lines().count() == urls.len());
    Ok(())
}
