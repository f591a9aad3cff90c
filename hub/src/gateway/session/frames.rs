//! What a session reads: each frame is counted, bounded, and given to the task that answers it.

use jiff::Timestamp;
use nabu_proto::agent_v1::session_request::Frame as Incoming;
use nabu_proto::agent_v1::session_response::Frame as Outgoing;
use nabu_proto::agent_v1::{GoodbyeReason, Heartbeat, HeartbeatAck, SessionRequest};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tonic::Streaming;
use tracing::{debug, warn};

use super::ends::store_failed;
use super::{OpenSession, Session};
use crate::gateway::ingest::Item;
use crate::gateway::{Farewell, convert};
use crate::store::Acknowledgement;

/// So many heartbeats may be missing.
const SILENT_INTERVALS: u32 = 3;

impl Session {
    /// Reads frames until the stream ends (`None`) or must be ended.
    pub(super) async fn read(
        &self,
        frames: &mut Streaming<SessionRequest>,
        items: mpsc::Sender<Item>,
        acks: mpsc::Sender<Acknowledgement>,
        live: &OpenSession,
    ) -> Option<Farewell> {
        let silence = self.shared.settings.heartbeat * SILENT_INTERVALS;
        let bounds = &self.bounds;
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

    pub(super) async fn take(
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

    pub(super) fn heartbeat(&self, beat: &Heartbeat) {
        let now = Timestamp::now();
        self.shared.heard_backlog(&self.cluster, beat.backlog);
        let ack = convert::frame(Outgoing::HeartbeatAck(HeartbeatAck {
            sent_at: Some(convert::time(now)),
        }));
        // What is full has frames enough that tell the agent that it is heard; and one that takes nothing more does not keep the
        // hub from reading.
        let _ = self.outgoing.try_send(Ok(ack));
    }

    pub(super) async fn touch(&self) {
        let touched = (self.shared.store).touch_cluster(&self.cluster, Timestamp::now());
        if let Err(error) = touched.await {
            warn!(%error, "cannot note the heartbeat");
        }
    }
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
