//! What people see: tables, explanations, JSON.

use std::io::Write;

use anyhow::Context as _;
use comfy_table::presets;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use nabu_proto::admin_v1::{
    Attempt, ChangeText, Cluster, GetResponseResponse, HistoryEntry, Response, Rotation, Token,
};
use serde_json::{Value, json};

use super::Output;

type Out<'a> = &'a mut (dyn Write + Send);

pub(super) fn clusters(clusters: &[Cluster], output: Output, out: Out<'_>) -> anyhow::Result<()> {
    match output {
        Output::Json => print_json(
            &Value::Array(clusters.iter().map(cluster_json).collect()),
            out,
        ),
        Output::Name => print_names(
            clusters.iter().map(|cluster| cluster.cluster_id.as_str()),
            out,
        ),
        Output::Table | Output::Wide => {
            let wide = output == Output::Wide;
            let mut headings = vec![
                "CLUSTER",
                "NAME",
                "STATE",
                "CONNECTED",
                "LAST SEEN",
                "UNFINISHED",
                "AGENT",
                "KUBERNETES",
            ];
            if wide {
                headings.extend([
                    "RESPONDERS",
                    "KUBE-SYSTEM UID",
                    "EPOCH",
                    "CERTIFICATE UNTIL",
                    "REFUSED UID",
                ]);
            }
            let rows = clusters.iter().map(|cluster| {
                let mut row = vec![
                    cluster.cluster_id.clone(),
                    cluster.name.clone(),
                    cluster.state.clone(),
                    if cluster.connected { "yes" } else { "no" }.to_owned(),
                    time(cluster.last_seen_at),
                    cluster.unfinished.to_string(),
                    cluster.agent_version.clone(),
                    cluster.kubernetes_version.clone(),
                ];
                if wide {
                    row.extend([
                        cluster.responder_names.join(","),
                        cluster.kube_system_uid.clone(),
                        cluster.session_epoch.to_string(),
                        time(cluster.certificate_not_after),
                        cluster.refused_kube_system_uid.clone(),
                    ]);
                }
                row
            });
            print_table(&headings, rows, "the hub knows no cluster yet", out)
        }
    }
}

/// Join tokens, without the tokens.
pub(super) fn tokens(tokens: &[Token], output: Output, out: Out<'_>) -> anyhow::Result<()> {
    match output {
        Output::Json => {
            let tokens = tokens.iter().map(|token| {
                json!({
                    "tokenId": token.token_id,
                    "clusterId": token.cluster_id,
                    "state": token.state,
                    "createdBy": token.created_by,
                    "createdAt": json_time(token.created_at),
                    "expiresAt": json_time(token.expires_at),
                    "usedAt": json_time(token.used_at),
                })
            });
            print_json(&Value::Array(tokens.collect()), out)
        }
        Output::Name => print_names(tokens.iter().map(|token| token.token_id.as_str()), out),
        Output::Table | Output::Wide => {
            let rows = tokens.iter().map(|token| {
                vec![
                    token.token_id.clone(),
                    token.cluster_id.clone(),
                    token.state.clone(),
                    time(token.expires_at),
                    time(token.used_at),
                    token.created_by.clone(),
                ]
            });
            let headings = ["TOKEN", "CLUSTER", "STATE", "EXPIRES", "USED", "BY"];
            print_table(&headings, rows, "there is no join token", out)
        }
    }
}

/// The authorities of the hub, and who waits for what.
pub(super) fn rotation(rotation: &Rotation, output: Output, out: Out<'_>) -> anyhow::Result<()> {
    let authorities = &rotation.authorities;
    match output {
        Output::Json => {
            let authorities = authorities.iter().map(|one| {
                json!({
                    "pin": one.pin,
                    "issuing": one.issuing,
                    "serving": one.serving,
                    "createdAt": json_time(one.created_at),
                    "notAfter": json_time(one.not_after),
                })
            });
            let rotation = json!({
                "state": rotation.state,
                "authorities": authorities.collect::<Vec<_>>(),
                "waitingFor": rotation.waiting_for,
            });
            print_json(&rotation, out)
        }
        Output::Name => print_names(authorities.iter().map(|one| one.pin.as_str()), out),
        Output::Table | Output::Wide => {
            let yes = |flag| if flag { "yes" } else { "no" }.to_owned();
            let rows = authorities.iter().map(|one| {
                vec![
                    one.pin.clone(),
                    yes(one.issuing),
                    yes(one.serving),
                    time(one.created_at),
                    time(one.not_after),
                ]
            });
            writeln!(out, "{}", rotation.state)?;
            let headings = [
                "AUTHORITY",
                "CERTIFIES",
                "HUB'S OWN",
                "CREATED",
                "NOT AFTER",
            ];
            print_table(&headings, rows, "the hub has no authority", out)?;
            if !rotation.waiting_for.is_empty() {
                writeln!(out, "waits for: {}", rotation.waiting_for.join(", "))?;
            }
            Ok(())
        }
    }
}

pub(super) fn responses(
    responses: &[Response],
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    match output {
        Output::Json => print_json(
            &Value::Array(responses.iter().map(response_json).collect()),
            out,
        ),
        Output::Name => {
            let names: Vec<_> = responses
                .iter()
                .map(|one| format!("{}/{}", one.cluster_id, one.name))
                .collect();
            print_names(names.iter().map(String::as_str), out)
        }
        Output::Table | Output::Wide => {
            let wide = output == Output::Wide;
            let mut headings = vec![
                "CLUSTER",
                "NAME",
                "PHASE",
                "OUTCOME",
                "ATTEMPTS",
                "PULL REQUEST",
            ];
            if wide {
                headings.extend(["REASON", "REPOSITORY", "ROUTE", "OBSERVED", "UID"]);
            }
            let rows = responses.iter().map(|one| {
                let mut row = vec![
                    one.cluster_id.clone(),
                    one.name.clone(),
                    one.phase.clone(),
                    one.outcome_type.clone(),
                    one.attempts.to_string(),
                    one.url.clone(),
                ];
                if wide {
                    row.extend([
                        one.error_reason.clone(),
                        one.repository.clone(),
                        one.route.clone(),
                        time(one.observed_at),
                        one.uid.clone(),
                    ]);
                }
                row
            });
            print_table(&headings, rows, "there is no such response", out)
        }
    }
}

pub(super) fn response(
    answer: &GetResponseResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let one = answer
        .response
        .as_ref()
        .context("the hub's answer has no response in it")?;
    match output {
        Output::Json => print_json(&explanation_json(answer, one), out),
        Output::Name => print_names([one.name.as_str()].into_iter(), out),
        Output::Table | Output::Wide => explain(answer, one, out),
    }
}

fn explain(answer: &GetResponseResponse, one: &Response, out: Out<'_>) -> anyhow::Result<()> {
    let acknowledged = if one.deleted {
        "the EventResponse is gone".to_owned()
    } else if one.acknowledged_revision >= one.revision {
        "written to the EventResponse".to_owned()
    } else {
        format!(
            "not yet written (revision {} of {})",
            one.acknowledged_revision, one.revision
        )
    };
    let error = match one.error_type.as_str() {
        "" => String::new(),
        kind => format!("{kind} {}: {}", one.error_reason, one.error_detail),
    };
    let outcome = [one.outcome_type.as_str(), one.outcome_message.as_str()];
    for (label, text) in [
        (
            "EventResponse",
            format!("{} in cluster {}", one.name, one.cluster_id),
        ),
        ("UID", one.uid.clone()),
        ("Phase", one.phase.clone()),
        (
            "Outcome",
            outcome
                .into_iter()
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join(": "),
        ),
        ("Error", error),
        ("Route", one.route.clone()),
        (
            "Repository",
            [one.repository.as_str(), one.provider.as_str()]
                .join("  ")
                .trim()
                .to_owned(),
        ),
        ("Pull request", one.url.clone()),
        ("Next attempt", time(one.next_attempt_at)),
        ("Status", acknowledged),
    ] {
        if !text.is_empty() {
            writeln!(out, "{:<15}{}", format!("{label}:"), visible(&text))?;
        }
    }
    writeln!(out, "\nHistory")?;
    for entry in &answer.history {
        writeln!(out, "  {}", history_line(entry))?;
    }
    writeln!(out, "\nAttempts")?;
    if answer.attempts.is_empty() {
        writeln!(out, "  none")?;
    }
    for attempt in &answer.attempts {
        writeln!(out, "  {}", attempt_line(attempt))?;
    }
    match &answer.change {
        Some(change) => print_change(change, out),
        None => Ok(()),
    }
}

fn history_line(entry: &HistoryEntry) -> String {
    visible(&format!(
        "{}  {:<16} {:<14} {}",
        time(entry.at),
        entry.actor,
        entry.action,
        entry.detail
    ))
}

fn attempt_line(attempt: &Attempt) -> String {
    let result = if attempt.result.is_empty() {
        "running"
    } else {
        &attempt.result
    };
    let error = match attempt.error_reason.as_str() {
        "" => String::new(),
        reason => format!("  {reason}: {}", attempt.error_detail),
    };
    visible(&format!(
        "{}  {}  {result}, {} requests to the forge{error}",
        attempt.number,
        time(attempt.started_at),
        attempt.forge_requests
    ))
}

fn print_change(change: &ChangeText, out: Out<'_>) -> anyhow::Result<()> {
    let base = if change.base_branch.is_empty() {
        "the default branch"
    } else {
        &change.base_branch
    };
    writeln!(out, "\nPull request")?;
    writeln!(
        out,
        "  Branch:  {} into {}",
        visible(&change.branch),
        visible(base)
    )?;
    writeln!(out, "  Title:   {}", visible(&change.title))?;
    for (label, list) in [("Labels", &change.labels), ("Review", &change.reviewers)] {
        if !list.is_empty() {
            writeln!(
                out,
                "  {:<9}{}",
                format!("{label}:"),
                visible(&list.join(", "))
            )?;
        }
    }
    for file in &change.files {
        let what = if file.delete {
            "delete".to_owned()
        } else if !file.patch_type.is_empty() {
            format!(
                "{} patch of {} bytes",
                visible(&file.patch_type),
                file.contents.len()
            )
        } else {
            format!("write {} bytes", file.contents.len())
        };
        writeln!(out, "  File:    {} ({what})", visible(&file.path))?;
        if !file.patch_type.is_empty() {
            for line in String::from_utf8_lossy(&file.contents).lines() {
                writeln!(out, "    {}", visible(line))?;
            }
        }
    }
    writeln!(out, "  Body:")?;
    for line in change.body.lines() {
        writeln!(out, "    {}", visible(line))?;
    }
    Ok(())
}

/// Text from clusters and forges, without what a terminal would obey.
fn visible(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

pub(super) fn time(at: Option<prost_types::Timestamp>) -> String {
    timestamp(at)
        .map(|at| format!("{at:.0}"))
        .unwrap_or_default()
}

fn timestamp(at: Option<prost_types::Timestamp>) -> Option<Timestamp> {
    let at = at?;
    Timestamp::new(at.seconds, at.nanos).ok()
}

fn print_table(
    headings: &[&str],
    rows: impl Iterator<Item = Vec<String>>,
    empty: &str,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings);
    for row in rows {
        table.add_row(row.iter().map(|cell| {
            if cell.is_empty() {
                "-".to_owned()
            } else {
                visible(cell)
            }
        }));
    }
    if table.is_empty() {
        writeln!(out, "{empty}")?;
    } else {
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end().trim_start())?;
        }
    }
    Ok(())
}

fn print_names<'a>(names: impl Iterator<Item = &'a str>, out: Out<'_>) -> anyhow::Result<()> {
    for name in names {
        writeln!(out, "{}", visible(name))?;
    }
    Ok(())
}

fn print_json(value: &Value, out: Out<'_>) -> anyhow::Result<()> {
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

fn json_time(at: Option<prost_types::Timestamp>) -> Value {
    timestamp(at).map_or(Value::Null, |at| Value::String(at.to_string()))
}

fn cluster_json(cluster: &Cluster) -> Value {
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
    })
}

fn response_json(one: &Response) -> Value {
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

fn explanation_json(answer: &GetResponseResponse, one: &Response) -> Value {
    let mut value = response_json(one);
    value["attemptLog"] = answer
        .attempts
        .iter()
        .map(|attempt| {
            json!({
                "number": attempt.number,
                "startedAt": json_time(attempt.started_at),
                "endedAt": json_time(attempt.ended_at),
                "result": attempt.result,
                "error": {"type": attempt.error_type, "reason": attempt.error_reason, "detail": attempt.error_detail},
                "forgeRequests": attempt.forge_requests,
            })
        })
        .collect();
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
    value["change"] = answer.change.as_ref().map_or(Value::Null, |change| {
        json!({
            "branch": change.branch,
            "baseBranch": change.base_branch,
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
    });
    value
}
