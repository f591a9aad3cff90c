//! Merge requests: `lib/api/merge_requests.rb`, with the checks of `app/models/merge_request.rb`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{
    Answer, ApiResult, Refusal, forbidden, missing, not_found, refused, refused_list,
};
use super::entities;
use super::model::{MergeRequest, MergeRequestState, Project, Role, State};
use super::request::ApiRequest;

/// What a title may have at most.
const LONGEST_TITLE: usize = 255;

/// `GET projects/:id/merge_requests`.
pub(super) fn list(state: &State, project: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    if !project.merge_requests_enabled {
        return Err(forbidden(None));
    }
    let is = |name: &str, value: &str| request.query(name).is_none_or(|wanted| wanted == value);
    let numbers: Vec<u64> = (request.query.iter())
        .filter(|(name, _)| name == "iids[]")
        .filter_map(|(_, number)| number.parse().ok())
        .collect();
    let mut found: Vec<&MergeRequest> = (project.merge_requests.iter())
        .filter(|one| {
            (numbers.is_empty() || numbers.contains(&one.iid))
                && is("source_branch", &one.source_branch)
                && is("target_branch", &one.target_branch)
                && (is("state", "all") || is("state", one.state.as_str()))
        })
        .collect();
    // Newest first, unless asked otherwise.
    if request.query("sort") != Some("asc") {
        found.reverse();
    }
    let values: anyhow::Result<Vec<Value>> = found
        .into_iter()
        .map(|one| entities::merge_request(state, project, one))
        .collect();
    Ok(request.page(values?))
}

/// `GET projects/:id/merge_requests/:iid`.
pub(super) fn get(state: &State, project: u64, iid: &str) -> ApiResult {
    let project = state.project(project)?;
    let found = find(project, iid)?;
    Ok(Answer::ok(single(state, project, found)?))
}

/// What is said of one merge request, and not in a list.
pub(super) fn single(
    state: &State,
    project: &Project,
    request: &MergeRequest,
) -> anyhow::Result<Value> {
    let mut value = entities::merge_request(state, project, request)?;
    value["subscribed"] = json!(true);
    value["changes_count"] = json!("1");
    value["head_pipeline"] = Value::Null;
    value["pipeline"] = Value::Null;
    value["diff_refs"] = json!({ "base_sha": null, "head_sha": request.sha, "start_sha": null });
    Ok(value)
}

pub(super) fn find<'a>(project: &'a Project, iid: &str) -> Result<&'a MergeRequest, Refusal> {
    let mut all = project.merge_requests.iter();
    all.find(|one| one.iid.to_string() == iid)
        .ok_or_else(|| not_found("Merge Request"))
}

pub(super) fn find_mut<'a>(
    project: &'a mut Project,
    iid: &str,
) -> Result<&'a mut MergeRequest, Refusal> {
    let mut all = project.merge_requests.iter_mut();
    all.find(|one| one.iid.to_string() == iid)
        .ok_or_else(|| not_found("Merge Request"))
}

/// `POST projects/:id/merge_requests`; the project is that of the source branch.
pub(super) fn create(
    state: &mut State,
    source: u64,
    caller: u64,
    request: &ApiRequest,
) -> ApiResult {
    let need = |name: &str| request.text(name).ok_or_else(|| missing(name));
    let (title, source_branch) = (need("title")?, need("source_branch")?);
    let target_branch = need("target_branch")?;
    let from = state.project(source)?;
    let target = request.body["target_project_id"].as_u64().unwrap_or(source);
    let may_open = from.is_at_least(caller, Role::Developer) && !from.archived;
    if !may_open || !state.project(target)?.merge_requests_enabled {
        return Err(forbidden(None));
    }
    let sha = from.branch(source_branch)?;
    let to = state.project(target)?;
    if source == target && source_branch == target_branch {
        let text = "You can't use same project/branch for source and target".to_owned();
        return Err(refused_list(422, &[text]));
    }
    if title.chars().count() > LONGEST_TITLE {
        let text = format!("is too long (maximum is {LONGEST_TITLE} characters)");
        return Err(invalid("title", &text));
    }
    // The real texts for these two are not known to us.
    let Some(sha) = sha else {
        return Err(invalid("source_branch", "does not exist"));
    };
    if to.branch(target_branch)?.is_none() {
        return Err(invalid("target_branch", "does not exist"));
    }
    if source != target {
        to.git.take_objects_of(&from.git)?;
    }
    let is_other = |one: &&MergeRequest| {
        one.state == MergeRequestState::Opened
            && one.source_project == source
            && one.source_branch == source_branch
            && one.target_branch == target_branch
    };
    if let Some(other) = to.merge_requests.iter().find(is_other) {
        let text = format!(
            "Another open merge request already exists for this source branch: !{}",
            other.iid
        );
        return Err(refused_list(409, &[text]));
    }
    let mut new = MergeRequest {
        id: state.next_id(),
        iid: 0,
        title: title.to_owned(),
        description: request.text("description").map(str::to_owned),
        state: MergeRequestState::Opened,
        source_project: source,
        source_branch: source_branch.to_owned(),
        target_branch: target_branch.to_owned(),
        sha,
        author: caller,
        assignees: Vec::new(),
        reviewers: Vec::new(),
        labels: Vec::new(),
        remove_source_branch: request.flag("remove_source_branch"),
        squash: request.flag("squash"),
        auto_merge: false,
        merge_commit: None,
        notes: Vec::new(),
        created_at: Timestamp::now(),
        ended_at: None,
    };
    let project = state.project_mut(target)?;
    set_people_and_labels(project, &mut new, caller, request);
    let last = project.merge_requests.iter().map(|one| one.iid).max();
    new.iid = last.unwrap_or(0) + 1;
    project.merge_requests.push(new.clone());
    let project = state.project(target)?;
    Ok(Answer::created(single(state, project, &new)?))
}

fn invalid(field: &str, text: &str) -> Refusal {
    Refusal::Said(Answer::new(400, json!({ "message": { field: [text] } })))
}

/// Who may not see the project is left out without a word, and so is everyone but the first where the licence allows
/// one. Labels that do not exist are made.
fn set_people_and_labels(
    project: &mut Project,
    one: &mut MergeRequest,
    caller: u64,
    request: &ApiRequest,
) {
    let most = if project.several_people {
        usize::MAX
    } else {
        1
    };
    let people = |name: &str| -> Vec<u64> {
        let ids = request.ids(name).into_iter();
        ids.filter(|id| project.public || project.role(*id).is_some())
            .take(most)
            .collect()
    };
    if request.body.get("assignee_ids").is_some() {
        one.assignees = people("assignee_ids");
    }
    if request.body.get("reviewer_ids").is_some() {
        one.reviewers = people("reviewer_ids");
    }
    let labels: Vec<String> = match request.body.get("labels") {
        Some(Value::String(text)) => text.split(',').map(|name| name.trim().to_owned()).collect(),
        Some(Value::Array(all)) => (all.iter())
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
        _ => return,
    };
    let may_make = project.is_at_least(caller, Role::Reporter);
    one.labels.clear();
    for label in labels.into_iter().filter(|label| !label.is_empty()) {
        if may_make {
            project.labels.insert(label.clone());
        }
        if project.labels.contains(&label) && !one.labels.contains(&label) {
            one.labels.push(label);
        }
    }
    one.labels.sort();
}

/// `PUT projects/:id/merge_requests/:iid`.
pub(super) fn update(
    state: &mut State,
    project: u64,
    caller: u64,
    iid: &str,
    request: &ApiRequest,
) -> ApiResult {
    let project = state.project_mut(project)?;
    let mut one = find(project, iid)?.clone();
    let before = one.state;
    if !project.is_at_least(caller, Role::Developer) || project.archived {
        return Err(forbidden(None));
    }
    if let Some(title) = request.text("title") {
        title.clone_into(&mut one.title);
    }
    if let Some(description) = request.text("description") {
        one.description = Some(description.to_owned());
    }
    match (request.text("state_event"), one.state) {
        (Some("close"), MergeRequestState::Opened) => one.state = MergeRequestState::Closed,
        (Some("reopen"), MergeRequestState::Closed) => one.state = MergeRequestState::Opened,
        (Some(_), MergeRequestState::Merged) => return Err(refused(405, "405 Method Not Allowed")),
        _ => {}
    }
    if one.state != before {
        one.ended_at = (one.state == MergeRequestState::Closed).then(Timestamp::now);
    }
    set_people_and_labels(project, &mut one, caller, request);
    find_mut(project, iid)?.clone_from(&one);
    let id = project.id;
    Ok(Answer::ok(single(state, state.project(id)?, &one)?))
}

/// `GET projects/:id/merge_requests/:iid/commits`, the newest first.
pub(super) fn commits(state: &State, project: u64, iid: &str, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let one = find(project, iid)?;
    let base = project.branch(&one.target_branch)?.unwrap_or_default();
    let base = match &one.merge_commit {
        // What was merged is on the base branch now.
        Some(merge) => project.git.resolve(&format!("{merge}^1"))?,
        None => project.git.merge_base(&base, &one.sha)?,
    };
    let mut commits = Vec::new();
    for oid in project.git.history(&one.sha, base.as_deref())? {
        commits.push(entities::commit(state, project, &project.git.commit(&oid)?));
    }
    Ok(request.page(commits))
}

/// `GET` and `POST projects/:id/merge_requests/:iid/notes`.
pub(super) fn notes(
    state: &mut State,
    project: u64,
    caller: u64,
    iid: &str,
    request: &ApiRequest,
) -> ApiResult {
    if request.method == "POST" {
        let body = request.text("body").ok_or_else(|| missing("body"))?;
        let one = find_mut(state.project_mut(project)?, iid)?;
        one.notes.push((caller, body.to_owned()));
    }
    let one = find(state.project(project)?, iid)?;
    let mut notes = Vec::new();
    for (index, (author, body)) in one.notes.iter().enumerate() {
        notes.push(json!({
            "id": index + 1, "body": body, "author": entities::user(state, state.user(*author)?), "system": false,
            "noteable_type": "MergeRequest", "noteable_iid": one.iid, "resolvable": false,
        }));
    }
    match (request.method.as_str(), notes.pop()) {
        ("POST", Some(last)) => Ok(Answer::created(last)),
        (_, last) => {
            notes.extend(last);
            // The newest first, unless somebody wants it otherwise (`lib/api/notes.rb`).
            if request.query("sort") != Some("asc") {
                notes.reverse();
            }
            Ok(request.page(notes))
        }
    }
}
