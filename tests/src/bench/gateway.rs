//! The hub alone: agents that are simulated, over mutual TLS, with `noop` and the real store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use nabu_common::canonical::spec_hash;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    Applied, Hello, ObjectRef, Observed, Phase, ResponseObjects, SessionRequest, SessionResponse,
    observed,
};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use super::row;
use crate::hub::{HubOptions, TestHub};
use crate::objects::{event_response, noop_config, security_event, write_file};

/// Agents that send as fast as their credit allows.
const BUSY_AGENTS: u32 = 20;
/// Responses of each.
const RESPONSES: u32 = 1000;
/// Agents that only keep a session.
const IDLE_AGENTS: u32 = 1000;

pub(super) async fn run() -> Result<()> {
    let mut hub =
        TestHub::start(&[("config.yaml", noop_config("o/r"))], HubOptions::quiet()).await?;
    let before = hub.process()?.cpu_time()?;
    let ended = Arc::new(AtomicU64::new(0));
    let mut agents = Vec::new();
    for number in 0..BUSY_AGENTS {
        agents.push(Agent::connect(&hub, &format!("busy-{number}")).await?);
    }
    let started = Instant::now();
    let running: Vec<_> = agents
        .into_iter()
        .map(|agent| tokio::spawn(agent.work(RESPONSES, Arc::clone(&ended))))
        .collect();
    for agent in running {
        agent.await??;
    }
    let taken = started.elapsed();
    let count = f64::from(BUSY_AGENTS * RESPONSES);
    let cpu = hub.process()?.cpu_time()?.saturating_sub(before);
    row(
        "hub throughput, noop, SQLite, 20 simulated agents, 20,000 responses to their final status",
        &format!(
            "{:.0}/s ({:.0} µs of the hub's processor time each)",
            count / taken.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / count
        ),
        "≥ 2,000/s",
    );
    idle().await
}

async fn idle() -> Result<()> {
    let mut hub =
        TestHub::start(&[("config.yaml", noop_config("o/r"))], HubOptions::quiet()).await?;
    let (before, _) = hub.process()?.memory_kib()?;
    let mut agents = Vec::new();
    for number in 0..IDLE_AGENTS {
        agents.push(Agent::connect(&hub, &format!("idle-{number}")).await?);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (after, _) = hub.process()?.memory_kib()?;
    row(
        &format!("hub memory for each of {IDLE_AGENTS} idle agents"),
        &format!(
            "{} KiB",
            after.saturating_sub(before) / u64::from(IDLE_AGENTS)
        ),
        "≤ 40 KiB",
    );
    drop(agents);
    Ok(())
}

/// One simulated agent in session.
struct Agent {
    frames: mpsc::Sender<SessionRequest>,
    answers: Streaming<SessionResponse>,
    credit: u32,
}

impl Agent {
    async fn connect(hub: &TestHub, cluster: &str) -> Result<Self> {
        let tls = ClientTls::load(TlsFiles::in_folder(&hub.issue_agent(cluster)?))?;
        let endpoint = Endpoint::from_shared(hub.agents_url())?;
        let channel = endpoint.connect_with_connector(tls.connector(None)).await?;
        let (frames, outgoing) = mpsc::channel(256);
        let hello = Hello {
            protocol_version: PROTOCOL_VERSION,
            kube_system_uid: cluster.to_owned(),
            status_window: 1024,
            ..Hello::default()
        };
        frames
            .send(SessionRequest {
                frame: Some(Frame::Hello(hello)),
            })
            .await?;
        let mut client = AgentServiceClient::new(channel);
        let mut answers = client
            .session(ReceiverStream::new(outgoing))
            .await?
            .into_inner();
        match answers.message().await?.and_then(|answer| answer.frame) {
            Some(Answer::Welcome(welcome)) => Ok(Self {
                frames,
                answers,
                credit: welcome.credit,
            }),
            other => bail!("the hub did not say Welcome: {other:?}"),
        }
    }

    /// Sends so many observations and acknowledges statuses until all are final.
    async fn work(mut self, count: u32, ended: Arc<AtomicU64>) -> Result<()> {
        let (mut sent, mut succeeded) = (0, 0);
        while succeeded < count {
            while self.credit > 0 && sent < count {
                sent += 1;
                self.credit -= 1;
                self.send(Frame::Observed(observation(sent))).await?;
            }
            let answer = self
                .answers
                .message()
                .await?
                .context("the hub ended the session")?;
            match answer.frame {
                Some(Answer::Credit(credit)) => self.credit += credit.observed,
                Some(Answer::Status(status)) => {
                    let uid = status.r#ref.clone().unwrap_or_default().uid;
                    self.send(Frame::Applied(Applied {
                        uid,
                        revision: status.revision,
                    }))
                    .await?;
                    if status.phase() == Phase::Succeeded {
                        succeeded += 1;
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                    ensure!(status.phase() != Phase::Failed, "{:?}", status.error);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn send(&self, frame: Frame) -> Result<()> {
        Ok(self
            .frames
            .send(SessionRequest { frame: Some(frame) })
            .await?)
    }
}

fn observation(number: u32) -> Observed {
    let (uid, name) = (
        format!("00000000-0000-4000-8000-{number:012}"),
        format!("er-{number}"),
    );
    let parameters = write_file("revoke", "rbac/evil.yaml", "gone: true\n");
    let spec = event_response("se", "ugallu-gitops-responder", parameters);
    let hash = spec_hash(&spec);
    let object = json!({"metadata": {"name": name, "uid": uid, "generation": 1}, "spec": spec});
    let event =
        json!({"metadata": {"name": "se"}, "spec": security_event("ClusterAdminGranted", "evil")});
    Observed {
        r#ref: Some(ObjectRef { uid, name }),
        generation: 1,
        responder_name: "ugallu-gitops-responder".to_owned(),
        cluster_id: String::new(),
        spec_hash: hash.to_vec().into(),
        content: Some(observed::Content::Objects(ResponseObjects {
            event_response_json: object.to_string().into(),
            security_event_json: event.to_string().into(),
            security_event_absence: 0,
        })),
    }
}
