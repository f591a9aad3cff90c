//! Join tokens, administrators, and the hub's authorities.

use nabu_proto::admin_v1::{ListAdministratorsResponse, Rotation, Token};
use serde_json::json;

use super::json::json_time;
use super::text::time;
use crate::nabuctl::dry_run::mark;
use crate::nabuctl::output::{Listing, Out, Output, print_value};

/// Join tokens, without the tokens.
pub(in crate::nabuctl) fn tokens(
    tokens: &[Token],
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let listing = Listing {
        headings: vec!["TOKEN", "CLUSTER", "STATE", "EXPIRES", "USED", "BY"],
        narrow: 6,
        rows: tokens
            .iter()
            .map(|token| {
                vec![
                    token.token_id.as_str().into(),
                    token.cluster_id.as_str().into(),
                    token.state.as_str().into(),
                    time(token.expires_at).into(),
                    time(token.used_at).into(),
                    token.created_by.as_str().into(),
                ]
            })
            .collect(),
        names: tokens.iter().map(|token| token.token_id.clone()).collect(),
        values: tokens
            .iter()
            .map(|token| {
                json!({
                    "tokenId": token.token_id,
                    "clusterId": token.cluster_id,
                    "state": token.state,
                    "createdBy": token.created_by,
                    "createdAt": json_time(token.created_at),
                    "expiresAt": json_time(token.expires_at),
                    "usedAt": json_time(token.used_at),
                })
            })
            .collect(),
        empty: "there is no join token",
    };
    listing.print(output, out)
}

/// What a step of a rotation leads to.
#[derive(Debug, Default)]
pub(in crate::nabuctl) struct RotationStep {
    /// The authorities after it.
    pub(in crate::nabuctl) rotation: Option<Rotation>,
    /// Who has to be enrolled again.
    pub(in crate::nabuctl) left_behind: Vec<String>,
    /// What would become of our own certificate, if that is to be said.
    pub(in crate::nabuctl) own: Option<String>,
    /// Whether nothing has happened.
    pub(in crate::nabuctl) dry_run: bool,
}

/// The authorities of the hub, and who waits for what.
pub(in crate::nabuctl) fn rotation(
    step: &RotationStep,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let none = Rotation::default();
    let rotation = step.rotation.as_ref().unwrap_or(&none);
    let authorities = &rotation.authorities;
    if matches!(output, Output::Json | Output::Yaml) {
        let authorities = authorities.iter().map(|one| {
            json!({
                "pin": one.pin,
                "issuing": one.issuing,
                "serving": one.serving,
                "createdAt": json_time(one.created_at),
                "notAfter": json_time(one.not_after),
            })
        });
        let mut value = json!({
            "state": rotation.state,
            "authorities": authorities.collect::<Vec<_>>(),
            "waitingFor": rotation.waiting_for,
        });
        if !step.left_behind.is_empty() {
            value["leftBehind"] = json!(step.left_behind);
        }
        if step.dry_run {
            value["dryRun"] = json!(true);
        }
        return print_value(&value, output, out);
    }
    let yes = |flag| if flag { "yes" } else { "no" };
    let listing = Listing {
        headings: vec![
            "AUTHORITY",
            "CERTIFIES",
            "HUB'S OWN",
            "CREATED",
            "NOT AFTER",
        ],
        narrow: 5,
        rows: authorities
            .iter()
            .map(|one| {
                vec![
                    if one.pin.is_empty() {
                        "(a new one)".into()
                    } else {
                        one.pin.as_str().into()
                    },
                    yes(one.issuing).into(),
                    yes(one.serving).into(),
                    time(one.created_at).into(),
                    time(one.not_after).into(),
                ]
            })
            .collect(),
        names: authorities
            .iter()
            .map(|one| one.pin.clone())
            .filter(|pin| !pin.is_empty())
            .collect(),
        values: Vec::new(),
        empty: "the hub has no authority",
    };
    if output == Output::Name {
        return listing.print(output, out);
    }
    writeln!(out, "{}{}", rotation.state, mark(step.dry_run))?;
    listing.print(output, out)?;
    if !rotation.waiting_for.is_empty() {
        writeln!(out, "waits for: {}", rotation.waiting_for.join(", "))?;
    }
    if !step.left_behind.is_empty() {
        writeln!(out, "left behind: {}", step.left_behind.join(", "))?;
    }
    if let Some(own) = &step.own {
        writeln!(out, "{own}{}", mark(step.dry_run))?;
    }
    Ok(())
}

/// Administrators: certificates, and revocations that are about none of them.
pub(in crate::nabuctl) fn administrators(
    listed: &ListAdministratorsResponse,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    if matches!(output, Output::Json | Output::Yaml) {
        let certificates = listed.certificates.iter().map(|one| {
            json!({
                "name": one.name,
                "fingerprint": one.fingerprint,
                "role": one.role,
                "issuedAt": json_time(one.issued_at),
                "notAfter": json_time(one.not_after),
                "revoked": one.revoked,
            })
        });
        let revocations = listed.revocations.iter().map(|one| {
            json!({
                "name": one.name,
                "fingerprint": one.fingerprint,
                "revokedAt": json_time(one.revoked_at),
                "revokedBy": one.revoked_by,
                "reason": one.reason,
            })
        });
        let value = json!({
            "certificates": certificates.collect::<Vec<_>>(),
            "revocations": revocations.collect::<Vec<_>>(),
        });
        return print_value(&value, output, out);
    }
    let state = |revoked| if revoked { "Revoked" } else { "Active" };
    let listing = Listing {
        headings: vec!["NAME", "ROLE", "STATE", "NOT AFTER", "CERTIFICATE"],
        narrow: 5,
        rows: listed
            .certificates
            .iter()
            .map(|one| {
                vec![
                    one.name.as_str().into(),
                    one.role.as_str().into(),
                    state(one.revoked).into(),
                    time(one.not_after).into(),
                    one.fingerprint.as_str().into(),
                ]
            })
            .collect(),
        names: listed
            .certificates
            .iter()
            .map(|one| one.name.clone())
            .collect(),
        values: Vec::new(),
        empty: "the hub has certified no administrator",
    };
    listing.print(output, out)?;
    if output != Output::Name {
        for one in &listed.revocations {
            let whom = if one.name.is_empty() {
                format!("certificate {}", one.fingerprint)
            } else {
                format!("admin/{}", one.name)
            };
            let (at, by) = (time(one.revoked_at), &one.revoked_by);
            let reason = if one.reason.is_empty() {
                String::new()
            } else {
                format!(": {}", one.reason)
            };
            writeln!(out, "{whom} is revoked since {at} by {by}{reason}")?;
        }
    }
    Ok(())
}
