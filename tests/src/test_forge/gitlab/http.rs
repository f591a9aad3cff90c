//! The way in and out: requests are noted, fail if a fault says so, and answered in their turn.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State as Extracted};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures::StreamExt as _;
use jiff::Timestamp;
use reqwest::Url;
use serde_json::{Value, json};

use super::answer::{Answer, Refusal};
use super::model::{AllMergeRequests, State};
use super::request::ApiRequest;
use super::{graphql, routes};
use crate::test_forge::faults::{Effect, Faults, Limit, Reply, Subject};
use crate::test_forge::log::{Log, LoggedRequest};

/// Bodies are not larger.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// The one address of GraphQL.
const GRAPHQL: &str = "/api/graphql";

/// What all requests share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) state: Mutex<State>,
    pub(super) log: Log,
    pub(super) faults: Arc<Faults>,
    /// The path that stands before `/api/v4`, without a slash at its end.
    pub(super) prefix: String,
    /// Merge requests as reads see them that lag behind. GitLab reads them from replicas of its database; git has none.
    pub(super) frozen: Mutex<Option<AllMergeRequests>>,
    /// Requests that are left, and when they begin anew; `None` says nothing, as a server without limits does.
    pub(super) budget: Mutex<Option<(u32, Timestamp)>>,
}

impl Server {
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn budget(&self) -> MutexGuard<'_, Option<(u32, Timestamp)>> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes one request off the budget; the headers that tell of the rest.
    fn spend(&self) -> Vec<(&'static str, String)> {
        let mut budget = self.budget();
        let Some((left, reset)) = budget.as_mut() else {
            return Vec::new();
        };
        if *reset <= Timestamp::now() {
            *budget = None;
            return Vec::new();
        }
        *left = left.saturating_sub(1);
        vec![
            ("ratelimit-limit", "2000".to_owned()),
            ("ratelimit-remaining", left.to_string()),
            ("ratelimit-reset", reset.as_second().to_string()),
        ]
    }

    /// Keeps the picture of now for [`Effect::Frozen`].
    pub(super) fn freeze(&self) {
        let now = self.state().merge_requests();
        *self.frozen.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    /// Puts the picture that was kept in the place of what is there now, and gives that back.
    fn look_back(&self, state: &mut State) -> AllMergeRequests {
        let now = state.merge_requests();
        let frozen = self.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = frozen.clone() {
            state.set_merge_requests(before);
        }
        now
    }
}

/// Everything that comes in.
pub(super) async fn serve(
    Extracted(server): Extracted<Arc<Server>>,
    request: Request,
) -> Result<Response, Infallible> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let operations = if parts.uri.path().ends_with(GRAPHQL) {
        graphql::root_fields(&body)
    } else {
        Vec::new()
    };
    let number = server.log.begin(LoggedRequest {
        number: 0,
        method: parts.method.to_string(),
        path: path.to_owned(),
        operations: operations.clone(),
        body: String::from_utf8_lossy(&body).into_owned(),
        status: None,
        answer: String::new(),
        headers: shown(&parts.headers),
    });
    let effects = server.faults.of(&Subject {
        number,
        method: parts.method.as_str(),
        path,
        operations: &operations,
    });
    if let Some(ending) = before(&server, &effects).await {
        return Ok(send(&server, number, ending));
    }
    let request = take_apart(&server, parts.method.as_str(), path, &parts.headers, &body);
    let done = tokio::task::spawn_blocking({
        let server = Arc::clone(&server);
        let lags = effects.contains(&Effect::Frozen);
        move || request.map(|request| perform(&server, &request, lags))
    });
    let answer = match done.await {
        Ok(Ok(reply)) => reply,
        Ok(Err(error)) => broken(&error),
        Err(error) => broken(&anyhow!(error)),
    };
    let ending = after(&server, &effects, answer).await;
    Ok(send(&server, number, ending))
}

/// How a request ends.
enum Ending {
    Answered(Reply),
    /// Only so many bytes come.
    Truncated(Reply, usize),
    Cut,
}

async fn before(server: &Server, effects: &[Effect]) -> Option<Ending> {
    for effect in effects {
        match effect {
            Effect::Answer(reply) => return Some(Ending::Answered(reply.clone())),
            Effect::Limit(limit) => return Some(Ending::Answered(limited(*limit))),
            Effect::CutBefore => return Some(Ending::Cut),
            Effect::Delay(time) => tokio::time::sleep(*time).await,
            Effect::HoldBefore => Arc::clone(&server.faults).hold().await,
            _ => {}
        }
    }
    None
}

async fn after(server: &Server, effects: &[Effect], answer: Reply) -> Ending {
    let mut ending = Ending::Answered(answer.clone());
    for effect in effects {
        match effect {
            Effect::AnswerAfter(reply) => ending = Ending::Answered(reply.clone()),
            Effect::CutAfter => ending = Ending::Cut,
            Effect::Truncate(bytes) => ending = Ending::Truncated(answer.clone(), *bytes),
            Effect::HoldAfter => Arc::clone(&server.faults).hold().await,
            _ => {}
        }
    }
    ending
}

/// GitLab's limit: 429 with the time at which it begins anew, and `Retry-After` where it is known in seconds.
/// (Administration, "User and IP rate limits", response headers.)
fn limited(limit: Limit) -> Reply {
    let (wait, names_wait) = match limit {
        Limit::Primary { reset, .. } | Limit::PrimaryInGraphql { reset, .. } => (reset, false),
        Limit::Secondary { retry_after, .. } => {
            let wait = retry_after.unwrap_or(Duration::from_mins(1));
            (wait, retry_after.is_some())
        }
    };
    let now = Timestamp::now();
    let seconds = i64::try_from(wait.as_secs()).unwrap_or(i64::MAX);
    let mut reply = Reply {
        status: 429,
        headers: vec![("content-type".to_owned(), "text/plain".to_owned())],
        body: "Retry later\n".to_owned(),
    };
    let reset = now.as_second().saturating_add(seconds).to_string();
    reply = reply
        .header("ratelimit-limit", "2000")
        .header("ratelimit-remaining", "0")
        .header("ratelimit-reset", &reset)
        .header(
            "date",
            &now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string(),
        );
    if names_wait {
        reply = reply.header("retry-after", &wait.as_secs().to_string());
    }
    reply
}

fn take_apart(
    server: &Server,
    method: &str,
    path: &str,
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<ApiRequest> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let url = Url::parse(&format!(
        "http://{}{path}",
        text("host").unwrap_or("localhost")
    ))?;
    let below = url
        .path()
        .strip_prefix(&format!("{}/api/v4/", server.prefix));
    let segments = below.unwrap_or_default().split('/');
    let body = if body.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(body).context("the body is no JSON")?
    };
    Ok(ApiRequest {
        method: method.to_owned(),
        path: segments.map(unescape).collect(),
        query: url.query_pairs().into_owned().collect(),
        body,
        token: bearer.or_else(|| text("private-token")).map(str::to_owned),
        address: format!("{}{}", url.origin().ascii_serialization(), url.path()),
    })
}

/// A segment of a path without its `%2F` and the like.
fn unescape(segment: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = segment;
    while let Some((plain, escaped)) = rest.split_once('%') {
        bytes.extend_from_slice(plain.as_bytes());
        let byte = escaped
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match byte {
            Some(byte) => {
                bytes.push(byte);
                &escaped[2..]
            }
            None => escaped,
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

fn perform(server: &Server, request: &ApiRequest, lags: bool) -> Reply {
    let mut state = server.state();
    let is_graphql = request.method == "POST" && request.address.ends_with(GRAPHQL);
    let lags = lags && (is_graphql || request.is_read());
    let now = lags.then(|| server.look_back(&mut state));
    let answer = if is_graphql {
        let follows = state.follow_branches();
        follows
            .and_then(|()| graphql::answer(&state, request, &server.log))
            .map_err(Refusal::Broken)
    } else {
        routes::answer(&mut state, request)
    };
    if let Some(now) = now {
        state.set_merge_requests(now);
    }
    drop(state);
    let answer = match answer {
        Ok(answer) | Err(Refusal::Said(answer)) => answer,
        Err(Refusal::Broken(error)) => return broken(&error),
    };
    let Answer {
        status,
        headers,
        body,
    } = answer;
    let mut reply = if body.is_null() {
        Reply {
            status,
            headers: Vec::new(),
            body: String::new(),
        }
    } else {
        Reply::json(status, &body)
    };
    for (name, value) in headers {
        reply = reply.header(name, &value);
    }
    reply
}

/// What this forge cannot do shows as GitLab's own failure, with the cause for whoever reads the log.
fn broken(error: &anyhow::Error) -> Reply {
    let body = json!({ "message": "500 Internal Server Error", "cause": format!("{error:#}") });
    Reply::json(500, &body)
}

fn send(server: &Server, number: u32, ending: Ending) -> Response {
    let (reply, shown) = match ending {
        Ending::Answered(reply) => {
            let bytes = reply.body.len();
            (reply, bytes)
        }
        Ending::Truncated(reply, bytes) => (reply, bytes),
        Ending::Cut => return cut(),
    };
    server.log.end(number, reply.status, &reply.body);
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::builder().status(status);
    for (name, value) in server.spend() {
        response = response.header(name, value);
    }
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    let whole = Bytes::from(reply.body);
    let body = if shown < whole.len() {
        response = response.header("content-length", whole.len());
        // A pause, so that the part is sent before the connection ends.
        let part = futures::stream::iter([Ok::<Bytes, anyhow::Error>(whole.slice(..shown))]);
        let end = futures::stream::once(async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            Err(anyhow!("cut on purpose"))
        });
        Body::from_stream(part.chain(end))
    } else {
        Body::from(whole)
    };
    response.body(body).unwrap_or_else(|_| cut())
}

/// A body that fails before its first byte: the server closes the connection and has sent nothing.
fn cut() -> Response {
    let nothing = futures::stream::once(async { Err::<Bytes, _>(anyhow!("cut on purpose")) });
    Response::new(Body::from_stream(nothing))
}

/// Headers for the log, without credentials.
fn shown(headers: &HeaderMap) -> Vec<(String, String)> {
    let is_secret = |name: &str| matches!(name, "authorization" | "private-token");
    headers
        .iter()
        .filter(|(name, _)| !is_secret(name.as_str()))
        .map(|(name, value)| {
            let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
            (name.to_string(), value)
        })
        .collect()
}
