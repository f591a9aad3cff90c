//! The listener: plain HTTP/1.1 for strangers, with a bound on everything that one of them can make the hub hold.
//!
//! One connection carries one request. It has [`Limits::head`] for the head and [`Limits::request`] for the rest, so
//! that slow senders cannot keep the [`Limits::connections`] for long; what does not fit waits in the kernel's queue.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nabu_common::tls::{CrowdLimits, Doorway, Refusal, Refusals};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::{ForgeKind, Outcome, Receiver};

/// Bytes of the largest body that is taken. Webhooks of pull requests have some ten kilobytes.
const LARGEST_BODY: usize = 1024 * 1024;
/// Bytes of the largest head that is taken.
const LARGEST_HEAD: usize = 16 * 1024;
/// How long to leave the listener alone after it failed, for example because no file descriptor is free.
const AFTER_ACCEPT_ERROR: Duration = Duration::from_millis(100);
/// How long a request may take to end after `shutdown`.
const CLOSING: Duration = Duration::from_secs(2);

/// What strangers may take of the hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Time for the head of a request.
    pub(super) head: Duration,
    /// Time from the head to the answer.
    pub(super) request: Duration,
    /// Connections that are served beside each other.
    pub(super) connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(5),
            // GitHub and GitLab wait for ten seconds.
            request: Duration::from_secs(10),
            connections: 64,
        }
    }
}

/// Serves until `shutdown`.
pub async fn serve(
    listener: TcpListener,
    (receiver, refusals): (Receiver, Refusals),
    shutdown: CancellationToken,
) {
    serve_within(Limits::default(), listener, receiver, refusals, shutdown).await;
}

/// [`serve`] with limits of its own.
pub(super) async fn serve_within(
    limits: Limits,
    listener: TcpListener,
    receiver: Receiver,
    refusals: Refusals,
    shutdown: CancellationToken,
) {
    let receiver = Arc::new(receiver);
    let doorway = Doorway::new(CrowdLimits {
        all: limits.connections,
        // What comes through an ingress comes from one address.
        from_one_address: limits.connections + 1,
    });
    let connections = TaskTracker::new();
    let entered = async || {
        loop {
            let (stream, remote) = accept(&listener).await;
            if let Some(place) = doorway.enter(remote.ip()).await {
                return (stream, remote, place);
            }
        }
    };
    while let Some((accepted, remote, place)) = shutdown.run_until_cancelled(entered()).await {
        let connection =
            serve_connection(limits, accepted, Arc::clone(&receiver), shutdown.clone());
        let refusals = refusals.clone();
        connections.spawn(async move {
            tokio::select! {
                () = connection => {}
                () = place.gives_way() => {
                    let detail = "a connection for webhooks gives way to others";
                    refusals.refuse(Refusal::GaveWay, remote, detail);
                }
            }
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => {
                warn!(%error, "no connection can be taken for webhooks");
                tokio::time::sleep(AFTER_ACCEPT_ERROR).await;
            }
        }
    }
}

async fn serve_connection(
    limits: Limits,
    stream: TcpStream,
    receiver: Arc<Receiver>,
    shutdown: CancellationToken,
) {
    let service = service_fn(move |request| {
        let receiver = Arc::clone(&receiver);
        async move { Ok::<_, Infallible>(answer(limits, &receiver, request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .keep_alive(false)
        .max_buf_size(LARGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // The parts have limits of their own; this one holds also for a peer that does not read its answer.
    let whole = limits.head + 2 * limits.request;
    let served = timeout(whole, async {
        tokio::select! {
            served = connection.as_mut() => served,
            () = shutdown.cancelled() => {
                connection.as_mut().graceful_shutdown();
                timeout(CLOSING, connection).await.unwrap_or(Ok(()))
            }
        }
    });
    match served.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!(%error, "a connection for webhooks failed"),
        Err(_) => debug!("a connection for webhooks took too long"),
    }
}

async fn answer(
    limits: Limits,
    receiver: &Receiver,
    request: Request<Incoming>,
) -> Response<Full<Bytes>> {
    let Some(forge) = ForgeKind::from_path(request.uri().path()) else {
        return status(StatusCode::NOT_FOUND);
    };
    if request.method() != Method::POST {
        let mut answer = status(StatusCode::METHOD_NOT_ALLOWED);
        let allowed = HeaderValue::from_static("POST");
        answer.headers_mut().insert(header::ALLOW, allowed);
        return answer;
    }
    let outcome = timeout(limits.request, receive(receiver, forge, request))
        .await
        .unwrap_or(Outcome::Incomplete);
    receiver.metrics.count(forge, outcome.result());
    debug!(forge = forge.as_str(), ?outcome, "a webhook came");
    respond(outcome)
}

async fn receive(receiver: &Receiver, forge: ForgeKind, request: Request<Incoming>) -> Outcome {
    let (head, body) = request.into_parts();
    let Some(claim) = receiver.claim(forge, &head.headers) else {
        // The body is read and thrown away: a connection that is closed while its peer still sends is reset, and the
        // peer would not see the answer.
        return match read(body, false).await {
            Err(Unread::TooLarge) => Outcome::TooLarge,
            _ => Outcome::Unsigned,
        };
    };
    let body = match read(body, true).await {
        Ok(body) => body,
        Err(Unread::TooLarge) => return Outcome::TooLarge,
        Err(Unread::Broken) => return Outcome::Incomplete,
    };
    if !receiver.is_signed(claim, body.clone()).await {
        return Outcome::Unsigned;
    }
    receiver.take(forge, &head.headers, &body)
}

/// Why there is no body.
enum Unread {
    TooLarge,
    Broken,
}

/// Reads a body of any declared or undeclared length up to [`LARGEST_BODY`]. Memory grows with what came, never with
/// what is announced.
async fn read(mut body: Incoming, keep: bool) -> Result<Bytes, Unread> {
    if body.size_hint().lower() > LARGEST_BODY as u64 {
        return Err(Unread::TooLarge);
    }
    let (mut kept, mut length) = (BytesMut::new(), 0);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unread::Broken)?;
        let Some(part) = frame.data_ref() else {
            continue;
        };
        length += part.len();
        if length > LARGEST_BODY {
            return Err(Unread::TooLarge);
        }
        if keep {
            kept.extend_from_slice(part);
        }
    }
    Ok(kept.freeze())
}

fn respond(outcome: Outcome) -> Response<Full<Bytes>> {
    match outcome {
        Outcome::Accepted | Outcome::Ignored => status(StatusCode::ACCEPTED),
        Outcome::Duplicate | Outcome::Ping => status(StatusCode::OK),
        // No word that helps somebody who guesses.
        Outcome::Unsigned => status(StatusCode::UNAUTHORIZED),
        Outcome::Incomplete => status(StatusCode::REQUEST_TIMEOUT),
        Outcome::TooLarge => status(StatusCode::PAYLOAD_TOO_LARGE),
        Outcome::Invalid => with_text(
            StatusCode::BAD_REQUEST,
            "The body is not what the forge documents for this event.\n",
        ),
        Outcome::Form => with_text(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "Set the content type of the webhook to application/json.\n",
        ),
    }
}

fn status(status: StatusCode) -> Response<Full<Bytes>> {
    with_text(status, "")
}

fn with_text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())));
    *answer.status_mut() = status;
    if !text.is_empty() {
        let plain = HeaderValue::from_static("text/plain; charset=utf-8");
        answer.headers_mut().insert(header::CONTENT_TYPE, plain);
    }
    answer
}
