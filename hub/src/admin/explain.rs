//! The story of a response: what is recorded of it, put in order, with the cause of each step. Pure.

use jiff::Timestamp;

use crate::change::Intent;
use crate::execute::lanes::standing::Standing;
use crate::plan::progress::SECURITY_EVENT;
use crate::response::{Content, Phase, Progress, Response};
use crate::store::{AttemptRecord, AttemptResult, AuditEvent};

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) at: Timestamp,
    pub(super) kind: String,
    pub(super) actor: String,
    pub(super) cause: String,
    pub(super) attempt: Option<AttemptRecord>,
}

/// What holds a response up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    pub(super) reason: &'static str,
    pub(super) detail: String,
    pub(super) until: Option<Timestamp>,
}

/// What happened, oldest first.
pub(super) fn story(
    response: &Response,
    attempts: &[AttemptRecord],
    history: Vec<AuditEvent>,
    acknowledged_at: Option<Timestamp>,
) -> Vec<Step> {
    let progress = &response.progress;
    let agent = format!("agent/{}", response.key().cluster);
    let mut steps = vec![observed(response, &agent)];
    steps.extend(security_event(progress, &agent));
    let mut told: Vec<Timestamp> = Vec::new();
    for record in attempts {
        let ended_at = record.ended.map(|(at, _)| at);
        let sentence = history.iter().find(|event| is_end_of(event, ended_at));
        if let Some(event) = sentence {
            told.push(event.at);
        }
        steps.push(attempt(record, sentence));
    }
    for event in history {
        // The attempt says it already.
        if told.contains(&event.at) && matches!(&*event.action, "AttemptFailed" | "Waiting") {
            continue;
        }
        let routed = event.action == "Routed";
        steps.push(Step {
            at: event.at,
            kind: event.action,
            actor: event.actor,
            cause: event.detail,
            attempt: None,
        });
        if routed && let Some(intent) = &progress.intent {
            steps.push(decided(intent, event.at));
        }
    }
    if let Some(at) = acknowledged_at {
        steps.push(acknowledged(progress, at, agent));
    }
    steps.sort_by_key(|step| (step.at, rank(&step.kind)));
    steps
}

/// The order of what happened in one commit, and so at one time.
fn rank(kind: &str) -> u8 {
    match kind {
        "Observed" => 0,
        SECURITY_EVENT | "Limited" => 1,
        "Routed" => 2,
        "Intent" => 3,
        "Attempt" => 4,
        "Acknowledged" => 6,
        _ => 5,
    }
}

fn observed(response: &Response, agent: &str) -> Step {
    let seen = &response.observation;
    let what = match &seen.content {
        Content::Objects { .. } => String::new(),
        Content::Unserveable { reason, message } => {
            format!("; the agent could not read it: {reason}: {message}")
        }
    };
    Step {
        at: response.observed_at,
        kind: "Observed".to_owned(),
        actor: agent.to_owned(),
        cause: format!(
            "EventResponse {} (generation {}) for responder {}{what}",
            seen.name, seen.generation, seen.responder
        ),
        attempt: None,
    }
}

fn security_event(progress: &Progress, agent: &str) -> Option<Step> {
    let mut known = progress.conditions.iter();
    let condition = known.rfind(|one| one.kind == SECURITY_EVENT)?;
    Some(Step {
        at: condition.last_transition_time,
        kind: SECURITY_EVENT.to_owned(),
        actor: agent.to_owned(),
        cause: format!("{}: {}", condition.reason, condition.message),
        attempt: None,
    })
}

/// The change that was decided together with the route, and holds from there on.
fn decided(intent: &Intent, at: Timestamp) -> Step {
    let files = match intent.files.len() {
        1 => "1 file".to_owned(),
        count => format!("{count} files"),
    };
    let base = intent
        .base_branch
        .as_deref()
        .unwrap_or("the default branch");
    let branch = match &intent.group {
        Some(group) => format!("{} of its group, or else {}", group.branch, intent.branch),
        None => intent.branch.clone(),
    };
    Step {
        at,
        kind: "Intent".to_owned(),
        actor: "hub".to_owned(),
        cause: format!(
            "{files} on branch {branch} into {base} of {}, digest {}; later edits of routes or of the EventResponse do not \
            move it",
            intent.target.repository, intent.digest
        ),
        attempt: None,
    }
}

fn is_end_of(event: &AuditEvent, ended_at: Option<Timestamp>) -> bool {
    let ends = ["AttemptFailed", "Waiting", "Succeeded", "Failed"].contains(&&*event.action);
    ends && ended_at == Some(event.at)
}

fn attempt(record: &AttemptRecord, sentence: Option<&AuditEvent>) -> Step {
    let (at, word) = match record.ended {
        Some((at, AttemptResult::Succeeded)) => (at, "succeeded"),
        Some((at, AttemptResult::Failed)) => (at, "failed"),
        Some((at, AttemptResult::Interrupted)) => (
            at,
            "was interrupted because the hub stopped; it does not count",
        ),
        Some((at, AttemptResult::Waited)) => (at, "has to wait; it does not count"),
        None => (record.started_at, "runs"),
    };
    let error = record.error.as_ref();
    let said = match (sentence, error) {
        (Some(event), _) if !event.detail.is_empty() => format!(": {}", event.detail),
        (_, Some(error)) => format!(": {}: {}", error.reason, error.detail),
        _ => String::new(),
    };
    Step {
        at,
        kind: "Attempt".to_owned(),
        actor: "hub".to_owned(),
        cause: format!(
            "attempt {}, begun at {:.0}, {} requests to the forge, {word}{said}",
            record.number, record.started_at, record.requests
        ),
        attempt: Some(record.clone()),
    }
}

fn acknowledged(progress: &Progress, at: Timestamp, agent: String) -> Step {
    let (stored, newest) = (progress.acknowledged_revision.0, progress.revision.0);
    let rest = if stored < newest {
        format!("; revision {newest} is on its way")
    } else {
        String::new()
    };
    Step {
        at,
        kind: "Acknowledged".to_owned(),
        actor: agent,
        cause: format!("the cluster's API server has stored revision {stored} of the status{rest}"),
        attempt: None,
    }
}

/// What a response waits for. `lane` is that of its change, or of the route that takes it now; `routed` whether one does.
pub(super) fn waiting(
    progress: &Progress,
    lane: Option<&Standing>,
    routed: bool,
    now: Timestamp,
) -> Option<Waiting> {
    if progress.phase.is_terminal() {
        return None;
    }
    let wait = |reason, detail: String, until| {
        Some(Waiting {
            reason,
            detail,
            until,
        })
    };
    if progress.phase == Phase::Running && progress.attempt_open {
        return wait(
            "Attempt",
            "an attempt runs, or was interrupted and is looked up next".to_owned(),
            None,
        );
    }
    let limit = lane.and_then(Standing::limit);
    if let Some(limit) = limit.as_ref().filter(|limit| limit.of_forge) {
        let until = progress
            .next_attempt_at
            .map_or(limit.until, |at| at.max(limit.until));
        return wait("ForgeLimit", limit.detail.clone(), Some(until));
    }
    if let Some(until) = progress.next_attempt_at.filter(|at| *at > now) {
        let error = progress.error.as_ref();
        let detail = error.map_or_else(String::new, |error| {
            format!("{}: {}", error.reason, error.detail)
        });
        let reason = match error.map(|error| error.reason.as_str()) {
            Some("RateLimited") => "ForgeLimit",
            Some("ForgeUnavailable") => "Outage",
            // Neither counts, so that a wait without an attempt is for people.
            _ if progress.waits > 0 => "Parked",
            _ => "Backoff",
        };
        return wait(reason, detail, Some(until));
    }
    if progress.intent.is_none() && !routed {
        return wait(
            "Configuration",
            "no route takes it, and a document of the configuration cannot be read or used"
                .to_owned(),
            None,
        );
    }
    if let Some(limit) = limit {
        return wait("Budget", limit.detail, Some(limit.until));
    }
    let ahead = lane.map_or(0, |lane| lane.waiting + lane.running);
    wait(
        "Line",
        format!("{ahead} attempts with the same credential run or wait in line"),
        lane.and_then(|lane| lane.opens_at),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;
    use crate::plan::progress::accept;
    use crate::response::{ErrorType, ResponseError};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn response() -> Response {
        let seen = fixtures::observation(fixtures::key(1), fixtures::event_response(json!({})));
        Response {
            progress: accept(&seen, at(0)),
            observation: seen,
            observed_at: at(0),
        }
    }

    fn event(second: i64, action: &str, detail: &str) -> AuditEvent {
        AuditEvent {
            at: at(second),
            actor: "hub".to_owned(),
            action: action.to_owned(),
            detail: detail.to_owned(),
        }
    }

    fn record(number: u32, from: i64, to: i64, result: AttemptResult) -> AttemptRecord {
        AttemptRecord {
            number,
            started_at: at(from),
            ended: Some((at(to), result)),
            error: None,
            requests: 2,
        }
    }

    #[test]
    fn the_story_goes_from_the_observation_to_the_acknowledgement() {
        let mut response = response();
        response.progress.intent = Some(fixtures::intent());
        response.progress.phase = Phase::Succeeded;
        response.progress.acknowledged_revision = response.progress.revision;
        let attempts = [
            record(1, 2, 2, AttemptResult::Failed),
            // As a forge that nobody waits for makes it: all at one time.
            record(2, 10, 10, AttemptResult::Succeeded),
        ];
        let history = vec![
            event(2, "Routed", "route ns/c/0 to o/r of noop"),
            event(2, "AttemptFailed", "Timeout: no answer; next attempt at 9"),
            event(10, "Succeeded", "pull request opened"),
        ];
        let steps = story(&response, &attempts, history, Some(at(10)));
        let kinds: Vec<_> = steps.iter().map(|step| step.kind.as_str()).collect();
        assert_eq!(
            kinds,
            [
                "Observed",
                "Routed",
                "Intent",
                "Attempt",
                "Attempt",
                "Succeeded",
                "Acknowledged"
            ]
        );
        assert!(
            steps[3].cause.contains("failed: Timeout"),
            "{}",
            steps[3].cause
        );
        assert!(steps[6].cause.contains("has stored revision 1"));
        assert!(steps.is_sorted_by_key(|step| step.at));
    }

    #[test]
    fn what_a_response_waits_for_is_said_with_its_end() {
        let mut progress = response().progress;
        let reason = |progress: &Progress, lane: Option<&Standing>, routed| {
            waiting(progress, lane, routed, at(1)).map(|one| (one.reason, one.until))
        };
        assert_eq!(
            reason(&progress, None, false),
            Some(("Configuration", None))
        );
        assert_eq!(reason(&progress, None, true), Some(("Line", None)));
        progress.next_attempt_at = Some(at(60));
        let error = ResponseError::new(ErrorType::Transient, "Timeout", "no answer");
        progress.error = Some(error.clone());
        assert_eq!(
            reason(&progress, None, true),
            Some(("Backoff", Some(at(60))))
        );
        progress.waits = 1;
        assert_eq!(
            reason(&progress, None, true),
            Some(("Parked", Some(at(60))))
        );
        for (word, reason_of) in [
            ("RateLimited", "ForgeLimit"),
            ("ForgeUnavailable", "Outage"),
        ] {
            progress.error = Some(ResponseError {
                reason: word.to_owned(),
                ..error.clone()
            });
            assert_eq!(
                reason(&progress, None, true),
                Some((reason_of, Some(at(60))))
            );
        }
        let closed = Standing {
            closed: Some((at(90), "slow down".to_owned())),
            ..Standing::default()
        };
        assert_eq!(
            reason(&progress, Some(&closed), true),
            Some(("ForgeLimit", Some(at(90))))
        );
        let spent = Standing {
            spent: Some(at(40)),
            ..Standing::default()
        };
        let backoff = progress.next_attempt_at.take();
        assert_eq!(
            reason(&progress, Some(&spent), true),
            Some(("Budget", Some(at(40))))
        );
        progress.next_attempt_at = backoff;
        assert_eq!(
            reason(&progress, Some(&spent), true),
            Some(("Outage", Some(at(60))))
        );
        progress.phase = Phase::Failed;
        assert_eq!(reason(&progress, Some(&closed), true), None);
    }
}
