//! A connection of a peer that has shown who it is, and for how long it may say nothing.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use super::refusals::{Refusal, Refusals};
use super::shares::Share;
use crate::identity::Identity;

/// Who is at the other end; a request extension in tonic services.
#[derive(Clone, Debug)]
pub struct PeerIdentity {
    /// From the verified certificate.
    pub identity: Identity,
    /// SHA-256 of the certificate, in hex.
    pub fingerprint: String,
    /// When the certificate runs out.
    pub not_after: SystemTime,
    /// Where the connection comes from.
    pub remote_addr: SocketAddr,
    /// Whether the connection has carried a request.
    pub heard: Heard,
    /// The certificates that the peer has shown.
    pub shown: Shown,
}

/// The certificates that a peer has shown, and by which set of authorities they were last found good; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<ShownChain>);

#[derive(Debug, Default)]
struct ShownChain {
    chain: Vec<CertificateDer<'static>>,
    generation: AtomicU64,
}

impl Shown {
    pub(super) fn new(chain: &[CertificateDer<'static>], generation: u64) -> Self {
        Self(Arc::new(ShownChain {
            chain: chain.to_vec(),
            generation: AtomicU64::new(generation),
        }))
    }

    pub(super) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.0.chain
    }

    pub(super) fn is_of(&self, generation: u64) -> bool {
        self.0.generation.load(Ordering::Relaxed) == generation
    }

    pub(super) fn note(&self, generation: u64) {
        self.0.generation.store(generation, Ordering::Relaxed);
    }
}

/// Whether something was heard on a connection; clones share it. A service says so as soon as it has a request: a
/// connection on which nobody does is ended.
#[derive(Clone, Debug, Default)]
pub struct Heard(Arc<AtomicBool>);

impl Heard {
    /// There was a request.
    pub fn note(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_noted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection whose peer has shown who it is.
#[derive(Debug)]
pub struct TlsConnection {
    stream: TlsStream<TcpStream>,
    peer: PeerIdentity,
    /// Until the first request.
    deadline: Option<Pin<Box<Sleep>>>,
    refusals: Refusals,
    cut: bool,
    _share: Share<String>,
}

impl TlsConnection {
    pub(super) fn new(
        stream: TlsStream<TcpStream>,
        peer: PeerIdentity,
        first_request: Duration,
        refusals: Refusals,
        share: Share<String>,
    ) -> Self {
        Self {
            stream,
            peer,
            deadline: Some(Box::pin(tokio::time::sleep(first_request))),
            refusals,
            cut: false,
            _share: share,
        }
    }

    fn overdue(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(deadline) = &mut self.deadline else {
            return false;
        };
        if self.peer.heard.is_noted() {
            self.deadline = None;
            return false;
        }
        deadline.as_mut().poll(cx).is_ready()
    }
}

impl Connected for TlsConnection {
    type ConnectInfo = PeerIdentity;

    fn connect_info(&self) -> PeerIdentity {
        self.peer.clone()
    }
}

impl AsyncRead for TlsConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.overdue(cx) {
            let text = "no request came on the connection in time";
            if !std::mem::replace(&mut self.cut, true) {
                let remote = self.peer.remote_addr;
                self.refusals.refuse(Refusal::NoRequest, remote, text);
            }
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TlsConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
