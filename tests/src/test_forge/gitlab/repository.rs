//! Branches, folders and files: `lib/api/branches.rb`, `repositories.rb` and `files.rb`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::answer::{Answer, ApiResult, forbidden, missing, not_found, refused};
use super::commits::resolve;
use super::entities;
use super::model::State;
use super::request::ApiRequest;
use crate::test_forge::git::EXECUTABLE;

/// `GET projects/:id/repository/branches`.
pub(super) fn branches(state: &State, project: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let mut all = Vec::new();
    for (name, tip) in project.branches()? {
        // `^term` is the beginning of a name, `term$` its end.
        let is_meant = |part: &str| match (part.strip_prefix('^'), part.strip_suffix('$')) {
            (Some(start), _) => name.starts_with(start),
            (None, Some(end)) => name.ends_with(end),
            (None, None) => name.contains(part),
        };
        if request.query("search").is_none_or(is_meant) {
            all.push(entities::branch(state, project, &name, &tip)?);
        }
    }
    Ok(request.page(all))
}

/// `GET projects/:id/repository/branches/:branch`.
pub(super) fn branch(state: &State, project: u64, name: &str) -> ApiResult {
    let project = state.project(project)?;
    let tip = project.branch(name)?.ok_or_else(|| not_found("Branch"))?;
    Ok(Answer::ok(entities::branch(state, project, name, &tip)?))
}

/// `POST projects/:id/repository/branches`.
pub(super) fn create_branch(
    state: &State,
    project: u64,
    caller: u64,
    request: &ApiRequest,
) -> ApiResult {
    let project = state.project(project)?;
    let name = request.text("branch").or_else(|| request.query("branch"));
    let name = name.ok_or_else(|| missing("branch"))?;
    let from = request.text("ref").or_else(|| request.query("ref"));
    let from = from.ok_or_else(|| missing("ref"))?;
    if !project.may_push(caller, name) {
        return Err(forbidden(None));
    }
    let tip = resolve(project, from)?
        .ok_or_else(|| refused(400, &format!("Invalid reference name: {from}")))?;
    if project.branch(name)?.is_some() {
        return Err(refused(400, "Branch already exists"));
    }
    if !project.git.is_ref_name(&format!("refs/heads/{name}"))? {
        return Err(refused(400, "Branch name is invalid"));
    }
    project.set_branch(name, &tip, None)?;
    Ok(Answer::created(entities::branch(
        state, project, name, &tip,
    )?))
}

/// `DELETE projects/:id/repository/branches/:branch`.
pub(super) fn delete_branch(state: &State, project: u64, caller: u64, name: &str) -> ApiResult {
    let project = state.project(project)?;
    project.branch(name)?.ok_or_else(|| not_found("Branch"))?;
    if project.default_branch.as_deref() == Some(name) {
        return Err(refused(405, "Cannot remove HEAD branch"));
    }
    if project.is_protected(name) || !project.may_push(caller, name) {
        return Err(refused(403, "You dont have push access to repo"));
    }
    project.git.delete_ref(&format!("refs/heads/{name}"))?;
    Ok(Answer::none())
}

/// `GET projects/:id/repository/tree`.
pub(super) fn tree(state: &State, project: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let default = project.default_branch.as_deref().unwrap_or("main");
    let name = request.query("ref").unwrap_or(default);
    let Some(commit) = resolve(project, name)? else {
        return Err(not_found("Tree"));
    };
    let folder = request.query("path").unwrap_or_default().trim_matches('/');
    let is_recursive = request.query("recursive") == Some("true");
    let root = if folder.is_empty() {
        commit
    } else {
        let found = project.git.entry(&commit, folder)?;
        let found = found.filter(|entry| entry.kind == "tree");
        found
            .ok_or_else(|| not_found("invalid revision or path"))?
            .oid
    };
    let mut entries = project.git.tree(&root, is_recursive)?;
    // Folders come first.
    entries.sort_by_key(|entry| (entry.kind != "tree", entry.path.clone()));
    let in_folder = |path: &str| match folder {
        "" => path.to_owned(),
        folder => format!("{folder}/{path}"),
    };
    for entry in &mut entries {
        entry.path = in_folder(&entry.path);
    }
    Ok(request.page(entries.iter().map(entities::tree_entry).collect()))
}

/// `GET` and `HEAD projects/:id/repository/files/:file_path`.
pub(super) fn file(state: &State, project: u64, path: &str, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let name = request.query("ref").ok_or_else(|| missing("ref"))?;
    let commit = resolve(project, name)?.ok_or_else(|| not_found("Commit"))?;
    let found = project.git.entry(&commit, path)?;
    let entry = found
        .filter(|entry| entry.kind == "blob")
        .ok_or_else(|| not_found("File"))?;
    let content = project.git.blob(&entry.oid)?;
    let is_executable = entry.mode == EXECUTABLE;
    let name_of_file = path.rsplit('/').next().unwrap_or_default();
    let body = json!({
        "file_name": name_of_file, "file_path": path, "size": content.len(), "encoding": "base64",
        "content": STANDARD.encode(&content), "ref": name, "blob_id": entry.oid, "commit_id": commit,
        "last_commit_id": commit, "execute_filemode": is_executable,
    });
    let mut answer = Answer::ok(body);
    if request.method == "HEAD" {
        answer.body = Value::Null;
        answer.headers = vec![
            ("x-gitlab-blob-id", entry.oid),
            ("x-gitlab-commit-id", commit),
            ("x-gitlab-size", content.len().to_string()),
            ("x-gitlab-execute-filemode", is_executable.to_string()),
        ];
    }
    Ok(answer)
}
