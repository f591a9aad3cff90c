//! What is done about the pull request of a response that has ended: it is closed where its route wants that, because
//! the response is cancelled or its EventResponse is gone.
//!
//! The wish is stored with the record and survives everything; that it has begun is stored before the first request that
//! writes. A merged pull request is never touched, and a terminal phase never changes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::progress::{
    self, LONGEST_LIMIT_WAIT, Moment, PULL_REQUEST, PULL_REQUEST_OPEN, SHORTEST_LIMIT_WAIT, bump,
    set_condition,
};
use super::retry::{outage_wait, parked_wait};
use super::{Close, Step};
use crate::change::ProviderKind;
use crate::forge::{ClosedPull, ForgeError, PullRequestState, number_of};
use crate::render::markdown::neutralise;
use crate::response::{ErrorType, FollowUp, FollowUpKind, Phase, Progress, Response};

/// Failures that may pass, until the wish is given up.
const MOST_FAILURES: u32 = 10;
/// The wait after the first failure; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// How long a miss is no proof that an attempt has left nothing: reads of a forge may lag behind its writes.
const UNSEEN_FOR: SignedDuration = SignedDuration::from_secs(60);

/// The next step of a response that has ended.
pub(super) fn step(response: &Response, now: Timestamp) -> Step {
    let progress = &response.progress;
    let (Some(follow_up), Some(intent)) = (&progress.follow_up, &progress.intent) else {
        return Step::Settled;
    };
    if let Some(at) = follow_up.next_at.filter(|at| *at > now) {
        return Step::WaitUntil(at);
    }
    let FollowUpKind::Close { reason } = &follow_up.kind;
    let key = response.key();
    let why = format!(
        "{} (EventResponse `{}` of cluster `{}`).",
        neutralise(reason),
        neutralise(&response.observation.name),
        key.cluster
    );
    let commit = match &progress.commit {
        Some(commit) => format!("Its commit {commit} is on this branch"),
        None => "Its commit is on this branch".to_owned(),
    };
    let shared = intent.in_group().filter(|_| progress.shared);
    Step::Close(Box::new(Close {
        intent: shared.unwrap_or_else(|| intent.clone()),
        number: progress.url.as_deref().and_then(number_of),
        commit: progress.commit.clone(),
        comment: format!("Closed by Nabu: {why}"),
        comment_if_others_stay: format!(
            "Not wanted any more: {why} {commit}; this pull request stays open for the other responses of its group."
        ),
        again: follow_up.begun,
    }))
}

/// Asks for the pull request of an ended response to be closed, if its route wants that and it still waits for people.
/// Gives back whether it will be.
pub(super) fn ask_to_close(progress: &mut Progress, reason: &str) -> bool {
    if progress.follow_up.is_some() {
        return true;
    }
    if progress.withdrawn {
        return false;
    }
    let wanted = closes_on_cancel(progress) && has_open_pull(progress);
    if wanted {
        progress.follow_up = Some(close(reason));
    }
    wanted
}

/// The response is cancelled while an attempt may have left something on the forge.
pub(super) fn close_what_may_be_there(progress: &mut Progress, reason: &str) {
    let real = |progress: &Progress| {
        let intent = progress.intent.as_ref();
        intent.is_some_and(|intent| intent.target.kind != ProviderKind::Noop)
    };
    if progress.follow_up.is_none() && closes_on_cancel(progress) && real(progress) {
        progress.follow_up = Some(close(reason));
    }
}

fn close(reason: &str) -> FollowUp {
    FollowUp {
        kind: FollowUpKind::Close {
            reason: reason.to_owned(),
        },
        begun: false,
        failures: 0,
        waits: 0,
        next_at: None,
    }
}

/// Whether the route wanted pull requests of cancelled responses closed when the change was decided.
pub fn closes_on_cancel(progress: &Progress) -> bool {
    let intent = progress.intent.as_ref();
    intent.is_some_and(|intent| intent.options.close_on_cancel)
}

/// Whether the response has ended with a pull request that waits for people.
pub fn has_open_pull(progress: &Progress) -> bool {
    progress.phase.is_terminal()
        && progress.url.is_some()
        && progress
            .conditions
            .iter()
            .any(|one| one.kind == PULL_REQUEST && one.reason == PULL_REQUEST_OPEN)
}

/// The EventResponse is there after all: what was wanted because it was gone, and has not begun, is not wanted any more.
pub(super) fn forget_deletion(progress: &mut Progress) {
    let deletion = |follow_up: &mut FollowUp| {
        let FollowUpKind::Close { reason } = &follow_up.kind;
        !follow_up.begun && reason == progress::EVENT_RESPONSE_DELETED
    };
    progress.follow_up.take_if(deletion);
}

/// Something is about to be written for it. `false` if nothing is wanted any more.
pub fn begin(progress: &mut Progress) -> bool {
    let Some(follow_up) = &mut progress.follow_up else {
        return false;
    };
    follow_up.begun = true;
    follow_up.next_at = None;
    true
}

/// The pull request has ended, by us or by people; `None`: there is none.
pub fn closed(progress: &mut Progress, closed: Option<&ClosedPull>, moment: Moment) {
    let Some(follow_up) = &mut progress.follow_up else {
        return;
    };
    let FollowUpKind::Close { reason } = &follow_up.kind;
    let Some(closed) = closed else {
        // The last write of an attempt may come long after its begin, and not after its end.
        let settled = progress
            .last_attempt_at
            .max(progress.completed_at)
            .and_then(|at| at.checked_add(UNSEEN_FOR).ok());
        if let Some(at) = settled.filter(|at| *at > moment.now) {
            follow_up.next_at = Some(at);
        } else {
            progress.follow_up = None;
        }
        return;
    };
    if closed.pull.state == PullRequestState::Open {
        stay(progress, closed, moment);
        return;
    }
    let merged = closed.pull.state == PullRequestState::Merged;
    let mut message = if merged {
        format!("pull request merged before it could be closed ({reason})")
    } else {
        format!("pull request closed: {reason}")
    };
    for part in [
        closed
            .pull
            .merge_commit
            .as_ref()
            .map(|commit| format!(", as {commit}")),
        closed.pull.ended_at.map(|at| format!(", at {at:.0}")),
        Some(format!(": {}", closed.url)),
    ] {
        message.extend(part);
    }
    if !closed.notes.is_empty() {
        message.push_str("; without ");
        message.push_str(&closed.notes.join("; "));
    }
    let word = if merged { "Merged" } else { "Closed" };
    set_condition(progress, PULL_REQUEST, merged, word, &message, moment);
    progress.url.get_or_insert_with(|| closed.url.clone());
    progress.follow_up = None;
    progress.watched = false;
    bump(progress);
}

/// It was said on the pull request that the response is not wanted any more; others of the group are in it.
fn stay(progress: &mut Progress, closed: &ClosedPull, moment: Moment) {
    let Some(FollowUp {
        kind: FollowUpKind::Close { reason },
        ..
    }) = progress.follow_up.take()
    else {
        return;
    };
    let mut message = format!(
        "the pull request stays open for other responses of its group, with a comment that this one is not wanted any \
        more ({reason}): {}",
        closed.url
    );
    if !closed.notes.is_empty() {
        message.push_str("; without ");
        message.push_str(&closed.notes.join("; "));
    }
    set_condition(
        progress,
        PULL_REQUEST,
        true,
        PULL_REQUEST_OPEN,
        &message,
        moment,
    );
    progress.url.get_or_insert_with(|| closed.url.clone());
    progress.withdrawn = true;
    progress.watched = false;
    bump(progress);
}

/// Whether a response of a group keeps the group's pull request open: it is in there, or may be soon, and is wanted.
pub fn keeps_group_open(progress: &Progress) -> bool {
    let is_member = progress.shared || !progress.phase.is_terminal();
    let is_wanted = !progress.deleted
        && !progress.withdrawn
        && progress.follow_up.is_none()
        && progress.cancel_requested.is_none()
        && progress.phase != Phase::Cancelled;
    is_member && is_wanted
}

/// It could not be closed now. What may pass is tried again; else people have to do it, and the condition says so.
pub fn failed(progress: &mut Progress, error: &ForgeError, moment: Moment) {
    let Some(follow_up) = &mut progress.follow_up else {
        return;
    };
    let FollowUpKind::Close { reason } = &follow_up.kind;
    let wait = match error {
        ForgeError::RateLimited { retry_after, .. } => {
            (*retry_after).clamp(SHORTEST_LIMIT_WAIT, LONGEST_LIMIT_WAIT)
        }
        ForgeError::Parked(_) => parked_wait(follow_up.waits, moment.jitter),
        ForgeError::Unavailable { .. } => outage_wait(follow_up.waits, moment.jitter),
        ForgeError::Failed(error) => {
            follow_up.failures += 1;
            if error.kind != ErrorType::Transient || follow_up.failures >= MOST_FAILURES {
                let message = format!(
                    "the pull request should be closed ({reason}) and could not be; close it by hand: {}",
                    error.detail
                );
                progress.follow_up = None;
                if has_open_pull(progress) {
                    set_condition(
                        progress,
                        PULL_REQUEST,
                        true,
                        PULL_REQUEST_OPEN,
                        &message,
                        moment,
                    );
                    bump(progress);
                }
                return;
            }
            let doubled = FIRST_WAIT.saturating_mul(1 << (follow_up.failures - 1));
            doubled.min(LONGEST_WAIT)
        }
    };
    follow_up.waits = match error {
        ForgeError::Failed(_) => 0,
        _ => follow_up.waits.saturating_add(1),
    };
    let wait = wait + wait.mul_f64(0.1 * moment.jitter);
    follow_up.next_at = Some(moment.now.saturating_add(wait).unwrap_or(Timestamp::MAX));
}
