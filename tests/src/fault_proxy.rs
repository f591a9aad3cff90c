//! A proxy between hub and forge that fails on purpose: at the n-th request, before or after the forge has seen it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::mangle::mangle;
use crate::process::free_port;
use crate::wait::eventually;

/// Bodies of requests and answers are not larger.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// What happens to one request, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It stops before the forge sees it.
    HoldBefore(u32),
    /// The forge does it; its answer stops here.
    HoldAfter(u32),
    /// It gets this answer, and the forge never sees it.
    Answer(u32, u16),
    /// Every request gets this answer.
    AnswerAll(u16),
    /// The forge does it; its answer is mangled, as this seed says.
    Mangle(u32, u64),
    /// The forge does it; the answer is this one.
    AnswerAfter(u32, u16),
    /// The connection ends before the forge sees it.
    CutBefore(u32),
    /// The forge does it; the connection ends without an answer.
    CutAfter(u32),
}

struct Shared {
    target: String,
    http: reqwest::Client,
    requests: AtomicU32,
    held: AtomicU32,
    faults: Mutex<Vec<Fault>>,
    released: Notify,
}

impl Shared {
    fn faults(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of the n-th request; each single one happens once.
    fn fault_of(&self, number: u32) -> Option<Fault> {
        let mut faults = self.faults();
        let index = faults.iter().position(|fault| match fault {
            Fault::HoldBefore(n)
            | Fault::HoldAfter(n)
            | Fault::Answer(n, _)
            | Fault::AnswerAfter(n, _)
            | Fault::CutBefore(n)
            | Fault::CutAfter(n)
            | Fault::Mangle(n, _) => *n == number,
            Fault::AnswerAll(_) => true,
        })?;
        let fault = faults[index];
        if !matches!(fault, Fault::AnswerAll(_)) {
            faults.remove(index);
        }
        Some(fault)
    }

    async fn hold(&self) {
        let released = self.released.notified();
        self.held.fetch_add(1, Ordering::SeqCst);
        released.await;
    }
}

/// A running proxy; it ends with this value.
pub struct FaultProxy {
    shared: Arc<Shared>,
    port: u16,
    serving: Option<CancellationToken>,
}

impl FaultProxy {
    /// Starts a proxy to `target`, a base URL without a trailing slash.
    pub async fn start(target: &str) -> Result<Self> {
        nabu_common::tls::install_crypto_provider();
        let shared = Arc::new(Shared {
            target: target.to_owned(),
            http: reqwest::Client::builder()
                .redirect(reqwest::redirect::Policy::none())
                .build()?,
            requests: AtomicU32::new(0),
            held: AtomicU32::new(0),
            faults: Mutex::default(),
            released: Notify::new(),
        });
        let mut proxy = Self {
            shared,
            port: free_port()?,
            serving: None,
        };
        proxy.start_again().await?;
        Ok(proxy)
    }

    /// The base URL of the proxy.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Requests so far.
    pub fn requests(&self) -> u32 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        self.shared.faults().push(fault);
    }

    /// No more faults; what is held goes on.
    pub fn release(&self) {
        self.shared.faults().clear();
        self.shared.released.notify_waiters();
    }

    /// Waits until a request is held.
    pub async fn reached(&self) -> Result<()> {
        eventually("a request is held", Duration::from_mins(1), || async {
            (self.shared.held.load(Ordering::SeqCst) > 0).then_some(())
        })
        .await
    }

    /// Takes no connection any more, and cuts those that are open.
    pub fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.cancel();
        }
    }

    /// Takes connections again, on the same port.
    pub async fn start_again(&mut self) -> Result<()> {
        let address = format!("127.0.0.1:{}", self.port);
        let bound = eventually("the port is free", Duration::from_secs(30), || async {
            TcpListener::bind(&address).await.ok()
        });
        let listener = bound.await.context("cannot listen")?;
        let token = CancellationToken::new();
        let router = Router::new()
            .fallback(forward)
            .with_state(Arc::clone(&self.shared));
        let stopped = token.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                () = stopped.cancelled() => {}
            }
        });
        self.serving = Some(token);
        Ok(())
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let number = shared.requests.fetch_add(1, Ordering::SeqCst) + 1;
    let fault = shared.fault_of(number);
    match fault {
        Some(Fault::Answer(_, status) | Fault::AnswerAll(status)) => return on_purpose(status),
        Some(Fault::CutBefore(_)) => return cut(),
        Some(Fault::HoldBefore(_)) => shared.hold().await,
        Some(
            Fault::HoldAfter(_) | Fault::AnswerAfter(..) | Fault::CutAfter(_) | Fault::Mangle(..),
        )
        | None => {}
    }
    let seed = match fault {
        Some(Fault::Mangle(_, seed)) => Some(seed),
        _ => None,
    };
    let answer = pass(&shared, request, seed).await;
    match fault {
        Some(Fault::HoldAfter(_)) => shared.hold().await,
        Some(Fault::AnswerAfter(_, status)) => return on_purpose(status),
        Some(Fault::CutAfter(_)) => return cut(),
        _ => {}
    }
    answer.unwrap_or_else(|error| (StatusCode::BAD_GATEWAY, error.to_string()).into_response())
}

fn on_purpose(status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, "a fault on purpose").into_response()
}

/// A body that fails before its first byte: the connection is closed, and nothing was sent.
fn cut() -> Response {
    let nothing = futures::stream::once(async { Err::<Bytes, _>(anyhow!("cut on purpose")) });
    Response::new(Body::from_stream(nothing))
}

async fn pass(shared: &Shared, request: Request, seed: Option<u64>) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut headers = parts.headers;
    headers.remove("host");
    let answer = shared
        .http
        .request(parts.method, format!("{}{path}", shared.target))
        .headers(headers)
        .body(to_bytes(body, MAX_BODY).await?)
        .send()
        .await?;
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if name != "transfer-encoding" && name != "content-length" {
            response = response.header(name, value);
        }
    }
    let body = answer.bytes().await?;
    let body = match seed {
        Some(seed) => mangle(&body, seed).into(),
        None => body,
    };
    Ok(response.body(Body::from(body))?)
}
