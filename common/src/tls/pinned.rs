//! Trust by pin: the server's chain must lead to an authority whose key we were told the digest of.
//!
//! For the one connection of an agent that has no certificate yet. The token that it carries leaves only after the
//! handshake, so a hub that is not certified by the pinned authority never sees it.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

use super::{CaPin, provider};

pub(super) fn config(pins: &[CaPin]) -> Result<ClientConfig, String> {
    let provider = provider();
    let verifier = PinnedAuthority {
        pins: pins.to_vec(),
        provider: Arc::clone(&provider),
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

#[derive(Debug)]
struct PinnedAuthority {
    pins: Vec<CaPin>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedAuthority {
    /// Takes the pinned certificate out of the chain as the only root, and leaves everything else (signatures, dates,
    /// usages, the name) to the usual verifier.
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut roots = RootCertStore::empty();
        for sent in intermediates {
            if CaPin::of_certificate(sent).is_some_and(|pin| self.pins.contains(&pin)) {
                roots.add(sent.clone().into_owned())?;
            }
        }
        if roots.is_empty() {
            return Err(CertificateError::UnknownIssuer.into());
        }
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&self.provider))
            .build()
            .map_err(|error| Error::General(error.to_string()))?
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            dss,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
