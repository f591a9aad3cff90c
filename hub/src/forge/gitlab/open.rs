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
        let mut notes = Vec::new();
        let people = self.people(api, &mut notes).await?;
        let reply = api.open(base, &people).await?;
        if reply.status.as_u16() == 409 {
            return self.adopt_other(api, &reply).await;
        }
        if !reply.status.is_success() {
            return Err(self.not_opened(api, base, &reply).await?);
        }
        let request: wire::MergeRequest = reply.json()?;
        notes.extend(left_out(&people, &request));
        let mut pull = self.pull_request(&request, Some(commit), false);
        pull.notes = notes;
        self.merge_when_allowed(api, &request, &mut pull).await;
        if !pull.notes.is_empty() {
            warn!(
                key = %api.job.key, project = self.project, notes = ?pull.notes,
                "not everything that the route wants could be done",
            );
        }
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
    async fn people(&self, api: &Api<'_>, notes: &mut Vec<String>) -> Result<People, ForgeError> {
        let Intent {
            reviewers, options, ..
        } = api.job.intent;
        Ok(People {
            reviewers: self.ids(api, "reviewer", reviewers, notes).await?,
            assignees: self.ids(api, "assignee", &options.assignees, notes).await?,
        })
    }

    async fn ids(
        &self,
        api: &Api<'_>,
        role: &str,
        names: &[String],
        notes: &mut Vec<String>,
    ) -> Result<Vec<(String, u64)>, ForgeError> {
        let mut ids: Vec<(String, u64)> = Vec::new();
        for name in names {
            let known = self.memory().people.get(name).copied();
            let known = known.filter(|(_, since)| since.elapsed() < KEPT);
            let id = if let Some((id, _)) = known {
                id
            } else {
                let id = api.user(name).await?;
                let entry = (id, Instant::now());
                self.memory().people.insert(name.clone(), entry);
                id
            };
            match id {
                Some(id) if ids.iter().any(|(_, other)| *other == id) => {}
                Some(id) => ids.push((name.clone(), id)),
                None => notes.push(format!("{role} {name:?}: no such user")),
            }
        }
        Ok(ids)
    }

    /// Asks GitLab to merge once its rules allow it, if the route wants that; where no rule stands in the way, it merges
    /// at once. A refusal becomes a note.
    pub(super) async fn merge_when_allowed(
        &self,
        api: &Api<'_>,
        request: &wire::MergeRequest,
        pull: &mut PullRequest,
    ) {
        let wanted = api.job.intent.options.auto_merge.is_some();
        if !wanted || pull.state != PullRequestState::Open {
            return;
        }
        let refusal = match self
            .ask_to_merge(api, request.iid, pull.commit.as_deref())
            .await
        {
            Ok(reply) if reply.status.is_success() => {
                if let Ok(merged) = reply.json::<wire::MergeRequest>() {
                    pull.state = state(&merged);
                }
                return;
            }
            Ok(reply) => format!("GitLab refuses with {}{}", reply.status, reply.said()),
            // What GitLab says to those who may not merge.
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Unauthorized => {
                "the token may not merge into this branch".to_owned()
            }
            Err(error) => error.to_string(),
        };
        pull.notes.push(format!("auto-merge: {refusal}"));
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

/// GitLab leaves out without a word who may not see the project, and all but the first where its licence allows only one.
fn left_out(people: &People, request: &wire::MergeRequest) -> Vec<String> {
    let mut notes = Vec::new();
    for (role, wanted, there) in [
        ("reviewer", &people.reviewers, &request.reviewers),
        ("assignee", &people.assignees, &request.assignees),
    ] {
        for (name, id) in wanted {
            if !there.iter().flatten().any(|user| user.id == *id) {
                notes.push(format!(
                    "{role} {name:?}: left out by GitLab, for lack of access or of a licence for several"
                ));
            }
        }
    }
    notes
}
