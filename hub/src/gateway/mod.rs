//! The agents' door: one session per cluster, frames in, statuses out.
//!
//! The cluster id is read from the verified certificate and from nowhere else. A session ([`session`]) is three small
//! tasks: one reads frames, one stores observations ([`ingest`]), one sends statuses ([`outbox`]). Wire types end in
//! [`convert`]. What to do with a response is none of this module's business: it tells [`crate::execute`] that
//! something was stored, and takes the statuses that come of it.

mod bounds;
mod convert;
mod identity;
mod ingest;
pub mod metrics;
mod outbox;
mod session;
mod trust;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use nabu_common::identity::Identity;
use nabu_common::ids::ClusterId;
use nabu_common::tls::PeerIdentity;
use nabu_proto::agent_v1::agent_service_server::AgentService;
use nabu_proto::agent_v1::{GoodbyeReason, SessionRequest, SessionResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Request, Response, Status, Streaming};

use crate::execute::{Dispatcher, StatusSink};
use crate::store::{ResponseSummary, SharedStore};
use bounds::{Agents, RefusedLately};
pub use identity::Identities;
use metrics::GatewayMetrics;
use outbox::Outbox;

/// Frames for one agent that may wait for its connection.
const OUTGOING: usize = 32;

/// What agents are told in Welcome.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How often agents send a heartbeat.
    pub heartbeat: Duration,
    /// How often agents send their inventory.
    pub resync: Duration,
    /// Observed frames that an agent may send before it needs credit.
    pub credit: u32,
    /// Unfinished responses that one cluster may have; 0 stands for any number.
    pub max_unfinished: u64,
}

/// Everything that sessions share; clones share it too.
#[derive(Clone)]
pub struct Gateway {
    shared: Arc<Shared>,
}

struct Shared {
    store: SharedStore,
    identities: Identities,
    dispatcher: Dispatcher,
    settings: Settings,
    metrics: GatewayMetrics,
    sessions: Mutex<HashMap<ClusterId, Live>>,
    shutdown: CancellationToken,
    tasks: TaskTracker,
    refusals: RefusedLately,
    agents: Agents,
}

/// The live session of a cluster.
struct Live {
    epoch: u64,
    outbox: Arc<Outbox>,
    /// Cancelled when a newer session took over.
    superseded: CancellationToken,
    /// Ends it for another reason.
    dismissal: Arc<identity::Dismissal>,
    said: Said,
    peer: PeerIdentity,
}

/// What the agent of a live session said of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// How far its clock was ahead of ours when the session was opened.
    pub skew: Option<jiff::SignedDuration>,
    /// EventResponses that it holds and we have not accepted; `None` before the first heartbeat.
    pub backlog: Option<u64>,
}

impl Gateway {
    /// A gateway without sessions. They end with `shutdown`.
    pub fn new(
        store: SharedStore,
        identities: Identities,
        dispatcher: Dispatcher,
        settings: Settings,
        metrics: GatewayMetrics,
        shutdown: CancellationToken,
    ) -> Self {
        let shared = Shared {
            store,
            identities,
            dispatcher,
            settings,
            metrics,
            sessions: Mutex::default(),
            shutdown,
            tasks: TaskTracker::new(),
            refusals: RefusedLately::default(),
            agents: Agents::new(settings.heartbeat),
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// Whether a session of the cluster is open.
    pub fn is_connected(&self, cluster: &ClusterId) -> bool {
        self.shared.sessions().contains_key(cluster)
    }

    /// What the agent of a cluster said in its session; `None` without a session.
    pub fn said(&self, cluster: &ClusterId) -> Option<Said> {
        self.shared.sessions().get(cluster).map(|live| live.said)
    }

    /// Until when the certificate of a live session is valid, whoever made it; `None` without one.
    pub fn certified_until(&self, cluster: &ClusterId) -> Option<jiff::Timestamp> {
        let not_after = self.shared.sessions().get(cluster)?.peer.not_after;
        jiff::Timestamp::try_from(not_after).ok()
    }

    /// Waits until all sessions have said goodbye; to be called after `shutdown`.
    pub async fn drained(&self) {
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<ClusterId, Live>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a session the live one of its cluster; `false` if a newer one is live already.
    fn register(&self, cluster: &ClusterId, live: Live) -> bool {
        let mut sessions = self.sessions();
        if sessions
            .get(cluster)
            .is_some_and(|other| other.epoch > live.epoch)
        {
            return false;
        }
        if let Some(older) = sessions.insert(cluster.clone(), live) {
            older.superseded.cancel();
        }
        self.metrics.connected(cluster, true);
        self.metrics
            .sessions
            .set(i64::try_from(sessions.len()).unwrap_or(i64::MAX));
        true
    }

    /// The agent of a live session says how much it holds back.
    fn heard_backlog(&self, cluster: &ClusterId, backlog: u64) {
        self.metrics.backlog(cluster, backlog);
        if let Some(live) = self.sessions().get_mut(cluster) {
            live.said.backlog = Some(backlog);
        }
    }

    fn unregister(&self, cluster: &ClusterId, epoch: u64) {
        let mut sessions = self.sessions();
        if sessions
            .get(cluster)
            .is_some_and(|live| live.epoch == epoch)
        {
            sessions.remove(cluster);
            self.metrics.connected(cluster, false);
        }
        self.metrics
            .sessions
            .set(i64::try_from(sessions.len()).unwrap_or(i64::MAX));
    }
}

impl StatusSink for Gateway {
    fn publish(&self, summary: Arc<ResponseSummary>) {
        // Without a session the store keeps the status until there is one.
        if let Some(live) = self.shared.sessions().get(&summary.key.cluster) {
            live.outbox.publish(summary);
        }
    }
}

#[tonic::async_trait]
impl AgentService for Gateway {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<SessionResponse, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<SessionRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let peer = request.extensions().get::<PeerIdentity>().cloned();
        if let Some(peer) = &peer {
            peer.heard.note();
        }
        let cluster = match &peer {
            Some(PeerIdentity {
                identity: Identity::Cluster(cluster),
                ..
            }) => Some(cluster.clone()),
            _ => None,
        };
        let (Some(peer), Some(cluster)) = (peer, cluster) else {
            self.shared.metrics.refused("NoClusterCertificate");
            return Err(Status::permission_denied(
                "sessions are for agents: the certificate's URI SAN must be spiffe://<trust-domain>/cluster/<cluster-id>",
            ));
        };
        let (outgoing, frames) = mpsc::channel(OUTGOING);
        let session = session::Session::new(Arc::clone(&self.shared), cluster, peer, outgoing);
        self.shared.tasks.spawn(session.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(frames))))
    }
}

/// Why the hub ends a session, in the words of the protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Farewell {
    reason: GoodbyeReason,
    reconnect_after: Duration,
    message: String,
}

impl Farewell {
    fn new(reason: GoodbyeReason, message: impl Into<String>) -> Self {
        Self {
            reason,
            reconnect_after: Duration::ZERO,
            message: message.into(),
        }
    }

    fn after(self, reconnect_after: Duration) -> Self {
        Self {
            reconnect_after,
            ..self
        }
    }
}
