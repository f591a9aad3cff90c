//! REST: one file for each part of the interface.

mod app;
mod git_data;
mod issues;
mod pulls;
mod repositories;
mod shapes;

use std::collections::BTreeMap;

use anyhow::Result;
use axum::http::{Method, Uri};
use serde_json::{Value, json};

use super::auth::Caller;
use super::error::{ApiError, ApiResult, Kind};
use super::http::refusal;
use super::model::{Repository, State};
use super::operations;
use super::server::Context;
use super::{limits, model};
use crate::test_forge::faults::Reply;

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    method: Method,
    path: Vec<String>,
    query: BTreeMap<String, String>,
    body: Value,
}

impl Request {
    /// Reads a request; the error is about its body.
    pub(super) fn new(method: Method, path: &str, uri: &Uri, body: &[u8]) -> Result<Self> {
        let body = match body {
            [] => Value::Null,
            body => serde_json::from_slice(body)?,
        };
        let query = url::form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
        // A `/` may be written `%2F`: a name with slashes is the same either way.
        let path = path.split('/').filter(|part| !part.is_empty());
        let path = path.flat_map(|part| {
            decoded(part)
                .split('/')
                .map(str::to_owned)
                .collect::<Vec<_>>()
        });
        Ok(Self {
            method,
            path: path.collect(),
            query: query.into_owned().collect(),
            body,
        })
    }

    /// The method.
    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    /// The parts of the path.
    pub(super) fn path(&self) -> &[String] {
        &self.path
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.body[name].as_str()
    }

    /// A member of the body that must be there.
    fn required(&self, name: &str) -> ApiResult<&str> {
        self.text(name).ok_or_else(|| {
            ApiError::unprocessable(format!("Invalid request.\n\n\"{name}\" wasn't supplied."))
        })
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let list = self.body[name].as_array().into_iter().flatten();
        list.filter_map(|item| item.as_str().map(str::to_owned))
            .collect()
    }

    fn query(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, others @ ..] = rest {
        let hex = others
            .get(..2)
            .and_then(|hex| std::str::from_utf8(hex).ok());
        let byte = hex
            .filter(|_| *first == b'%')
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = &others[if byte.is_some() { 2 } else { 0 }..];
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a route gives: status and body; `None` if there is no such route.
type Answer = ApiResult<Option<(u16, Value)>>;

#[expect(clippy::unnecessary_wraps, reason = "what a route gives")]
fn ok(body: Value) -> Answer {
    Ok(Some((200, body)))
}

#[expect(clippy::unnecessary_wraps, reason = "what a route gives")]
fn created(body: Value) -> Answer {
    Ok(Some((201, body)))
}

/// Does it.
pub(super) fn answer(context: &Context, request: &Request) -> Reply {
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    let done = match path[..] {
        ["app", ..] => app::route(context, request, &path[1..]),
        ["repos", _, _, "installation"] => app::installation_of(context, &path[1..3]),
        ["repos", owner, name, ..] => of_repository(context, request, owner, name, &path[3..]),
        _ => top(context, request, &path),
    };
    match done {
        Ok(Some((204, _))) => Reply {
            status: 204,
            headers: Vec::new(),
            body: String::new(),
        },
        Ok(Some((301, body))) => moved(context, &body),
        Ok(Some((status, body))) => Reply::json(status, &body),
        Ok(None) => {
            let what = format!(
                "the test forge does not know {} /{}",
                request.method,
                path.join("/")
            );
            context.server.log.violation(what);
            refusal(404, "Not Found")
        }
        Err(error) => refused(&path, &error),
    }
}

fn top(context: &Context, request: &Request, path: &[&str]) -> Answer {
    let state = context.state();
    match (request.method.as_str(), path) {
        ("GET", []) => ok(json!({
            "current_user_url": format!("{}/api/v3/user", context.server.url),
        })),
        ("GET", ["meta"]) => ok(json!({
            "verifiable_password_authentication": false,
            "installed_version": "3.19.0",
        })),
        ("GET", ["user"]) => match &context.caller {
            Caller::User { .. } => ok(shapes::account(
                context,
                operations::actor(&state, &context.caller)?,
            )),
            caller => Err(ApiError::new(Kind::Forbidden, caller.refusal())),
        },
        ("GET", ["users", login]) => {
            let account = state
                .account(login)
                .ok_or_else(|| ApiError::not_found("Not Found"))?;
            ok(shapes::account(context, account))
        }
        ("GET", ["repositories", id]) => {
            let id = id.parse().unwrap_or_default();
            let found = operations::find_by_id(&state, &context.caller, id, "")?;
            ok(shapes::repository(context, &state, found))
        }
        ("GET", ["rate_limit"]) => {
            let budget = limits::current(&context.server);
            let one = json!({
                "limit": budget.limit,
                "remaining": budget.remaining,
                "used": budget.used,
                "reset": budget.reset.as_second(),
            });
            ok(json!({
                "resources": { "core": one, "graphql": one, "search": one },
                "rate": one,
            }))
        }
        _ => Ok(None),
    }
}

fn of_repository(
    context: &Context,
    request: &Request,
    owner: &str,
    name: &str,
    path: &[&str],
) -> Answer {
    let state = context.state();
    let found = operations::find(&state, &context.caller, owner, name, true);
    let repository = found.map_err(|_| ApiError::not_found("Not Found"))?;
    let here = model::Repository::full_name(repository);
    if !here.eq_ignore_ascii_case(&format!("{owner}/{name}")) {
        // GitHub sends every request for the former name on; clients follow it for reads.
        return Ok(Some((301, json!(repository.id))));
    }
    let call = Call {
        context,
        request,
        state: &state,
        repository,
    };
    match path {
        ["git", rest @ ..] => git_data::route(&call, rest),
        ["pulls", rest @ ..] => pulls::route(&call, rest),
        ["issues" | "labels", ..] => issues::route(&call, path),
        _ => repositories::route(&call, path),
    }
}

/// A request about one repository, with what it sees.
#[derive(Clone, Copy, Debug)]
struct Call<'a> {
    context: &'a Context,
    request: &'a Request,
    state: &'a State,
    repository: &'a Repository,
}

impl Call<'_> {
    fn method(&self) -> &str {
        self.request.method.as_str()
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut State, &Caller, u64) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let (caller, id) = (&self.context.caller, self.repository.id);
        self.context
            .server
            .change(|state| change(state, caller, id))
    }

    /// The address of something of this repository.
    fn url(&self, rest: &str) -> String {
        let (server, name) = (&self.context.server.url, self.repository.full_name());
        format!("{server}/api/v3/repos/{name}{rest}")
    }
}

fn moved(context: &Context, id: &Value) -> Reply {
    let url = format!("{}/api/v3/repositories/{id}", context.server.url);
    let body = json!({
        "message": "Moved Permanently",
        "url": url,
        "documentation_url": "https://docs.github.com/rest/guides/best-practices-for-using-the-rest-api#follow-redirects",
    });
    Reply::json(301, &body).header("location", &url)
}

/// An error in REST's own words.
fn refused(path: &[&str], error: &ApiError) -> Reply {
    let message = error.message.as_str();
    if message.starts_with("Repository was archived") {
        return refusal(403, "Repository was archived so is read-only.");
    }
    if message.starts_with("A ref named") {
        return refusal(422, "Reference already exists");
    }
    match (error.kind, path) {
        (Kind::NotFound, _) => refusal(404, "Not Found"),
        (Kind::Unprocessable, [.., "pulls"]) => {
            let errors: Vec<Value> = message
                .split(", ")
                .map(|message| match message {
                    "Head sha can't be blank" | "Head ref must be a branch" => {
                        json!({ "resource": "PullRequest", "field": "head", "code": "invalid" })
                    }
                    "Base sha can't be blank" | "Base ref must be a branch" => {
                        json!({ "resource": "PullRequest", "field": "base", "code": "invalid" })
                    }
                    message => {
                        json!({ "resource": "PullRequest", "code": "custom", "message": message })
                    }
                })
                .collect();
            let body = json!({
                "message": "Validation Failed",
                "errors": errors,
                "documentation_url": "https://docs.github.com/rest/pulls/pulls#create-a-pull-request",
                "status": "422",
            });
            Reply::json(422, &body)
        }
        _ => refusal(error.status(), message),
    }
}
