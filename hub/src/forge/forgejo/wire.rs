//! What Forgejo and Gitea send: only the fields that are looked at.

use jiff::Timestamp;
use serde::Deserialize;

use super::super::PullRequestState;

#[derive(Debug, Deserialize)]
pub(super) struct Pull {
    pub(super) number: u64,
    pub(super) state: String,
    #[serde(default)]
    pub(super) merged: bool,
    #[serde(default)]
    pub(super) html_url: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) body: Option<String>,
    pub(super) base: PullSide,
    pub(super) head: PullSide,
    #[serde(default)]
    pub(super) requested_reviewers: Option<Vec<User>>,
    #[serde(default)]
    pub(super) requested_reviewers_teams: Option<Vec<Team>>,
    #[serde(default)]
    pub(super) assignees: Option<Vec<User>>,
    #[serde(default)]
    pub(super) merge_commit_sha: Option<String>,
    #[serde(default)]
    pub(super) merged_at: Option<Timestamp>,
    #[serde(default)]
    pub(super) closed_at: Option<Timestamp>,
}

impl Pull {
    /// Whether it still waits.
    pub(super) fn state(&self) -> PullRequestState {
        match (self.merged, self.state.as_str()) {
            (true, _) => PullRequestState::Merged,
            (false, "closed") => PullRequestState::Closed,
            (false, _) => PullRequestState::Open,
        }
    }
}

/// A pull request in a list.
#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub(super) number: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Team {
    pub(super) name: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct PullSide {
    #[serde(default)]
    pub(super) sha: String,
    /// The branch; empty for a pull request that was pushed without one (`refs/for/…`).
    #[serde(default)]
    pub(super) label: String,
    #[serde(default)]
    pub(super) repo_id: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct User {
    pub(super) login: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct Repository {
    pub(super) default_branch: String,
    #[serde(default)]
    pub(super) empty: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct Branch {
    pub(super) commit: BranchCommit,
}

#[derive(Debug, Deserialize)]
pub(super) struct BranchCommit {
    pub(super) id: String,
    #[serde(default)]
    pub(super) message: String,
}

/// One reference if the name fits exactly, else all that begin with it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum References {
    One(Reference),
    Several(Vec<Reference>),
}

impl References {
    pub(super) fn into_list(self) -> Vec<Reference> {
        match self {
            Self::One(one) => vec![one],
            Self::Several(all) => all,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Reference {
    #[serde(rename = "ref")]
    pub(super) name: String,
    pub(super) object: ReferenceObject,
}

#[derive(Debug, Deserialize)]
pub(super) struct ReferenceObject {
    pub(super) sha: String,
}

/// A commit as `git/commits` gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Commit {
    #[serde(rename = "commit")]
    pub(super) text: CommitText,
    #[serde(default)]
    pub(super) parents: Option<Vec<ReferenceObject>>,
    #[serde(default)]
    pub(super) files: Option<Vec<CommitFile>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitText {
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommitFile {}

/// The answer to a commit.
#[derive(Debug, Deserialize)]
pub(super) struct FilesChanged {
    pub(super) commit: NewCommit,
    #[serde(default)]
    pub(super) files: Option<Vec<Option<ChangedFile>>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct NewCommit {
    pub(super) sha: String,
    #[serde(default)]
    pub(super) parents: Option<Vec<Parent>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Parent {
    #[serde(default)]
    pub(super) sha: Option<String>,
}

/// A commit as the list of a branch gives it.
#[derive(Debug, Deserialize)]
pub(super) struct Past {
    pub(super) sha: String,
    pub(super) commit: CommitText,
}

#[derive(Debug, Deserialize)]
pub(super) struct ChangedFile {
    #[serde(default)]
    pub(super) last_commit_sha: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Label {
    pub(super) id: u64,
    pub(super) name: String,
}
