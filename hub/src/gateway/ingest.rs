//! Stores what one agent observes, in the order in which it said it, and answers after the commit.

use std::collections::{HashSet, VecDeque};
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

use super::bounds::{self, AgentBounds, CreditLine};
use super::convert::{self, Refusal};
use super::outbox::Outbox;
use super::{Farewell, Shared};
use crate::response::{Observation, Response};
use crate::store::{
    AuditEvent, Observed, ResponseSummary, RoutedTo, StoreError, missing_from_inventory,
};

/// How often a cluster that has too many unfinished responses is looked at.
const LOOK_FOR_ROOM: Duration = Duration::from_secs(2);
/// Observations that share one call to the store.
const BATCH: usize = 64;

/// Responses that one part of the list of watched ones names: with their names, below the limit of a frame.
const WATCHING_PAGE: u32 = 2048;
/// Responses that one question names.
const MISSING_PAGE: usize = 2048;

/// What has to be taken in order.
#[derive(Debug)]
pub(super) enum Item {
    Observed(ObservedFrame),
    Deleted(ResponseKey),
    /// The EventResponse is there, and finished or not for us any more.
    OutOfHands(ResponseKey),
    /// The EventResponse is there, and has a success of ours that this hub does not know.
    OwnSuccess(ResponseKey),
    SnapshotBegin(u64),
    SnapshotEnd {
        id: u64,
        count: u64,
    },
}

/// An inventory that is under way.
struct Inventory {
    id: u64,
    begun_at: Timestamp,
    named: HashSet<ResponseUid>,
    count: u64,
}

impl Inventory {
    fn begin(id: u64) -> Self {
        Self {
            id,
            begun_at: Timestamp::now(),
            named: HashSet::new(),
            count: 0,
        }
    }

    /// Takes an object that the agent names.
    ///
    /// # Errors
    /// If there are too many.
    fn name(&mut self, uid: ResponseUid) -> Result<(), Farewell> {
        self.named.insert(uid);
        if self.named.len() > bounds::INVENTORY {
            return Err(bounds::endless_inventory());
        }
        Ok(())
    }
}

/// The task that stores one session's observations.
pub(super) struct Ingest {
    pub(super) shared: Arc<Shared>,
    pub(super) cluster: ClusterId,
    pub(super) outbox: Arc<Outbox>,
    pub(super) outgoing: mpsc::Sender<Result<SessionResponse, Status>>,
    pub(super) bounds: AgentBounds,
    pub(super) credit: CreditLine,
    /// The agent can watch what is finished.
    pub(super) watches_finished: bool,
    /// The agent says what has become of what an inventory left out.
    pub(super) tells_missing: bool,
}

/// The agent is gone, or the store failed: the session is over.
#[derive(Debug)]
pub(super) enum Stopped {
    Gone,
    Store(StoreError),
    /// The agent went too far.
    TooFar(Farewell),
}

/// What was stored and the executor and the outbox do not know yet. They are told at the latest when this goes.
struct Unannounced {
    shared: Arc<Shared>,
    outbox: Arc<Outbox>,
    rest: VecDeque<Observed>,
}

impl Unannounced {
    /// The status comes first: whatever the executor makes of the response is newer.
    fn announce_next(&mut self) {
        let Some(Observed::Stored { response, changed }) = self.rest.pop_front() else {
            return;
        };
        // An agent that shows an ended response again lacks its status.
        let ended = response.progress.phase.is_terminal();
        if changed || ended {
            self.outbox.publish(Arc::new(summary(&response)));
            if !ended || response.progress.follow_up.is_some() {
                self.shared.dispatcher.observed(response);
            }
        }
    }
}

impl Drop for Unannounced {
    fn drop(&mut self) {
        while !self.rest.is_empty() {
            self.announce_next();
        }
    }
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
        if self.credit.owed > 0 {
            self.give_credit(0).await?;
        }
        loop {
            tokio::select! {
                taken = items.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        return Ok(());
                    }
                }
                () = tokio::time::sleep(LOOK_FOR_ROOM), if self.credit.owed > 0 => {
                    self.give_credit(0).await?;
                }
            }
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
    }

    async fn store(
        &mut self,
        frames: Vec<ObservedFrame>,
        inventory: &mut Option<Inventory>,
    ) -> Result<(), Stopped> {
        if frames.is_empty() {
            return Ok(());
        }
        self.credit
            .spend(u32::try_from(frames.len()).unwrap_or(u32::MAX))?;
        let mut observations = Vec::with_capacity(frames.len());
        for frame in frames {
            if let Some(inventory) = inventory {
                inventory.count += 1;
            }
            match convert::observation(&self.cluster, frame) {
                Ok(observation) => {
                    if let Some(inventory) = inventory {
                        inventory.name(observation.key.uid.clone())?;
                    }
                    observations.push(observation);
                }
                Err(refusal) => self.refuse(refusal).await?,
            }
        }
        let answers: Vec<_> = observations
            .iter()
            .map(|seen| (seen.key.uid.clone(), seen.spec_hash))
            .collect();
        let mut stored = self.observe(observations).await?;
        let is_known = |one: &&Observed| matches!(one, Observed::Stored { changed: false, .. });
        let known = stored.rest.iter().filter(is_known).count();
        for (uid, spec_hash) in answers {
            match stored.rest.front() {
                Some(Observed::Stored { .. }) => {
                    let accepted = Accepted {
                        uid: uid.to_string(),
                        spec_hash: spec_hash.to_vec().into(),
                    };
                    self.send(convert::frame(Frame::Accepted(accepted))).await?;
                }
                Some(Observed::NameMismatch { known }) => {
                    let message = format!("metadata.uid: belongs to the EventResponse {known:?}");
                    let refusal = Refusal {
                        uid: uid.to_string(),
                        code: RefusalCode::Conflicting,
                        message,
                    };
                    self.refuse(refusal).await?;
                }
                None => {}
            }
            stored.announce_next();
        }
        self.give_credit(u32::try_from(known).unwrap_or(u32::MAX))
            .await
    }

    /// Stores observations. Whatever becomes of this session, what was stored is announced: nobody would do it later.
    async fn observe(&self, observations: Vec<Observation>) -> Result<Unannounced, Stopped> {
        let (shared, outbox) = (Arc::clone(&self.shared), Arc::clone(&self.outbox));
        let stored = tokio::spawn(async move {
            let stored = shared.store.observe(observations, Timestamp::now()).await?;
            Ok(Unannounced {
                shared,
                outbox,
                rest: stored.into(),
            })
        });
        match stored.await {
            Ok(stored) => stored.map_err(Stopped::Store),
            Err(_) => Err(Stopped::Store(StoreError::Closed)),
        }
    }

    /// Gives back the credit that was spent, unless the cluster has too many unfinished responses: without credit its agent
    /// sends no more of them, and everything else goes on. For the `known` of them, of which nothing was news, it gets its credit
    /// back all the same: its inventory comes to its end, and tells of what is gone. Looks when the session begins, and now and
    /// then.
    async fn give_credit(&mut self, known: u32) -> Result<(), Stopped> {
        let limit = self.shared.settings.max_unfinished;
        if limit > 0 && self.credit.is_due_for_a_look() {
            let unfinished = self.shared.store.count_unfinished(&self.cluster).await?;
            if unfinished >= limit {
                self.hold(limit).await?;
                let back = self.credit.settle_known(known);
                return self.send_credit(back).await;
            }
            self.credit.looked();
        }
        let back = self.credit.settle();
        self.send_credit(back).await
    }

    async fn send_credit(&self, observed: u32) -> Result<(), Stopped> {
        if observed == 0 {
            return Ok(());
        }
        let credit = Frame::Credit(Credit { observed });
        self.send(convert::frame(credit)).await
    }

    async fn hold(&mut self, limit: u64) -> Result<(), Stopped> {
        if !self.credit.hold() {
            return Ok(());
        }
        warn!(
            limit,
            "the cluster has too many unfinished responses; more are taken when some have ended, or with a larger \
            --max-unfinished"
        );
        self.shared.metrics.refused("TooManyUnfinished");
        if !self
            .shared
            .refusals
            .is_news(&self.cluster, "ClusterHeld", Instant::now().into_std())
        {
            return Ok(());
        }
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: "hub".to_owned(),
            action: "ClusterHeld".to_owned(),
            detail: format!("{limit} responses are unfinished"),
        };
        Ok(self.shared.store.audit(Some(&self.cluster), event).await?)
    }

    async fn refuse(&mut self, refusal: Refusal) -> Result<(), Stopped> {
        let now = Instant::now();
        if self.bounds.is_worth_a_line(now) {
            warn!(cluster = %self.cluster, uid = refusal.uid, reason = refusal.message, "refused a frame");
        }
        self.shared.metrics.refused("Frame");
        let suspicious = matches!(
            refusal.code,
            RefusalCode::NotAllowed | RefusalCode::Conflicting
        );
        let is_news = if suspicious {
            self.bounds.refusal(now)?
        } else {
            self.bounds.unreadable(now)
        };
        if is_news {
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
            Item::OutOfHands(key) => self.shared.dispatcher.out_of_hands(key),
            // Its work goes on, and finds the pull request by its key.
            Item::OwnSuccess(key) => {
                info!(uid = %key.uid, "a response of ours has succeeded that this store does not know to be done");
            }
            Item::SnapshotBegin(id) => {
                *inventory = Some(Inventory::begin(id));
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
            info!(cluster = %self.cluster, count = missing.len(), "an inventory left out unfinished EventResponses");
            self.ask_for(missing).await?;
        }
        // Whatever was lost on the way is sent again.
        self.outbox.start_over();
        if self.watches_finished {
            self.send_watching().await?;
        }
        Ok(())
    }

    /// What an inventory left out may be gone, or ended by somebody else; the agent knows. One that cannot say gets no more
    /// work done for it, and no pull request is closed.
    async fn ask_for(&self, missing: Vec<ResponseUid>) -> Result<(), Stopped> {
        if !self.tells_missing {
            for uid in missing {
                self.shared.dispatcher.left_out(ResponseKey {
                    cluster: self.cluster.clone(),
                    uid,
                });
            }
            return Ok(());
        }
        for page in missing.chunks(MISSING_PAGE) {
            self.send(convert::missing(page)).await?;
        }
        Ok(())
    }

    /// The whole list of finished responses whose deletion, or whose spec, matters.
    async fn send_watching(&self) -> Result<(), Stopped> {
        let mut after = None;
        loop {
            let page = self
                .shared
                .store
                .watched(&self.cluster, after.as_ref(), WATCHING_PAGE)
                .await?;
            let more = page.len() == WATCHING_PAGE as usize;
            after = page.last().map(|last| last.uid.clone());
            self.send(convert::watching(page, more)).await?;
            if !more {
                return Ok(());
            }
        }
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
        spec_hash,
        ..
    } = &response.observation;
    ResponseSummary {
        key: key.clone(),
        name: name.clone(),
        generation: *generation,
        spec_hash: *spec_hash,
        observed_at: response.observed_at,
        progress: response.progress.clone(),
        routed: response.progress.intent.as_ref().map(RoutedTo::of),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inventory_of_a_million_objects_is_cut_at_its_bound_and_naming_one_twice_is_no_cheat() {
        let mut inventory = Inventory::begin(1);
        let mut taken = 0;
        let cut = (0..1_000_000u32).find_map(|number| {
            let uid: ResponseUid = format!("00000000-0000-4000-8000-{number:012}")
                .parse()
                .unwrap();
            let again = inventory.name(uid.clone());
            taken += 1;
            inventory.name(uid).and(again).err()
        });
        assert!(cut.is_some_and(|farewell| farewell.message.contains("inventory")));
        assert_eq!(taken, bounds::INVENTORY + 1);
        assert!(inventory.named.len() <= bounds::INVENTORY + 1);
    }
}
