//! `nabuctl check`: looks at everything between this machine and the forges, and says of each thing whether it is well
//! and what mends it. Gathers facts here and in [`cluster`]; what they mean is decided in [`evaluate`].

mod cluster;
mod evaluate;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use jiff::Timestamp;
use nabu_common::identity::{Identity, TrustDomain};
use nabu_proto::admin_v1::{GetConfigStatusRequest, GetVersionRequest, ListForgesRequest};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::client::{self, Hub, explain};
use super::context::{self, Way};
use super::output::{Listing, Out, Output, Terminal};
use super::table::{Tone, visible};
use super::{Connection, Failure, ask};
use evaluate::{CertificateFacts, Found, Level, Named};

/// What to look at.
#[derive(Clone, Debug, Args)]
pub struct CheckArgs {
    /// Look at a Kubernetes cluster as well: that of kubectl's current context.
    #[arg(long)]
    pub kubernetes: bool,
    /// Look at the cluster of this context of kubectl instead. Includes --kubernetes.
    #[arg(long, value_name = "NAME")]
    pub kube_context: Option<String>,
    /// The service account of the agent in that cluster, to check its rights, as NAMESPACE/NAME.
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub agent_account: Option<String>,
    /// Leave out the hub: before it is installed.
    #[arg(long)]
    pub without_hub: bool,
}

/// Looks at everything; fails if anything is wrong.
pub(super) async fn run(
    connection: &Connection,
    arguments: CheckArgs,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let mut found = Vec::new();
    if !arguments.without_hub {
        found.extend(hub_side(connection).await);
    }
    if arguments.kubernetes || arguments.kube_context.is_some() {
        let account = arguments.agent_account.as_deref();
        found.extend(cluster::look(arguments.kube_context.as_deref(), account).await);
    }
    anyhow::ensure!(
        !found.is_empty(),
        "nothing is left to look at; add --kubernetes or leave --without-hub out"
    );
    print(&found, output, out)?;
    let errors = found.iter().filter(|one| one.level == Level::Error).count();
    if errors > 0 {
        let message = format!("{errors} of {} checks found something wrong", found.len());
        return Err(Failure::new(Failure::FAILED, message).into());
    }
    Ok(())
}

async fn hub_side(connection: &Connection) -> Vec<Found> {
    let way = match context::way(connection) {
        Ok(way) => way,
        Err(error) => {
            let remedy = "nabuctl context list";
            return vec![Found::bad(
                "context",
                Level::Error,
                format!("{error:#}"),
                remedy,
            )];
        }
    };
    let mut found = vec![Found::ok("context", format!("the hub is at {}", way.hub))];
    let (of_hub, caller) = asked_of_hub(&way).await;
    if !way.hub.starts_with("unix:") {
        found.push(certificate(&way, caller.as_deref()));
    }
    found.extend(of_hub);
    found
}

/// What the hub says, and who it takes us for.
async fn asked_of_hub(way: &Way) -> (Vec<Found>, Option<String>) {
    let asked = Timestamp::now();
    let hub = match reach(way).await {
        Ok(hub) => hub,
        Err(bad) => return (vec![bad], None),
    };
    let mut found = vec![Found::ok("hub", "the admin API can be reached")];
    let version = match hub.operations().get_version(GetVersionRequest {}).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            let remedy = "give this name a role with --admin-role of nabu-hub, or upgrade the hub";
            found.push(refused("role", status, remedy));
            return (found, None);
        }
    };
    found.push(evaluate::role(&version));
    found.push(evaluate::clock(&version, asked, Timestamp::now()));
    found.push(evaluate::version(&version, env!("CARGO_PKG_VERSION")));
    let remedy = "look at the hub's log";
    match hub
        .operations()
        .get_config_status(GetConfigStatusRequest {})
        .await
    {
        Ok(answer) => found.extend(evaluate::config(&answer.into_inner())),
        Err(status) => found.push(refused("config", status, remedy)),
    }
    match hub.operations().list_forges(ListForgesRequest {}).await {
        Ok(answer) => found.extend(evaluate::forges(&answer.into_inner().forges)),
        Err(status) => found.push(refused("forge", status, remedy)),
    }
    match ask::all_clusters(&hub).await {
        Ok(clusters) => {
            let now = Timestamp::now();
            found.extend(evaluate::clusters(&clusters, &version.version, now));
        }
        Err(error) => found.push(Found::bad(
            "cluster",
            Level::Error,
            format!("{error:#}"),
            remedy,
        )),
    }
    (found, Some(version.caller))
}

fn refused(check: &'static str, status: tonic::Status, remedy: &str) -> Found {
    Found::bad(check, Level::Error, explain(status).to_string(), remedy)
}

async fn reach(way: &Way) -> Result<Hub, Found> {
    client::connect_to(way).await.map_err(|error| {
        let remedy = "is the hub running, is --listen-admin reachable from here, and is ca.crt the authority of its \
            certificate? openssl s_client -connect HOST:PORT shows what answers";
        Found::bad("hub", Level::Error, format!("{error:#}"), remedy)
    })
}

fn certificate(way: &Way, caller: Option<&str>) -> Found {
    let folder = way.tls_dir.display().to_string();
    match read_certificate(&way.tls_dir.join("tls.crt")) {
        Ok(facts) => evaluate::certificate(&facts, caller, &folder, Timestamp::now()),
        Err(error) => Found::bad(
            "certificate",
            Level::Error,
            format!("{error:#}"),
            format!(
                "nabuctl pki issue --out {folder} admin NAME, or say where it is with --tls-dir"
            ),
        ),
    }
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
        Level::Warning => Tone::Warning,
        Level::Error => Tone::Bad,
    };
    let level = tone.paint(&format!("{:<8}", found.level.as_str()), colours);
    let message = visible(&found.message);
    let remedy = if found.remedy.is_empty() {
        String::new()
    } else {
        format!("\n{:21}to mend it: {}", "", visible(&found.remedy))
    };
    format!("{level}{:<13}{message}{remedy}", found.check)
}
