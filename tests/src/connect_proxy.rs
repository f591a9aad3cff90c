//! An HTTP proxy for `CONNECT` only, that asks for a password and notes where it was asked to go.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

/// A running proxy; it ends with this value.
pub struct ConnectProxy {
    port: u16,
    targets: Arc<Mutex<Vec<String>>>,
    _serving: AbortOnDropHandle<()>,
}

impl ConnectProxy {
    /// Starts one that lets in who sends this header: `Basic …`.
    pub async fn start(authorization: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let targets = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&targets);
        let wanted = format!("proxy-authorization: {}", authorization.to_lowercase());
        let serving = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (noted, wanted) = (Arc::clone(&noted), wanted.clone());
                // A client that goes away is no matter of the proxy.
                tokio::spawn(async move { serve(client, &noted, &wanted).await.ok() });
            }
        });
        Ok(Self {
            port,
            targets,
            _serving: AbortOnDropHandle::new(serving),
        })
    }

    /// The port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where it was asked to go, with the right password.
    pub fn targets(&self) -> Vec<String> {
        let targets = self.targets.lock();
        targets.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(client: TcpStream, noted: &Mutex<Vec<String>>, wanted: &str) -> Result<()> {
    let mut client = BufReader::new(client);
    let mut request = String::new();
    client.read_line(&mut request).await?;
    let mut let_in = false;
    loop {
        let mut header = String::new();
        client.read_line(&mut header).await?;
        if header.trim().is_empty() {
            break;
        }
        let_in |= header.trim().to_lowercase() == wanted;
    }
    let target = request.strip_prefix("CONNECT ").context("no CONNECT")?;
    let target = target.split_whitespace().next().context("no target")?;
    if !let_in {
        let refusal =
            "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\n\r\n";
        return Ok(client.write_all(refusal.as_bytes()).await?);
    }
    let targets = noted.lock();
    targets
        .unwrap_or_else(PoisonError::into_inner)
        .push(target.to_owned());
    let mut server = TcpStream::connect(target).await?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
