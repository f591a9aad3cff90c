//! Commits, trees and blobs.

use jiff::Timestamp;

use super::node::{Arguments, Item, Node, connection};
use crate::test_forge::git::{Entry, GitRepository, Signature};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{Repository, State, node_id};
use crate::test_forge::github::server::Context;

/// A text in a blob that is longer is cut, and `isTruncated`; the figure is what people see at GitHub.
const LONGEST_TEXT: usize = 512_000;

/// What an expression such as `main:path` stands for. Names of branches are looked up in the state and not in git, so
/// that an older picture gives older files.
pub(super) fn object(repository: &Repository, expression: &str) -> ApiResult<Item> {
    let (revision, path) = match expression.split_once(':') {
        Some((revision, path)) => (revision, Some(path)),
        None => (expression, None),
    };
    let revision = match revision {
        "HEAD" | "" => &repository.default_branch,
        other => other,
    };
    let names = [
        revision.to_owned(),
        format!("refs/heads/{revision}"),
        format!("refs/tags/{revision}"),
    ];
    let known = names.iter().find_map(|name| repository.refs.get(name));
    let start = known.map_or(revision, String::as_str);
    let expression = path.map_or_else(|| start.to_owned(), |path| format!("{start}:{path}"));
    let Some(oid) = repository.git.resolve(&expression)? else {
        return Ok(Item::null());
    };
    let kind = repository.git.kind(&oid)?;
    Ok(Item::optional(of_kind(
        repository.id,
        kind.as_deref().unwrap_or_default(),
        oid,
        path.unwrap_or_default(),
    )))
}

fn of_kind(id: u64, kind: &str, oid: String, path: &str) -> Option<Node> {
    match kind {
        "commit" => Some(Node::Commit(id, oid)),
        "tree" => Some(Node::Tree(id, oid, path.trim_matches('/').to_owned())),
        "blob" => Some(Node::Blob(id, oid)),
        _ => None,
    }
}

fn git(state: &State, id: u64) -> ApiResult<&GitRepository> {
    let repository = state.repositories.get(&id);
    Ok(&repository
        .ok_or_else(|| ApiError::not_found("Not Found"))?
        .git)
}

/// A field of `Commit`.
pub(super) fn commit(
    context: &Context,
    id: u64,
    oid: &str,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    let git = git(&state, id)?;
    let short = oid.get(..7).unwrap_or(oid);
    match name {
        "id" => return Ok(Some(Item::leaf(node_id("C", &[&id.to_string(), oid])))),
        "oid" => return Ok(Some(Item::leaf(oid))),
        "abbreviatedOid" => return Ok(Some(Item::leaf(short))),
        "url" | "commitUrl" => {
            let of = state.repositories.get(&id).map(Repository::full_name);
            let url = format!(
                "{}/{}/commit/{oid}",
                context.server.url,
                of.unwrap_or_default()
            );
            return Ok(Some(Item::leaf(url)));
        }
        "repository" => return Ok(Some(Item::Object(Node::Repository(id)))),
        "statusCheckRollup" => return Ok(Some(Item::null())),
        _ => {}
    }
    let commit = git.commit(oid)?;
    let (headline, body) = commit
        .message
        .split_once('\n')
        .unwrap_or((&commit.message, ""));
    let date = |seconds| {
        Timestamp::from_second(seconds)
            .map(|time| time.to_string())
            .unwrap_or_default()
    };
    Ok(Some(match name {
        "message" => Item::leaf(commit.message.clone()),
        "messageHeadline" => Item::leaf(headline),
        "messageBody" => Item::leaf(body.trim_start_matches('\n')),
        "committedDate" => Item::leaf(date(commit.committed_at)),
        "authoredDate" => Item::leaf(date(commit.authored_at)),
        "author" => person(&state, &commit.author, &date(commit.authored_at)),
        "committer" => person(&state, &commit.committer, &date(commit.committed_at)),
        "tree" => Item::Object(Node::Tree(id, commit.tree, String::new())),
        "parents" => {
            let parents = commit.parents.into_iter();
            let nodes = parents
                .map(|parent| Item::Object(Node::Commit(id, parent)))
                .collect();
            connection("CommitConnection", nodes, arguments)
        }
        "file" => {
            let entry = git.entry(oid, arguments.required("path")?)?;
            Item::optional(entry.map(|entry| Node::TreeEntry(id, entry)))
        }
        "history" => {
            let commits = git.history(oid, None)?.into_iter();
            let nodes = commits
                .map(|oid| Item::Object(Node::Commit(id, oid)))
                .collect();
            connection("CommitHistoryConnection", nodes, arguments)
        }
        _ => return Ok(None),
    }))
}

fn person(state: &State, signature: &Signature, date: &str) -> Item {
    let mut accounts = state.accounts.iter();
    let account = accounts.find(|account| account.signature().email == signature.email);
    // `user` is a `User`: a commit of an App's bot has none.
    let user = account.filter(|account| !account.login.ends_with("[bot]"));
    Item::Object(Node::Record(
        "GitActor",
        vec![
            ("name", Item::leaf(signature.name.clone())),
            ("email", Item::leaf(signature.email.clone())),
            ("date", Item::leaf(date)),
            (
                "user",
                Item::optional(user.map(|account| Node::Account(account.login.clone()))),
            ),
        ],
    ))
}

/// A field of `Blob`.
pub(super) fn blob(context: &Context, id: u64, oid: &str, name: &str) -> ApiResult<Option<Item>> {
    let state = context.state();
    let bytes = git(&state, id)?.blob(oid)?;
    let binary = bytes.contains(&0) || std::str::from_utf8(&bytes).is_err();
    Ok(Some(match name {
        "id" => Item::leaf(node_id("B", &[&id.to_string(), oid])),
        "oid" => Item::leaf(oid),
        "abbreviatedOid" => Item::leaf(oid.get(..7).unwrap_or(oid)),
        "byteSize" => Item::leaf(bytes.len()),
        "isBinary" => Item::leaf(binary),
        "isTruncated" => Item::leaf(!binary && bytes.len() > LONGEST_TEXT),
        "text" if binary => Item::null(),
        "text" => {
            let cut = &bytes[..bytes.len().min(LONGEST_TEXT)];
            Item::leaf(String::from_utf8_lossy(cut).into_owned())
        }
        _ => return Ok(None),
    }))
}

/// A field of `Tree`.
pub(super) fn tree(
    context: &Context,
    id: u64,
    oid: &str,
    path: &str,
    name: &str,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    Ok(Some(match name {
        "id" => Item::leaf(node_id("TR", &[&id.to_string(), oid])),
        "oid" => Item::leaf(oid),
        "abbreviatedOid" => Item::leaf(oid.get(..7).unwrap_or(oid)),
        "entries" => {
            let entries = git(&state, id)?.tree(oid, false)?.into_iter();
            let from_root = |mut entry: Entry| {
                if !path.is_empty() {
                    entry.path = format!("{path}/{}", entry.path);
                }
                Item::Object(Node::TreeEntry(id, entry))
            };
            Item::List(entries.map(from_root).collect())
        }
        _ => return Ok(None),
    }))
}

/// A field of `TreeEntry`.
pub(super) fn entry(id: u64, entry: &Entry, name: &str) -> ApiResult<Option<Item>> {
    let last = entry.path.rsplit('/').next().unwrap_or_default();
    Ok(Some(match name {
        "name" => Item::leaf(last),
        "path" => Item::leaf(entry.path.clone()),
        "oid" => Item::leaf(entry.oid.clone()),
        "type" => Item::leaf(entry.kind.clone()),
        // The octal digits as a number: 33188 for 100644.
        "mode" => Item::leaf(u32::from_str_radix(&entry.mode, 8).unwrap_or_default()),
        "object" => Item::optional(of_kind(id, &entry.kind, entry.oid.clone(), &entry.path)),
        _ => return Ok(None),
    }))
}
