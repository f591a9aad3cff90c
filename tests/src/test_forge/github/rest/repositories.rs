//! A repository, its branches, commits and files.

use serde_json::{Value, json};

use super::git_data::folded;
use super::{Answer, Call, created, ok, shapes};
use crate::test_forge::git::Entry;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::operations::commits::{self, NewCommit};

/// Below `/repos/{owner}/{repo}`.
pub(super) fn route(call: &Call<'_>, path: &[&str]) -> Answer {
    match (call.method(), path) {
        ("GET", []) => ok(shapes::repository(
            call.context,
            call.state,
            call.repository,
        )),
        ("GET", ["branches"]) => {
            let names = call.repository.refs.keys();
            let names = names.filter_map(|name| name.strip_prefix("refs/heads/"));
            ok(names
                .map(|name| branch(call, name))
                .collect::<ApiResult<_>>()?)
        }
        ("GET", ["branches", name @ ..]) => ok(branch(call, &name.join("/"))?),
        ("GET", ["commits", name @ ..]) => {
            let name = match name {
                [] => call
                    .request
                    .query("sha")
                    .unwrap_or(&call.repository.default_branch)
                    .to_owned(),
                name => name.join("/"),
            };
            let oid = revision(call, &name)?;
            if path.len() > 1 {
                return ok(commit(call, &oid)?);
            }
            let all = call.repository.git.history(&oid, None)?;
            ok(all
                .iter()
                .map(|oid| commit(call, oid))
                .collect::<ApiResult<_>>()?)
        }
        ("GET", ["contents", path @ ..]) => contents(call, &path.join("/")),
        ("PUT", ["contents", path @ ..]) => put_contents(call, &path.join("/")),
        _ => Ok(None),
    }
}

/// The commit that a name stands for in what this request sees.
fn revision(call: &Call<'_>, name: &str) -> ApiResult<String> {
    if let Some(tip) = call.repository.branch(name) {
        return Ok(tip.clone());
    }
    let found = call.repository.git.resolve(&format!("{name}^{{commit}}"))?;
    found.ok_or_else(|| ApiError::not_found("Not Found"))
}

fn commit(call: &Call<'_>, oid: &str) -> ApiResult<Value> {
    let inner = call.repository.git.commit(oid)?;
    let shape = shapes::commit(&call.url(""), &inner);
    let account = |email: &str| {
        let mut accounts = call.state.accounts.iter();
        let account = accounts.find(|account| account.signature().email == email);
        account.map(|account| shapes::account(call.context, account))
    };
    let url = call.url(&format!("/commits/{oid}"));
    Ok(json!({
        "sha": oid,
        "node_id": shape["node_id"],
        "url": url,
        "html_url": url,
        "comments_url": format!("{url}/comments"),
        "author": account(&inner.author.email),
        "committer": account(&inner.committer.email),
        "parents": shape["parents"],
        "commit": {
            "author": shape["author"],
            "committer": shape["committer"],
            "message": shape["message"],
            "tree": shape["tree"],
            "url": shape["url"],
            "comment_count": 0,
            "verification": shape["verification"],
        },
    }))
}

fn branch(call: &Call<'_>, name: &str) -> ApiResult<Value> {
    let tip = call.repository.branch(name);
    let tip = tip.ok_or_else(|| ApiError::not_found("Branch not found"))?;
    let url = call.url(&format!("/branches/{name}"));
    Ok(json!({
        "name": name,
        "commit": commit(call, tip)?,
        "_links": { "self": url, "html": url },
        "protected": call.repository.rules.iter().any(|rule| rule.covers(name)),
        "protection": { "enabled": false },
        "protection_url": format!("{url}/protection"),
    }))
}

fn contents(call: &Call<'_>, path: &str) -> Answer {
    let git = &call.repository.git;
    let name = call
        .request
        .query("ref")
        .unwrap_or(&call.repository.default_branch);
    let tip = revision(call, name.trim_start_matches("refs/heads/"))?;
    let missing = || ApiError::not_found("Not Found");
    let folder = match path {
        "" => Some(tip.clone()),
        path => {
            let entry = git.entry(&tip, path)?.ok_or_else(missing)?;
            if entry.kind == "blob" {
                return ok(file(call, &entry, true)?);
            }
            (entry.kind == "tree").then_some(entry.oid)
        }
    };
    let mut entries = git.tree(&folder.ok_or_else(missing)?, false)?;
    for entry in &mut entries {
        if !path.is_empty() {
            entry.path = format!("{path}/{}", entry.path);
        }
    }
    ok(entries
        .iter()
        .map(|entry| file(call, entry, false))
        .collect::<ApiResult<_>>()?)
}

fn file(call: &Call<'_>, entry: &Entry, whole: bool) -> ApiResult<Value> {
    let url = call.url(&format!("/contents/{}", entry.path));
    let git_url = call.url(&format!("/git/{}s/{}", entry.kind, entry.oid));
    let mut shape = json!({
        "type": match (entry.kind.as_str(), entry.mode.as_str()) {
            ("tree", _) => "dir",
            (_, "120000") => "symlink",
            ("commit", _) => "submodule",
            _ => "file",
        },
        "name": entry.path.rsplit('/').next(),
        "path": entry.path,
        "sha": entry.oid,
        "size": 0,
        "url": url,
        "html_url": url,
        "git_url": git_url,
        "download_url": if entry.kind == "blob" { json!(url) } else { Value::Null },
        "_links": { "self": url, "git": git_url, "html": url },
    });
    if entry.kind == "blob" {
        let content = call.repository.git.blob(&entry.oid)?;
        shape["size"] = content.len().into();
        if whole {
            shape["encoding"] = "base64".into();
            shape["content"] = folded(&content).into();
        }
    }
    Ok(shape)
}

fn put_contents(call: &Call<'_>, path: &str) -> Answer {
    let request = call.request;
    let branch = request
        .text("branch")
        .unwrap_or(&call.repository.default_branch);
    let head = call.repository.branch(branch).cloned();
    let head = head.ok_or_else(|| ApiError::not_found(format!("Branch {branch} not found")))?;
    let there = call.repository.git.entry(&head, path)?;
    match (&there, request.text("sha")) {
        (Some(_), None) => {
            return Err(ApiError::unprocessable(
                "Invalid request.\n\n\"sha\" wasn't supplied.",
            ));
        }
        (Some(entry), Some(sha)) if entry.oid != sha => {
            let message = format!("{path} does not match {sha}");
            return Err(ApiError::new(Kind::StaleData, message));
        }
        _ => {}
    }
    let (headline, body) = match request.required("message")?.split_once("\n\n") {
        Some((headline, body)) => (headline, body),
        None => (request.required("message")?, ""),
    };
    let new = NewCommit {
        branch: branch.to_owned(),
        expected_head: head,
        headline: headline.to_owned(),
        body: body.to_owned(),
        additions: vec![(
            path.to_owned(),
            request.required("content")?.replace('\n', ""),
        )],
        deletions: Vec::new(),
        keeps_modes: true,
    };
    let oid = call.change(|state, caller, id| commits::create(state, caller, id, &new))?;
    let git = &call.repository.git;
    let entry = git
        .entry(&oid, path)?
        .ok_or_else(|| ApiError::not_found("Not Found"))?;
    let answer = json!({
        "content": file(call, &entry, false)?,
        "commit": shapes::commit(&call.url(""), &git.commit(&oid)?),
    });
    if there.is_some() {
        ok(answer)
    } else {
        created(answer)
    }
}
