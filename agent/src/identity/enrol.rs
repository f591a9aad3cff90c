//! Asks the hub for the first certificate, with a join token, over a connection whose authority has the right pin.

use std::time::Duration;

use nabu_common::tls::Connector;
use nabu_proto::agent_v1::enrolment_service_client::EnrolmentServiceClient;
use nabu_proto::agent_v1::{EnrolRequest, EnrolResponse};
use secrecy::{ExposeSecret as _, SecretString};
use tonic::Code;
use tonic::transport::Endpoint;

/// How long it may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum EnrolError {
    /// The hub refuses the token.
    #[error("the hub refuses the join token: {0}")]
    Refused(String),
    /// Anything that may pass.
    #[error("cannot enrol: {0}")]
    Failed(String),
}

/// Sends the token, once the connection is checked.
pub(super) async fn enrol(
    endpoint: &Endpoint,
    connector: Connector,
    (cluster_id, token): (&str, &SecretString),
    csr_der: Vec<u8>,
) -> Result<EnrolResponse, EnrolError> {
    let asked = async {
        let channel = endpoint
            .connect_with_connector(connector)
            .await
            .map_err(|error| {
                let reason = crate::status::chain(&error);
                let hint = if reason.contains("UnknownIssuer") {
                    "; the hub's authority does not have the pin of --hub-ca-pin, and the token was not sent"
                } else {
                    ""
                };
                EnrolError::Failed(format!("{reason}{hint}"))
            })?;
        let request = EnrolRequest {
            token: token.expose_secret().to_owned(),
            cluster_id: cluster_id.to_owned(),
            csr_der: csr_der.into(),
        };
        let answer = EnrolmentServiceClient::new(channel).enrol(request).await;
        answer.map_err(|status| match status.code() {
            Code::PermissionDenied => EnrolError::Refused(status.message().to_owned()),
            Code::Unimplemented => EnrolError::Failed("the hub does not certify agents".to_owned()),
            code => EnrolError::Failed(format!("{code:?}: {}", status.message())),
        })
    };
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(answer) => Ok(answer?.into_inner()),
        Err(_) => Err(EnrolError::Failed(format!("no answer within {LIMIT:?}"))),
    }
}
