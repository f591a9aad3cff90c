//! The JSON of GitLab's objects: `lib/api/entities` of GitLab 17, without what belongs to features that are not here.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::model::{MergeRequest, MergeRequestState, Project, State, User};
use crate::test_forge::git::{Commit, Entry};

/// Times are always said in this form.
fn time(seconds: i64) -> String {
    let at = Timestamp::from_second(seconds).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%M:%S.000+00:00").to_string()
}

pub(super) fn user(state: &State, user: &User) -> Value {
    json!({
        "id": user.id, "username": user.username, "name": user.name, "state": "active", "locked": false,
        "public_email": "", "avatar_url": null, "web_url": format!("{}/{}", state.url, user.username),
    })
}

fn people(state: &State, ids: &[u64]) -> Result<Vec<Value>> {
    ids.iter()
        .map(|id| Ok(user(state, state.user(*id)?)))
        .collect()
}

pub(super) fn project(state: &State, project: &Project) -> Result<Value> {
    let (namespace, name) = project.path.rsplit_once('/').unwrap_or(("", &project.path));
    let is_empty = project.is_empty()?;
    Ok(json!({
        "id": project.id, "name": name, "path": name, "path_with_namespace": project.path,
        "name_with_namespace": project.path.replace('/', " / "), "description": null,
        "default_branch": if is_empty { None } else { project.default_branch.as_ref() },
        "web_url": format!("{}/{}", state.url, project.path), "tag_list": [], "topics": [],
        "http_url_to_repo": format!("{}/{}.git", state.url, project.path),
        "visibility": if project.public { "public" } else { "private" },
        "empty_repo": is_empty, "archived": project.archived,
        "merge_requests_enabled": project.merge_requests_enabled,
        "namespace": { "id": 1, "name": namespace, "path": namespace, "kind": "group", "full_path": namespace },
        "forked_from_project": project.forked_from.map(|id| json!({ "id": id })),
        "merge_method": "merge", "squash_option": "default_off",
    }))
}

/// A commit, without its statistics.
pub(super) fn commit(state: &State, project: &Project, commit: &Commit) -> Value {
    let title = commit.message.lines().next().unwrap_or_default();
    json!({
        "id": commit.oid, "short_id": &commit.oid[..8], "created_at": time(commit.committed_at),
        "parent_ids": commit.parents, "title": title, "message": commit.message,
        "author_name": commit.author.name, "author_email": commit.author.email,
        "authored_date": time(commit.authored_at), "committer_name": commit.committer.name,
        "committer_email": commit.committer.email, "committed_date": time(commit.committed_at),
        "trailers": {}, "extended_trailers": {},
        "web_url": format!("{}/{}/-/commit/{}", state.url, project.path, commit.oid),
    })
}

pub(super) fn branch(state: &State, project: &Project, name: &str, tip: &str) -> Result<Value> {
    Ok(json!({
        "name": name, "commit": commit(state, project, &project.git.commit(tip)?),
        "merged": false, "protected": project.is_protected(name), "developers_can_push": false,
        "developers_can_merge": false, "can_push": true,
        "default": project.default_branch.as_deref() == Some(name),
        "web_url": format!("{}/{}/-/tree/{name}", state.url, project.path),
    }))
}

/// An entry with its whole path.
pub(super) fn tree_entry(entry: &Entry) -> Value {
    let name = entry.path.rsplit('/').next().unwrap_or_default();
    json!({ "id": entry.oid, "name": name, "type": entry.kind, "path": entry.path, "mode": entry.mode })
}

pub(super) fn merge_request(
    state: &State,
    target: &Project,
    request: &MergeRequest,
) -> Result<Value> {
    let assignees = people(state, &request.assignees)?;
    let ended = |state: MergeRequestState| {
        let at = request.ended_at.filter(|_| request.state == state);
        at.map(|at| time(at.as_second()))
    };
    let is_merged = request.state == MergeRequestState::Merged;
    let mergeability = super::merging::detailed_status(target, request)?;
    let can_be_merged = if mergeability == "conflict" {
        "cannot_be_merged"
    } else {
        "can_be_merged"
    };
    let mut value = json!({
        "id": request.id, "iid": request.iid, "project_id": target.id, "title": request.title,
        "description": request.description, "state": request.state.as_str(),
        "created_at": time(request.created_at.as_second()), "updated_at": time(request.created_at.as_second()),
        "merged_by": null, "merge_user": null, "merged_at": ended(MergeRequestState::Merged), "closed_by": null, "closed_at": ended(MergeRequestState::Closed),
        "target_branch": request.target_branch, "source_branch": request.source_branch,
        "user_notes_count": request.notes.len(), "upvotes": 0, "downvotes": 0,
        "author": user(state, state.user(request.author)?), "assignee": assignees.first(), "assignees": assignees,
        "reviewers": people(state, &request.reviewers)?, "source_project_id": request.source_project,
        "target_project_id": target.id, "labels": request.labels, "draft": request.is_draft(),
        "work_in_progress": request.is_draft(), "milestone": null,
    });
    let more = json!({
        "merge_when_pipeline_succeeds": request.auto_merge, "merge_status": can_be_merged,
        "detailed_merge_status": mergeability, "sha": request.sha,
        "merge_commit_sha": if is_merged { request.merge_commit.as_ref() } else { None },
        "squash_commit_sha": null, "discussion_locked": null, "should_remove_source_branch": null,
        "force_remove_source_branch": request.remove_source_branch, "prepared_at": time(request.created_at.as_second()),
        "reference": format!("!{}", request.iid),
        "references": {
            "short": format!("!{}", request.iid), "relative": format!("!{}", request.iid),
            "full": format!("{}!{}", target.path, request.iid),
        },
        "web_url": format!("{}/{}/-/merge_requests/{}", state.url, target.path, request.iid),
        "time_stats": {
            "time_estimate": 0, "total_time_spent": 0, "human_time_estimate": null, "human_total_time_spent": null,
        },
        "squash": request.squash, "squash_on_merge": request.squash,
        "task_completion_status": { "count": 0, "completed_count": 0 },
        "has_conflicts": mergeability == "conflict", "blocking_discussions_resolved": true,
        "merge_error": null, "user": { "can_merge": true },
    });
    if let (Value::Object(value), Value::Object(more)) = (&mut value, more) {
        value.extend(more);
    }
    Ok(value)
}
