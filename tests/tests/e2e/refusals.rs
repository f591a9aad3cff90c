//! Who gets no session, no certificate and no answer, and why; over real TLS.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use nabu_common::tls::{CaPin, ClientTls, TlsCredentials};
use nabu_hub::pki::{Authority, Subject};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::agent_v1::agent_service_client::AgentServiceClient;
use nabu_proto::agent_v1::enrolment_service_client::EnrolmentServiceClient;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    EnrolRequest, EnrolResponse, GoodbyeReason, Heartbeat, Hello, Observed, SessionRequest,
};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::wait::eventually;
use rcgen::{CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::bed::{LIMIT, eu, unique};
use crate::identity::sqlite;

const HOUR: Duration = Duration::from_hours(1);

async fn hub(options: HubOptions) -> Result<TestHub> {
    TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await
}

async fn channel(hub: &TestHub, tls: &ClientTls) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(hub.agents_url())?;
    Ok(endpoint.connect_with_connector(tls.connector(None)).await?)
}

/// What makes a certificate another one.
type Change = Box<dyn FnOnce(&mut CertificateParams)>;

/// The first answer to Hello, and what it was said on.
pub(crate) type Said = (
    Answer,
    mpsc::Sender<SessionRequest>,
    Streaming<nabu_proto::agent_v1::SessionResponse>,
);

pub(crate) async fn say_hello(hub: &TestHub, tls: &ClientTls) -> Result<Said> {
    say_hello_at(hub, tls, None).await
}

async fn say_hello_at(hub: &TestHub, tls: &ClientTls, at: Option<jiff::Timestamp>) -> Result<Said> {
    let (frames, outgoing) = mpsc::channel(16);
    let hello = Hello {
        protocol_version: PROTOCOL_VERSION,
        kube_system_uid: "a".to_owned(),
        sent_at: at.map(|at| prost_types::Timestamp {
            seconds: at.as_second(),
            nanos: at.subsec_nanosecond(),
        }),
        ..Hello::default()
    };
    let frame = Some(Frame::Hello(hello));
    frames.send(SessionRequest { frame }).await?;
    let mut client = AgentServiceClient::new(channel(hub, tls).await?)
        .max_encoding_message_size(64 * 1024 * 1024);
    let outgoing = ReceiverStream::new(outgoing);
    let mut answers = client.session(outgoing).await?.into_inner();
    let answer = answers.message().await?.context("the stream ended")?;
    Ok((answer.frame.context("an empty frame")?, frames, answers))
}

/// A certificate of the hub's authority, in the form that a test wants.
pub(crate) fn certificate(
    hub: &TestHub,
    change: impl FnOnce(&mut CertificateParams),
) -> Result<ClientTls> {
    let (key, made, ca) = certified(hub, change)?;
    Ok(ClientTls::hold(TlsCredentials {
        roots: vec![CertificateDer::from_pem_slice(ca.as_bytes())?],
        chain: vec![made.der().clone()],
        key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
    })?)
}

/// The same as files in a folder.
pub(crate) fn certificate_into(
    hub: &TestHub,
    folder: &Path,
    change: impl FnOnce(&mut CertificateParams),
) -> Result<()> {
    let (key, made, ca) = certified(hub, change)?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("ca.crt"), ca)?;
    std::fs::write(folder.join("tls.crt"), made.pem())?;
    Ok(std::fs::write(folder.join("tls.key"), key.serialize_pem())?)
}

fn certified(
    hub: &TestHub,
    change: impl FnOnce(&mut CertificateParams),
) -> Result<(KeyPair, rcgen::Certificate, String)> {
    let pki = hub.dir().join("pki");
    let ca = std::fs::read_to_string(pki.join("ca.crt"))?;
    let key = KeyPair::from_pem(&std::fs::read_to_string(pki.join("ca.key"))?)?;
    let issuer = Issuer::from_ca_cert_pem(&ca, key)?;
    let mut params = CertificateParams::new(Vec::new())?;
    params.subject_alt_names = vec![uri("spiffe://nabu/cluster/prod-eu")?];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    change(&mut params);
    let key = KeyPair::generate()?;
    let made = params.signed_by(&key, &issuer)?;
    Ok((key, made, ca))
}

pub(crate) fn uri(text: &str) -> Result<SanType> {
    Ok(SanType::URI(text.try_into()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_is_not_right_in_every_way_opens_no_session() -> Result<()> {
    let hub = hub(HubOptions::default()).await?;
    let good = certificate(&hub, |_| {})?;
    let (answer, ..) = say_hello(&hub, &good).await?;
    ensure!(matches!(answer, Answer::Welcome(_)), "{answer:?}");
    let now = SystemTime::now();
    let wrong: [(&str, &str, Change); 6] = [
        (
            "it has run out",
            "Expired",
            Box::new(move |params| {
                params.not_before = (now - 2 * HOUR).into();
                params.not_after = (now - HOUR).into();
            }),
        ),
        (
            "it is not valid yet",
            "NotYetValid",
            Box::new(move |params| params.not_before = (now + HOUR).into()),
        ),
        (
            "it is for servers",
            "BadCertificate",
            Box::new(|params| {
                params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
        ),
        (
            "it names two clusters",
            "WrongName",
            Box::new(|params| {
                let other = uri("spiffe://nabu/cluster/prod-us").unwrap();
                params.subject_alt_names.push(other);
            }),
        ),
        (
            "it is of another trust domain",
            "WrongName",
            Box::new(|params| {
                params.subject_alt_names = vec![uri("spiffe://other/cluster/prod-eu").unwrap()];
            }),
        ),
        (
            "it names nobody",
            "WrongName",
            Box::new(|params| params.subject_alt_names.clear()),
        ),
    ];
    for (what, reason, change) in wrong {
        let tls = certificate(&hub, change)?;
        let before = counted(&hub, "agents", reason).await?;
        let refused = say_hello(&hub, &tls).await;
        ensure!(refused.is_err(), "{what}, and it got an answer");
        is_counted(&hub, "agents", reason, before).await?;
    }
    Ok(())
}

/// Connections that were refused at a door for a reason.
pub(crate) async fn counted(hub: &TestHub, door: &str, reason: &str) -> Result<f64> {
    let series =
        format!("nabu_hub_connections_refused_total{{door=\"{door}\",reason=\"{reason}\"}}");
    hub.metric(&series).await
}

/// Waits until there is one more: the peer may know before the hub has counted.
async fn is_counted(hub: &TestHub, door: &str, reason: &str, before: f64) -> Result<()> {
    let what = format!("one more of {reason} at {door}");
    eventually(&what, LIMIT, || async {
        let now = counted(hub, door, reason).await.ok()?;
        (now > before).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn old_tls_and_no_tls_get_nothing() -> Result<()> {
    let hub = hub(HubOptions::default()).await?;
    for (door, url) in [("agents", hub.agents_url()), ("admin", hub.admin_url())] {
        let address = url.trim_start_matches("https://").to_owned();
        let (host, port) = address.split_once(':').context("no port")?;
        let script = "import socket, ssl, sys\n\
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)\n\
            context.check_hostname = False\n\
            context.verify_mode = ssl.CERT_NONE\n\
            newest = getattr(ssl.TLSVersion, sys.argv[3])\n\
            context.maximum_version = newest\n\
            try:\n    context.wrap_socket(socket.create_connection((sys.argv[1], int(sys.argv[2])), 10))\n\
            except ssl.SSLError as error:\n    sys.exit('refused: ' + str(error))\n\
            print('shaken hands')\n";
        let dial = |version: &str| {
            std::process::Command::new("python3")
                .args(["-c", script, host, port, version])
                .output()
        };
        let old = dial("TLSv1_2")?;
        let said = String::from_utf8_lossy(&old.stderr).to_ascii_lowercase();
        ensure!(!old.status.success() && said.contains("version"), "{said}");
        // The same dialler with the newest version gets as far as its missing certificate.
        is_counted(&hub, door, "Protocol", 0.0).await?;
        ensure!(dial("TLSv1_3")?.status.success());
        // It goes away without having shown one, or is told to.
        eventually(
            "the one without a certificate is counted",
            LIMIT,
            || async {
                let without = counted(&hub, door, "NoCertificate").await.ok()?;
                let gone = counted(&hub, door, "BrokenOff").await.ok()?;
                (without + gone > 0.0).then_some(())
            },
        )
        .await?;

        let mut plain = TcpStream::connect(&address).await?;
        plain.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
        let mut answer = Vec::new();
        // The connection may be reset; either way it ends.
        let _ = plain.read_to_end(&mut answer).await;
        ensure!(answer.len() < 16, "{answer:?} is more than an alert");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_that_is_too_large_ends_its_session_and_no_other() -> Result<()> {
    let hub = hub(HubOptions::default()).await?;
    let large = certificate(&hub, |_| {})?;
    let other = certificate(&hub, |params| {
        params.subject_alt_names = vec![uri("spiffe://nabu/cluster/prod-us").unwrap()];
    })?;
    let (_, frames, mut answers) = say_hello(&hub, &large).await?;
    let (_, other_frames, mut other_answers) = say_hello(&hub, &other).await?;
    let observed = Observed {
        responder_name: "x".repeat(2 * 1024 * 1024),
        ..Observed::default()
    };
    let frame = Some(Frame::Observed(observed));
    frames.send(SessionRequest { frame }).await?;
    let ended = async { while let Ok(Some(_)) = answers.message().await {} };
    ended.await;
    let beat = Some(Frame::Heartbeat(Heartbeat::default()));
    other_frames.send(SessionRequest { frame: beat }).await?;
    let answer = other_answers.message().await?.context("it ended as well")?;
    ensure!(
        matches!(answer.frame, Some(Answer::HeartbeatAck(_))),
        "{answer:?}"
    );
    Ok(())
}

/// An agent that has nothing but a pin.
async fn stranger(hub: &TestHub, added: &Value) -> Result<EnrolmentServiceClient<Channel>> {
    stranger_from(hub, added, [127, 0, 0, 1].into()).await
}

/// The same from another address of the machine.
pub(crate) async fn stranger_from(
    hub: &TestHub,
    added: &Value,
    address: IpAddr,
) -> Result<EnrolmentServiceClient<Channel>> {
    let pins = added["caPins"].as_array().context("no pins")?.iter();
    let pins: Result<Vec<CaPin>, _> = pins.filter_map(Value::as_str).map(str::parse).collect();
    let tls = ClientTls::pinned(&pins.map_err(anyhow::Error::msg)?)?;
    let connector = tls.connector(None).from_address(address);
    let endpoint = Endpoint::from_shared(hub.agents_url())?;
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(EnrolmentServiceClient::new(channel).max_encoding_message_size(64 * 1024 * 1024))
}

fn request(token: &str, cluster: &str, key: &KeyPair) -> Result<EnrolRequest> {
    let csr = CertificateParams::new(Vec::new())?.serialize_request(key)?;
    Ok(EnrolRequest {
        token: token.to_owned(),
        cluster_id: cluster.to_owned(),
        csr_der: csr.der().to_vec().into(),
    })
}

fn token(added: &Value) -> Result<&str> {
    added["token"].as_str().context("no token")
}

/// Enrols, as an agent does that has a token.
pub(crate) async fn enrol(hub: &TestHub, added: &Value, cluster: &str) -> Result<ClientTls> {
    let key = KeyPair::generate()?;
    let mut client = stranger(hub, added).await?;
    let answer = client.enrol(request(token(added)?, cluster, &key)?).await?;
    credentials(&key, &answer.into_inner())
}

fn credentials(key: &KeyPair, answer: &EnrolResponse) -> Result<ClientTls> {
    let der = |bytes: &bytes::Bytes| CertificateDer::from(bytes.to_vec());
    let issued = answer.certificate.as_ref().context("no certificate")?;
    let bundle = answer.trust_bundle.as_ref().context("no authorities")?;
    Ok(ClientTls::hold(TlsCredentials {
        roots: bundle.authorities_der.iter().map(der).collect(),
        chain: issued.chain_der.iter().map(der).collect(),
        key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
    })?)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_token_that_is_not_good_is_refused_in_the_same_words_after_the_same_time()
-> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let key = KeyPair::generate()?;
    let used = hub.add_cluster("used", &[])?;
    let mut client = stranger(&hub, &used).await?;
    let first = client.enrol(request(token(&used)?, "used", &key)?).await?;
    // The answer was lost: the same key gets it again, however often it asks.
    for _ in 0..3 {
        let again = client.enrol(request(token(&used)?, "used", &key)?).await?;
        let chain = |answer: &EnrolResponse| answer.certificate.clone().map(|one| one.chain_der);
        ensure!(chain(again.get_ref()) == chain(first.get_ref()));
    }
    let made = "SELECT count(*) FROM certificates WHERE identity = 'cluster/used'";
    ensure!(sqlite(&hub, made)? == "1\n");
    let short = hub.add_cluster("short", &["--ttl", "1s"])?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let foreign = hub.add_cluster("foreign", &[])?;
    let revoked = hub.add_cluster("revoked", &[])?;
    let id = revoked["tokenId"].as_str().context("no id")?;
    hub.nabuctl(&["cluster", "token", "revoke", id])?;
    let guess = format!("nabu1.foreign.{}", "A".repeat(43));
    let mut refusals: Vec<(Code, String)> = Vec::new();
    for (text, cluster) in [
        (token(&used)?, "used"),
        (token(&short)?, "short"),
        (token(&foreign)?, "another"),
        (token(&foreign)?, "Not A Cluster"),
        (token(&revoked)?, "revoked"),
        (&guess, "foreign"),
        ("", ""),
    ] {
        let other = KeyPair::generate()?;
        // A connection without a certificate does not last for all of them.
        let mut client = stranger(&hub, &used).await?;
        let began = Instant::now();
        let refused: Status = client
            .enrol(request(text, cluster, &other)?)
            .await
            .err()
            .with_context(|| format!("{cluster} was let in"))?;
        ensure!(began.elapsed() >= Duration::from_secs(1), "{cluster}");
        refusals.push((refused.code(), refused.message().to_owned()));
    }
    refusals.dedup();
    ensure!(refusals.len() == 1, "{refusals:?}");
    ensure!(refusals[0].0 == Code::PermissionDenied, "{refusals:?}");
    // What was tried with the wrong cluster id is not used up.
    enrol(&hub, &foreign, "foreign").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_guesses_ten_thousand_times_is_stopped_and_the_right_token_stays_good()
-> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let responder = unique("responder");
    let arguments = ["--responder", &responder, "--leader-elect=false"];
    let mut agent = TestAgent::prepare_join(eu().await, "prod-eu", &hub, None, &arguments)?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let key = KeyPair::generate()?;
    let evil: IpAddr = [127, 6, 6, 6].into();
    let mut client = stranger_from(&hub, &added, evil).await?;
    let mut counts = std::collections::BTreeMap::<String, u32>::new();
    let mut tried = 0;
    while tried < 10_000 {
        let guess = format!("nabu1.prod-eu.{tried:0>43}");
        match client.enrol(request(&guess, "prod-eu", &key)?).await {
            Ok(_) => anyhow::bail!("a guess was taken"),
            // A connection without a certificate does not last; the next call opens another one.
            Err(status)
                if matches!(
                    status.code(),
                    Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled
                ) =>
            {
                client = stranger_from(&hub, &added, evil).await?;
            }
            Err(status) => {
                tried += 1;
                *counts.entry(format!("{:?}", status.code())).or_default() += 1;
            }
        }
    }
    let limited = counts.get("ResourceExhausted").copied().unwrap_or_default();
    ensure!(limited > 9_900, "{counts:?}");
    let audited = hub
        .metric("nabu_hub_enrolments_total{result=\"refused\"}")
        .await?;
    ensure!(
        audited < 100.0,
        "{audited} refusals were looked into and audited"
    );
    // From another address there is nothing to wait for.
    agent.start_again().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_from_ever_new_addresses_fill_the_audit_log_no_further_than_its_budget()
-> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let key = KeyPair::generate()?;
    let mut words = std::collections::BTreeSet::new();
    let mut refused = 0;
    for network in 0..6 {
        let guesses = (1..=60).map(|host| {
            let (hub, added, key) = (&hub, &added, &key);
            async move {
                let from = [127, 7, network, host].into();
                let mut client = stranger_from(hub, added, from).await?;
                let guess = format!("nabu1.prod-eu.{host:0>43}");
                let answer = client.enrol(request(&guess, "prod-eu", key)?).await;
                anyhow::Ok(answer.err().context("a guess was taken")?)
            }
        });
        for status in futures::future::join_all(guesses).await {
            // Under so many, a connection may be turned away.
            if let Ok(status) = status
                && status.code() == Code::PermissionDenied
            {
                refused += 1;
                words.insert(status.message().to_owned());
            }
        }
    }
    ensure!(refused > 200, "{refused}");
    ensure!(words.len() == 1, "{words:?}");
    let lines = "SELECT count(*) FROM audit WHERE action = 'EnrolmentRefused'";
    let lines: u32 = sqlite(&hub, lines)?.trim().parse()?;
    // One more for each six seconds that this took.
    ensure!(
        (100..180).contains(&lines),
        "{lines} lines for {refused} refusals"
    );
    let mut honest = stranger(&hub, &added).await?;
    let right = request(token(&added)?, "prod-eu", &key)?;
    honest.enrol(right).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_may_enrol_and_nothing_else() -> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let pins: Vec<CaPin> = vec![
        added["caPins"][0]
            .as_str()
            .context("no pin")?
            .parse()
            .map_err(anyhow::Error::msg)?,
    ];
    let tls = ClientTls::pinned(&pins)?;
    let refused = say_hello(&hub, &tls).await.err().context("it got in")?;
    let status = refused.downcast_ref::<Status>().context("no status")?;
    ensure!(status.code() == Code::Unimplemented, "{status:?}");
    // Too large a request is not read.
    let key = KeyPair::generate()?;
    let mut client = stranger(&hub, &added).await?;
    let huge = request(&"x".repeat(1024 * 1024), "prod-eu", &key)?;
    let refused = client.enrol(huge).await.err().context("it was taken")?;
    ensure!(refused.code() != Code::PermissionDenied, "{refused:?}");
    // The admin door has no room for strangers at all.
    let endpoint = Endpoint::from_shared(hub.admin_url())?;
    let admin = endpoint.connect_with_connector(tls.connector(None)).await;
    let listed = match admin {
        Ok(channel) => {
            let mut admin =
                nabu_proto::admin_v1::admin_service_client::AdminServiceClient::new(channel);
            admin
                .list_clusters(nabu_proto::admin_v1::ListClustersRequest::default())
                .await
                .is_ok()
        }
        Err(_) => false,
    };
    ensure!(!listed);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_whose_successor_is_in_use_opens_no_session() -> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let mut certificates = Vec::new();
    for _ in 0..2 {
        let added = hub.add_cluster("prod-eu", &[])?;
        let key = KeyPair::generate()?;
        let mut client = stranger(&hub, &added).await?;
        let answer = client
            .enrol(request(token(&added)?, "prod-eu", &key)?)
            .await?;
        certificates.push(credentials(&key, &answer.into_inner())?);
    }
    for (number, wanted_in) in [(0, true), (1, true), (0, false), (1, true)] {
        let (answer, ..) = say_hello(&hub, &certificates[number]).await?;
        match answer {
            Answer::Welcome(_) => ensure!(wanted_in, "{number} was let in"),
            Answer::Goodbye(goodbye) => {
                ensure!(!wanted_in, "{number}: {goodbye:?}");
                let reason = goodbye.reason();
                ensure!(reason == GoodbyeReason::CertificateOutdated, "{reason:?}");
            }
            other => anyhow::bail!("{other:?}"),
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hubs_own_authority_certifies_and_no_other_opens_its_doors() -> Result<()> {
    let hub = hub(HubOptions::certifying(&[])).await?;
    let folder = tempfile::tempdir()?;
    let other = Authority::create(&folder.path().join("pki"), "nabu")?;
    let out = folder.path().join("out");
    other.issue_into(&Subject::cluster(&"prod-eu".parse()?), &out)?;
    std::fs::copy(hub.admin_tls().join("ca.crt"), out.join("ca.crt"))?;
    let tls = ClientTls::load(nabu_common::tls::TlsFiles::in_folder(&out))?;
    ensure!(say_hello(&hub, &tls).await.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_clock_is_an_hour_off_is_served_and_told() -> Result<()> {
    let hub = hub(HubOptions::default()).await?;
    let tls = certificate(&hub, |_| {})?;
    let later = jiff::Timestamp::now() + HOUR;
    let (answer, ..) = say_hello_at(&hub, &tls, Some(later)).await?;
    let Answer::Welcome(welcome) = answer else {
        anyhow::bail!("{answer:?}")
    };
    let skew = welcome.clock_skew.context("no skew")?;
    ensure!((3000..=3600).contains(&skew.seconds), "{skew:?}");
    let metric = "nabu_hub_cluster_clock_skew_seconds{cluster=\"prod-eu\"}";
    ensure!(hub.metric(metric).await? > 3000.0);
    Ok(())
}
