//! Whose is it? What of a change exists already, and whether it may be taken as ours.
//!
//! A pull request is ours if our marker is in its body or our trailers are on its head commit; a branch is ours if its
//! tip has our trailers and every file as the change wants it. Everything else is somebody's work and stays as it is.

use std::time::Duration;

use super::super::http::{Reply, failed};
use super::super::ours::{has_marker, has_trailers, is_our_name};
use super::super::resolve::{Resolved, patched_paths};
use super::super::{ForgeError, PullRequest, PullRequestState};
use super::api::Api;
use super::commit::{Committed, is_as_wanted, is_stale, uploads};
use super::patch::is_misfit;
use super::{Forgejo, extras, wire};
use crate::response::ErrorType;

/// Gitea takes no longer branch names in its API.
const LONGEST_BRANCH: usize = 100;

/// How long a commit of ours without a pull request is left to whoever made it.
pub(super) const SETTLE: Duration = Duration::from_secs(3);

impl Forgejo {
    /// A pull request of our branch, in whatever state, as it is.
    pub(super) async fn adopt_pull(
        &self,
        api: &Api<'_>,
        pull: wire::Pull,
    ) -> Result<PullRequest, ForgeError> {
        self.must_be_ours(api, &pull).await?;
        // An attempt that was interrupted may not have got as far as its people.
        if api.job.again && pull.state() == PullRequestState::Open {
            extras::add_missing_people(api, &pull).await?;
        }
        Ok(self.pull_request(&pull, None, true))
    }

    /// An error if a pull request of our branch is somebody else's.
    pub(super) async fn must_be_ours(
        &self,
        api: &Api<'_>,
        pull: &wire::Pull,
    ) -> Result<(), ForgeError> {
        let branch = &api.job.intent.branch;
        // One that was pushed to `refs/for/…` claims a branch name without having the branch.
        let from_here = pull.head.repo_id == pull.base.repo_id && pull.head.label == *branch;
        let body = pull.body.as_deref().unwrap_or_default();
        if from_here && (has_marker(body, api.job.key) || self.has_our_commit(api, pull).await?) {
            return Ok(());
        }
        let address = self.address(pull);
        let detail = format!(
            "{address} is of the branch {branch} but not of this response; close it and remove the branch, then retry"
        );
        Err(failed(ErrorType::Conflicting, "BranchTaken", detail))
    }

    /// People may rewrite a body; the commit stays.
    async fn has_our_commit(&self, api: &Api<'_>, pull: &wire::Pull) -> Result<bool, ForgeError> {
        if pull.head.sha.is_empty() {
            return Ok(false);
        }
        let commit = api.commit(&pull.head.sha).await?;
        Ok(commit.is_some_and(|commit| has_trailers(&commit.text.message, api.job.key)))
    }

    /// The forge refused to make the branch: because it exists, or because of the change.
    pub(super) async fn adopt_branch(
        &self,
        api: &Api<'_>,
        base: &str,
        refusal: &Reply,
    ) -> Result<Committed, ForgeError> {
        let branch = &api.job.intent.branch;
        // Git says this, and the server calls it a lack of permission, while an earlier request of ours that we gave up
        // on is still making the branch.
        let in_the_making = refusal.says("cannot lock ref");
        if refusal.status.as_u16() == 403 && !in_the_making {
            return Err(self.explain(refusal));
        }
        let tip = match api.branch(branch).await? {
            Some(tip) => Some(tip),
            None => api.branch_in_git(branch).await?,
        };
        if let Some(tip) = tip {
            return self.adopt_tip(api, base, tip).await;
        }
        let length = branch.chars().count();
        if length > LONGEST_BRANCH {
            let detail = format!(
                "the branch name {branch} has {length} characters, the forge takes {LONGEST_BRANCH}; shorten branchPrefix of the route or the cluster id{}",
                refusal.said()
            );
            return Err(failed(ErrorType::Permanent, "Rejected", detail));
        }
        Err(self.explain(refusal))
    }

    /// The branch exists: with our commit, without any commit, or with somebody else's.
    pub(super) async fn adopt_tip(
        &self,
        api: &Api<'_>,
        base: &str,
        tip: wire::BranchCommit,
    ) -> Result<Committed, ForgeError> {
        let branch = &api.job.intent.branch;
        // Another attempt may have opened it since we looked.
        if let Some(pull) = api.pull(base, branch).await? {
            return Ok(Committed::Opened(Box::new(pull)));
        }
        if has_trailers(&tip.message, api.job.key) {
            // The server checks for another pull request before it makes one, not while: a request that somebody gave
            // up on may still be at it.
            tokio::time::sleep(SETTLE).await;
            if let Some(pull) = api.pull(base, branch).await? {
                return Ok(Committed::Opened(Box::new(pull)));
            }
            return self.adopt_commit(api, tip.id).await;
        }
        if is_our_name(api.job)
            && api
                .branch(base)
                .await?
                .is_some_and(|base| base.id == tip.id)
        {
            return self.commit_onto(api, branch).await;
        }
        Err(self.branch_taken(
            api,
            &format!("its tip {} is no commit of this response", tip.id),
        ))
    }

    /// A commit of ours that waits for its pull request.
    async fn adopt_commit(&self, api: &Api<'_>, sha: String) -> Result<Committed, ForgeError> {
        let change = self.change_of(api, &sha).await?;
        for file in &change.files {
            if !is_as_wanted(file, &api.at_path(&file.path, &sha).await?) {
                let what = format!("its tip {sha} has another {} than this change", file.path);
                return Err(self.branch_taken(api, &what));
            }
        }
        if self.is_empty(api, &sha).await? {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        let body = change.body;
        Ok(Committed::Done { sha, body })
    }

    /// The change as it was when the commit was made: patches of the files at its parent, since the base branch may have
    /// gone on.
    pub(super) async fn change_of(&self, api: &Api<'_>, sha: &str) -> Result<Resolved, ForgeError> {
        if patched_paths(api.job.intent).next().is_none() {
            return Ok(api.change.clone());
        }
        let commit = api.commit(sha).await?;
        let parents = commit.and_then(|commit| commit.parents).unwrap_or_default();
        let Some(parent) = parents.first() else {
            return Err(self.branch_taken(api, &format!("its tip {sha} has no parent")));
        };
        match self.resolve(api, &parent.sha).await {
            Err(error) if is_misfit(&error) => {
                let what =
                    format!("the parent of its tip {sha} has files that the patch does not fit");
                Err(self.branch_taken(api, &what))
            }
            resolved => resolved,
        }
    }

    /// Somebody made the branch and put nothing on it.
    async fn commit_onto(&self, api: &Api<'_>, branch: &str) -> Result<Committed, ForgeError> {
        let deletes = api.change.files.iter().any(|file| file.contents.is_none());
        if deletes || !self.has_upload() {
            let committed = Box::pin(self.commit_exactly(api, branch, None)).await?;
            if matches!(committed, Committed::Unchanged) {
                self.take_back(api).await?;
            }
            return Ok(committed);
        }
        let files = uploads(&api.change);
        if files.is_empty() {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        let reply = api.change_files(branch, None, &files).await?;
        if is_stale(api, &reply) {
            return Ok(Committed::Stale);
        }
        if !reply.status.is_success() {
            return Err(self.explain(&reply));
        }
        self.committed(api, &reply, &files).await
    }

    pub(super) fn branch_taken(&self, api: &Api<'_>, why: &str) -> ForgeError {
        let detail = format!(
            "the branch {} of {} holds somebody else's work: {why}; remove or rename the branch, then retry",
            api.job.intent.branch, self.repository
        );
        failed(ErrorType::Conflicting, "BranchTaken", detail)
    }
}
