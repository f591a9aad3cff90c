//! The client's side: a connector for tonic that shows our certificate and checks the server's name.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Uri;
use tower::Service;

use super::{
    CaPin, HttpProxy, Material, Reloading, TlsCredentials, TlsError, TlsFiles, pinned, provider,
};

/// The client's side of TLS; clones share the certificates.
#[derive(Clone)]
pub struct ClientTls {
    config: Source,
}

#[derive(Clone)]
enum Source {
    Certificates(Arc<Reloading<ClientConfig>>),
    Fixed(Arc<ClientConfig>),
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If one cannot be used; the text names it.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        Ok(Self {
            config: Source::Certificates(Arc::new(Reloading::load(files, build)?)),
        })
    }

    /// Takes certificates from memory.
    ///
    /// # Errors
    /// If they do not fit together.
    pub fn hold(credentials: TlsCredentials) -> Result<Self, TlsError> {
        Ok(Self {
            config: Source::Certificates(Arc::new(Reloading::hold(credentials, build)?)),
        })
    }

    /// Shows no certificate, and trusts a server that an authority with one of these pins certifies and names. The server
    /// must send that authority's certificate in its chain.
    ///
    /// # Errors
    /// If the crypto provider cannot do TLS 1.3.
    pub fn pinned(pins: &[CaPin]) -> Result<Self, TlsError> {
        let config = pinned::config(pins).map_err(TlsError::Unusable)?;
        Ok(Self {
            config: Source::Fixed(Arc::new(config)),
        })
    }

    /// Reads the files again whenever they change, until `shutdown`.
    pub async fn keep_fresh(self, shutdown: CancellationToken) {
        if let Source::Certificates(source) = self.config {
            source.keep_fresh(shutdown).await;
        }
    }

    fn config(&self) -> Arc<ClientConfig> {
        match &self.config {
            Source::Certificates(source) => source.config(),
            Source::Fixed(config) => Arc::clone(config),
        }
    }

    /// A connector for [`tonic::transport::Endpoint::connect_with_connector`]. The server's certificate must be for
    /// `server_name`, or for the host of the address if that is `None`.
    pub fn connector(&self, server_name: Option<String>) -> Connector {
        Connector {
            tls: self.clone(),
            server_name,
            proxy: None,
            from: None,
        }
    }

    async fn connect(
        &self,
        uri: &Uri,
        server_name: Option<String>,
        proxy: Option<&HttpProxy>,
        from: Option<IpAddr>,
    ) -> io::Result<TokioIo<TlsStream<TcpStream>>> {
        let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let host = uri
            .host()
            .ok_or_else(|| invalid(format!("{uri} names no host")))?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(443);
        let name = server_name.unwrap_or_else(|| bare.to_owned());
        let name =
            ServerName::try_from(name).map_err(|error| invalid(format!("{uri}: {error}")))?;
        let stream = match (proxy, from) {
            (Some(proxy), _) => proxy.connect(uri).await?,
            (None, None) => TcpStream::connect((bare, port)).await?,
            (None, Some(from)) => connect_from(from, bare, port).await?,
        };
        stream.set_nodelay(true)?;
        let connector = TlsConnector::from(self.config());
        Ok(TokioIo::new(connector.connect(name, stream).await?))
    }
}

async fn connect_from(from: IpAddr, host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses = tokio::net::lookup_host((host, port)).await?;
    let to = addresses
        .find(|to| to.is_ipv4() == from.is_ipv4())
        .ok_or_else(|| io::Error::other(format!("{host} has no address of the kind of {from}")))?;
    let socket = match from {
        IpAddr::V4(_) => TcpSocket::new_v4()?,
        IpAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.bind(SocketAddr::new(from, 0))?;
    socket.connect(to).await
}

fn build(material: Material) -> Result<ClientConfig, String> {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| error.to_string())?
        .with_root_certificates(material.roots)
        .with_client_auth_cert(material.chain, material.key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // A resumed session would be that of the certificate before, which may be renewed or revoked since.
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Opens TLS connections for a tonic channel.
#[derive(Clone)]
pub struct Connector {
    tls: ClientTls,
    server_name: Option<String>,
    proxy: Option<HttpProxy>,
    from: Option<IpAddr>,
}

impl Connector {
    /// The same through a proxy, if there is one.
    #[must_use]
    pub fn through(self, proxy: Option<HttpProxy>) -> Self {
        Self { proxy, ..self }
    }

    /// Dials from this address of the machine, unless it goes through a proxy.
    pub fn from_address(self, address: IpAddr) -> Self {
        Self {
            from: Some(address),
            ..self
        }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self {
            tls,
            server_name,
            proxy,
            from,
        } = self.clone();
        Box::pin(async move { tls.connect(&uri, server_name, proxy.as_ref(), from).await })
    }
}
