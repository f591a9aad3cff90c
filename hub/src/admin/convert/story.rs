//! Stories and route tests to wire types.

use nabu_proto::admin_v1 as wire;

use super::{attempt, change, time};
use crate::admin::explain::{Step, Waiting};
use crate::admin::trial::{Finding, Trial};
use crate::routes::decision::Decision;

pub(in crate::admin) fn step(step: Step) -> wire::Step {
    wire::Step {
        at: Some(time(step.at)),
        kind: step.kind,
        actor: step.actor,
        cause: step.cause,
        attempt: step.attempt.as_ref().map(attempt),
    }
}

pub(in crate::admin) fn waiting(waiting: Waiting) -> wire::Waiting {
    wire::Waiting {
        reason: waiting.reason.to_owned(),
        detail: waiting.detail,
        until: waiting.until.map(time),
    }
}

pub(in crate::admin) fn decision(decision: Decision) -> wire::RouteDecision {
    wire::RouteDecision {
        route: decision.route().unwrap_or_default().to_owned(),
        conclusive: decision.conclusive,
        candidates: decision
            .candidates
            .into_iter()
            .map(|candidate| {
                let matches = candidate.mismatch.is_none();
                let (field, wanted, found) =
                    candidate.mismatch.map_or_else(Default::default, |why| {
                        (
                            why.field.to_owned(),
                            why.wanted,
                            why.found.unwrap_or_default(),
                        )
                    });
                wire::RouteCandidate {
                    route: candidate.route,
                    matches,
                    field,
                    wanted,
                    found,
                }
            })
            .collect(),
    }
}

pub(in crate::admin) fn trial(trial: Trial, findings: Vec<Finding>) -> wire::TestRouteResponse {
    let mut answer = wire::TestRouteResponse {
        routing: Some(decision(trial.decision)),
        findings: findings.into_iter().map(finding).collect(),
        ..wire::TestRouteResponse::default()
    };
    match trial.result {
        Ok(intent) => {
            answer.change = Some(change(&intent));
            answer.repository.clone_from(&intent.target.repository);
            answer.provider = intent.target.kind.to_string();
        }
        Err(error) => {
            error.kind.as_str().clone_into(&mut answer.error_type);
            answer.error_reason = error.reason;
            answer.error_detail = error.detail;
        }
    }
    answer
}

fn finding(finding: Finding) -> wire::Finding {
    let severity = if finding.error { "error" } else { "warning" };
    wire::Finding {
        severity: severity.to_owned(),
        document: finding.document,
        path: finding.problem.path,
        message: finding.problem.message,
    }
}
