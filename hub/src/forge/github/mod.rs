//! GitHub: a change in two requests, a lookup and a document that writes, and the way back into one that was interrupted.
//!
//! A round looks ([`lookup`]), decides ([`decide`], pure) and writes ([`write`]). Mutations of one document run in order
//! and not atomically, so whatever a failed one left is found by the next round. The branch is the claim: its name is
//! made of the key, and GitHub makes a branch, and an open pull request of it, only once.

pub(super) mod account;
mod amend;
mod auth;
mod close;
mod decide;
mod errors;
mod follow;
mod git_data;
mod graphql;
mod group;
mod lookup;
mod patch;
mod people;
mod queue;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tracing::warn;

use self::account::{Account, Addresses};
use self::auth::Authority;
use self::decide::Next;
use self::lookup::{Found, Pull, Question, Repository};
use self::write::{CommitPlan, Opened, Plan, Written};
use super::access::web_address;
use super::http::{Http, failed};
use super::ours::has_trailers;
use super::{
    Amended, Amending, ClosedPull, Closing, Forge, ForgeError, Job, Made, ObservedPull,
    PullRequest, PullRequestState,
};
use crate::change::{CredentialRef, ForgeTarget, ProviderKind};
use crate::credentials::Credentials;
use crate::response::ErrorType;

/// Looks that one attempt takes, if others are at work on the same branch or reads lag behind writes.
const MOST_ROUNDS: u32 = 4;

/// The pause before the second look; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// One repository on a GitHub.
#[derive(Debug)]
pub(super) struct Github {
    account: Arc<Account>,
    owner: String,
    name: String,
    place: String,
}

/// The account of a target's credential, without regard to its repository.
pub(super) fn account(
    target: &ForgeTarget,
    http: Http,
    credential: CredentialRef,
    credentials: Credentials,
) -> Result<Account, ForgeError> {
    let authority = match target.kind {
        ProviderKind::GithubApp => Authority::app(credential, credentials, target.installation_id),
        _ => Authority::token(credential, credentials),
    };
    let addresses = Addresses::new(target.base_url.as_deref())?;
    Ok(Account::new(addresses, http, authority))
}

impl Github {
    pub(super) fn new(account: Arc<Account>, repository: &str) -> Result<Self, ForgeError> {
        let part = |part: &str| !part.is_empty() && part != "." && part != "..";
        let (owner, name) = repository
            .split_once('/')
            .filter(|(owner, name)| part(owner) && part(name) && !name.contains('/'))
            .ok_or_else(|| {
                let detail =
                    format!("provider.repository {repository:?} is not of the form owner/name");
                failed(ErrorType::Permanent, "InvalidRoute", detail)
            })?;
        Ok(Self {
            place: format!("{repository} at {}", account.web()),
            account,
            owner: owner.to_owned(),
            name: name.to_owned(),
        })
    }

    async fn look(&self, job: &Job<'_>) -> Result<Found, ForgeError> {
        let question = Question::new(&self.owner, &self.name, job.intent);
        self.account.ask(job, &question).await
    }

    fn repository_not_found(&self) -> ForgeError {
        let detail = format!(
            "there is no repository {}, or the credential of the Secret {} has no access to it (GitHub says the same of both)",
            self.place,
            self.account.secret_name()
        );
        failed(ErrorType::Permanent, "RepositoryNotFound", detail)
    }

    /// `ours`: an attempt of this record may have opened it a moment ago, and got no further.
    async fn adopt(
        &self,
        job: &Job<'_>,
        found: &Found,
        pull: &Pull,
        ours: bool,
    ) -> Result<Made, ForgeError> {
        let lacks_something =
            people::lacks_labels(job, pull) || ours && people::wants_people(job, pull);
        let notes = if lacks_something {
            let adorned = self.account.adorn(job, found, &pull.id, &[]).await;
            adorned.unwrap_or_else(|error| vec![format!("labels and people: {error}")])
        } else {
            Vec::new()
        };
        let state = match pull.state.as_str() {
            "MERGED" => PullRequestState::Merged,
            "CLOSED" => PullRequestState::Closed,
            _ => PullRequestState::Open,
        };
        Ok(Made::PullRequest(PullRequest {
            url: self.address(&pull.url, pull.number),
            commit: Some(pull.head_ref_oid.clone()).filter(|oid| !oid.is_empty()),
            state,
            adopted: true,
            notes,
        }))
    }

    async fn opened(
        &self,
        job: &Job<'_>,
        found: &Found,
        opened: Opened,
        mut notes: Vec<String>,
    ) -> Result<Made, ForgeError> {
        let adorned = self.account.adorn(job, found, &opened.id, &opened.labels);
        match adorned.await {
            Ok(more) => notes.extend(more),
            // The pull request is open: that counts. What is missing on it is said.
            Err(error) => notes.push(format!("labels and people: {error}")),
        }
        if !notes.is_empty() {
            warn!(key = %job.key, place = self.place, ?notes, "not everything that the route wants could be done");
        }
        Ok(Made::PullRequest(PullRequest {
            url: self.address(&opened.url, opened.number),
            commit: opened.commit,
            state: PullRequestState::Open,
            adopted: false,
            notes,
        }))
    }

    /// The address for people. What a forge says is believed only as far as it is a web address.
    fn address(&self, url: &str, number: u64) -> String {
        web_address(url).unwrap_or_else(|| {
            let web = self.account.web();
            format!("{web}/{}/{}/pull/{number}", self.owner, self.name)
        })
    }

    /// Writes what is missing.
    async fn write(
        &self,
        job: &Job<'_>,
        repository: &Repository,
        next: &Next<'_>,
        draft: bool,
    ) -> Result<Written, ForgeError> {
        let base = repository.base.as_ref().map_or("", |base| &base.name);
        let plan = |commit| Plan {
            repository,
            base,
            draft,
            commit,
        };
        match next {
            Next::Open { commit } => {
                let plan = plan(CommitPlan::There(commit));
                self.account.write(job, &plan).await
            }
            Next::Commit {
                base,
                branch,
                changes,
            } if changes.fit_one_mutation() => {
                let plan = plan(CommitPlan::Mutation {
                    on: &base.target.oid,
                    branch: *branch,
                    changes,
                });
                self.account.write(job, &plan).await
            }
            Next::Commit {
                base,
                branch,
                changes,
            } => {
                let commit = self.account.make_commit(
                    job,
                    &repository.name_with_owner,
                    &base.target,
                    changes,
                );
                let oid = commit.await?;
                let plan = plan(CommitPlan::Made {
                    oid: &oid,
                    branch: *branch,
                });
                self.account.write(job, &plan).await
            }
            Next::Unchanged { .. } | Next::Follow { .. } => Ok(Written::LookAgain(self.behind())),
        }
    }
}

/// What one round came to.
enum Round {
    Done(Made),
    /// Look again; the error is given back if the rounds are over.
    Again(ForgeError),
}

/// What an attempt has found out about what the repository cannot do.
struct Wishes {
    draft: bool,
    notes: Vec<String>,
    /// Something was written before, by this attempt or another.
    wrote: bool,
}

impl Github {
    async fn round(&self, job: &Job<'_>, wishes: &mut Wishes) -> Result<Round, ForgeError> {
        let found = self.look(job).await?;
        self.round_on(job, &found, wishes).await
    }

    /// A round that has looked already.
    async fn round_on(
        &self,
        job: &Job<'_>,
        found: &Found,
        wishes: &mut Wishes,
    ) -> Result<Round, ForgeError> {
        let repository = found
            .repository
            .as_ref()
            .ok_or_else(|| self.repository_not_found())?;
        if let Some(pull) = decide::our_pull(job, repository, &self.place)? {
            let adopted = self.adopt(job, found, pull, wishes.wrote).await;
            return adopted.map(Round::Done);
        }
        let whole = self.whole(job, repository).await?;
        let job = &job.with(&whole);
        let next = decide::next(job, repository, &self.place)?;
        match &next {
            Next::Unchanged { litter } => {
                if let Some(id) = litter {
                    self.account.delete_branch(job, id).await;
                }
                return Ok(Round::Done(unchanged(repository)));
            }
            Next::Follow { branch, to } => {
                if self.account.move_branch(job, &branch.id, to).await? {
                    return Ok(Round::Again(self.behind()));
                }
                let why = format!(
                    "its tip {} is no commit of this response",
                    branch.target.oid
                );
                return Err(decide::branch_taken(job, repository, &why));
            }
            Next::Open { .. } | Next::Commit { .. } => {}
        }
        wishes.wrote = true;
        let written = match self.write(job, repository, &next, wishes.draft).await {
            // Nobody knows what it did: look before anything else.
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Transient => {
                return Ok(Round::Again(ForgeError::Failed(error)));
            }
            other => other?,
        };
        match written {
            Written::Opened(opened) => {
                let notes = std::mem::take(&mut wishes.notes);
                let made = self.opened(job, found, *opened, notes).await?;
                Ok(Round::Done(made))
            }
            Written::Doubtful { pull } => self.doubt(job, &pull).await,
            Written::Refused { error, made_branch } => {
                if let Some(id) = made_branch {
                    self.account.delete_branch(job, &id).await;
                }
                Err(error)
            }
            Written::NoDifference => Ok(Round::Done(unchanged(repository))),
            Written::NoDrafts => {
                wishes.draft = false;
                let note = "draft: the repository does not support drafts";
                wishes.notes.push(note.to_owned());
                Ok(Round::Again(self.behind()))
            }
            Written::LookAgain(error) => Ok(Round::Again(error)),
        }
    }

    /// A pull request was opened on a branch that we did not make: it stays if the commit at its head is ours.
    async fn doubt(&self, job: &Job<'_>, opened: &str) -> Result<Round, ForgeError> {
        let found = self.look(job).await?;
        let repository = found
            .repository
            .as_ref()
            .ok_or_else(|| self.repository_not_found())?;
        let pull = repository.pulls().iter().find(|pull| pull.id == opened);
        match pull {
            Some(pull) if has_trailers(pull.head_message(), job.key) => {
                let adopted = self.adopt(job, &found, pull, true).await;
                adopted.map(Round::Done)
            }
            // Its commits may not be seen yet.
            Some(pull) if pull.head_message().is_empty() => Ok(Round::Again(self.behind())),
            Some(_) => {
                self.account.close(job, opened).await?;
                let why = "it appeared while the pull request was being opened";
                Err(decide::branch_taken(job, repository, why))
            }
            None => Ok(Round::Again(self.behind())),
        }
    }

    fn behind(&self) -> ForgeError {
        let detail = format!(
            "{} does not show yet what was written a moment ago",
            self.place
        );
        failed(ErrorType::Transient, "Behind", detail)
    }
}

fn unchanged(repository: &Repository) -> Made {
    let base = repository.base.as_ref().map_or("", |base| &base.name);
    let name = &repository.name_with_owner;
    Made::NoActionNeeded {
        detail: format!("{base} of {name} already has every file as wanted"),
    }
}

#[async_trait]
impl Forge for Github {
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError> {
        if let Some(made) = self.make_in_group(job).await? {
            return Ok(made);
        }
        let mut wishes = Wishes {
            draft: job.intent.draft,
            notes: Vec::new(),
            wrote: job.again,
        };
        let mut pause = FIRST_PAUSE;
        for _ in 1..MOST_ROUNDS {
            match self.round(job, &mut wishes).await? {
                Round::Done(made) => return Ok(made),
                Round::Again(_) => {}
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        match self.round(job, &mut wishes).await? {
            Round::Done(made) => Ok(made),
            Round::Again(error) => Err(error),
        }
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
