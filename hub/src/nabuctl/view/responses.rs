//! Responses, and one of them with the text of its pull request.

use anyhow::Context as _;
use nabu_proto::admin_v1::{Attempt, ChangeText, GetResponseResponse, HistoryEntry, Response};

use super::json::{explanation_json, response_json};
use super::phase_tone;
use super::text::time;
use crate::nabuctl::output::{Listing, Out, Output, print_value};
use crate::nabuctl::table::{Cell, visible};

pub(in crate::nabuctl) fn list(responses: &[Response]) -> Listing {
    let row = |one: &Response| -> Vec<Cell> {
        vec![
            one.cluster_id.as_str().into(),
            one.name.as_str().into(),
            Cell::toned(one.phase.as_str(), phase_tone(&one.phase)),
            one.outcome_type.as_str().into(),
            one.attempts.to_string().into(),
            one.url.as_str().into(),
            one.error_reason.as_str().into(),
            one.repository.as_str().into(),
            one.route.as_str().into(),
            time(one.observed_at).into(),
            one.uid.as_str().into(),
        ]
    };
    Listing {
        headings: vec![
            "CLUSTER",
            "NAME",
            "PHASE",
            "OUTCOME",
            "ATTEMPTS",
            "PULL REQUEST",
            "REASON",
            "REPOSITORY",
            "ROUTE",
            "OBSERVED",
            "UID",
        ],
        narrow: 6,
        rows: responses.iter().map(row).collect(),
        names: responses
            .iter()
            .map(|one| format!("{}/{}", one.cluster_id, one.name))
            .collect(),
        values: responses.iter().map(response_json).collect(),
        empty: "there is no such response",
    }
}

pub(in crate::nabuctl) fn response(
    answer: &GetResponseResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let one = answer
        .response
        .as_ref()
        .context("the hub's answer has no response in it")?;
    match output {
        Output::Json | Output::Yaml => print_value(&explanation_json(answer, one), output, out),
        Output::Name => Ok(writeln!(out, "{}", visible(&one.name))?),
        Output::Table | Output::Wide => explain(answer, one, out),
    }
}

fn explain(answer: &GetResponseResponse, one: &Response, out: Out<'_>) -> anyhow::Result<()> {
    facts(one, out)?;
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

/// What is known of a response, a line for each fact.
pub(super) fn facts(one: &Response, out: Out<'_>) -> anyhow::Result<()> {
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
    Ok(())
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

pub(super) fn print_change(change: &ChangeText, out: Out<'_>) -> anyhow::Result<()> {
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
    if !change.group_branch.is_empty() {
        writeln!(
            out,
            "  Group:   {} ({}); the branch above only if the group cannot take it",
            visible(&change.group_branch),
            visible(&change.group_title)
        )?;
    }
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
