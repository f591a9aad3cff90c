//! The git database: blobs, trees, commits, refs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{Answer, Call, created, ok, shapes};
use crate::test_forge::git::{Change, Entry, GitRepository, Signature};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::node_id;
use crate::test_forge::github::operations::commits::check_path;
use crate::test_forge::github::operations::{actor, refs, writable};

/// Below `/repos/{owner}/{repo}/git`.
pub(super) fn route(call: &Call<'_>, path: &[&str]) -> Answer {
    let git = &call.repository.git;
    match (call.method(), path) {
        ("POST", ["blobs"]) => create_blob(call),
        ("GET", ["blobs", oid]) => {
            of_kind(git, oid, "blob")?;
            ok(blob(call, oid, &git.blob(oid)?))
        }
        ("POST", ["trees"]) => create_tree(call),
        ("GET", ["trees", name @ ..]) => {
            let expression = name.join("/");
            let known = call.repository.branch(&expression).cloned();
            let oid = git.resolve(&format!("{}^{{tree}}", known.unwrap_or(expression)))?;
            let oid = oid.ok_or_else(|| ApiError::not_found("Not Found"))?;
            ok(tree(call, &oid, call.request.query("recursive").is_some())?)
        }
        ("POST", ["commits"]) => create_commit(call),
        ("GET", ["commits", oid]) => {
            of_kind(git, oid, "commit")?;
            ok(shapes::commit(&call.url(""), &git.commit(oid)?))
        }
        ("GET", ["ref", name @ ..]) => {
            let name = format!("refs/{}", name.join("/"));
            let oid = call.repository.refs.get(&name);
            ok(reference(
                call,
                &name,
                oid.ok_or_else(|| ApiError::not_found("Not Found"))?,
            ))
        }
        ("GET", ["matching-refs", name @ ..]) => {
            let start = format!("refs/{}", name.join("/"));
            let all = call.repository.refs.iter();
            let found = all.filter(|(name, _)| name.starts_with(&start));
            ok(found
                .map(|(name, oid)| reference(call, name, oid))
                .collect())
        }
        ("POST", ["refs"]) => {
            let (name, oid) = (call.request.required("ref")?, call.request.required("sha")?);
            call.change(|state, caller, id| refs::create(state, caller, id, name, oid))?;
            created(reference(call, name, oid))
        }
        ("PATCH", ["refs", name @ ..]) => {
            let name = format!("refs/{}", name.join("/"));
            let oid = call.request.required("sha")?;
            let force = call.request.body["force"].as_bool().unwrap_or(false);
            call.change(|state, caller, id| refs::update(state, caller, id, &name, oid, force))?;
            ok(reference(call, &name, oid))
        }
        ("DELETE", ["refs", name @ ..]) => {
            let name = format!("refs/{}", name.join("/"));
            call.change(|state, caller, id| refs::delete(state, caller, id, &name))?;
            Ok(Some((204, Value::Null)))
        }
        _ => Ok(None),
    }
}

fn of_kind(git: &GitRepository, oid: &str, kind: &str) -> ApiResult<()> {
    if git.kind(oid)?.as_deref() == Some(kind) {
        Ok(())
    } else {
        Err(ApiError::not_found("Not Found"))
    }
}

fn reference(call: &Call<'_>, name: &str, oid: &str) -> Value {
    json!({
        "ref": name,
        "node_id": node_id("REF", &[&call.repository.id.to_string(), name]),
        "url": call.url(&format!("/git/{name}")),
        "object": { "type": "commit", "sha": oid, "url": call.url(&format!("/git/commits/{oid}")) },
    })
}

fn blob(call: &Call<'_>, oid: &str, content: &[u8]) -> Value {
    json!({
        "sha": oid,
        "node_id": node_id("B", &[&call.repository.id.to_string(), oid]),
        "size": content.len(),
        "url": call.url(&format!("/git/blobs/{oid}")),
        "content": folded(content),
        "encoding": "base64",
    })
}

/// Base64 in lines of 60 letters, as GitHub has it.
pub(super) fn folded(content: &[u8]) -> String {
    let text = STANDARD.encode(content);
    let mut lines = String::new();
    for start in (0..text.len()).step_by(60) {
        lines.push_str(
            text.get(start..text.len().min(start + 60))
                .unwrap_or_default(),
        );
        lines.push('\n');
    }
    lines
}

fn create_blob(call: &Call<'_>) -> Answer {
    let content = call.request.required("content")?;
    let bytes = match call.request.text("encoding") {
        Some("base64") => STANDARD
            .decode(content.replace(['\n', '\r'], ""))
            .map_err(|_| ApiError::unprocessable("content is not valid Base64"))?,
        _ => content.as_bytes().to_vec(),
    };
    let oid = call.change(|state, caller, id| {
        let repository = writable(state, caller, id)?;
        Ok(repository.git.write_blob(&bytes)?)
    })?;
    created(json!({ "sha": oid, "url": call.url(&format!("/git/blobs/{oid}")) }))
}

fn tree(call: &Call<'_>, oid: &str, recursive: bool) -> ApiResult<Value> {
    let git = &call.repository.git;
    let entry = |entry: &Entry| -> ApiResult<Value> {
        let oid = &entry.oid;
        let mut shape = json!({
            "path": entry.path,
            "mode": entry.mode,
            "type": entry.kind,
            "sha": oid,
        });
        if entry.kind == "blob" {
            shape["size"] = git.blob(oid)?.len().into();
            shape["url"] = call.url(&format!("/git/blobs/{oid}")).into();
        } else {
            shape["url"] = call.url(&format!("/git/trees/{oid}")).into();
        }
        Ok(shape)
    };
    let entries = git.tree(oid, recursive)?;
    let entries = entries.iter().map(entry).collect::<ApiResult<Vec<_>>>()?;
    Ok(json!({
        "sha": oid,
        "url": call.url(&format!("/git/trees/{oid}")),
        "tree": entries,
        "truncated": false,
    }))
}

fn create_tree(call: &Call<'_>) -> Answer {
    let entries = call.request.body["tree"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let oid = call.change(|state, caller, id| {
        let git = &writable(state, caller, id)?.git;
        let base =
            match call.request.text("base_tree") {
                Some(base) => {
                    let found = git.resolve(&format!("{base}^{{tree}}"))?;
                    // GitHub's words for a base that is not there.
                    Some(found.ok_or_else(|| {
                        ApiError::unprocessable("base_tree is not a valid tree oid")
                    })?)
                }
                None => None,
            };
        let mut changes = Vec::new();
        for entry in &entries {
            changes.push(change(git, base.as_deref(), entry)?);
        }
        Ok(git.write_tree(base.as_deref(), &changes)?)
    })?;
    created(tree(call, &oid, false)?)
}

fn change(git: &GitRepository, base: Option<&str>, entry: &Value) -> ApiResult<Change> {
    let path = entry["path"].as_str();
    let path = path
        .ok_or_else(|| ApiError::unprocessable("Must supply a valid tree.path"))?
        .to_owned();
    check_path(&path).map_err(|error| ApiError::unprocessable(format!("tree.{error}")))?;
    if let Some(content) = entry["content"].as_str() {
        let oid = git.write_blob(content.as_bytes())?;
        let mode = entry["mode"].as_str().unwrap_or("100644").to_owned();
        return Ok(Change::Put { path, mode, oid });
    }
    if entry.get("sha").is_some_and(Value::is_null) {
        let there = base
            .map(|base| git.entry(base, &path))
            .transpose()?
            .flatten();
        return match there {
            Some(_) => Ok(Change::Delete { path }),
            // What GitHub says where a deletion meets nothing.
            None => Err(ApiError::unprocessable("GitRPC::BadObjectState")),
        };
    }
    let oid = entry["sha"].as_str().unwrap_or_default().to_owned();
    let mode = entry["mode"].as_str().unwrap_or_default().to_owned();
    if !["100644", "100755", "040000", "160000", "120000"].contains(&mode.as_str()) {
        return Err(ApiError::unprocessable("Must supply a valid tree.mode"));
    }
    if git.kind(&oid)?.is_none() {
        return Err(ApiError::unprocessable(format!(
            "tree.sha {oid} is not a valid blob"
        )));
    }
    Ok(Change::Put { path, mode, oid })
}

fn create_commit(call: &Call<'_>) -> Answer {
    let request = call.request;
    let (message, tree) = (request.required("message")?, request.required("tree")?);
    let parents = request.texts("parents");
    let oid = call.change(|state, caller, id| {
        let own = actor(state, caller)?.signature();
        let git = &writable(state, caller, id)?.git;
        if git.kind(tree)?.as_deref() != Some("tree") {
            return Err(ApiError::unprocessable("Tree SHA does not exist"));
        }
        for parent in &parents {
            if git.kind(parent)?.as_deref() != Some("commit") {
                return Err(ApiError::unprocessable(
                    "Parent SHA does not exist or is not a commit object",
                ));
            }
        }
        let author = signature(&request.body["author"]).unwrap_or(own);
        let committer = signature(&request.body["committer"]).unwrap_or_else(|| author.clone());
        Ok(git.write_commit(tree, &parents, message, &author, &committer)?)
    })?;
    created(shapes::commit(
        &call.url(""),
        &call.repository.git.commit(&oid)?,
    ))
}

fn signature(value: &Value) -> Option<Signature> {
    Some(Signature::new(
        value["name"].as_str()?,
        value["email"].as_str()?,
    ))
}
