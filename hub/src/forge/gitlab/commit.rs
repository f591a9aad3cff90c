//! Puts the change on its branch in one commit, or finds out that there is nothing to put.

use tracing::warn;

use super::super::ForgeError;
use super::super::http::{Reply, failed};
use super::api::{Api, PAGE, Start};
use super::plan::{self, Action, AtPath, Tree, Verb};
use super::refusal::is_about_a_file;
use super::{Gitlab, MAX_KNOWN_FILES, wire};
use crate::response::ErrorType;

/// More of a folder is not read; what is not found by then is asked for by name.
const MAX_PAGES: usize = 10;

/// How often the files are looked at anew while others change the base branch.
const MAX_LOOKS: u32 = 2;

/// What came of the attempt to commit.
pub(super) enum Committed {
    /// The branch holds the change and nothing else.
    Done {
        /// The commit.
        sha: String,
        /// The description that shows it.
        body: String,
    },
    /// A patched file of the base is another than it was when it was read.
    Stale,
    /// There was nothing to change.
    Unchanged,
    /// Meanwhile, there are merge requests of the branch.
    Opened(Vec<wire::MergeRequest>),
}

impl Gitlab {
    /// Commits the change to a new branch, or finds out what is on the branch already. `seen` is what is at the paths of the
    /// change on the base branch, if somebody looked.
    pub(super) async fn commit(
        &self,
        api: &Api<'_>,
        base: &str,
        seen: Option<&Tree>,
    ) -> Result<Committed, ForgeError> {
        let branch = &api.job.intent.branch;
        let files = &api.change.files;
        let start = match &api.start {
            Some(sha) => Start::Commit(sha),
            None => Start::Branch(base),
        };
        let mut actions = if let Some(now) = seen {
            plan::exact(files, now).map_err(|no_file| self.no_file(&no_file))?
        } else {
            let known = &self.memory().files;
            plan::guess(files, |path| {
                known.contains(&(base.to_owned(), path.to_owned()))
            })
        };
        for look in 0..=MAX_LOOKS {
            if actions.is_empty() {
                return self.unchanged(api, base, seen.is_some()).await;
            }
            let reply = api.create_commit(branch, Some(start), &actions).await?;
            if reply.status.is_success() {
                return self.committed(api, &reply, &actions).await;
            }
            if !matches!(reply.status.as_u16(), 400 | 409 | 422) {
                return Err(self.explain_refusal(api, base, &reply).await?);
            }
            if !is_about_a_file(&reply)
                && let Some(tip) = api.branch(branch).await?
            {
                return self.adopt_tip(api, base, tip).await;
            }
            if look == MAX_LOOKS {
                break;
            }
            let now = self.look(api, api.start.as_deref().unwrap_or(base)).await?;
            let exact = plan::exact(files, &now).map_err(|no_file| self.no_file(&no_file))?;
            if exact == actions {
                return Err(self.refused(api, base, &reply).await?);
            }
            let paths = files.iter().map(|file| &*file.path);
            self.remember_files(base, paths, &now);
            actions = exact;
        }
        let detail = format!(
            "{base} of {} changes too fast to commit to it",
            self.http.place()
        );
        Err(failed(ErrorType::Transient, "BaseBranchBusy", detail))
    }

    /// The actions are right, and still refused.
    async fn refused(
        &self,
        api: &Api<'_>,
        base: &str,
        reply: &Reply,
    ) -> Result<ForgeError, ForgeError> {
        self.explain_missing(api, base).await?;
        let error = self.explain_refusal(api, base, reply).await?;
        // Gitaly says the same of a branch that somebody else makes at this moment, and of one that can never be made.
        if matches!(&error, ForgeError::Failed(error) if error.reason == "BranchBusy")
            && let Some(other) = self.branch_in_the_way(api).await?
        {
            let detail = format!(
                "the branch {} of {} cannot be beside the branch {other}, which is a folder to git or lies in one; remove that or change branchPrefix",
                api.job.intent.branch, self.project
            );
            return Ok(failed(ErrorType::Conflicting, "BranchTaken", detail));
        }
        Ok(error)
    }

    /// What is at the paths of the change. Costs a request for each folder, more for one with many entries.
    pub(super) async fn look(&self, api: &Api<'_>, git_ref: &str) -> Result<Tree, ForgeError> {
        let mut tree = Tree::new();
        for (folder, mut paths) in plan::by_folder(&api.job.intent.files) {
            let mut is_whole = false;
            for page in 1..=MAX_PAGES {
                let entries = api.tree(folder, git_ref, page).await?;
                is_whole = entries.len() < PAGE;
                for entry in entries {
                    if let Some(at) = paths.iter().position(|path| *path == entry.path) {
                        paths.swap_remove(at);
                        tree.insert(entry.path, AtPath::of_entry(&entry.mode, &entry.id));
                    }
                }
                if is_whole || paths.is_empty() {
                    break;
                }
            }
            if is_whole {
                continue;
            }
            for path in paths {
                if let Some(file) = api.file(path, git_ref).await? {
                    tree.insert(path.to_owned(), AtPath::File(file.blob_id));
                }
            }
        }
        Ok(tree)
    }

    fn remember_files<'a>(&self, base: &str, paths: impl Iterator<Item = &'a str>, now: &Tree) {
        let known = &mut self.memory().files;
        if known.len() > MAX_KNOWN_FILES {
            known.clear();
        }
        for path in paths {
            let name = (base.to_owned(), path.to_owned());
            if matches!(now.get(path), Some(AtPath::File(_))) {
                known.insert(name);
            } else {
                known.remove(&name);
            }
        }
    }

    /// Nothing is to be written. A branch of ours may still be there, made by an attempt when things were different.
    async fn unchanged(
        &self,
        api: &Api<'_>,
        base: &str,
        is_base_known: bool,
    ) -> Result<Committed, ForgeError> {
        if !is_base_known {
            self.explain_missing(api, base).await?;
        }
        match api.branch(&api.job.intent.branch).await? {
            Some(tip) => self.adopt_tip(api, base, tip).await,
            None => Ok(Committed::Unchanged),
        }
    }

    /// Looks whether a commit that was made changes anything, and takes it back if not. Only writing over files can
    /// change nothing; what it changes shows in the count of lines, except for a file that is not text.
    pub(super) async fn committed(
        &self,
        api: &Api<'_>,
        reply: &Reply,
        actions: &[Action<'_>],
    ) -> Result<Committed, ForgeError> {
        let commit: wire::Commit = reply.json()?;
        if is_first(&commit) {
            self.take_back(api).await?;
            return Err(self.repository_empty());
        }
        let changes_lines = commit.stats.is_some_and(|stats| stats.total > 0);
        let only_updates = actions.iter().all(|action| action.verb == Verb::Update);
        if only_updates && !changes_lines && api.is_empty(&commit.id).await? {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        Ok(done(api, commit.id))
    }

    /// Removes our branch, on which there is nothing of use.
    pub(super) async fn take_back(&self, api: &Api<'_>) -> Result<(), ForgeError> {
        let reply = api.delete_branch(&api.job.intent.branch).await?;
        if !reply.status.is_success() {
            warn!(
                key = %api.job.key, project = self.project, branch = api.job.intent.branch,
                status = reply.status.as_u16(), "the branch without a change cannot be removed{}", reply.said(),
            );
        }
        Ok(())
    }
}

/// The change is on its branch.
pub(super) fn done(api: &Api<'_>, sha: String) -> Committed {
    Committed::Done {
        sha,
        body: api.change.body.clone(),
    }
}

/// Whether a commit is the first of its repository: GitLab makes a branch in an empty one from nothing.
pub(super) fn is_first(commit: &wire::Commit) -> bool {
    commit
        .parent_ids
        .as_ref()
        .is_some_and(std::vec::Vec::is_empty)
}
