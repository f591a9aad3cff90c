//! One session from Hello to Goodbye: reads frames and keeps the tasks that answer them.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseUid};
use nabu_common::tls::PeerIdentity;
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::session_request::Frame as Incoming;
use nabu_proto::agent_v1::session_response::Frame as Outgoing;
use nabu_proto::agent_v1::{
    GoodbyeReason, Heartbeat, HeartbeatAck, Hello, SessionRequest, SessionResponse, Welcome,
};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{Instrument as _, debug, error, info, info_span, warn};

use super::bounds::{CreditLine, FrameBounds, RefusalBounds};
use super::identity::{self, Dismissal, RENEWAL};
use super::ingest::{Ingest, Item, Stopped};
use super::outbox::{Next, Outbox};
use super::trust;
use super::{Farewell, Live, Said, Shared, convert};
use crate::store::{Acknowledgement, AuditEvent, Registration, StoreError};

/// How long an agent may take to say Hello.
const HELLO: Duration = Duration::from_secs(10);
/// So many heartbeats may be missing.
const SILENT_INTERVALS: u32 = 3;
/// Items that may wait to be stored beside the Observed frames that credit allows.
const ITEMS_BESIDE_CREDIT: usize = 64;
/// Acknowledgements that wait to be stored.
const ACKS: usize = 512;
/// Statuses that one look into the store brings.
const STATUS_PAGE: u32 = 256;
/// The window of an agent that names none.
const DEFAULT_WINDOW: u32 = 256;
/// No agent gets more at once.
const LARGEST_WINDOW: u32 = 4096;
/// How long Goodbye may take.
const PARTING: Duration = Duration::from_secs(1);
/// How long an agent that is not allowed in shall keep away.
const KEEP_AWAY: Duration = Duration::from_mins(1);
/// How long an agent shall wait when the store fails.
const AFTER_STORE_ERROR: Duration = Duration::from_secs(5);

/// The capability of agents that can watch finished EventResponses.
const WATCH_FINISHED: &str = "watch-finished";
/// The capability of agents that say what has become of what an inventory left out.
const TELL_MISSING: &str = "tell-missing";

/// One stream of one agent.
pub(super) struct Session {
    shared: Arc<Shared>,
    cluster: ClusterId,
    peer: PeerIdentity,
    outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        cluster: ClusterId,
        peer: PeerIdentity,
        outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
    ) -> Self {
        Self {
            shared,
            cluster,
            peer,
            outgoing,
        }
    }

    /// Serves the stream to its end.
    pub(super) async fn run(self, frames: Streaming<SessionRequest>) {
        let span = info_span!("session", cluster = %self.cluster);
        self.serve(frames).instrument(span).await;
    }

    async fn serve(self, mut frames: Streaming<SessionRequest>) {
        let opened = tokio::select! {
            () = self.shared.shutdown.cancelled() => Err(shutting_down()),
            opened = self.open(&mut frames) => opened,
        };
        let farewell = match opened {
            Err(farewell) => Some(farewell),
            Ok((epoch, live)) => {
                let farewell = self.converse(frames, epoch, &live).await;
                self.shared.unregister(&self.cluster, epoch);
                farewell
            }
        };
        if let Some(farewell) = farewell {
            info!(
                reason = farewell.reason.as_str_name(),
                message = farewell.message,
                "the session ends"
            );
            let goodbye = self.outgoing.send(Ok(convert::goodbye(farewell)));
            let _ = timeout(PARTING, goodbye).await;
        } else {
            info!("the agent ended the session");
        }
    }

    /// Reads Hello, and makes this the live session of its cluster.
    async fn open(
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
            credit: settings.credit,
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

    /// Which UID would be right is not for whoever comes with a wrong one.
    async fn bound_elsewhere(&self, uid: &str) -> Result<Farewell, Farewell> {
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

    async fn check(&self, hello: &Hello) -> Result<u32, Farewell> {
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
        Ok(version)
    }

    async fn mismatch(&self, message: String) -> Farewell {
        warn!(remote = %self.peer.remote_addr, message, "refused a session");
        self.shared.metrics.refused("IdentityMismatch");
        let farewell = Farewell::new(GoodbyeReason::IdentityMismatch, message.clone());
        let farewell = farewell.after(KEEP_AWAY);
        self.note("SessionRefused", &message).await;
        farewell
    }

    /// Writes down what went wrong, unless something did a moment ago.
    async fn note(&self, action: &str, message: &str) {
        if !(self.shared.refusals).is_news(&self.cluster, action, std::time::Instant::now()) {
            return;
        }
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: format!("agent/{}", self.cluster),
            action: action.to_owned(),
            detail: message.chars().take(300).collect(),
        };
        if let Err(error) = self.shared.store.audit(Some(&self.cluster), event).await {
            error!(%error, "cannot write the audit log");
        }
    }

    /// `None` if the agent ended it.
    async fn converse(
        &self,
        mut frames: Streaming<SessionRequest>,
        epoch: u64,
        live: &OpenSession,
    ) -> Option<Farewell> {
        let (items, item_queue) =
            mpsc::channel(self.shared.settings.credit as usize + ITEMS_BESIDE_CREDIT);
        let (acks, ack_queue) = mpsc::channel(ACKS);
        let ingest = Ingest {
            shared: Arc::clone(&self.shared),
            cluster: self.cluster.clone(),
            outbox: Arc::clone(&live.outbox),
            outgoing: self.outgoing.clone(),
            refusals: RefusalBounds::default(),
            credit: CreditLine::new(self.shared.settings.credit),
            watches_finished: live.watches_finished,
            tells_missing: live.tells_missing,
        };
        let reader = self.read(&mut frames, items, acks, live);
        let tasks = async {
            tokio::select! {
                result = ingest.run(item_queue) => result.err(),
                error = self.store_acks(ack_queue, &live.outbox) => error.map(Stopped::Store),
                error = self.send_statuses(&live.outbox) => Some(error),
                stopped = self.send_bundles(live.renews) => Some(stopped),
            }
        };
        tokio::pin!(tasks);
        let ended = tokio::select! {
            biased;
            () = self.shared.shutdown.cancelled() => Some(shutting_down()),
            () = live.superseded.cancelled() => Some(superseded()),
            farewell = live.dismissal.dismissed() => farewell,
            farewell = identity::certificate_ran_out(self.peer.not_after) => Some(farewell),
            farewell = reader => farewell,
            stopped = &mut tasks => match stopped {
                Some(Stopped::Store(error)) => Some(store_failed(&error)),
                Some(Stopped::TooFar(farewell)) => Some(self.sent_away(farewell).await),
                Some(Stopped::Gone) | None => None,
            },
        };
        debug!(epoch, "the session's tasks end");
        ended
    }

    /// Reads frames until the stream ends (`None`) or must be ended.
    async fn read(
        &self,
        frames: &mut Streaming<SessionRequest>,
        items: mpsc::Sender<Item>,
        acks: mpsc::Sender<Acknowledgement>,
        live: &OpenSession,
    ) -> Option<Farewell> {
        let silence = self.shared.settings.heartbeat * SILENT_INTERVALS;
        let mut bounds = FrameBounds::new(self.shared.settings.heartbeat);
        loop {
            let frame = match timeout(silence, frames.message()).await {
                Ok(Ok(Some(SessionRequest { frame: Some(frame) }))) => frame,
                // A frame of a newer agent that we do not know.
                Ok(Ok(Some(SessionRequest { frame: None }))) => continue,
                Ok(Ok(None)) => return None,
                Ok(Err(status)) => {
                    debug!(reason = status.message(), "the stream broke");
                    let message = format!("the stream broke: {}", status.message());
                    self.note("SessionLost", &message).await;
                    return None;
                }
                Err(_) => {
                    let message = format!("no frame for {silence:?}");
                    self.note("SessionLost", &message).await;
                    return Some(Farewell::new(GoodbyeReason::ProtocolError, message));
                }
            };
            self.shared.metrics.received(kind(&frame));
            let touch = match &frame {
                Incoming::Heartbeat(_) => bounds.heartbeat(Instant::now()),
                Incoming::SnapshotBegin(_) => bounds.inventory(Instant::now()).map(|()| false),
                Incoming::RenewCertificate(_) => bounds.renewal(Instant::now()).map(|()| false),
                _ => Ok(false),
            };
            let touch = match touch {
                Ok(touch) => touch,
                Err(farewell) => return Some(self.sent_away(farewell).await),
            };
            if touch {
                self.touch().await;
            }
            if let Err(farewell) = self.take(frame, &items, &acks, live).await {
                return Some(farewell);
            }
        }
    }

    async fn take(
        &self,
        frame: Incoming,
        items: &mpsc::Sender<Item>,
        acks: &mpsc::Sender<Acknowledgement>,
        live: &OpenSession,
    ) -> Result<(), Farewell> {
        let item = match frame {
            Incoming::Hello(_) => {
                return Err(Farewell::new(
                    GoodbyeReason::ProtocolError,
                    "Hello may only be the first frame",
                ));
            }
            Incoming::Heartbeat(beat) => {
                self.heartbeat(&beat);
                return Ok(());
            }
            Incoming::RenewCertificate(request) => {
                let answer = self.shared.renew(&self.cluster, &self.peer, &request).await;
                let answer = answer.map_err(|error| store_failed(&error))?;
                let _ = self.outgoing.send(Ok(convert::frame(answer))).await;
                return Ok(());
            }
            Incoming::Applied(applied) => {
                acknowledge(
                    convert::acknowledgement(&applied.uid, applied.revision, None),
                    acks,
                    live,
                )
                .await;
                return Ok(());
            }
            Incoming::StatusRefused(refused) => {
                let ack =
                    convert::acknowledgement(&refused.uid, refused.revision, Some(refused.reason));
                acknowledge(ack, acks, live).await;
                return Ok(());
            }
            Incoming::Observed(observed) => Item::Observed(observed),
            Incoming::SnapshotBegin(begin) => Item::SnapshotBegin(begin.snapshot_id),
            Incoming::SnapshotEnd(end) => Item::SnapshotEnd {
                id: end.snapshot_id,
                count: end.count,
            },
            Incoming::Deleted(deleted) => match convert::key(&self.cluster, deleted.r#ref) {
                Some(key) if deleted.still_there && deleted.own_success => Item::OwnSuccess(key),
                Some(key) if deleted.still_there => Item::OutOfHands(key),
                Some(key) => Item::Deleted(key),
                None => return Ok(()),
            },
        };
        // The receiver lives as long as the session does.
        let _ = items.send(item).await;
        Ok(())
    }

    fn heartbeat(&self, beat: &Heartbeat) {
        let now = Timestamp::now();
        self.shared.heard_backlog(&self.cluster, beat.backlog);
        let ack = convert::frame(Outgoing::HeartbeatAck(HeartbeatAck {
            sent_at: Some(convert::time(now)),
        }));
        // A connection that takes nothing more is noticed by the agent's silence.
        let _ = self.outgoing.try_send(Ok(ack));
    }

    async fn touch(&self) {
        let touched = (self.shared.store).touch_cluster(&self.cluster, Timestamp::now());
        if let Err(error) = touched.await {
            warn!(%error, "cannot note the heartbeat");
        }
    }

    /// Notes that an agent went too far.
    async fn sent_away(&self, farewell: Farewell) -> Farewell {
        warn!(remote = %self.peer.remote_addr, message = farewell.message, "an agent went too far");
        self.shared.metrics.refused("TooFar");
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: format!("agent/{}", self.cluster),
            action: "SessionEnded".to_owned(),
            detail: farewell.message.clone(),
        };
        if let Err(error) = self.shared.store.audit(Some(&self.cluster), event).await {
            error!(%error, "cannot write the audit log");
        }
        farewell
    }

    /// Ends only with an error.
    async fn store_acks(
        &self,
        mut queue: mpsc::Receiver<Acknowledgement>,
        outbox: &Outbox,
    ) -> Option<StoreError> {
        let mut batch = Vec::new();
        while queue.recv_many(&mut batch, ACKS).await > 0 {
            let known: Vec<(ResponseUid, _)> = batch
                .iter()
                .map(|ack| (ack.uid.clone(), ack.revision))
                .collect();
            let stored = self
                .shared
                .store
                .acknowledge(&self.cluster, std::mem::take(&mut batch), Timestamp::now())
                .await;
            if let Err(error) = stored {
                return Some(error);
            }
            for (uid, revision) in known {
                outbox.acknowledged(&uid, revision);
            }
        }
        std::future::pending().await
    }

    /// Ends only when the agent is gone or the store fails.
    async fn send_statuses(&self, outbox: &Outbox) -> Stopped {
        loop {
            match outbox.next(Instant::now()) {
                Next::Send(batch) => {
                    for summary in batch {
                        self.shared.metrics.statuses.inc();
                        if self
                            .outgoing
                            .send(Ok(convert::status(&summary)))
                            .await
                            .is_err()
                        {
                            return Stopped::Gone;
                        }
                    }
                }
                Next::Rescan => {
                    if let Err(error) = self.rescan(outbox).await {
                        return Stopped::Store(error);
                    }
                }
                Next::Wait(None) => outbox.changed().await,
                Next::Wait(Some(due)) => {
                    let _ = tokio::time::timeout_at(due, outbox.changed()).await;
                }
            }
        }
    }

    /// Tells of every change of the authorities; ends only when the agent is gone.
    async fn send_bundles(&self, understood: bool) -> Stopped {
        let mut seen = Shared::UNKNOWN_AUTHORITIES;
        loop {
            let bundle = self.shared.next_bundle(understood, &mut seen).await;
            let sent = self.outgoing.send(Ok(convert::frame(bundle))).await;
            if sent.is_err() {
                return Stopped::Gone;
            }
        }
    }

    /// Takes all unacknowledged statuses out of the store, as far as there is room for them.
    async fn rescan(&self, outbox: &Outbox) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let page = self
                .shared
                .store
                .unacknowledged(&self.cluster, after.as_ref(), STATUS_PAGE)
                .await?;
            let Some(last) = page.last() else {
                outbox.scanned(true);
                return Ok(());
            };
            after = Some(last.key.uid.clone());
            for summary in page {
                outbox.found(Arc::new(summary));
            }
            if !outbox.has_room() {
                outbox.scanned(false);
                return Ok(());
            }
        }
    }
}

/// What a live session's parts share.
struct OpenSession {
    outbox: Arc<Outbox>,
    superseded: CancellationToken,
    dismissal: Arc<Dismissal>,
    /// The agent renews its certificate over the session.
    renews: bool,
    watches_finished: bool,
    tells_missing: bool,
}

async fn acknowledge(
    ack: Option<Acknowledgement>,
    acks: &mpsc::Sender<Acknowledgement>,
    live: &OpenSession,
) {
    let Some(ack) = ack else { return };
    let (uid, revision) = (ack.uid.clone(), ack.revision);
    if acks.send(ack).await.is_err() {
        live.outbox.acknowledged(&uid, revision);
    }
}

fn kind(frame: &Incoming) -> &'static str {
    match frame {
        Incoming::Hello(_) => "hello",
        Incoming::SnapshotBegin(_) => "snapshot_begin",
        Incoming::Observed(_) => "observed",
        Incoming::SnapshotEnd(_) => "snapshot_end",
        Incoming::Deleted(_) => "deleted",
        Incoming::Applied(_) => "applied",
        Incoming::StatusRefused(_) => "status_refused",
        Incoming::Heartbeat(_) => "heartbeat",
        Incoming::RenewCertificate(_) => "renew_certificate",
    }
}

fn shutting_down() -> Farewell {
    Farewell::new(GoodbyeReason::Shutdown, "the hub shuts down")
}

fn superseded() -> Farewell {
    Farewell::new(
        GoodbyeReason::Superseded,
        "a newer session of this cluster took over; run one agent for each cluster id",
    )
}

fn store_failed(error: &StoreError) -> Farewell {
    error!(%error, source = ?std::error::Error::source(error).map(ToString::to_string), "the store failed under a session");
    Farewell::new(GoodbyeReason::Overloaded, "the hub's store does not answer")
        .after(AFTER_STORE_ERROR)
}
