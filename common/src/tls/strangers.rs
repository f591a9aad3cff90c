//! Peers that show no certificate: few at a time, for a short time, apart from all others. When there is no room, those
//! from the address with the most make some, so that silent ones from a few addresses keep nobody from enrolling.
//!
//! An agent that has no certificate yet must be able to ask for one at the door that all agents use. Its connection goes
//! to a server of its own, so that nothing behind the door of verified peers ever sees it.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use super::connection::TlsConnection;
use super::crowd::{CrowdLimits, Doorway, LEAVING, Standing};
use super::refusals::{Refusal, Refusals};
use super::server::{self, IncomingLimits, ServerTls};

/// Bounds on connections without a certificate.
#[derive(Clone, Copy, Debug)]
pub struct StrangerLimits {
    /// Connections at one time.
    pub connections: usize,
    /// Connections at one time from one address.
    pub from_one_address: usize,
    /// How long one may last, whatever happens on it.
    pub lifetime: Duration,
}

impl Default for StrangerLimits {
    fn default() -> Self {
        Self {
            connections: 128,
            from_one_address: 32,
            lifetime: Duration::from_secs(20),
        }
    }
}

/// Verified connections of a listener, and beside them those of peers that show no certificate. Who shows one that is
/// not good gets neither.
pub fn incoming_with_strangers(
    listener: TcpListener,
    tls: ServerTls,
    limits: IncomingLimits,
    stranger_limits: StrangerLimits,
    refusals: Refusals,
    shutdown: CancellationToken,
) -> (
    ReceiverStream<io::Result<TlsConnection>>,
    ReceiverStream<io::Result<StrangerConnection>>,
) {
    // Those that were told to go may still be in it.
    let (ready, connections) = mpsc::channel(stranger_limits.connections + LEAVING);
    let strangers = Strangers {
        lifetime: stranger_limits.lifetime,
        doorway: Doorway::new(CrowdLimits {
            all: stranger_limits.connections,
            from_one_address: stranger_limits.from_one_address,
        }),
        refusals: refusals.clone(),
        ready,
    };
    let verified = server::accept(listener, tls, limits, Some(strangers), refusals, shutdown);
    (verified, ReceiverStream::new(connections))
}

/// Counts strangers and hands them over.
#[derive(Clone)]
pub(super) struct Strangers {
    lifetime: Duration,
    doorway: Doorway,
    refusals: Refusals,
    ready: mpsc::Sender<io::Result<StrangerConnection>>,
}

impl Strangers {
    /// Takes a connection, or drops it if there are too many.
    pub(super) fn admit(&self, stream: TlsStream<TcpStream>, remote: SocketAddr) {
        let standing = match self.doorway.enter_now(remote.ip()) {
            Ok(standing) => standing,
            Err(refusal) => {
                let detail = "too many connections without a certificate";
                self.refusals.refuse(refusal, remote, detail);
                return;
            }
        };
        let connection = StrangerConnection {
            stream,
            remote,
            deadline: Box::pin(tokio::time::sleep(self.lifetime)),
            giving_way: standing.giving_way(),
            refusals: self.refusals.clone(),
            cut: None,
            _standing: standing,
        };
        // There is room for every connection that has a place, unless the server has stopped.
        let _ = self.ready.try_send(Ok(connection));
    }
}

/// Whoever has an IPv6 address has the 2^64 others of its network as well.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let bits = address.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// Where a peer without a certificate connects from; a request extension in tonic services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrangerAddress(pub SocketAddr);

/// A connection whose peer has shown nothing.
#[derive(Debug)]
pub struct StrangerConnection {
    stream: TlsStream<TcpStream>,
    remote: SocketAddr,
    deadline: Pin<Box<Sleep>>,
    giving_way: Pin<Box<WaitForCancellationFutureOwned>>,
    refusals: Refusals,
    /// Why it is not served any more.
    cut: Option<&'static str>,
    _standing: Standing,
}

impl StrangerConnection {
    /// Why the connection is over.
    fn is_cut(&mut self, cx: &mut Context<'_>) -> Option<io::Error> {
        if self.cut.is_none() {
            let (reason, text) = if self.deadline.as_mut().poll(cx).is_ready() {
                let text = "a connection without a certificate lasted too long";
                (Refusal::TimedOut, text)
            } else if self.giving_way.as_mut().poll(cx).is_ready() {
                let text = "a connection without a certificate gives way to others";
                (Refusal::GaveWay, text)
            } else {
                return None;
            };
            self.cut = Some(text);
            self.refusals.refuse(reason, self.remote, text);
        }
        self.cut
            .map(|text| io::Error::new(io::ErrorKind::TimedOut, text))
    }
}

impl Connected for StrangerConnection {
    type ConnectInfo = StrangerAddress;

    fn connect_info(&self) -> StrangerAddress {
        StrangerAddress(self.remote)
    }
}

impl AsyncRead for StrangerConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(error) = self.is_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for StrangerConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(error) = self.is_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.is_cut(cx) {
            return Poll::Ready(Err(error));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_cut(cx).is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
