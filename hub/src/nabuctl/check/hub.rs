//! What is to be found out of the hub: at its doors, of itself, and of everything behind it. Asks; what the answers mean is
//! decided in the modules by subject.

use anyhow::Context as _;
use jiff::Timestamp;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_proto::admin_v1::authority_service_client::AuthorityServiceClient;
use nabu_proto::admin_v1::{
    GetConfigStatusRequest, GetRotationRequest, GetVersionRequest, GetVersionResponse,
    ListForgesRequest, Rotation,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tonic::Code;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::addresses::{self, Door, Validity};
use super::clusters::{self, HubFacts};
use super::found::{Certifier, Found};
use super::handshake::{self, Address, Fault};
use super::{CheckArgs, certificates, configuration, evaluate, versions};
use crate::nabuctl::client::{self, Hub, explain};
use crate::nabuctl::context::{self, Way};
use crate::nabuctl::{Connection, ask};

/// What can be said of the hub before there is one.
pub(super) async fn before(connection: &Connection, arguments: &CheckArgs) -> Vec<Found> {
    let mut found = vec![without_hub("the hub is left out")];
    let tls = context::way(connection)
        .ok()
        .and_then(|way| client_tls(&way).ok());
    found.extend(agents_door(arguments, None, tls.as_ref(), Certifier::Unknown).await);
    found
}

fn without_hub(why: &str) -> Found {
    let message = format!(
        "{why}: role, clocks, versions, certificates, configuration, forges and clusters are not looked at"
    );
    Found::skipped(
        "hub",
        message,
        "nabuctl check, when there is a hub that answers",
    )
}

fn client_tls(way: &Way) -> anyhow::Result<ClientTls> {
    Ok(ClientTls::load(TlsFiles::in_folder(&way.tls_dir))?)
}

/// What can be said of the hub, its doors and everything behind it.
pub(super) async fn look(connection: &Connection, arguments: &CheckArgs) -> Vec<Found> {
    let way = match context::way(connection) {
        Ok(way) => way,
        Err(error) => {
            let remedy = "nabuctl context list";
            return vec![Found::error("context", format!("{error:#}"), remedy)];
        }
    };
    let mut found = vec![Found::ok("context", format!("the hub is at {}", way.hub))];
    let tls = client_tls(&way).ok();
    // The name that is dialled is the one that --server-name says, if it does.
    let shaken = match (way.hub.starts_with("unix:"), &tls) {
        (false, Some(tls)) => Some(shake(&way.hub, tls, way.server_name.clone()).await),
        _ => None,
    };
    let reached = match &shaken {
        Some(Err(_)) => None,
        _ => Some(reach(&way).await),
    };
    let mut learned = Learned::default();
    if let Some(Ok(hub)) = &reached {
        learned = learn(hub).await;
    }
    let certifier = learned.certifier;
    if !way.hub.starts_with("unix:") {
        let caller = learned.version.as_ref();
        let caller = caller.map(|version| version.caller.as_str());
        found.extend(credentials(&way, caller, certifier));
    }
    match shaken {
        Some(Ok((to, shown))) => {
            found.push(addresses::open(Door::Admin, &way.hub));
            let now = Timestamp::now();
            found.push(addresses::serving(Door::Admin, &to, shown, certifier, now));
        }
        Some(Err(fault)) => {
            found.push(addresses::shut(Door::Admin, &way.hub, &fault, certifier));
        }
        None => {}
    }
    match reached {
        Some(Ok(hub)) => {
            found.append(&mut learned.found);
            let told = learned.version.as_ref();
            if let Some(version) = told {
                found.extend(asked_of(&hub, version, certifier).await);
            }
            let url = told.map(|version| version.agents_url.as_str());
            found.extend(agents_door(arguments, url, tls.as_ref(), certifier).await);
        }
        other => {
            if let Some(Err(bad)) = other {
                found.push(bad);
            }
            found.push(without_hub("the hub could not be asked"));
            found.extend(agents_door(arguments, None, tls.as_ref(), certifier).await);
        }
    }
    found
}

/// What the hub says of itself.
struct Learned {
    version: Option<GetVersionResponse>,
    certifier: Certifier,
    found: Vec<Found>,
}

impl Default for Learned {
    fn default() -> Self {
        Self {
            version: None,
            certifier: Certifier::Unknown,
            found: Vec::new(),
        }
    }
}

async fn learn(hub: &Hub) -> Learned {
    let mut learned = Learned::default();
    let asked = Timestamp::now();
    let version = match hub.operations().get_version(GetVersionRequest {}).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            let remedy = "nabu-hub --admin-role viewer:NAME gives this name a role; nabuctl admin list shows who is revoked";
            learned.found.push(refused("role", status, remedy));
            return learned;
        }
    };
    learned.found.push(evaluate::role(&version));
    let now = Timestamp::now();
    learned.found.push(evaluate::clock(&version, asked, now));
    let own = env!("CARGO_PKG_VERSION");
    learned.found.push(versions::nabuctl(&version, own));
    learned.version = Some(version);
    match rotation(hub).await {
        Ok(Some(rotation)) => {
            learned.certifier = Certifier::Hub;
            let authorities = certificates::authorities(&rotation, now);
            learned.found.extend(authorities);
        }
        Ok(None) => learned.certifier = Certifier::OwnPki,
        Err(status) => {
            let remedy = "nabuctl ca rotate status";
            learned.found.push(refused("authority", status, remedy));
        }
    }
    learned
}

/// The hub's authorities; `None` if it has none of its own.
async fn rotation(hub: &Hub) -> Result<Option<Rotation>, tonic::Status> {
    let mut client = AuthorityServiceClient::new(hub.channel().clone());
    match client.get_rotation(GetRotationRequest {}).await {
        Ok(answer) => Ok(Some(answer.into_inner().rotation.unwrap_or_default())),
        Err(status) if status.code() == Code::Unimplemented => Ok(None),
        Err(status) => Err(status),
    }
}

/// What the hub knows of everything behind it.
async fn asked_of(hub: &Hub, version: &GetVersionResponse, certifier: Certifier) -> Vec<Found> {
    let remedy = "kubectl -n nabu-system logs deployment/nabu-hub";
    let mut found = Vec::new();
    let mut operations = hub.operations();
    match operations
        .get_config_status(GetConfigStatusRequest {})
        .await
    {
        Ok(answer) => found.extend(configuration::config(&answer.into_inner())),
        Err(status) => found.push(refused("config", status, remedy)),
    }
    match operations.list_forges(ListForgesRequest {}).await {
        Ok(answer) => found.extend(configuration::forges(&answer.into_inner().forges)),
        Err(status) => found.push(refused("forge", status, remedy)),
    }
    match ask::all_clusters(hub).await {
        Ok(known) => {
            let facts = HubFacts::new(version, certifier);
            found.extend(clusters::clusters(&known, facts, Timestamp::now()));
            if certifier == Certifier::OwnPki && !known.is_empty() {
                found.push(certificates::of_agents_elsewhere());
            }
        }
        Err(error) => found.push(Found::error("cluster", format!("{error:#}"), remedy)),
    }
    found
}

/// The door of the agents, at the address that is given or that the hub was told.
async fn agents_door(
    arguments: &CheckArgs,
    told: Option<&str>,
    tls: Option<&ClientTls>,
    certifier: Certifier,
) -> Vec<Found> {
    let given = arguments.agents_url.as_deref();
    let Some(url) = given.or(told.filter(|url| !url.is_empty())) else {
        return vec![addresses::not_told(told.is_some())];
    };
    let pinned = (!arguments.agents_ca_pin.is_empty())
        .then(|| ClientTls::pinned(&arguments.agents_ca_pin).ok())
        .flatten();
    let shut = |fault| vec![addresses::shut(Door::Agents, url, &fault, certifier)];
    let Some(tls) = pinned.as_ref().or(tls) else {
        let dialled = match Address::parse(url) {
            Ok(to) => handshake::dial(&to).await,
            Err(fault) => Err(fault),
        };
        return match dialled {
            Ok(()) => vec![addresses::unproven(url)],
            Err(fault) => shut(fault),
        };
    };
    match shake(url, tls, arguments.agents_server_name.clone()).await {
        Ok((to, shown)) => {
            let now = Timestamp::now();
            vec![
                addresses::open(Door::Agents, url),
                addresses::serving(Door::Agents, &to, shown, certifier, now),
            ]
        }
        Err(fault) => shut(fault),
    }
}

async fn shake(
    url: &str,
    tls: &ClientTls,
    server_name: Option<String>,
) -> Result<(Address, Validity), Fault> {
    let to = Address::parse(url)?;
    let shown = handshake::shake(&to, tls, server_name).await?;
    let shown = validity(&shown).map_err(|error| Fault::Tls(format!("{error:#}")))?;
    Ok((to, shown))
}

fn refused(check: &'static str, status: tonic::Status, remedy: &str) -> Found {
    Found::error(check, explain(status).to_string(), remedy)
}

async fn reach(way: &Way) -> Result<Hub, Found> {
    client::connect_to(way).await.map_err(|error| {
        let remedy = "kubectl -n nabu-system get pods shows whether the hub runs; nabuctl context list where it is looked for (nabu-hub \
            --listen-admin, --admin-socket)";
        Found::error("hub", format!("{error:#}"), remedy)
    })
}

/// Our certificate, and the authorities that we know.
fn credentials(way: &Way, caller: Option<&str>, certifier: Certifier) -> Vec<Found> {
    let folder = way.tls_dir.display().to_string();
    let now = Timestamp::now();
    let own = match super::read_certificate(&way.tls_dir.join("tls.crt")) {
        Ok(facts) => evaluate::certificate(&facts, caller, &folder, certifier, now),
        Err(error) => {
            let remedy = format!(
                "{}; or say where it is with --tls-dir",
                evaluate::issue(&folder, "NAME", certifier)
            );
            Found::error("certificate", format!("{error:#}"), remedy)
        }
    };
    let known: Vec<_> = CertificateDer::pem_file_iter(way.tls_dir.join("ca.crt"))
        .into_iter()
        .flatten()
        .filter_map(|read| validity(&read.ok()?).ok())
        .collect();
    let trusted = certificates::trusted(&folder, &known, certifier, now);
    std::iter::once(own).chain(trusted).collect()
}

fn validity(der: &CertificateDer<'_>) -> anyhow::Result<Validity> {
    let (_, certificate) = X509Certificate::from_der(der).context("it is no certificate")?;
    let validity = certificate.validity();
    let time = |at: x509_parser::time::ASN1Time| Timestamp::from_second(at.timestamp());
    Ok(Validity {
        from: time(validity.not_before)?,
        until: time(validity.not_after)?,
    })
}
