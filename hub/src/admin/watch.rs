//! The watch of responses: tells of changes in their order, can be resumed, and holds up nobody who reads slowly.
//!
//! The numbers of changes are the store's own, so that a token outlives the hub.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{Stream, StreamExt as _};
use nabu_proto::admin_v1::WatchResponsesResponse;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

use super::convert;
use super::errors::{DOMAIN, failed, invalid};
use crate::store::{ResponseFilter, SharedStore};

/// Watches at one time.
pub(super) const WATCHES: usize = 64;
/// Messages that wait for a client.
const OUTGOING: usize = 64;
/// Changes that are read at one time.
const PAGE: u32 = 200;
/// How long to let changes gather before they are read.
const SETTLE: Duration = Duration::from_millis(100);
/// Silence after which a client is told where it stands.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may leave a message unread.
const PATIENCE: Duration = Duration::from_secs(30);

/// Names a place in the order of changes; opaque to clients.
pub(super) fn token(change: u64) -> String {
    URL_SAFE_NO_PAD.encode(format!("change {change}"))
}

/// Reads [`token`]. One that is ahead of the store is of another database, for example from before a restore.
pub(super) fn place(text: &str, newest: u64) -> Result<u64, Status> {
    let number = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
        text.strip_prefix("change ")?.parse::<u64>().ok()
    };
    let change = number().ok_or_else(|| {
        invalid(
            "resume_token",
            "is none that a hub gave; leave it out to begin now",
        )
    })?;
    if change > newest {
        return Err(Status::with_error_details(
            Code::OutOfRange,
            "resume_token: is ahead of the hub's store, which was perhaps restored from a backup; list again",
            ErrorDetails::with_error_info("TOKEN_AHEAD", DOMAIN, std::collections::HashMap::new()),
        ));
    }
    Ok(change)
}

/// Changes after `after`, until the client goes away, `shutdown`, or an error that ends the stream.
pub(super) fn watch(
    store: SharedStore,
    filter: ResponseFilter,
    after: u64,
    slot: OwnedSemaphorePermit,
    shutdown: CancellationToken,
) -> impl Stream<Item = Result<WatchResponsesResponse, Status>> + Send {
    let (messages, outgoing) = mpsc::channel(OUTGOING);
    let (end, ended) = oneshot::channel();
    tokio::spawn(async move {
        let mut feed = Feed {
            store,
            filter,
            after,
            messages,
            quiet_until: Instant::now() + HEARTBEAT,
        };
        let stopped = shutdown.run_until_cancelled(feed.run()).await;
        let status = stopped.unwrap_or_else(|| {
            Status::unavailable("the hub stops; go on with the last resume_token")
        });
        let _ = end.send(status);
        drop(slot);
    });
    // What is ready comes first, then the reason of the end.
    let last = futures::stream::once(ended).filter_map(async |status| status.ok().map(Err));
    ReceiverStream::new(outgoing).map(Ok).chain(Box::pin(last))
}

struct Feed {
    store: SharedStore,
    filter: ResponseFilter,
    after: u64,
    messages: mpsc::Sender<WatchResponsesResponse>,
    quiet_until: Instant,
}

impl Feed {
    /// Runs until something ends it, which is what it gives back.
    async fn run(&mut self) -> Status {
        let mut commits = self.store.commits();
        loop {
            commits.mark_unchanged();
            if let Err(status) = self.catch_up().await {
                return status;
            }
            tokio::select! {
                changed = commits.changed() => match changed {
                    Ok(()) => tokio::time::sleep(SETTLE).await,
                    Err(_) => return Status::unavailable("the hub's store is closed"),
                },
                () = tokio::time::sleep_until(self.quiet_until) => {}
                () = self.messages.closed() => return Status::cancelled("the client is gone"),
            }
            if Instant::now() >= self.quiet_until
                && let Err(status) = self.say(None).await
            {
                return status;
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Status> {
        loop {
            let newest = self.store.latest_change().await.map_err(failed)?;
            if newest <= self.after {
                return Ok(());
            }
            let page = self
                .store
                .responses_changed(&self.filter, self.after, newest, PAGE)
                .await
                .map_err(failed)?;
            let full = page.len() == PAGE as usize;
            for (change, summary) in page {
                self.after = change;
                self.say(Some(convert::summary(&summary))).await?;
            }
            if !full {
                self.after = newest;
                return Ok(());
            }
        }
    }

    async fn say(
        &mut self,
        response: Option<nabu_proto::admin_v1::Response>,
    ) -> Result<(), Status> {
        let message = WatchResponsesResponse {
            response,
            resume_token: token(self.after),
        };
        self.quiet_until = Instant::now() + HEARTBEAT;
        match self.messages.send_timeout(message, PATIENCE).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => {
                Err(Status::cancelled("the client is gone"))
            }
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(Status::with_error_details(
                Code::ResourceExhausted,
                "the client reads too slowly; go on with the last resume_token, perhaps with a filter",
                ErrorDetails::with_error_info(
                    "SLOW_READER",
                    DOMAIN,
                    std::collections::HashMap::new(),
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_place_and_others_are_refused() {
        assert_eq!(place(&token(7), 9).unwrap(), 7);
        assert_eq!(place(&token(10), 9).unwrap_err().code(), Code::OutOfRange);
        for text in ["nonsense", "", &URL_SAFE_NO_PAD.encode("7")] {
            assert_eq!(
                place(text, 9).unwrap_err().code(),
                Code::InvalidArgument,
                "{text}"
            );
        }
    }
}
