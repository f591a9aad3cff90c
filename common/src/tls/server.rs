//! The server's side: accepts, shakes hands beside each other, and says who each peer is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::UnixTime;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::connection::{Heard, PeerIdentity, Shown, TlsConnection};
use super::crowd::{CrowdLimits, Doorway, Standing};
use super::refusals::{Refusal, Refusals};
use super::shares::Shares;
use super::strangers::Strangers;
use super::{Material, Reloading, TlsCredentials, TlsError, TlsFiles, provider};
use crate::identity::valid_until;
use crate::san::Names;

/// Connections that are shaken hands with and wait to be served.
const READY_CONNECTIONS: usize = 16;
/// How long to leave the listener alone after it failed, for example because no file descriptor is free.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);

static GENERATIONS: AtomicU64 = AtomicU64::new(1);

/// The server's side of mutual TLS; clones share the certificates.
#[derive(Clone)]
pub struct ServerTls {
    config: Arc<Reloading<Configs>>,
    names: Arc<Names>,
}

/// One set of certificates, for two kinds of doors.
struct Configs {
    /// Asks every peer for its certificate, and lets nobody in without.
    closed: Arc<ServerConfig>,
    /// Lets in who shows no certificate; one that is shown must be good.
    open: Arc<ServerConfig>,
    /// Whom both trust.
    verifier: Arc<dyn ClientCertVerifier>,
    /// No other set of certificates has this number.
    generation: u64,
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
    pub fn load(files: TlsFiles, names: impl Into<Names>) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(Reloading::load(files, build)?),
            names: Arc::new(names.into()),
        })
    }

    /// Takes certificates from memory.
    ///
    /// # Errors
    /// If they do not fit together.
    pub fn hold(credentials: TlsCredentials, names: impl Into<Names>) -> Result<Self, TlsError> {
        Ok(Self {
            config: Arc::new(Reloading::hold(credentials, build)?),
            names: Arc::new(names.into()),
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

    /// Whether nobody has changed the certificates since a peer was found good.
    pub fn knows(&self, peer: &PeerIdentity) -> bool {
        peer.shown.is_of(self.config.config().generation)
    }

    /// Whether a peer that has shaken hands would get through again: its certificate is still one of an authority that
    /// is trusted now, and has not run out. Costs nothing as long as nobody changed the certificates.
    pub fn trusts(&self, peer: &PeerIdentity) -> bool {
        let configs = self.config.config();
        peer.shown.is_of(configs.generation)
            || peer.shown.chain().split_first().is_some_and(|(own, rest)| {
                let now = UnixTime::now();
                let trusted = configs.verifier.verify_client_cert(own, rest, now).is_ok();
                if trusted {
                    peer.shown.note(configs.generation);
                }
                trusted
            })
    }

    async fn handshake(
        &self,
        stream: TcpStream,
        remote_addr: SocketAddr,
        strangers: bool,
    ) -> Result<Arrival, (Refusal, io::Error)> {
        let failed = |error| (Refusal::of_handshake(&error), error);
        stream.set_nodelay(true).map_err(failed)?;
        let configs = self.config.config();
        let config = if strangers {
            &configs.open
        } else {
            &configs.closed
        };
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        let stream = acceptor.accept(stream).await.map_err(failed)?;
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let Some(certificate) = chain.first() else {
            return if strangers {
                Ok(Arrival::Stranger(stream))
            } else {
                let error = io::Error::other("the peer sent no certificate");
                Err((Refusal::NoCertificate, error))
            };
        };
        let identity = self
            .names
            .identity_of(certificate)
            .map_err(|error| (Refusal::WrongName, io::Error::other(error)))?;
        let not_after = valid_until(certificate)
            .map_err(|error| (Refusal::BadCertificate, io::Error::other(error)))?;
        let fingerprint = hex::encode(Sha256::digest(certificate));
        let peer = PeerIdentity {
            identity,
            fingerprint,
            not_after,
            remote_addr,
            heard: Heard::default(),
            shown: Shown::new(chain, configs.generation),
        };
        Ok(Arrival::Peer(stream, peer))
    }
}

fn build(material: Material) -> Result<Configs, String> {
    let roots = Arc::new(material.roots);
    let verifier = |strangers: bool| {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), provider());
        let verifier = if strangers {
            verifier.allow_unauthenticated()
        } else {
            verifier
        };
        verifier.build().map_err(|error| error.to_string())
    };
    let config = |verifier: Arc<dyn ClientCertVerifier>| {
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
    let closed = verifier(false)?;
    Ok(Configs {
        closed: config(Arc::clone(&closed))?,
        open: config(verifier(true)?)?,
        verifier: closed,
        generation: GENERATIONS.fetch_add(1, Ordering::Relaxed),
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
    refusals: Refusals,
    shutdown: CancellationToken,
) -> ReceiverStream<io::Result<TlsConnection>> {
    accept(listener, tls, limits, None, refusals, shutdown)
}

/// The same; peers without a certificate go to `strangers`, if there is such a place.
pub(super) fn accept(
    listener: TcpListener,
    tls: ServerTls,
    limits: IncomingLimits,
    strangers: Option<Strangers>,
    refusals: Refusals,
    shutdown: CancellationToken,
) -> ReceiverStream<io::Result<TlsConnection>> {
    let (ready, connections) = mpsc::channel(READY_CONNECTIONS);
    let door = Door {
        tls,
        limits,
        strangers,
        refusals,
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
            let detail = "too many TLS handshakes from one address";
            door.refusals
                .refuse(Refusal::AddressShare, remote_addr, detail);
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
    refusals: Refusals,
    peers: Shares<String>,
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
                let detail = "a TLS handshake gives way to others";
                self.refusals.refuse(Refusal::GaveWay, remote_addr, detail);
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
            Ok(Err((reason, error))) => self.refusals.refuse(reason, remote_addr, error),
            Err(_) => {
                let detail = "a TLS handshake took too long";
                self.refusals.refuse(Refusal::TimedOut, remote_addr, detail);
            }
        }
    }

    async fn let_in(&self, stream: TlsStream<TcpStream>, peer: PeerIdentity) {
        let Some(share) = self.peers.take(peer.fingerprint.clone()) else {
            let detail = format!("too many connections of {}", peer.identity);
            self.refusals
                .refuse(Refusal::PeerShare, peer.remote_addr, detail);
            return;
        };
        let first_request = self.limits.first_request;
        let refusals = self.refusals.clone();
        let connection = TlsConnection::new(stream, peer, first_request, refusals, share);
        let _ = self.ready.send(Ok(connection)).await;
    }
}
