//! Forges: Git hosting services behind one trait. Their types and error texts stop in this module.
//!
//! A [`Forge`] makes an [`Intent`] true and is safe to call again at any time: it looks the change up by its key
//! first, adopts whatever part of it exists, and creates only what is missing. No transport below it ever repeats a
//! write by itself. [`registry`] gives the forge of a target; [`http`] is the one way to send a request.

mod access;
mod amend;
mod doubt;
mod error_table;
pub mod forgejo;
mod git;
mod github;
pub mod gitlab;
mod group;
pub mod http;
pub mod metrics;
pub mod noop;
mod ours;
pub mod registry;
pub mod resolve;
mod rest;
mod text;
pub mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use nabu_common::ids::ResponseKey;

use crate::change::Intent;
use crate::response::{ErrorType, ResponseError};

/// Why a forge did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForgeError {
    /// A typed failure that counts as an attempt.
    #[error("{}: {}", .0.reason, .0.detail)]
    Failed(ResponseError),
    /// A limit: come back later. Does not count as an attempt.
    #[error("rate limited for {} s: {detail}", retry_after.as_secs())]
    RateLimited {
        /// How long to wait, from now.
        retry_after: Duration,
        /// A sentence for people.
        detail: String,
    },
    /// Nothing can be done with this credential or in this repository until people act (suspended, archived). Looked at
    /// again from time to time; does not count as an attempt.
    #[error("parked: {}: {}", .0.reason, .0.detail)]
    Parked(ResponseError),
    /// The forge is down for everyone (connection refused, no such host, TLS failure, 502, 503, 504). Does not count
    /// as an attempt.
    #[error("unavailable: {detail}")]
    Unavailable {
        /// A sentence for people.
        detail: String,
    },
}

impl ForgeError {
    fn parked(kind: ErrorType, reason: &str, detail: impl Into<String>) -> Self {
        Self::Parked(ResponseError::new(kind, reason, detail))
    }
}

/// Whether a pull request still waits to be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullRequestState {
    /// It waits.
    Open,
    /// It was merged.
    Merged,
    /// It was closed without a merge.
    Closed,
}

/// The pull request of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullRequest {
    /// The address for people.
    pub url: String,
    /// The commit at the head of the branch, in hex; `None` where the forge has none (`noop`).
    pub commit: Option<String>,
    /// Its state when it was looked at.
    pub state: PullRequestState,
    /// Whether it existed before this call.
    pub adopted: bool,
    /// What the route wants and could not be done, for people; the pull request stands without it.
    pub notes: Vec<String>,
}

/// What became of a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedPull {
    /// Its number in its repository.
    pub number: u64,
    /// Whether it still waits.
    pub state: PullRequestState,
    /// The commit on the base branch, in hex, if it was merged and the forge says it.
    pub merge_commit: Option<String>,
    /// When it was merged or closed, by the forge's clock.
    pub ended_at: Option<Timestamp>,
}

/// A pull request that is to be closed.
#[derive(Clone, Copy, Debug)]
pub struct Closing<'a> {
    /// Its number; without one it is looked for by the key.
    pub number: Option<u64>,
    /// The commit that was made for it, if it is known.
    pub commit: Option<&'a str>,
    /// What is said on it, in Markdown; a hidden line is added, so that it is said once.
    pub comment: &'a str,
    /// Whether an earlier try may have said it already.
    pub again: bool,
    /// Whether its branch goes as well, unless somebody has put something on it since.
    pub remove_branch: bool,
    /// If it is that of a group: who else may be in it.
    pub group: Option<GroupClosing<'a>>,
    /// It is only said on it: others of the group are in it.
    pub stays_open: bool,
}

/// What is known of the others in the pull request of a group that is to be closed.
#[derive(Clone, Copy, Debug)]
pub struct GroupClosing<'a> {
    /// The UIDs of those that are not wanted any more. Anybody else who is in it, also one whom the hub has forgotten, keeps
    /// it open.
    pub unwanted: &'a [String],
    /// What is said on it then instead.
    pub comment: &'a str,
}

impl<'a> Closing<'a> {
    /// The same, or only a comment if the body of the pull request names somebody else who is in it.
    fn seeing(&self, body: &str) -> Closing<'a> {
        let Some(group) = self.group.filter(|_| !self.stays_open) else {
            return *self;
        };
        let is_unwanted = |uid: &str| group.unwanted.iter().any(|one| one == uid);
        if ours::members_named(body).all(is_unwanted) {
            return *self;
        }
        Closing {
            stays_open: true,
            comment: group.comment,
            ..*self
        }
    }
}

/// A pull request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedPull {
    /// The address for people.
    pub url: String,
    /// How it has ended: by us, or by people before.
    pub pull: ObservedPull,
    /// What is wanted and could not be done, for people.
    pub notes: Vec<String>,
}

/// A pull request whose content is to become that of another change of the same response.
#[derive(Clone, Copy, Debug)]
pub struct Amending<'a> {
    /// Its number.
    pub number: u64,
    /// The last commit that was made for it, if it is known: nothing is put on top of another.
    pub commit: Option<&'a str>,
    /// Paths that earlier contents of it wrote. Those that the change does not name become again what they were.
    pub leftovers: &'a [String],
    /// Whether an earlier try may have made a part of it.
    pub again: bool,
}

/// What came of amending a pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amended {
    /// It shows the content.
    Updated {
        /// The address for people.
        url: String,
        /// The commit at the head of the branch, in hex; `None` where the forge has none (`noop`).
        commit: Option<String>,
        /// What is wanted and could not be done, for people.
        notes: Vec<String>,
    },
    /// It has ended before, and was left as it is.
    Ended(ClosedPull),
}

/// The number of a pull request, out of its address: forges put it last.
pub fn number_of(url: &str) -> Option<u64> {
    url.trim_end_matches('/').rsplit('/').next()?.parse().ok()
}

/// What came of making a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    /// There is a pull request of our key: new, adopted, or ended by people already.
    PullRequest(PullRequest),
    /// There is a pull request that the response shares with others of its group.
    Shared(Shared),
    /// The base branch already has every file as the change wants it; nothing was created.
    NoActionNeeded {
        /// A sentence for people.
        detail: String,
    },
}

/// A pull request of a group, as one of its members has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared {
    /// The pull request; its commit is the member's own.
    pub pull: PullRequest,
    /// Whether there was nothing left to change: another member did the same.
    pub done_before: bool,
}

/// One change to be made, and the count of what it cost.
#[derive(Debug)]
pub struct Job<'a> {
    /// Whose change it is.
    pub key: &'a ResponseKey,
    /// The change.
    pub intent: &'a Intent,
    /// Requests that were sent to the forge so far.
    pub requests: Arc<AtomicU32>,
    /// An attempt before this one may have been interrupted with the pull request open and not all on it that belongs
    /// there.
    pub again: bool,
    /// Whether a request was sent that may have changed something on the forge.
    pub wrote: Arc<AtomicBool>,
}

impl<'a> Job<'a> {
    /// A job that has cost nothing yet.
    pub fn new(key: &'a ResponseKey, intent: &'a Intent) -> Self {
        Self {
            key,
            intent,
            requests: Arc::default(),
            again: false,
            wrote: Arc::default(),
        }
    }

    /// The same job after other attempts, or not.
    pub fn after_others(self, again: bool) -> Self {
        Self { again, ..self }
    }

    /// The same job with another form of its change; what it costs counts together.
    pub(crate) fn with<'b>(&'b self, intent: &'b Intent) -> Job<'b> {
        Job {
            key: self.key,
            intent,
            requests: Arc::clone(&self.requests),
            again: self.again,
            wrote: Arc::clone(&self.wrote),
        }
    }

    /// Counts one request; called before it is sent.
    pub fn count_request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether something on the forge may be another now.
    pub fn has_written(&self) -> bool {
        self.wrote.load(Ordering::Relaxed)
    }
}

/// A Git hosting service, with the credential of one route.
#[async_trait]
pub trait Forge: Send + Sync {
    /// Finds the change by its key, adopts what exists of it, creates what is missing. Calling it again changes
    /// nothing. A pull request of the key that was merged or closed is given back as it is, never opened again; one
    /// from a fork is never adopted; a branch with somebody else's commit is a `Conflicting` error.
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError>;

    /// What became of pull requests of this repository, by number, in as few requests as the forge allows. Those that
    /// cannot be seen are left out.
    async fn observe(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError>;

    /// Removes the branch of a merged pull request, unless somebody has put something on it since. One that is gone is
    /// fine.
    async fn remove_branch(&self, job: &Job<'_>, number: u64) -> Result<(), ForgeError>;

    /// Says why on the pull request of a change, closes it, and removes its branch if that is wanted and nothing but our
    /// commit is on it. Calling it again says and changes nothing twice. One that was merged or closed is given back as it
    /// is; `None` if there is none.
    async fn close(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError>;

    /// Makes an open pull request show the job's change: puts one more commit on top of ours, if anything differs, and sets
    /// its title and body. Calling it again changes nothing. If anything but our last commit is at the tip of the branch,
    /// that is a `Conflicting` error and nothing is written; one that was merged or closed is left as it is; `None` if it
    /// is not shown.
    async fn amend(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError>;

    /// Whether making a change leaves traces outside of the hub, so that its intent must be stored before.
    fn leaves_traces(&self) -> bool {
        true
    }
}
