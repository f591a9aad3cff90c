//! The way through an HTTP proxy: `CONNECT` first, TLS from end to end inside.
//!
//! The proxy sees the address of the server and how much is said, and nothing of what is said.

use std::fmt;
use std::io;
use std::str::FromStr;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower::Service as _;

/// An HTTP proxy, perhaps with a user and a password for it.
#[derive(Clone)]
pub struct HttpProxy {
    way: Intercept,
}

impl FromStr for HttpProxy {
    type Err = String;

    /// Reads `http://[user:password@]host[:port]`. The error never shows the text: it may hold a password.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let example = "use for example http://proxy.example.com:3128";
        let uri: Uri = text
            .parse()
            .map_err(|error| format!("it is no address ({error}); {example}"))?;
        if uri.scheme_str() != Some("http") || uri.host().is_none_or(str::is_empty) {
            return Err(format!("the proxy must be http://host:port; {example}"));
        }
        let port = uri
            .port_u16()
            .map_or(String::new(), |port| format!(":{port}"));
        let place = format!("{}{port}", uri.host().unwrap_or_default());
        let written = uri.authority().map_or("", |authority| authority.as_str());
        if written.rsplit('@').next() != Some(&place) {
            return Err(format!("its port is none; {example}"));
        }
        if uri.path() != "/" || uri.query().is_some() {
            return Err(format!("the address of a proxy has no path; {example}"));
        }
        let everything = Matcher::builder().https(text).build();
        let way = everything.intercept(&Uri::from_static("https://hub.invalid"));
        Ok(Self {
            way: way.ok_or_else(|| format!("it cannot be used as a proxy; {example}"))?,
        })
    }
}

/// Without the password.
impl fmt::Display for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.way.uri();
        let host = uri.host().unwrap_or_default();
        write!(f, "http://{host}:{}", uri.port_u16().unwrap_or(80))
    }
}

impl fmt::Debug for HttpProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HttpProxy({self})")
    }
}

impl HttpProxy {
    /// A connection to the host and port of `to`, through the proxy.
    pub(super) async fn connect(&self, to: &Uri) -> io::Result<TcpStream> {
        let mut tunnel = Tunnel::new(self.way.uri().clone(), HttpConnector::new());
        if let Some(auth) = self.way.basic_auth() {
            tunnel = tunnel.with_auth(auth.clone());
        }
        let stream = tunnel
            .call(to.clone())
            .await
            .map_err(|error| io::Error::other(format!("the proxy {self}: {error}")))?;
        Ok(stream.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_an_http_address_with_or_without_a_password_that_nobody_sees() {
        for (text, shown, auth) in [
            ("http://proxy:3128", "http://proxy:3128", None),
            ("http://proxy", "http://proxy:80", None),
            (
                "http://[2001:db8::1]:3128",
                "http://[2001:db8::1]:3128",
                None,
            ),
            (
                "http://Aladdin:open%20sesame@proxy:3128",
                "http://proxy:3128",
                // "Aladdin:open sesame" as RFC 7617 has it.
                Some("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            ),
        ] {
            let proxy: HttpProxy = text.parse().unwrap();
            assert_eq!(proxy.to_string(), shown);
            assert_eq!(format!("{proxy:?}"), format!("HttpProxy({shown})"));
            let found = proxy.way.basic_auth().map(|auth| auth.to_str().unwrap());
            assert_eq!(found, auth);
        }
    }

    #[test]
    fn what_is_no_http_proxy_is_refused_without_showing_it() {
        for text in [
            "",
            "proxy",
            "proxy:3128",
            "https://u:secret@proxy:3128",
            "socks5://u:secret@proxy:1080",
            "http://",
            "http://u:secret@proxy/path",
            "http://u:secret@proxy:99999",
        ] {
            let error = text.parse::<HttpProxy>().unwrap_err();
            assert!(!error.contains("secret"), "{text}: {error}");
            assert!(error.contains("http://proxy.example.com:3128"), "{error}");
        }
    }
}
