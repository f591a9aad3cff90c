//! What an event means for a record: the only code that edits a [`Progress`].
//!
//! Each function takes the newest progress, an event and the time, and edits in place; the store runs it inside its
//! transaction. A terminal phase never changes. The revision grows exactly when the outward status does, and no
//! function does anything twice when it is called twice.

use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::Revision;

use super::retry::{RetryPolicy, outage_wait, parked_wait};
use super::{Attempt, Conclusion, follow_up, update};
use crate::change::{Intent, ProviderKind};
use crate::forge::{ForgeError, Made, ObservedPull, PullRequest, PullRequestState, Shared};
use crate::response::{
    Condition, Content, Observation, Outcome, OutcomeType, Phase, Progress, ResponseError,
    SecurityEventAbsence, SpecVersion,
};

/// The condition that tells whether the hub took the EventResponse on.
pub const ACCEPTED: &str = "Accepted";
/// The reason of [`ACCEPTED`] usually.
const STORED: &str = "Stored";
const STORED_MESSAGE: &str = "the hub holds the EventResponse durably";
/// The reason of [`ACCEPTED`] for one that asks for something else by now.
const SPEC_CHANGED: &str = "SpecChanged";
/// The condition that tells whether a route matched.
pub const ROUTED: &str = "Routed";
/// The condition that tells of the pull request.
pub const PULL_REQUEST: &str = "PullRequest";
/// The reason of [`PULL_REQUEST`] for one that waits.
pub(super) const PULL_REQUEST_OPEN: &str = "Open";
/// The condition that tells whether the SecurityEvent could be read.
pub const SECURITY_EVENT: &str = "SecurityEvent";

/// Why a response is cancelled whose object is gone.
pub(super) const EVENT_RESPONSE_DELETED: &str = "the EventResponse was deleted";
/// Why a response is cancelled whose object somebody else has ended or taken over.
pub const EVENT_RESPONSE_OUT_OF_HANDS: &str =
    "the EventResponse was ended by somebody else, or is not for this responder any more";
/// Why a response is cancelled whose object an inventory left out, of an agent that cannot say what has become of it.
pub const EVENT_RESPONSE_LEFT_OUT: &str = "the EventResponse was deleted, or ended by somebody else: the agent is of an older version and does not say which";

/// Whether something is wanted only because the EventResponse is not shown any more.
pub(super) fn is_farewell(reason: &str) -> bool {
    reason == EVENT_RESPONSE_DELETED || leaves_pull_request(reason)
}

/// Whether the EventResponse may be there, ended by somebody else in a way of their own: what was opened for it is theirs.
pub(super) fn leaves_pull_request(reason: &str) -> bool {
    [EVENT_RESPONSE_OUT_OF_HANDS, EVENT_RESPONSE_LEFT_OUT].contains(&reason)
}

/// The shortest wait for a limit; a forge that says less is not believed.
pub(super) const SHORTEST_LIMIT_WAIT: Duration = Duration::from_secs(1);
/// The longest wait for a limit that a forge can impose by one answer.
pub(super) const LONGEST_LIMIT_WAIT: Duration = Duration::from_hours(2);

/// Time and generation that an edit is made at.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Now.
    pub now: Timestamp,
    /// `metadata.generation` of the EventResponse, for conditions.
    pub generation: i64,
    /// In `0.0..1.0`; spreads delays.
    pub jitter: f64,
}

/// The record of an EventResponse that was never seen before.
pub fn accept(observation: &Observation, now: Timestamp) -> Progress {
    let moment = Moment {
        now,
        generation: observation.generation,
        jitter: 0.0,
    };
    let mut progress = Progress {
        phase: Phase::Pending,
        attempts: 0,
        started_at: None,
        last_attempt_at: None,
        next_attempt_at: None,
        completed_at: None,
        outcome: None,
        error: None,
        intent: None,
        url: None,
        commit: None,
        cancel_reason: None,
        cancel_requested: None,
        deleted: false,
        waits: 0,
        limited_until: None,
        attempt_open: false,
        follow_up: None,
        shared: false,
        withdrawn: false,
        withdrawal: None,
        watched: false,
        spec_watched: false,
        taken: 0,
        renewal: None,
        unrecorded: false,
        leftovers: Vec::new(),
        conditions: Vec::new(),
        revision: Revision(1),
        acknowledged_revision: Revision(0),
    };
    set_condition(
        &mut progress,
        ACCEPTED,
        true,
        STORED,
        STORED_MESSAGE,
        moment,
    );
    if let Some(absence) = absence(observation) {
        let (reason, message) = absence_words(absence);
        set_condition(
            &mut progress,
            SECURITY_EVENT,
            false,
            reason,
            message,
            moment,
        );
    }
    progress
}

/// An EventResponse that is known was observed again, perhaps with other content. One that was believed gone is wanted
/// again.
pub fn observe_again(progress: &mut Progress, observation: &Observation, now: Timestamp) {
    if progress.phase.is_terminal() {
        if progress.deleted {
            progress.deleted = false;
            follow_up::forget_deletion(progress);
        }
        return;
    }
    if progress.deleted {
        progress.deleted = false;
        // What an administrator asked for stays asked for.
        progress
            .cancel_requested
            .take_if(|reason| is_farewell(reason));
    }
    let moment = Moment {
        now,
        generation: observation.generation,
        jitter: 0.0,
    };
    let known = progress
        .conditions
        .iter()
        .find(|condition| condition.kind == SECURITY_EVENT);
    match (
        absence(observation),
        known.map(|condition| condition.status),
    ) {
        (Some(absence), status) if status != Some(Some(false)) => {
            let (reason, message) = absence_words(absence);
            set_condition(progress, SECURITY_EVENT, false, reason, message, moment);
            bump(progress);
        }
        (None, Some(Some(false))) => {
            set_condition(
                progress,
                SECURITY_EVENT,
                true,
                "Found",
                "the SecurityEvent was read",
                moment,
            );
            bump(progress);
        }
        _ => {}
    }
}

/// Notes whether the EventResponse asks for something else than what the change was decided on. The change stays as it is;
/// the condition says so, and for which generation.
pub fn observe_spec(
    progress: &mut Progress,
    decided: &Observation,
    seen: &Observation,
    now: Timestamp,
) {
    let decided = progress
        .renewal
        .map_or_else(|| SpecVersion::of(decided), |renewal| renewal.decided);
    let changed = decided.hash != seen.spec_hash;
    let mut known = progress.conditions.iter();
    let known = known.find(|one| one.kind == ACCEPTED);
    let is_said = known.is_some_and(|one| {
        (one.reason == SPEC_CHANGED) == changed
            && (!changed || one.observed_generation == seen.generation)
    });
    if is_said {
        return;
    }
    let moment = Moment {
        now,
        generation: seen.generation,
        jitter: 0.0,
    };
    if changed {
        let message = format!(
            "the spec has changed since the change was decided (generation {}), and the hub keeps to that; create a new \
            EventResponse to ask for something else",
            decided.generation
        );
        set_condition(progress, ACCEPTED, true, SPEC_CHANGED, &message, moment);
    } else {
        set_accepted(progress, moment);
    }
    bump(progress);
}

/// The EventResponse is taken as it is.
pub(super) fn set_accepted(progress: &mut Progress, moment: Moment) {
    set_condition(progress, ACCEPTED, true, STORED, STORED_MESSAGE, moment);
}

/// The EventResponse asks for something else than it gets.
pub(super) fn set_spec_changed(progress: &mut Progress, message: &str, moment: Moment) {
    set_condition(progress, ACCEPTED, true, SPEC_CHANGED, message, moment);
}

fn absence(observation: &Observation) -> Option<SecurityEventAbsence> {
    match &observation.content {
        Content::Objects { security_event, .. } => security_event.as_ref().err().copied(),
        Content::Unserveable { .. } => None,
    }
}

fn absence_words(absence: SecurityEventAbsence) -> (&'static str, &'static str) {
    match absence {
        SecurityEventAbsence::NotFound => (
            "NotFound",
            "there is no SecurityEvent of that name; templates see an empty one",
        ),
        SecurityEventAbsence::UidMismatch => (
            "UidMismatch",
            "the SecurityEvent of that name has another UID; templates see an empty one",
        ),
        SecurityEventAbsence::NotReadable => (
            "NotReadable",
            "the agent may not read SecurityEvents; give its role get on securityevents",
        ),
        SecurityEventAbsence::TooLarge => (
            "TooLarge",
            "the SecurityEvent does not fit into a frame; templates see an empty one",
        ),
    }
}

/// An attempt begins: the intent is kept from here on, whatever happens to routes and objects.
/// Nothing begins once a cancellation is wanted.
pub fn begin(progress: &mut Progress, attempt: &Attempt, moment: Moment) {
    if progress.phase.is_terminal() || progress.cancel_requested.is_some() {
        return;
    }
    if progress.intent.is_none() {
        progress.intent = Some(attempt.intent.clone());
    }
    progress.phase = Phase::Running;
    progress.started_at.get_or_insert(moment.now);
    progress.last_attempt_at = Some(moment.now);
    progress.next_attempt_at = None;
    progress.limited_until = None;
    progress.attempt_open = true;
    progress.unrecorded = true;
    let message = format!("matched route {}", attempt.intent.route);
    set_condition(progress, ROUTED, true, "RouteMatched", &message, moment);
    bump(progress);
}

/// The change is on the forge, or was not needed.
pub fn succeed(progress: &mut Progress, made: &Made, moment: Moment) {
    if progress.phase.is_terminal() {
        return;
    }
    progress.attempts += 1;
    progress.unrecorded = false;
    match made {
        Made::PullRequest(pull_request)
        | Made::Shared(Shared {
            pull: pull_request, ..
        }) => {
            progress.shared = matches!(made, Made::Shared(_));
            let said = said_of(made);
            record_pull_request(progress, pull_request, &said, moment);
            let open = pull_request.state == PullRequestState::Open;
            let cancelled = progress.cancel_requested.clone();
            if let Some(reason) =
                cancelled.filter(|_| open && follow_up::closes_on_cancel(progress))
            {
                end_cancelled(progress, &reason, moment);
                return;
            }
        }
        Made::NoActionNeeded { detail } => {
            set_condition(
                progress,
                PULL_REQUEST,
                false,
                "NoActionNeeded",
                detail,
                moment,
            );
            progress.outcome = Some(Outcome {
                kind: OutcomeType::NoActionNeeded,
                message: detail.clone(),
            });
        }
    }
    progress.error = None;
    end(progress, Phase::Succeeded, moment);
    update::after_success(progress, moment);
}

/// How a pull request came about, for people.
fn said_of(made: &Made) -> String {
    match made {
        Made::Shared(Shared {
            pull,
            done_before: true,
        }) => format!(
            "another response of the group made the same change: {}",
            pull.url
        ),
        Made::Shared(Shared { pull, .. }) if pull.adopted => {
            format!("pull request of the group joined: {}", pull.url)
        }
        Made::Shared(Shared { pull, .. }) => {
            format!("pull request opened for the group: {}", pull.url)
        }
        Made::PullRequest(pull) if pull.adopted => format!("pull request found: {}", pull.url),
        Made::PullRequest(pull) => format!("pull request opened: {}", pull.url),
        Made::NoActionNeeded { detail } => detail.clone(),
    }
}

fn record_pull_request(
    progress: &mut Progress,
    pull_request: &PullRequest,
    said: &str,
    moment: Moment,
) {
    let (status, reason) = match pull_request.state {
        PullRequestState::Open => (true, PULL_REQUEST_OPEN),
        PullRequestState::Merged => (true, "Merged"),
        PullRequestState::Closed => (false, "Closed"),
    };
    let mut message = said.to_owned();
    if !pull_request.notes.is_empty() {
        message.push_str("; without ");
        message.push_str(&pull_request.notes.join("; "));
    }
    set_condition(progress, PULL_REQUEST, status, reason, &message, moment);
    progress.url = Some(pull_request.url.clone());
    progress.commit.clone_from(&pull_request.commit);
    progress.spec_watched =
        pull_request.state == PullRequestState::Open && update::follows_spec(progress);
    progress.watched = progress.spec_watched
        || pull_request.state == PullRequestState::Open && follow_up::closes_on_cancel(progress);
    progress.outcome = Some(Outcome {
        kind: OutcomeType::ActionTaken,
        message,
    });
}

/// Whether the pull request of a record waits for people, and is looked after until they have ended it.
pub fn is_followed(progress: &Progress) -> bool {
    let real = |intent: &Intent| intent.target.kind != ProviderKind::Noop;
    follow_up::has_open_pull(progress) && progress.intent.as_ref().is_some_and(real)
}

/// The pull request was looked at. If people have ended it, the condition says so; the phase stays.
pub fn observe_pull_request(progress: &mut Progress, observed: &ObservedPull, moment: Moment) {
    if !is_followed(progress) {
        return;
    }
    let (status, reason, verb) = match observed.state {
        PullRequestState::Open => return,
        PullRequestState::Merged => (true, "Merged", "merged"),
        PullRequestState::Closed => (false, "Closed", "closed without a merge"),
    };
    let commit = observed.merge_commit.as_deref();
    let parts = [
        Some(format!("pull request {verb}")),
        commit.map(|commit| format!(" as {commit}")),
        observed.ended_at.map(|at| format!(" at {at:.0}")),
        progress.url.as_deref().map(|url| format!(": {url}")),
    ];
    let mut message: String = parts.into_iter().flatten().collect();
    message.extend(update::too_late(progress, moment));
    set_condition(progress, PULL_REQUEST, status, reason, &message, moment);
    (progress.watched, progress.spec_watched) = (false, false);
    bump(progress);
}

/// The attempt failed. A transient failure with attempts left waits for the next one; a limit or an outage waits
/// without counting; everything else ends the response.
pub fn fail(progress: &mut Progress, error: &ForgeError, retry: &RetryPolicy, moment: Moment) {
    if progress.phase.is_terminal() {
        return;
    }
    match error {
        ForgeError::Failed(error) => {
            progress.attempts += 1;
            progress.waits = 0;
            if progress.cancel_requested.is_some() {
                // `plan` ends it as cancelled, and looks after what the attempt may have left.
                progress.error = Some(error.clone());
                wait(progress, Duration::ZERO, moment);
                return;
            }
            let retryable = error.kind == crate::response::ErrorType::Transient;
            if retryable && progress.attempts < retry.max_attempts {
                progress.error = Some(error.clone());
                wait(
                    progress,
                    retry.delay_after(progress.attempts, moment.jitter),
                    moment,
                );
            } else {
                let error = if retryable {
                    exhausted(error, progress.attempts)
                } else {
                    error.clone()
                };
                give_up(progress, error, moment);
            }
        }
        ForgeError::RateLimited {
            retry_after,
            detail,
        } => {
            progress.error = Some(transient("RateLimited", detail));
            let asked = (*retry_after).clamp(SHORTEST_LIMIT_WAIT, LONGEST_LIMIT_WAIT);
            wait(progress, asked + asked.mul_f64(0.1 * moment.jitter), moment);
            progress.waits = progress.waits.saturating_add(1);
        }
        ForgeError::Parked(error) => {
            progress.error = Some(error.clone());
            wait(progress, parked_wait(progress.waits, moment.jitter), moment);
            progress.waits = progress.waits.saturating_add(1);
        }
        ForgeError::Unavailable { detail } => {
            progress.error = Some(transient("ForgeUnavailable", detail));
            wait(progress, outage_wait(progress.waits, moment.jitter), moment);
            progress.waits = progress.waits.saturating_add(1);
        }
    }
}

fn transient(reason: &str, detail: &str) -> ResponseError {
    ResponseError::new(crate::response::ErrorType::Transient, reason, detail)
}

fn exhausted(error: &ResponseError, attempts: u32) -> ResponseError {
    let times = if attempts == 1 {
        "attempt".to_owned()
    } else {
        format!("{attempts} attempts")
    };
    ResponseError {
        detail: format!("given up after {times}: {}", error.detail),
        ..error.clone()
    }
}

fn wait(progress: &mut Progress, delay: Duration, moment: Moment) {
    progress.phase = Phase::Pending;
    progress.attempt_open = false;
    progress.next_attempt_at = Some(moment.now.saturating_add(delay).unwrap_or(Timestamp::MAX));
    bump(progress);
}

/// The response ends without a forge.
pub fn conclude(progress: &mut Progress, conclusion: &Conclusion, moment: Moment) {
    if progress.phase.is_terminal() {
        return;
    }
    match conclusion {
        Conclusion::Failed {
            error,
            route,
            routing_miss,
        } => {
            if let Some(route) = route {
                let message = format!("matched route {route}");
                set_condition(progress, ROUTED, true, "RouteMatched", &message, moment);
            } else if *routing_miss {
                set_condition(
                    progress,
                    ROUTED,
                    false,
                    &error.reason,
                    &error.detail,
                    moment,
                );
            }
            give_up(progress, error.clone(), moment);
        }
        Conclusion::Cancelled { reason } => end_cancelled(progress, reason, moment),
    }
}

/// The response ends as cancelled. Where its route wants that, what an attempt has made, or may have made, is closed.
fn end_cancelled(progress: &mut Progress, reason: &str, moment: Moment) {
    progress.cancel_reason = Some(reason.to_owned());
    progress.outcome = Some(Outcome {
        kind: OutcomeType::Skipped,
        message: reason.to_owned(),
    });
    end(progress, Phase::Cancelled, moment);
    // Somebody has ended it in a way of their own, and decides about what was opened meanwhile.
    if leaves_pull_request(reason) {
        return;
    }
    if !follow_up::ask_to_close(progress, reason) {
        follow_up::close_what_may_be_there(progress, reason);
    }
}

/// What a wish to cancel a response comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancellation {
    /// It ends as [`Phase::Cancelled`] at once.
    Requested,
    /// An attempt runs and is let to its end, since nobody knows what a part of it has done; then the response ends.
    AfterAttempt,
    /// It has ended before, and its pull request is closed, because its route wants that.
    Closing,
    /// It has ended before, in this phase; nothing changes.
    Ended(Phase),
}

/// An administrator wants the response cancelled. The wish is kept; `plan` concludes it before anything else begins,
/// without waiting for a turn or for a limit of the forge.
pub fn cancel(progress: &mut Progress, reason: &str) -> Cancellation {
    if progress.phase.is_terminal() {
        return if follow_up::ask_to_close(progress, reason) {
            Cancellation::Closing
        } else {
            Cancellation::Ended(progress.phase)
        };
    }
    request_cancel(progress, reason);
    if progress.attempt_open {
        Cancellation::AfterAttempt
    } else {
        Cancellation::Requested
    }
}

/// Somebody wants the response cancelled; `plan` concludes it between two attempts.
pub fn request_cancel(progress: &mut Progress, reason: &str) {
    if !progress.phase.is_terminal() {
        progress
            .cancel_requested
            .get_or_insert_with(|| reason.to_owned());
    }
}

/// The EventResponse is gone from its cluster: nobody can read its status any more, and what is not begun is not
/// wanted. Nor is a pull request that waits, if the route says so.
pub fn mark_deleted(progress: &mut Progress) {
    progress.deleted = true;
    if progress.phase.is_terminal() {
        update::forget_unbegun(progress);
        follow_up::ask_to_close(progress, EVENT_RESPONSE_DELETED);
    }
    request_cancel(progress, EVENT_RESPONSE_DELETED);
}

/// The EventResponse is there, but finished or not for this responder any more. If the response has ended, that is its own
/// status, on its way by an agent that is gone. Gives back whether anything follows, for this reason.
pub fn mark_out_of_hands(progress: &mut Progress, reason: &str) -> bool {
    if progress.phase.is_terminal() {
        return false;
    }
    progress.deleted = true;
    request_cancel(progress, reason);
    true
}

fn give_up(progress: &mut Progress, error: ResponseError, moment: Moment) {
    progress.outcome = Some(Outcome {
        kind: OutcomeType::Errored,
        message: error.detail.clone(),
    });
    progress.error = Some(error);
    end(progress, Phase::Failed, moment);
}

fn end(progress: &mut Progress, phase: Phase, moment: Moment) {
    progress.phase = phase;
    progress.attempt_open = false;
    progress.waits = 0;
    progress.next_attempt_at = None;
    progress.completed_at = Some(moment.now);
    bump(progress);
}

pub(super) fn bump(progress: &mut Progress) {
    progress.revision = progress.revision.next();
}

/// Sets one condition; `lastTransitionTime` moves only when its status does.
pub fn set_condition(
    progress: &mut Progress,
    kind: &str,
    status: bool,
    reason: &str,
    message: &str,
    moment: Moment,
) {
    let known = progress
        .conditions
        .iter()
        .position(|condition| condition.kind == kind);
    let since = known
        .map(|index| &progress.conditions[index])
        .filter(|condition| condition.status == Some(status))
        .map_or(moment.now, |condition| condition.last_transition_time);
    let condition = Condition {
        kind: kind.to_owned(),
        status: Some(status),
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: since,
        observed_generation: moment.generation,
    };
    match known {
        Some(index) => progress.conditions[index] = condition,
        None => progress.conditions.push(condition),
    }
}
