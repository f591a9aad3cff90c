//! Answers that no server gives on demand, from a stub that says always the same.

use std::time::Duration;

use nabu_hub::credentials::Credentials;
use nabu_hub::forge::http::Timeouts;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{ForgeError, Made};
use nabu_hub::response::ErrorType;
use nabu_tests::process::free_port;
use prometheus_client::registry::Registry;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{REVOKE, failure, intent, make, set_token, target};

/// Answers every request with what is said of it; with nothing, it never answers.
async fn stub_of(answer: impl Fn(&str) -> String + Clone + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let answer = answer(&read_request(&mut connection).await);
                if answer.is_empty() {
                    tokio::time::sleep(Duration::from_mins(5)).await;
                }
                let _ = connection.write_all(answer.as_bytes()).await;
            });
        }
    });
    format!("http://{address}")
}

/// A request with its body, if it has one.
async fn read_request(connection: &mut TcpStream) -> String {
    let mut request = String::new();
    let mut chunk = vec![0; 16384];
    loop {
        let length = connection.read(&mut chunk).await.unwrap_or(0);
        request.push_str(&String::from_utf8_lossy(&chunk[..length]));
        let (head, body) = request.split_once("\r\n\r\n").unwrap_or((&request, ""));
        let wanted = head.lines().find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length: ")?
                .parse()
                .ok()
        });
        let is_http = request.starts_with(|c: char| c.is_ascii_uppercase());
        if length == 0
            || !is_http
            || (head.len() < request.len() && body.len() >= wanted.unwrap_or(0))
        {
            return request;
        }
    }
}

/// Answers everything with the same bytes.
async fn stub(answer: String) -> String {
    stub_of(move |_| answer.clone()).await
}

fn answer(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

fn forges() -> Forges {
    forges_within(Duration::from_secs(30))
}

/// Forges that wait so long for a whole answer.
fn forges_within(total: Duration) -> Forges {
    nabu_common::tls::install_crypto_provider();
    let credentials = Credentials::default();
    set_token(&credentials, "s3cret");
    let timeouts = Timeouts {
        connect: Duration::from_secs(10),
        total,
    };
    Forges::with_timeouts(
        credentials,
        ForgeMetrics::register(&mut Registry::default()),
        timeouts,
    )
}

async fn ask(base_url: &str) -> (Result<Made, ForgeError>, u32) {
    ask_by(&forges(), base_url).await
}

async fn ask_by(forges: &Forges, base_url: &str) -> (Result<Made, ForgeError>, u32) {
    let intent = intent(target(base_url, "ninsun-labs/x"), "u-1", &REVOKE);
    make(forges, &intent).await
}

async fn ask_stub(status: &str, headers: &str, body: &str) -> (Result<Made, ForgeError>, u32) {
    ask(&stub(answer(status, headers, body)).await).await
}

#[tokio::test]
async fn a_limit_says_how_long_to_wait() {
    for (status, headers, seconds) in [
        ("429 Too Many Requests", "retry-after: 7\r\n", 7),
        ("429 Too Many Requests", "", 60),
        ("403 Forbidden", "retry-after: 30\r\n", 30),
    ] {
        let (made, requests) = ask_stub(status, headers, "").await;
        let Err(ForgeError::RateLimited { retry_after, .. }) = made else {
            panic!("{made:?}")
        };
        assert_eq!((retry_after.as_secs(), requests), (seconds, 1));
    }
}

#[tokio::test]
async fn a_gateway_without_a_forge_behind_it_is_an_outage() {
    for status in [
        "502 Bad Gateway",
        "503 Service Unavailable",
        "504 Gateway Timeout",
    ] {
        let (made, requests) = ask_stub(status, "", "").await;
        assert!(
            matches!(made, Err(ForgeError::Unavailable { .. })),
            "{made:?}"
        );
        assert_eq!(requests, 1);
    }
}

#[tokio::test]
async fn any_other_answer_is_a_typed_failure_after_one_request() {
    let elsewhere = "location: http://127.0.0.1:1/\r\n";
    for (status, headers, kind, reason) in [
        (
            "500 Internal Server Error",
            "",
            ErrorType::Transient,
            "ForgeError",
        ),
        (
            "301 Moved Permanently",
            elsewhere,
            ErrorType::Permanent,
            "Moved",
        ),
        (
            "401 Unauthorized",
            "",
            ErrorType::Unauthorized,
            "CredentialRejected",
        ),
        (
            "403 Forbidden",
            "",
            ErrorType::Unauthorized,
            "PermissionDenied",
        ),
        (
            "422 Unprocessable Entity",
            "",
            ErrorType::Permanent,
            "Rejected",
        ),
        ("200 OK", "", ErrorType::Transient, "ForgeError"),
    ] {
        let (made, requests) = ask_stub(status, headers, "").await;
        let error = failure(made);
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (kind, reason),
            "{}",
            error.detail
        );
        assert!(error.detail.contains("ninsun-labs/x"), "{}", error.detail);
        assert_eq!(requests, 1);
    }
}

#[tokio::test]
async fn a_locked_repository_parks_its_responses() {
    let (made, requests) = ask_stub("423 Locked", "", "").await;
    let Err(ForgeError::Parked(error)) = made else {
        panic!("not parked: {made:?}");
    };
    assert_eq!((error.reason.as_str(), requests), ("RepositoryArchived", 1));
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let error = failure(ask_stub("200 OK", "", &" ".repeat(17 << 20)).await.0);
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Transient, "ForgeError")
    );
    assert!(error.detail.contains("more than"), "{}", error.detail);
}

#[tokio::test]
async fn silence_is_transient_and_a_closed_port_or_unknown_host_an_outage() {
    let forges = forges_within(Duration::from_millis(500));
    let error = failure(ask_by(&forges, &stub(String::new()).await).await.0);
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Transient, "Timeout")
    );
    let closed = format!("http://127.0.0.1:{}", free_port().unwrap());
    let no_tls = stub(answer("400 Bad Request", "", ""))
        .await
        .replace("http:", "https:");
    for base_url in [closed.as_str(), "http://forge.invalid", &no_tls] {
        let (made, _) = ask(base_url).await;
        assert!(
            matches!(made, Err(ForgeError::Unavailable { .. })),
            "{base_url}: {made:?}"
        );
    }
}

#[tokio::test]
async fn what_a_forge_says_is_shown_on_one_line_and_without_the_token() {
    let body = r#"{"message":"no\n\u001b[31m s3cret"}"#;
    let error = failure(ask_stub("403 Forbidden", "", body).await.0);
    assert!(error.detail.contains("no [31m ***"), "{}", error.detail);
    assert!(!format!("{error:?}").contains("s3cret"));
}

/// As Forgejo and Gitea before 1.24 answer: they know `create`, `update` and `delete` only.
fn server_without_upload(request: &str) -> String {
    let line = request.lines().next().unwrap_or_default();
    let pull = r#"{"number":7,"state":"open","html_url":"javascript:alert(1)","base":{},"head":{"sha":"c1"}}"#;
    let commit = r#"{"commit":{"sha":"c1","parents":[{}]},"files":[{"last_commit_sha":"c1"}]}"#;
    if line.starts_with("POST") && line.contains("/pulls") {
        answer("201 Created", "", pull)
    } else if line.starts_with("POST") && !request.contains("\"upload\"") {
        assert!(request.contains("\"create\""), "{request}");
        answer("201 Created", "", commit)
    } else if line.starts_with("POST") {
        answer("500 Internal Server Error", "", "{}")
    } else {
        answer("404 Not Found", "", "{}")
    }
}

#[tokio::test]
async fn a_server_that_knows_no_upload_is_asked_for_each_file_and_the_second_time_at_once() {
    let base_url = stub_of(server_without_upload).await;
    let forges = forges();
    // Lookup, commit in vain, file, commit, pull request.
    for requests_expected in [5, 4] {
        let intent = intent(target(&base_url, "ninsun-labs/x"), "u-1", &REVOKE);
        let (made, requests) = make(&forges, &intent).await;
        let Ok(Made::PullRequest(pull)) = made else {
            panic!("{made:?}")
        };
        assert_eq!(requests, requests_expected);
        assert_eq!(
            pull.url,
            format!("{base_url}/ninsun-labs/x/pulls/7"),
            "no web address is not believed"
        );
    }
}
