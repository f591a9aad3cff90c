//! Takes one response as far as it goes now: asks `plan` for the step, does it, stores what it means.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tracing::{Instrument as _, error, info, info_span, warn};

use super::lanes::Ticket;
use super::lanes::standing::Limit;
use super::metrics::AttemptLabels;
pub(super) use super::record::{apply, budget_in_line, limited, note_limit, tell};
use super::{Context, Farewell, close, clusters::ClusterFacts, groups, lock, update};
use crate::change::ForgeTarget;
use crate::forge::{Forge, ForgeError, Job, Made, Shared};
use crate::plan::progress::{self, Moment};
use crate::plan::{self, Attempt, Conclusion, Policy, Step};
use crate::response::{Phase, Progress, Response, ResponseError};
use crate::store::{AttemptChange, AttemptResult, AuditEvent, SideRecords, StoreError};

/// How long to leave a response alone after a step of it panicked.
const AFTER_PANIC: Duration = Duration::from_mins(1);

/// Where a response stands after it was advanced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Advanced {
    /// Nothing is to be done until something new is observed.
    Settled,
    /// Nothing is to be done before this time.
    WaitUntil(Timestamp),
    /// It stands in line for its lane.
    InLine,
}

impl Advanced {
    /// Nothing is to be done for a while.
    pub(super) fn in_(wait: Duration) -> Self {
        Self::WaitUntil(
            Timestamp::now()
                .saturating_add(wait)
                .unwrap_or(Timestamp::MAX),
        )
    }
}

/// One response to be taken further.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) key: ResponseKey,
    /// The record, if it is at hand.
    pub(super) response: Option<Arc<Response>>,
    /// The right to attempt, if it was waited for.
    pub(super) ticket: Option<Ticket>,
}

/// The ticket that is held at the end goes back to the lanes, whatever happened.
pub(super) async fn advance(
    context: &Context,
    start: Start,
) -> (Result<Advanced, StoreError>, Option<Ticket>) {
    let span = info_span!("response", key = %start.key);
    let mut ticket = start.ticket;
    let steps = steps(context, &start.key, start.response, &mut ticket).instrument(span);
    let result = AssertUnwindSafe(steps)
        .catch_unwind()
        .await
        .unwrap_or_else(|_| {
            error!(key = %start.key, "a step panicked; please report this with the lines before");
            Ok(Advanced::in_(AFTER_PANIC))
        });
    (result, ticket)
}

async fn steps(
    context: &Context,
    key: &ResponseKey,
    mut known: Option<Arc<Response>>,
    ticket: &mut Option<Ticket>,
) -> Result<Advanced, StoreError> {
    loop {
        let response = match known.take() {
            Some(response) => response,
            None => match context.store.response(key).await? {
                Some(response) => Arc::new(response),
                None => return Ok(Advanced::Settled),
            },
        };
        let now = Timestamp::now();
        let cluster = context.clusters.facts(&context.store, &key.cluster).await?;
        match plan_step(context, &response, &cluster, now) {
            Step::Settled => return ended(context, key, &response.progress).await,
            Step::WaitUntil(at) => return Ok(Advanced::WaitUntil(at)),
            Step::Conclude(conclusion) => {
                return match conclude(context, &response, conclusion).await? {
                    Some(progress) => ended(context, key, &progress).await,
                    None => Ok(Advanced::Settled),
                };
            }
            Step::Attempt(attempt) => {
                let target = &attempt.intent.target;
                let was_in_line = ticket.is_some();
                if !enter_lane(context, key, target, ticket) {
                    return in_line(context, &response, target).await;
                }
                let limit = was_in_line.then(|| budget_in_line(context, &response, target));
                let limit = limit.flatten();
                if let Some(progress) = attempt_change(context, &response, *attempt, limit).await? {
                    return ended(context, key, &progress).await;
                }
            }
            Step::Close(close) => {
                let target = &close.intent.target;
                if !enter_lane(context, key, target, ticket) {
                    return in_line(context, &response, target).await;
                }
                if let Some(progress) = close::close(context, &response, *close).await? {
                    return ended(context, key, &progress).await;
                }
            }
            Step::Update(update) => {
                let target = &update.intent.target;
                if !enter_lane(context, key, target, ticket) {
                    return in_line(context, &response, target).await;
                }
                if let Some(progress) = update::update(context, &response, *update).await? {
                    return Ok(standing(&progress));
                }
            }
            Step::Keep(keep) => {
                if let Some(progress) = update::keep(context, &response, *keep).await? {
                    return Ok(standing(&progress));
                }
            }
        }
    }
}

async fn in_line(
    context: &Context,
    response: &Response,
    target: &ForgeTarget,
) -> Result<Advanced, StoreError> {
    if let Err(error) = note_limit(context, response, target).await {
        // It stands in line, and is called from there.
        warn!(%error, "cannot note what limit holds it up");
    }
    Ok(Advanced::InLine)
}

/// What is left to do after a step has ended, for this response and for others of its group.
async fn ended(
    context: &Context,
    key: &ResponseKey,
    progress: &Progress,
) -> Result<Advanced, StoreError> {
    match groups::reconsider(context, progress).await? {
        Some(other) if other != *key => lock(&context.woken).push(other),
        Some(_) => return Ok(Advanced::WaitUntil(Timestamp::now())),
        None => {}
    }
    Ok(standing(progress))
}

fn plan_step(
    context: &Context,
    response: &Response,
    cluster: &ClusterFacts,
    now: Timestamp,
) -> Step {
    let routes = context.config.table();
    let policy = Policy {
        routes: &routes,
        max_attempts: context.settings.max_attempts,
        cluster_name: &cluster.name,
        cluster_labels: &cluster.labels,
    };
    plan::plan(response, &policy, now)
}

/// What is left to do after an attempt has ended.
pub(super) fn standing(progress: &Progress) -> Advanced {
    // What is not wanted any more waits for nothing.
    if progress.cancel_requested.is_some() && !progress.phase.is_terminal() {
        return Advanced::WaitUntil(Timestamp::now());
    }
    let next = match &progress.follow_up {
        // It has come about just now, and nobody has planned for it.
        Some(follow_up) => Some(follow_up.next_at.unwrap_or_else(Timestamp::now)),
        None => progress
            .next_attempt_at
            .filter(|_| !progress.phase.is_terminal()),
    };
    next.map_or(Advanced::Settled, Advanced::WaitUntil)
}

/// Makes sure that the ticket fits the target; `false` means that the response stands in line now.
fn enter_lane(
    context: &Context,
    key: &ResponseKey,
    target: &ForgeTarget,
    ticket: &mut Option<Ticket>,
) -> bool {
    let needed = Ticket::for_target(target);
    if ticket.as_ref() == Some(&needed) {
        return true;
    }
    if let Some(other) = ticket.take() {
        context.leave_lane(&other);
    }
    let entered = context.enter_lane(&needed, key);
    if entered {
        *ticket = Some(needed);
    }
    entered
}

/// Begins, makes, ends. `None` means that it did not begin, because the record has changed: plan again.
async fn attempt_change(
    context: &Context,
    response: &Response,
    attempt: Attempt,
    limit: Option<Limit>,
) -> Result<Option<Progress>, StoreError> {
    let attempt = Arc::new(attempt);
    let forge = context.forges.get(&attempt.intent.target);
    if let Ok(forge) = &forge
        && !forge.leaves_traces()
    {
        return make_here(context, response, attempt, forge.as_ref()).await;
    }
    let begun = begin(context, response, Arc::clone(&attempt), limit).await?;
    // One that was interrupted is still open, though nothing begins any more once a cancellation is wanted.
    let begins = |progress: &Progress| {
        progress.attempt_open
            && progress.cancel_requested.is_none()
            && progress.taken == response.progress.taken
    };
    let Some(begun) = begun.filter(begins) else {
        return Ok(None);
    };
    // What is stored is what is made, should another have decided first.
    let intent = begun.intent.as_ref().unwrap_or(&attempt.intent);
    let again = response.progress.last_attempt_at.is_some();
    let job = Job::new(response.key(), intent).after_others(again);
    let turn = context.groups.turn(intent).await;
    let made = match &forge {
        Ok(forge) => forge.make(&job).await,
        Err(error) => Err(error.clone()),
    };
    drop(turn);
    let requests = job.requests.load(Ordering::Relaxed);
    if let Err(ForgeError::RateLimited {
        retry_after,
        detail,
    }) = &made
    {
        context.close_lane(&intent.target, *retry_after, detail);
    }
    report(context, &made);
    let wrote = response.progress.unrecorded || job.has_written();
    let ended = end_attempt(context, response, attempt, made, requests, wrote).await?;
    Ok(Some(ended.unwrap_or(begun)))
}

/// An attempt that nobody outside sees needs no intent before it: it is begun and ended in one commit.
async fn make_here(
    context: &Context,
    response: &Response,
    attempt: Arc<Attempt>,
    forge: &dyn Forge,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    let job = Job::new(response.key(), &attempt.intent);
    let made = forge.make(&job).await;
    let requests = job.requests.load(Ordering::Relaxed);
    report(context, &made);
    let taken = response.progress.taken;
    let transition = Box::new(move |progress: &mut Progress| {
        let other = progress.intent.as_ref();
        if progress.taken != taken || other.is_some_and(|intent| *intent != attempt.intent) {
            return SideRecords::default();
        }
        let mut records = note_begin(progress, &attempt, None, moment);
        if progress.attempt_open {
            let end = note_end(progress, &attempt, &made, requests, false, moment);
            records.attempts.extend(end.attempts);
            records.audit.extend(end.audit);
        }
        records
    });
    let progress = apply(context, response, transition).await?;
    Ok(progress.filter(|progress| progress.last_attempt_at == Some(moment.now)))
}

fn report(context: &Context, made: &Result<Made, ForgeError>) {
    let outcome = match made {
        Ok(Made::PullRequest(pull_request)) => {
            info!(
                url = pull_request.url,
                adopted = pull_request.adopted,
                "the pull request is there"
            );
            "succeeded"
        }
        Ok(Made::Shared(Shared { pull, done_before })) => {
            info!(
                url = pull.url,
                adopted = pull.adopted,
                done_before,
                "the change is in the pull request of its group"
            );
            "succeeded"
        }
        Ok(Made::NoActionNeeded { detail }) => {
            info!(detail, "no change is needed");
            "succeeded"
        }
        Err(error @ ForgeError::Failed(_)) => {
            warn!(%error, "the attempt failed");
            "failed"
        }
        Err(error @ ForgeError::Parked(_)) => {
            warn!(%error, "people have to act; it is looked at again");
            "parked"
        }
        Err(error) => {
            warn!(%error, "the forge has to be waited for");
            "waited"
        }
    };
    context
        .metrics
        .attempts
        .get_or_create(&AttemptLabels { outcome })
        .inc();
}

async fn begin(
    context: &Context,
    response: &Response,
    attempt: Arc<Attempt>,
    limit: Option<Limit>,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    let taken = response.progress.taken;
    let transition = Box::new(move |progress: &mut Progress| {
        // What was decided on an older observation is decided again.
        if progress.taken == taken {
            note_begin(progress, &attempt, limit, moment)
        } else {
            SideRecords::default()
        }
    });
    apply(context, response, transition).await
}

async fn end_attempt(
    context: &Context,
    response: &Response,
    attempt: Arc<Attempt>,
    made: Result<Made, ForgeError>,
    requests: u32,
    wrote: bool,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    let transition = Box::new(move |progress: &mut Progress| {
        note_end(progress, &attempt, &made, requests, wrote, moment)
    });
    apply(context, response, transition).await
}

/// `limit`: what held it up in line.
fn note_begin(
    progress: &mut Progress,
    attempt: &Attempt,
    limit: Option<Limit>,
    moment: Moment,
) -> SideRecords {
    let routed_before = progress.intent.is_some();
    let limit = limit.filter(|limit| progress.limited_until < Some(limit.until));
    progress::begin(progress, attempt, moment);
    if !progress.attempt_open {
        return SideRecords::default();
    }
    let mut audit: Vec<_> = (limit.iter())
        .map(|limit| limited(limit, moment.now))
        .collect();
    if !routed_before {
        let target = &attempt.intent.target;
        let mut detail = format!(
            "route {} to {} of {}",
            attempt.intent.route, target.repository, target.kind
        );
        if !attempt.passed_over.is_empty() {
            detail = format!("{detail}; {}", attempt.passed_over);
        }
        audit.push(by_hub(moment.now, "Routed", detail));
    }
    SideRecords {
        attempts: vec![AttemptChange::Begun { at: moment.now }],
        audit,
    }
}

fn note_end(
    progress: &mut Progress,
    attempt: &Attempt,
    made: &Result<Made, ForgeError>,
    requests: u32,
    wrote: bool,
    moment: Moment,
) -> SideRecords {
    let (result, error) = match made {
        Ok(made) => {
            progress::succeed(progress, made, moment);
            (AttemptResult::Succeeded, None)
        }
        Err(error) => {
            progress::fail(progress, error, &attempt.retry, moment);
            plan::update::after_failure(progress, wrote);
            let counted = matches!(error, ForgeError::Failed(_));
            let result = if counted {
                AttemptResult::Failed
            } else {
                AttemptResult::Waited
            };
            (result, progress.error.clone())
        }
    };
    let audit = vec![by_hub(
        moment.now,
        ended_word(progress, result),
        ended_text(progress, error.as_ref()),
    )];
    let ended = AttemptChange::Ended {
        at: moment.now,
        result,
        error,
        requests,
    };
    SideRecords {
        attempts: vec![ended],
        audit,
    }
}

fn ended_word(progress: &Progress, result: AttemptResult) -> &'static str {
    match (progress.phase, result) {
        (Phase::Succeeded, _) => "Succeeded",
        (Phase::Failed, _) => "Failed",
        (Phase::Cancelled, _) => "Cancelled",
        (_, AttemptResult::Waited) => "Waiting",
        _ => "AttemptFailed",
    }
}

fn ended_text(progress: &Progress, error: Option<&ResponseError>) -> String {
    match (error, &progress.outcome) {
        (Some(error), _) => match progress.next_attempt_at {
            Some(at) => format!(
                "{}: {}; next attempt at {at:.0}",
                error.reason, error.detail
            ),
            None => format!("{}: {}", error.reason, error.detail),
        },
        (None, Some(outcome)) => outcome.message.clone(),
        (None, None) => String::new(),
    }
}

pub(super) async fn conclude(
    context: &Context,
    response: &Response,
    conclusion: Conclusion,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    match &conclusion {
        Conclusion::Failed {
            error,
            routing_miss,
            ..
        } => {
            if *routing_miss {
                context.metrics.routing_misses.inc();
            }
            warn!(
                reason = error.reason,
                detail = error.detail,
                "the response cannot be served"
            );
        }
        Conclusion::Cancelled { reason } => info!(reason, "the response is cancelled"),
    }
    let transition = Box::new(move |progress: &mut Progress| {
        let (before, was_open) = (progress.phase, progress.attempt_open);
        progress::conclude(progress, &conclusion, moment);
        if before == progress.phase {
            return SideRecords::default();
        }
        // Nobody was left to end an attempt that was interrupted.
        let interrupted = was_open.then_some(AttemptChange::Ended {
            at: moment.now,
            result: AttemptResult::Interrupted,
            error: None,
            requests: 0,
        });
        let detail = progress
            .outcome
            .as_ref()
            .map(|outcome| outcome.message.clone())
            .unwrap_or_default();
        let audit = vec![by_hub(moment.now, progress.phase.as_str(), detail)];
        SideRecords {
            attempts: interrupted.into_iter().collect(),
            audit,
        }
    });
    apply(context, response, transition).await
}

/// Marks a response whose EventResponse is gone or out of its agent's hands; gives back whether there is work to do on it.
pub(super) async fn mark_deleted(
    context: &Context,
    key: &ResponseKey,
    farewell: Farewell,
) -> Result<bool, StoreError> {
    let now = Timestamp::now();
    let actor = format!("agent/{}", key.cluster);
    let transition = Box::new(move |progress: &mut Progress| {
        if progress.deleted {
            return SideRecords::default();
        }
        let (action, detail) = match farewell {
            Farewell::Gone => {
                progress::mark_deleted(progress);
                ("Deleted", "the EventResponse is gone from its cluster")
            }
            Farewell::OutOfHands => {
                let reason = progress::EVENT_RESPONSE_OUT_OF_HANDS;
                if !progress::mark_out_of_hands(progress, reason) {
                    return SideRecords::default();
                }
                ("OutOfHands", reason)
            }
            Farewell::LeftOut => {
                let reason = progress::EVENT_RESPONSE_LEFT_OUT;
                if !progress::mark_out_of_hands(progress, reason) {
                    return SideRecords::default();
                }
                ("LeftOut", reason)
            }
        };
        SideRecords {
            attempts: Vec::new(),
            audit: vec![AuditEvent {
                at: now,
                actor,
                action: action.into(),
                detail: detail.to_owned(),
            }],
        }
    });
    let progress = context.store.transition(key, transition).await?;
    Ok(progress
        .is_some_and(|progress| !progress.phase.is_terminal() || progress.follow_up.is_some()))
}

pub(super) fn by_hub(at: Timestamp, action: &str, detail: String) -> AuditEvent {
    AuditEvent {
        at,
        actor: "hub".to_owned(),
        action: action.to_owned(),
        detail,
    }
}

pub(super) fn moment(response: &Response) -> Moment {
    Moment {
        now: Timestamp::now(),
        generation: response.observation.generation,
        jitter: rand::random(),
    }
}
