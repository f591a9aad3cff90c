//! The whole circle on `noop`: create an EventResponse, see `Succeeded` through a watch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, stream};

use super::observer::Observer;
use super::{percentiles, row};
use crate::agent::TestAgent;
use crate::cluster::{Crds, TestCluster};
use crate::hub::{HubOptions, TestHub};
use crate::objects::{event_response, noop_config, security_event, write_file};

const RESPONDER: &str = "ugallu-gitops-responder";
const EVENT: &str = "se-bench";
const LIMIT: Duration = Duration::from_mins(2);
/// Responses that are created at one time in a burst.
const CREATORS: usize = 32;

struct Bench {
    cluster: Arc<TestCluster>,
    hub: TestHub,
    agent: TestAgent,
}

pub(super) async fn run() -> Result<()> {
    let cluster = Arc::new(TestCluster::start(Crds::Nabu).await?);
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], HubOptions::quiet()).await?;
    let agent = TestAgent::prepare(&cluster, "bench", &hub, &["--leader-elect=false"])?.quiet();
    let mut bench = Bench {
        cluster,
        hub,
        agent,
    };
    bench.agent.start_again().await?;
    bench
        .cluster
        .create_security_event(EVENT, security_event("ClusterAdminGranted", "evil"))
        .await?;
    bench.memory("at start")?;
    // Connections, caches and prepared statements are there before anything counts.
    bench.burst("warm", 50).await?;
    bench.latency().await?;
    bench.patches().await?;
    bench.bursts().await?;
    bench.annotated().await?;
    bench.memory("after these runs")?;
    bench.restarts().await?;
    bench.many_finished().await
}

impl Bench {
    async fn create(cluster: &TestCluster, name: &str) -> Result<()> {
        let parameters = write_file("revoke", "rbac/evil.yaml", "gone: true\n");
        cluster
            .create_event_response(name, event_response(EVENT, RESPONDER, parameters))
            .await?;
        Ok(())
    }

    /// Open loop: the next one is created when its time has come, whatever became of the others.
    async fn latency(&mut self) -> Result<()> {
        const RATE: u32 = 20;
        const SECONDS: u32 = 60;
        let observer = Observer::start(self.cluster.api("EventResponse")).await?;
        let mut tick = tokio::time::interval(Duration::from_secs(1) / RATE);
        let mut creations = Vec::new();
        for number in 0..RATE * SECONDS {
            tick.tick().await;
            let cluster = Arc::clone(&self.cluster);
            creations.push(tokio::spawn(async move {
                let name = format!("latency-{number}");
                let started = Instant::now();
                Self::create(&cluster, &name).await?;
                anyhow::Ok((name, started, Instant::now()))
            }));
        }
        let ended = observer.all(creations.len(), LIMIT).await?;
        let (mut from_call, mut from_answer) = (Vec::new(), Vec::new());
        for creation in creations {
            let (name, started, created) = creation.await??;
            let (at, phase) = &ended[&name];
            ensure!(phase == "Succeeded", "{name} is {phase}");
            from_call.push(*at - started);
            from_answer.push(at.saturating_duration_since(created));
        }
        row(
            "EventResponse created → status `Succeeded`, noop, 20/s for 60 s, from the create call",
            &percentiles(from_call),
            "p50 ≤ 8 ms, p99 ≤ 25 ms",
        );
        row(
            "the same, from the answer to the create call",
            &percentiles(from_answer),
            "",
        );
        Ok(())
    }

    async fn burst(&self, name: &str, count: usize) -> Result<Duration> {
        let observer = Observer::start(self.cluster.api("EventResponse")).await?;
        let started = Instant::now();
        let created = stream::iter(0..count)
            .map(|number| {
                let cluster = Arc::clone(&self.cluster);
                let name = format!("{name}-{number}");
                async move { Self::create(&cluster, &name).await }
            })
            .buffer_unordered(CREATORS);
        let created: Vec<_> = created.collect().await;
        created.into_iter().collect::<Result<Vec<_>>>()?;
        let ended = observer.all(count, LIMIT).await?;
        let last = ended.values().map(|(at, _)| *at).max().unwrap_or(started);
        Ok(last - started)
    }

    async fn bursts(&mut self) -> Result<()> {
        let mut rates = Vec::new();
        for run in 0..3 {
            let taken = self.burst(&format!("burst{run}"), 1000).await?;
            rates.push(format!("{:.0}/s", 1000.0 / taken.as_secs_f64()));
        }
        row(
            "burst of 1,000 EventResponses in one cluster, three runs",
            &rates.join(", "),
            "≥ 320/s",
        );
        Ok(())
    }

    async fn patches(&self) -> Result<()> {
        let series = "nabu_agent_status_patches_total{result=\"stored\"}";
        let before = self.agent.metric(series).await?;
        let count = 200;
        self.burst("patches", count).await?;
        let written = self.agent.metric(series).await? - before;
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let each = written / count as f64;
        row(
            "status patches per response that succeeds at once",
            &format!("{each:.2}"),
            "≤ 2",
        );
        Ok(())
    }

    async fn annotated(&self) -> Result<()> {
        let observer = Observer::start(self.cluster.api("EventResponse")).await?;
        let names: Vec<_> = (0..100)
            .map(|number| format!("annotated-{number}"))
            .collect();
        let work = stream::iter(&names)
            .map(|name| async move {
                Self::create(&self.cluster, name).await?;
                for turn in 0..15 {
                    self.cluster
                        .annotate(name, "bench", &turn.to_string())
                        .await?;
                }
                anyhow::Ok(())
            })
            .buffer_unordered(20);
        work.collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        let ended = observer.all(names.len(), LIMIT).await?;
        let right = ended
            .values()
            .filter(|(_, phase)| phase == "Succeeded")
            .count();
        row(
            "objects annotated 15 times each while they are worked on",
            &format!("{right} of {} right", names.len()),
            "100 of 100 right",
        );
        Ok(())
    }

    /// From the start of the process to the first result of an EventResponse that waited for it.
    async fn restarts(&mut self) -> Result<()> {
        self.agent.kill()?;
        Self::create(&self.cluster, "after-agent").await?;
        let started = Instant::now();
        self.agent.launch()?;
        self.cluster.finished("after-agent", LIMIT).await?;
        let taken = started.elapsed();
        row(
            "agent killed and started → first result",
            &format!("{:.2} s", taken.as_secs_f64()),
            "≤ 2 s",
        );
        self.agent.ready(LIMIT).await?;

        self.hub.kill()?;
        Self::create(&self.cluster, "after-hub").await?;
        let started = Instant::now();
        self.hub.start_again().await?;
        self.cluster.finished("after-hub", LIMIT).await?;
        let taken = started.elapsed();
        row(
            "hub killed and started → first result",
            &format!("{:.2} s", taken.as_secs_f64()),
            "",
        );
        self.agent.ready(LIMIT).await
    }

    async fn many_finished(&mut self) -> Result<()> {
        let mut finished = 3_500;
        while finished < 10_000 {
            self.burst(&format!("fill{finished}"), 500).await?;
            finished += 500;
        }
        self.memory("with 10,000 finished EventResponses")?;
        self.agent.kill()?;
        Self::create(&self.cluster, "after-many").await?;
        let started = Instant::now();
        self.agent.launch()?;
        self.cluster.finished("after-many", LIMIT).await?;
        let taken = started.elapsed();
        row(
            "agent started beside 10,000 finished EventResponses → first result",
            &format!("{:.2} s", taken.as_secs_f64()),
            "≤ 2 s",
        );
        self.agent.ready(LIMIT).await?;
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.memory("agent started anew beside 10,000 finished EventResponses")
    }

    fn memory(&mut self, when: &str) -> Result<()> {
        let mut figures = Vec::new();
        for (name, process) in [
            ("agent", self.agent.process()?),
            ("hub", self.hub.process()?),
        ] {
            let (now, peak) = process.memory_kib()?;
            figures.push(format!(
                "{name} {} MiB (peak {} MiB, {:.1} s of processor time)",
                now.div_ceil(1024),
                peak.div_ceil(1024),
                process.cpu_time()?.as_secs_f64()
            ));
        }
        row(
            &format!("resident memory {when}"),
            &figures.join("; "),
            "agent ≤ 25 MiB, peak included",
        );
        Ok(())
    }
}
