//! One TLS handshake with a door of the hub, as far as it comes: resolves the name, dials, and takes the certificate that
//! is shown. What that means is decided in [`super::addresses`].

use std::io;
use std::time::Duration;

use http::Uri;
use jiff::{SignedDuration, Timestamp};
use nabu_common::tls::ClientTls;
use rustls::CertificateError;
use rustls::pki_types::CertificateDer;
use tokio::net::{TcpStream, lookup_host};
use tower::Service as _;

/// How long one step may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is no address that could be dialled.
    NoAddress(String),
    /// No address has that name.
    Unresolved(String),
    /// Nothing takes the connection.
    Unreachable(String),
    /// What is shown has ended, perhaps at a known time.
    Ended(Option<Timestamp>),
    /// What is shown is not valid yet.
    NotYet,
    /// What is shown is of an authority that we do not know.
    UnknownAuthority,
    /// What is shown is not for the name that it must have.
    OtherName {
        wanted: String,
        /// The names that it has, if they are told.
        has: Vec<String>,
    },
    /// Something else, in the words of the TLS library.
    Tls(String),
}

/// Where a door is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    uri: Uri,
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    pub(super) fn parse(url: &str) -> Result<Self, Fault> {
        let wrong = || Fault::NoAddress(format!("{url:?} is not of the form https://HOST:PORT"));
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|_| uri.scheme_str() == Some("https"));
        let host = host.ok_or_else(wrong)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            uri,
        })
    }

    /// Whether only pods of one Kubernetes cluster can resolve it.
    pub(super) fn is_inside_a_cluster(&self) -> bool {
        let host = self.host.trim_end_matches('.').to_ascii_lowercase();
        let service = host.strip_suffix(".cluster.local").unwrap_or(&host);
        service.rsplit('.').next() == Some("svc")
    }
}

/// Dials without TLS.
pub(super) async fn dial(to: &Address) -> Result<(), Fault> {
    let place = (to.host.as_str(), to.port);
    let found = within(lookup_host(place)).await;
    let addresses: Vec<_> = found
        .map_err(|error| Fault::Unresolved(error.to_string()))?
        .collect();
    let dialled = within(TcpStream::connect(addresses.as_slice())).await;
    dialled.map_err(|error| Fault::Unreachable(error.to_string()))?;
    Ok(())
}

/// Makes the handshake; gives the server's own certificate.
pub(super) async fn shake(
    to: &Address,
    tls: &ClientTls,
    server_name: Option<String>,
) -> Result<CertificateDer<'static>, Fault> {
    dial(to).await?;
    let wanted = server_name.clone().unwrap_or_else(|| to.host.clone());
    let mut connector = tls.connector(server_name);
    let stream = within(connector.call(to.uri.clone())).await;
    let stream = stream.map_err(|error| fault(&error, wanted))?;
    let (_, session) = stream.inner().get_ref();
    let shown = session.peer_certificates().and_then(<[_]>::first);
    shown
        .map(|certificate| certificate.clone().into_owned())
        .ok_or_else(|| Fault::Tls("it shows no certificate".to_owned()))
}

async fn within<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    let ended = tokio::time::timeout(PATIENCE, step).await;
    ended.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", PATIENCE.as_secs());
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    })
}

fn fault(error: &io::Error, wanted: String) -> Fault {
    let cause = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(cause) = cause else {
        return Fault::Tls(error.to_string());
    };
    match cause {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::Expired => Fault::Ended(None),
            CertificateError::ExpiredContext { not_after, .. } => {
                let seconds = i64::try_from(not_after.as_secs()).unwrap_or(i64::MAX);
                Fault::Ended(
                    Timestamp::UNIX_EPOCH
                        .checked_add(SignedDuration::from_secs(seconds))
                        .ok(),
                )
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Fault::NotYet
            }
            // Keys that an authority of the same name made before: rustls finds the authority, and not its signature.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                Fault::UnknownAuthority
            }
            CertificateError::NotValidForName => Fault::OtherName {
                wanted,
                has: Vec::new(),
            },
            CertificateError::NotValidForNameContext { presented, .. } => Fault::OtherName {
                wanted,
                has: presented.iter().filter_map(|name| dialled(name)).collect(),
            },
            other => Fault::Tls(other.to_string()),
        },
        other => Fault::Tls(other.to_string()),
    }
}

/// A name that can be dialled, of one that rustls shows as `DnsName("hub.example")` or `IpAddress(192.0.2.1)`.
fn dialled(shown: &str) -> Option<String> {
    let inner = shown
        .split_once('(')?
        .1
        .strip_suffix(')')?
        .trim_matches('"');
    let kind = shown.split_once('(')?.0;
    ["DnsName", "IpAddress"]
        .contains(&kind)
        .then(|| inner.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use nabu_common::identity::TrustDomain;
    use nabu_common::tls::{IncomingLimits, ServerTls, TlsCredentials, incoming};
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
    use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
    use tokio::net::TcpListener;
    use tokio_stream::StreamExt as _;
    use tokio_util::sync::CancellationToken;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    struct Authority {
        root: CertificateDer<'static>,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let root = params.self_signed(&key).unwrap().der().clone();
            let issuer = Issuer::new(params, key);
            Self { root, issuer }
        }

        /// A certificate for 127.0.0.1 with this time of validity.
        fn certify(&self, from: SystemTime, until: SystemTime) -> TlsCredentials {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
            params.not_before = from.into();
            params.not_after = until.into();
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            TlsCredentials {
                roots: vec![self.root.clone()],
                chain: vec![certificate.der().clone()],
                key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
            }
        }

        fn good(&self) -> TlsCredentials {
            let now = SystemTime::now();
            self.certify(now - HOUR, now + HOUR)
        }
    }

    /// What comes of a handshake between two of these.
    async fn shaken(
        server: TlsCredentials,
        client: TlsCredentials,
        name: Option<&str>,
    ) -> Result<CertificateDer<'static>, Fault> {
        nabu_common::tls::install_crypto_provider();
        let domain: TrustDomain = "nabu".parse().unwrap();
        let tls = ServerTls::hold(server, domain).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("https://{}", listener.local_addr().unwrap());
        let to = Address::parse(&to).unwrap();
        let end = CancellationToken::new();
        let mut taken = incoming(
            listener,
            tls,
            IncomingLimits::default(),
            nabu_common::tls::Refusals::default(),
            end.clone(),
        );
        let server = tokio::spawn(async move { while taken.next().await.is_some() {} });
        let client = ClientTls::hold(client).unwrap();
        let outcome = shake(&to, &client, name.map(str::to_owned)).await;
        end.cancel();
        server.await.unwrap();
        outcome
    }

    #[tokio::test]
    async fn what_is_wrong_with_the_certificate_that_is_shown_is_told_apart() {
        let (ours, other) = (Authority::new(), Authority::new());
        let now = SystemTime::now();
        let good = ours.good();
        let leaf = good.chain[0].clone();
        assert_eq!(shaken(good, ours.good(), None).await, Ok(leaf));
        let unknown = shaken(other.good(), ours.good(), None).await;
        assert_eq!(unknown, Err(Fault::UnknownAuthority));
        let ended = ours.certify(now - HOUR * 2, now - HOUR);
        let ended = shaken(ended, ours.good(), None).await;
        let Err(Fault::Ended(Some(at))) = ended else {
            panic!("{ended:?}")
        };
        assert!(at < Timestamp::now() && at > Timestamp::UNIX_EPOCH);
        let early = ours.certify(now + HOUR, now + HOUR * 2);
        let early = shaken(early, ours.good(), None).await;
        assert_eq!(early, Err(Fault::NotYet));
        let named = shaken(ours.good(), ours.good(), Some("other.example")).await;
        let Err(Fault::OtherName { wanted, has }) = named else {
            panic!("{named:?}")
        };
        assert_eq!(wanted, "other.example");
        assert!(!has.is_empty());
        for name in has {
            assert!(
                name.parse::<std::net::IpAddr>().is_ok() || !name.contains(['(', '"', ':']),
                "{name}"
            );
        }
    }

    #[tokio::test]
    async fn a_door_that_nobody_opens_and_one_without_tls_are_told_apart() {
        nabu_common::tls::install_crypto_provider();
        let tls = ClientTls::hold(Authority::new().good()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = format!("https://{}", listener.local_addr().unwrap());
        let to = Address::parse(&to).unwrap();
        let plain = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.try_write(b"HTTP/1.1 400 Bad Request\r\n\r\n");
            }
        });
        let spoken = shake(&to, &tls, None).await;
        assert!(matches!(spoken, Err(Fault::Tls(_))), "{spoken:?}");
        plain.abort();
        let _ = plain.await;
        let refused = shake(&to, &tls, None).await;
        assert!(matches!(refused, Err(Fault::Unreachable(_))), "{refused:?}");
    }

    #[test]
    fn an_address_is_an_https_url() {
        let address = |url: &str| Address::parse(url).unwrap();
        let one = address("https://hub.example:8443");
        assert_eq!((&*one.host, one.port), ("hub.example", 8443));
        let six = address("https://[::1]");
        assert_eq!((&*six.host, six.port), ("::1", 443));
        for url in ["", "hub:8443", "http://hub:8443", "https://"] {
            assert!(
                matches!(Address::parse(url), Err(Fault::NoAddress(_))),
                "{url}"
            );
        }
        assert!(address("https://nabu-hub-agents.nabu-system.svc:8443").is_inside_a_cluster());
        assert!(address("https://hub.nabu.svc.cluster.local:8443").is_inside_a_cluster());
        assert!(!address("https://svc.example:8443").is_inside_a_cluster());
    }
}
