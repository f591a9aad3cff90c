//! EventResponse: a request for one action, with its status.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// One action that answers a SecurityEvent. `spec` does not change after creation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "security.ugallu.io",
    version = "v1alpha1",
    kind = "EventResponse",
    plural = "eventresponses",
    shortname = "er",
    status = "EventResponseStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Action","type":"string","jsonPath":".spec.action.type"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Outcome","type":"string","jsonPath":".status.outcome.type"}"#,
    printcolumn = r#"{"name":"Attempts","type":"integer","jsonPath":".status.attempts"}"#,
    printcolumn = r#"{"name":"Pull-Request","type":"string","jsonPath":".status.providerRef"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","priority":1,"jsonPath":".status.error.reason"}"#,
    printcolumn = r#"{"name":"Responder","type":"string","priority":1,"jsonPath":".spec.responder.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "spec does not change after creation; create another EventResponse"
}]))]
pub struct EventResponseSpec {
    /// The SecurityEvent that this response answers.
    pub security_event_ref: SecurityEventRef,
    /// Who is to act.
    pub responder: ResponderRef,
    /// What is to be done.
    pub action: Action,
    /// How transient errors are retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_policy: Option<RetryPolicySpec>,
    /// The response that this one is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_response_ref: Option<ObjectReference>,
}

/// Names a SecurityEvent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SecurityEventRef {
    /// `metadata.name`.
    pub name: String,
    /// `metadata.uid`; an object of the same name with another UID is another event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
}

/// Names the controller that is to act.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponderRef {
    /// The kind of controller.
    #[serde(default)]
    pub kind: String,
    /// The name that agents are started with (`--responder`).
    pub name: String,
    /// The version of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The instance of the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// A typed action.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Action {
    /// The type; `GitOpsChange` is served here.
    pub r#type: String,
    /// The object that the action is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<ObjectReference>,
    /// What the change is: path, contents, delete, path1, …, branch, commitTitle, commitBody, prTitle, prBody,
    /// actionRef.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<BTreeMap<String, String>>,
}

/// How transient errors are retried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RetryPolicySpec {
    /// Attempts in all; 3 if not given. The hub may lay down another number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<i64>,
    /// How the delay grows; Exponential if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_strategy: Option<BackoffStrategy>,
    /// The delay after the first failure; 10s if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_delay: Option<GoDuration>,
    /// No delay is longer; 5m if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_delay: Option<GoDuration>,
}

/// How the delay between attempts grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BackoffStrategy {
    /// It doubles each time.
    #[default]
    Exponential,
    /// It stays the same.
    Fixed,
    /// There is none.
    None,
}

/// Where the response stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventResponseStatus {
    /// The phase; Succeeded, Failed and Cancelled are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<PhaseName>,
    /// Attempts that were made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts: Option<i64>,
    /// When the first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the last attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt_at: Option<Time>,
    /// When the next attempt is due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<Time>,
    /// When the final phase was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// The result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<OutcomeStatus>,
    /// The last error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorStatus>,
    /// What was done, where to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence: Option<Vec<EvidenceRef>>,
    /// The URL of the pull request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_ref: Option<String>,
    /// Why the response was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// Accepted, Routed, `PullRequest`, SecurityEvent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}

/// The phase of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PhaseName {
    /// Accepted; no attempt runs.
    Pending,
    /// An attempt runs.
    Running,
    /// The pull request is open, or the change is already on the base branch.
    Succeeded,
    /// Given up.
    Failed,
    /// Not wanted any more.
    Cancelled,
}

/// The typed result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeStatus {
    /// The kind of result.
    pub r#type: OutcomeTypeName,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The kind of result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OutcomeTypeName {
    /// A pull request exists.
    ActionTaken,
    /// The base branch already has the change.
    NoActionNeeded,
    /// Nothing was done, on purpose.
    Skipped,
    /// It failed.
    Errored,
}

/// A typed failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorStatus {
    /// How it is to be taken.
    pub r#type: ErrorTypeName,
    /// A CamelCase word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// How an error is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ErrorTypeName {
    /// May pass; retried.
    Transient,
    /// Would fail again.
    Permanent,
    /// Somebody else's work is in the way.
    Conflicting,
    /// A credential is missing, wrong, or lacks a right.
    Unauthorized,
}

/// Points at what was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EvidenceRef {
    /// What the URL gives.
    pub media_type: String,
    /// Where to look.
    pub url: String,
    /// The commit of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}
