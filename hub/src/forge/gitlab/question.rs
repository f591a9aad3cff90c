//! One GraphQL question that tells all that is to be known of a change: the project, the merge requests of our branch, the
//! base branch and what is at the paths of the change there. Pure: the text of the question, and what an answer means.
//!
//! Where the fields come from: GitLab's GraphQL reference, and its sources in `app/graphql/types` (`project_type.rb`,
//! `repository_type.rb`, `repository/blob_type.rb`, `tree/tree_type.rb`, `merge_request_type.rb`) and
//! `app/graphql/resolvers` (`blobs_resolver.rb`, `tree_resolver.rb`, `last_commit_resolver.rb`, `merge_requests_resolver.rb`).
//! A server that does not know one of them refuses the document as a whole.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::git::blob_id;
use super::super::resolve::patched_paths;
use super::plan::{AtPath, Tree};
use super::wire;
use crate::change::Intent;

/// Merge requests of one branch name that are looked at at once. More can only come from forks.
const REQUESTS: usize = 50;

/// Paths in one field. GitLab limits what a document may cost: a field with paths costs as much as it has paths, and that
/// again for each hundred that it may give (`blobs_resolver.rb`, `base_field.rb`). Several small fields cost less than a
/// large one, and a hundred files fit.
const PATHS: usize = 20;

/// The text of the question and its variables.
pub(super) fn document(project: &str, intent: &Intent) -> (String, Value) {
    let mut variables = Map::from_iter([
        ("project".to_owned(), json!(project)),
        ("branches".to_owned(), json!([intent.branch])),
    ]);
    let mut declarations = "$project: ID!, $branches: [String!]".to_owned();
    // Left out, it is the default branch.
    let mut at_base = "";
    if let Some(base) = &intent.base_branch {
        variables.insert("base".to_owned(), json!(base));
        declarations.push_str(", $base: String");
        at_base = "ref: $base";
    }
    let patched: Vec<&str> = patched_paths(intent).collect();
    let written: Vec<&str> = (intent.files.iter().map(|file| file.path.as_str()))
        .filter(|path| !patched.contains(path))
        .collect();
    let mut fields = String::new();
    for (prefix, paths, selection) in [
        ("files", written, "path oid mode"),
        ("patched", patched, "path oid mode lfsOid rawBlob"),
    ] {
        for (number, paths) in paths.chunks(PATHS).enumerate() {
            let alias = format!("{prefix}{number}");
            let _ = write!(declarations, ", ${alias}: [String!]!");
            let _ = write!(
                fields,
                "{alias}: blobs({at_base} paths: ${alias} first: {PATHS}) {{ nodes {{ {selection} }} }} ",
            );
            variables.insert(alias, json!(paths));
        }
    }
    let tip = match at_base {
        "" => "tree { lastCommit { sha } }".to_owned(),
        _ => format!("tree({at_base}) {{ lastCommit {{ sha }} }}"),
    };
    let text = format!(
        "query Change({declarations}) {{ project(fullPath: $project) {{ \
         fullPath archived mergeRequestsEnabled \
         mergeRequests(sourceBranches: $branches sort: CREATED_ASC first: {REQUESTS}) {{ \
         pageInfo {{ hasNextPage }} nodes {{ iid state webUrl description sourceBranch \
         sourceProjectId targetProjectId diffHeadSha autoMergeEnabled }} }} \
         repository {{ empty rootRef before: {tip} {fields}after: {tip} }} }} }}"
    );
    (text, Value::Object(variables))
}

/// What a server said to the question.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Answer {
    #[serde(default)]
    data: Option<Data>,
    #[serde(default)]
    errors: Vec<Error>,
}

#[derive(Debug, Deserialize)]
struct Data {
    project: Option<Project>,
}

#[derive(Debug, Deserialize)]
struct Error {
    #[serde(default)]
    message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Project {
    full_path: String,
    archived: Option<bool>,
    merge_requests_enabled: Option<bool>,
    merge_requests: Option<Requests>,
    repository: Option<Repository>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Requests {
    page_info: PageInfo,
    nodes: Vec<Request>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_next_page: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    iid: String,
    state: String,
    web_url: Option<String>,
    description: Option<String>,
    source_branch: String,
    source_project_id: Option<i64>,
    target_project_id: i64,
    diff_head_sha: Option<String>,
    auto_merge_enabled: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Repository {
    empty: bool,
    root_ref: Option<String>,
    before: Option<TreeTip>,
    after: Option<TreeTip>,
    /// The files, by alias.
    #[serde(flatten)]
    rest: BTreeMap<String, Option<Blobs>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TreeTip {
    last_commit: Option<Commit>,
}

#[derive(Debug, Deserialize)]
struct Commit {
    sha: String,
}

#[derive(Debug, Deserialize)]
struct Blobs {
    nodes: Vec<Option<Blob>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Blob {
    path: String,
    oid: String,
    mode: Option<String>,
    #[serde(default)]
    lfs_oid: Option<String>,
    #[serde(default, rename = "rawBlob")]
    text: Option<String>,
}

/// What is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The merge requests of our branch name, forks' among them, oldest first.
    pub(super) requests: Vec<wire::MergeRequest>,
    /// Whether there are more.
    pub(super) has_more_requests: bool,
    /// Why nothing can be made in the project, if so.
    pub(super) obstacle: Option<Obstacle>,
    pub(super) default_branch: Option<String>,
    /// The base branch; nothing if it is not there.
    pub(super) base: Option<Base>,
}

/// What keeps everybody from making anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    Archived,
    /// There is no commit yet.
    Empty,
    /// Merge requests are switched off, or not for us.
    NoMergeRequests,
}

/// The base branch as it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Base {
    /// Its tip, if it was the same before and after the files were looked at.
    pub(super) tip: Option<String>,
    /// What is at the paths of the change.
    pub(super) tree: Tree,
    /// Texts of files that are patched, as far as they are the files byte for byte.
    pub(super) texts: BTreeMap<String, Text>,
}

/// The content of a file that is patched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// All of it.
    Whole(String),
    /// It is kept elsewhere (Git LFS), and git has a pointer only.
    Elsewhere,
}

/// What an answer is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// It tells everything.
    Found(Box<Found>),
    /// The project is not to be seen, or only in part: the REST API says why.
    Hidden,
    /// The server refuses the question, in these words.
    Refused(String),
}

/// What an answer means.
pub(super) fn read(answer: Answer, project: &str) -> Reading {
    if let Some(error) = answer.errors.first() {
        return Reading::Refused(error.message.clone());
    }
    let Some(found) = answer.data.and_then(|data| data.project) else {
        return Reading::Hidden;
    };
    // A project that was moved is another one to us: its old path is refused when something is written.
    let same_path = found.full_path.eq_ignore_ascii_case(project);
    let (Some(requests), Some(repository), true) =
        (found.merge_requests, found.repository, same_path)
    else {
        return Reading::Hidden;
    };
    let Some(all) = requests.nodes.into_iter().map(merge_request).collect() else {
        return Reading::Hidden;
    };
    let obstacle = if found.archived == Some(true) {
        Some(Obstacle::Archived)
    } else if repository.empty {
        Some(Obstacle::Empty)
    } else {
        (found.merge_requests_enabled == Some(false)).then_some(Obstacle::NoMergeRequests)
    };
    Reading::Found(Box::new(Found {
        requests: all,
        has_more_requests: requests.page_info.has_next_page,
        obstacle,
        default_branch: repository.root_ref.clone(),
        base: base(repository),
    }))
}

fn merge_request(request: Request) -> Option<wire::MergeRequest> {
    Some(wire::MergeRequest {
        iid: request.iid.parse().ok()?,
        state: request.state,
        web_url: request.web_url.unwrap_or_default(),
        description: request.description,
        source_branch: request.source_branch,
        source_project_id: request.source_project_id,
        target_project_id: Some(request.target_project_id),
        sha: request.diff_head_sha,
        merge_when_pipeline_succeeds: request.auto_merge_enabled,
        ..wire::MergeRequest::default()
    })
}

fn base(repository: Repository) -> Option<Base> {
    let tip = |tree: Option<TreeTip>| tree?.last_commit.map(|commit| commit.sha);
    let before = tip(repository.before)?;
    let after = tip(repository.after);
    let mut base = Base {
        tip: (after.as_ref() == Some(&before)).then_some(before),
        ..Base::default()
    };
    let blobs = repository.rest.into_values().flatten();
    for blob in blobs.flat_map(|blobs| blobs.nodes).flatten() {
        let at = AtPath::of_entry(blob.mode.as_deref().unwrap_or_default(), &blob.oid);
        if matches!(at, AtPath::File(_)) {
            if blob.lfs_oid.is_some() {
                base.texts.insert(blob.path.clone(), Text::Elsewhere);
            } else if let Some(text) = blob.text
                // A text that was cut off, or is no UTF-8, is not the file.
                && blob_id(&text, blob.oid.len()) == blob.oid
            {
                base.texts.insert(blob.path.clone(), Text::Whole(text));
            }
        }
        base.tree.insert(blob.path, at);
    }
    Some(base)
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
