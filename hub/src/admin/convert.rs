//! Plain values to the admin API's wire types.

mod operations;
mod story;

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use nabu_common::ids::ResponseKey;
use nabu_proto::admin_v1 as wire;
use tonic::Status;

pub(super) use operations::{audit_event, config_status, forge};
pub(super) use story::{decision, step, trial, waiting};

use crate::change::{FileAction, FileChange, Intent};
use crate::gateway::Said;
use crate::response::Response;
use crate::store::identity::ClusterIdentity;
use crate::store::{AttemptRecord, AuditEvent, ClusterRecord, ResponseSummary, RoutedTo};

pub(super) fn time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}

/// How long a cluster that was refused is shown as a conflict.
const CONFLICT_SHOWN: SignedDuration = SignedDuration::from_hours(24);

/// What lists say of a cluster in one word.
fn cluster_state(
    record: &ClusterRecord,
    identity: &ClusterIdentity,
    now: Timestamp,
) -> &'static str {
    let conflict = |at: Timestamp| now.duration_since(at) < CONFLICT_SHOWN;
    if identity.revoked_at.is_some() {
        "Revoked"
    } else if identity
        .refused
        .as_ref()
        .is_some_and(|(_, at)| conflict(*at))
    {
        "Conflict"
    } else if record.epoch == 0 {
        "Pending"
    } else {
        "Active"
    }
}

/// `said` is there if a session is open.
pub(super) fn cluster(
    record: &ClusterRecord,
    identity: &ClusterIdentity,
    said: Option<Said>,
    labels: &BTreeMap<String, String>,
) -> wire::Cluster {
    let facts = &record.facts;
    let (last_error, last_error_at) = identity.last_error.clone().unzip();
    let skew = |skew: SignedDuration| prost_types::Duration {
        seconds: skew.as_secs(),
        nanos: skew.subsec_nanos(),
    };
    let (refused_uid, refused_at) = identity.refused.clone().unzip();
    wire::Cluster {
        state: cluster_state(record, identity, Timestamp::now()).to_owned(),
        refused_kube_system_uid: refused_uid.unwrap_or_default(),
        refused_at: refused_at.map(time),
        certificate_not_after: identity.certificate_not_after.map(time),
        cluster_id: facts.cluster.to_string(),
        name: facts.cluster_name.clone(),
        connected: said.is_some(),
        backlog: said.and_then(|said| said.backlog),
        clock_skew: said.and_then(|said| said.skew).map(skew),
        last_error: last_error.unwrap_or_default(),
        last_error_at: last_error_at.map(time),
        labels: labels.clone().into_iter().collect(),
        // Before the first session there is nothing to see.
        last_seen_at: (record.epoch > 0).then(|| time(record.last_seen_at)),
        registered_at: Some(time(record.registered_at)),
        agent_version: facts.agent_version.clone(),
        kubernetes_version: facts.kubernetes_version.clone(),
        kube_system_uid: facts.kube_system_uid.clone(),
        responder_names: facts.responder_names.clone(),
        unfinished: record.unfinished,
        oldest_unfinished_at: record.oldest_unfinished_at.map(time),
        session_epoch: record.epoch,
    }
}

pub(super) fn summary(summary: &ResponseSummary) -> wire::Response {
    let progress = &summary.progress;
    let (outcome, error) = (progress.outcome.as_ref(), progress.error.as_ref());
    let routed = summary.routed.as_ref();
    wire::Response {
        cluster_id: summary.key.cluster.to_string(),
        uid: summary.key.uid.to_string(),
        name: summary.name.clone(),
        phase: progress.phase.as_str().to_owned(),
        outcome_type: outcome
            .map(|outcome| outcome.kind.as_str().to_owned())
            .unwrap_or_default(),
        outcome_message: outcome
            .map(|outcome| outcome.message.clone())
            .unwrap_or_default(),
        error_type: error
            .map(|error| error.kind.as_str().to_owned())
            .unwrap_or_default(),
        error_reason: error.map(|error| error.reason.clone()).unwrap_or_default(),
        error_detail: error.map(|error| error.detail.clone()).unwrap_or_default(),
        attempts: progress.attempts,
        url: progress.url.clone().unwrap_or_default(),
        route: routed
            .map(|routed| routed.route.clone())
            .unwrap_or_default(),
        provider: routed
            .map(|routed| routed.provider.to_string())
            .unwrap_or_default(),
        repository: routed
            .map(|routed| routed.repository.clone())
            .unwrap_or_default(),
        observed_at: Some(time(summary.observed_at)),
        completed_at: progress.completed_at.map(time),
        next_attempt_at: progress.next_attempt_at.map(time),
        revision: progress.revision.0,
        acknowledged_revision: progress.acknowledged_revision.0,
        deleted: progress.deleted,
    }
}

/// A record as lists show it.
pub(super) fn summarised(response: &Response) -> ResponseSummary {
    ResponseSummary {
        key: response.key().clone(),
        name: response.observation.name.clone(),
        generation: response.observation.generation,
        spec_hash: response.observation.spec_hash,
        observed_at: response.observed_at,
        progress: response.progress.clone(),
        routed: response.progress.intent.as_ref().map(RoutedTo::of),
    }
}

pub(super) fn response(
    response: &Response,
    attempts: &[AttemptRecord],
    history: Vec<AuditEvent>,
    now: Timestamp,
) -> wire::GetResponseResponse {
    let whole = summarised(response);
    let observed = AuditEvent {
        at: response.observed_at.min(now),
        actor: format!("agent/{}", response.key().cluster),
        action: "Observed".to_owned(),
        detail: format!(
            "EventResponse {} for responder {}",
            whole.name, response.observation.responder
        ),
    };
    wire::GetResponseResponse {
        response: Some(summary(&whole)),
        attempts: attempts.iter().map(attempt).collect(),
        change: response.progress.intent.as_ref().map(change),
        history: std::iter::once(observed)
            .chain(history)
            .map(history_entry)
            .collect(),
    }
}

pub(super) fn attempt(record: &AttemptRecord) -> wire::Attempt {
    let error = record.error.as_ref();
    wire::Attempt {
        number: record.number,
        started_at: Some(time(record.started_at)),
        ended_at: record.ended.map(|(at, _)| time(at)),
        result: record
            .ended
            .map(|(_, result)| result.as_str().to_owned())
            .unwrap_or_default(),
        error_type: error
            .map(|error| error.kind.as_str().to_owned())
            .unwrap_or_default(),
        error_reason: error.map(|error| error.reason.clone()).unwrap_or_default(),
        error_detail: error.map(|error| error.detail.clone()).unwrap_or_default(),
        forge_requests: record.requests,
    }
}

pub(super) fn change(intent: &Intent) -> wire::ChangeText {
    let group = intent.group.as_ref();
    wire::ChangeText {
        branch: intent.branch.clone(),
        base_branch: intent.base_branch.clone().unwrap_or_default(),
        title: intent.title.clone(),
        body: intent.body.clone(),
        commit_message: intent.commit_message.clone(),
        files: intent.files.iter().map(file).collect(),
        labels: intent.labels.clone(),
        reviewers: intent.reviewers.clone(),
        draft: intent.draft,
        digest: intent.digest.clone(),
        group_branch: group.map(|group| group.branch.clone()).unwrap_or_default(),
        group_title: group.map(|group| group.title.clone()).unwrap_or_default(),
    }
}

fn file(change: &FileChange) -> wire::FileText {
    let file = wire::FileText {
        path: change.path.clone(),
        ..Default::default()
    };
    match &change.action {
        FileAction::Write { contents } => wire::FileText {
            contents: contents.clone().into_bytes(),
            ..file
        },
        FileAction::Patch { patch } => wire::FileText {
            contents: patch.text().as_bytes().to_vec(),
            patch_type: patch.kind().as_str().to_owned(),
            patch_target: patch.target().unwrap_or_default().to_owned(),
            ..file
        },
        FileAction::Delete => wire::FileText {
            delete: true,
            ..file
        },
    }
}

fn history_entry(event: AuditEvent) -> wire::HistoryEntry {
    wire::HistoryEntry {
        at: Some(time(event.at)),
        actor: event.actor,
        action: event.action,
        detail: event.detail,
    }
}

/// Names the place after a response in a list; opaque to clients.
pub(super) fn page_token(last: &ResponseSummary) -> String {
    let place = format!(
        "{} {} {}",
        last.observed_at.as_microsecond(),
        last.key.cluster,
        last.key.uid
    );
    URL_SAFE_NO_PAD.encode(place)
}

/// Reads [`page_token`]; the empty one is the first page.
pub(super) fn position(token: &str) -> Result<Option<(Timestamp, ResponseKey)>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let place = || {
        let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
        let [at, cluster, uid] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let at = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
        Some((
            at,
            ResponseKey {
                cluster: cluster.parse().ok()?,
                uid: uid.parse().ok()?,
            },
        ))
    };
    let wrong = || {
        super::errors::invalid(
            "page_token",
            "is none that this hub gave; leave it out for the first page",
        )
    };
    place().map(Some).ok_or_else(wrong)
}
