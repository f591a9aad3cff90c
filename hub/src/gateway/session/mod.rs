//! One session from Hello to Goodbye: keeps the tasks that read frames ([`frames`]), store them ([`super::ingest`]) and
//! answer ([`answers`]). Who is let in says [`opening`], and what a session ends with [`ends`].

mod answers;
mod ends;
mod frames;
mod opening;

use std::sync::Arc;
use std::time::Duration;

use nabu_common::ids::ClusterId;
use nabu_common::tls::PeerIdentity;
use nabu_proto::agent_v1::{SessionRequest, SessionResponse};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};
use tracing::{Instrument as _, debug, info, info_span};

use self::ends::{shutting_down, store_failed, superseded};
use super::bounds::{AgentBounds, CreditLine};
use super::identity::{self, Dismissal};
use super::ingest::{Ingest, Stopped};
use super::outbox::Outbox;
use super::{Farewell, Shared, convert};

/// Items that may wait to be stored beside the Observed frames that credit allows.
const ITEMS_BESIDE_CREDIT: usize = 64;
/// Acknowledgements that wait to be stored.
const ACKS: usize = 512;
/// How long Goodbye may take.
const PARTING: Duration = Duration::from_secs(1);

/// One stream of one agent.
pub(super) struct Session {
    shared: Arc<Shared>,
    cluster: ClusterId,
    peer: PeerIdentity,
    outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
    /// What this session and those before it have spent.
    bounds: AgentBounds,
}

impl Session {
    pub(super) fn new(
        shared: Arc<Shared>,
        cluster: ClusterId,
        peer: PeerIdentity,
        outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
    ) -> Self {
        let bounds = shared.agents.of(&cluster, Instant::now());
        Self {
            shared,
            cluster,
            peer,
            outgoing,
            bounds,
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
        // Who is refused again and again leaves no line each time.
        let is_worth_a_line = opened.is_ok() || self.is_news("SessionNotOpened");
        let farewell = match opened {
            Err(farewell) => Some(farewell),
            Ok((epoch, live)) => {
                let farewell = self.converse(frames, epoch, &live).await;
                self.shared.unregister(&self.cluster, epoch);
                farewell
            }
        };
        if let Some(farewell) = farewell {
            if is_worth_a_line {
                info!(
                    reason = farewell.reason.as_str_name(),
                    message = farewell.message,
                    "the session ends"
                );
            }
            let goodbye = self.outgoing.send(Ok(convert::goodbye(farewell)));
            let _ = timeout(PARTING, goodbye).await;
        } else {
            info!("the agent ended the session");
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
            bounds: self.bounds.clone(),
            credit: CreditLine::new(
                self.bounds.clone(),
                live.credit,
                self.shared.settings.credit,
            ),
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
    /// Observed frames that Welcome allows.
    credit: u32,
}
