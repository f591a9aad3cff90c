//! Peers that show no certificate: few at a time, for a short time, apart from all others.
//!
//! An agent that has no certificate yet must be able to ask for one at the door that all agents use. Its connection goes
//! to a server of its own, so that nothing behind the door of verified peers ever sees it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Sleep;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;
use tracing::debug;

use super::connection::TlsConnection;
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
    shutdown: CancellationToken,
) -> (
    ReceiverStream<io::Result<TlsConnection>>,
    ReceiverStream<io::Result<StrangerConnection>>,
) {
    let (ready, connections) = mpsc::channel(stranger_limits.connections);
    let strangers = Strangers {
        limits: stranger_limits,
        open: Arc::default(),
        ready,
    };
    let verified = server::accept(listener, tls, limits, Some(strangers), shutdown);
    (verified, ReceiverStream::new(connections))
}

/// Counts strangers and hands them over.
#[derive(Clone)]
pub(super) struct Strangers {
    limits: StrangerLimits,
    open: Arc<Mutex<Open>>,
    ready: mpsc::Sender<io::Result<StrangerConnection>>,
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Strangers {
    /// Takes a connection, or drops it if there are too many.
    pub(super) fn admit(&self, stream: TlsStream<TcpStream>, remote: SocketAddr) {
        let Some(place) = self.place(network(remote.ip())) else {
            debug!(%remote, "too many connections without a certificate");
            return;
        };
        let connection = StrangerConnection {
            stream,
            remote,
            deadline: Box::pin(tokio::time::sleep(self.limits.lifetime)),
            _place: place,
        };
        // There is room for every connection that has a place, unless the server has stopped.
        let _ = self.ready.try_send(Ok(connection));
    }

    fn place(&self, address: IpAddr) -> Option<Place> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let here = open.by_address.get(&address).copied().unwrap_or_default();
        if open.all >= self.limits.connections || here >= self.limits.from_one_address {
            return None;
        }
        open.all += 1;
        open.by_address.insert(address, here + 1);
        Some(Place {
            open: Arc::clone(&self.open),
            address,
        })
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

/// One connection's share of the bounds.
#[derive(Debug)]
struct Place {
    open: Arc<Mutex<Open>>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all = open.all.saturating_sub(1);
        if let Some(here) = open.by_address.get_mut(&self.address) {
            *here -= 1;
            if *here == 0 {
                open.by_address.remove(&self.address);
            }
        }
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
    _place: Place,
}

impl StrangerConnection {
    fn overdue(&mut self, cx: &mut Context<'_>) -> bool {
        self.deadline.as_mut().poll(cx).is_ready()
    }
}

fn too_long() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "a connection without a certificate lasted too long",
    )
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
        if self.overdue(cx) {
            return Poll::Ready(Err(too_long()));
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
        if self.overdue(cx) {
            return Poll::Ready(Err(too_long()));
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.overdue(cx) {
            return Poll::Ready(Err(too_long()));
        }
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.overdue(cx) {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
