//! Cancels a response for an administrator: the wish is stored, then the executor is told.

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio::sync::oneshot;

use super::Dispatcher;
use crate::plan::progress::{self, Cancellation};
use crate::response::Progress;
use crate::store::{AuditEvent, SharedStore, SideRecords, StoreError};

/// Cancels a response in the name of `actor` (`admin/<name>`), and gives back what that comes to; `None` if there is no
/// such response. The wish is durable when this returns; the response itself ends a moment later.
///
/// # Errors
/// If the store fails; then nothing is cancelled.
pub async fn cancel(
    store: &SharedStore,
    dispatcher: &Dispatcher,
    key: &ResponseKey,
    actor: &str,
    reason: &str,
) -> Result<Option<Cancellation>, StoreError> {
    let (answer, answered) = oneshot::channel();
    let (actor, reason) = (actor.to_owned(), reason.to_owned());
    let at = Timestamp::now();
    let transition = Box::new(move |progress: &mut Progress| {
        let cancellation = progress::cancel(progress, &actor, &reason);
        let mut records = SideRecords::default();
        if !matches!(cancellation, Cancellation::Ended(_)) {
            records.audit.push(AuditEvent {
                at,
                actor,
                action: "CancelRequested".to_owned(),
                detail: reason,
            });
        }
        // The receiver is gone only if the caller is.
        let _ = answer.send(cancellation);
        records
    });
    if store.transition(key, transition).await?.is_none() {
        return Ok(None);
    }
    let cancellation = answered.await.ok();
    if !matches!(cancellation, Some(Cancellation::Ended(_))) {
        dispatcher.changed(key.clone());
    }
    Ok(cancellation)
}
