//! One request on its way: noted, hit by faults, let in or not, done, answered with GitHub's headers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use super::server::{Context, Server, blocking};
use super::{graphql, limits, published, rest};
use crate::test_forge::faults::{Effect, Reply, Subject};
use crate::test_forge::log::LoggedRequest;

/// Bodies of requests are not larger.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Which of the two interfaces a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Interface {
    Graphql,
    /// With the path below the base.
    Rest(String),
    Nothing,
}

struct Exchange {
    server: Arc<Server>,
    number: u32,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    interface: Interface,
    document: Option<graphql::Request>,
    effects: Vec<Effect>,
}

/// Answers a request. What it does goes on when the client is gone, as at GitHub.
pub(super) async fn serve(State(server): State<Arc<Server>>, request: Request) -> Response {
    // Connections outlive the listener.
    if server.stopped.load(Ordering::SeqCst) {
        return cut();
    }
    let done = tokio::spawn(async move {
        let exchange = match Exchange::begin(server, request).await {
            Ok(exchange) => exchange,
            Err(error) => return failed(&error),
        };
        let number = exchange.number;
        let server = Arc::clone(&exchange.server);
        match exchange.answer().await {
            Ok(Answer::Whole(reply)) => {
                server.log.end(number, reply.status, &reply.body);
                respond(reply)
            }
            Ok(Answer::Part(reply, bytes)) => {
                server.log.end(number, reply.status, &reply.body);
                respond_in_part(reply, bytes)
            }
            Ok(Answer::None) => cut(),
            Err(error) => {
                server
                    .log
                    .violation(format!("the test forge failed: {error:#}"));
                failed(&error)
            }
        }
    });
    done.await.unwrap_or_else(|error| failed(&error.into()))
}

enum Answer {
    Whole(Reply),
    Part(Reply, usize),
    None,
}

impl Exchange {
    async fn begin(server: Arc<Server>, request: Request) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let body = to_bytes(body, MAX_BODY).await?;
        let interface = interface(&server, &parts.uri);
        let document = match interface {
            Interface::Graphql => {
                let body = body.clone();
                Some(blocking(move || graphql::Request::parse(&body)).await?)
            }
            Interface::Rest(_) | Interface::Nothing => None,
        };
        let operations = document
            .as_ref()
            .map(graphql::Request::root_fields)
            .unwrap_or_default();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let headers = parts
            .headers
            .iter()
            .filter(|(name, _)| *name != "authorization");
        let number = server.log.begin(LoggedRequest {
            number: 0,
            method: parts.method.to_string(),
            path: path.to_owned(),
            operations: operations.clone(),
            body: String::from_utf8_lossy(&body).into_owned(),
            status: None,
            answer: String::new(),
            headers: headers
                .map(|(name, value)| {
                    (
                        name.to_string(),
                        String::from_utf8_lossy(value.as_bytes()).into_owned(),
                    )
                })
                .collect(),
        });
        let effects = server.faults.of(&Subject {
            number,
            method: parts.method.as_str(),
            path,
            operations: &operations,
        });
        server.used.fetch_add(1, Ordering::Relaxed);
        Ok(Self {
            server,
            number,
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            body,
            interface,
            document,
            effects,
        })
    }

    async fn answer(mut self) -> Result<Answer> {
        let effects = std::mem::take(&mut self.effects);
        for effect in &effects {
            match effect {
                Effect::Answer(reply) => return Ok(Answer::Whole(self.finished(reply.clone()))),
                Effect::Limit(limit) => {
                    let reply = limits::reply(*limit, self.resource());
                    return Ok(Answer::Whole(self.finished(reply)));
                }
                Effect::Delay(time) => tokio::time::sleep(*time).await,
                Effect::CutBefore => return Ok(Answer::None),
                Effect::HoldBefore => Arc::clone(&self.server.faults).hold().await,
                _ => {}
            }
        }
        let server = Arc::clone(&self.server);
        let resource = self.resource();
        let reply = self.act(&effects).await?;
        let mut answer = Answer::Whole(with_headers(&server, resource, reply));
        for effect in effects {
            match effect {
                Effect::AnswerAfter(reply) => {
                    answer = Answer::Whole(with_headers(&server, resource, reply));
                }
                Effect::CutAfter => return Ok(Answer::None),
                Effect::HoldAfter => Arc::clone(&server.faults).hold().await,
                Effect::Truncate(bytes) => {
                    if let Answer::Whole(reply) = answer {
                        answer = Answer::Part(reply, bytes);
                    }
                }
                _ => {}
            }
        }
        Ok(answer)
    }

    /// Does what was asked.
    async fn act(self, effects: &[Effect]) -> Result<Reply> {
        let authorization = self.headers.get("authorization");
        let authorization = authorization.and_then(|value| value.to_str().ok());
        let caller = match self.server.credentials.caller(authorization) {
            Ok(caller) => caller,
            Err(message) => return Ok(refusal(401, &message)),
        };
        if !self.headers.contains_key("user-agent") {
            return Ok(Reply {
                status: 403,
                headers: vec![("content-type".to_owned(), "text/html; charset=utf-8".to_owned())],
                body: "Request forbidden by administrative rules. Please make sure your request has a User-Agent header.\n".to_owned(),
            });
        }
        let writes = match &self.document {
            Some(document) => document.is_mutation(),
            None => self.method != Method::GET,
        };
        let mut context = Context {
            server: Arc::clone(&self.server),
            caller,
            view: None,
            only_first: None,
        };
        for effect in effects {
            match effect {
                Effect::StaleBy(changes) if !writes => {
                    context.view = Some(self.server.before(*changes));
                }
                Effect::Frozen if !writes => context.view = Some(self.server.frozen()),
                Effect::OnlyFirst(count) => context.only_first = Some(*count),
                _ => {}
            }
        }
        match (self.interface, self.document) {
            (Interface::Graphql, Some(document)) if self.method == Method::POST => {
                let answer = blocking(move || document.execute(context)).await?;
                Ok(Reply::json(200, &answer))
            }
            (Interface::Rest(path), _) => {
                let request = rest::Request::new(self.method, &path, &self.uri, &self.body);
                match request {
                    Ok(request) => {
                        let body = self.body;
                        blocking(move || {
                            let reply = rest::answer(&context, &request);
                            for violation in published::check(&request, &body, &reply)? {
                                context.server.log.violation(violation);
                            }
                            Ok(reply)
                        })
                        .await
                    }
                    Err(_) => Ok(refusal(400, "Problems parsing JSON")),
                }
            }
            (Interface::Graphql | Interface::Nothing, _) => Ok(refusal(404, "Not Found")),
        }
    }

    fn resource(&self) -> &'static str {
        match self.interface {
            Interface::Graphql => "graphql",
            Interface::Rest(_) | Interface::Nothing => "core",
        }
    }

    fn finished(&self, reply: Reply) -> Reply {
        with_headers(&self.server, self.resource(), reply)
    }
}

fn interface(server: &Server, uri: &Uri) -> Interface {
    let path = uri.path();
    if path == "/api/graphql" || (server.public_paths && path == "/graphql") {
        return Interface::Graphql;
    }
    match path.strip_prefix("/api/v3") {
        Some(rest) if rest.is_empty() || rest.starts_with('/') => Interface::Rest(rest.to_owned()),
        _ if server.public_paths => Interface::Rest(path.to_owned()),
        _ => Interface::Nothing,
    }
}

/// An error in REST's form.
pub(super) fn refusal(status: u16, message: &str) -> Reply {
    let body = json!({
        "message": message,
        "documentation_url": "https://docs.github.com/rest",
        "status": status.to_string(),
    });
    Reply::json(status, &body)
}

/// Adds the headers that every answer has, unless the answer has its own.
fn with_headers(server: &Server, resource: &str, mut reply: Reply) -> Reply {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut usual = limits::headers(&limits::current(server), resource);
    usual.push((
        "x-github-request-id".to_owned(),
        format!("C0DE:1A2B3C:{number:06X}:{number:06X}:65000000"),
    ));
    usual.push(("server".to_owned(), "github.com".to_owned()));
    for (name, value) in usual {
        if !reply.headers.iter().any(|(known, _)| *known == name) {
            reply.headers.push((name, value));
        }
    }
    reply
}

fn respond(reply: Reply) -> Response {
    let mut response = Response::builder().status(reply.status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    response
        .body(Body::from(reply.body))
        .unwrap_or_else(|error| failed(&error.into()))
}

/// Says how long the body is, sends the first bytes of it, and ends the connection.
fn respond_in_part(reply: Reply, bytes: usize) -> Response {
    let whole = reply.body.clone().into_bytes();
    let length = whole.len().to_string();
    let part = Bytes::copy_from_slice(whole.get(..bytes).unwrap_or(&whole));
    let first = stream::once(async move { Ok(part) });
    // The pause lets the first bytes go out.
    let end = stream::once(async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        Err(std::io::Error::other("cut on purpose"))
    });
    let mut response = respond(reply.header("content-length", &length));
    *response.body_mut() = Body::from_stream(first.chain(end));
    response
}

/// Ends the connection before anything was sent: the body fails before the head is flushed.
fn cut() -> Response {
    let end = stream::once(async { Err::<Bytes, _>(std::io::Error::other("cut on purpose")) });
    Response::new(Body::from_stream(end))
}

fn failed(error: &anyhow::Error) -> Response {
    let body: Value = json!({ "message": format!("test forge: {error:#}") });
    (StatusCode::INTERNAL_SERVER_ERROR, body.to_string()).into_response()
}
