//! The agents' door, and what guards both doors: certificates from files or from the hub's own authority.
//!
//! Peers with a certificate get the gateway, and peers without one, if the hub certifies, a server of their own that does
//! nothing but enrolment.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nabu_common::tls::{
    IncomingLimits, RefusalMetrics, Refusals, ServerTls, StrangerLimits, TlsFiles, incoming,
    incoming_with_strangers,
};
use nabu_proto::agent_v1::agent_service_server::AgentServiceServer;
use nabu_proto::agent_v1::enrolment_service_server::EnrolmentServiceServer;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tracing::info;

use crate::admin::AgentFacts;
use crate::admin::authority::AuthorityAdmin;
use crate::admin::clusters::Clusters;
use crate::authority::HubAuthority;
use crate::config::Config;
use crate::enrolment::Enrolment;
use crate::enrolment::metrics::EnrolmentMetrics;
use crate::execute::Dispatcher;
use crate::gateway::{Gateway, Identities};
use crate::run::server;
use crate::store::SharedStore;
use crate::store::identity::{ENDED_AT_ONCE, SharedIdentities};

/// What a frame needs beside its content on the wire.
const FRAME_MARGIN: usize = 1024;
/// No message of enrolment is larger.
const ENROLMENT_MESSAGE: usize = 32 * 1024;
/// What a peer without a certificate may send before it is read.
const ENROLMENT_WINDOW: u32 = 64 * 1024;
/// How long an enrolment may take.
const ENROLMENT_TIME: Duration = Duration::from_secs(10);
/// Streams that a peer may have open.
const STREAMS: u32 = 4;

/// Certificates, and who asks for them.
pub(crate) struct Door {
    tls: ServerTls,
    authority: Option<Arc<HubAuthority>>,
    store: SharedStore,
    identities: SharedIdentities,
    metrics: EnrolmentMetrics,
    refusals: RefusalMetrics,
    agents_url: String,
}

impl Door {
    /// Makes ready what the flags say.
    ///
    /// # Errors
    /// If files or the authority cannot be used.
    pub(crate) async fn open(
        config: &Config,
        identities: SharedIdentities,
        store: &SharedStore,
        registry: &mut Registry,
    ) -> anyhow::Result<Self> {
        let mut left = 0;
        loop {
            let ended = identities.finish_removals(ENDED_AT_ONCE).await?;
            if ended.is_empty() {
                break;
            }
            left += ended.len();
        }
        if left > 0 {
            info!(left, "responses of clusters that were removed are ended");
        }
        let authority = HubAuthority::open(
            &config.authority,
            &config.server_names,
            config.agent_certificate_lifetime,
            Arc::clone(&identities),
        )
        .await?;
        let tls = if let Some(authority) = &authority {
            authority.tls()
        } else {
            let names = config.names().map_err(anyhow::Error::msg)?;
            ServerTls::load(files(config), names)?
        };
        Ok(Self {
            tls,
            authority,
            store: Arc::clone(store),
            identities,
            metrics: EnrolmentMetrics::register(registry),
            refusals: RefusalMetrics::register(registry, "nabu_hub_connections_refused"),
            agents_url: config.agents_url(),
        })
    }

    pub(crate) fn tls(&self) -> ServerTls {
        self.tls.clone()
    }

    /// Who is turned away at one of the hub's doors.
    pub(crate) fn refusals(&self, door: &'static str) -> Refusals {
        self.refusals.at(door)
    }

    pub(crate) fn identities(&self) -> Identities {
        Identities {
            store: Arc::clone(&self.identities),
            authority: self.authority.clone(),
            metrics: self.metrics.clone(),
        }
    }

    /// What administrators are told of it.
    pub(crate) fn agent_facts(&self) -> AgentFacts {
        AgentFacts {
            url: self.agents_url.clone(),
            certificate_lifetime: self.authority.as_ref().map(|own| own.agent_lifetime()),
        }
    }

    /// The services about identities that administrators use.
    pub(crate) fn admin_services(
        &self,
        store: &SharedStore,
        gateway: &Gateway,
        dispatcher: &Dispatcher,
    ) -> (Clusters, Option<AuthorityAdmin>) {
        let clusters = Clusters {
            store: Arc::clone(store),
            identities: Arc::clone(&self.identities),
            authority: self.authority.clone(),
            gateway: gateway.clone(),
            dispatcher: dispatcher.clone(),
            agents_url: self.agents_url.clone(),
        };
        let authority = self
            .authority
            .clone()
            .map(|authority| AuthorityAdmin::new(authority, Arc::clone(&self.identities)));
        (clusters, authority)
    }

    /// Starts what keeps certificates and revocations up to date.
    pub(crate) fn keep_fresh(
        &self,
        tasks: &TaskTracker,
        gateway: &Gateway,
        shutdown: &CancellationToken,
    ) {
        tasks.spawn(self.tls.clone().keep_fresh(shutdown.clone()));
        tasks.spawn(gateway.clone().enforce_revocations(shutdown.clone()));
        tasks.spawn(gateway.clone().enforce_trust(shutdown.clone()));
        if let Some(authority) = &self.authority {
            tasks.spawn(Arc::clone(authority).keep_fresh(shutdown.clone()));
        }
    }

    /// Serves agents until `shutdown`.
    pub(crate) fn serve_agents(
        &self,
        listener: TcpListener,
        gateway: Gateway,
        shutdown: CancellationToken,
    ) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let limit = nabu_proto::MAX_FRAME_BYTES + FRAME_MARGIN;
        let service = AgentServiceServer::new(gateway)
            .max_decoding_message_size(limit)
            .max_encoding_message_size(limit);
        let agents = server()
            .max_concurrent_streams(Some(STREAMS))
            .add_service(service);
        let enrolment = self.authority.clone().map(|authority| {
            Enrolment::new(
                authority,
                Arc::clone(&self.identities),
                Arc::clone(&self.store),
                self.metrics.clone(),
            )
        });
        let tls = self.tls.clone();
        let refusals = self.refusals("agents");
        let failed = "the server for agents failed";
        async move {
            let limits = IncomingLimits::default();
            let end = shutdown.clone().cancelled_owned();
            let Some(enrolment) = enrolment else {
                let connections = incoming(listener, tls, limits, refusals, shutdown);
                let served = agents.serve_with_incoming_shutdown(connections, end);
                return served.await.context(failed);
            };
            let (peers, strangers) = incoming_with_strangers(
                listener,
                tls,
                limits,
                StrangerLimits::default(),
                refusals,
                shutdown.clone(),
            );
            let enrolment = EnrolmentServiceServer::new(enrolment)
                .max_decoding_message_size(ENROLMENT_MESSAGE)
                .max_encoding_message_size(ENROLMENT_MESSAGE);
            let enrolment = Server::builder()
                .max_concurrent_streams(Some(STREAMS))
                .concurrency_limit_per_connection(STREAMS as usize)
                .initial_connection_window_size(Some(ENROLMENT_WINDOW))
                .initial_stream_window_size(Some(ENROLMENT_WINDOW))
                .timeout(ENROLMENT_TIME)
                .add_service(enrolment);
            tokio::try_join!(
                agents.serve_with_incoming_shutdown(peers, end),
                enrolment.serve_with_incoming_shutdown(strangers, shutdown.cancelled_owned()),
            )
            .map(drop)
            .context(failed)
        }
    }
}

fn files(config: &Config) -> TlsFiles {
    TlsFiles {
        ca: config.tls_ca.clone(),
        cert: config.tls_cert.clone(),
        key: config.tls_key.clone(),
    }
}
