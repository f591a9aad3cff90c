//! What a response becomes on a forge: the whole pull request, decided before the first write.
//!
//! An [`Intent`] is made by `plan`, stored before the first request that writes, and executed by a `forge` which adds
//! nothing to it. Everything in it is valid by construction: paths stay inside the repository, the branch obeys git's
//! rules, and no text from a cluster can act as Markdown, HTML or a trailer.

use std::fmt;

use nabu_common::ids::ResponseKey;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::edit::Patch;
use crate::group::Group;

/// The forge software and the way to authenticate, as `provider.kind` of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProviderKind {
    /// GitHub with an App's installation token.
    GithubApp,
    /// GitHub with a personal access token.
    GithubToken,
    /// GitLab with a project or group access token.
    GitlabToken,
    /// Forgejo or Gitea with an access token.
    ForgejoToken,
    /// Records the would-be pull request and calls nobody.
    Noop,
}

impl ProviderKind {
    /// The name in configuration documents, statuses and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GithubApp => "github-app",
            Self::GithubToken => "github-token",
            Self::GitlabToken => "gitlab-token",
            Self::ForgejoToken => "forgejo-token",
            Self::Noop => "noop",
        }
    }

    /// Reads [`ProviderKind::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::GithubApp,
            Self::GithubToken,
            Self::GitlabToken,
            Self::ForgejoToken,
            Self::Noop,
        ]
        .into_iter()
        .find(|kind| kind.as_str() == word)
    }
}

impl fmt::Display for ProviderKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Names the Secret that holds a credential; never the credential itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CredentialRef {
    /// The namespace of the configuration document (and so of the Secret).
    pub namespace: String,
    /// `metadata.name` of the Secret, or the folder of that name beside configuration files.
    pub name: String,
}

/// Where a change goes. Stored with the intent, so that a later edit of the routes cannot send a second pull request
/// somewhere else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ForgeTarget {
    /// Forge software and authentication.
    pub kind: ProviderKind,
    /// Base URL of a self-hosted forge, without a trailing slash; `None` is the forge's public service.
    pub base_url: Option<String>,
    /// `owner/name`, or `group/sub-group/name` on GitLab.
    pub repository: String,
    /// The Secret with the credential; `None` only for [`ProviderKind::Noop`].
    pub credential: Option<CredentialRef>,
    /// Installation id of a GitHub App, if the route (not the Secret) names it.
    pub installation_id: Option<u64>,
    /// PEM certificates to trust beside the system's, for a self-hosted forge.
    pub ca_bundle: Option<String>,
}

/// What happens to one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FileAction {
    /// The file has this content afterwards, whether it existed or not.
    Write {
        /// The whole new content.
        contents: String,
    },
    /// The file of the base branch with this patch applied; the forge looks at the file when it makes the change.
    Patch {
        /// What is changed in it.
        patch: Patch,
    },
    /// The file is gone afterwards; a file that is not there is fine.
    Delete,
}

/// One file of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChange {
    /// Path inside the repository: relative, `/`-separated, normalised, checked against the route's allowed paths.
    pub path: String,
    /// What happens to it.
    pub action: FileAction,
}

/// A pull request, fully decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The route that matched, as `<namespace>/<config>/<route>`.
    pub route: String,
    /// Where the change goes.
    pub target: ForgeTarget,
    /// The branch of the change.
    pub branch: String,
    /// The branch that the pull request is against; `None` is the repository's default branch.
    pub base_branch: Option<String>,
    /// The files, by path, each path once.
    pub files: Vec<FileChange>,
    /// The whole commit message with its trailers.
    pub commit_message: String,
    /// Author and committer of the commit, if the route names them.
    pub author: Option<Author>,
    /// Title of the pull request, one line.
    pub title: String,
    /// Body of the pull request in Markdown. Its last line is the hidden marker ([`Intent::marker`]).
    pub body: String,
    /// Labels by name.
    pub labels: Vec<String>,
    /// Reviewers by user name.
    pub reviewers: Vec<String>,
    /// Whether the pull request is a draft.
    pub draft: bool,
    /// What else the route wants of the pull request.
    #[serde(default)]
    pub options: PullRequestOptions,
    /// The group that the change goes into if it can; else it goes to the branch above and gets its own pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<Group>,
    /// SHA-256 over target repository, branches and files, in hex ([`content_digest`]).
    pub digest: String,
}

/// What a route wants of its pull requests beside their content.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of the route, and any of them go together"
)]
pub struct PullRequestOptions {
    /// Teams that are asked for a review, by name (slug) inside of the repository's owner; only where a forge has teams.
    pub team_reviewers: Vec<String>,
    /// People that the pull request is assigned to, by user name.
    pub assignees: Vec<String>,
    /// How the forge merges the pull request by itself once its own rules allow it; `None` leaves that to people.
    pub auto_merge: Option<MergeMethod>,
    /// Whether the branch goes once the pull request is merged.
    pub delete_branch_after_merge: bool,
    /// Whether the pull request is closed when its response is cancelled or its EventResponse is deleted.
    pub close_on_cancel: bool,
    /// Whether the pull request follows when its EventResponse asks for other content.
    pub update_existing: bool,
    /// Whether the branch goes as well when the hub closes the pull request.
    pub delete_branch_after_close: bool,
}

/// How a pull request becomes part of its base branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MergeMethod {
    /// A merge commit.
    Merge,
    /// One commit.
    Squash,
    /// Its commits on top of the base branch.
    Rebase,
}

/// A git identity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// Name.
    pub name: String,
    /// Mail address.
    pub email: String,
}

impl Intent {
    /// The last line of the body: an HTML comment that forges do not show, by which a change is known as ours.
    pub fn marker(key: &ResponseKey, digest: &str) -> String {
        format!(
            "<!-- nabu: cluster={} uid={} digest={digest} -->",
            key.cluster, key.uid
        )
    }
}

/// SHA-256, in hex, over everything that decides what ends up in Git: repository, branches and files.
///
/// Every part goes in with its length before it, so that no two different changes share an encoding.
pub fn content_digest(
    repository: &str,
    base_branch: Option<&str>,
    branch: &str,
    files: &[FileChange],
) -> String {
    let mut hasher = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    part(repository.as_bytes());
    part(base_branch.unwrap_or_default().as_bytes());
    part(branch.as_bytes());
    for file in files {
        part(file.path.as_bytes());
        match &file.action {
            FileAction::Write { contents } => {
                part(b"write");
                part(contents.as_bytes());
            }
            FileAction::Patch { patch } => {
                part(b"patch");
                part(patch.kind().as_str().as_bytes());
                part(patch.text().as_bytes());
                part(patch.target().unwrap_or_default().as_bytes());
            }
            FileAction::Delete => part(b"delete"),
        }
    }
    hex::encode(hasher.finalize())
}
