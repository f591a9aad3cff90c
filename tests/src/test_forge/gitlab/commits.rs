//! Commits: `POST repository/commits` as `lib/api/commits.rb`, `app/services/commits/create_service.rb` and Gitaly's
//! `UserCommitFiles` do it, and what is read of them.

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::answer::{Answer, ApiResult, Refusal, bad_request, forbidden, not_found, refused};
use super::entities;
use super::model::{Project, State};
use super::request::ApiRequest;
use crate::test_forge::git::{Change, EXECUTABLE, Entry, GitRepository, PLAIN, Signature};

/// The empty tree, which git knows without being told.
const EMPTY_TREE: &str = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

/// `POST projects/:id/repository/commits`.
pub(super) fn create(state: &State, project: u64, caller: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let branch = request.text("branch").unwrap_or_default();
    if !project.may_push(caller, branch) {
        return Err(forbidden(Some(
            "You are not allowed to push into this branch",
        )));
    }
    let actions = actions(request)?;
    let start = start(project, branch, request)?;
    let message = request.text("commit_message").unwrap_or_default();
    let oid = commit(state, project, caller, request, &start, &actions, message)?;
    let old = if start.is_new {
        None
    } else {
        start.at.as_deref()
    };
    if project.set_branch(branch, &oid, old).is_err() {
        let text = format!("Could not update refs/heads/{branch}. Please refresh and try again.");
        return Err(refused(400, &text));
    }
    Ok(Answer::created(detail(state, project, &oid)?))
}

struct Start {
    /// Whether the branch is made by this commit.
    is_new: bool,
    /// Where it starts; nothing in an empty repository.
    at: Option<String>,
}

/// `validate!` of `create_service.rb`, in its order.
fn start(project: &Project, branch: &str, request: &ApiRequest) -> Result<Start, Refusal> {
    let sha = request.text("start_sha");
    let start_branch = request
        .text("start_branch")
        .or(sha.is_none().then_some(branch));
    let is_empty = project.is_empty()?;
    let mut at = None;
    if let Some(sha) = sha {
        at = project.git.resolve(&format!("{sha}^{{commit}}"))?;
        if at.is_none() {
            return Err(refused(400, &format!("Cannot find start_sha '{sha}'")));
        }
    }
    if let Some(start_branch) = start_branch {
        at = project.branch(start_branch)?;
        if at.is_none() && !is_empty {
            let text = "You can only create or edit files when you are on a branch";
            return Err(refused(400, text));
        }
    }
    let is_new = start_branch != Some(branch) || sha.is_some();
    if is_new && project.branch(branch)?.is_some() && !request.flag("force") {
        let text = format!(
            "A branch called '{branch}' already exists. Switch to that branch in order to make changes"
        );
        return Err(refused(400, &text));
    }
    if is_new && !project.git.is_ref_name(&format!("refs/heads/{branch}"))? {
        let text = format!(
            "Something went wrong when we tried to create '{branch}' for you: Branch name is invalid"
        );
        return Err(refused(400, &text));
    }
    Ok(Start {
        is_new: is_new || is_empty,
        at,
    })
}

struct Action<'a> {
    verb: &'a str,
    path: &'a str,
    previous: Option<&'a str>,
    content: Option<Vec<u8>>,
    executable: bool,
}

/// `validate_commits_attrs!`.
fn actions(request: &ApiRequest) -> Result<Vec<Action<'_>>, Refusal> {
    for name in ["branch", "commit_message", "actions"] {
        let is_blank = match request.body.get(name) {
            None | Some(Value::Null) => true,
            Some(Value::String(text)) => text.trim().is_empty(),
            Some(Value::Array(all)) => all.is_empty(),
            Some(_) => false,
        };
        if is_blank {
            return Err(bad_request(&format!("{name} is required")));
        }
    }
    let Some(values) = request.body["actions"].as_array() else {
        return Err(bad_request("actions must be an array"));
    };
    let both = request.text("start_sha").is_some() && request.text("start_branch").is_some();
    if both {
        return Err(bad_request(
            "start_branch, start_sha are mutually exclusive",
        ));
    }
    values
        .iter()
        .enumerate()
        .map(|(index, value)| action(index, value))
        .collect()
}

fn action(index: usize, value: &Value) -> Result<Action<'_>, Refusal> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let refuse = |what: &str| bad_request(&format!("actions[{index}]{what}"));
    let verb = text("action").ok_or_else(|| refuse("[action] is required"))?;
    let path = text("file_path").ok_or_else(|| refuse("[file_path] is required"))?;
    if !["create", "update", "move", "delete", "chmod"].contains(&verb) {
        return Err(refuse(
            "[action] must be one of: create, update, move, delete, chmod",
        ));
    }
    let content = match (text("content"), text("encoding").unwrap_or("text")) {
        (None, _) => None,
        (Some(content), "text") => Some(content.as_bytes().to_vec()),
        (Some(content), "base64") => {
            let decoded = STANDARD.decode(content);
            Some(decoded.map_err(|_| refused(400, "invalid base64"))?)
        }
        _ => return Err(refuse("[encoding] must be text or base64")),
    };
    if verb == "update" && content.is_none() {
        return Err(refuse("[content] is required for update action"));
    }
    Ok(Action {
        verb,
        path,
        previous: text("previous_path"),
        content,
        executable: value["execute_filemode"].as_bool().unwrap_or(false),
    })
}

fn commit(
    state: &State,
    project: &Project,
    caller: u64,
    request: &ApiRequest,
    start: &Start,
    actions: &[Action<'_>],
    message: &str,
) -> Result<String, Refusal> {
    let mut tree = match &start.at {
        Some(at) => project.git.commit(at)?.tree,
        None => project.git.make_tree(&[])?,
    };
    for action in actions {
        let changes = changes(&project.git, &tree, action)?;
        // Git refuses a file below a file.
        tree = (project.git.write_tree(Some(&tree), &changes))
            .map_err(|_| refused(400, &format!("invalid path: '{}'", action.path)))?;
    }
    let committer = state.user(caller)?.signature();
    let author = Signature::new(
        request.text("author_name").unwrap_or(&committer.name),
        request.text("author_email").unwrap_or(&committer.email),
    );
    let parents: Vec<String> = start.at.iter().cloned().collect();
    let commit = project
        .git
        .write_commit(&tree, &parents, message, &author, &committer);
    Ok(commit?)
}

/// What an action does to a tree; `internal/gitaly/service/operations/commit_files.go`.
fn changes(git: &GitRepository, tree: &str, action: &Action<'_>) -> Result<Vec<Change>, Refusal> {
    let is_inside = |path: &str| {
        let part = |part: &str| !matches!(part, "" | "." | ".." | ".git");
        path.split('/').all(part)
    };
    if !is_inside(action.path) {
        return Err(refused(400, "Path cannot include directory traversal"));
    }
    let there = git.entry(tree, action.path)?;
    // Nothing can be below a file. The real text is not known to us.
    for (at, _) in action.path.match_indices('/') {
        let folder = git.entry(tree, &action.path[..at])?;
        if folder.is_some_and(|entry| entry.kind != "tree") {
            return Err(refused(400, "A file with this name already exists"));
        }
    }
    let exists = || refused(400, "A file with this name already exists");
    let absent = || refused(400, "A file with this name doesn't exist");
    let file = |entry: Option<Entry>| entry.filter(|entry| entry.kind == "blob");
    let put = |mode: &str, oid: String| Change::Put {
        path: action.path.to_owned(),
        mode: mode.to_owned(),
        oid,
    };
    let write = |content: &Option<Vec<u8>>| git.write_blob(content.as_deref().unwrap_or_default());
    Ok(match action.verb {
        "create" => {
            if there.is_some() {
                return Err(exists());
            }
            vec![put(PLAIN, write(&action.content)?)]
        }
        "update" => {
            let entry = file(there).ok_or_else(absent)?;
            vec![put(&entry.mode, write(&action.content)?)]
        }
        "delete" => {
            file(there).ok_or_else(absent)?;
            let path = action.path.to_owned();
            vec![Change::Delete { path }]
        }
        "chmod" => {
            let entry = file(there).ok_or_else(absent)?;
            let mode = if action.executable { EXECUTABLE } else { PLAIN };
            vec![put(mode, entry.oid)]
        }
        _ => {
            let previous = action.previous.unwrap_or_default();
            let entry = file(git.entry(tree, previous)?).ok_or_else(absent)?;
            if there.is_some() {
                return Err(exists());
            }
            let oid = match &action.content {
                Some(_) => write(&action.content)?,
                None => entry.oid,
            };
            let path = previous.to_owned();
            vec![Change::Delete { path }, put(&entry.mode, oid)]
        }
    })
}

/// A commit with its statistics.
pub(super) fn detail(state: &State, project: &Project, oid: &str) -> Result<Value> {
    let commit = project.git.commit(oid)?;
    let (additions, deletions) = project.git.lines(before(&commit.parents), oid)?;
    let mut value = entities::commit(state, project, &commit);
    value["stats"] = json!({
        "additions": additions, "deletions": deletions, "total": additions + deletions,
    });
    value["status"] = Value::Null;
    value["project_id"] = json!(project.id);
    value["last_pipeline"] = Value::Null;
    Ok(value)
}

fn before(parents: &[String]) -> &str {
    parents.first().map_or(EMPTY_TREE, String::as_str)
}

/// `GET projects/:id/repository/commits/:sha`.
pub(super) fn get(state: &State, project: u64, name: &str) -> ApiResult {
    let project = state.project(project)?;
    let found = find(project, name)?;
    Ok(Answer::ok(detail(state, project, &found)?))
}

/// `GET projects/:id/repository/commits`.
pub(super) fn list(state: &State, project: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let default = project.default_branch.as_deref().unwrap_or("main");
    // A name, or a range of two.
    let name = request.query("ref_name").unwrap_or(default);
    let (without, name) = match name.split_once("..") {
        Some((without, name)) => (resolve(project, without)?, name),
        None => (None, name),
    };
    let Some(tip) = resolve(project, name)? else {
        return Err(not_found("Repository"));
    };
    let mut commits = Vec::new();
    for oid in project.git.history(&tip, without.as_deref())? {
        commits.push(entities::commit(state, project, &project.git.commit(&oid)?));
    }
    Ok(request.page(commits))
}

/// `GET projects/:id/repository/commits/:sha/diff`.
pub(super) fn diff(state: &State, project: u64, name: &str, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let oid = find(project, name)?;
    let commit = project.git.commit(&oid)?;
    Ok(request.page(diffs(project, before(&commit.parents), &oid)?))
}

/// `GET projects/:id/repository/compare`.
pub(super) fn compare(state: &State, project: u64, request: &ApiRequest) -> ApiResult {
    let project = state.project(project)?;
    let from = request.query("from").unwrap_or_default();
    let to = request.query("to").unwrap_or_default();
    let (Some(from), Some(to)) = (resolve(project, from)?, resolve(project, to)?) else {
        return Err(not_found("Ref"));
    };
    let mut commits = Vec::new();
    for oid in project.git.history(&to, Some(&from))? {
        commits.push(entities::commit(state, project, &project.git.commit(&oid)?));
    }
    let start = project.git.merge_base(&from, &to)?.unwrap_or(from);
    Ok(Answer::ok(json!({
        "commit": commits.first(), "commits": commits, "diffs": diffs(project, &start, &to)?,
        "compare_timeout": false, "compare_same_ref": start == to,
    })))
}

fn diffs(project: &Project, from: &str, to: &str) -> Result<Vec<Value>> {
    let files = project.git.changed(from, to)?;
    Ok(files
        .into_iter()
        .map(|(kind, path)| {
            json!({
                "old_path": path, "new_path": path, "new_file": kind == 'A', "deleted_file": kind == 'D',
                "renamed_file": false, "generated_file": null, "diff": "",
            })
        })
        .collect())
}

/// The commit of a branch, tag or id.
pub(super) fn resolve(project: &Project, name: &str) -> Result<Option<String>> {
    match project.branch(name)? {
        Some(tip) => Ok(Some(tip)),
        None => project.git.resolve(&format!("{name}^{{commit}}")),
    }
}

fn find(project: &Project, name: &str) -> Result<String, Refusal> {
    resolve(project, name)?.ok_or_else(|| not_found("Commit"))
}
