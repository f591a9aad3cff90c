//! Pull requests.

use serde_json::{Value, json};

use super::{Answer, Call, created, ok, shapes};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::graphql::method;
use crate::test_forge::github::model::{PullRequest, PullState, State, node_id};
use crate::test_forge::github::operations::people;
use crate::test_forge::github::operations::pulls::{self, NewPull, Update};

/// Below `/repos/{owner}/{repo}/pulls`.
pub(super) fn route(call: &Call<'_>, path: &[&str]) -> Answer {
    let number = path
        .first()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    match (call.method(), path) {
        ("GET", []) => list(call),
        ("POST", []) => create(call),
        ("GET", [_]) => ok(shape(call, call.state, number)?),
        ("PATCH", [_]) => {
            let request = call.request;
            let text = |name| request.text(name).map(str::to_owned);
            let update = Update {
                title: text("title"),
                body: text("body"),
                base: text("base"),
                open: request.text("state").map(|state| state == "open"),
                draft: None,
                labels: None,
            };
            call.change(|state, caller, id| pulls::update(state, caller, id, number, &update))?;
            ok(now(call, number)?)
        }
        ("PUT", [_, "merge"]) => {
            let (method, expected) = (
                method(call.request.text("merge_method")),
                call.request.text("sha"),
            );
            let oid = call.change(|state, caller, id| {
                pulls::merge(state, caller, id, number, method, expected)
            })?;
            ok(json!({ "sha": oid, "merged": true, "message": "Pull Request successfully merged" }))
        }
        ("GET", [_, "merge"]) => match find(call, call.state, number)?.state {
            PullState::Merged => Ok(Some((204, Value::Null))),
            PullState::Open | PullState::Closed => Err(ApiError::not_found("Not Found")),
        },
        ("POST", [_, "requested_reviewers"]) => {
            let (logins, teams) = (
                call.request.texts("reviewers"),
                call.request.texts("team_reviewers"),
            );
            call.change(|state, caller, id| {
                people::request_reviews(state, caller, id, number, &logins, &teams)
            })?;
            created(now(call, number)?)
        }
        ("POST", [_, "reviews"]) => review(call, number),
        _ => Ok(None),
    }
}

fn find<'s>(call: &Call<'_>, state: &'s State, number: u64) -> ApiResult<&'s PullRequest> {
    let repository = state.repositories.get(&call.repository.id);
    let pull = repository.and_then(|repository| repository.pulls.get(&number));
    pull.ok_or_else(|| ApiError::not_found("Not Found"))
}

fn shape(call: &Call<'_>, state: &State, number: u64) -> ApiResult<Value> {
    let pull = find(call, state, number)?;
    let mut shape = shapes::pull(call.context, state, call.repository, pull);
    shapes::add_figures(&mut shape, call.repository, pull)?;
    Ok(shape)
}

/// A pull request as it is after a change.
fn now(call: &Call<'_>, number: u64) -> ApiResult<Value> {
    shape(call, &call.context.server.now(), number)
}

fn list(call: &Call<'_>) -> Answer {
    let query = |name| call.request.query(name);
    let wanted = query("state").unwrap_or("open");
    let matching = |pull: &&PullRequest| {
        let owner = call
            .state
            .repositories
            .get(&pull.head_repository)
            .map(|head| &head.owner);
        let label = format!("{}:{}", owner.map_or("", String::as_str), pull.head);
        let open = pull.state == PullState::Open;
        (wanted == "all" || open == (wanted == "open"))
            && query("base").is_none_or(|base| base == pull.base)
            // A head without an owner is no filter at GitHub: the whole list comes.
            && query("head").is_none_or(|head| !head.contains(':') || head == label)
    };
    let mut found: Vec<&PullRequest> = call.repository.pulls.values().filter(matching).collect();
    if query("direction") != Some("asc") {
        found.reverse();
    }
    let size = query("per_page")
        .and_then(|size| size.parse().ok())
        .unwrap_or(30);
    let page: usize = query("page")
        .and_then(|page| page.parse().ok())
        .unwrap_or(1);
    let page = found
        .into_iter()
        .skip(size * page.saturating_sub(1))
        .take(size);
    ok(page
        .map(|pull| shapes::pull(call.context, call.state, call.repository, pull))
        .collect())
}

fn create(call: &Call<'_>) -> Answer {
    let request = call.request;
    let head_repository = request.text("head_repo").and_then(|name| {
        let mut all = call.state.repositories.values();
        let owner = &call.repository.owner;
        all.find(|repository| repository.name == name && repository.owner != *owner)
    });
    let new = NewPull {
        base: request.required("base")?.to_owned(),
        head: request.required("head")?.to_owned(),
        head_repository: head_repository.map(|repository| repository.id),
        title: request.required("title")?.to_owned(),
        body: request.text("body").unwrap_or_default().to_owned(),
        draft: request.body["draft"].as_bool().unwrap_or(false),
        maintainer_can_modify: request.body["maintainer_can_modify"]
            .as_bool()
            .unwrap_or(false),
    };
    let number = call.change(|state, caller, id| pulls::create(state, caller, id, &new))?;
    created(now(call, number)?)
}

/// A review is answered and forgotten: nothing here depends on one.
fn review(call: &Call<'_>, number: u64) -> Answer {
    let pull = find(call, call.state, number)?;
    let login = call.context.caller.login().unwrap_or_default();
    let event = call.request.text("event").unwrap_or("PENDING");
    people::may_review(&call.context.caller, pull, event)?;
    let url = call.url(&format!("/pulls/{number}"));
    ok(json!({
        "id": 1,
        "node_id": node_id("PRR", &[&number.to_string()]),
        "user": shapes::login(call.context, call.state, login),
        "body": call.request.text("body").unwrap_or_default(),
        "state": match event {
            "APPROVE" => "APPROVED",
            "REQUEST_CHANGES" => "CHANGES_REQUESTED",
            "COMMENT" => "COMMENTED",
            _ => "PENDING",
        },
        "html_url": url,
        "pull_request_url": url,
        "_links": { "html": { "href": url }, "pull_request": { "href": url } },
        "submitted_at": shapes::time(jiff::Timestamp::now()),
        "commit_id": pull.head_oid,
        "author_association": "MEMBER",
    }))
}
