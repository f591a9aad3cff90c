//! The connection to the hub's admin API.

use std::time::Duration;

use anyhow::Context as _;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::context::{self, Way};
use super::{Connection, Failure};

/// How long connecting may take, and the beginning of each answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An answer may hold a whole change with its files.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

/// A connection to a hub.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    channel: Channel,
}

impl Hub {
    /// The connection itself.
    pub(super) fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Questions about clusters and responses.
    pub(super) fn clusters(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    /// Responses explained, watched and changed.
    pub(super) fn responses(&self) -> ResponseServiceClient<Channel> {
        ResponseServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }

    /// The hub itself.
    pub(super) fn operations(&self) -> OperationsServiceClient<Channel> {
        OperationsServiceClient::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER)
    }
}

/// Connects to the hub that a command line asks for.
pub(super) async fn connect(connection: &Connection) -> anyhow::Result<Hub> {
    connect_to(&context::way(connection)?).await
}

/// A connection for other services of the hub.
pub(super) async fn channel(connection: &Connection) -> anyhow::Result<Channel> {
    Ok(connect(connection).await?.channel)
}

/// Connects to a hub.
pub(super) async fn connect_to(way: &Way) -> anyhow::Result<Hub> {
    let hub = &way.hub;
    if hub.starts_with("unix:") {
        let channel = endpoint(hub)?.connect().await.with_context(|| {
            format!("cannot reach the hub's admin socket at {hub}; are you root or the hub's user?")
        });
        return Ok(Hub {
            channel: channel.map_err(Failure::unreachable)?,
        });
    }
    let tls = ClientTls::load(TlsFiles::in_folder(&way.tls_dir)).with_context(|| {
        format!(
            "--tls-dir {} needs an administrator's certificate",
            way.tls_dir.display()
        )
    })?;
    let channel = endpoint(hub)?
        .connect_with_connector(tls.connector(way.server_name.clone()))
        .await
        .with_context(|| {
            format!("cannot reach the hub's admin API at {hub}; check --hub and the certificates")
        });
    Ok(Hub {
        channel: channel.map_err(Failure::unreachable)?,
    })
}

fn endpoint(hub: &str) -> anyhow::Result<Endpoint> {
    let endpoint = Endpoint::from_shared(hub.to_owned()).with_context(|| {
        format!(
            "--hub {hub:?} is no URL; write for example https://nabu-hub:8444 or unix:/run/nabu/admin.sock"
        )
    })?;
    Ok(endpoint.connect_timeout(TIMEOUT).timeout(TIMEOUT))
}

/// A refusal in the hub's own words.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(super) fn explain(status: tonic::Status) -> anyhow::Error {
    let code = match status.code() {
        Code::PermissionDenied | Code::Unauthenticated => Failure::NOT_ALLOWED,
        Code::NotFound => Failure::NOT_FOUND,
        Code::FailedPrecondition => Failure::REFUSED,
        Code::Unavailable => Failure::UNREACHABLE,
        _ => Failure::FAILED,
    };
    anyhow::Error::new(Failure::new(code, status.message()))
}
