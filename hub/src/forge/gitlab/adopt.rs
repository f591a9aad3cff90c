//! Whose is it? What of a change exists already, and whether it may be taken as ours.
//!
//! A merge request is ours if our marker is in its description or our trailers are on its head commit; a branch is ours if
//! its tip has our trailers and every file as the change wants it. Everything else is somebody's work and stays as it is.

use std::time::Duration;

use super::super::access::web_address;
use super::super::http::failed;
use super::super::ours::{has_marker, has_trailers, is_our_name};
use super::super::resolve::{Resolved, patched_paths};
use super::super::{ForgeError, PullRequest, PullRequestState};
use super::api::{Api, PAGE};
use super::commit::{Committed, done, is_first};
use super::question::Base;
use super::{Gitlab, is_misfit, plan, wire};
use crate::response::ErrorType;

/// More pages of merge requests are not read. They come oldest first, and nobody can know the name of our branch before
/// it is there: those of forks come after ours.
const MAX_PAGES: usize = 10;

/// How long a commit of ours without a merge request is left to whoever made it.
pub(super) const SETTLE: Duration = Duration::from_secs(3);

impl Gitlab {
    /// The merge requests of our branch of this project (never of a fork), in whatever state.
    pub(super) async fn look_up(
        &self,
        api: &Api<'_>,
    ) -> Result<Vec<wire::MergeRequest>, ForgeError> {
        let branch = &api.job.intent.branch;
        let mut found = Vec::new();
        for page in 1..=MAX_PAGES {
            let requests = api
                .merge_requests(branch, page)
                .await?
                .ok_or_else(|| self.project_not_found())?;
            let is_last = requests.len() < PAGE;
            found.extend(
                requests
                    .into_iter()
                    .filter(|request| is_from_here(request, branch)),
            );
            if is_last || !found.is_empty() {
                break;
            }
        }
        Ok(found)
    }

    /// The one of these that is ours, as it is. People may have opened another after they closed ours: one that is open
    /// goes before one that is merged, and that before one that is closed.
    pub(super) async fn adopt(
        &self,
        api: &Api<'_>,
        found: Vec<wire::MergeRequest>,
    ) -> Result<PullRequest, ForgeError> {
        let request = self.choose(api, found).await?;
        Ok(self.adopted(api, request).await)
    }

    /// The one of these that is ours; an error if none is.
    pub(super) async fn choose(
        &self,
        api: &Api<'_>,
        mut found: Vec<wire::MergeRequest>,
    ) -> Result<wire::MergeRequest, ForgeError> {
        found.sort_by_key(|request| match state(request) {
            PullRequestState::Open => 0,
            PullRequestState::Merged => 1,
            PullRequestState::Closed => 2,
        });
        let marked = found.iter().position(|request| {
            has_marker(
                request.description.as_deref().unwrap_or_default(),
                api.job.key,
            )
        });
        if let Some(at) = marked {
            return Ok(found.swap_remove(at));
        }
        let mut other = None;
        for request in found {
            if self.has_our_commit(api, &request).await? {
                return Ok(request);
            }
            other.get_or_insert(request);
        }
        let address = other.map(|request| self.address(&request));
        let detail = format!(
            "{} is of the branch {} but not of this response; close it and remove the branch, then retry",
            address.unwrap_or_default(),
            api.job.intent.branch
        );
        Err(failed(ErrorType::Conflicting, "BranchTaken", detail))
    }

    pub(super) async fn adopted(&self, api: &Api<'_>, request: wire::MergeRequest) -> PullRequest {
        let mut pull = self.pull_request(&request, None, true);
        if pull.state == PullRequestState::Open && !request.merge_when_pipeline_succeeds {
            let merging = self.merge_when_allowed(api, &request, pull.commit.as_deref());
            let (state, refusal) = merging.await;
            pull.state = state;
            pull.notes.extend(refusal);
        }
        pull
    }

    /// People may rewrite a description; the commit stays.
    async fn has_our_commit(
        &self,
        api: &Api<'_>,
        request: &wire::MergeRequest,
    ) -> Result<bool, ForgeError> {
        let Some(sha) = request.sha.as_deref().filter(|sha| !sha.is_empty()) else {
            return Ok(false);
        };
        let commit = api.commit(sha).await?;
        Ok(commit.is_some_and(|commit| has_trailers(&commit.message, api.job.key)))
    }

    /// The branch exists: with our commit, without any commit, or with somebody else's.
    pub(super) async fn adopt_tip(
        &self,
        api: &Api<'_>,
        base: &str,
        tip: wire::Commit,
    ) -> Result<Committed, ForgeError> {
        // Another attempt may have opened it since we looked.
        let found = self.look_up(api).await?;
        if !found.is_empty() {
            return Ok(Committed::Opened(found));
        }
        if has_trailers(&tip.message, api.job.key) {
            // The server checks for another merge request before it makes one, not while: a request that somebody gave
            // up on may still be at it.
            tokio::time::sleep(SETTLE).await;
            let found = self.look_up(api).await?;
            if !found.is_empty() {
                return Ok(Committed::Opened(found));
            }
            return self.adopt_commit(api, tip).await;
        }
        if is_our_name(api.job) {
            match api.branch(base).await? {
                Some(now) if now.id == tip.id => return self.commit_onto(api, base, &tip).await,
                Some(_) => {}
                None => self.explain_missing(api, base).await?,
            }
        }
        Err(self.branch_taken(
            api,
            &format!("its tip {} is no commit of this response", tip.id),
        ))
    }

    /// A commit of ours that waits for its merge request.
    async fn adopt_commit(
        &self,
        api: &Api<'_>,
        tip: wire::Commit,
    ) -> Result<Committed, ForgeError> {
        if is_first(&tip) {
            return Err(self.repository_empty());
        }
        let sha = tip.id;
        let parents = tip.parent_ids.unwrap_or_default();
        let change = self.change_of(api, &sha, &parents).await?;
        let now = self.look(api, &sha).await?;
        for file in &change.files {
            if !plan::is_as_wanted(file, now.get(&file.path)) {
                let what = format!("its tip {sha} has another {} than this change", file.path);
                return Err(self.branch_taken(api, &what));
            }
        }
        if api.is_empty(&sha).await? {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        let body = change.body;
        Ok(Committed::Done { sha, body })
    }

    /// The change as it was when the commit was made: patches of the files at its parent, since the base branch may have
    /// gone on.
    pub(super) async fn change_of(
        &self,
        api: &Api<'_>,
        sha: &str,
        parents: &[String],
    ) -> Result<Resolved, ForgeError> {
        if patched_paths(api.job.intent).next().is_none() {
            return Ok(api.change.clone());
        }
        let Some(parent) = parents.first() else {
            return Err(self.branch_taken(api, &format!("its tip {sha} has no parent")));
        };
        let below = Base {
            tree: self.look(api, parent).await?,
            ..Base::default()
        };
        match self.resolve(api, &below, parent).await {
            Err(error) if is_misfit(&error) => {
                let what =
                    format!("the parent of its tip {sha} has files that the patch does not fit");
                Err(self.branch_taken(api, &what))
            }
            resolved => resolved,
        }
    }

    /// The patch does not fit the base any more. If our commit is there already, it was made when it did.
    pub(super) async fn adopt_misfit(
        &self,
        api: &Api<'_>,
        base: &str,
        error: ForgeError,
    ) -> Result<Committed, ForgeError> {
        match api.branch(&api.job.intent.branch).await? {
            Some(tip) if has_trailers(&tip.message, api.job.key) => {
                self.adopt_tip(api, base, tip).await
            }
            _ => Err(error),
        }
    }

    /// Somebody made the branch and put nothing on it.
    async fn commit_onto(
        &self,
        api: &Api<'_>,
        base: &str,
        tip: &wire::Commit,
    ) -> Result<Committed, ForgeError> {
        if api.start.as_ref().is_some_and(|start| *start != tip.id) {
            return Ok(Committed::Stale);
        }
        let now = self.look(api, &tip.id).await?;
        let actions =
            plan::exact(&api.change.files, &now).map_err(|no_file| self.no_file(&no_file))?;
        if actions.is_empty() {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        let reply = api
            .create_commit(&api.job.intent.branch, None, &actions)
            .await?;
        if !reply.status.is_success() {
            return Err(self.explain_refusal(api, base, &reply).await?);
        }
        let commit: wire::Commit = reply.json()?;
        if commit
            .parent_ids
            .is_some_and(|parents| parents != [tip.id.as_str()])
        {
            let what = format!("somebody committed to it just before {}", commit.id);
            return Err(self.branch_taken(api, &what));
        }
        Ok(done(api, commit.id))
    }

    pub(super) fn pull_request(
        &self,
        request: &wire::MergeRequest,
        commit: Option<String>,
        adopted: bool,
    ) -> PullRequest {
        PullRequest {
            url: self.address(request),
            commit: commit
                .or_else(|| request.sha.clone())
                .filter(|sha| !sha.is_empty()),
            state: state(request),
            adopted,
            notes: Vec::new(),
        }
    }

    /// The address for people. What a forge says is believed only as far as it is a web address.
    pub(super) fn address(&self, request: &wire::MergeRequest) -> String {
        web_address(&request.web_url).unwrap_or_else(|| {
            format!(
                "{}/{}/-/merge_requests/{}",
                self.base_url, self.project, request.iid
            )
        })
    }
}

pub(super) fn is_from_here(request: &wire::MergeRequest, branch: &str) -> bool {
    request.source_branch == branch
        && request.source_project_id.is_some()
        && request.source_project_id == request.target_project_id
}

/// One that is `locked` is being merged at this moment, which may fail.
pub(super) fn state(request: &wire::MergeRequest) -> PullRequestState {
    match request.state.as_str() {
        "merged" => PullRequestState::Merged,
        "closed" => PullRequestState::Closed,
        _ => PullRequestState::Open,
    }
}
