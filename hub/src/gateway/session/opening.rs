//! How a session begins: Hello, who is let in, and Welcome.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::session_request::Frame as Incoming;
use nabu_proto::agent_v1::session_response::Frame as Outgoing;
use nabu_proto::agent_v1::{GoodbyeReason, Hello, SessionRequest, Welcome};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Streaming;
use tracing::{info, warn};

use super::ends::{store_failed, superseded};
use super::{OpenSession, Session};
use crate::gateway::identity::{self, RENEWAL};
use crate::gateway::outbox::Outbox;
use crate::gateway::{Farewell, Live, Said, convert, trust};
use crate::store::Registration;
use crate::store::identity::{LONGEST_UID, is_kube_system_uid};

/// How long an agent may take to say Hello.
const HELLO: Duration = Duration::from_secs(10);
/// The window of an agent that names none.
const DEFAULT_WINDOW: u32 = 256;
/// No agent gets more at once.
const LARGEST_WINDOW: u32 = 4096;
/// How long an agent that is not allowed in shall keep away.
const KEEP_AWAY: Duration = Duration::from_mins(1);

/// The capability of agents that can watch finished EventResponses.
const WATCH_FINISHED: &str = "watch-finished";
/// The capability of agents that say what has become of what an inventory left out.
const TELL_MISSING: &str = "tell-missing";

impl Session {
    /// Reads Hello, and makes this the live session of its cluster.
    pub(super) async fn open(
        &self,
        frames: &mut Streaming<SessionRequest>,
    ) -> Result<(u64, OpenSession), Farewell> {
        let broken = |message: &str| Farewell::new(GoodbyeReason::ProtocolError, message);
        let first = timeout(HELLO, frames.message())
            .await
            .map_err(|_| broken("no Hello within 10 s"))?
            .map_err(|status| broken(status.message()))?;
        let Some(SessionRequest {
            frame: Some(Incoming::Hello(hello)),
        }) = first
        else {
            return Err(broken("the first frame must be Hello"));
        };
        let version = self.check(&hello).await?;
        // A connection may outlive the certificate that it was opened with.
        if self.peer.not_after <= SystemTime::now() {
            return Err(identity::ran_out());
        }
        // As it may outlive the trust in whoever certified it.
        let authority = self.shared.identities.authority.as_ref();
        if authority.is_some_and(|authority| !authority.tls().trusts(&self.peer)) {
            return Err(trust::distrusted());
        }
        let window = match hello.status_window {
            0 => DEFAULT_WINDOW,
            window => window.min(LARGEST_WINDOW),
        };
        let said = &hello.kube_system_uid;
        let admitted = self.shared.admit(&self.cluster, &self.peer, said).await;
        admitted.map_err(|error| store_failed(&error))??;
        // Whoever has an old certificate of the cluster spends nothing of what the agent has that it belongs to.
        self.stays_within_bounds().await?;
        let renews = hello.capabilities.iter().any(|one| one == RENEWAL);
        let skew = identity::clock_skew(&hello, Timestamp::now());
        if let Some(skew) = skew {
            self.shared.metrics.skew(&self.cluster, skew.as_secs_f64());
        }
        let watches_finished = hello.capabilities.iter().any(|one| one == WATCH_FINISHED);
        let tells_missing = hello.capabilities.iter().any(|one| one == TELL_MISSING);
        let facts = convert::session_facts(&self.cluster, hello);
        let agent_version = facts.agent_version.clone();
        let uid = facts.kube_system_uid.clone();
        let registration = self
            .shared
            .store
            .open_session(facts, Timestamp::now())
            .await;
        let epoch = match registration.map_err(|error| store_failed(&error))? {
            Registration::Opened { epoch } => epoch,
            Registration::BoundElsewhere { kube_system_uid } => {
                info!(
                    bound_to = kube_system_uid,
                    "the cluster id is bound elsewhere"
                );
                return Err(self.bound_elsewhere(&uid).await?);
            }
        };
        let live = OpenSession {
            outbox: Arc::new(Outbox::new(window as usize)),
            superseded: CancellationToken::new(),
            dismissal: Arc::default(),
            renews,
            watches_finished,
            tells_missing,
            credit: self.bounds.first_credit(self.shared.settings.credit),
        };
        let registered = self.shared.register(
            &self.cluster,
            Live {
                epoch,
                outbox: Arc::clone(&live.outbox),
                superseded: live.superseded.clone(),
                dismissal: Arc::clone(&live.dismissal),
                said: Said {
                    skew,
                    backlog: None,
                },
                peer: self.peer.clone(),
            },
        );
        if !registered {
            return Err(superseded());
        }
        info!(epoch, agent_version, remote = %self.peer.remote_addr, "session open");
        let settings = self.shared.settings;
        let welcome = Welcome {
            session_epoch: epoch,
            heartbeat_interval: Some(convert::duration(settings.heartbeat)),
            resync_interval: Some(convert::duration(settings.resync)),
            credit: live.credit,
            protocol_version: version,
            hub_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: self.shared.capabilities(),
            sent_at: Some(identity::now_to_wire()),
            clock_skew: skew.map(identity::skew_to_wire),
        };
        let _ = self
            .outgoing
            .send(Ok(convert::frame(Outgoing::Welcome(welcome))))
            .await;
        Ok((epoch, live))
    }

    /// Counts one more session of an agent that is let in.
    async fn stays_within_bounds(&self) -> Result<(), Farewell> {
        let now = Instant::now();
        if let Some(farewell) = self.bounds.kept_away(now) {
            self.shared.metrics.refused("KeptAway");
            return Err(farewell);
        }
        match self.bounds.session(now) {
            Ok(()) => Ok(()),
            Err(farewell) => Err(self.sent_away(farewell).await),
        }
    }

    /// Which UID would be right is not for whoever comes with a wrong one.
    pub(super) async fn bound_elsewhere(&self, uid: &str) -> Result<Farewell, Farewell> {
        let cluster = &self.cluster;
        let message = if uid.is_empty() {
            format!(
                "the cluster id {cluster} is bound to a kube-system UID, and the agent does not say its own; give its role \
                get on the namespace kube-system"
            )
        } else {
            format!(
                "the cluster id {cluster} is bound to another cluster, this one has the kube-system UID {uid}; give it a \
                cluster id of its own, or, if it takes the other's place: `nabuctl cluster rebind {cluster}`"
            )
        };
        let identities = &self.shared.identities.store;
        let noted = identities.note_refused(cluster, uid, Timestamp::now());
        noted.await.map_err(|error| store_failed(&error))?;
        Ok(self.mismatch(message).await)
    }

    pub(super) async fn check(&self, hello: &Hello) -> Result<u32, Farewell> {
        let version = hello.protocol_version;
        if version > PROTOCOL_VERSION || version + 1 < PROTOCOL_VERSION || version == 0 {
            let message = format!(
                "the agent speaks protocol version {version}, this hub {PROTOCOL_VERSION} and the one before it; \
                upgrade the hub first, then the agents"
            );
            self.shared.metrics.refused("UnsupportedVersion");
            self.note("SessionRefused", &message).await;
            return Err(Farewell::new(GoodbyeReason::UnsupportedVersion, message).after(KEEP_AWAY));
        }
        if !hello.cluster_id.is_empty() && hello.cluster_id != self.cluster.as_str() {
            let named: String = hello.cluster_id.chars().take(80).collect();
            let message = format!(
                "the agent is configured as {named:?}, its certificate is for {}",
                self.cluster
            );
            return Err(self.mismatch(message).await);
        }
        // People run a command with it when two clusters come with one id.
        if !is_kube_system_uid(&hello.kube_system_uid) {
            let said: String = hello.kube_system_uid.chars().take(80).collect();
            let message = format!(
                "the agent says {said:?} for the UID of its namespace kube-system, which is none: letters, digits and dashes, \
                at most {LONGEST_UID}"
            );
            return Err(self.mismatch(message).await);
        }
        Ok(version)
    }

    pub(super) async fn mismatch(&self, message: String) -> Farewell {
        self.shared.metrics.refused("IdentityMismatch");
        let farewell = Farewell::new(GoodbyeReason::IdentityMismatch, message.clone());
        let farewell = farewell.after(KEEP_AWAY);
        if self.note("SessionRefused", &message).await {
            warn!(remote = %self.peer.remote_addr, message, "refused a session");
        }
        farewell
    }
}
