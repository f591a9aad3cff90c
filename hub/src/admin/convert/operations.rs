//! Configuration, forges and audit lines to wire types.

use std::sync::Arc;

use nabu_proto::admin_v1 as wire;

use super::time;
use crate::admin::forges::ForgeState;
use crate::execute::lanes::LaneId;
use crate::forge::witness::RateLimit;
use crate::routes::compile::Problem;
use crate::routes::handle::InForce;
use crate::routes::{Route, RouteTable};
use crate::store::AuditRecord;

pub(in crate::admin) fn config_status(
    documents: Vec<InForce>,
    table: &RouteTable,
) -> wire::GetConfigStatusResponse {
    wire::GetConfigStatusResponse {
        documents: documents.into_iter().map(document).collect(),
        routes: table.routes().iter().map(route).collect(),
        complete: table.is_complete(),
    }
}

fn document(document: InForce) -> wire::ConfigDocument {
    let verdict = document.verdict;
    let finding = |severity: &str, problem: &Problem| wire::Finding {
        severity: severity.to_owned(),
        document: verdict.id.clone(),
        path: problem.path.clone(),
        message: problem.message.clone(),
    };
    let errors = verdict.problems.iter().map(|one| finding("error", one));
    let warnings = verdict
        .unsupported
        .iter()
        .map(|one| finding("warning", one));
    let findings = errors.chain(warnings).collect();
    wire::ConfigDocument {
        origin: document.origin,
        in_force: verdict.problems.is_empty(),
        routes: count(document.routes.map_or(0, |routes| routes.len())),
        findings,
        id: verdict.id,
    }
}

fn route(route: &Arc<Route>) -> wire::RouteInForce {
    wire::RouteInForce {
        route: route.id.clone(),
        provider: route.target.kind.to_string(),
        repository: route.target.repository.clone(),
        base_branch: route.base_branch.clone().unwrap_or_default(),
        base_url: route.target.base_url.clone().unwrap_or_default(),
    }
}

pub(in crate::admin) fn forge(state: &ForgeState) -> wire::Forge {
    let (word, detail) = state.verdict();
    let lane: &LaneId = &state.lane;
    let sighting = state.sighting.as_ref();
    wire::Forge {
        provider: lane.kind().to_string(),
        base_url: lane.base_url().unwrap_or_default().to_owned(),
        credential: lane
            .credential()
            .map(|name| format!("{}/{}", name.namespace, name.name))
            .unwrap_or_default(),
        credential_present: state.credential_present,
        state: word.to_owned(),
        detail,
        limited_until: state
            .standing
            .closed
            .as_ref()
            .map(|(until, _)| time(*until)),
        running: count(state.standing.running),
        waiting: count(state.standing.waiting),
        routes: state.routes,
        limits: sighting
            .map(|seen| seen.limits.iter().map(limit).collect())
            .unwrap_or_default(),
        last_answer_at: sighting.and_then(|seen| seen.answered_at).map(time),
        last_result: sighting
            .map(|seen| seen.last_result.to_owned())
            .unwrap_or_default(),
        parked: state.parked,
    }
}

fn limit((resource, limit): (&String, &RateLimit)) -> wire::RateLimit {
    wire::RateLimit {
        resource: resource.clone(),
        limit: limit.limit,
        remaining: limit.remaining,
        resets_at: limit.resets_at.map(time),
        said_at: Some(time(limit.said_at)),
    }
}

pub(in crate::admin) fn audit_event(record: AuditRecord) -> wire::AuditEvent {
    wire::AuditEvent {
        id: record.id,
        at: Some(time(record.event.at)),
        actor: record.event.actor,
        action: record.event.action,
        target: record.target,
        outcome: record.outcome,
        detail: record.event.detail,
    }
}

fn count(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
