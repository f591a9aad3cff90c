//! Owns the start and the end of the process: reads files, finds the API server, takes part in the election, serves.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use nabu_common::build;
use nabu_common::identity::Identity;
use nabu_common::ops::{self, Health};
use nabu_common::san::Names;
use nabu_common::tls::{ClientTls, install_crypto_provider};
use prometheus_client::registry::Registry;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::config::{Config, OwnIdentity};
use crate::identity::{Identity as Shown, Keeper, Notice, Place, Token};
use crate::inventory::Settings;
use crate::leader::Election;
use crate::metrics::Metrics;
use crate::serve::{Context, serve};
use crate::session::Introduction;

/// How long the API server may be unreachable at the start.
const API_SERVER_WAIT: Duration = Duration::from_secs(10);
/// How long to wait between two tries to reach it.
const API_SERVER_PAUSE: Duration = Duration::from_millis(250);
/// How long the last answers on the health and metrics listener may take.
const LAST_ANSWERS: Duration = Duration::from_secs(1);
/// Objects that are read, or wait in the session's queue, at one time.
const SLOTS: usize = 32;
/// JSON that is kept so that it need not be read again.
const KEPT_BYTES: usize = 4 * 1024 * 1024;
/// Receive windows of the session: what the hub may have on the way to us.
const WINDOW: u32 = 256 * 1024;

/// Serves until `shutdown`; health and metrics go to `listener`.
///
/// # Errors
/// If a file cannot be used, or the API server cannot be reached at the start.
pub async fn run(
    config: Config,
    shutdown: CancellationToken,
    listener: TcpListener,
) -> anyhow::Result<()> {
    install_crypto_provider();
    let mut registry = Registry::default();
    ops::register_process_metrics(&mut registry, "nabu_agent");
    let metrics = Arc::new(Metrics::new(&mut registry));
    let health = Health::default();
    let leader_check = health.check("leader");
    let (watch_check, session_check) = (health.check("watch"), health.check("session"));
    let own_identity = config.own_identity().map_err(anyhow::Error::msg)?;
    let files = tls_files(&config, own_identity.as_ref())?;
    let own_end = shutdown.child_token();
    // Whatever way this function is left, what it started ends.
    let _end = own_end.clone().drop_guard();
    let ops = tokio::spawn(ops::serve(
        listener,
        health,
        Arc::new(registry),
        own_end.clone(),
    ));
    if let Some(tls) = files.clone() {
        tokio::spawn(tls.keep_fresh(own_end.clone()));
    }

    let Some(found) = shutdown.run_until_cancelled(find_api_server()).await else {
        return Ok(());
    };
    let (client, kubernetes_version) = found?;
    let read = shutdown.run_until_cancelled(kube_system_uid(&client));
    let Some(kube_system_uid) = read.await else {
        return Ok(());
    };
    let context = Context {
        endpoint: endpoint(&config)?,
        identity: shown(&config, files, own_identity, &client, &metrics)?,
        introduction: Introduction {
            kube_system_uid,
            kubernetes_version,
            responders: config.responders.clone(),
            cluster_name: config.cluster_name.clone(),
            cluster_id: config.cluster_id.to_string(),
        },
        inventory: Settings {
            slots: SLOTS,
            kept_bytes: KEPT_BYTES,
            security_event_wait: config.security_event_wait,
            resync: config.resync,
        },
        client: client.clone(),
        metrics: Arc::clone(&metrics),
        watch_check: watch_check.clone(),
        session_check: session_check.clone(),
    };
    tracing::info!(
        cluster = %config.cluster_id, hub = %config.hub, responders = ?config.responders, version = build::VERSION, commit = build::COMMIT,
        "nabu-agent serves"
    );
    if config.leader_elect {
        let election = Election::new(
            client,
            config.leader_elect_namespace.clone(),
            config.leader_elect_lease.clone(),
        );
        loop {
            metrics.leader.set(0);
            // A standby has nothing to watch; that it stands by, the election says.
            for check in [&watch_check, &session_check] {
                check.set_ready();
            }
            let Some(term) = election.win(&leader_check, &shutdown).await else {
                break;
            };
            metrics.leader.set(1);
            for check in [&watch_check, &session_check] {
                check.set_unready("just became active");
            }
            let term_end = shutdown.child_token();
            let mut active = tokio::spawn(serve(context.clone(), term_end.clone()));
            tokio::select! {
                // At the shutdown everything ends at one time, and whoever serves only because of it.
                biased;
                () = shutdown.cancelled() => {}
                () = term.end() => term_end.cancel(),
                ended = &mut active => bail!("the agent stopped serving: {ended:?}"),
            }
            active.await.context("the agent stopped serving")?;
            term.release().await;
        }
    } else {
        leader_check.set_ready();
        metrics.leader.set(1);
        serve(context, shutdown).await;
    }
    own_end.cancel();
    // Somebody who asked and does not read the answer must not keep the process.
    match tokio::time::timeout(LAST_ANSWERS, ops).await {
        Ok(ended) => ended
            .context("the health and metrics server stopped")?
            .context("the health and metrics server failed"),
        Err(_) => Ok(()),
    }
}

/// What others have made for us; `None` if the agent keeps an identity of its own.
fn tls_files(config: &Config, own: Option<&OwnIdentity>) -> anyhow::Result<Option<ClientTls>> {
    if own.is_some() {
        return Ok(None);
    }
    let tls = ClientTls::load(config.tls_files())?;
    check_certificate(config)?;
    Ok(Some(tls))
}

/// What the hub is shown.
fn shown(
    config: &Config,
    files: Option<ClientTls>,
    own: Option<OwnIdentity>,
    client: &Client,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Shown> {
    let Some(tls) = files else {
        let keeper = keeper(config, own, client, metrics)?;
        return Ok(Shown::Own(Arc::new(keeper)));
    };
    let connector = tls.connector(config.hub_server_name.clone());
    Ok(Shown::Files(connector.through(config.hub_proxy.clone())))
}

fn keeper(
    config: &Config,
    own: Option<OwnIdentity>,
    client: &Client,
    metrics: &Arc<Metrics>,
) -> anyhow::Result<Keeper> {
    let token = match (&config.join_token_file, &config.join_token) {
        (Some(path), _) => Token::File(path.clone()),
        (None, Some(token)) => Token::Given(token.clone()),
        (None, None) => Token::None,
    };
    Ok(Keeper {
        cluster_id: config.cluster_id.to_string(),
        endpoint: endpoint(config)?,
        server_name: config.hub_server_name.clone(),
        proxy: config.hub_proxy.clone(),
        pins: config.hub_ca_pins.clone(),
        token,
        place: match own.context("no place for the agent's identity is given")? {
            OwnIdentity::Folder(folder) => Place::Folder(folder),
            OwnIdentity::Secret(name) => Place::Secret {
                api: Box::new(Api::default_namespaced(client.clone())),
                name,
            },
        },
        metrics: Arc::clone(metrics),
        notice: Notice::of_pod(client, metrics),
        state: tokio::sync::Mutex::default(),
    })
}

/// A certificate of another cluster would only be noticed by the hub.
fn check_certificate(config: &Config) -> anyhow::Result<()> {
    let path = config.tls_cert.display();
    let certificate = CertificateDer::from_pem_file(&config.tls_cert)
        .with_context(|| format!("cannot read {path}"))?;
    let domain = &config.trust_domain;
    let names = Names::new(domain.clone(), config.cluster_san.as_ref(), None);
    let identity = names
        .map_err(anyhow::Error::msg)?
        .identity_of(&certificate)
        .with_context(|| format!("{path} is no agent certificate of trust domain {domain}"))?;
    match identity {
        Identity::Cluster(id) if id == config.cluster_id => Ok(()),
        other => bail!(
            "{path} is for {}, but --cluster-id is {}; use this cluster's certificate, or correct --cluster-id",
            other,
            config.cluster_id
        ),
    }
}

fn endpoint(config: &Config) -> anyhow::Result<Endpoint> {
    // TLS is the connector's: tonic would ask for its own if the scheme said https.
    let authority = config.hub.authority().context("--hub names no host")?;
    let port = if authority.port().is_none() {
        ":443"
    } else {
        ""
    };
    let endpoint = Endpoint::from_shared(format!("http://{authority}{port}"))
        .context("--hub is no address")?;
    Ok(endpoint
        .connect_timeout(Duration::from_secs(10))
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW))
}

/// A client for the API server of `KUBECONFIG` or of the pod, and the server's version.
async fn find_api_server() -> anyhow::Result<(Client, String)> {
    let mut config = kube::Config::infer()
        .await
        .context("cannot find a Kubernetes API server; set KUBECONFIG, or run in a pod with a service account")?;
    // Its own retries would hold a status back that is no longer the newest.
    config.default_retry = false;
    config.connect_timeout = Some(Duration::from_secs(5));
    let url = config.cluster_url.clone();
    let remedy = "check KUBECONFIG or the pod's service account, and that the API server runs";
    let client = Client::try_from(config)
        .with_context(|| format!("cannot use the Kubernetes API server {url}; {remedy}"))?;
    let deadline = tokio::time::Instant::now() + API_SERVER_WAIT;
    loop {
        let asked = tokio::time::timeout_at(deadline, client.apiserver_version()).await;
        let reason = match asked {
            Ok(Ok(version)) => return Ok((client, version.git_version)),
            // Forbidden: it is there, it just does not tell.
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => {
                return Ok((client, String::new()));
            }
            Ok(Err(error)) => crate::status::chain(&error),
            Err(_) => "no answer".to_owned(),
        };
        if tokio::time::Instant::now() + API_SERVER_PAUSE >= deadline {
            bail!(
                "cannot reach the Kubernetes API server {url} within {API_SERVER_WAIT:?}: {reason}; {remedy}"
            );
        }
        tokio::time::sleep(API_SERVER_PAUSE).await;
    }
}

/// Empty if it cannot be read: the hub then cannot tell two clusters with one id apart, and says so.
async fn kube_system_uid(client: &Client) -> String {
    let api = Api::<Namespace>::all(client.clone());
    let deadline = tokio::time::Instant::now() + API_SERVER_WAIT;
    loop {
        let reason = match tokio::time::timeout_at(deadline, api.get_metadata("kube-system")).await
        {
            Ok(Ok(namespace)) => return namespace.metadata.uid.unwrap_or_default(),
            Ok(Err(error)) => {
                let final_answer = matches!(&error, kube::Error::Api(status) if status.code == 403);
                let reason = crate::status::chain(&error);
                // An API server that just started makes its namespaces a moment later.
                if !final_answer && tokio::time::Instant::now() + API_SERVER_PAUSE < deadline {
                    tokio::time::sleep(API_SERVER_PAUSE).await;
                    continue;
                }
                reason
            }
            Err(_) => "no answer".to_owned(),
        };
        tracing::warn!(
            reason,
            "cannot read the namespace kube-system; allow it, so that the hub can tell clusters apart"
        );
        return String::new();
    }
}
