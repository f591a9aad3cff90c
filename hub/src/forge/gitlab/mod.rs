//! GitLab: a change in three requests, and the way back into a change that was interrupted.
//!
//! Ask for merge request, base branch and files in one GraphQL question; commit all files to a new branch; open the merge
//! request. Making the branch is the claim: its name is made of the key, and GitLab makes a branch only once, so that two
//! attempts never make two changes. Whoever finds the branch taken ([`adopt`]) looks at what is on it and goes on from there.
//! [`question`] is what is asked, and [`look`] what is done where a server does not answer it; [`plan`] knows which action a
//! file needs, [`refusal`] what a refusal means.

mod adopt;
mod amend;
mod api;
mod close;
mod commit;
mod errors;
mod follow;
mod group;
mod look;
mod open;
mod plan;
mod question;
mod refusal;
mod wire;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use url::Url;

use self::api::Api;
use self::commit::Committed;
use self::question::Base;
use super::access::{api_root, authorization};
use super::doubt::{LastWrite, Write, after_second_look};
use super::group::KnownGroups;
use super::http::{Http, failed};
use super::ours::{has_trailers, refuse_base_branch};
use super::resolve::{PATCH_DOES_NOT_APPLY, Resolved, in_background, patched_paths};
use super::{Amended, Amending, ClosedPull, Closing, Forge, ForgeError, Job, Made, ObservedPull};
use crate::change::CredentialRef;
use crate::credentials::Credentials;
use crate::response::ErrorType;

/// The public service.
pub(super) const PUBLIC: &str = "https://gitlab.com";

/// How long the default branch of a project and the ids of people are taken as known.
const KEPT: Duration = Duration::from_mins(5);

/// How often the change is looked at anew while others change what it patches.
const ROUNDS: usize = 3;

/// How long after our own write a read may not show it.
const READS_MAY_LAG: Duration = Duration::from_mins(1);

/// Paths that are remembered, at most.
const MAX_KNOWN_FILES: usize = 4096;

/// A project on a GitLab server.
#[derive(Debug)]
pub struct Gitlab {
    http: Http,
    root: Url,
    graphql: Url,
    base_url: String,
    project: String,
    credential: CredentialRef,
    credentials: Credentials,
    memory: Mutex<Memory>,
}

/// What is known of the project, for a while.
#[derive(Debug, Default)]
struct Memory {
    default_branch: Option<(String, Instant)>,
    /// Ids of people by user name; nothing for a name that nobody has.
    people: HashMap<String, (Option<u64>, Instant)>,
    /// Base branches with paths that were files there when they were last looked at. Only a guess is built on it: one
    /// that is wrong is refused as a whole, and costs requests but never a wrong change.
    files: HashSet<(String, String)>,
    /// Since when the server is known not to answer our question.
    unasked: Option<Instant>,
    /// Merge requests that we opened a moment ago, by branch.
    opened: HashMap<String, (u64, Instant)>,
    groups: KnownGroups,
}

impl Gitlab {
    pub(super) fn new(
        http: Http,
        base_url: &str,
        project: &str,
        credential: CredentialRef,
        credentials: Credentials,
    ) -> Result<Self, ForgeError> {
        let root = api_root(base_url, project, ["api", "v4"])?;
        let graphql = api_root(base_url, project, ["api", "graphql"])?;
        let parts: Vec<&str> = project.split('/').collect();
        let is_name = |part: &&str| !part.is_empty() && *part != "." && *part != "..";
        if parts.len() < 2 || !parts.iter().all(is_name) {
            let detail = format!(
                "provider.repository {project:?} is not of the form group/name or group/sub-group/name"
            );
            return Err(failed(ErrorType::Permanent, "InvalidRoute", detail));
        }
        Ok(Self {
            http,
            root,
            graphql,
            base_url: base_url.trim_end_matches('/').to_owned(),
            project: project.to_owned(),
            credential,
            credentials,
            memory: Mutex::default(),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API with the token as it is now.
    fn api<'a>(&'a self, job: &'a Job<'a>) -> Result<Api<'a>, ForgeError> {
        let place = self.http.place();
        let auth = authorization(&self.credentials, &self.credential, "Bearer", place)?;
        Ok(Api {
            http: &self.http,
            root: &self.root,
            graphql: &self.graphql,
            project: &self.project,
            job,
            auth,
            change: Resolved::default(),
            start: None,
            last_write: LastWrite::default(),
        })
    }

    /// The base branch of the change; asks for the default branch at most every few minutes.
    async fn base(&self, api: &Api<'_>) -> Result<String, ForgeError> {
        if let Some(base) = &api.job.intent.base_branch {
            return Ok(base.clone());
        }
        if let Some((branch, since)) = &self.memory().default_branch
            && since.elapsed() < KEPT
        {
            return Ok(branch.clone());
        }
        let project = api
            .project()
            .await?
            .ok_or_else(|| self.project_not_found())?;
        let Some(branch) = project.default_branch.filter(|_| !project.empty_repo) else {
            return Err(self.repository_empty());
        };
        self.memory().default_branch = Some((branch.clone(), Instant::now()));
        Ok(branch)
    }
}

impl Gitlab {
    /// Makes the change, or takes up what is there of it.
    async fn attempt(&self, api: &mut Api<'_>) -> Result<Made, ForgeError> {
        for _ in 0..ROUNDS {
            let look = self.look_at_change(api).await?;
            if let Some(base) = &look.base {
                refuse_base_branch(api.job, base, self.http.place())?;
            }
            if !look.requests.is_empty() {
                return Ok(Made::PullRequest(self.adopt(api, look.requests).await?));
            }
            if let Some(obstacle) = look.obstacle {
                return Err(obstacle);
            }
            let base = look.base.ok_or_else(|| self.repository_empty())?;
            match self.patch_and_commit(api, &base, look.now).await? {
                Committed::Stale => {}
                committed => return self.opened(api, &base, committed).await,
            }
        }
        let base = api.job.intent.base_branch.as_deref();
        Err(self.base_busy(base.unwrap_or("the default branch")))
    }

    /// Commits the change, with its patches applied to the base as it was looked at.
    async fn patch_and_commit(
        &self,
        api: &mut Api<'_>,
        base: &str,
        now: Option<Base>,
    ) -> Result<Committed, ForgeError> {
        if patched_paths(api.job.intent).next().is_none() {
            api.change = in_background(api.job.intent, BTreeMap::new()).await?;
            return self
                .commit(api, base, now.as_ref().map(|now| &now.tree))
                .await;
        }
        let Some(now) = now else {
            self.explain_missing(api, base).await?;
            return Ok(Committed::Stale);
        };
        let Some(tip) = now.tip.clone() else {
            return Ok(Committed::Stale);
        };
        match self.resolve(api, &now, &tip).await {
            Ok(change) => api.change = change,
            Err(error) if is_misfit(&error) => return self.adopt_misfit(api, base, error).await,
            Err(error) => return Err(error),
        }
        // On top of the commit that was read, so that the change takes nothing back.
        api.start = Some(tip);
        self.commit(api, base, Some(&now.tree)).await
    }

    async fn opened(
        &self,
        api: &Api<'_>,
        base: &str,
        committed: Committed,
    ) -> Result<Made, ForgeError> {
        Ok(match committed {
            Committed::Done { sha, body } => {
                Made::PullRequest(self.open(api, base, sha, &body).await?)
            }
            Committed::Opened(found) => Made::PullRequest(self.adopt(api, found).await?),
            Committed::Stale => return Err(self.base_busy(base)),
            Committed::Unchanged => Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.project
                ),
            },
        })
    }

    /// Looks what a write did whose answer was lost, and goes on from there; nothing if nothing is to be seen of it.
    async fn second_look(&self, api: &Api<'_>, lost: Write) -> Result<Option<Made>, ForgeError> {
        let found = self.look_up(api).await?;
        if !found.is_empty() {
            return Ok(Some(Made::PullRequest(self.adopt(api, found).await?)));
        }
        if lost != Write::Commit {
            return Ok(None);
        }
        let tip = api.branch(&api.job.intent.branch).await?;
        let Some(tip) = tip.filter(|tip| has_trailers(&tip.message, api.job.key)) else {
            return Ok(None);
        };
        let base = self.base(api).await?;
        let committed = self.adopt_tip(api, &base, tip).await?;
        self.opened(api, &base, committed).await.map(Some)
    }

    /// Notes that a merge request was opened for a branch.
    fn remember_opened(&self, branch: &str, iid: u64) {
        let opened = &mut self.memory().opened;
        opened.retain(|_, (_, since)| since.elapsed() < READS_MAY_LAG);
        opened.insert(branch.to_owned(), (iid, Instant::now()));
    }

    /// The merge request that was opened for a branch so lately that reads may not show it yet.
    fn opened_lately(&self, branch: &str) -> Option<u64> {
        let (iid, since) = self.memory().opened.get(branch).copied()?;
        (since.elapsed() < READS_MAY_LAG).then_some(iid)
    }
}

/// Whether a patch does not fit its file.
fn is_misfit(error: &ForgeError) -> bool {
    matches!(error, ForgeError::Failed(error) if error.reason == PATCH_DOES_NOT_APPLY)
}

#[async_trait]
impl Forge for Gitlab {
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError> {
        if let Some(made) = self.make_in_group(job).await? {
            return Ok(made);
        }
        let mut api = self.api(job)?;
        let result = self.attempt(&mut api).await;
        after_second_look(result, &api.last_write, |lost| self.second_look(&api, lost)).await
    }

    async fn observe(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        self.observe_requests(job, numbers).await
    }

    /// GitLab does it by itself: the merge request was opened with that wish.
    async fn remove_branch(&self, _job: &Job<'_>, _number: u64) -> Result<(), ForgeError> {
        Ok(())
    }

    async fn close(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        self.close_request(job, closing).await
    }

    async fn amend(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        self.amend_request(job, amending).await
    }
}
