//! What happens when an EventResponse asks for other content after its change was decided, where its route has
//! `updateExisting`. The only code that edits a [`Progress`] for that, beside [`super::progress`], whose rules hold.
//!
//! As long as nothing can be on the forge, the change is decided anew. Once something may be there, it is made first, and then
//! updated: the newest observation is kept, [`Progress::renewal`] says what the change is of and what is asked for, and
//! the wish to update ([`FollowUpKind::Update`]) gets its intent before the first request that writes. Where and against
//! what the pull request is never changes; a pull request that has ended is never touched.

use jiff::Timestamp;
use nabu_common::crd;

use super::follow_up::{has_open_pull, is_closing, wait_or_give_up, wish};
use super::progress::{
    self, Moment, PULL_REQUEST, PULL_REQUEST_OPEN, bump, set_accepted, set_condition,
    set_spec_changed,
};
use super::retry::RetryPolicy;
use super::{Conclusion, Hindrance, Keep, Policy, Step, Update, find_route, objects, render_input};
use crate::change::{ForgeTarget, Intent};
use crate::forge::{Amended, ForgeError, PullRequestState, number_of};
use crate::render;
use crate::response::{
    Content, ErrorType, FollowUp, FollowUpKind, Observation, Phase, Progress, Renewal, Response,
    ResponseError, SpecVersion,
};

/// Whether the route wanted the change to follow its EventResponse when it was decided.
pub fn follows_spec(progress: &Progress) -> bool {
    let intent = progress.intent.as_ref();
    intent.is_some_and(|intent| intent.options.update_existing)
}

/// A response that is known was observed. Gives back what is to be kept in place of what is known: whatever is new as long as
/// nothing is decided, and later what the change is to follow. Else the condition says that the hub keeps to what it decided.
pub fn observe(
    progress: &mut Progress,
    known: &Observation,
    seen: &Observation,
    now: Timestamp,
) -> Option<Observation> {
    if progress.intent.is_none() && !progress.phase.is_terminal() {
        return (known != seen).then(|| {
            progress.taken = progress.taken.wrapping_add(1);
            seen.clone()
        });
    }
    if !may_follow(progress, seen) {
        progress::observe_spec(progress, known, seen, now);
        return None;
    }
    if known.spec_hash == seen.spec_hash {
        return None;
    }
    let moment = Moment {
        now,
        generation: seen.generation,
        jitter: 0.0,
    };
    progress.taken = progress.taken.wrapping_add(1);
    set_accepted(progress, moment);
    bump(progress);
    let asked = SpecVersion::of(seen);
    let terminal = progress.phase.is_terminal();
    if !terminal && !progress.attempt_open && !progress.unrecorded {
        decide_anew(progress);
    } else {
        let decided = progress
            .renewal
            .map_or_else(|| SpecVersion::of(known), |renewal| renewal.decided);
        let is_back = decided.hash == asked.hash;
        progress.renewal = (!is_back).then_some(Renewal { decided, asked });
        if terminal {
            replace_wish(progress, asked, is_back, moment);
        }
    }
    Some(with_known_event(known, seen))
}

/// Whether the change of a response can still follow what was seen.
fn may_follow(progress: &Progress, seen: &Observation) -> bool {
    let Content::Objects { event_response, .. } = &seen.content else {
        return false;
    };
    if !follows_spec(progress) || progress.deleted {
        return false;
    }
    match progress.phase {
        Phase::Succeeded => has_open_pull(progress) && !is_closing(progress),
        Phase::Failed | Phase::Cancelled => false,
        // An attempt that is to be made again must be able to read it.
        Phase::Pending | Phase::Running => {
            let readable = crd::parse_event_response(event_response).ok();
            readable.is_some_and(|typed| RetryPolicy::of(&typed, 0, None).is_ok())
        }
    }
}

/// Nothing can be on the forge: what was decided is forgotten.
fn decide_anew(progress: &mut Progress) {
    progress.intent = None;
    progress.renewal = None;
    progress.leftovers.clear();
}

/// The newest spec is what the pull request is to show. What the wish before may have written is left to be taken back.
fn replace_wish(progress: &mut Progress, asked: SpecVersion, is_back: bool, moment: Moment) {
    let before = progress.follow_up.take();
    if let Some(FollowUp {
        kind: FollowUpKind::Update {
            intent: Some(intent),
            ..
        },
        ..
    }) = &before
    {
        leave(progress, intent);
    }
    if !is_back || progress.unrecorded {
        let intent = None;
        progress.follow_up = Some(wish(FollowUpKind::Update { asked, intent }));
        return;
    }
    // What it shows is what is asked for again; an update that failed may have said otherwise.
    let url = progress.url.as_deref().unwrap_or_default();
    let message = format!("pull request open: {url}");
    set_condition(
        progress,
        PULL_REQUEST,
        true,
        PULL_REQUEST_OPEN,
        &message,
        moment,
    );
}

/// Notes the paths of a content that may be on the branch.
fn leave(progress: &mut Progress, intent: &Intent) {
    for file in &intent.files {
        if !progress.leftovers.contains(&file.path) {
            progress.leftovers.push(file.path.clone());
        }
    }
}

/// A SecurityEvent that has gone meanwhile is taken as it was, as long as the EventResponse names the same.
fn with_known_event(known: &Observation, seen: &Observation) -> Observation {
    let mut kept = seen.clone();
    if let (
        Content::Objects {
            event_response: before,
            security_event: Ok(event),
        },
        Content::Objects {
            event_response: now,
            security_event: gone @ Err(_),
        },
    ) = (&known.content, &mut kept.content)
        && before.pointer("/spec/securityEventRef") == now.pointer("/spec/securityEventRef")
    {
        *gone = Ok(event.clone());
    }
    kept
}

/// An attempt has failed or waits. `wrote`: it may have left something. If nothing can be there and something else is asked for
/// by now, that is decided.
pub fn after_failure(progress: &mut Progress, wrote: bool) {
    progress.unrecorded = wrote;
    if !progress.phase.is_terminal() && !wrote && progress.renewal.is_some() {
        decide_anew(progress);
    }
}

/// The response has succeeded with a change that it asked for before.
pub(super) fn after_success(progress: &mut Progress, moment: Moment) {
    let Some(renewal) = progress.renewal else {
        return;
    };
    if has_open_pull(progress) && !progress.deleted {
        let (asked, intent) = (renewal.asked, None);
        progress.follow_up = Some(wish(FollowUpKind::Update { asked, intent }));
    } else {
        keeps_to_it(progress, renewal.asked, "no pull request is open", moment);
    }
}

/// The EventResponse is gone: what has not begun is not wanted any more.
pub(super) fn forget_unbegun(progress: &mut Progress) {
    let unbegun =
        |one: &mut FollowUp| matches!(one.kind, FollowUpKind::Update { .. }) && !one.begun;
    progress.follow_up.take_if(unbegun);
}

/// The pull request has ended before it could be updated; what is said of that.
pub(super) fn too_late(progress: &mut Progress, moment: Moment) -> Option<String> {
    let is_update = |one: &mut FollowUp| matches!(one.kind, FollowUpKind::Update { .. });
    let wish = progress.follow_up.take_if(is_update)?;
    let FollowUpKind::Update { asked, .. } = wish.kind else {
        return None;
    };
    keeps_to_it(progress, asked, "the pull request had ended", moment);
    Some(format!(
        "; the spec changed too late (generation {})",
        asked.generation
    ))
}

fn keeps_to_it(progress: &mut Progress, asked: SpecVersion, why: &str, moment: Moment) {
    let message = format!(
        "the spec has changed (generation {}), and the hub keeps to what it decided before: {why}; create a new \
        EventResponse to ask for something else",
        asked.generation
    );
    set_spec_changed(progress, &message, moment);
}

/// The next step of a wish to update. `intent` is what the pull request shows.
pub(super) fn step(
    response: &Response,
    policy: &Policy<'_>,
    intent: &Intent,
    (asked, stored): (&SpecVersion, Option<&Intent>),
    now: Timestamp,
) -> Step {
    let progress = &response.progress;
    let new = match stored {
        Some(stored) => stored.clone(),
        None => match decide(response, policy, intent) {
            Ok(new) => new,
            Err(Hindrance::ConfigIncomplete) => {
                return Step::WaitUntil(super::config_wait(now));
            }
            Err(Hindrance::Conclusion(conclusion)) => {
                let error = match conclusion {
                    Conclusion::Failed { error, .. } => error,
                    Conclusion::Cancelled { reason } => refusal("Cancelled", reason),
                };
                return Step::Keep(Box::new(Keep {
                    asked: *asked,
                    error,
                }));
            }
        },
    };
    let mut leftovers = progress.leftovers.clone();
    leftovers.extend(intent.files.iter().map(|file| file.path.clone()));
    leftovers.sort();
    leftovers.dedup();
    Step::Update(Box::new(Update {
        asked: *asked,
        intent: new,
        number: progress.url.as_deref().and_then(number_of).unwrap_or(0),
        commit: progress.commit.clone(),
        leftovers,
        again: progress.unrecorded,
    }))
}

/// What the observation comes to, at the place where the pull request is.
fn decide(response: &Response, policy: &Policy<'_>, shown: &Intent) -> Result<Intent, Hindrance> {
    let (event_response, security_event) = objects(response)?;
    crd::parse_event_response(event_response).map_err(|error| {
        refused(ResponseError::new(
            ErrorType::Permanent,
            "InvalidEventResponse",
            format!("{}: {}", error.path, error.message),
        ))
    })?;
    let route = find_route(response, policy, event_response, security_event)?;
    if !is_same_place(&route.target, &shown.target) {
        let detail = format!(
            "the route {} leads to {} now, and the pull request is in {}",
            route.id, route.target.repository, shown.target.repository
        );
        return Err(refused(refusal("RouteChanged", detail)).into());
    }
    let mut input = render_input(response, policy, route, event_response, security_event);
    input.route.target = &shown.target;
    input.route.base_branch = shown.base_branch.as_deref();
    let new = render::intent(&input).map_err(refused)?;
    if new.branch != shown.branch {
        let detail = format!(
            "it asks for the branch {}, and the pull request is of {}",
            new.branch, shown.branch
        );
        return Err(refused(refusal("BranchChanged", detail)).into());
    }
    // What is put on a pull request once stays as it was decided.
    Ok(Intent {
        labels: shown.labels.clone(),
        reviewers: shown.reviewers.clone(),
        draft: shown.draft,
        options: shown.options.clone(),
        ..new
    })
}

fn is_same_place(one: &ForgeTarget, other: &ForgeTarget) -> bool {
    one.repository == other.repository && one.base_url == other.base_url
}

fn refusal(reason: &str, detail: String) -> ResponseError {
    ResponseError::new(ErrorType::Permanent, reason, detail)
}

fn refused(error: ResponseError) -> Conclusion {
    Conclusion::Failed {
        error,
        route: None,
        routing_miss: false,
    }
}

/// Whether this is what is still wanted.
fn is_wanted(progress: &Progress, wanted: &SpecVersion) -> bool {
    let kind = progress.follow_up.as_ref().map(|one| &one.kind);
    matches!(kind, Some(FollowUpKind::Update { asked, .. }) if asked == wanted)
}

/// Something is about to be written for it: its intent is kept from here on. `false` if it is not wanted any more.
pub fn begin(progress: &mut Progress, update: &Update) -> bool {
    if !is_wanted(progress, &update.asked) {
        return false;
    }
    if let Some(follow_up) = &mut progress.follow_up {
        follow_up.kind = FollowUpKind::Update {
            asked: update.asked,
            intent: Some(Box::new(update.intent.clone())),
        };
        follow_up.begun = true;
        follow_up.next_at = None;
    }
    progress.unrecorded = true;
    true
}

/// What is asked for cannot be shown, and nothing was written for it.
pub fn kept(progress: &mut Progress, keep: &Keep, moment: Moment) {
    if is_wanted(progress, &keep.asked) {
        progress.follow_up = None;
        say_not_updated(progress, keep.asked, &keep.error, moment);
    }
}

/// The pull request was looked at, and shows the content if it was open.
pub fn done(progress: &mut Progress, update: &Update, amended: &Amended, moment: Moment) {
    match amended {
        Amended::Updated { url, commit, notes } => {
            let wanted = is_wanted(progress, &update.asked);
            progress.intent = Some(update.intent.clone());
            progress.commit.clone_from(commit);
            progress.unrecorded = false;
            progress.leftovers.clear();
            if wanted {
                (progress.follow_up, progress.renewal) = (None, None);
            } else if let Some(renewal) = &mut progress.renewal {
                // A further change came meanwhile.
                renewal.decided = update.asked;
            }
            if !has_open_pull(progress) {
                return;
            }
            let generation = update.asked.generation;
            let mut message = format!("pull request updated for generation {generation}");
            message.extend(commit.as_ref().map(|commit| format!(" as {commit}")));
            message.push_str(": ");
            message.push_str(url);
            if !notes.is_empty() {
                message.push_str("; without ");
                message.push_str(&notes.join("; "));
            }
            let moment = Moment {
                generation,
                ..moment
            };
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
        Amended::Ended(ended) => {
            if !has_open_pull(progress) {
                progress
                    .follow_up
                    .take_if(|one| matches!(one.kind, FollowUpKind::Update { .. }));
                return;
            }
            let merged = ended.pull.state == PullRequestState::Merged;
            let (word, verb) = if merged {
                ("Merged", "merged")
            } else {
                ("Closed", "closed without a merge")
            };
            let mut message = format!("pull request {verb}");
            let commit = ended.pull.merge_commit.as_ref();
            message.extend(commit.map(|commit| format!(" as {commit}")));
            message.extend(ended.pull.ended_at.map(|at| format!(" at {at:.0}")));
            message.push_str(": ");
            message.push_str(&ended.url);
            message.extend(too_late(progress, moment));
            set_condition(progress, PULL_REQUEST, merged, word, &message, moment);
            (progress.watched, progress.spec_watched) = (false, false);
            bump(progress);
        }
    }
}

/// It could not be updated now. What may pass is tried again; else the condition says so. `wrote`: something may have been
/// written.
pub fn failed(
    progress: &mut Progress,
    update: &Update,
    error: &ForgeError,
    wrote: bool,
    moment: Moment,
) {
    progress.unrecorded = wrote;
    if !is_wanted(progress, &update.asked) {
        return;
    }
    if wait_or_give_up(progress, error, moment).is_none() {
        return;
    }
    if wrote {
        leave(progress, &update.intent);
    }
    let error = match error {
        ForgeError::Failed(error) => error.clone(),
        other => refusal("ForgeUnavailable", other.to_string()),
    };
    say_not_updated(progress, update.asked, &error, moment);
}

fn say_not_updated(
    progress: &mut Progress,
    asked: SpecVersion,
    error: &ResponseError,
    moment: Moment,
) {
    let generation = asked.generation;
    let moment = Moment {
        generation,
        ..moment
    };
    let why = format!("{}: {}", error.reason, error.detail);
    keeps_to_it(progress, asked, &why, moment);
    if has_open_pull(progress) {
        let url = progress.url.as_deref().unwrap_or_default();
        let message = format!("pull request not updated for generation {generation}: {why}: {url}");
        set_condition(
            progress,
            PULL_REQUEST,
            true,
            PULL_REQUEST_OPEN,
            &message,
            moment,
        );
    }
    bump(progress);
}
