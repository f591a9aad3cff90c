//! The whole receiver, over real connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use jiff::Timestamp;
use proptest::prelude::*;
use reqwest::StatusCode;
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::server::{Limits, serve_within};
use super::*;
use crate::change::CredentialRef;
use crate::credentials::{Credentials, Secret};
use crate::routes::handle::{ConfigMetrics, Document, Snapshot};

/// The key of [`STANDARD_SECRET`].
pub(super) const STANDARD_KEY: &[u8] = b"01234567890123456789012345678901";
/// A signing token of GitLab.
pub(super) const STANDARD_SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

/// A configuration with a route for each provider kind, Secret and value of `webhook-secret`.
pub(super) fn config(secrets: &[(&str, &str, &str)]) -> ConfigHandle {
    let credentials = Credentials::default();
    let of = |(_, name, value): &(&str, &str, &str)| {
        let reference = CredentialRef {
            namespace: "ns".to_owned(),
            name: (*name).to_owned(),
        };
        let values = [(secrets::KEY.to_owned(), (*value).to_owned())];
        (reference, Arc::new(Secret::new(values)))
    };
    credentials.replace(secrets.iter().map(of).collect::<HashMap<_, _>>());
    let route = |(kind, name, _): &(&str, &str, &str)| {
        let reference = if *kind == "github-app" {
            "appCredentialsRef"
        } else {
            "credentialsRef"
        };
        let mut provider =
            json!({"kind": kind, "repository": "acme/gitops", reference: {"name": name}});
        if *kind == "forgejo-token" {
            provider["baseURL"] = json!("https://forge.example");
        }
        json!({"provider": provider})
    };
    let routes: Vec<Value> = secrets.iter().map(route).collect();
    let handle = ConfigHandle::new(credentials, ConfigMetrics::default());
    let document = Document {
        origin: "a.yaml".to_owned(),
        namespace: "ns".to_owned(),
        name: "a".to_owned(),
        object: json!({"spec": {"routes": routes}}),
    };
    let verdicts = handle.apply(Snapshot {
        documents: vec![document],
        unreadable: Vec::new(),
    });
    assert!(verdicts[0].problems.is_empty(), "{}", verdicts[0]);
    handle
}

pub(super) fn tag(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

pub(super) fn github_signature(secret: &str, body: &[u8]) -> String {
    format!("sha256={}", hex::encode(tag(secret.as_bytes(), &[body])))
}

pub(super) fn standard_signature(id: &str, at: i64, body: &[u8]) -> String {
    let tag = tag(STANDARD_KEY, &[format!("{id}.{at}.").as_bytes(), body]);
    format!("v1,{}", STANDARD.encode(tag))
}

fn pull_request(repository: &str, head: &str, branch: &str) -> Vec<u8> {
    let body = json!({
        "action": "closed", "number": 7, "repository": {"full_name": repository},
        "pull_request": {"head": {
            "ref": branch, "label": branch, "sha": "x", "repo": {"full_name": head},
        }},
    });
    body.to_string().into_bytes()
}

fn merge_request(branch: &str) -> Vec<u8> {
    let body = json!({
        "object_kind": "merge_request", "project": {"path_with_namespace": "acme/infra/gitops"},
        "object_attributes": {"source_branch": branch, "source_project_id": 5, "target_project_id": 5},
    });
    body.to_string().into_bytes()
}

#[derive(Default)]
struct Heard(Mutex<Vec<Hint>>);

impl Nudge for Heard {
    fn nudge(&self, hint: Hint) {
        self.0.lock().unwrap().push(hint);
    }
}

struct Server {
    address: SocketAddr,
    heard: Arc<Heard>,
    metrics: WebhookMetrics,
    shutdown: CancellationToken,
    served: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        Self::start_within(Limits::default()).await
    }

    async fn start_within(limits: Limits) -> Self {
        nabu_common::tls::install_crypto_provider();
        let config = config(&[
            ("github-app", "hub-a", "gh-secret-a"),
            ("github-token", "hub-b", "gh-secret-b"),
            ("gitlab-token", "lab-a", "gl-token"),
            ("gitlab-token", "lab-b", STANDARD_SECRET),
            ("forgejo-token", "fj", "fj-secret"),
        ]);
        let heard = Arc::new(Heard::default());
        let nudge = Arc::clone(&heard) as _;
        let receiver = Receiver::new(config, nudge, &mut Registry::default());
        let metrics = receiver.metrics.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let refusals = nabu_common::tls::Refusals::default();
        let served = serve_within(limits, listener, receiver, refusals, shutdown.clone());
        let served = tokio::spawn(served);
        Self {
            address,
            heard,
            metrics,
            shutdown,
            served,
        }
    }

    async fn post(
        &self,
        forge: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> (StatusCode, String) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut request = client
            .post(format!("http://{}/webhooks/{forge}", self.address))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.body(body.to_vec()).send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    async fn post_github(&self, event: &str, delivery: &str, body: &[u8]) -> (StatusCode, String) {
        let signature = github_signature("gh-secret-b", body);
        let headers = [
            ("x-github-event", event),
            ("x-github-delivery", delivery),
            ("x-hub-signature-256", &*signature),
        ];
        self.post("github", &headers, body).await
    }

    /// Sends bytes as they are, and gives back what comes until the connection ends.
    async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn heard(&self) -> Vec<Hint> {
        std::mem::take(&mut self.heard.0.lock().unwrap())
    }

    fn counted(&self, forge: ForgeKind, result: &'static str) -> u64 {
        self.metrics.counted(forge, result)
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.served.await.unwrap();
    }
}

fn hint(forge: ForgeKind, repository: &str, branch: &str) -> Hint {
    Hint {
        forge,
        repository: repository.to_owned(),
        branch: branch.to_owned(),
    }
}

#[tokio::test]
async fn a_signed_pull_request_of_github_is_a_hint_once() {
    let server = Server::start().await;
    let body = pull_request("acme/gitops", "acme/gitops", "nabu/prod/1");
    for expected in [StatusCode::ACCEPTED, StatusCode::OK] {
        let (status, text) = server.post_github("pull_request", "d1", &body).await;
        assert_eq!((status, &*text), (expected, ""));
    }
    let expected = hint(ForgeKind::GitHub, "acme/gitops", "nabu/prod/1");
    assert_eq!(server.heard(), [expected]);
    assert_eq!(server.counted(ForgeKind::GitHub, "accepted"), 1);
    assert_eq!(server.counted(ForgeKind::GitHub, "duplicate"), 1);
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_signed_does_nothing_and_learns_nothing() {
    let server = Server::start().await;
    let body = pull_request("acme/gitops", "acme/gitops", "nabu/prod/1");
    let good = github_signature("gh-secret-a", &body);
    let mut flipped = good.clone().into_bytes();
    *flipped.last_mut().unwrap() ^= 1;
    let attempts = [
        None,
        Some(String::new()),
        Some("sha256=".to_owned()),
        Some("sha256=zz".to_owned()),
        Some(good["sha256=".len()..].to_owned()),
        Some(good.replace("sha256=", "sha1=")),
        Some(String::from_utf8(flipped).unwrap()),
        Some(github_signature("fj-secret", &body)),
        Some(github_signature("", &body)),
        Some(github_signature("gh-secret-a", b"{}")),
    ];
    let count = attempts.len() as u64;
    for signature in attempts {
        let mut headers = vec![("x-github-event", "pull_request")];
        if let Some(signature) = &signature {
            headers.push(("x-hub-signature-256", signature));
        }
        let (status, text) = server.post("github", &headers, &body).await;
        assert_eq!(
            (status, &*text),
            (StatusCode::UNAUTHORIZED, ""),
            "{signature:?}"
        );
    }
    assert_eq!(server.heard(), []);
    assert_eq!(server.counted(ForgeKind::GitHub, "unsigned"), count);
    server.stop().await;
}

#[tokio::test]
async fn forgejo_and_gitea_are_understood_under_both_names() {
    let server = Server::start().await;
    let body = pull_request("acme/gitops", "acme/gitops", "nabu/prod/1");
    let signature = hex::encode(tag(b"fj-secret", &[&body]));
    for (number, brand) in ["forgejo", "gitea"].into_iter().enumerate() {
        let headers = [
            (&*format!("x-{brand}-event"), "pull_request"),
            (&*format!("x-{brand}-delivery"), &*number.to_string()),
            (&*format!("x-{brand}-signature"), &*signature),
        ];
        let (status, _) = server.post("forgejo", &headers, &body).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{brand}");
    }
    let expected = hint(ForgeKind::Forgejo, "acme/gitops", "nabu/prod/1");
    assert_eq!(server.heard(), [expected.clone(), expected]);
    server.stop().await;
}

#[tokio::test]
async fn gitlab_is_understood_with_a_secret_token_and_with_a_signing_token() {
    let server = Server::start().await;
    let body = merge_request("nabu/prod/1");
    let event = ("x-gitlab-event", "Merge Request Hook");
    let with_token = [event, ("x-gitlab-token", "gl-token")];
    assert_eq!(
        server.post("gitlab", &with_token, &body).await.0,
        StatusCode::ACCEPTED
    );

    let now = Timestamp::now().as_second();
    for (age, expected) in [(0, StatusCode::ACCEPTED), (400, StatusCode::UNAUTHORIZED)] {
        let (id, at) = (format!("id-{age}"), (now - age).to_string());
        let signature = standard_signature(&id, now - age, &body);
        let headers = [
            event,
            ("webhook-id", &*id),
            ("webhook-timestamp", &*at),
            ("webhook-signature", &*signature),
        ];
        assert_eq!(
            server.post("gitlab", &headers, &body).await.0,
            expected,
            "{age} s"
        );
    }
    let wrong = [event, ("x-gitlab-token", "gl-tokem")];
    assert_eq!(
        server.post("gitlab", &wrong, &body).await.0,
        StatusCode::UNAUTHORIZED
    );

    let expected = hint(ForgeKind::GitLab, "acme/infra/gitops", "nabu/prod/1");
    assert_eq!(server.heard(), [expected.clone(), expected]);
    server.stop().await;
}

#[tokio::test]
async fn a_ping_and_unknown_events_are_answered_and_do_nothing() {
    let server = Server::start().await;
    assert_eq!(
        server.post_github("ping", "1", b"{}").await.0,
        StatusCode::OK
    );
    let (status, _) = server.post_github("issues", "2", b"not even JSON").await;
    assert_eq!(status, StatusCode::ACCEPTED);
    let fork = pull_request("acme/gitops", "mallory/gitops", "nabu/prod/1");
    assert_eq!(
        server.post_github("pull_request", "3", &fork).await.0,
        StatusCode::ACCEPTED
    );
    assert_eq!(server.heard(), []);
    assert_eq!(server.counted(ForgeKind::GitHub, "ignored"), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_refused_and_a_form_is_told_so() {
    let server = Server::start().await;
    let (status, _) = server.post_github("pull_request", "1", b"{").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);

    let body = b"payload=%7B%7D";
    let signature = github_signature("gh-secret-a", body);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = client
        .post(format!("http://{}/webhooks/github", server.address))
        .header(
            "content-type",
            "application/x-www-form-urlencoded; charset=utf-8",
        )
        .header("x-hub-signature-256", signature)
        .body(&body[..])
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    assert!(answer.text().await.unwrap().contains("application/json"));
    assert_eq!(server.counted(ForgeKind::GitHub, "invalid"), 2);
    server.stop().await;
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let server = Server::start().await;
    for path in ["", "bitbucket", "github/", "GITHUB"] {
        assert_eq!(
            server.post(path, &[], b"{}").await.0,
            StatusCode::NOT_FOUND,
            "{path}"
        );
    }
    let answer = server
        .raw(b"GET /webhooks/github HTTP/1.1\r\nHost: x\r\n\r\n")
        .await;
    assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
    assert!(answer.contains("allow: POST"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_and_without_a_length() {
    let server = Server::start().await;
    let head = format!(
        "POST /webhooks/github HTTP/1.1\r\nHost: x\r\nX-Hub-Signature-256: {}\r\n",
        github_signature("gh-secret-a", b"")
    );
    let announced = format!("{head}Content-Length: 1048577\r\n\r\n");
    let answer = server.raw(announced.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");

    for head in [
        head.as_str(),
        "POST /webhooks/github HTTP/1.1\r\nHost: x\r\n",
    ] {
        let mut chunked =
            format!("{head}Transfer-Encoding: chunked\r\n\r\n100001\r\n").into_bytes();
        chunked.resize(chunked.len() + 0x10_0001, b' ');
        let answer = server.raw(&chunked).await;
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    }
    assert_eq!(server.counted(ForgeKind::GitHub, "too_large"), 3);

    // The limit itself is within.
    let (status, _) = server
        .post_github("issues", "1", &vec![b' '; 0x10_0000])
        .await;
    assert_eq!(status, StatusCode::ACCEPTED);
    server.stop().await;
}

#[tokio::test]
async fn slow_senders_are_cut_and_make_room_for_others() {
    let server = Server::start_within(Limits {
        head: Duration::from_millis(200),
        request: Duration::from_millis(200),
        connections: 2,
    })
    .await;
    let nothing = server.raw(b"");
    let half_a_head = server.raw(b"POST /webhooks/github HTTP/1.1\r\nHo");
    tokio::join!(nothing, half_a_head);
    for signature in ["", "X-Hub-Signature-256: sha256=00\r\n"] {
        let head = format!("POST /webhooks/github HTTP/1.1\r\nHost: x\r\n{signature}");
        let answer = server
            .raw(format!("{head}Content-Length: 9\r\n\r\nslow").as_bytes())
            .await;
        assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    }
    assert_eq!(server.counted(ForgeKind::GitHub, "unsigned"), 2);
    assert_eq!(
        server.post_github("ping", "1", b"{}").await.0,
        StatusCode::OK
    );
    server.stop().await;
}

#[tokio::test]
async fn open_connections_do_not_hold_up_the_end() {
    let server = Server::start().await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"POST /webhooks/github HTTP/1.1\r\nContent-Length: 9\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    tokio::time::timeout(Duration::from_secs(4), server.stop())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_connection_without_a_place_waits_for_one() {
    let server = Server::start_within(Limits {
        head: Duration::from_millis(300),
        connections: 1,
        ..Limits::default()
    })
    .await;
    let _idle = TcpStream::connect(server.address).await.unwrap();
    let begun = Instant::now();
    let (status, _) = server.post_github("ping", "1", b"{}").await;
    assert_eq!(status, StatusCode::OK);
    assert!(begun.elapsed() >= Duration::from_millis(250));
    server.stop().await;
}

#[tokio::test]
async fn when_all_places_are_taken_the_oldest_gives_way_to_who_has_something_to_say() {
    let server = Server::start_within(Limits {
        // They would stay for ever.
        head: Duration::from_hours(1),
        request: Duration::from_hours(1),
        connections: 4,
    })
    .await;
    let mut dripping = Vec::new();
    for part in [&b""[..], b"POST /webhooks/github HTTP/1.1\r\nHo"] {
        for _ in 0..2 {
            let mut stream = TcpStream::connect(server.address).await.unwrap();
            stream.write_all(part).await.unwrap();
            dripping.push(stream);
        }
    }
    let (status, _) = server.post_github("ping", "1", b"{}").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(dripping[0].read(&mut [0]).await.unwrap(), 0, "it was cut");
    server.stop().await;
}

proptest! {
    #[test]
    fn signed_random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..300)) {
        let config = config(&[("github-app", "a", "secret")]);
        let receiver = Receiver::new(config, Arc::new(crate::follow::Hints::default()), &mut Registry::default());
        let mut headers = HeaderMap::new();
        headers.insert("x-github-event", "pull_request".parse().unwrap());
        let signature = github_signature("secret", &body);
        headers.insert("x-hub-signature-256", signature.parse().unwrap());
        let claim = receiver.claim(ForgeKind::GitHub, &headers).unwrap();
        prop_assert!(claim.proof.holds(&body, &claim.secrets, Timestamp::now()));
        prop_assert_eq!(receiver.take(ForgeKind::GitHub, &headers, &body), Outcome::Invalid);
    }
}
