//! The durable memory of the hub. SQL stops here: callers see plain values.
//!
//! [`Store`] is what an engine must do; [`sqlite`] is the default engine. Everything that is promised to the outside
//! (an `Accepted`, a status, a begun attempt) is committed before the call returns. Writers are batched into one
//! transaction where they wait together, so a call may share its commit with others, never its fate: one that fails
//! leaves the rest.

pub mod administrators;
#[cfg(test)]
mod conformance;
pub mod identity;
#[cfg(test)]
mod identity_conformance;
pub mod rehearsal;
pub mod sqlite;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid, Revision};

use crate::change::{Intent, ProviderKind};
use crate::execute::gate::Gate;
use crate::execute::lanes::LaneId;
use crate::response::{ErrorType, Observation, Phase, Progress, Response, ResponseError};

/// A store that many parts share.
pub type SharedStore = Arc<dyn Store>;

/// Why the store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database failed; the call left no trace.
    #[error("the store cannot {action}")]
    Database {
        /// What was tried, as a verb phrase.
        action: &'static str,
        /// The engine's error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row holds what this version cannot read.
    #[error(
        "the store holds an unreadable {what}: {detail}; was the file written by a newer nabu-hub?"
    )]
    Corrupt {
        /// The row, by table and key.
        what: String,
        /// What is wrong with it.
        detail: String,
    },
    /// The store is closed because the hub shuts down.
    #[error("the store is closed")]
    Closed,
}

/// What an agent says of its cluster when it opens a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFacts {
    /// From the verified certificate.
    pub cluster: ClusterId,
    /// What people call the cluster.
    pub cluster_name: String,
    /// The UID of the namespace `kube-system`; empty if the agent may not read it.
    pub kube_system_uid: String,
    /// Version of the cluster's API server.
    pub kubernetes_version: String,
    /// Version of the agent.
    pub agent_version: String,
    /// The responder names that the agent serves.
    pub responder_names: Vec<String>,
}

/// The answer to an attempt to open a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registration {
    /// The session is the live one of its cluster.
    Opened {
        /// Grows with every session of the cluster.
        epoch: u64,
    },
    /// The cluster id is bound to another cluster.
    BoundElsewhere {
        /// The kube-system UID that the id is bound to.
        kube_system_uid: String,
    },
}

/// What became of one observation.
#[derive(Clone, Debug, PartialEq)]
pub enum Observed {
    /// Stored, or already known; the record as it is after the commit.
    Stored {
        /// The record.
        response: Arc<Response>,
        /// Whether anything that `plan` looks at is new.
        changed: bool,
    },
    /// The UID belongs to an EventResponse of another name; nothing was stored.
    NameMismatch {
        /// The name that the UID is known by.
        known: String,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptResult {
    /// The change is on the forge, or was not needed.
    Succeeded,
    /// An error that counts.
    Failed,
    /// The hub stopped in it; does not count.
    Interrupted,
    /// The forge asked to come back later or was down; does not count.
    Waited,
}

impl AttemptResult {
    /// The word in the store and in the admin API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Interrupted => "Interrupted",
            Self::Waited => "Waited",
        }
    }

    /// Reads [`AttemptResult::as_str`].
    pub fn parse(word: &str) -> Option<Self> {
        [
            Self::Succeeded,
            Self::Failed,
            Self::Interrupted,
            Self::Waited,
        ]
        .into_iter()
        .find(|result| result.as_str() == word)
    }
}

/// A row of the attempts table, begun or ended together with a transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttemptChange {
    /// A new row. An open row of the same response is closed as [`AttemptResult::Interrupted`].
    Begun {
        /// When.
        at: Timestamp,
    },
    /// The open row ends.
    Ended {
        /// When.
        at: Timestamp,
        /// How.
        result: AttemptResult,
        /// The error, if any.
        error: Option<ResponseError>,
        /// Requests that were sent to the forge.
        requests: u32,
    },
}

/// A line of the audit log, which is append-only but for lines that are kept long enough.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEvent {
    /// When.
    pub at: Timestamp,
    /// `agent/<cluster-id>`, `hub`, or `admin/<name>`.
    pub actor: String,
    /// A CamelCase word for programs.
    pub action: String,
    /// A sentence for people. Holds no credential.
    pub detail: String,
}

/// A call to the admin API, as the audit log keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCall {
    /// When.
    pub at: Timestamp,
    /// `admin/<name>` or `local/<uid>`.
    pub actor: String,
    /// The method, as `<package>.<service>/<method>`.
    pub method: String,
    /// What it was about, for example `<cluster-id>/<uid>`; empty if it is about nothing in particular.
    pub target: String,
    /// The gRPC code of the answer, for example `Ok` or `PermissionDenied`.
    pub outcome: String,
    /// The words of a refusal, or how often the same was asked again.
    pub detail: String,
}

/// Which lines of the audit log are looked for; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Who.
    pub actor: Option<String>,
    /// What: a CamelCase word, or the name of a method.
    pub action: Option<String>,
    /// The gRPC code of a call.
    pub outcome: Option<String>,
    /// About which cluster, or a response of it.
    pub cluster: Option<ClusterId>,
    /// Not older than this.
    pub since: Option<Timestamp>,
    /// Only calls to the admin API.
    pub admin_calls_only: bool,
}

/// A line of the audit log with what a query shows of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// Grows with every line.
    pub id: u64,
    /// When, who, what.
    pub event: AuditEvent,
    /// The method of a call to the admin API; else empty.
    pub method: String,
    /// The cluster, or `<cluster-id>/<uid>`; empty if it is about neither.
    pub target: String,
    /// The gRPC code of a call to the admin API; else empty.
    pub outcome: String,
}

/// What a transition changes besides the progress itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SideRecords {
    /// Rows of the attempts table, in order.
    pub attempts: Vec<AttemptChange>,
    /// Lines for the audit log.
    pub audit: Vec<AuditEvent>,
}

/// A pure change of a record's progress; runs inside the store's transaction on the newest record.
pub type Transition = Box<dyn FnOnce(&mut Progress) -> SideRecords + Send>;

/// One attempt as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptRecord {
    /// Counts from 1, interrupted ones included.
    pub number: u32,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended, and how.
    pub ended: Option<(Timestamp, AttemptResult)>,
    /// The error, if any.
    pub error: Option<ResponseError>,
    /// Requests that were sent to the forge.
    pub requests: u32,
}

/// A cluster as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRecord {
    /// What the last session said.
    pub facts: SessionFacts,
    /// When the first session was opened.
    pub registered_at: Timestamp,
    /// When the hub last heard from the agent.
    pub last_seen_at: Timestamp,
    /// The epoch of the last session.
    pub epoch: u64,
    /// Labels that administrators gave.
    pub labels: BTreeMap<String, String>,
    /// Responses that are not in a terminal phase.
    pub unfinished: u64,
    /// When the oldest unfinished response was first observed.
    pub oldest_unfinished_at: Option<Timestamp>,
}

/// What the agent's API server did with a status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledgement {
    /// The EventResponse.
    pub uid: ResponseUid,
    /// The revision that is stored, or refused for good.
    pub revision: Revision,
    /// Why it was refused, if it was.
    pub refusal: Option<String>,
}

/// A record without its objects: what lists and statuses need.
#[derive(Clone, Debug, PartialEq)]
pub struct ResponseSummary {
    /// Cluster and UID.
    pub key: ResponseKey,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// SHA-256 of the canonical JSON of `spec`, as it was kept.
    pub spec_hash: [u8; 32],
    /// When it was first stored.
    pub observed_at: Timestamp,
    /// How far the hub has come; without the intent, but for [`Store::followed`].
    pub progress: Progress,
    /// Where the change goes, once a route has matched.
    pub routed: Option<RoutedTo>,
}

/// A finished response whose EventResponse matters all the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watched {
    /// `metadata.uid`.
    pub uid: ResponseUid,
    /// `metadata.name`.
    pub name: String,
    /// The spec that is known, if another one matters.
    pub spec_hash: Option<[u8; 32]>,
}

/// Where the change of a response goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoutedTo {
    /// The route, as `<namespace>/<config>/<route>`.
    pub route: String,
    /// The forge software and the way to authenticate.
    pub provider: ProviderKind,
    /// `owner/name`.
    pub repository: String,
}

impl RoutedTo {
    /// What an intent says of it.
    pub fn of(intent: &Intent) -> Self {
        Self {
            route: intent.route.clone(),
            provider: intent.target.kind,
            repository: intent.target.repository.clone(),
        }
    }
}

/// Which responses a list is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseFilter {
    /// Only of this cluster.
    pub cluster: Option<ClusterId>,
    /// Only in these phases; empty means all.
    pub phases: Vec<Phase>,
    /// Only of these clusters; `None` means all.
    pub clusters: Option<Vec<ClusterId>>,
    /// First observed at this time or later.
    pub since: Option<Timestamp>,
    /// Only with one of these routes, with `*` for any characters; empty means all.
    pub routes: Vec<String>,
    /// Only on these forges; empty means all.
    pub providers: Vec<ProviderKind>,
    /// Only for one of these repositories, with `*` for any characters; empty means all.
    pub repositories: Vec<String>,
    /// Only with an error of these types; empty means all.
    pub error_types: Vec<ErrorType>,
    /// Only with an error of these reasons; empty means all.
    pub error_reasons: Vec<String>,
}

/// What an engine must do. Every write is durable when its call returns.
#[async_trait]
pub trait Store: Send + Sync {
    /// Registers the cluster at its first session, checks its binding, and opens a session with the next epoch. The
    /// first kube-system UID that is not empty binds the cluster id.
    async fn open_session(
        &self,
        facts: SessionFacts,
        now: Timestamp,
    ) -> Result<Registration, StoreError>;

    /// Notes that the agent was heard from.
    async fn touch_cluster(&self, cluster: &ClusterId, now: Timestamp) -> Result<(), StoreError>;

    /// Stores observations of one cluster; one answer each, in order. A new record starts `Pending` at revision 1.
    /// A record with an intent or in a terminal phase keeps the observation that it was decided on, unless the change is
    /// to follow ([`crate::plan::update::observe`]).
    async fn observe(
        &self,
        observations: Vec<Observation>,
        now: Timestamp,
    ) -> Result<Vec<Observed>, StoreError>;

    /// Runs a transition on the newest progress of a response; gives the progress after it, `None` if there is no
    /// such response.
    async fn transition(
        &self,
        key: &ResponseKey,
        transition: Transition,
    ) -> Result<Option<Progress>, StoreError>;

    /// Notes what a cluster's API server did with statuses. Revisions older than the noted one change nothing.
    async fn acknowledge(
        &self,
        cluster: &ClusterId,
        acks: Vec<Acknowledgement>,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// How many responses of a cluster are not in a terminal phase.
    async fn count_unfinished(&self, cluster: &ClusterId) -> Result<u64, StoreError>;

    /// The unfinished responses of a cluster (not terminal and not yet marked deleted), with the time when each was first stored.
    async fn unfinished_of(
        &self,
        cluster: &ClusterId,
    ) -> Result<Vec<(ResponseUid, Timestamp)>, StoreError>;

    /// One response with its objects.
    async fn response(&self, key: &ResponseKey) -> Result<Option<Response>, StoreError>;

    /// Keys of all unfinished responses, and of those that have ended with something left to be done about their pull
    /// request, a page after `after` in key order: where work goes on after a restart.
    async fn unfinished(
        &self,
        after: Option<&ResponseKey>,
        limit: u32,
    ) -> Result<Vec<ResponseKey>, StoreError>;

    /// Responses of a cluster whose revision is ahead of the acknowledged one and that are not deleted, a page after
    /// `after` in UID order.
    async fn unacknowledged(
        &self,
        cluster: &ClusterId,
        after: Option<&ResponseUid>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError>;

    /// Responses whose pull request waits for people, with their intents, a page after `after` in key order.
    async fn followed(
        &self,
        after: Option<&ResponseKey>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError>;

    /// Responses whose pull request of this branch, on whatever forge, waits for people, with their intents.
    async fn followed_on(&self, branch: &str) -> Result<Vec<ResponseSummary>, StoreError>;

    /// Responses whose change was decided for the group with this branch, on whatever forge, with their intents but for the
    /// files and the body.
    async fn of_group(&self, branch: &str) -> Result<Vec<ResponseSummary>, StoreError>;

    /// Finished responses of a cluster whose EventResponse is watched all the same, a page after `after` in UID order.
    async fn watched(
        &self,
        cluster: &ClusterId,
        after: Option<&ResponseUid>,
        limit: u32,
    ) -> Result<Vec<Watched>, StoreError>;

    /// All clusters, by id.
    async fn clusters(&self) -> Result<Vec<ClusterRecord>, StoreError>;

    /// Responses, newest first; a page after the one that `before` (its observation time and key) names.
    async fn responses(
        &self,
        filter: &ResponseFilter,
        before: Option<(Timestamp, ResponseKey)>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError>;

    /// The number of the newest change of any response; 0 if there is none.
    async fn latest_change(&self) -> Result<u64, StoreError>;

    /// Responses whose newest change has a number after `after` and up to `upto`, oldest change first, with that number.
    async fn responses_changed(
        &self,
        filter: &ResponseFilter,
        after: u64,
        upto: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ResponseSummary)>, StoreError>;

    /// Changes whenever something was committed.
    fn commits(&self) -> tokio::sync::watch::Receiver<u64>;

    /// The newest response of a cluster with this `metadata.name`.
    async fn response_by_name(
        &self,
        cluster: &ClusterId,
        name: &str,
    ) -> Result<Option<ResponseKey>, StoreError>;

    /// The attempts of a response, oldest first.
    async fn attempts(&self, key: &ResponseKey) -> Result<Vec<AttemptRecord>, StoreError>;

    /// The audit lines about a response, oldest first, at most `limit`.
    async fn history(&self, key: &ResponseKey, limit: u32) -> Result<Vec<AuditEvent>, StoreError>;

    /// Appends a line to the audit log that is about no single response, or about one that is refused.
    async fn audit(&self, cluster: Option<&ClusterId>, event: AuditEvent)
    -> Result<(), StoreError>;

    /// Appends calls to the admin API to the audit log.
    async fn audit_calls(&self, calls: Vec<AdminCall>) -> Result<(), StoreError>;

    /// Lines of the audit log, newest first; a page before the line of this id.
    async fn audit_log(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError>;

    /// When the cluster's API server last said which revision of a response it has stored; `None` if it never has.
    async fn acknowledged_at(&self, key: &ResponseKey) -> Result<Option<Timestamp>, StoreError>;

    /// Stores gates as they are now; a newer state replaces an older one.
    async fn put_gates(&self, gates: Vec<(LaneId, Gate)>) -> Result<(), StoreError>;

    /// All gates that are stored.
    async fn gates(&self) -> Result<Vec<(LaneId, Gate)>, StoreError>;

    /// Removes at most `limit` responses that ended before a time, and of which nothing more is to come: their pull request is
    /// not followed or watched, nothing is left to do about it, and their status is acknowledged as they are (before that
    /// time as well), or nobody is left to acknowledge it. Gives how many.
    async fn prune_responses(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Removes lines of the audit log from before a time, among the oldest `limit`. Gives how many.
    async fn prune_audit(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError>;

    /// Ends the writer after everything that was asked before is committed.
    async fn close(&self);
}

/// The UIDs among `unfinished` that an inventory begun at `begun_at` should have named and did not: their
/// EventResponses are gone. What was first stored after the inventory began is not judged by it.
pub fn missing_from_inventory(
    unfinished: Vec<(ResponseUid, Timestamp)>,
    named: &HashSet<ResponseUid>,
    begun_at: Timestamp,
) -> Vec<ResponseUid> {
    unfinished
        .into_iter()
        .filter(|(uid, stored_at)| *stored_at < begun_at && !named.contains(uid))
        .map(|(uid, _)| uid)
        .collect()
}
