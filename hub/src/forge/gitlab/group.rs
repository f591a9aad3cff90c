//! The merge request of a group, in three requests: look at it and at the files on its branch, commit on top, add to its text.
//!
//! Whose commits are on the branch is remembered, as long as its tip is the one that was put there last; else it costs a
//! request more. A commit comes before the text that tells of it, so that the marker of a response proves its commit. The
//! first member makes branch, commit and merge request as one alone does.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;

use super::super::doubt::{SECOND_LOOK_AFTER, Write};
use super::super::group::{Members, Place, Seen, done_before, place, section_of, shared};
use super::super::http::{Reply, failed};
use super::super::metrics::Operation;
use super::super::ours::has_marker;
use super::super::resolve::{in_background, patched_paths};
use super::super::{ForgeError, Job, Made, PullRequest, PullRequestState};
use super::adopt::{SETTLE, state};
use super::api::{Api, PAGE};
use super::commit::Committed;
use super::question::Base;
use super::{Gitlab, is_misfit, plan, wire};
use crate::change::Intent;
use crate::group::Group;
use crate::render::group::{first_body, with_section};
use crate::response::ErrorType;

/// How often is looked anew while others change the branch.
const ROUNDS: usize = 4;

/// What a look into a group came to.
enum InGroup {
    Done(Made),
    /// The response is not in the group and cannot join it.
    Alone,
    /// It is not in the group, and nothing was to be written.
    NotIn,
    /// Somebody was faster: look again.
    Again,
}

/// One attempt in a group.
struct Attempt<'a> {
    /// The same change with a branch of its own.
    alone: &'a Job<'a>,
    /// The change on the branch of the group, against the base branch.
    on_base: &'a Job<'a>,
    /// The same against the branch of the group itself: what is to be changed there.
    on_branch: &'a Job<'a>,
    group: &'a Group,
    /// Whether commits may be made.
    may_commit: bool,
}

impl Gitlab {
    /// Puts a change into its group; nothing if it has none, or cannot get into it.
    pub(super) async fn make_in_group(&self, job: &Job<'_>) -> Result<Option<Made>, ForgeError> {
        let (Some(member), Some(group)) = (job.intent.in_group(), &job.intent.group) else {
            return Ok(None);
        };
        let at_branch = Intent {
            base_branch: Some(group.branch.clone()),
            ..member.clone()
        };
        let (on_base, on_branch) = (job.with(&member), job.with(&at_branch));
        let attempt = |may_commit| Attempt {
            alone: job,
            on_base: &on_base,
            on_branch: &on_branch,
            group,
            may_commit,
        };
        if job.again {
            // A request of an interrupted attempt may still be at it.
            match self.look_into(&attempt(false)).await.0? {
                InGroup::Done(made) => return Ok(Some(made)),
                InGroup::Alone => return Ok(None),
                InGroup::NotIn | InGroup::Again => tokio::time::sleep(SETTLE).await,
            }
        }
        let mut rounds = 0;
        while rounds < ROUNDS {
            let (result, lost) = self.look_into(&attempt(true)).await;
            if lost.is_some() {
                self.memory().groups.forget(&group.branch);
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
                if let Ok(InGroup::Done(made)) = self.look_into(&attempt(false)).await.0 {
                    return Ok(Some(made));
                }
            }
            match result? {
                InGroup::Done(made) => return Ok(Some(made)),
                InGroup::Alone => return Ok(None),
                InGroup::NotIn | InGroup::Again => {}
            }
            rounds += 1;
            if rounds > 1 {
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
            }
        }
        Err(self.base_busy(&group.branch))
    }

    /// One look, and what follows from it; with the write that is in doubt, if it failed so.
    async fn look_into(
        &self,
        attempt: &Attempt<'_>,
    ) -> (Result<InGroup, ForgeError>, Option<Write>) {
        let known = self.memory().groups.has(&attempt.group.branch);
        let job = if known {
            attempt.on_branch
        } else {
            attempt.on_base
        };
        let mut api = match self.api(job) {
            Ok(api) => api,
            Err(error) => return (Err(error), None),
        };
        let result = self.look_with(&mut api, attempt, known).await;
        let lost = result.as_ref().err();
        let lost = lost.and_then(|error| api.last_write.in_doubt(error));
        (result, lost)
    }

    async fn look_with(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        at_branch: bool,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        let look = self.look_at_change(api).await?;
        let rank = |request: &wire::MergeRequest| match state(request) {
            PullRequestState::Open => 0,
            PullRequestState::Merged => 1,
            PullRequestState::Closed => 2,
        };
        let Some(request) = look.requests.into_iter().min_by_key(rank) else {
            if at_branch {
                self.memory().groups.forget(branch);
                return Ok(InGroup::Again);
            }
            if let Some(obstacle) = look.obstacle {
                return Err(obstacle);
            }
            let base = look.base.ok_or_else(|| self.repository_empty())?;
            return self.without_request(api, attempt, &base, look.now).await;
        };
        let body = request.description.as_deref().unwrap_or_default();
        // Of one that has ended only its commits prove anything: text can be set later as well.
        let is_open = state(&request) == PullRequestState::Open;
        let marked = is_open && has_marker(body, api.job.key);
        let seen = Seen {
            state: state(&request),
            marked,
        };
        let tip = look.now.as_ref().filter(|_| at_branch);
        let tip = tip.and_then(|now| now.tip.clone());
        let known = tip
            .as_ref()
            .and_then(|tip| self.memory().groups.at(branch, tip));
        let members = match known.filter(|_| is_open) {
            Some(members) => members,
            None if marked => Members::default(),
            None if is_open => {
                let on_base = self.api(attempt.on_base)?;
                let base = self.base(&on_base).await?;
                self.members_above(api, branch, &base).await?
            }
            // The branch may be gone.
            None => members(api, &api.commits_of(request.iid).await?),
        };
        match place(api.job, attempt.group, Some(seen), &members) {
            Place::Alone => Ok(InGroup::Alone),
            Place::In { commit } => {
                if !marked && is_open {
                    let text = self.body_of(api, commit.as_deref()).await;
                    self.tell(api, attempt, &request, &text).await?;
                }
                let adopted = self.adopted(api, request).await;
                Ok(InGroup::Done(shared(PullRequest { commit, ..adopted })))
            }
            Place::Join if !attempt.may_commit => Ok(InGroup::NotIn),
            Place::Join if at_branch => {
                if let Some(obstacle) = look.obstacle {
                    return Err(obstacle);
                }
                let now = look.now;
                self.join(api, attempt, Some(&request), now, members).await
            }
            // What is on the branch is looked at with the next question.
            Place::Join => {
                let tip = request.sha.clone().unwrap_or_default();
                self.memory().groups.note(branch, &tip, members);
                Ok(InGroup::Again)
            }
        }
    }

    /// Puts the change on top of what is there, and tells of it. `api` asks at the branch of the group.
    async fn join(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        request: Option<&wire::MergeRequest>,
        now: Option<Base>,
        mut members: Members,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        let now = match now {
            Some(now) if now.tip.is_some() => now,
            _ => {
                let Some(tip) = api.branch(branch).await? else {
                    self.memory().groups.forget(branch);
                    return Ok(InGroup::Alone);
                };
                Base {
                    tree: self.look(api, &tip.id).await?,
                    tip: Some(tip.id),
                    texts: BTreeMap::new(),
                }
            }
        };
        let tip = now.tip.clone().unwrap_or_default();
        let change = if patched_paths(api.job.intent).next().is_none() {
            in_background(api.job.intent, BTreeMap::new()).await
        } else {
            self.resolve(api, &now, &tip).await
        };
        match change {
            Ok(change) => api.change = change,
            // It does not fit what others have made of the file.
            Err(error) if is_misfit(&error) => return Ok(InGroup::Alone),
            Err(error) => return Err(error),
        }
        let files = api.change.files.clone();
        let actions = plan::exact(&files, &now.tree).map_err(|no_file| self.no_file(&no_file))?;
        if actions.is_empty() {
            return self.done_already(api, attempt, request, tip).await;
        }
        let reply = api.create_commit(branch, None, &actions).await?;
        if !reply.status.is_success() {
            let error = self.explain_refusal(api, branch, &reply).await?;
            let moved = matches!(reply.status.as_u16(), 400 | 409)
                && api.branch(branch).await?.is_none_or(|now| now.id != tip);
            return if moved {
                Ok(InGroup::Again)
            } else {
                Err(error)
            };
        }
        let commit: wire::Commit = reply.json()?;
        members.add(api.job.key.uid.as_str(), &commit.id);
        let parents = commit.parent_ids.unwrap_or_default();
        let members = if parents == [tip.as_str()] {
            Some(members)
        } else {
            None
        };
        // Whatever was put there in between is looked at next time.
        match members {
            Some(members) => self.memory().groups.note(branch, &commit.id, members),
            None => self.memory().groups.note(branch, "", Members::default()),
        }
        let text = api.change.body.clone();
        match request {
            Some(request) => {
                if self.tell(api, attempt, request, &text).await? != PullRequestState::Open {
                    // It has ended meanwhile, perhaps without the commit.
                    self.memory().groups.forget(branch);
                    return Ok(InGroup::Again);
                }
                // GitLab forgets the wish to merge with each new commit.
                let merging = self.merge_when_allowed(api, request, Some(&commit.id));
                let (state, refusal) = merging.await;
                let there = self.pull_request(request, Some(commit.id), true);
                Ok(InGroup::Done(shared(PullRequest {
                    state,
                    notes: refusal.into_iter().collect(),
                    ..there
                })))
            }
            None => self.open_first(attempt, commit.id, &text).await,
        }
    }

    /// The branch has every file as wanted: because the base has, or because another member did the same.
    async fn done_already(
        &self,
        api: &Api<'_>,
        attempt: &Attempt<'_>,
        request: Option<&wire::MergeRequest>,
        tip: String,
    ) -> Result<InGroup, ForgeError> {
        let on_base = self.api(attempt.on_base)?;
        let base = self.base(&on_base).await?;
        let there = self.look(&on_base, &base).await?;
        let is_on_base = plan::exact(&api.change.files, &there).is_ok_and(|all| all.is_empty());
        match request {
            Some(request) if !is_on_base => {
                let there = self.pull_request(request, None, true);
                Ok(InGroup::Done(done_before(there)))
            }
            None if !is_on_base => {
                let text = api.change.body.clone();
                self.open_first(attempt, tip, &text).await
            }
            _ => Ok(InGroup::Done(Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.project
                ),
            })),
        }
    }

    /// There is no merge request of the branch; perhaps there is no branch either. `api` asks at the base branch.
    async fn without_request(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
        now: Option<Base>,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        if !attempt.may_commit {
            if api.branch(branch).await?.is_none() {
                return Ok(InGroup::NotIn);
            }
            let members = self.members_above(api, branch, base).await?;
            let Some(commit) = members.commit_of(api.job.key) else {
                return Ok(InGroup::NotIn);
            };
            let text = self.body_of(api, Some(commit)).await;
            return self.open_first(attempt, commit.to_owned(), &text).await;
        }
        match self.patch_and_commit(api, base, now).await {
            Ok(Committed::Done { sha, body }) => {
                let mut members = Members::default();
                members.add(api.job.key.uid.as_str(), &sha);
                self.memory().groups.note(branch, &sha, members);
                self.open_first(attempt, sha, &body).await
            }
            Ok(Committed::Unchanged) => Ok(InGroup::Done(Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.project
                ),
            })),
            Ok(Committed::Opened(_) | Committed::Stale) => Ok(InGroup::Again),
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Conflicting => {
                self.onto_branch(attempt, base).await
            }
            Err(error) => Err(error),
        }
    }

    /// Others have begun the branch, and nobody has opened its merge request yet.
    async fn onto_branch(&self, attempt: &Attempt<'_>, base: &str) -> Result<InGroup, ForgeError> {
        let mut api = self.api(attempt.on_branch)?;
        let branch = &attempt.group.branch;
        let members = self.members_above(&api, branch, base).await?;
        match place(api.job, attempt.group, None, &members) {
            Place::Alone => Ok(InGroup::Alone),
            Place::In { commit } => {
                let text = self.body_of(&api, commit.as_deref()).await;
                self.open_first(attempt, commit.unwrap_or_default(), &text)
                    .await
            }
            Place::Join => self.join(&mut api, attempt, None, None, members).await,
        }
    }

    async fn open_first(
        &self,
        attempt: &Attempt<'_>,
        sha: String,
        text: &str,
    ) -> Result<InGroup, ForgeError> {
        let api = self.api(attempt.on_base)?;
        let base = self.base(&api).await?;
        let section = section_of(api.job.intent, attempt.alone.intent, text);
        let body = first_body(attempt.group, &section);
        match self.open(&api, &base, sha, &body).await {
            Ok(request) => Ok(InGroup::Done(shared(request))),
            Err(error) if api.last_write.in_doubt(&error).is_some() => {
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
                match self.look_up(&api).await {
                    Ok(found) if !found.is_empty() => Ok(InGroup::Again),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Adds the section of a response that is in there. One that is refused is left out: the commit is what counts.
    async fn tell(
        &self,
        api: &Api<'_>,
        attempt: &Attempt<'_>,
        request: &wire::MergeRequest,
        text: &str,
    ) -> Result<PullRequestState, ForgeError> {
        let section = section_of(api.job.intent, attempt.alone.intent, text);
        let before = request.description.as_deref().unwrap_or_default();
        let body = with_section(before, &section);
        let reply = api.set_description(request.iid, &body).await?;
        if reply.status.is_success() {
            return Ok(state(&reply.json()?));
        }
        match self
            .explain_refusal(api, &attempt.group.branch, &reply)
            .await?
        {
            ForgeError::Failed(error) if error.kind != ErrorType::Transient => {
                tracing::warn!(key = %api.job.key, number = request.iid, reason = error.reason, "the text of the merge request cannot be added to");
                Ok(state(request))
            }
            error => Err(error),
        }
    }

    /// The body of the change alone, with diffs as far as they can be told.
    async fn body_of(&self, api: &Api<'_>, commit: Option<&str>) -> String {
        let plain = api.job.intent.body.clone();
        let Some(sha) = commit.filter(|_| patched_paths(api.job.intent).next().is_some()) else {
            return plain;
        };
        let Ok(Some(commit)) = api.commit(sha).await else {
            return plain;
        };
        let parents = commit.parent_ids.unwrap_or_default();
        let change = self.change_of(api, sha, &parents).await;
        change.map_or(plain, |change| change.body)
    }

    /// Whose commits lie on top of the base.
    async fn members_above(
        &self,
        api: &Api<'_>,
        branch: &str,
        base: &str,
    ) -> Result<Members, ForgeError> {
        Ok(members(api, &api.commits_between(base, branch).await?))
    }
}

fn members(api: &Api<'_>, commits: &[wire::Commit]) -> Members {
    let commits = commits.iter().map(|commit| (&*commit.id, &*commit.message));
    Members::of(api.job.key, commits)
}

impl Api<'_> {
    /// The commits of a branch that another does not have; more than a group may have are not read.
    async fn commits_between(
        &self,
        base: &str,
        branch: &str,
    ) -> Result<Vec<wire::Commit>, ForgeError> {
        let range = format!("{base}..{branch}");
        let page = PAGE.to_string();
        let query = [("ref_name", range.as_str()), ("per_page", page.as_str())];
        let reply = self
            .get(Operation::Read, &["repository", "commits"], &query)
            .await?;
        Ok(reply.found()?.unwrap_or_default())
    }

    /// The commits of a merge request; more than a group may have are not read.
    async fn commits_of(&self, iid: u64) -> Result<Vec<wire::Commit>, ForgeError> {
        let segments = ["merge_requests", &iid.to_string(), "commits"];
        let page = PAGE.to_string();
        let query = [("per_page", page.as_str())];
        let reply = self.get(Operation::Read, &segments, &query).await?;
        let found: Option<Vec<wire::Commit>> = reply.found()?;
        // GitLab works a merge request out for a while after its branch has moved.
        let found = found.filter(|found| !found.is_empty());
        found.ok_or_else(|| {
            let detail = format!("merge request !{iid} of {} shows no commits", self.project);
            failed(ErrorType::Transient, "Behind", detail)
        })
    }

    /// Sets the description of a merge request.
    async fn set_description(&self, iid: u64, description: &str) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &iid.to_string()], &[]);
        let body = json!({ "description": description });
        self.last_write.begin(Write::Open);
        self.send(Operation::Edit, Method::PUT, url, Some(body))
            .await
    }
}
