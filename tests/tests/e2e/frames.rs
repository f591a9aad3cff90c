//! Spoiled frames and spoiled requests for certificates: whatever the bytes, the hub lives, other agents are served, no
//! forge is called, and nobody else's name is certified.
//!
//! `FUZZ_ROUNDS` makes more rounds than a test run has time for, `FUZZ_SEED` begins with another seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use jiff::Timestamp;
use nabu_common::identity::{TrustDomain, identity_of_certificate};
use nabu_common::ids::ClusterId;
use nabu_common::tls::{ClientTls, TlsFiles};
use nabu_hub::authority::signer::{RequestedKey, Signer};
use nabu_hub::pki::Subject;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    Applied, Heartbeat, RenewCertificate, SessionRequest, SnapshotBegin, SnapshotEnd, StatusRefused,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::mangle::mangle_bytes;
use nabu_tests::objects::noop_config;
use nabu_tests::raw::RawCodec;
use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rcgen::{CertificateParams, KeyPair, PKCS_ED25519, SanType};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};

use crate::hostile::{forge_calls, observation, serves_others, until, welcomed};
use crate::identity::hello;

/// Sessions that one cluster has with spoiled frames.
const ROUNDS_OF_A_CLUSTER: u64 = 10;

fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.map_or(default, |text| text.parse().expect("a number"))
}

/// The seeds with which a reader of bytes falls over.
fn seeds_that_panic(rounds: u64, mut read: impl FnMut(u64)) -> Vec<u64> {
    let first = setting("FUZZ_SEED", 0);
    let seeds = first..first + setting("FUZZ_ROUNDS", rounds);
    let falls = |seed: &u64| catch_unwind(AssertUnwindSafe(|| read(*seed))).is_err();
    seeds.filter(falls).collect()
}

/// Frames as honest agents send them.
fn honest_frames() -> Vec<Frame> {
    vec![
        Frame::Hello(hello("a")),
        Frame::Observed(observation(1, "er-1")),
        Frame::Heartbeat(Heartbeat::default()),
        Frame::SnapshotBegin(SnapshotBegin { snapshot_id: 1 }),
        Frame::SnapshotEnd(SnapshotEnd {
            snapshot_id: 1,
            count: 1,
        }),
        Frame::Applied(Applied {
            uid: "00000000-0000-4000-8000-000000000001".to_owned(),
            revision: 1,
        }),
        Frame::StatusRefused(StatusRefused {
            uid: "00000000-0000-4000-8000-000000000001".to_owned(),
            revision: 1,
            reason: "Invalid".to_owned(),
        }),
        Frame::RenewCertificate(RenewCertificate {
            csr_der: request().into(),
        }),
    ]
}

fn encoded(frame: Frame) -> Vec<u8> {
    SessionRequest { frame: Some(frame) }.encode_to_vec()
}

/// Bytes of one frame: spoiled ones, or any at all.
fn spoiled(seed: u64) -> Vec<u8> {
    let rng = &mut StdRng::seed_from_u64(seed);
    if rng.random_ratio(1, 8) {
        let length = rng.random_range(0..4096);
        return (0..length).map(|_| rng.random()).collect();
    }
    let frames = honest_frames();
    let mut bytes = encoded(frames[rng.random_range(0..frames.len())].clone());
    for _ in 0..rng.random_range(1..4) {
        bytes = mangle_bytes(&bytes, rng);
    }
    bytes
}

/// The key and certificate request of an honest agent.
fn request() -> Vec<u8> {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    params.serialize_request(&key).unwrap().der().to_vec()
}

/// Speaks in bytes.
async fn raw_channel(hub: &TestHub, cluster: &str) -> Result<Channel> {
    let folder = hub.dir().join("agents").join(cluster);
    let tls = ClientTls::load(TlsFiles::in_folder(&folder))?;
    let endpoint = Endpoint::from_shared(hub.agents_url())?;
    Ok(endpoint.connect_with_connector(tls.connector(None)).await?)
}

/// One session: the first frames are right or not, the last one is spoiled. Gives how many answers there were.
async fn session(channel: &Channel, frames: Vec<Vec<u8>>) -> Result<usize> {
    let (outgoing, all) = mpsc::channel(64);
    for frame in frames {
        outgoing.send(Bytes::from(frame)).await?;
    }
    drop(outgoing);
    let mut client = Grpc::new(channel.clone());
    client.ready().await?;
    let path = http::uri::PathAndQuery::from_static("/nabu.agent.v1.AgentService/Session");
    let request = tonic::Request::new(ReceiverStream::new(all));
    let mut answers = 0;
    let Ok(stream) = client.streaming(request, path, RawCodec).await else {
        return Ok(0);
    };
    let mut stream = stream.into_inner();
    let reading = async {
        while let Ok(Some(_)) = stream.message().await {
            answers += 1;
        }
    };
    // The stream ends with our side of it.
    tokio::time::timeout(Duration::from_mins(1), reading).await?;
    Ok(answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_frames_end_their_session_at_most_and_reach_no_forge() -> Result<()> {
    // Nobody hears of the honest one until the last of the others is through.
    let options = HubOptions {
        arguments: ["--heartbeat-seconds", "600"].map(str::to_owned).to_vec(),
        ..HubOptions::default()
    };
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let mut honest = welcomed(&hub, "prod-us").await?;
    let first = setting("FUZZ_SEED", 0);
    let (mut answered, rounds) = (0, setting("FUZZ_ROUNDS", 300));
    let mut channel = None;
    for seed in first..first + rounds {
        // What a cluster has spent of its bounds, it would lack in the next rounds.
        if (seed - first).is_multiple_of(ROUNDS_OF_A_CLUSTER) {
            let cluster = format!("prod-eu-{seed}");
            hub.issue_agent(&cluster)?;
            channel = Some(raw_channel(&hub, &cluster).await?);
        }
        let channel = channel.as_ref().context("no channel")?;
        let mut frames = Vec::new();
        // Most of them get past the door.
        if seed % 5 != 0 {
            frames.push(encoded(Frame::Hello(hello("a"))));
        }
        frames.extend((0..8).map(|number| spoiled(seed * 8 + number)));
        answered += usize::from(session(channel, frames).await? > 0);
    }
    assert!(answered > 0, "no session was opened");
    honest.say(Frame::Heartbeat(Heartbeat::default())).await?;
    until(&mut honest, |answer| {
        matches!(answer, Answer::HeartbeatAck(_)).then_some(())
    })
    .await?;
    drop(honest);
    let log = hub.log();
    assert!(!log.contains("panicked at"), "{}", panics(&log));
    // What was spoiled so little that it is still an EventResponse is served; all else reached no forge.
    let stored = "SELECT count(*) FROM responses WHERE cluster LIKE 'prod-eu%'";
    let stored: u32 = crate::identity::sqlite(&hub, stored)?.trim().parse()?;
    assert!(forge_calls(&hub).await? <= f64::from(stored));
    serves_others(&hub).await
}

fn panics(log: &str) -> String {
    let lines = log.lines().filter(|line| line.contains("panicked at"));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn spoiled_requests_never_get_a_certificate_for_another_name() {
    nabu_common::tls::install_crypto_provider();
    let domain: TrustDomain = "nabu".parse().unwrap();
    let now = Timestamp::now();
    let (signer, _) = Signer::generate(&domain, now).unwrap();
    let cluster: ClusterId = "prod-eu".parse().unwrap();
    let requests = requests();
    let (mut taken, mut refused) = (0, 0);
    let fallen = seeds_that_panic(3000, |seed| {
        let rng = &mut StdRng::seed_from_u64(seed);
        let mut bytes = requests[rng.random_range(0..requests.len())].clone();
        for _ in 0..rng.random_range(0..4) {
            bytes = mangle_bytes(&bytes, rng);
        }
        let Ok(key) = RequestedKey::of_request(&bytes) else {
            refused += 1;
            return;
        };
        taken += 1;
        let lifetime = Duration::from_hours(1);
        let subject = Subject::cluster(&cluster);
        let issued = signer.sign(&subject, &domain, &key, now, lifetime).unwrap();
        let identity = identity_of_certificate(&issued.certificate, &domain).unwrap();
        assert_eq!(identity.to_string(), "cluster/prod-eu", "seed {seed}");
    });
    assert_eq!(fallen, Vec::<u64>::new());
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
}

/// Requests of all kinds: honest ones, with names that are not asked for, as text, and no request at all.
fn requests() -> Vec<Vec<u8>> {
    let key = KeyPair::generate().unwrap();
    let mut evil = CertificateParams::new(vec!["hub.example.com".to_owned()]).unwrap();
    let root = "spiffe://nabu/admin/root".try_into().unwrap();
    evil.subject_alt_names.push(SanType::URI(root));
    let evil = evil.serialize_request(&key).unwrap();
    let other = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let params = CertificateParams::new(Vec::new()).unwrap();
    let other = params.serialize_request(&other).unwrap();
    vec![
        request(),
        evil.der().to_vec(),
        evil.pem().unwrap().into_bytes(),
        other.der().to_vec(),
        params.self_signed(&key).unwrap().der().to_vec(),
        key.serialize_der(),
    ]
}

#[test]
fn a_reader_that_falls_over_is_found() {
    let fallen = seeds_that_panic(200, |seed| {
        let bytes = spoiled(seed);
        if bytes.first() == Some(&0x12) {
            // A panic, without its words in the log of the tests.
            std::panic::resume_unwind(Box::new("planted"));
        }
    });
    assert!(!fallen.is_empty());
    let log = "INFO served\nthread 'tokio-rt-worker' panicked at hub/src/x.rs:1:1:\n";
    assert!(panics(log).contains("hub/src/x.rs"));
}
