//! The servers of the admin API: the port with mutual TLS, and the Unix socket, with the same services behind both.

use std::sync::Arc;

use anyhow::Context as _;
use nabu_common::tls::{IncomingLimits, Refusals, ServerTls, incoming};
use nabu_proto::admin_v1::admin_service_server::AdminServiceServer;
use nabu_proto::admin_v1::administrator_service_server::AdministratorServiceServer;
use nabu_proto::admin_v1::authority_service_server::AuthorityServiceServer;
use nabu_proto::admin_v1::cluster_service_server::ClusterServiceServer;
use nabu_proto::admin_v1::operations_service_server::OperationsServiceServer;
use nabu_proto::admin_v1::response_service_server::ResponseServiceServer;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::Admin;
use super::administrators::Administrators;
use super::authority::AuthorityAdmin;
use super::clusters::Clusters;
use super::guard::Guard;
use super::local::LocalListener;
use crate::run::server;

/// Where administrators come in.
pub struct Doors {
    /// For certificates.
    pub port: TcpListener,
    /// For the machine's own operator.
    pub socket: Option<LocalListener>,
}

/// What is served to administrators.
pub struct Services {
    /// Questions and orders.
    pub admin: Admin,
    /// Identities of clusters.
    pub clusters: Clusters,
    /// Who may call.
    pub administrators: Administrators,
    /// The hub's own authority, if it has one.
    pub authority: Option<AuthorityAdmin>,
}

/// Serves until `shutdown`.
///
/// # Errors
/// If a server fails.
pub async fn serve(
    doors: Doors,
    (tls, refusals): (ServerTls, Refusals),
    guard: Guard,
    services: Services,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let routes = routes(services).await?;
    let limits = IncomingLimits::default();
    let connections = incoming(doors.port, tls, limits, refusals, shutdown.clone());
    let port = server()
        .layer(guard.clone())
        .add_routes(routes.clone())
        .serve_with_incoming_shutdown(connections, shutdown.clone().cancelled_owned());
    let socket = async {
        let Some(listener) = doors.socket else {
            return Ok(());
        };
        server()
            .layer(guard)
            .add_routes(routes)
            .serve_with_incoming_shutdown(listener.incoming(), shutdown.cancelled_owned())
            .await
    };
    tokio::try_join!(port, socket)
        .map(drop)
        .context("the server for administrators failed")
}

async fn routes(services: Services) -> anyhow::Result<Routes> {
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<AdminServiceServer<Admin>>().await;
    reporter.set_serving::<ResponseServiceServer<Admin>>().await;
    reporter
        .set_serving::<OperationsServiceServer<Admin>>()
        .await;
    reporter
        .set_serving::<ClusterServiceServer<Clusters>>()
        .await;
    reporter
        .set_serving::<AdministratorServiceServer<Administrators>>()
        .await;
    if services.authority.is_some() {
        reporter
            .set_serving::<AuthorityServiceServer<AuthorityAdmin>>()
            .await;
    }
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(nabu_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // So that clients can read the details of errors.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .context("cannot describe the admin API")?;
    let admin = Arc::new(services.admin);
    let routes = Routes::new(AdminServiceServer::from_arc(Arc::clone(&admin)))
        .add_service(ResponseServiceServer::from_arc(Arc::clone(&admin)))
        .add_service(OperationsServiceServer::from_arc(admin))
        .add_service(ClusterServiceServer::new(services.clusters))
        .add_service(AdministratorServiceServer::new(services.administrators))
        .add_service(health)
        .add_service(reflection);
    Ok(match services.authority {
        Some(authority) => routes.add_service(AuthorityServiceServer::new(authority)),
        None => routes,
    })
}
