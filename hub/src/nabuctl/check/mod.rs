//! `nabuctl check`: looks at everything between this machine and the forges, and says of each thing whether it is well
//! and the command that mends it.
//!
//! Facts are gathered in [`hub`], [`handshake`] and [`kubernetes`]; what they mean is decided by subject in the other modules,
//! over plain values.

mod addresses;
mod certificates;
mod clusters;
mod configuration;
mod crds;
mod evaluate;
mod found;
mod handshake;
mod hub;
mod kubernetes;
mod rights;
mod versions;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use nabu_common::identity::{Identity, TrustDomain};
use nabu_common::tls::CaPin;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::output::{Listing, Out, Output, Terminal};
use super::table::{Tone, visible};
use super::{Connection, Failure};
use evaluate::{CertificateFacts, Named};
use found::{Found, Level};

/// What to look at.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Look at a Kubernetes cluster as well: that of kubectl's current context.
    #[arg(long)]
    pub kubernetes: bool,
    /// Look at the cluster of this context of kubectl instead. Includes --kubernetes.
    #[arg(long, value_name = "NAME")]
    pub kube_context: Option<String>,
    /// The service account of the agent in that cluster, to check its rights, as NAMESPACE/NAME. Includes --kubernetes.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub agent_account: Option<String>,
    /// What the agent's Lease is called, and with -identity its Secret, if not as its service account.
    #[arg(long, value_name = "NAME", requires = "agent_account")]
    pub agent_name: Option<String>,
    /// The service account of a hub in that cluster that watches objects, to check its rights, as NAMESPACE/NAME. Includes
    /// --kubernetes.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub hub_account: Option<String>,
    /// The namespace of the hub's documents and Secrets, if not that of its service account.
    #[arg(long, value_name = "NAMESPACE", requires = "hub_account")]
    pub config_namespace: Option<String>,
    /// The address of the hub that agents dial, if it is not the one that the hub was told.
    #[arg(long, value_name = "URL")]
    pub agents_url: Option<String>,
    /// Name that the hub's certificate must have there, if it is not the host of the address.
    #[arg(long, value_name = "NAME")]
    pub agents_server_name: Option<String>,
    /// Pin of the authority that the hub must be certified by there, as `nabuctl cluster add` prints it, instead of the ca.crt
    /// of --tls-dir. Repeatable.
    #[arg(long, value_name = "sha256:HEX")]
    pub agents_ca_pin: Vec<CaPin>,
    /// Leave out the hub: before it is installed. What cannot be judged yet is skipped.
    #[arg(long)]
    pub without_hub: bool,
}

impl CheckArgs {
    fn wants_kubernetes(&self) -> bool {
        self.kubernetes
            || self.kube_context.is_some()
            || self.agent_account.is_some()
            || self.hub_account.is_some()
    }
}

/// Looks at everything; fails if anything is wrong.
pub(super) async fn run(
    connection: &Connection,
    arguments: CheckArgs,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let kubernetes = arguments.wants_kubernetes();
    anyhow::ensure!(
        !arguments.without_hub || kubernetes || arguments.agents_url.is_some(),
        "nothing is left to look at; add --kubernetes or --agents-url, or leave --without-hub out"
    );
    let mut found = if arguments.without_hub {
        hub::before(connection, &arguments).await
    } else {
        hub::look(connection, &arguments).await
    };
    if kubernetes {
        found.extend(kubernetes::look(&arguments).await);
    }
    print(&found, output, out)?;
    let errors = found.iter().filter(|one| one.level == Level::Error).count();
    if errors > 0 {
        let message = format!("{errors} of {} checks found something wrong", found.len());
        return Err(Failure::new(Failure::FAILED, message).into());
    }
    Ok(())
}

fn read_certificate(path: &Path) -> anyhow::Result<CertificateFacts> {
    let shown = PathBuf::from(path);
    let der = CertificateDer::from_pem_file(path)
        .with_context(|| format!("{} holds no certificate that can be read", shown.display()))?;
    let (_, certificate) = X509Certificate::from_der(&der)
        .with_context(|| format!("{} holds no certificate", shown.display()))?;
    let validity = certificate.validity();
    let time = |at: x509_parser::time::ASN1Time| Timestamp::from_second(at.timestamp());
    Ok(CertificateFacts {
        named: named(&certificate),
        not_before: time(validity.not_before)?,
        not_after: time(validity.not_after)?,
    })
}

/// Who a certificate speaks for: in the form of our own, or by a name of another PKI.
fn named(certificate: &X509Certificate<'_>) -> Named {
    let names = match certificate.subject_alternative_name() {
        Ok(names) => names,
        Err(error) => return Named::Nobody(error.to_string()),
    };
    let uris: Vec<&str> = names
        .iter()
        .flat_map(|extension| &extension.value.general_names)
        .filter_map(|name| match name {
            GeneralName::URI(uri) => Some(*uri),
            _ => None,
        })
        .collect();
    let [uri] = uris.as_slice() else {
        return Named::Nobody(format!("it has {} URI names", uris.len()));
    };
    let domain = uri
        .strip_prefix("spiffe://")
        .and_then(|rest| rest.split('/').next())
        .and_then(|domain| domain.parse::<TrustDomain>().ok());
    match domain.map(|domain| Identity::from_uri(uri, &domain)) {
        Some(Ok(identity)) => Named::Own(identity),
        _ => Named::Other(uri.chars().take(200).collect()),
    }
}

fn print(found: &[Found], output: Output, out: Out<'_>) -> anyhow::Result<()> {
    if matches!(output, Output::Table | Output::Wide) {
        let colours = Terminal::of_stdout().colours;
        for one in found {
            writeln!(out, "{}", line(one, colours))?;
        }
        return Ok(());
    }
    let listing = Listing {
        names: found.iter().map(|one| one.check.to_owned()).collect(),
        values: found
            .iter()
            .map(|one| {
                json!({
                    "check": one.check,
                    "level": one.level.as_str(),
                    "message": one.message,
                    "remedy": one.remedy,
                })
            })
            .collect(),
        ..Listing::default()
    };
    listing.print(output, out)
}

fn line(found: &Found, colours: bool) -> String {
    let tone = match found.level {
        Level::Ok => Tone::Good,
        Level::Skipped => Tone::Plain,
        Level::Warning => Tone::Warning,
        Level::Error => Tone::Bad,
    };
    let level = tone.paint(&format!("{:<8}", found.level.as_str()), colours);
    let message = visible(&found.message);
    let remedy = match found.level {
        _ if found.remedy.is_empty() => String::new(),
        Level::Skipped => format!("\n{:21}to judge it: {}", "", visible(&found.remedy)),
        _ => format!("\n{:21}to mend it: {}", "", visible(&found.remedy)),
    };
    format!("{level}{:<13}{message}{remedy}", found.check)
}
