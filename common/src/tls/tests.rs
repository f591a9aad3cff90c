//! Real handshakes over loopback.

use std::net::SocketAddr;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_stream::StreamExt as _;
use tonic::transport::Uri;
use tower::Service as _;

use super::*;
use crate::identity::Identity;

struct Ca {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl Ca {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { params, key, pem }
    }

    /// Writes a set of files for one side, trusting `self`.
    fn issue(&self, folder: &Path, sans: Vec<SanType>) -> TlsFiles {
        std::fs::create_dir_all(folder).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.subject_alt_names = sans;
        let issuer = Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).unwrap();
        let files = TlsFiles::in_folder(folder);
        std::fs::write(&files.ca, &self.pem).unwrap();
        std::fs::write(&files.cert, certificate.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn loopback() -> SanType {
    SanType::IpAddress([127, 0, 0, 1].into())
}

/// A server that answers each connection with the name of its peer and a newline.
async fn serve(
    tls: &ServerTls,
    limits: IncomingLimits,
    shutdown: &CancellationToken,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let refusals = Refusals::default();
    let mut connections = incoming(listener, tls.clone(), limits, refusals, shutdown.clone());
    tokio::spawn(async move {
        while let Some(Ok(mut connection)) = connections.next().await {
            tokio::spawn(async move {
                let peer = tonic::transport::server::Connected::connect_info(&connection);
                let mut byte = [0; 1];
                while connection.read_exact(&mut byte).await.is_ok() {
                    let answer = format!("{}\n", peer.identity);
                    if connection.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

type Stream = tokio_rustls::client::TlsStream<tokio::net::TcpStream>;

async fn dial(tls: &ClientTls, address: SocketAddr) -> std::io::Result<Stream> {
    let uri: Uri = format!("https://{address}").parse().unwrap();
    Ok(tls.connector(None).call(uri).await?.into_inner())
}

async fn ask(stream: &mut Stream) -> std::io::Result<String> {
    stream.write_all(b"?").await?;
    let mut answer = Vec::new();
    loop {
        let byte = stream.read_u8().await?;
        if byte == b'\n' {
            return Ok(String::from_utf8(answer).unwrap());
        }
        answer.push(byte);
    }
}

async fn dial_and_ask(tls: &ClientTls, address: SocketAddr) -> std::io::Result<String> {
    ask(&mut dial(tls, address).await?).await
}

fn domain() -> crate::identity::TrustDomain {
    "nabu".parse().unwrap()
}

#[tokio::test]
async fn a_peer_is_known_by_the_uri_in_its_certificate() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;
    let client = ClientTls::load(ca.issue(
        &dir.path().join("c"),
        vec![uri("spiffe://nabu/cluster/prod-eu")],
    ))
    .unwrap();
    let name = Identity::Cluster("prod-eu".parse().unwrap()).to_string();
    assert_eq!(dial_and_ask(&client, address).await.unwrap(), name);
}

#[tokio::test]
async fn a_certificate_that_names_nobody_or_comes_from_another_authority_is_refused() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;

    let stranger = Ca::new();
    let foreign = stranger.issue(
        &dir.path().join("foreign"),
        vec![uri("spiffe://nabu/cluster/a")],
    );
    std::fs::write(&foreign.ca, &ca.pem).unwrap();
    let none = ca.issue(&dir.path().join("none"), vec![loopback()]);
    let two = ca.issue(
        &dir.path().join("two"),
        vec![
            uri("spiffe://nabu/cluster/a"),
            uri("spiffe://nabu/cluster/b"),
        ],
    );
    let other = ca.issue(
        &dir.path().join("other"),
        vec![uri("spiffe://elsewhere/cluster/a")],
    );
    for files in [foreign, none, two, other] {
        let client = ClientTls::load(files.clone()).unwrap();
        assert!(
            dial_and_ask(&client, address).await.is_err(),
            "{files:?} was let in"
        );
    }
}

#[tokio::test]
async fn a_server_that_another_authority_certified_is_not_spoken_to() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server = ServerTls::load(
        Ca::new().issue(&dir.path().join("s"), vec![loopback()]),
        domain(),
    )
    .unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;
    let client =
        ClientTls::load(ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]))
            .unwrap();
    assert!(dial(&client, address).await.is_err());
}

#[tokio::test]
async fn a_server_whose_certificate_is_for_another_name_is_not_spoken_to() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let elsewhere = vec![SanType::DnsName("elsewhere.example".try_into().unwrap())];
    let server = ServerTls::load(ca.issue(&dir.path().join("s"), elsewhere), domain()).unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;
    let client =
        ClientTls::load(ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]))
            .unwrap();
    assert!(dial(&client, address).await.is_err());
}

#[tokio::test]
async fn changed_files_are_used_for_new_connections_and_leave_open_ones_alone() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;
    let old = ClientTls::load(ca.issue(
        &dir.path().join("old"),
        vec![uri("spiffe://nabu/cluster/old")],
    ))
    .unwrap();
    let mut open = dial(&old, address).await.unwrap();
    assert_eq!(ask(&mut open).await.unwrap(), "cluster/old");

    let new_ca = Ca::new();
    new_ca.issue(&dir.path().join("s"), vec![loopback()]);
    assert!(server.reload().unwrap());
    let new = new_ca.issue(
        &dir.path().join("new"),
        vec![uri("spiffe://nabu/cluster/new")],
    );
    let new = ClientTls::load(new).unwrap();
    assert_eq!(dial_and_ask(&new, address).await.unwrap(), "cluster/new");
    assert_eq!(
        ask(&mut open).await.unwrap(),
        "cluster/old",
        "the open connection goes on"
    );
    assert!(
        dial_and_ask(&old, address).await.is_err(),
        "the old authority is not trusted any more"
    );
}

#[tokio::test]
async fn files_that_do_not_fit_together_leave_the_last_good_ones_in_force() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let files = ca.issue(&dir.path().join("s"), vec![loopback()]);
    let server = ServerTls::load(files.clone(), domain()).unwrap();
    let address = serve(&server, IncomingLimits::default(), &shutdown).await;
    std::fs::write(&files.key, KeyPair::generate().unwrap().serialize_pem()).unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(
        error.contains("tls.key") && error.contains("do not fit together"),
        "{error}"
    );
    let client =
        ClientTls::load(ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]))
            .unwrap();
    assert_eq!(dial_and_ask(&client, address).await.unwrap(), "cluster/a");
}

#[tokio::test]
async fn silent_handshakes_do_not_hold_up_others_and_are_ended() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let limits = IncomingLimits {
        handshakes: CrowdLimits {
            all: 4,
            from_one_address: 64,
        },
        timeout: Duration::from_millis(300),
        ..IncomingLimits::default()
    };
    let address = serve(&server, limits, &shutdown).await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    let client =
        ClientTls::load(ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]))
            .unwrap();
    assert_eq!(dial_and_ask(&client, address).await.unwrap(), "cluster/a");
    for stream in &mut silent {
        // The server closes each one; reading gives the end, or an error.
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest).await;
        assert!(rest.is_empty());
    }
}

/// Whether the server ends the connection by itself.
async fn is_ended(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> bool {
    let mut rest = Vec::new();
    let end = stream.read_to_end(&mut rest);
    tokio::time::timeout(Duration::from_secs(30), end)
        .await
        .is_ok()
}

#[tokio::test]
async fn silent_handshakes_of_one_address_take_nothing_from_others_nor_for_long_from_itself() {
    let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let limits = IncomingLimits {
        handshakes: CrowdLimits {
            all: 64,
            from_one_address: 4,
        },
        // They would stay for ever.
        timeout: Duration::from_hours(1),
        ..IncomingLimits::default()
    };
    let address = serve(&server, limits, &shutdown).await;
    let mut silent = Vec::new();
    for _ in 0..16 {
        silent.push(tokio::net::TcpStream::connect(address).await.unwrap());
    }
    for refused in &mut silent[4..] {
        assert!(is_ended(refused).await);
    }
    let files = ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]);
    let client = ClientTls::load(files).unwrap();
    // From the same address: the oldest gives way as soon as it has had its second.
    let mut answer = dial_and_ask(&client, address).await;
    while answer.is_err() {
        answer = dial_and_ask(&client, address).await;
    }
    assert_eq!(answer.unwrap(), "cluster/a");
    assert!(is_ended(&mut silent[0]).await);
}

#[tokio::test]
async fn a_peer_that_asks_for_nothing_is_cut_and_one_that_has_asked_is_not() {
    let (dir, ca) = (TempDir::new().unwrap(), Ca::new());
    let server =
        ServerTls::load(ca.issue(&dir.path().join("s"), vec![loopback()]), domain()).unwrap();
    let limits = IncomingLimits {
        first_request: Duration::from_millis(300),
        from_one_peer: 2,
        ..IncomingLimits::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (refusals, shutdown) = (Refusals::default(), CancellationToken::new());
    let mut connections = incoming(listener, server, limits, refusals, shutdown);
    let files = ca.issue(&dir.path().join("c"), vec![uri("spiffe://nabu/cluster/a")]);
    let client = ClientTls::load(files).unwrap();
    let (mut heard, mut slow) = (
        dial(&client, address).await.unwrap(),
        dial(&client, address).await.unwrap(),
    );
    let mut one = connections.next().await.unwrap().unwrap();
    let mut other = connections.next().await.unwrap().unwrap();
    let mut third = dial(&client, address).await.unwrap();
    assert!(is_ended(&mut third).await, "it has its two connections");

    tonic::transport::server::Connected::connect_info(&one)
        .heard
        .note();
    let cut = async {
        let mut byte = [0; 1];
        // Something comes again and again, and never a request.
        while other.read_exact(&mut byte).await.is_ok() {}
        drop(other);
    };
    let dripping = async { while slow.write_all(b"P").await.is_ok() {} };
    let both = async { tokio::join!(cut, dripping) };
    let cut = tokio::time::timeout(Duration::from_secs(30), both).await;
    assert!(cut.is_ok(), "it is still open");
    heard.write_all(b"?").await.unwrap();
    assert_eq!(one.read_u8().await.unwrap(), b'?');
    assert!(dial(&client, address).await.is_ok(), "there is room again");
    assert!(connections.next().await.unwrap().is_ok());
}

#[tokio::test]
async fn a_peer_is_trusted_until_its_authority_is_not_however_it_got_in() {
    let (dir, ca, new) = (TempDir::new().unwrap(), Ca::new(), Ca::new());
    let own = held(&ca, &dir.path().join("s"), vec![loopback()]);
    let root = |ca: &Ca| CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap();
    let credentials = |roots: Vec<CertificateDer<'static>>| TlsCredentials {
        roots,
        chain: own.chain.clone(),
        key: own.key.clone_key(),
    };
    let both = vec![root(&ca), root(&new)];
    let server = ServerTls::hold(credentials(both), domain()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let limits = IncomingLimits::default();
    let (refusals, shutdown) = (Refusals::default(), CancellationToken::new());
    let mut connections = incoming(listener, server.clone(), limits, refusals, shutdown);
    let mut peers = Vec::new();
    for (name, by) in [("old", &ca), ("new", &new)] {
        let sans = vec![uri(&format!("spiffe://nabu/cluster/{name}"))];
        let mut files = by.issue(&dir.path().join(name), sans);
        files.ca = dir.path().join("s/ca.crt");
        let client = ClientTls::load(files).unwrap();
        let _open = dial(&client, address).await.unwrap();
        let connection = connections.next().await.unwrap().unwrap();
        let peer = tonic::transport::server::Connected::connect_info(&connection);
        assert!(server.trusts(&peer));
        peers.push(peer);
    }
    // The hub's own certificate is replaced; nothing else changes.
    let both = vec![root(&ca), root(&new)];
    server.replace(credentials(both)).unwrap();
    assert!(peers.iter().all(|peer| server.trusts(peer)));
    server.replace(credentials(vec![root(&new)])).unwrap();
    assert!(!server.trusts(&peers[0]) && server.trusts(&peers[1]));
}

#[test]
fn a_missing_or_empty_file_is_named() {
    let dir = TempDir::new().unwrap();
    let files = Ca::new().issue(dir.path(), vec![loopback()]);
    std::fs::write(&files.cert, "").unwrap();
    let error = ClientTls::load(files.clone()).err().unwrap().to_string();
    assert!(error.contains("tls.crt"), "{error}");
    std::fs::remove_file(&files.key).unwrap();
    let error = ClientTls::load(files).err().unwrap().to_string();
    assert!(error.contains("tls.key"), "{error}");
}

/// A hub's certificate in memory, whose chain has the authority in it as the hub sends it.
fn held(ca: &Ca, folder: &Path, sans: Vec<SanType>) -> TlsCredentials {
    let files = ca.issue(folder, sans);
    let pem = |path: &Path| {
        CertificateDer::pem_file_iter(path)
            .unwrap()
            .map(Result::unwrap)
    };
    let root: Vec<_> = pem(&files.ca).collect();
    TlsCredentials {
        chain: pem(&files.cert).chain(root.clone()).collect(),
        roots: root,
        key: PrivateKeyDer::from_pem_file(&files.key).unwrap(),
    }
}

fn pin_of(ca: &Ca) -> CaPin {
    let der = CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap();
    CaPin::of_certificate(&der).unwrap()
}

/// Serves both kinds of peers; strangers are answered with `stranger`.
async fn serve_strangers(tls: &ServerTls, limits: StrangerLimits) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (mut peers, mut strangers) = incoming_with_strangers(
        listener,
        tls.clone(),
        IncomingLimits::default(),
        limits,
        Refusals::default(),
        CancellationToken::new(),
    );
    tokio::spawn(async move { while peers.next().await.is_some() {} });
    tokio::spawn(async move {
        while let Some(Ok(mut connection)) = strangers.next().await {
            tokio::spawn(async move {
                let mut byte = [0; 1];
                while connection.read_exact(&mut byte).await.is_ok() {
                    if connection.write_all(b"stranger\n").await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_stranger_gets_through_only_to_the_authority_that_it_has_the_pin_of() {
    let (dir, ca, other) = (TempDir::new().unwrap(), Ca::new(), Ca::new());
    let server = ServerTls::hold(held(&ca, dir.path(), vec![loopback()]), domain()).unwrap();
    let address = serve_strangers(&server, StrangerLimits::default()).await;
    let right = ClientTls::pinned(&[pin_of(&other), pin_of(&ca)]).unwrap();
    assert_eq!(dial_and_ask(&right, address).await.unwrap(), "stranger");
    let wrong = ClientTls::pinned(&[pin_of(&other)]).unwrap();
    let error = dial(&wrong, address).await.unwrap_err().to_string();
    assert!(error.contains("UnknownIssuer"), "{error}");
}

#[tokio::test]
async fn a_pin_does_not_make_up_for_a_wrong_name_or_a_missing_signature() {
    let (dir, ca, other) = (TempDir::new().unwrap(), Ca::new(), Ca::new());
    let pinned = ClientTls::pinned(&[pin_of(&ca)]).unwrap();
    let elsewhere = vec![SanType::DnsName("elsewhere".try_into().unwrap())];
    let misnamed = held(&ca, &dir.path().join("a"), elsewhere);
    let server = ServerTls::hold(misnamed, domain()).unwrap();
    let address = serve_strangers(&server, StrangerLimits::default()).await;
    assert!(dial(&pinned, address).await.is_err());
    // Certified by another authority, with the pinned one sent along.
    let mut borrowed = held(&other, &dir.path().join("b"), vec![loopback()]);
    let root = CertificateDer::from_pem_slice(ca.pem.as_bytes()).unwrap();
    borrowed.chain.push(root);
    let server = ServerTls::hold(borrowed, domain()).unwrap();
    let address = serve_strangers(&server, StrangerLimits::default()).await;
    assert!(dial(&pinned, address).await.is_err());
}

#[tokio::test]
async fn strangers_are_few_and_do_not_stay() {
    let (dir, ca) = (TempDir::new().unwrap(), Ca::new());
    let server = ServerTls::hold(held(&ca, dir.path(), vec![loopback()]), domain()).unwrap();
    let limits = StrangerLimits {
        connections: 2,
        from_one_address: 2,
        lifetime: Duration::from_millis(500),
    };
    let address = serve_strangers(&server, limits).await;
    let tls = ClientTls::pinned(&[pin_of(&ca)]).unwrap();
    let mut first = dial(&tls, address).await.unwrap();
    let mut second = dial(&tls, address).await.unwrap();
    ask(&mut first).await.unwrap();
    ask(&mut second).await.unwrap();
    assert!(dial_and_ask(&tls, address).await.is_err());
    // The server ends both, though nothing happens on them; then there is room again.
    assert!(first.read_u8().await.is_err());
    assert!(second.read_u8().await.is_err());
    assert_eq!(dial_and_ask(&tls, address).await.unwrap(), "stranger");
}

#[tokio::test]
async fn silent_strangers_of_a_few_addresses_make_room_for_one_of_another() {
    let (dir, ca) = (TempDir::new().unwrap(), Ca::new());
    let server = ServerTls::hold(held(&ca, dir.path(), vec![loopback()]), domain()).unwrap();
    let limits = StrangerLimits {
        connections: 8,
        from_one_address: 2,
        lifetime: Duration::from_mins(10),
    };
    let address = serve_strangers(&server, limits).await;
    let tls = ClientTls::pinned(&[pin_of(&ca)]).unwrap();
    let uri: Uri = format!("https://{address}").parse().unwrap();
    let mut silent = Vec::new();
    for last in [2, 3, 4, 5, 2, 3, 4, 5] {
        let from = [127, 0, 0, last].into();
        let stream = tls.connector(None).from_address(from).call(uri.clone());
        let mut stream = stream.await.unwrap().into_inner();
        ask(&mut stream).await.unwrap();
        silent.push(stream);
    }
    let mut honest = dial(&tls, address).await.unwrap();
    assert_eq!(ask(&mut honest).await.unwrap(), "stranger");
    assert!(silent[0].read_u8().await.is_err(), "it gave way");
    assert_eq!(ask(&mut silent[1]).await.unwrap(), "stranger");
}

#[tokio::test]
async fn a_certificate_that_is_replaced_is_shown_to_the_next_peer() {
    let (dir, ca, other) = (TempDir::new().unwrap(), Ca::new(), Ca::new());
    let server =
        ServerTls::hold(held(&ca, &dir.path().join("a"), vec![loopback()]), domain()).unwrap();
    let address = serve_strangers(&server, StrangerLimits::default()).await;
    let next = ClientTls::pinned(&[pin_of(&other)]).unwrap();
    assert!(dial(&next, address).await.is_err());
    server
        .replace(held(&other, &dir.path().join("b"), vec![loopback()]))
        .unwrap();
    assert_eq!(dial_and_ask(&next, address).await.unwrap(), "stranger");
}
