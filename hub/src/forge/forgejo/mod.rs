//! Forgejo and Gitea: a change in three requests, and the way back into a change that was interrupted.
//!
//! Look the pull request up by base and branch; commit all files to a new branch; open the pull request. Making the
//! branch is the claim: its name is made of the key, and the forge makes a branch only once, so that two attempts never
//! make two changes. Whoever finds the branch taken ([`adopt`]) looks at what is on it and goes on from there.

mod adopt;
mod amend;
mod api;
mod close;
mod commit;
mod errors;
mod extras;
mod follow;
mod group;
mod patch;
mod wire;

use std::sync::atomic::AtomicU8;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use url::Url;

use self::api::Api;
use self::commit::Committed;
use super::access::{api_root, authorization, web_address};
use super::doubt::{LastWrite, Write, after_second_look};
use super::group::KnownGroups;
use super::http::{Http, Reply, failed};
use super::ours::{has_trailers, refuse_base_branch};
use super::resolve::Resolved;
use super::{
    Amended, Amending, ClosedPull, Closing, Forge, ForgeError, Job, Made, ObservedPull, PullRequest,
};
use crate::change::{CredentialRef, Intent};
use crate::credentials::Credentials;
use crate::response::ErrorType;

/// How long the default branch of a repository is taken as known.
const REPOSITORY_KEPT: Duration = Duration::from_mins(5);

/// A repository on a Forgejo or Gitea server.
#[derive(Debug)]
pub struct Forgejo {
    http: Http,
    root: Url,
    base_url: String,
    repository: String,
    credential: CredentialRef,
    credentials: Credentials,
    /// Whether the server knows the operation `upload`: [`UNKNOWN`], [`YES`] or [`NO`].
    knows_upload: AtomicU8,
    memory: Mutex<Memory>,
}

const UNKNOWN: u8 = 0;
const YES: u8 = 1;
const NO: u8 = 2;

/// What is known of the repository, for a while.
#[derive(Debug, Default)]
struct Memory {
    default_branch: Option<(String, Instant)>,
    labels: Option<extras::KnownLabels>,
    groups: KnownGroups,
}

impl Forgejo {
    pub(super) fn new(
        http: Http,
        base_url: &str,
        repository: &str,
        credential: CredentialRef,
        credentials: Credentials,
    ) -> Result<Self, ForgeError> {
        let invalid = |detail: String| failed(ErrorType::Permanent, "InvalidRoute", detail);
        let root = api_root(base_url, repository, ["api", "v1"])?;
        let part = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !repository
            .split_once('/')
            .is_some_and(|(owner, name)| part(owner) && part(name) && !name.contains('/'))
        {
            return Err(invalid(format!(
                "provider.repository {repository:?} is not of the form owner/name"
            )));
        }
        Ok(Self {
            http,
            root,
            base_url: base_url.trim_end_matches('/').to_owned(),
            repository: repository.to_owned(),
            credential,
            credentials,
            knows_upload: AtomicU8::new(UNKNOWN),
            memory: Mutex::default(),
        })
    }

    fn owner(&self) -> &str {
        self.repository.split('/').next().unwrap_or_default()
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The API with the token as it is now.
    fn api<'a>(&'a self, job: &'a Job<'a>) -> Result<Api<'a>, ForgeError> {
        let place = self.http.place();
        let auth = authorization(&self.credentials, &self.credential, "token", place)?;
        Ok(Api {
            http: &self.http,
            root: &self.root,
            repository: &self.repository,
            job,
            auth,
            change: Resolved::default(),
            last_write: LastWrite::default(),
        })
    }

    /// The base branch of the change; asks for the default branch at most every few minutes.
    async fn base(&self, api: &Api<'_>) -> Result<String, ForgeError> {
        if let Some(base) = &api.job.intent.base_branch {
            return Ok(base.clone());
        }
        if let Some((branch, since)) = &self.memory().default_branch
            && since.elapsed() < REPOSITORY_KEPT
        {
            return Ok(branch.clone());
        }
        let repository = api
            .repository()
            .await?
            .ok_or_else(|| self.repository_not_found())?;
        if repository.empty {
            return Err(self.repository_empty());
        }
        self.memory().default_branch = Some((repository.default_branch.clone(), Instant::now()));
        Ok(repository.default_branch)
    }

    /// Opens the pull request for a branch that holds the change.
    async fn open(
        &self,
        api: &Api<'_>,
        base: &str,
        commit: String,
        body: &str,
    ) -> Result<PullRequest, ForgeError> {
        let labels = self.label_ids(api).await?;
        let Intent {
            reviewers, options, ..
        } = api.job.intent;
        let people = reviewers.len() + options.team_reviewers.len() + options.assignees.len();
        let mut reply = api.open(base, &labels, true, body).await?;
        if reply.status.as_u16() == 409 {
            let pull = api
                .pull(base, &api.job.intent.branch)
                .await?
                .ok_or_else(|| self.explain(&reply))?;
            return self.adopt_pull(api, pull).await;
        }
        let mut pull = None;
        if !reply.status.is_success() && people > 0 {
            // One reviewer who may not review is enough for a refusal, and some servers find out only when the pull
            // request is there.
            pull = api.pull(base, &api.job.intent.branch).await?;
            if pull.is_none() {
                reply = api.open(base, &labels, false, body).await?;
            }
        }
        let pull = match pull {
            Some(pull) => pull,
            None if reply.status.as_u16() == 404 => {
                self.explain_missing(api, base).await?;
                return Err(self.explain(&reply));
            }
            None if !reply.status.is_success() => return Err(self.explain(&reply)),
            None => reply.json()?,
        };
        extras::add_missing_people(api, &pull).await?;
        Ok(self.pull_request(&pull, Some(commit), false))
    }

    fn pull_request(
        &self,
        pull: &wire::Pull,
        commit: Option<String>,
        adopted: bool,
    ) -> PullRequest {
        let commit = commit
            .or_else(|| Some(pull.head.sha.clone()))
            .filter(|sha| !sha.is_empty());
        PullRequest {
            url: self.address(pull),
            commit,
            state: pull.state(),
            adopted,
            notes: Vec::new(),
        }
    }

    /// What an answer means that is no success.
    fn explain(&self, reply: &Reply) -> ForgeError {
        errors::explain(reply, self.http.place())
    }

    /// The address for people. What a forge says is believed only as far as it is a web address.
    fn address(&self, pull: &wire::Pull) -> String {
        web_address(&pull.html_url).unwrap_or_else(|| {
            format!(
                "{}/{}/pulls/{}",
                self.base_url, self.repository, pull.number
            )
        })
    }

    /// After a 404: an error if repository or base branch are missing.
    async fn explain_missing(&self, api: &Api<'_>, base: &str) -> Result<(), ForgeError> {
        if api.branch(base).await?.is_some() {
            return Ok(());
        }
        self.memory().default_branch = None;
        let repository = api
            .repository()
            .await?
            .ok_or_else(|| self.repository_not_found())?;
        if repository.empty {
            return Err(self.repository_empty());
        }
        let detail = format!(
            "{} has no branch {base:?}; correct provider.baseBranch of the route (the default branch is {:?})",
            self.http.place(),
            repository.default_branch
        );
        Err(failed(ErrorType::Permanent, "BaseBranchNotFound", detail))
    }

    fn repository_not_found(&self) -> ForgeError {
        let detail = format!(
            "there is no repository {}, or the token of the Secret {}/{} has no access to it (the forge says the same of both)",
            self.http.place(),
            self.credential.namespace,
            self.credential.name
        );
        failed(ErrorType::Permanent, "RepositoryNotFound", detail)
    }

    /// The server makes a change to a repository without any commit the first commit, and its branch the default branch,
    /// which it does not let anybody remove.
    fn first_commit(&self, api: &Api<'_>) -> ForgeError {
        let branch = &api.job.intent.branch;
        let detail = format!(
            "{} had no commit yet, so the forge has made the change the first one, on the branch {branch}; make a commit on its base branch and that the default branch, remove {branch}, then create a new EventResponse",
            self.http.place()
        );
        failed(ErrorType::Permanent, "RepositoryEmpty", detail)
    }

    fn repository_empty(&self) -> ForgeError {
        let detail = format!(
            "{} has no commit yet; make a first one on its base branch",
            self.http.place()
        );
        failed(ErrorType::Permanent, "RepositoryEmpty", detail)
    }
}

impl Forgejo {
    /// Makes the change, or takes up what is there of it.
    async fn attempt(&self, api: &mut Api<'_>) -> Result<Made, ForgeError> {
        let base = self.base(api).await?;
        refuse_base_branch(api.job, &base, self.http.place())?;
        if let Some(pull) = api.pull(&base, &api.job.intent.branch).await? {
            return Ok(Made::PullRequest(self.adopt_pull(api, pull).await?));
        }
        let committed = self.resolve_and_commit(api, &base).await?;
        self.opened(api, &base, committed).await
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
            Committed::Opened(pull) => Made::PullRequest(self.adopt_pull(api, *pull).await?),
            Committed::Stale => return Err(self.base_busy(base)),
            Committed::Unchanged => Made::NoActionNeeded {
                detail: format!(
                    "{base} of {} already has every file as wanted",
                    self.repository
                ),
            },
        })
    }

    /// Looks what a write did whose answer was lost, and goes on from there; nothing if nothing is to be seen of it.
    async fn second_look(&self, api: &Api<'_>, lost: Write) -> Result<Option<Made>, ForgeError> {
        let (base, branch) = (self.base(api).await?, &api.job.intent.branch);
        if let Some(pull) = api.pull(&base, branch).await? {
            return Ok(Some(Made::PullRequest(self.adopt_pull(api, pull).await?)));
        }
        if lost != Write::Commit {
            return Ok(None);
        }
        let tip = match api.branch(branch).await? {
            Some(tip) => Some(tip),
            None => api.branch_in_git(branch).await?,
        };
        let Some(tip) = tip.filter(|tip| has_trailers(&tip.message, api.job.key)) else {
            return Ok(None);
        };
        let committed = self.adopt_tip(api, &base, tip).await?;
        self.opened(api, &base, committed).await.map(Some)
    }
}

#[async_trait]
impl Forge for Forgejo {
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
        self.observe_pulls(job, numbers).await
    }

    async fn remove_branch(&self, job: &Job<'_>, number: u64) -> Result<(), ForgeError> {
        self.remove_merged_branch(job, number).await
    }

    async fn close(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        self.close_pull(job, closing).await
    }

    async fn amend(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        self.amend_pull(job, amending).await
    }
}
