//! Stores what one agent observes, in the order in which it said it, and answers after the commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid};
use nabu_proto::agent_v1::session_response::Frame;
use nabu_proto::agent_v1::{
    Accepted, Credit, Observed as ObservedFrame, RefusalCode, SessionResponse,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;
use tracing::{info, warn};

use super::bounds::{self, RefusalBounds};
use super::convert::{self, Refusal};
use super::outbox::Outbox;
use super::{Farewell, Shared};
use crate::response::{Observation, Response};
use crate::store::{
    AuditEvent, Observed, ResponseSummary, RoutedTo, StoreError, missing_from_inventory,
};

/// Observations after which the cluster's unfinished responses are counted again.
const COUNT_EVERY: u64 = 1024;
/// How often a cluster that has too many of them is looked at.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(2);
/// Observations that share one call to the store.
const BATCH: usize = 64;

/// What has to be taken in order.
#[derive(Debug)]
pub(super) enum Item {
    Observed(ObservedFrame),
    Deleted(ResponseKey),
    SnapshotBegin(u64),
    SnapshotEnd { id: u64, count: u64 },
}

/// An inventory that is under way.
struct Inventory {
    id: u64,
    begun_at: Timestamp,
    named: HashSet<ResponseUid>,
    count: u64,
}

/// The task that stores one session's observations.
pub(super) struct Ingest {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: ClusterId,
    pub(super) outbox: Arc<Outbox>,
    pub(super) outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
    pub(super) refusals: RefusalBounds,
    /// Observations since the cluster's unfinished responses were counted.
    pub(super) since_counted: u64,
}

/// The agent is gone, or the store failed: the session is over.
#[derive(Debug)]
pub(super) enum Stopped {
    Gone,
    Store(StoreError),
    /// The agent went too far.
    TooFar(Farewell),
}

impl From<Farewell> for Stopped {
    fn from(farewell: Farewell) -> Self {
        Self::TooFar(farewell)
    }
}

impl From<StoreError> for Stopped {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Ingest {
    /// Takes items until their sender is gone.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<Item>) -> Result<(), Stopped> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut inventory = None;
        while items.recv_many(&mut batch, BATCH).await > 0 {
            let mut observed = Vec::new();
            for item in batch.drain(..) {
                match item {
                    Item::Observed(frame) => observed.push(frame),
                    other => {
                        self.store(std::mem::take(&mut observed), &mut inventory)
                            .await?;
                        self.take(other, &mut inventory).await?;
                    }
                }
            }
            self.store(observed, &mut inventory).await?;
        }
        Ok(())
    }

    async fn store(
        &mut self,
        frames: Vec<ObservedFrame>,
        inventory: &mut Option<Inventory>,
    ) -> Result<(), Stopped> {
        if frames.is_empty() {
            return Ok(());
        }
        let credit = u32::try_from(frames.len()).unwrap_or(u32::MAX);
        let mut observations = Vec::with_capacity(frames.len());
        for frame in frames {
            if let Some(inventory) = inventory {
                inventory.count += 1;
            }
            match convert::observation(&self.cluster, frame) {
                Ok(observation) => {
                    if let Some(inventory) = inventory {
                        inventory.named.insert(observation.key.uid.clone());
                        if inventory.named.len() > bounds::INVENTORY {
                            return Err(bounds::endless_inventory().into());
                        }
                    }
                    observations.push(observation);
                }
                Err(refusal) => self.refuse(refusal).await?,
            }
        }
        self.make_room(u64::from(credit)).await?;
        let answers: Vec<_> = observations
            .iter()
            .map(|seen| (seen.key.uid.clone(), seen.spec_hash))
            .collect();
        let stored = self
            .shared
            .store
            .observe(observations, Timestamp::now())
            .await?;
        for ((uid, spec_hash), stored) in answers.into_iter().zip(stored) {
            match stored {
                Observed::Stored { response, changed } => {
                    let accepted = Accepted {
                        uid: uid.to_string(),
                        spec_hash: spec_hash.to_vec().into(),
                    };
                    self.send(convert::frame(Frame::Accepted(accepted))).await?;
                    // An agent that shows an ended response again lacks its status.
                    if changed || response.progress.phase.is_terminal() {
                        self.announce(response);
                    }
                }
                Observed::NameMismatch { known } => {
                    let message = format!("metadata.uid: belongs to the EventResponse {known:?}");
                    let refusal = Refusal {
                        uid: uid.to_string(),
                        code: RefusalCode::Conflicting,
                        message,
                    };
                    self.refuse(refusal).await?;
                }
            }
        }
        self.send(convert::frame(Frame::Credit(Credit { observed: credit })))
            .await
    }

    /// Waits while the cluster has too many unfinished responses: without credit its agent sends no more, and statuses go
    /// on. Looks when the session begins, and now and then.
    async fn make_room(&mut self, observed: u64) -> Result<(), Stopped> {
        let limit = self.shared.settings.max_unfinished;
        let begins = self.since_counted == 0;
        self.since_counted += observed;
        if limit == 0 || !begins && self.since_counted < COUNT_EVERY {
            return Ok(());
        }
        self.since_counted = 1;
        let mut told = false;
        while self.shared.store.count_unfinished(&self.cluster).await? >= limit {
            if !told {
                warn!(
                    limit,
                    "the cluster has too many unfinished responses; more are taken when some have ended, or with \
                    a larger --max-unfinished"
                );
                self.shared.metrics.refused("TooManyUnfinished");
                let event = AuditEvent {
                    at: Timestamp::now(),
                    actor: "hub".to_owned(),
                    action: "ClusterHeld".to_owned(),
                    detail: format!("{limit} responses are unfinished"),
                };
                self.shared.store.audit(Some(&self.cluster), event).await?;
                told = true;
            }
            tokio::time::sleep(LOOK_FOR_ROOM).await;
        }
        Ok(())
    }

    /// The status comes first: whatever the executor makes of the response is newer.
    fn announce(&self, response: Arc<Response>) {
        self.outbox.publish(Arc::new(summary(&response)));
        if !response.progress.phase.is_terminal() {
            self.shared.dispatcher.observed(response);
        }
    }

    async fn refuse(&mut self, refusal: Refusal) -> Result<(), Stopped> {
        warn!(cluster = %self.cluster, uid = refusal.uid, reason = refusal.message, "refused a frame");
        self.shared.metrics.refused("Frame");
        let suspicious = matches!(
            refusal.code,
            RefusalCode::NotAllowed | RefusalCode::Conflicting
        );
        if suspicious && self.refusals.refusal(Instant::now())? {
            let event = AuditEvent {
                at: Timestamp::now(),
                actor: format!("agent/{}", self.cluster),
                action: "FrameRefused".to_owned(),
                detail: format!("EventResponse {:?}: {}", refusal.uid, refusal.message),
            };
            self.shared.store.audit(Some(&self.cluster), event).await?;
        }
        self.send(convert::refused(refusal)).await
    }

    async fn take(&self, item: Item, inventory: &mut Option<Inventory>) -> Result<(), Stopped> {
        match item {
            Item::Observed(_) => {}
            Item::Deleted(key) => self.shared.dispatcher.deleted(key),
            Item::SnapshotBegin(id) => {
                let begun_at = Timestamp::now();
                *inventory = Some(Inventory {
                    id,
                    begun_at,
                    named: HashSet::new(),
                    count: 0,
                });
            }
            Item::SnapshotEnd { id, count } => match inventory.take() {
                Some(whole) if whole.id == id && whole.count == count => {
                    self.compare(whole).await?;
                }
                _ => {
                    warn!(cluster = %self.cluster, id, count, "an inventory is not whole; the next one counts");
                }
            },
        }
        Ok(())
    }

    async fn compare(&self, inventory: Inventory) -> Result<(), Stopped> {
        let unfinished = self.shared.store.unfinished_of(&self.cluster).await?;
        let missing = missing_from_inventory(unfinished, &inventory.named, inventory.begun_at);
        if !missing.is_empty() {
            info!(cluster = %self.cluster, count = missing.len(), "EventResponses are gone from the cluster");
        }
        for uid in missing {
            self.shared.dispatcher.deleted(ResponseKey {
                cluster: self.cluster.clone(),
                uid,
            });
        }
        // Whatever was lost on the way is sent again.
        self.outbox.start_over();
        Ok(())
    }

    async fn send(&self, frame: SessionResponse) -> Result<(), Stopped> {
        self.outgoing
            .send(Ok(frame))
            .await
            .map_err(|_| Stopped::Gone)
    }
}

fn summary(response: &Response) -> ResponseSummary {
    let Observation {
        key,
        name,
        generation,
        ..
    } = &response.observation;
    ResponseSummary {
        key: key.clone(),
        name: name.clone(),
        generation: *generation,
        observed_at: response.observed_at,
        progress: response.progress.clone(),
        routed: response.progress.intent.as_ref().map(RoutedTo::of),
    }
}
