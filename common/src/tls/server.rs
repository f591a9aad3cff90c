//! The server's side: accepts, shakes hands beside each other, and says who each peer is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::ServerConfig;
use rustls::server::WebPkiClientVerifier;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::connection::{Heard, PeerIdentity, TlsConnection};
use super::crowd::{CrowdLimits, Doorway, Standing};
use super::shares::Shares;
use super::strangers::Strangers;
use super::{Material, Reloading, TlsCredentials, TlsError, TlsFiles, provider};
use crate::identity::{Identity, TrustDomain, identity_of_certificate, valid_until};

/// Connections that are shaken hands with and wait to be served.
const READY_CONNECTIONS: usize = 16;
/// How long to leave the listener alone after it failed, for example because no file descriptor is free.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

/// The server's side of mutual TLS; clones share the certificates.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<Reloading<Configs>>,
    domain: TrustDomain,
}

/// One set of certificates, for two kinds of doors.
struct Configs {
    /// Asks every peer for its certificate, and lets nobody in without.
    closed: Arc<ServerConfig>,
    /// Lets in who shows no certificate; one that is shown must be good.
    open: Arc<ServerConfig>,
}

/// Who has shaken hands.
enum Arrival {
    Peer(TlsStream<TcpStream>, PeerIdentity),
    Stranger(TlsStream<TcpStream>),
}

impl ServerTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used; the text names it.
    pub fn load(files: TlsFiles, domain: TrustDomain) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(Reloading::load(files, build)?),
            domain,
        })
    }

    /// Takes certificates from memory.
    ///
    /// # Errors
    /// If they do not fit together.
    pub fn hold(credentials: TlsCredentials, domain: TrustDomain) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(Reloading::hold(credentials, build)?),
            domain,
        })
    }

    /// Uses other certificates from the next connection on.
    ///
    /// # Errors
    /// If they do not fit together; the present ones stay.
    pub fn replace(&self, credentials: TlsCredentials) -> Result<(), TlsError> {
        self.config.replace(credentials)
    }

    /// Reads the files again whenever they change, until `shutdown`.
    pub async fn keep_fresh(self, shutdown: CancellationToken) {
        self.config.keep_fresh(shutdown).await;
    }

    /// Reads the files again now; `true` if they had changed.
    ///
    /// # Errors
    /// If they cannot be used; the last good ones stay.
    pub fn reload(&self) -> Result<bool, TlsError> {
        self.config.reload()
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        remote_addr: SocketAddr,
        strangers: bool,
    ) -> io::Result<Arrival> {
        stream.set_nodelay(true)?;
        let configs = self.config.config();
        let config = if strangers {
            &configs.open
        } else {
            &configs.closed
        };
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        let stream = acceptor.accept(stream).await?;
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(|chain| chain.first());
        let Some(certificate) = certificate else {
            return if strangers {
                Ok(Arrival::Stranger(stream))
            } else {
                Err(io::Error::other("the peer sent no certificate"))
            };
        };
        let identity =
            identity_of_certificate(certificate, &self.domain).map_err(io::Error::other)?;
        let not_after = valid_until(certificate).map_err(io::Error::other)?;
        let fingerprint = hex::encode(Sha256::digest(certificate));
        let peer = PeerIdentity {
            identity,
            fingerprint,
            not_after,
            remote_addr,
            heard: Heard::default(),
        };
        Ok(Arrival::Peer(stream, peer))
    }
}

fn build(material: Material) -> Result<Configs, String> {
    let roots = Arc::new(material.roots);
    let config = |strangers: bool| {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let verifier = if strangers {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        let verifier = verifier.build().map_err(|error| error.to_string())?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_single_cert(material.chain.clone(), material.key.clone_key())
            .map_err(|error| error.to_string())?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        // Sessions live for days: a ticket would save nothing, and would outlive a revoked certificate.
        config.send_tls13_tickets = 0;
        Ok::<_, String>(Arc::new(config))
    };
    Ok(Configs {
        closed: config(false)?,
        open: config(true)?,
    })
}

/// Bounds on what peers may take before they do anything.
#[derive(Clone, Copy, Debug)]
pub struct IncomingLimits {
    /// Handshakes that may be under way at one time.
    pub handshakes: CrowdLimits,
    /// How long one may take.
    pub timeout: Duration,
    /// How long a peer may take for its first request.
    pub first_request: Duration,
    /// Connections that may be open of one identity.
    pub from_one_peer: usize,
}

impl Default for IncomingLimits {
    fn default() -> Self {
        Self {
            handshakes: CrowdLimits {
                all: 1024,
                from_one_address: 256,
            },
            timeout: Duration::from_secs(10),
            first_request: Duration::from_secs(10),
            from_one_peer: 128,
        }
    }
}

/// Verified connections of a listener, until `shutdown`. A slow or silent handshake holds up nobody.
pub fn incoming(
    listener: TcpListener,
    tls: ServerTls,
    limits: IncomingLimits,
    shutdown: CancellationToken,
) -> ReceiverStream<io::Result<TlsConnection>> {
    accept(listener, tls, limits, None, shutdown)
}

/// The same; peers without a certificate go to `strangers`, if there is such a place.
pub(super) fn accept(
    listener: TcpListener,
    tls: ServerTls,
    limits: IncomingLimits,
    strangers: Option<Strangers>,
    shutdown: CancellationToken,
) -> ReceiverStream<io::Result<TlsConnection>> {
    let (ready, connections) = mpsc::channel(READY_CONNECTIONS);
    let door = Door {
        tls,
        limits,
        strangers,
        peers: Shares::new(limits.from_one_peer),
        ready,
    };
    tokio::spawn(async move {
        let accepting = accept_all(&listener, &door);
        let _ = shutdown.run_until_cancelled(accepting).await;
    });
    ReceiverStream::new(connections)
}

async fn accept_all(listener: &TcpListener, door: &Door) {
    let doorway = Doorway::new(door.limits.handshakes);
    loop {
        let (stream, remote_addr) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
                continue;
            }
        };
        let Some(standing) = doorway.enter(remote_addr.ip()).await else {
            debug!(%remote_addr, "too many TLS handshakes from one address");
            continue;
        };
        tokio::spawn(door.clone().pass(stream, remote_addr, standing));
    }
}

/// What every newcomer passes.
#[derive(Clone)]
struct Door {
    tls: ServerTls,
    limits: IncomingLimits,
    strangers: Option<Strangers>,
    peers: Shares<Identity>,
    ready: mpsc::Sender<io::Result<TlsConnection>>,
}

impl Door {
    async fn pass(self, stream: TcpStream, remote_addr: SocketAddr, standing: Standing) {
        let handshake = self
            .tls
            .handshake(stream, remote_addr, self.strangers.is_some());
        let handshake = tokio::time::timeout(self.limits.timeout, handshake);
        let arrival = tokio::select! {
            biased;
            arrival = handshake => arrival,
            () = standing.gives_way() => {
                debug!(%remote_addr, "a TLS handshake gives way to others");
                return;
            }
        };
        drop(standing);
        match arrival {
            Ok(Ok(Arrival::Peer(stream, peer))) => self.let_in(stream, peer).await,
            Ok(Ok(Arrival::Stranger(stream))) => {
                if let Some(strangers) = &self.strangers {
                    strangers.admit(stream, remote_addr);
                }
            }
            Ok(Err(error)) => warn!(%remote_addr, %error, "refused a connection"),
            Err(_) => debug!(%remote_addr, "a TLS handshake took too long"),
        }
    }

    async fn let_in(&self, stream: TlsStream<TcpStream>, peer: PeerIdentity) {
        let Some(share) = self.peers.take(peer.identity.clone()) else {
            warn!(peer = %peer.identity, remote_addr = %peer.remote_addr, "too many connections of one peer");
            return;
        };
        let first_request = self.limits.first_request;
        let connection = TlsConnection::new(stream, peer, first_request, share);
        let _ = self.ready.send(Ok(connection)).await;
    }
}
