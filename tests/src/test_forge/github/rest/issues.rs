//! What pull requests share with issues: labels, assignees, comments.

use serde_json::{Value, json};

use super::{Answer, Call, created, ok, shapes};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{Comment, PullRequest, node_id};
use crate::test_forge::github::operations::people;

/// Below `/repos/{owner}/{repo}`: `issues` and `labels`.
pub(super) fn route(call: &Call<'_>, path: &[&str]) -> Answer {
    let number = path
        .get(1)
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    let request = call.request;
    match (call.method(), path) {
        ("GET", ["labels"]) => {
            let labels = call.repository.labels.iter();
            ok(labels
                .map(|label| shapes::label(call.context, call.repository, label))
                .collect())
        }
        ("POST", ["labels"]) => {
            let name = request.required("name")?;
            let color = request.text("color").unwrap_or("ededed");
            let description = request.text("description");
            call.change(|state, caller, id| {
                people::create_label(state, caller, id, name, color, description)
            })?;
            let state = call.context.server.now();
            let repository = state.repositories.get(&call.repository.id);
            let repository = repository.ok_or_else(|| ApiError::not_found("Not Found"))?;
            let label = repository
                .label(name)
                .ok_or_else(|| ApiError::not_found("Not Found"))?;
            created(shapes::label(call.context, repository, label))
        }
        ("GET", ["issues", _, "labels"]) => {
            pull(call, number)?;
            ok(labels(call, number)?)
        }
        ("POST", ["issues", _, "labels"]) => add_labels(call, number),
        ("POST", ["issues", _, "assignees"]) => {
            let logins = request.texts("assignees");
            call.change(|state, caller, id| {
                people::add_assignees(state, caller, id, number, &logins)
            })?;
            let state = call.context.server.now();
            let repository = state.repositories.get(&call.repository.id);
            let repository = repository.ok_or_else(|| ApiError::not_found("Not Found"))?;
            let pull = repository.pulls.get(&number);
            let pull = pull.ok_or_else(|| ApiError::not_found("Not Found"))?;
            created(shapes::issue(call.context, &state, repository, pull))
        }
        ("GET", ["issues", _, "comments"]) => {
            let comments = pull(call, number)?.comments.iter();
            ok(comments.map(|one| comment(call, number, one)).collect())
        }
        ("POST", ["issues", _, "comments"]) => {
            let body = request.required("body")?;
            let made = call.change(|state, caller, id| {
                let comment = people::add_comment(state, caller, id, number, body)?;
                let pull = crate::test_forge::github::operations::pulls::get(state, id, number)?;
                let mut all = pull.comments.iter();
                Ok(all.find(|one| one.id == comment).cloned())
            })?;
            let made = made.ok_or_else(|| ApiError::not_found("Not Found"))?;
            created(comment(call, number, &made))
        }
        _ => Ok(None),
    }
}

fn pull<'a>(call: &Call<'a>, number: u64) -> ApiResult<&'a PullRequest> {
    let pull = call.repository.pulls.get(&number);
    pull.ok_or_else(|| ApiError::not_found("Not Found"))
}

/// REST takes names; a label that is not there is made, as GitHub does.
fn add_labels(call: &Call<'_>, number: u64) -> Answer {
    let mut names = call.request.texts("labels");
    if let Some(list) = call.request.body.as_array() {
        names.extend(
            list.iter()
                .filter_map(|name| name.as_str().map(str::to_owned)),
        );
    }
    call.change(|state, caller, id| {
        let mut labels = Vec::new();
        for name in &names {
            let known = state
                .repositories
                .get(&id)
                .and_then(|repository| repository.label(name));
            labels.push(match known.map(|label| label.id) {
                Some(label) => label,
                None => people::create_label(state, caller, id, name, "ededed", None)?,
            });
        }
        people::add_labels(state, caller, id, number, &labels)
    })?;
    ok(labels(call, number)?)
}

fn labels(call: &Call<'_>, number: u64) -> ApiResult<Value> {
    let state = call.context.server.now();
    let repository = state.repositories.get(&call.repository.id);
    let repository = repository.ok_or_else(|| ApiError::not_found("Not Found"))?;
    let pull = repository.pulls.get(&number);
    let pull = pull.ok_or_else(|| ApiError::not_found("Not Found"))?;
    let of_pull = repository
        .labels
        .iter()
        .filter(|label| pull.labels.contains(&label.id));
    Ok(of_pull
        .map(|label| shapes::label(call.context, repository, label))
        .collect())
}

fn comment(call: &Call<'_>, number: u64, comment: &Comment) -> Value {
    let url = call.url(&format!("/issues/comments/{}", comment.id));
    let time = shapes::time(comment.created_at);
    json!({
        "id": comment.id,
        "node_id": node_id("IC", &[&comment.id.to_string()]),
        "url": url,
        "html_url": url,
        "issue_url": call.url(&format!("/issues/{number}")),
        "body": comment.body,
        "user": shapes::login(call.context, call.state, &comment.author),
        "created_at": time,
        "updated_at": time,
        "author_association": "MEMBER",
    })
}
