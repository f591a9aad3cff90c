//! Answers as JSON, with names as Kubernetes writes them.

use nabu_proto::admin_v1::{
    Attempt, AuditEvent, ChangeText, Cluster, ExplainResponseResponse, Finding, Forge,
    GetConfigStatusResponse, GetResponseResponse, Response, RouteDecision, TestRouteResponse,
};
use serde_json::{Value, json};

use super::text::{seconds, timestamp};

pub(in crate::nabuctl) fn json_time(at: Option<prost_types::Timestamp>) -> Value {
    timestamp(at).map_or(Value::Null, |at| Value::String(at.to_string()))
}

pub(in crate::nabuctl) fn cluster_json(cluster: &Cluster) -> Value {
    json!({
        "clusterId": cluster.cluster_id,
        "name": cluster.name,
        "connected": cluster.connected,
        "lastSeenAt": json_time(cluster.last_seen_at),
        "registeredAt": json_time(cluster.registered_at),
        "agentVersion": cluster.agent_version,
        "kubernetesVersion": cluster.kubernetes_version,
        "kubeSystemUid": cluster.kube_system_uid,
        "responderNames": cluster.responder_names,
        "unfinished": cluster.unfinished,
        "oldestUnfinishedAt": json_time(cluster.oldest_unfinished_at),
        "sessionEpoch": cluster.session_epoch,
        "state": cluster.state,
        "refusedKubeSystemUid": cluster.refused_kube_system_uid,
        "refusedAt": json_time(cluster.refused_at),
        "certificateNotAfter": json_time(cluster.certificate_not_after),
        "backlog": cluster.backlog,
        "clockSkewSeconds": seconds(cluster.clock_skew),
        "lastError": cluster.last_error,
        "lastErrorAt": json_time(cluster.last_error_at),
        "labels": cluster.labels,
    })
}

pub(in crate::nabuctl) fn response_json(one: &Response) -> Value {
    json!({
        "clusterId": one.cluster_id,
        "uid": one.uid,
        "name": one.name,
        "phase": one.phase,
        "outcome": {"type": one.outcome_type, "message": one.outcome_message},
        "error": {"type": one.error_type, "reason": one.error_reason, "detail": one.error_detail},
        "attempts": one.attempts,
        "url": one.url,
        "route": one.route,
        "provider": one.provider,
        "repository": one.repository,
        "observedAt": json_time(one.observed_at),
        "completedAt": json_time(one.completed_at),
        "nextAttemptAt": json_time(one.next_attempt_at),
        "revision": one.revision,
        "acknowledgedRevision": one.acknowledged_revision,
        "deleted": one.deleted,
    })
}

pub(in crate::nabuctl) fn explanation_json(answer: &GetResponseResponse, one: &Response) -> Value {
    let mut value = response_json(one);
    value["attemptLog"] = answer.attempts.iter().map(attempt_json).collect();
    value["history"] = answer
        .history
        .iter()
        .map(|entry| {
            json!({
                "at": json_time(entry.at),
                "actor": entry.actor,
                "action": entry.action,
                "detail": entry.detail,
            })
        })
        .collect();
    value["change"] = answer.change.as_ref().map_or(Value::Null, change_json);
    value
}

fn attempt_json(attempt: &Attempt) -> Value {
    json!({
        "number": attempt.number,
        "startedAt": json_time(attempt.started_at),
        "endedAt": json_time(attempt.ended_at),
        "result": attempt.result,
        "error": {"type": attempt.error_type, "reason": attempt.error_reason, "detail": attempt.error_detail},
        "forgeRequests": attempt.forge_requests,
    })
}

fn change_json(change: &ChangeText) -> Value {
    json!({
        "branch": change.branch,
        "baseBranch": change.base_branch,
        "groupBranch": change.group_branch,
        "groupTitle": change.group_title,
        "title": change.title,
        "body": change.body,
        "commitMessage": change.commit_message,
        "files": change.files.iter().map(|file| json!({
            "path": file.path,
            "delete": file.delete,
            "contents": String::from_utf8_lossy(&file.contents),
            "patchType": file.patch_type,
            "patchTarget": file.patch_target,
        })).collect::<Vec<_>>(),
        "labels": change.labels,
        "reviewers": change.reviewers,
        "draft": change.draft,
        "digest": change.digest,
    })
}

pub(in crate::nabuctl) fn story_json(answer: &ExplainResponseResponse, one: &Response) -> Value {
    let mut value = response_json(one);
    value["steps"] = answer
        .steps
        .iter()
        .map(|step| {
            json!({
                "at": json_time(step.at),
                "kind": step.kind,
                "actor": step.actor,
                "cause": step.cause,
                "attempt": step.attempt.as_ref().map(attempt_json),
            })
        })
        .collect();
    value["waiting"] = answer.waiting.as_ref().map_or(Value::Null, |waiting| {
        json!({"reason": waiting.reason, "detail": waiting.detail, "until": json_time(waiting.until)})
    });
    value["routing"] = answer.routing.as_ref().map_or(Value::Null, routing_json);
    value["change"] = answer.change.as_ref().map_or(Value::Null, change_json);
    value
}

fn routing_json(routing: &RouteDecision) -> Value {
    json!({
        "route": routing.route,
        "conclusive": routing.conclusive,
        "candidates": routing.candidates.iter().map(|one| json!({
            "route": one.route,
            "matches": one.matches,
            "field": one.field,
            "wanted": one.wanted,
            "found": one.found,
        })).collect::<Vec<_>>(),
    })
}

pub(in crate::nabuctl) fn trial_json(answer: &TestRouteResponse) -> Value {
    json!({
        "routing": answer.routing.as_ref().map(routing_json),
        "repository": answer.repository,
        "provider": answer.provider,
        "change": answer.change.as_ref().map(change_json),
        "error": {"type": answer.error_type, "reason": answer.error_reason, "detail": answer.error_detail},
        "findings": answer.findings.iter().map(finding_json).collect::<Vec<_>>(),
    })
}

fn finding_json(finding: &Finding) -> Value {
    json!({
        "severity": finding.severity,
        "document": finding.document,
        "path": finding.path,
        "message": finding.message,
    })
}

pub(in crate::nabuctl) fn config_json(answer: &GetConfigStatusResponse) -> Value {
    json!({
        "complete": answer.complete,
        "documents": answer.documents.iter().map(|one| json!({
            "id": one.id,
            "origin": one.origin,
            "inForce": one.in_force,
            "routes": one.routes,
            "findings": one.findings.iter().map(finding_json).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "routes": answer.routes.iter().map(|one| json!({
            "route": one.route,
            "provider": one.provider,
            "repository": one.repository,
            "baseBranch": one.base_branch,
            "baseURL": one.base_url,
        })).collect::<Vec<_>>(),
    })
}

pub(in crate::nabuctl) fn forge_json(forge: &Forge) -> Value {
    json!({
        "provider": forge.provider,
        "baseURL": forge.base_url,
        "credential": forge.credential,
        "credentialPresent": forge.credential_present,
        "state": forge.state,
        "detail": forge.detail,
        "limitedUntil": json_time(forge.limited_until),
        "running": forge.running,
        "waiting": forge.waiting,
        "parked": forge.parked,
        "routes": forge.routes,
        "limits": forge.limits.iter().map(|limit| json!({
            "resource": limit.resource,
            "limit": limit.limit,
            "remaining": limit.remaining,
            "resetsAt": json_time(limit.resets_at),
            "saidAt": json_time(limit.said_at),
        })).collect::<Vec<_>>(),
        "lastAnswerAt": json_time(forge.last_answer_at),
        "lastResult": forge.last_result,
    })
}

pub(in crate::nabuctl) fn audit_json(event: &AuditEvent) -> Value {
    json!({
        "id": event.id,
        "at": json_time(event.at),
        "actor": event.actor,
        "action": event.action,
        "target": event.target,
        "outcome": event.outcome,
        "detail": event.detail,
    })
}
