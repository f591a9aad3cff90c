//! Many who knock and do not come in, and those who come in byte by byte: they are cut, and nobody else notices.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::process::free_port;
use nabu_tests::wait::eventually;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tonic::transport::Uri;
use tower::Service as _;

use crate::bed::{ForgeBed, LIMIT, eu, small_change};
use crate::hostile::serves_others;
use crate::refusals::counted;

/// Connections that never come in.
const FLOOD: usize = 10_000;
/// Handshakes that the hub has under way at one time, and of one address.
const ALL: usize = 1024;
const FROM_ONE_ADDRESS: usize = 256;

fn address(url: &str) -> Result<SocketAddr> {
    Ok(url.trim_start_matches("https://").parse()?)
}

/// Room for so many connections in this process and in those that it starts.
fn allow_open_files(wanted: u64) -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    let maximum = limit.maximum.unwrap_or(u64::MAX);
    ensure!(
        maximum >= wanted,
        "ulimit -Hn is {maximum}; this needs {wanted}"
    );
    let current = limit.current.unwrap_or(u64::MAX).max(wanted);
    let current = Some(current.min(maximum));
    Ok(setrlimit(Resource::Nofile, Rlimit { current, ..limit })?)
}

/// Half of a handshake on each of many connections; whoever is cut comes again after a while.
struct Flood {
    opened: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Flood {
    fn start(to: SocketAddr, sources: impl Iterator<Item = Ipv4Addr>) -> Self {
        let opened = Arc::new(AtomicUsize::new(0));
        let mut connections = JoinSet::new();
        for source in sources {
            let opened = Arc::clone(&opened);
            connections.spawn(async move {
                let mut counted = false;
                loop {
                    if let Ok(mut stream) = knock(source, to).await {
                        if !std::mem::replace(&mut counted, true) {
                            opened.fetch_add(1, Ordering::Relaxed);
                        }
                        let _ = stream.read(&mut [0]).await;
                    }
                    tokio::time::sleep(Duration::from_secs(20)).await;
                }
            });
        }
        Self {
            opened,
            _connections: connections,
        }
    }
}

async fn knock(from: Ipv4Addr, to: SocketAddr) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((from, 0).into())?;
    let mut stream = socket.connect(to).await?;
    // The head of a ClientHello that is never finished.
    stream
        .write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")
        .await?;
    Ok(stream)
}

/// File descriptors that a process has open.
fn open_files(process: u32) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{process}/fd"))?.count())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_handshakes_that_never_end_cost_little_and_nobody_else_anything() -> Result<()>
{
    allow_open_files(FLOOD as u64 + 2000)?;
    let mut stage = ForgeBed::start().await?;
    let to = address(&stage.bed.hub.agents_url())?;
    let process = stage.bed.hub.process()?;
    let (hub, (memory_before, _)) = (process.id(), process.memory_kib()?);
    let files_before = open_files(hub)?;
    // A quarter comes from where the agents come from, the others from addresses with four each.
    let sources = (0..FLOOD).map(|number| match u32::try_from(number / 16).unwrap_or(0) {
        _ if number % 4 == 0 => Ipv4Addr::LOCALHOST,
        group => {
            Ipv4Addr::from_bits(0x7f40_0000 + group * 3 + u32::try_from(number % 4).unwrap_or(0))
        }
    });
    let flood = Flood::start(to, sources);
    let mut most_files = 0;
    eventually("everybody has knocked", LIMIT, || {
        most_files = most_files.max(open_files(hub).unwrap_or_default());
        let all = flood.opened.load(Ordering::Relaxed) >= FLOOD;
        async move { all.then_some(()) }
    })
    .await?;
    stage.bed.eu.kill()?;
    stage.bed.eu.start_again().await?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    most_files = most_files.max(open_files(hub)?);
    let (memory, _) = stage.bed.hub.process()?.memory_kib()?;
    drop(flood);
    ensure!(
        most_files - files_before > FROM_ONE_ADDRESS,
        "the flood did not reach the hub: {most_files}"
    );
    ensure!(
        most_files - files_before < ALL + 100,
        "{most_files} files are open, {files_before} before"
    );
    let grown = memory.saturating_sub(memory_before);
    ensure!(grown < 64 * 1024, "{grown} KiB more than before");
    println!(
        "at most {most_files} open files ({files_before} before), {grown} KiB more than {memory_before}"
    );
    Ok(())
}

/// What HTTP/2 begins with, and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// The head of a HEADERS frame of 16,000 bytes.
const HEADERS: &[u8] = b"\0\x3e\x80\x01\x05\0\0\0\x01";

/// Sends the first bytes at once and the others one by one; ends when the hub is through with it.
async fn is_cut(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    first: Vec<u8>,
    slowly: Vec<u8>,
) -> Result<()> {
    let dripping = async {
        stream.write_all(&first).await?;
        let (mut from, mut to) = tokio::io::split(stream);
        let writing = async {
            for byte in slowly.iter().chain(std::iter::repeat(&b'a')) {
                if to.write_all(&[*byte]).await.is_err() || to.flush().await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let mut rest = Vec::new();
        tokio::select! {
            () = writing => {}
            _ = from.read_to_end(&mut rest) => {}
        }
        anyhow::Ok(())
    };
    let ended = tokio::time::timeout(LIMIT, dripping).await;
    // An error of the connection is an end as well.
    ended.map(drop).context("it is still open")
}

async fn is_cut_by_tls(url: String, tls: ClientTls, first: Vec<u8>, slowly: Vec<u8>) -> Result<()> {
    let uri: Uri = url.parse()?;
    let connection = tls.connector(None).call(uri).await?;
    is_cut(connection.into_inner(), first, slowly).await
}

async fn is_cut_plain(to: SocketAddr, first: &str, slowly: &str) -> Result<()> {
    let stream = TcpStream::connect(to).await?;
    is_cut(stream, first.into(), slowly.into()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_speaks_byte_by_byte_is_cut_at_every_door_and_others_are_served() -> Result<()> {
    let webhooks: SocketAddr = format!("127.0.0.1:{}", free_port()?).parse()?;
    let arguments = ["--listen-webhooks", &webhooks.to_string()].map(str::to_owned);
    let options = HubOptions {
        arguments: arguments.to_vec(),
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let load = |folder: &std::path::Path| ClientTls::load(TlsFiles::in_folder(folder));
    let agent = load(&hub.issue_agent("prod-eu")?)?;
    let admin = load(&hub.admin_tls())?;
    let mut slow = JoinSet::new();
    for (url, tls) in [
        (hub.agents_url(), &agent),
        (hub.admin_url(), &admin),
        (hub.admin_url(), &agent),
    ] {
        for (first, slowly) in [
            (&[][..], PREFACE),
            (PREFACE, HEADERS),
            (&[PREFACE, HEADERS].concat(), b"a"),
        ] {
            for _ in 0..10 {
                let (first, slowly) = (first.to_vec(), slowly.to_vec());
                slow.spawn(is_cut_by_tls(url.clone(), tls.clone(), first, slowly));
            }
        }
    }
    for (first, slowly) in [
        ("", "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nX-Long: "),
        (
            "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nContent-Length: 999999\r\n\r\n",
            "{",
        ),
        (
            "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: sha256=00\r\nContent-Length: 9999\r\n\r\n",
            "{",
        ),
    ] {
        for _ in 0..40 {
            slow.spawn(is_cut_plain(webhooks, first, slowly));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    // More than there are places for webhooks.
    let answer = reqwest::Client::new()
        .post(format!("http://{webhooks}/webhooks/github"))
        .timeout(LIMIT)
        .send()
        .await?;
    ensure!(
        answer.status() == reqwest::StatusCode::UNAUTHORIZED,
        "{answer:?}"
    );
    serves_others(&hub).await?;
    hub.nabuctl(&["cluster", "list"])?;
    while let Some(cut) = slow.join_next().await {
        cut??;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_that_never_ends_its_request_is_cut_and_another_enrols() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::certifying(&[]),
    )
    .await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let pin = added["caPins"][0].as_str().context("no pin")?;
    let tls = ClientTls::pinned(&[pin.parse().map_err(anyhow::Error::msg)?])?;
    let mut slow = JoinSet::new();
    for (first, slowly) in [
        (Vec::new(), PREFACE),
        (PREFACE.to_vec(), HEADERS),
        (enrol_head(), &b"\0\x10\0\0\0\0\0\0\x01"[..]),
    ] {
        for _ in 0..8 {
            let (url, tls) = (hub.agents_url(), tls.clone());
            slow.spawn(is_cut_by_tls(url, tls, first.clone(), slowly.to_vec()));
        }
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    crate::refusals::enrol(&hub, &added, "prod-eu").await?;
    while let Some(cut) = slow.join_next().await {
        cut??;
    }
    Ok(())
}

/// Silent connections without a certificate that are open from each of a few addresses; whoever is cut comes again at
/// once.
struct Silence {
    opened: Arc<AtomicUsize>,
    _connections: JoinSet<()>,
}

impl Silence {
    fn start(url: &str, tls: &ClientTls, addresses: u8, each: usize) -> Result<Self> {
        let opened = Arc::new(AtomicUsize::new(0));
        let mut connections = JoinSet::new();
        let uri: Uri = url.parse()?;
        for number in 0..usize::from(addresses) * each {
            let last = u8::try_from(number % usize::from(addresses))?;
            let from = Ipv4Addr::new(127, 0, 9, last + 1);
            let mut connector = tls.connector(None).from_address(from.into());
            let (uri, opened) = (uri.clone(), Arc::clone(&opened));
            connections.spawn(async move {
                loop {
                    if let Ok(stream) = connector.call(uri.clone()).await {
                        opened.fetch_add(1, Ordering::Relaxed);
                        let _ = stream.into_inner().read(&mut [0]).await;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
        Ok(Self {
            opened,
            _connections: connections,
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_addresses_of_silent_strangers_keep_nobody_from_enrolling() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::certifying(&[]),
    )
    .await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let pin = added["caPins"][0].as_str().context("no pin")?;
    let tls = ClientTls::pinned(&[pin.parse().map_err(anyhow::Error::msg)?])?;
    // As many from each address as it may have, twice over what there is room for in all.
    let (addresses, each) = (8, 32);
    let silence = Silence::start(&hub.agents_url(), &tls, addresses, each)?;
    eventually("all of them have come", LIMIT, || async {
        let all = usize::from(addresses) * each;
        (silence.opened.load(Ordering::Relaxed) >= all).then_some(())
    })
    .await?;
    crate::refusals::enrol(&hub, &added, "prod-eu").await?;
    // Of a crowd like this some go for others, or find no room, over and over.
    eventually("some of them were sent away", LIMIT, || async {
        let gave_way = counted(&hub, "agents", "GaveWay").await.ok()?;
        let no_room = counted(&hub, "agents", "NoRoom").await.ok()?;
        (gave_way + no_room > 0.0).then_some(())
    })
    .await?;
    drop(silence);
    Ok(())
}

/// The whole head of a request to enrol: what follows is its body.
fn enrol_head() -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/nabu.agent.v1.EnrolmentService/Enrol"),
        (":authority", "127.0.0.1"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut block = Vec::new();
    for (name, value) in fields {
        // A literal without indexing and with a new name: RFC 7541, 6.2.2.
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap_or(0));
            block.extend_from_slice(text.as_bytes());
        }
    }
    let length = u8::try_from(block.len()).unwrap_or(0);
    let end_of_headers = 4;
    let head = [&[0, 0, length, 1, end_of_headers, 0, 0, 0, 1], &block[..]].concat();
    [PREFACE, &head].concat()
}
