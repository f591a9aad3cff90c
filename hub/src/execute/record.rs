//! Stores what a step means for a response, counts its end, and tells its cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt as _, TryStreamExt as _};
use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tracing::warn;

use super::Context;
use super::advance::by_hub;
use super::lanes::LaneId;
use super::lanes::standing::Limit;
use super::metrics::DispatchLabels;
use crate::change::ForgeTarget;
use crate::response::{Progress, Response};
use crate::store::{
    AuditEvent, ResponseSummary, RoutedTo, SharedStore, SideRecords, StoreError, Transition,
};

/// Responses whose limit is noted at one time: the store writes them together.
const NOTED_AT_ONCE: usize = 64;

pub(super) async fn apply(
    context: &Context,
    response: &Response,
    transition: Transition,
) -> Result<Option<Progress>, StoreError> {
    let before = response.progress.revision;
    let (transition, ends) = watched(transition);
    let progress = context.store.transition(response.key(), transition).await?;
    if let Some(progress) = &progress
        && progress.revision > before
    {
        if ends.load(Ordering::Acquire) {
            count_ended(context, response, progress);
        }
        tell(context, response, progress);
    }
    Ok(progress)
}

/// The same transition, and whether it was the one that ended the response: another may have done so since the record
/// was read, and each end counts once.
fn watched(transition: Transition) -> (Transition, Arc<AtomicBool>) {
    let ends = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&ends);
    let watched = Box::new(move |progress: &mut Progress| {
        let had_ended = progress.phase.is_terminal();
        let records = transition(progress);
        noted.store(
            !had_ended && progress.phase.is_terminal(),
            Ordering::Release,
        );
        records
    });
    (watched, ends)
}

/// Hands the newest status to whoever sends it to the cluster.
pub(super) fn tell(context: &Context, response: &Response, progress: &Progress) {
    if !progress.deleted {
        context.statuses.publish(Arc::new(ResponseSummary {
            key: response.key().clone(),
            name: response.observation.name.clone(),
            generation: response.observation.generation,
            spec_hash: response.observation.spec_hash,
            observed_at: response.observed_at,
            progress: progress.clone(),
            routed: progress.intent.as_ref().map(RoutedTo::of),
        }));
    }
}

/// The hub's own budget, if it held up a response that was in line before that was over.
pub(super) fn budget_in_line(
    context: &Context,
    response: &Response,
    target: &ForgeTarget,
) -> Option<Limit> {
    let limit = context.last_budget(&LaneId::of(target))?;
    let Progress {
        last_attempt_at,
        next_attempt_at,
        limited_until,
        ..
    } = response.progress;
    let known = [last_attempt_at, next_attempt_at, limited_until];
    let since = known.into_iter().flatten().max();
    let since = since.map_or(response.observed_at, |at| at.max(response.observed_at));
    (since < limit.until && limit.until <= Timestamp::now()).then_some(limit)
}

/// The line of the audit log about a limit.
pub(super) fn limited(limit: &Limit, at: Timestamp) -> AuditEvent {
    let detail = format!("{}; until {:.0} at least", limit.detail, limit.until);
    by_hub(at, "Limited", detail)
}

/// Notes the limit that holds up a response that comes into line, for whoever asks later where the time went.
pub(super) async fn note_limit(
    context: &Context,
    response: &Response,
    target: &ForgeTarget,
) -> Result<(), StoreError> {
    let now = Timestamp::now();
    match context.standing(&LaneId::of(target), now).limit() {
        Some(limit) => note(&context.store, response.key(), limit, now).await,
        None => Ok(()),
    }
}

/// Notes a limit that begins for those who are in line already, behind the back of whoever has met it.
pub(super) fn note_limit_of_all(store: &SharedStore, keys: Vec<ResponseKey>, limit: Limit) {
    if keys.is_empty() {
        return;
    }
    let (store, now) = (SharedStore::clone(store), Timestamp::now());
    tokio::spawn(async move {
        let noted = futures::stream::iter(keys).map(Ok::<_, StoreError>);
        let noted = noted.try_for_each_concurrent(NOTED_AT_ONCE, |key| {
            let (store, limit) = (&store, limit.clone());
            async move { note(store, &key, limit, now).await }
        });
        if let Err(error) = noted.await {
            warn!(%error, "cannot note what limit holds up those in line");
        }
    });
}

/// One that goes on is noted once, over restarts too.
async fn note(
    store: &SharedStore,
    key: &ResponseKey,
    limit: Limit,
    now: Timestamp,
) -> Result<(), StoreError> {
    let transition = Box::new(move |progress: &mut Progress| {
        // What is not wanted any more waits for nothing.
        let waits = !progress.phase.is_terminal() && progress.cancel_requested.is_none();
        if progress.limited_until > Some(now) || !waits && progress.follow_up.is_none() {
            return SideRecords::default();
        }
        progress.limited_until = Some(limit.until);
        SideRecords {
            attempts: Vec::new(),
            audit: vec![limited(&limit, now)],
        }
    });
    store.transition(key, transition).await?;
    Ok(())
}

fn count_ended(context: &Context, response: &Response, progress: &Progress) {
    let provider = progress
        .intent
        .as_ref()
        .map_or("none", |intent| intent.target.kind.as_str());
    let outcome = progress
        .outcome
        .as_ref()
        .map_or("", |outcome| outcome.kind.as_str());
    context
        .metrics
        .dispatches
        .get_or_create(&DispatchLabels { provider, outcome })
        .inc();
    if let Some(completed_at) = progress.completed_at {
        let taken = completed_at
            .duration_since(response.observed_at)
            .as_secs_f64();
        context.metrics.completion.observe(taken.max(0.0));
    }
}
