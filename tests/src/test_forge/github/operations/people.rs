//! Labels, assignees, reviewers and comments of pull requests.

use jiff::Timestamp;

use super::pulls::get;
use super::{actor, writable};
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{Comment, Label, Permission, PullRequest, State};

/// Makes a label and gives its number.
pub(crate) fn create_label(
    state: &mut State,
    caller: &Caller,
    id: u64,
    name: &str,
    color: &str,
    description: Option<&str>,
) -> ApiResult<u64> {
    let label_id = state.next_id();
    let repository = writable(state, caller, id)?;
    if repository.label(name).is_some() {
        return Err(ApiError::unprocessable("Name has already been taken"));
    }
    repository.labels.push(Label {
        id: label_id,
        name: name.to_owned(),
        color: color.to_owned(),
        description: description.map(str::to_owned),
    });
    Ok(label_id)
}

/// Adds labels to a pull request.
pub(crate) fn add_labels(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    labels: &[u64],
) -> ApiResult<()> {
    writable(state, caller, id)?;
    let pull = get(state, id, number)?;
    for label in labels {
        if !pull.labels.contains(label) {
            pull.labels.push(*label);
        }
    }
    pull.updated_at = Timestamp::now();
    Ok(())
}

/// Whether somebody may say this of a pull request.
pub(crate) fn may_review(caller: &Caller, pull: &PullRequest, event: &str) -> ApiResult<()> {
    if caller.login() == Some(pull.author.as_str()) && event == "APPROVE" {
        return Err(ApiError::unprocessable(
            "Can not approve your own pull request",
        ));
    }
    Ok(())
}

/// Adds assignees; as GitHub does, one who cannot be assigned is left out without a word.
pub(crate) fn add_assignees(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    logins: &[String],
) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    let may = |login: &&String| repository.permissions.contains_key(*login);
    let known: Vec<String> = logins.iter().filter(may).cloned().collect();
    let pull = get(state, id, number)?;
    for login in known {
        if !pull.assignees.contains(&login) {
            pull.assignees.push(login);
        }
    }
    Ok(())
}

/// Asks people and teams for a review.
pub(crate) fn request_reviews(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    people: &[String],
    teams: &[String],
) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    let author = repository
        .pulls
        .get(&number)
        .map(|pull| pull.author.clone());
    for login in people {
        if Some(login) == author.as_ref() {
            return Err(ApiError::unprocessable(
                "Review cannot be requested from pull request author.",
            ));
        }
        if repository.permissions.get(login) < Some(&Permission::Read) {
            return Err(ApiError::unprocessable(
                "Reviews may only be requested from collaborators. One or more of the users or teams you specified is not a collaborator of the repository.",
            ));
        }
    }
    let pull = get(state, id, number)?;
    let lists = [
        (people, &mut pull.reviewers),
        (teams, &mut pull.team_reviewers),
    ];
    for (new, list) in lists {
        for name in new {
            if !list.contains(name) {
                list.push(name.clone());
            }
        }
    }
    Ok(())
}

/// Adds a comment and gives its number.
pub(crate) fn add_comment(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    body: &str,
) -> ApiResult<u64> {
    let author = actor(state, caller)?.login.clone();
    let comment_id = state.next_id();
    writable(state, caller, id)?;
    get(state, id, number)?.comments.push(Comment {
        id: comment_id,
        author,
        body: body.to_owned(),
        created_at: Timestamp::now(),
    });
    Ok(comment_id)
}
