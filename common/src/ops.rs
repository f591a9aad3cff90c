//! `/livez`, `/readyz` and `/metrics` on one HTTP listener, the same in every server.
//!
//! Liveness says that the process serves at all and never depends on a peer. Readiness is a list of named checks that
//! parts of the program set; `?verbose` prints each.

mod probe;
mod process;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::build;

pub use probe::Probe;

/// The content type of the text that `prometheus-client` writes.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The readiness checks of a process; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    checks: Arc<Mutex<BTreeMap<&'static str, Result<(), String>>>>,
}

/// One readiness check.
#[derive(Clone, Debug)]
pub struct Check {
    health: Health,
    name: &'static str,
}

impl Health {
    /// Adds a check, which is not ready until somebody says so.
    pub fn check(&self, name: &'static str) -> Check {
        self.lock().insert(name, Err("not started".to_owned()));
        Check {
            health: self.clone(),
            name,
        }
    }

    /// Whether every check is ready.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(Result::is_ok)
    }

    fn report(&self) -> (bool, String) {
        let checks = self.lock();
        let mut text = String::new();
        for (name, state) in checks.iter() {
            // Writing to a String cannot fail.
            let _ = match state {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(reason) => writeln!(text, "[-]{name} not ready: {reason}"),
            };
        }
        (checks.values().all(Result::is_ok), text)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Result<(), String>>> {
        self.checks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Check {
    /// The check passes from now on.
    pub fn set_ready(&self) {
        self.health.lock().insert(self.name, Ok(()));
    }

    /// The check fails from now on, for a reason that people read.
    pub fn set_unready(&self, reason: impl Into<String>) {
        self.health.lock().insert(self.name, Err(reason.into()));
    }
}

/// Registers `<name>_build_info` and what the kernel knows of this process (`process_*`).
pub fn register_process_metrics(registry: &mut Registry, name: &str) {
    let build = prometheus_client::metrics::info::Info::new([
        ("version", build::VERSION),
        ("commit", build::COMMIT),
    ]);
    registry.register(format!("{name}_build"), "The version that runs", build);
    registry.register_collector(Box::new(process::ProcessCollector));
}

#[derive(Clone)]
struct Ops {
    health: Health,
    registry: Arc<Registry>,
}

/// Serves until `shutdown`.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    health: Health,
    registry: Arc<Registry>,
    shutdown: CancellationToken,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Ops { health, registry });
    axum::serve(listener, router)
        .with_graceful_shutdown(async move { shutdown.cancelled().await })
        .await
}

async fn readyz(State(ops): State<Ops>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let (ready, report) = ops.health.report();
    let verbose = query.is_some_and(|query| {
        query
            .split('&')
            .any(|part| part == "verbose" || part == "verbose=true")
    });
    let verdict = if ready { "ok\n" } else { "not ready\n" };
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    let body = if verbose || !ready {
        format!("{report}{verdict}")
    } else {
        verdict.to_owned()
    };
    (status, body)
}

async fn metrics(State(ops): State<Ops>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &ops.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    async fn get(address: std::net::SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_needs_every_check_and_says_which_one_fails() {
        let health = Health::default();
        let (store, config) = (health.check("store"), health.check("config"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let served = tokio::spawn(serve(listener, health, Arc::default(), shutdown.clone()));

        store.set_ready();
        config.set_unready("no such folder");
        let answer = get(address, "/readyz").await;
        assert!(
            answer.starts_with("HTTP/1.1 503")
                && answer.contains("[-]config not ready: no such folder"),
            "{answer}"
        );
        assert!(
            get(address, "/livez").await.starts_with("HTTP/1.1 200"),
            "liveness depends on nobody"
        );

        config.set_ready();
        assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        assert!(
            get(address, "/readyz?verbose")
                .await
                .contains("[+]store ok")
        );
        assert!(get(address, "/metrics").await.contains("# EOF"));

        shutdown.cancel();
        served.await.unwrap().unwrap();
    }
}
