//! What GitLab sends: only the fields that are looked at.

use jiff::Timestamp;
use serde::Deserialize;

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct MergeRequest {
    pub(super) iid: u64,
    /// `opened`, `closed`, `merged`, or `locked` (it is being merged).
    pub(super) state: String,
    #[serde(default)]
    pub(super) web_url: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) description: Option<String>,
    #[serde(default)]
    pub(super) source_branch: String,
    /// Nothing if it came from a fork that is gone.
    #[serde(default)]
    pub(super) source_project_id: Option<i64>,
    #[serde(default)]
    pub(super) target_project_id: Option<i64>,
    /// The head of the source branch; nothing while the server still prepares a new one.
    #[serde(default)]
    pub(super) sha: Option<String>,
    #[serde(default)]
    pub(super) reviewers: Option<Vec<User>>,
    #[serde(default)]
    pub(super) assignees: Option<Vec<User>>,
    #[serde(default)]
    pub(super) merge_when_pipeline_succeeds: bool,
    /// Why it cannot be merged, or `mergeable`; since GitLab 15.6.
    #[serde(default)]
    pub(super) detailed_merge_status: Option<String>,
    #[serde(default)]
    pub(super) merge_commit_sha: Option<String>,
    #[serde(default)]
    pub(super) squash_commit_sha: Option<String>,
    #[serde(default)]
    pub(super) merged_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) closed_at: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct User {
    pub(super) id: u64,
    pub(super) username: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Project {
    /// Nothing in an empty repository.
    #[serde(default)]
    pub(super) default_branch: Option<String>,
    #[serde(default)]
    pub(super) empty_repo: bool,
    #[serde(default)]
    pub(super) archived: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Branch {
    #[serde(default)]
    pub(super) name: String,
    pub(super) commit: Commit,
}

#[derive(Debug, Deserialize)]
pub(super) struct Commit {
    pub(super) id: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    pub(super) parent_ids: Option<Vec<String>>,
    #[serde(default)]
    pub(super) stats: Option<Stats>,
}

/// Lines that a commit adds and removes.
#[derive(Debug, Deserialize)]
pub(super) struct Stats {
    pub(super) total: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct TreeEntry {
    pub(super) id: String,
    /// From the root of the repository.
    pub(super) path: String,
    /// As git writes it: `100644`, `100755`, `120000`, `040000`, `160000`.
    pub(super) mode: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct File {
    pub(super) blob_id: String,
    /// In base64.
    #[serde(default)]
    pub(super) content: String,
}
