//! Opens the merge request, with its people, and asks GitLab to merge it by itself where the route wants that.
//!
//! People and automatic merging are welcome, and never a reason to lose a merge request.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::super::http::{Reply, failed};
use super::super::{ForgeError, PullRequest, PullRequestState};
use super::adopt::state;
use super::api::{Api, People};
use super::{Gitlab, KEPT, wire};
use crate::change::Intent;
use crate::response::ErrorType;

/// What GitLab says of a second merge request, before its number.
const ANOTHER_IS_OPEN: &str = "already exists for this source branch: !";

/// How long is waited before each further attempt to have a merge request merged: GitLab looks at a new one for a while,
/// and says "not allowed" until it is done.
const MERGE_WAITS: [Duration; 3] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];

impl Gitlab {
    /// Opens the merge request for a branch that holds the change.
    pub(super) async fn open(
        &self,
        api: &Api<'_>,
        base: &str,
        commit: String,
    ) -> Result<PullRequest, ForgeError> {
        let people = self.people(api).await?;
        let reply = api.open(base, &people).await?;
        if reply.status.as_u16() == 409 {
            return self.adopt_other(api, &reply).await;
        }
        if !reply.status.is_success() {
            return Err(self.not_opened(api, base, &reply).await?);
        }
        let request: wire::MergeRequest = reply.json()?;
        warn_of_people_left_out(api, &people, &request);
        let mut pull = self.pull_request(&request, Some(commit), false);
        pull.state = self
            .merge_when_allowed(api, &request, pull.commit.as_deref())
            .await;
        Ok(pull)
    }

    /// Somebody was faster; GitLab says with which.
    async fn adopt_other(&self, api: &Api<'_>, reply: &Reply) -> Result<PullRequest, ForgeError> {
        let number = reply.number_after(ANOTHER_IS_OPEN);
        let found = match number {
            Some(iid) => api.merge_request(iid).await?.into_iter().collect(),
            None => self.look_up(api).await?,
        };
        if found.is_empty() {
            return Err(reply.error());
        }
        self.adopt(api, found).await
    }

    async fn not_opened(
        &self,
        api: &Api<'_>,
        base: &str,
        reply: &Reply,
    ) -> Result<ForgeError, ForgeError> {
        if !matches!(reply.status.as_u16(), 400 | 404 | 422) {
            return self.explain_refusal(api, base, reply).await;
        }
        self.explain_missing(api, base).await?;
        let branch = &api.job.intent.branch;
        if api.branch(branch).await?.is_none() {
            let detail = format!(
                "the branch {branch} of {} was removed before its merge request was open",
                self.project
            );
            return Ok(failed(ErrorType::Transient, "BranchGone", detail));
        }
        Ok(reply.error())
    }

    /// The ids of the route's people; those whom GitLab does not know are left out.
    async fn people(&self, api: &Api<'_>) -> Result<People, ForgeError> {
        let Intent {
            reviewers, options, ..
        } = api.job.intent;
        Ok(People {
            reviewers: self.ids(api, reviewers).await?,
            assignees: self.ids(api, &options.assignees).await?,
        })
    }

    async fn ids(&self, api: &Api<'_>, names: &[String]) -> Result<Vec<u64>, ForgeError> {
        let mut ids = Vec::new();
        for name in names {
            let known = self.memory().people.get(name).copied();
            let known = known.filter(|(_, since)| since.elapsed() < KEPT);
            let id = if let Some((id, _)) = known {
                id
            } else {
                let id = api.user(name).await?;
                self.memory()
                    .people
                    .insert(name.clone(), (id, Instant::now()));
                id
            };
            match id {
                Some(id) if ids.contains(&id) => {}
                Some(id) => ids.push(id),
                None => warn!(
                    key = %api.job.key, project = self.project, person = name,
                    "nobody has this user name, or the token may not see them; the merge request goes without them",
                ),
            }
        }
        Ok(ids)
    }

    /// Asks GitLab to merge once its rules allow it, if the route wants that, and gives back the state afterwards: where
    /// no rule stands in the way, it merges at once.
    pub(super) async fn merge_when_allowed(
        &self,
        api: &Api<'_>,
        request: &wire::MergeRequest,
        commit: Option<&str>,
    ) -> PullRequestState {
        let before = state(request);
        if api.job.intent.options.auto_merge.is_none() || before != PullRequestState::Open {
            return before;
        }
        match self.ask_to_merge(api, request.iid, commit).await {
            Ok(reply) if reply.status.is_success() => {
                let merged = reply.json::<wire::MergeRequest>();
                return merged.map_or(before, |request| state(&request));
            }
            Ok(reply) => warn!(
                key = %api.job.key, project = self.project, number = request.iid, status = reply.status.as_u16(),
                "GitLab does not merge by itself{}; the merge request waits for people", reply.said(),
            ),
            Err(error) => warn!(
                key = %api.job.key, project = self.project, number = request.iid, %error,
                // GitLab says 401 also to those whose role may not merge.
                "GitLab could not be asked to merge by itself, or the token may not merge; the merge request waits for people",
            ),
        }
        before
    }

    async fn ask_to_merge(
        &self,
        api: &Api<'_>,
        iid: u64,
        commit: Option<&str>,
    ) -> Result<Reply, ForgeError> {
        let mut waits = MERGE_WAITS.into_iter();
        loop {
            let reply = api.merge(iid, commit, true).await?;
            // 405: not ready, or nothing to wait for; 406 (before GitLab 16) and 422: it cannot be merged, or GitLab does
            // not know yet.
            if !matches!(reply.status.as_u16(), 405 | 406 | 422) {
                return Ok(reply);
            }
            let request = api.merge_request(iid).await?;
            let status = request.and_then(|request| request.detailed_merge_status);
            match status.as_deref() {
                // No rule stands in the way. Only what we have seen is merged.
                Some("mergeable") if commit.is_some() => {
                    return api.merge(iid, commit, false).await;
                }
                // GitLab before 15.6 says nothing.
                None | Some("unchecked" | "checking" | "preparing" | "approvals_syncing") => {}
                // What it waits for is known now; it may have become so since it was refused.
                Some(_) => return api.merge(iid, commit, true).await,
            }
            match waits.next() {
                Some(wait) => sleep(wait).await,
                None => return Ok(reply),
            }
        }
    }
}

/// GitLab leaves out without a word who may not see the project, and all assignees or reviewers but one where its
/// licence allows only one.
fn warn_of_people_left_out(api: &Api<'_>, people: &People, request: &wire::MergeRequest) {
    for (role, wanted, there) in [
        ("reviewer", &people.reviewers, &request.reviewers),
        ("assignee", &people.assignees, &request.assignees),
    ] {
        let is_there = |id: &u64| there.iter().flatten().any(|user| user.id == *id);
        let missing: Vec<u64> = wanted.iter().copied().filter(|id| !is_there(id)).collect();
        if !missing.is_empty() {
            warn!(
                key = %api.job.key, project = api.project, number = request.iid, role, ids = ?missing,
                "GitLab left people out; give them access to the project, or name one where the licence allows one",
            );
        }
    }
}
