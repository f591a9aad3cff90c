//! What a session stores and sends by itself: acknowledgements, statuses, and the authorities that agents shall trust.

use std::sync::Arc;

use jiff::Timestamp;
use nabu_common::ids::ResponseUid;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{ACKS, Session};
use crate::gateway::ingest::Stopped;
use crate::gateway::outbox::{Next, Outbox};
use crate::gateway::{Shared, convert};
use crate::store::{Acknowledgement, StoreError};

/// Statuses that one look into the store brings.
const STATUS_PAGE: u32 = 256;

impl Session {
    /// Ends only with an error.
    pub(super) async fn store_acks(
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
    pub(super) async fn send_statuses(&self, outbox: &Outbox) -> Stopped {
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
    pub(super) async fn send_bundles(&self, understood: bool) -> Stopped {
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
    pub(super) async fn rescan(&self, outbox: &Outbox) -> Result<(), StoreError> {
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
