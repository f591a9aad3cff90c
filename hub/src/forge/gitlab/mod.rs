//! GitLab: a change in three requests, and the way back into a change that was interrupted.
//!
//! Look the merge request up by its branch; commit all files to a new branch; open the merge request. Making the branch is
//! the claim: its name is made of the key, and GitLab makes a branch only once, so that two attempts never make two
//! changes. Whoever finds the branch taken ([`adopt`]) looks at what is on it and goes on from there. [`plan`] knows which
//! action a file needs, [`refusal`] what a refusal means.

mod adopt;
mod api;
mod close;
mod commit;
mod follow;
mod open;
mod plan;
mod refusal;
mod wire;

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use url::Url;

use self::api::Api;
use self::commit::Committed;
use super::access::{api_root, authorization};
use super::http::{Http, failed};
use super::ours::refuse_base_branch;
use super::resolve::patched_paths;
use super::{ClosedPull, Closing, Forge, ForgeError, Job, Made, ObservedPull};
use crate::change::CredentialRef;
use crate::credentials::Credentials;
use crate::response::ErrorType;

/// The public service.
pub(super) const PUBLIC: &str = "https://gitlab.com";

/// How long the default branch of a project and the ids of people are taken as known.
const KEPT: Duration = Duration::from_mins(5);

/// Paths that are remembered, at most.
const MAX_KNOWN_FILES: usize = 4096;

/// A project on a GitLab server.
#[derive(Debug)]
pub struct Gitlab {
    http: Http,
    root: Url,
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
            project: &self.project,
            job,
            auth,
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

#[async_trait]
impl Forge for Gitlab {
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError> {
        if patched_paths(job.intent).next().is_some() {
            let detail = format!(
                "patches are not served on GitLab yet ({}); create a new EventResponse with contents instead",
                self.project
            );
            return Err(failed(ErrorType::Permanent, "PatchNotServed", detail));
        }
        let api = self.api(job)?;
        let base = self.base(&api).await?;
        refuse_base_branch(job, &base, self.http.place())?;
        let found = self.look_up(&api).await?;
        if !found.is_empty() {
            return Ok(Made::PullRequest(self.adopt(&api, found).await?));
        }
        match self.commit(&api, &base).await? {
            Committed::Done(sha) => Ok(Made::PullRequest(self.open(&api, &base, sha).await?)),
            Committed::Opened(found) => Ok(Made::PullRequest(self.adopt(&api, found).await?)),
            Committed::Unchanged => Ok(Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.project
                ),
            }),
        }
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
}
