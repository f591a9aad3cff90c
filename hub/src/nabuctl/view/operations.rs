//! The hub itself: configuration, forges, audit log, versions.

use jiff::Timestamp;
use nabu_proto::admin_v1::{
    AuditEvent, Forge, GetConfigStatusResponse, GetVersionResponse, RateLimit,
};
use serde_json::json;

use super::json::{audit_json, config_json, forge_json, json_time};
use super::story::finding_line;
use super::text::{age, time};
use crate::nabuctl::output::{Listing, Out, Output, print_value};
use crate::nabuctl::table::{Cell, Tone, visible};

pub(in crate::nabuctl) fn config(
    answer: &GetConfigStatusResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    if matches!(output, Output::Json | Output::Yaml) {
        return print_value(&config_json(answer), output, out);
    }
    let documents = Listing {
        headings: vec!["DOCUMENT", "IN FORCE", "ROUTES", "ORIGIN"],
        narrow: 4,
        rows: answer
            .documents
            .iter()
            .map(|one| {
                let in_force = if one.in_force {
                    Cell::toned("yes", Tone::Good)
                } else {
                    Cell::toned("no", Tone::Bad)
                };
                vec![
                    one.id.as_str().into(),
                    in_force,
                    one.routes.to_string().into(),
                    one.origin.as_str().into(),
                ]
            })
            .collect(),
        names: answer.documents.iter().map(|one| one.id.clone()).collect(),
        values: Vec::new(),
        empty: "the hub has no GitOpsResponderConfig",
    };
    documents.print(output, out)?;
    if output == Output::Name {
        return Ok(());
    }
    for finding in answer.documents.iter().flat_map(|one| &one.findings) {
        writeln!(out, "{}", visible(&finding_line(finding)))?;
    }
    writeln!(out)?;
    let routes = Listing {
        headings: vec!["ROUTE", "PROVIDER", "REPOSITORY", "BASE BRANCH", "ADDRESS"],
        narrow: 4,
        rows: answer
            .routes
            .iter()
            .map(|one| {
                vec![
                    one.route.as_str().into(),
                    one.provider.as_str().into(),
                    one.repository.as_str().into(),
                    one.base_branch.as_str().into(),
                    one.base_url.as_str().into(),
                ]
            })
            .collect(),
        empty: "no route is in force",
        ..Listing::default()
    };
    routes.print(output, out)
}

pub(in crate::nabuctl) fn forges(forges: &[Forge]) -> Listing {
    let now = Timestamp::now();
    let row = |forge: &Forge| -> Vec<Cell> {
        let tone = match forge.state.as_str() {
            "Ready" => Tone::Good,
            "Idle" => Tone::Plain,
            "Careful" => Tone::Warning,
            _ => Tone::Bad,
        };
        vec![
            forge.provider.as_str().into(),
            forge.credential.as_str().into(),
            Cell::toned(forge.state.as_str(), tone),
            forge.running.to_string().into(),
            forge.waiting.to_string().into(),
            forge.parked.to_string().into(),
            forge
                .limits
                .iter()
                .map(limit)
                .collect::<Vec<_>>()
                .join(", ")
                .into(),
            time(forge.limited_until).into(),
            forge.base_url.as_str().into(),
            forge.routes.to_string().into(),
            age(forge.last_answer_at, now).into(),
            forge.last_result.as_str().into(),
            forge.detail.as_str().into(),
        ]
    };
    Listing {
        headings: vec![
            "PROVIDER",
            "CREDENTIAL",
            "STATE",
            "RUNNING",
            "WAITING",
            "PARKED",
            "LEFT",
            "LIMITED UNTIL",
            "ADDRESS",
            "ROUTES",
            "ANSWERED",
            "LAST RESULT",
            "DETAIL",
        ],
        narrow: 9,
        rows: forges.iter().map(row).collect(),
        names: forges.iter().map(forge_name).collect(),
        values: forges.iter().map(forge_json).collect(),
        empty: "no route names a forge",
    }
}

/// The credential; `noop` has none.
fn forge_name(forge: &Forge) -> String {
    if forge.credential.is_empty() {
        return forge.provider.clone();
    }
    forge.credential.clone()
}

fn limit(limit: &RateLimit) -> String {
    let resource = match limit.resource.as_str() {
        "" => String::new(),
        resource => format!("{resource} "),
    };
    format!("{resource}{}/{}", limit.remaining, limit.limit)
}

pub(in crate::nabuctl) fn audit(events: &[AuditEvent]) -> Listing {
    let row = |event: &AuditEvent| -> Vec<Cell> {
        let tone = match event.outcome.as_str() {
            "" => Tone::Plain,
            "Ok" => Tone::Good,
            _ => Tone::Bad,
        };
        vec![
            time(event.at).into(),
            event.actor.as_str().into(),
            event.action.as_str().into(),
            event.target.as_str().into(),
            Cell::toned(event.outcome.as_str(), tone),
            event.detail.as_str().into(),
        ]
    };
    Listing {
        headings: vec!["AT", "ACTOR", "ACTION", "TARGET", "OUTCOME", "DETAIL"],
        narrow: 6,
        rows: events.iter().map(row).collect(),
        names: events.iter().map(|event| event.id.to_string()).collect(),
        values: events.iter().map(audit_json).collect(),
        empty: "the audit log has no such line",
    }
}

pub(in crate::nabuctl) fn version(
    hub: &GetVersionResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    match output {
        Output::Json | Output::Yaml => {
            let value = json!({
                "nabuctl": own,
                "hub": {
                    "version": hub.version,
                    "protocolVersion": hub.protocol_version,
                    "buildProfile": hub.build_profile,
                    "target": hub.target,
                    "commit": hub.commit,
                    "rustc": hub.rustc,
                    "startedAt": json_time(hub.started_at),
                    "now": json_time(hub.now),
                },
                "caller": hub.caller,
                "role": hub.caller_role,
            });
            print_value(&value, output, out)
        }
        Output::Name => Ok(writeln!(out, "{}", visible(&hub.version))?),
        Output::Table | Output::Wide => {
            for (label, text) in [
                ("nabuctl", nabu_common::build::FACTS.to_owned()),
                (
                    "Hub",
                    format!(
                        "{} (commit {}, rustc {}, {}, {}), protocol {}",
                        hub.version,
                        hub.commit,
                        hub.rustc,
                        hub.build_profile,
                        hub.target,
                        hub.protocol_version
                    ),
                ),
                ("Since", time(hub.started_at)),
                ("Its clock", time(hub.now)),
                ("You are", format!("{} ({})", hub.caller, hub.caller_role)),
            ] {
                writeln!(out, "{:<12}{}", format!("{label}:"), visible(&text))?;
            }
            Ok(())
        }
    }
}
