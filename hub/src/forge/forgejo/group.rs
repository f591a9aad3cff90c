//! The pull request of a group, in three requests: look it up, commit on top of its branch, add to its text.
//!
//! Whose commits are on the branch is remembered, as long as its tip is the one that was put there last; else it costs a
//! request more. A commit comes before the text that tells of it, so that the marker of a response proves its commit. The
//! first member makes branch, commit and pull request as one alone does.

use http::Method;
use serde_json::json;

use super::super::amend::HISTORY;
use super::super::doubt::{SECOND_LOOK_AFTER, Write};
use super::super::group::{Members, Place, Seen, done_before, place, section_of, shared};
use super::super::http::{Reply, failed};
use super::super::metrics::Operation;
use super::super::ours::has_marker;
use super::super::resolve::Resolved;
use super::super::{ForgeError, Job, Made, PullRequest, PullRequestState};
use super::adopt::SETTLE;
use super::api::Api;
use super::commit::{Committed, is_as_wanted, is_stale, uploads};
use super::patch::is_misfit;
use super::{Forgejo, wire};
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
    group: &'a Group,
    /// Whether commits may be made.
    may_commit: bool,
}

impl Forgejo {
    /// Puts a change into its group; nothing if it has none, or cannot get into it.
    pub(super) async fn make_in_group(&self, job: &Job<'_>) -> Result<Option<Made>, ForgeError> {
        let (Some(member), Some(group)) = (job.intent.in_group(), &job.intent.group) else {
            return Ok(None);
        };
        let in_group = job.with(&member);
        let mut api = self.api(&in_group)?;
        let attempt = |may_commit| Attempt {
            alone: job,
            group,
            may_commit,
        };
        if job.again {
            // A request of an interrupted attempt may still be at it.
            match self.look_into(&mut api, &attempt(false)).await? {
                InGroup::Done(made) => return Ok(Some(made)),
                InGroup::Alone => return Ok(None),
                InGroup::NotIn | InGroup::Again => tokio::time::sleep(SETTLE).await,
            }
        }
        for _ in 0..ROUNDS {
            let result = self.look_into(&mut api, &attempt(true)).await;
            let lost = match &result {
                Err(error) => api.last_write.in_doubt(error),
                Ok(_) => None,
            };
            if lost == Some(Write::Commit) || lost == Some(Write::Open) {
                self.memory().groups.forget(&group.branch);
                tokio::time::sleep(SECOND_LOOK_AFTER).await;
                if let Ok(InGroup::Done(made)) = self.look_into(&mut api, &attempt(false)).await {
                    return Ok(Some(made));
                }
            }
            match result? {
                InGroup::Done(made) => return Ok(Some(made)),
                InGroup::Alone => return Ok(None),
                InGroup::NotIn | InGroup::Again => tokio::time::sleep(SECOND_LOOK_AFTER).await,
            }
        }
        Err(self.base_busy(&group.branch))
    }

    async fn look_into(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
    ) -> Result<InGroup, ForgeError> {
        let base = self.base(api).await?;
        let branch = &attempt.group.branch;
        let Some(pull) = api.pull(&base, branch).await? else {
            return self.without_pull(api, attempt, &base).await;
        };
        let body = pull.body.as_deref().unwrap_or_default();
        // Of one that has ended only its commits prove anything: text can be set later as well.
        let is_open = pull.state() == PullRequestState::Open;
        let marked = is_open && has_marker(body, api.job.key);
        let seen = Seen {
            state: pull.state(),
            marked,
        };
        if pull.head.repo_id != pull.base.repo_id || pull.head.label != *branch {
            return Ok(InGroup::Alone);
        }
        let known = self.memory().groups.at(branch, &pull.head.sha);
        let members = match known.filter(|_| is_open) {
            Some(members) => members,
            None if marked => Members::default(),
            None => {
                let commits = api.commits_of(pull.number).await?;
                let is_behind = commits.iter().all(|past| past.sha != pull.head.sha);
                if is_behind && is_open {
                    return Ok(InGroup::Again);
                }
                let commits = commits
                    .iter()
                    .map(|past| (&*past.sha, &*past.commit.message));
                Members::of(api.job.key, commits)
            }
        };
        match place(api.job, attempt.group, Some(seen), &members) {
            Place::Alone => Ok(InGroup::Alone),
            Place::In { commit } => {
                if !marked && is_open {
                    let text = self.body_of(api, commit.as_deref()).await;
                    self.tell(api, attempt, &pull, &text).await?;
                }
                Ok(InGroup::Done(shared(self.of_group(&pull, commit))))
            }
            Place::Join if !attempt.may_commit => Ok(InGroup::NotIn),
            Place::Join => self.join(api, attempt, &base, Some(&pull), members).await,
        }
    }

    /// Puts the change on top of what is there, and tells of it.
    async fn join(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
        pull: Option<&wire::Pull>,
        mut members: Members,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        match self.resolve(api, branch).await {
            Ok(change) => api.change = change,
            // It does not fit what others have made of the file.
            Err(error) if is_misfit(&error) => return Ok(InGroup::Alone),
            Err(error) => return Err(error),
        }
        let (sha, parent) = match self.put(api, branch).await {
            Ok(Put::Done { sha, parent }) => (sha, parent),
            Ok(Put::Unchanged) => return self.done_already(api, attempt, base, pull).await,
            Ok(Put::Stale) => return Ok(InGroup::Again),
            // It may have gone with the end of its pull request.
            Err(error @ ForgeError::Failed(_)) if pull.is_some() => {
                let is_gone = matches!(api.branch(branch).await, Ok(None));
                self.memory().groups.forget(branch);
                return if is_gone {
                    Ok(InGroup::Again)
                } else {
                    Err(error)
                };
            }
            Err(error) => return Err(error),
        };
        members.add(api.job.key.uid.as_str(), &sha);
        let tip = pull.map(|pull| pull.head.sha.as_str());
        // Whatever was put there in between is looked at next time.
        if parent.is_some() && parent.as_deref() == tip {
            self.memory().groups.note(branch, &sha, members);
        } else {
            self.memory().groups.forget(branch);
        }
        let text = api.change.body.clone();
        match pull {
            Some(pull) => {
                if self.tell(api, attempt, pull, &text).await? == PullRequestState::Open {
                    return Ok(InGroup::Done(shared(self.of_group(pull, Some(sha)))));
                }
                // It has ended meanwhile, perhaps without the commit.
                self.memory().groups.forget(branch);
                Ok(InGroup::Again)
            }
            None => self.open_first(api, attempt, base, sha, &text).await,
        }
    }

    /// One commit on the branch; all files or none.
    async fn put(&self, api: &Api<'_>, branch: &str) -> Result<Put, ForgeError> {
        let deletes = api.change.files.iter().any(|file| file.contents.is_none());
        if !deletes && self.has_upload() {
            let files = uploads(&api.change);
            if files.is_empty() {
                return Ok(Put::Unchanged);
            }
            let reply = api.change_files(branch, None, &files).await?;
            if is_stale(api, &reply) {
                return Ok(Put::Stale);
            }
            // Servers that do not know `upload` say just that something went wrong.
            if reply.status.is_success() || !matches!(reply.status.as_u16(), 400 | 404 | 500) {
                return self.was_put(&reply);
            }
        }
        // A look at each file shows what there is to delete, so that such a commit is never empty.
        match self.commit_exactly(api, branch, None).await? {
            Committed::Done { sha, .. } => Ok(Put::Done { sha, parent: None }),
            Committed::Stale => Ok(Put::Stale),
            Committed::Unchanged | Committed::Opened(_) => Ok(Put::Unchanged),
        }
    }

    fn was_put(&self, reply: &Reply) -> Result<Put, ForgeError> {
        if !reply.status.is_success() {
            return Err(self.explain(reply));
        }
        let commit = reply.json::<wire::FilesChanged>()?.commit;
        let parents = commit.parents.unwrap_or_default();
        let parent = parents.into_iter().next().and_then(|parent| parent.sha);
        let sha = commit.sha;
        Ok(Put::Done { sha, parent })
    }

    /// The branch has every file as wanted: because the base has, or because another member did the same.
    async fn done_already(
        &self,
        api: &Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
        pull: Option<&wire::Pull>,
    ) -> Result<InGroup, ForgeError> {
        let mut is_on_base = true;
        for file in &api.change.files {
            is_on_base &= is_as_wanted(file, &api.at_path(&file.path, base).await?);
        }
        match pull {
            Some(pull) if !is_on_base => Ok(InGroup::Done(done_before(self.of_group(pull, None)))),
            None if !is_on_base => {
                let tip = api.branch(&attempt.group.branch).await?;
                let sha = tip.map(|tip| tip.id).unwrap_or_default();
                let text = api.change.body.clone();
                self.open_first(api, attempt, base, sha, &text).await
            }
            _ => Ok(InGroup::Done(Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.repository
                ),
            })),
        }
    }

    /// There is no pull request of the branch; perhaps there is no branch either.
    async fn without_pull(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        if !attempt.may_commit {
            let Some(tip) = api.branch(branch).await? else {
                return Ok(InGroup::NotIn);
            };
            let Some(members) = self.members_above(api, branch, base).await? else {
                return Ok(InGroup::Alone);
            };
            if members.commit_of(api.job.key).is_none() {
                return Ok(InGroup::NotIn);
            }
            let text = self.body_of(api, members.commit_of(api.job.key)).await;
            return self.open_first(api, attempt, base, tip.id, &text).await;
        }
        match self.resolve_and_commit(api, base).await {
            Ok(Committed::Done { sha, body }) => {
                let mut members = Members::default();
                members.add(api.job.key.uid.as_str(), &sha);
                self.memory().groups.note(branch, &sha, members);
                self.open_first(api, attempt, base, sha, &body).await
            }
            Ok(Committed::Unchanged) => Ok(InGroup::Done(Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.repository
                ),
            })),
            Ok(Committed::Opened(_)) => Ok(InGroup::Again),
            Ok(Committed::Stale) => Err(self.base_busy(base)),
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Conflicting => {
                self.onto_branch(api, attempt, base).await
            }
            Err(error) => Err(error),
        }
    }

    /// Others have begun the branch, and nobody has opened its pull request yet.
    async fn onto_branch(
        &self,
        api: &mut Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
    ) -> Result<InGroup, ForgeError> {
        let branch = &attempt.group.branch;
        let Some(members) = self.members_above(api, branch, base).await? else {
            return Ok(InGroup::Alone);
        };
        match place(api.job, attempt.group, None, &members) {
            Place::Alone => Ok(InGroup::Alone),
            Place::In { commit } => {
                let text = self.body_of(api, commit.as_deref()).await;
                let sha = commit.unwrap_or_default();
                self.open_first(api, attempt, base, sha, &text).await
            }
            Place::Join => self.join(api, attempt, base, None, members).await,
        }
    }

    async fn open_first(
        &self,
        api: &Api<'_>,
        attempt: &Attempt<'_>,
        base: &str,
        sha: String,
        text: &str,
    ) -> Result<InGroup, ForgeError> {
        let section = section_of(api.job.intent, attempt.alone.intent, text);
        let body = first_body(attempt.group, &section);
        let pull = self.open(api, base, sha, &body).await?;
        Ok(InGroup::Done(shared(pull)))
    }

    /// Adds the section of a response that is in there. One that is refused is left out: the commit is what counts.
    async fn tell(
        &self,
        api: &Api<'_>,
        attempt: &Attempt<'_>,
        pull: &wire::Pull,
        text: &str,
    ) -> Result<PullRequestState, ForgeError> {
        let section = section_of(api.job.intent, attempt.alone.intent, text);
        let body = with_section(pull.body.as_deref().unwrap_or_default(), &section);
        let reply = api.set_body(pull.number, &body).await?;
        if reply.status.is_success() {
            return Ok(reply.json::<wire::Pull>()?.state());
        }
        match self.explain(&reply) {
            ForgeError::Failed(error) if error.kind != ErrorType::Transient => {
                tracing::warn!(key = %api.job.key, number = pull.number, reason = error.reason, "the text of the pull request cannot be added to");
                Ok(pull.state())
            }
            error => Err(error),
        }
    }

    /// The body of the change alone, with diffs as far as they can be told.
    async fn body_of(&self, api: &Api<'_>, commit: Option<&str>) -> String {
        let plain = || api.job.intent.body.clone();
        let Some(commit) = commit else { return plain() };
        let change = self.change_of(api, commit).await;
        change
            .ok()
            .map(|change: Resolved| change.body)
            .filter(|body| !body.is_empty())
            .unwrap_or_else(plain)
    }

    /// Whose commits lie on top of the base; nothing if that cannot be seen.
    async fn members_above(
        &self,
        api: &Api<'_>,
        branch: &str,
        base: &str,
    ) -> Result<Option<Members>, ForgeError> {
        let below = api.history(base).await?;
        let above = api.history(branch).await?;
        let is_below = |oid: &str| below.iter().any(|link| link.oid == oid);
        let count = above.iter().take_while(|link| !is_below(&link.oid)).count();
        if count == above.len() {
            return Ok(None);
        }
        let commits = above[..count]
            .iter()
            .map(|link| (&*link.oid, &*link.message));
        Ok(Some(Members::of(api.job.key, commits)))
    }

    fn of_group(&self, pull: &wire::Pull, commit: Option<String>) -> PullRequest {
        PullRequest {
            commit: commit.clone(),
            ..self.pull_request(pull, commit, true)
        }
    }
}

/// What came of a commit on top of a branch.
enum Put {
    Done {
        sha: String,
        /// The commit below it, if the forge says it.
        parent: Option<String>,
    },
    /// A patched file is another than it was when it was read.
    Stale,
    /// The branch has every file as wanted.
    Unchanged,
}

impl Api<'_> {
    /// The commits of a pull request; more than a group may have are not read.
    async fn commits_of(&self, number: u64) -> Result<Vec<wire::Past>, ForgeError> {
        let mut all: Vec<wire::Past> = Vec::new();
        for page in 1..=2 {
            let mut url = self.repository_url("pulls", &format!("{number}/commits"));
            url.set_query(Some(&format!(
                "limit={HISTORY}&page={page}&verification=false&files=false"
            )));
            let found: Option<Vec<wire::Past>> = self.get(Operation::Read, url).await?.found()?;
            let found = found.unwrap_or_default();
            let is_last = found.len() < HISTORY;
            all.extend(found);
            if is_last {
                break;
            }
        }
        if all.is_empty() {
            let detail = format!(
                "pull request {number} of {} shows no commits",
                self.repository
            );
            return Err(failed(ErrorType::Transient, "Behind", detail));
        }
        Ok(all)
    }

    /// Sets the body of a pull request.
    async fn set_body(&self, number: u64, body: &str) -> Result<Reply, ForgeError> {
        let url = self.repository_url("pulls", &number.to_string());
        let body = json!({ "body": body });
        self.last_write.begin(Write::Open);
        self.send(Operation::Edit, Method::PATCH, url, Some(body))
            .await
    }
}
