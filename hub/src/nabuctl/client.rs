//! The connection to the hub's admin API.

use std::time::Duration;

use anyhow::Context as _;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use tonic::transport::{Channel, Endpoint};

use super::Connection;

/// How long connecting, and each answer, may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// An answer may hold a whole change with its files.
const MAX_ANSWER: usize = 32 * 1024 * 1024;

pub(super) async fn connect(
    connection: &Connection,
) -> anyhow::Result<AdminServiceClient<Channel>> {
    let hub = &connection.hub;
    if hub.starts_with("unix:") {
        let channel = endpoint(hub)?.connect().await.with_context(|| {
            format!("cannot reach the hub's admin socket at {hub}; are you root or the hub's user?")
        })?;
        return Ok(AdminServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER));
    }
    let tls = ClientTls::load(TlsFiles::in_folder(&connection.tls_dir)).with_context(|| {
        format!(
            "--tls-dir {} needs an administrator's certificate",
            connection.tls_dir.display()
        )
    })?;
    let channel = endpoint(hub)?
        .connect_with_connector(tls.connector(connection.server_name.clone()))
        .await
        .with_context(|| {
            format!("cannot reach the hub's admin API at {hub}; check --hub and the certificates")
        })?;
    Ok(AdminServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER))
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
    anyhow::anyhow!("{}", status.message())
}
