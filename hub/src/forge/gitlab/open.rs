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
use super::errors::known_words;
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
        body: &str,
    ) -> Result<PullRequest, ForgeError> {
        let mut notes = Vec::new();
        let people = self.people(api, &mut notes).await?;
        let reply = api.open(base, &people, body).await?;
        if reply.status.as_u16() == 409 {
            return self.adopt_other(api, &reply).await;
        }
        if !reply.status.is_success() {
            return Err(self.not_opened(api, base, &reply).await?);
        }
        let request: wire::MergeRequest = reply.json()?;
        self.remember_opened(&api.job.intent.branch, request.iid);
        notes.extend(left_out(&people, &request));
        if !notes.is_empty() {
            warn!(
                key = %api.job.key, project = self.project, number = request.iid, ?notes,
                "not everybody whom the route wants could be asked or assigned",
            );
        }
        let mut pull = self.pull_request(&request, Some(commit), false);
        let merging = self.merge_when_allowed(api, &request, pull.commit.as_deref());
        let (state, refusal) = merging.await;
        pull.state = state;
        pull.notes = notes;
        pull.notes.extend(refusal);
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
        if let Some(error) = known_words(reply, self.http.place()) {
            return Ok(error);
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

    /// Asks GitLab to merge once its rules allow it, if the route wants that. Gives back the state afterwards and, if
    /// GitLab refuses, why.
    pub(super) async fn merge_when_allowed(
        &self,
        api: &Api<'_>,
        request: &wire::MergeRequest,
        commit: Option<&str>,
    ) -> (PullRequestState, Option<String>) {
        let before = state(request);
        if api.job.intent.options.auto_merge.is_none() || before != PullRequestState::Open {
            return (before, None);
        }
        let why = match self.ask_to_merge(api, request.iid, commit).await {
            Ok(reply) if reply.status.is_success() => {
                let merged = reply.json::<wire::MergeRequest>();
                return (merged.map_or(before, |request| state(&request)), None);
            }
            Ok(reply) => format!(
                "auto-merge: refused with {}{}; GitLab merges by itself only what waits for a pipeline or an approval",
                reply.status,
                reply.said()
            ),
            // What GitLab says to those whose role may not merge.
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Unauthorized => {
                "auto-merge: the token may not merge into the base branch".to_owned()
            }
            Err(error) => format!("auto-merge: {error}"),
        };
        warn!(
            key = %api.job.key, project = self.project, number = request.iid, why,
            "the merge request waits for people",
        );
        (before, Some(why))
    }

    async fn ask_to_merge(
        &self,
        api: &Api<'_>,
        iid: u64,
        commit: Option<&str>,
    ) -> Result<Reply, ForgeError> {
        let mut waits = MERGE_WAITS.into_iter();
        loop {
            let reply = api.merge(iid, commit).await?;
            // 405: not ready, or nothing to wait for; 406 (before GitLab 16) and 422: it cannot be merged, or GitLab does
            // not know yet.
            if !matches!(reply.status.as_u16(), 405 | 406 | 422) {
                return Ok(reply);
            }
            let request = api.merge_request(iid).await?;
            let status = request.and_then(|request| request.detailed_merge_status);
            match status.as_deref() {
                // There is nothing to wait for. Without any rule, nobody but people merges what a cluster asked for.
                Some("mergeable") => return Ok(reply),
                // GitLab before 15.6 says nothing.
                None | Some("unchecked" | "checking" | "preparing" | "approvals_syncing") => {}
                // What it waits for is known now; it may have become so since it was refused.
                Some(_) => return api.merge(iid, commit).await,
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
