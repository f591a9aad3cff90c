//! What is done about the pull request of a response that has ended: it is closed where its route wants that, because
//! the response is cancelled or its EventResponse is gone, or it is made to show another content ([`super::update`]).
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
use super::{Close, Policy, Step, update};
use crate::change::{Intent, ProviderKind};
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
pub(super) fn step(response: &Response, policy: &Policy<'_>, now: Timestamp) -> Step {
    let progress = &response.progress;
    let (Some(follow_up), Some(intent)) = (&progress.follow_up, &progress.intent) else {
        return Step::Settled;
    };
    if let Some(at) = follow_up.next_at.filter(|at| *at > now) {
        return Step::WaitUntil(at);
    }
    let reason = match &follow_up.kind {
        FollowUpKind::Close { reason } => reason,
        FollowUpKind::Update { asked, intent: new } => {
            return update::step(response, policy, intent, (asked, new.as_deref()), now);
        }
    };
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
        withdrawn: progress.withdrawn,
    }))
}

/// Asks for the pull request of an ended response to be closed, if its route wants that and it still waits for people.
/// Gives back whether it will be.
pub(super) fn ask_to_close(progress: &mut Progress, reason: &str) -> bool {
    if is_closing(progress) {
        return true;
    }
    if progress.withdrawn {
        return false;
    }
    let wanted = closes_on_cancel(progress) && has_open_pull(progress);
    if wanted {
        if progress.unrecorded {
            // An update may have put another commit on it.
            progress.commit = None;
        }
        progress.follow_up = Some(wish(FollowUpKind::Close {
            reason: reason.to_owned(),
        }));
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
        progress.follow_up = Some(wish(FollowUpKind::Close {
            reason: reason.to_owned(),
        }));
    }
}

/// Whether the pull request is to be closed.
pub fn is_closing(progress: &Progress) -> bool {
    let follow_up = progress.follow_up.as_ref();
    follow_up.is_some_and(|one| matches!(one.kind, FollowUpKind::Close { .. }))
}

pub(super) fn wish(kind: FollowUpKind) -> FollowUp {
    FollowUp {
        kind,
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

/// The EventResponse is there after all: what was wanted because it was gone or out of hands, and has not begun, is not wanted any more.
pub(super) fn forget_deletion(progress: &mut Progress) {
    let deletion = |follow_up: &mut FollowUp| match &follow_up.kind {
        FollowUpKind::Close { reason } => !follow_up.begun && progress::is_farewell(reason),
        FollowUpKind::Update { .. } => false,
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
    let FollowUpKind::Close { reason } = &follow_up.kind else {
        return;
    };
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
    let has_group = |intent: &Intent| intent.group.is_some();
    let is_grouped = progress.intent.as_ref().is_some_and(has_group);
    if closed.pull.state == PullRequestState::Open && is_grouped {
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
    (progress.watched, progress.spec_watched) = (false, false);
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
    progress.shared = true;
    progress.withdrawn = true;
    progress.withdrawal = Some(reason);
    progress.watched = false;
    bump(progress);
}

/// Whether a response of a group keeps the group's pull request open: it is in there, or may be soon, and is wanted.
pub fn keeps_group_open(progress: &Progress) -> bool {
    if progress.withdrawn || is_closing(progress) {
        return false;
    }
    if !progress.phase.is_terminal() {
        return !progress.deleted && progress.cancel_requested.is_none();
    }
    // What its own route would leave open, or somebody has ended in a way of their own, stays.
    let is_unwanted = progress.deleted || progress.phase == Phase::Cancelled;
    let reason = progress.cancel_reason.as_deref();
    let is_theirs = reason.is_some_and(progress::leaves_pull_request);
    progress.shared && !(is_unwanted && closes_on_cancel(progress) && !is_theirs)
}

/// The pull request stays open for somebody of whom only the pull request knows, such as a member that a lost store has forgotten:
/// nobody will tell when that one is gone, and closing is for people.
pub fn leave_to_people(progress: &mut Progress) {
    progress.withdrawal = None;
}

/// Whether a response was taken out of the pull request of its group, which stayed open for others.
pub fn waits_for_others(progress: &Progress) -> bool {
    progress.withdrawal.is_some() && progress.follow_up.is_none() && has_open_pull(progress)
}

/// Nobody is left for whom the pull request of the group stayed open: it is to be closed. Gives back whether it will be.
pub fn close_after_all(progress: &mut Progress) -> bool {
    if !waits_for_others(progress) {
        return false;
    }
    let reason = progress.withdrawal.take();
    progress.follow_up = reason.map(|reason| wish(FollowUpKind::Close { reason }));
    progress.follow_up.is_some()
}

/// Whether a response of a group has ended, and keeps its pull request open no longer, or never did: whoever was withdrawn
/// for its sake may be the last one now.
pub fn leaves_group_to_others(progress: &Progress) -> bool {
    let intent = progress.intent.as_ref();
    progress.phase.is_terminal()
        && intent.is_some_and(|intent| intent.group.is_some())
        && !is_closing(progress)
        && !keeps_group_open(progress)
}

/// It could not be closed now. What may pass is tried again; else people have to do it, and the condition says so.
pub fn failed(progress: &mut Progress, error: &ForgeError, moment: Moment) {
    if !is_closing(progress) {
        return;
    }
    let Some(given_up) = wait_or_give_up(progress, error, moment) else {
        return;
    };
    if let FollowUpKind::Close { reason } = &given_up.kind
        && has_open_pull(progress)
    {
        let detail = match error {
            ForgeError::Failed(error) => error.detail.clone(),
            other => other.to_string(),
        };
        let message = format!(
            "the pull request should be closed ({reason}) and could not be; close it by hand: {detail}"
        );
        let reason = PULL_REQUEST_OPEN;
        set_condition(progress, PULL_REQUEST, true, reason, &message, moment);
        bump(progress);
    }
}

/// Sets the time of the next try. What cannot pass, or has failed too often, is given up and given back.
pub(super) fn wait_or_give_up(
    progress: &mut Progress,
    error: &ForgeError,
    moment: Moment,
) -> Option<FollowUp> {
    let follow_up = progress.follow_up.as_mut()?;
    let wait = match error {
        ForgeError::RateLimited { retry_after, .. } => {
            (*retry_after).clamp(SHORTEST_LIMIT_WAIT, LONGEST_LIMIT_WAIT)
        }
        ForgeError::Parked(_) => parked_wait(follow_up.waits, moment.jitter),
        ForgeError::Unavailable { .. } => outage_wait(follow_up.waits, moment.jitter),
        ForgeError::Failed(error) => {
            follow_up.failures += 1;
            if error.kind != ErrorType::Transient || follow_up.failures >= MOST_FAILURES {
                return progress.follow_up.take();
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
    None
}
