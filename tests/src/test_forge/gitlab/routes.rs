//! Which request is for whom.

use super::answer::{Answer, ApiResult, Refusal, forbidden, missing, not_found};
use super::model::{State, TokenState};
use super::request::{ApiRequest, caller, may_read_code, project};
use super::{commits, entities, merge_requests, merging, repository};
use serde_json::{Value, json};

/// Answers a request below `/api/v4`.
pub(super) fn answer(state: &mut State, request: &ApiRequest) -> ApiResult {
    let user = caller(state, request)?;
    let path: Vec<&str> = request.path.iter().map(String::as_str).collect();
    match (request.method.as_str(), path.as_slice()) {
        ("GET", ["user"]) => Ok(Answer::ok(entities::user(state, state.user(user)?))),
        ("GET", ["users"]) => Ok(users(state, request)),
        ("GET", ["personal_access_tokens", "self"]) => token_itself(state, request),
        (_, ["projects", name]) => {
            let found = project(state, request, user, name)?;
            if request.method == "GET" {
                Ok(Answer::ok(entities::project(state, found)?))
            } else {
                Err(no_route())
            }
        }
        (_, ["projects", name, rest @ ..]) => {
            let id = project(state, request, user, name)?.id;
            of_project(state, request, user, id, rest)
        }
        _ => Err(no_route()),
    }
}

fn of_project(
    state: &mut State,
    request: &ApiRequest,
    user: u64,
    id: u64,
    rest: &[&str],
) -> ApiResult {
    if rest.first() == Some(&"repository") {
        may_read_code(state.project(id)?, user)?;
    }
    state.follow_branches()?;
    match (request.method.as_str(), rest) {
        ("GET", ["merge_requests"]) => merge_requests::list(state, id, request),
        ("POST", ["merge_requests"]) => merge_requests::create(state, id, user, request),
        ("GET", ["merge_requests", iid]) => merge_requests::get(state, id, iid),
        ("PUT", ["merge_requests", iid]) => merge_requests::update(state, id, user, iid, request),
        ("PUT", ["merge_requests", iid, "merge"]) => merging::merge(state, id, user, iid, request),
        ("GET", ["merge_requests", iid, "commits"]) => {
            merge_requests::commits(state, id, iid, request)
        }
        ("GET" | "POST", ["merge_requests", iid, "notes"]) => {
            merge_requests::notes(state, id, user, iid, request)
        }
        ("GET", ["labels"]) => labels(state, id, request),
        ("POST", ["labels"]) => create_label(state, id, user, request),
        ("GET", ["repository", "commits"]) => commits::list(state, id, request),
        ("POST", ["repository", "commits"]) => commits::create(state, id, user, request),
        ("GET", ["repository", "commits", sha]) => commits::get(state, id, sha),
        ("GET", ["repository", "commits", sha, "diff"]) => commits::diff(state, id, sha, request),
        ("GET", ["repository", "compare"]) => commits::compare(state, id, request),
        ("GET", ["repository", "branches"]) => repository::branches(state, id, request),
        ("POST", ["repository", "branches"]) => repository::create_branch(state, id, user, request),
        ("GET", ["repository", "branches", name]) => repository::branch(state, id, name),
        ("DELETE", ["repository", "branches", name]) => {
            repository::delete_branch(state, id, user, name)
        }
        ("GET", ["repository", "tree"]) => repository::tree(state, id, request),
        ("GET" | "HEAD", ["repository", "files", path]) => {
            repository::file(state, id, path, request)
        }
        _ => Err(no_route()),
    }
}

/// What GitLab says of an address that it does not have.
fn no_route() -> Refusal {
    Refusal::Said(Answer::new(404, json!({ "error": "404 Not Found" })))
}

/// `lib/api/users.rb`: a user name is compared without its case.
fn users(state: &State, request: &ApiRequest) -> Answer {
    let name = request.query("username").map(str::to_lowercase);
    let is_meant = |one: &str| name.as_ref().is_none_or(|name| *name == one.to_lowercase());
    let found = state.users.iter().filter(|user| is_meant(&user.username));
    request.page(found.map(|user| entities::user(state, user)).collect())
}

fn token_itself(state: &State, request: &ApiRequest) -> ApiResult {
    let token = request
        .token
        .as_ref()
        .and_then(|token| state.tokens.get(token));
    let token = token.ok_or_else(|| not_found("Personal Access Token"))?;
    Ok(Answer::ok(json!({
        "id": 1, "name": "nabu", "revoked": token.state == TokenState::Revoked, "user_id": token.user,
        "scopes": token.scopes, "active": token.state == TokenState::Active,
        "created_at": "2026-01-01T00:00:00.000Z", "last_used_at": null, "expires_at": "2026-12-31",
    })))
}

fn label(index: usize, name: &str) -> Value {
    json!({
        "id": index + 1, "name": name, "color": "#dc143c", "text_color": "#FFFFFF", "description": null,
        "description_html": "", "is_project_label": true, "priority": null, "subscribed": false,
    })
}

fn labels(state: &State, id: u64, request: &ApiRequest) -> ApiResult {
    let names = state.project(id)?.labels.iter().enumerate();
    Ok(request.page(names.map(|(index, name)| label(index, name)).collect()))
}

fn create_label(state: &mut State, id: u64, user: u64, request: &ApiRequest) -> ApiResult {
    let name = request.text("name").ok_or_else(|| missing("name"))?;
    request.text("color").ok_or_else(|| missing("color"))?;
    let project = state.project_mut(id)?;
    if !project.is_at_least(user, super::Role::Reporter) {
        return Err(forbidden(None));
    }
    if !project.labels.insert(name.to_owned()) {
        return Err(super::answer::refused(409, "Label already exists"));
    }
    Ok(Answer::created(label(project.labels.len(), name)))
}
