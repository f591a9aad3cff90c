//! Asks a running server whether it is ready, as a program in an image without shell and curl must.

use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;

/// How long one question may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long to wait between two questions.
const PAUSE: Duration = Duration::from_millis(500);
/// More than all checks with their reasons.
const MOST: u64 = 64 * 1024;

/// What is asked, and for how long.
#[derive(Clone, Debug, Args)]
pub struct Probe {
    /// Address of /readyz, for example `nabu-hub-metrics:8080`.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: String,

    /// How long it may take to become ready, in seconds; 0 asks once.
    #[arg(long, default_value_t = 0)]
    pub wait_seconds: u32,
}

impl Probe {
    /// Asks until the server is ready; gives its checks, one a line.
    ///
    /// # Errors
    /// If it is not ready in time; the text is what it said last.
    pub fn run(&self) -> anyhow::Result<String> {
        let deadline = Instant::now() + Duration::from_secs(self.wait_seconds.into());
        loop {
            let said = match self.ask() {
                Ok((true, checks)) => return Ok(checks),
                Ok((false, checks)) => anyhow::anyhow!("not ready: {}", checks.trim()),
                Err(error) => error,
            };
            if Instant::now() + PAUSE > deadline {
                return Err(said);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether it is ready, and its checks.
    fn ask(&self) -> anyhow::Result<(bool, String)> {
        let address = &self.address;
        let remedy = || format!("cannot ask {address}; is it HOST:PORT of a running server?");
        let resolved = address.to_socket_addrs().with_context(remedy)?.next();
        let resolved = resolved.with_context(remedy)?;
        let mut stream = TcpStream::connect_timeout(&resolved, ANSWER).with_context(remedy)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.set_write_timeout(Some(ANSWER))?;
        let host = address.replace(['\r', '\n'], "");
        let request =
            format!("GET /readyz?verbose HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).with_context(remedy)?;
        let mut answer = Vec::new();
        stream
            .take(MOST)
            .read_to_end(&mut answer)
            .with_context(remedy)?;
        let answer = String::from_utf8_lossy(&answer);
        let Some((head, body)) = answer.split_once("\r\n\r\n") else {
            bail!("{address} does not answer as an HTTP server does");
        };
        let ready = head.split(' ').nth(1) == Some("200");
        Ok((ready, body.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus_client::registry::Registry;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::ops::{Health, serve};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_is_ready_when_all_its_checks_are_and_says_which_are_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (health, end) = (Health::default(), CancellationToken::new());
        let check = health.check("store");
        let served = tokio::spawn(serve(
            listener,
            health,
            Arc::new(Registry::default()),
            end.clone(),
        ));
        let probe = |wait_seconds| {
            let probe = Probe {
                address: address.clone(),
                wait_seconds,
            };
            tokio::task::spawn_blocking(move || probe.run())
        };
        let error = probe(0).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("[-]store"), "{error}");
        let waiting = probe(60);
        check.set_ready();
        assert!(waiting.await.unwrap().unwrap().contains("[+]store"));
        end.cancel();
        served.await.unwrap().unwrap();
        let error = probe(0).await.unwrap().unwrap_err().to_string();
        assert!(error.contains("cannot ask"), "{error}");
    }
}
