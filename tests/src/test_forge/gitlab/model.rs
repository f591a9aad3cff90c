//! What a GitLab server knows beside its repositories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use jiff::Timestamp;

use crate::test_forge::git::{GitRepository, NO_OBJECT, Signature};

/// What somebody may do in a project. The numbers are those of GitLab's access levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Sees issues.
    Guest = 10,
    /// Reads code.
    Reporter = 20,
    /// Pushes to branches that are not protected, opens merge requests.
    Developer = 30,
    /// Pushes to protected branches, merges.
    Maintainer = 40,
    /// Nobody has it: protects a branch from everyone.
    Nobody = 60,
}

/// An account: a person's, or the one that comes with a project access token.
#[derive(Clone, Debug)]
pub(super) struct User {
    pub(super) id: u64,
    /// Its name in addresses.
    pub(super) username: String,
    /// Its name for people.
    pub(super) name: String,
}

impl User {
    pub(super) fn signature(&self) -> Signature {
        let mail = format!("{}@noreply.gitlab.invalid", self.username);
        Signature::new(&self.name, &mail)
    }
}

/// Whether a token still counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenState {
    /// It does.
    Active,
    /// It was taken back.
    Revoked,
    /// Its time is over.
    Expired,
}

/// An access token.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) user: u64,
    /// `api`, `read_api`, `read_user`…
    pub(super) scopes: Vec<String>,
    pub(super) state: TokenState,
}

/// The last pipeline of every merge request of a project.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pipeline {
    /// The project has none.
    #[default]
    None,
    /// It runs.
    Running,
    /// It succeeded.
    Succeeded,
}

/// A rule that protects the branches of a name (with `*` for anything).
#[derive(Clone, Debug)]
pub(super) struct Protection {
    pub(super) pattern: String,
    pub(super) push: Role,
    pub(super) merge: Role,
}

/// A project.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "settings are what they are")]
pub(super) struct Project {
    pub(super) id: u64,
    pub(super) path: String,
    pub(super) git: GitRepository,
    pub(super) default_branch: Option<String>,
    pub(super) archived: bool,
    pub(super) public: bool,
    pub(super) merge_requests_enabled: bool,
    pub(super) forked_from: Option<u64>,
    pub(super) members: BTreeMap<u64, Role>,
    pub(super) protections: Vec<Protection>,
    pub(super) labels: BTreeSet<String>,
    pub(super) merge_requests: Vec<MergeRequest>,
    pub(super) pipeline: Pipeline,
    pub(super) approvals_missing: bool,
    /// How often a merge request is still said to be looked at when somebody wants to merge it.
    pub(super) checking: u32,
    /// Whether a merge request may have several assignees and reviewers.
    pub(super) several_people: bool,
}

/// A merge request, kept by the project that it goes to.
#[derive(Clone, Debug)]
pub(super) struct MergeRequest {
    pub(super) id: u64,
    pub(super) iid: u64,
    pub(super) title: String,
    pub(super) description: Option<String>,
    pub(super) state: MergeRequestState,
    pub(super) source_project: u64,
    pub(super) source_branch: String,
    pub(super) target_branch: String,
    /// The head of the source branch; the last one, if the branch is gone.
    pub(super) sha: String,
    pub(super) author: u64,
    pub(super) assignees: Vec<u64>,
    pub(super) reviewers: Vec<u64>,
    pub(super) labels: Vec<String>,
    pub(super) remove_source_branch: bool,
    pub(super) squash: bool,
    pub(super) auto_merge: bool,
    pub(super) merge_commit: Option<String>,
    pub(super) notes: Vec<(u64, String)>,
    pub(super) created_at: Timestamp,
    /// When it was merged or closed.
    pub(super) ended_at: Option<Timestamp>,
}

impl MergeRequest {
    /// Titles that begin so are drafts.
    pub(super) fn is_draft(&self) -> bool {
        ["Draft:", "[Draft]", "(Draft)"]
            .iter()
            .any(|prefix| self.title.starts_with(prefix))
    }
}

/// `state` of a merge request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeRequestState {
    Opened,
    Closed,
    Merged,
}

impl MergeRequestState {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Opened => "opened",
            Self::Closed => "closed",
            Self::Merged => "merged",
        }
    }
}

/// Everything.
#[derive(Debug)]
pub(super) struct State {
    pub(super) dir: PathBuf,
    /// The address for people.
    pub(super) url: String,
    pub(super) users: Vec<User>,
    pub(super) tokens: BTreeMap<String, Token>,
    pub(super) projects: Vec<Project>,
    /// Paths that projects had before.
    pub(super) moved: BTreeMap<String, u64>,
    pub(super) read_only: bool,
    pub(super) last_id: u64,
}

/// The merge requests of all projects, by project.
pub(super) type AllMergeRequests = BTreeMap<u64, Vec<MergeRequest>>;

impl State {
    pub(super) fn merge_requests(&self) -> AllMergeRequests {
        let projects = self.projects.iter();
        projects
            .map(|project| (project.id, project.merge_requests.clone()))
            .collect()
    }

    pub(super) fn set_merge_requests(&mut self, mut all: AllMergeRequests) {
        for project in &mut self.projects {
            project.merge_requests = all.remove(&project.id).unwrap_or_default();
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn user(&self, id: u64) -> Result<&User> {
        let found = self.users.iter().find(|user| user.id == id);
        found.with_context(|| format!("no user {id}"))
    }

    pub(super) fn project(&self, id: u64) -> Result<&Project> {
        let found = self.projects.iter().find(|project| project.id == id);
        found.with_context(|| format!("no project {id}"))
    }

    pub(super) fn project_mut(&mut self, id: u64) -> Result<&mut Project> {
        let found = self.projects.iter_mut().find(|project| project.id == id);
        found.with_context(|| format!("no project {id}"))
    }

    /// Moves the heads of open merge requests to where their branches are.
    pub(super) fn follow_branches(&mut self) -> Result<()> {
        let mut heads = BTreeMap::new();
        for project in &self.projects {
            for (name, oid) in project.branches()? {
                heads.insert((project.id, name), oid);
            }
        }
        let open = |request: &&mut MergeRequest| request.state == MergeRequestState::Opened;
        for project in &mut self.projects {
            for request in project.merge_requests.iter_mut().filter(open) {
                let branch = (request.source_project, request.source_branch.clone());
                if let Some(head) = heads.get(&branch) {
                    request.sha.clone_from(head);
                }
            }
        }
        Ok(())
    }
}

impl Project {
    pub(super) fn branches(&self) -> Result<BTreeMap<String, String>> {
        let refs = self.git.refs()?.into_iter();
        Ok(refs
            .filter_map(|(name, oid)| Some((name.strip_prefix("refs/heads/")?.to_owned(), oid)))
            .collect())
    }

    pub(super) fn branch(&self, name: &str) -> Result<Option<String>> {
        self.git.reference(&format!("refs/heads/{name}"))
    }

    pub(super) fn set_branch(&self, name: &str, new: &str, old: Option<&str>) -> Result<()> {
        let name = format!("refs/heads/{name}");
        self.git.update_ref(&name, new, old.unwrap_or(NO_OBJECT))
    }

    pub(super) fn is_empty(&self) -> Result<bool> {
        Ok(self.branches()?.is_empty())
    }

    pub(super) fn role(&self, user: u64) -> Option<Role> {
        self.members.get(&user).copied()
    }

    pub(super) fn is_at_least(&self, user: u64, role: Role) -> bool {
        self.role(user).is_some_and(|has| has >= role)
    }

    fn protection(&self, branch: &str) -> Option<&Protection> {
        self.protections
            .iter()
            .find(|rule| matches_pattern(&rule.pattern, branch))
    }

    pub(super) fn is_protected(&self, branch: &str) -> bool {
        self.protection(branch).is_some()
    }

    pub(super) fn may_push(&self, user: u64, branch: &str) -> bool {
        let role = (self.protection(branch)).map_or(Role::Developer, |rule| rule.push);
        !self.archived && self.is_at_least(user, role)
    }

    pub(super) fn may_merge(&self, user: u64, branch: &str) -> bool {
        let role = (self.protection(branch)).map_or(Role::Developer, |rule| rule.merge);
        !self.archived && self.is_at_least(user, role)
    }
}

fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, end)) => name
            .strip_prefix(start)
            .is_some_and(|rest| rest.ends_with(end)),
    }
}
