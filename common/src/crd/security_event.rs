//! SecurityEvent: what was detected. Read only; everything of it reaches templates.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that security tooling detected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "security.ugallu.io",
    version = "v1alpha1",
    kind = "SecurityEvent",
    plural = "securityevents",
    shortname = "se",
    status = "SecurityEventStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".spec.class"}"#,
    printcolumn = r#"{"name":"Type","type":"string","jsonPath":".spec.type"}"#,
    printcolumn = r#"{"name":"Severity","type":"string","jsonPath":".spec.severity"}"#,
    printcolumn = r#"{"name":"Subject","type":"string","jsonPath":".spec.subject.name"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct SecurityEventSpec {
    /// The class, for example Detection, Anomaly or `PolicyViolation`.
    pub class: String,
    /// The type, for example `ClusterAdminGranted`.
    pub r#type: String,
    /// How bad it is.
    pub severity: Severity,
    /// The cluster that it was seen in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_identity: Option<ClusterIdentity>,
    /// What detected it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub source: Option<Map<String, Value>>,
    /// The object that it is about.
    pub subject: Subject,
    /// When it was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detected_at: Option<Time>,
    /// Facts of the detection, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signals: Option<BTreeMap<String, String>>,
    /// Where proof is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_list")]
    pub evidence: Option<Vec<Value>>,
    /// Events that led to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_list")]
    pub parents: Option<Vec<Value>>,
    /// Joins events of one incident.
    #[serde(
        default,
        rename = "correlationID",
        skip_serializing_if = "Option::is_none"
    )]
    pub correlation_id: Option<String>,
    /// W3C trace context of the detection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

/// How bad an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Act now.
    Critical,
    /// Act today.
    High,
    /// Act soon.
    Medium,
    /// Good to know.
    Low,
    /// For the record.
    Info,
}

/// The cluster that an event was seen in, as the detecting side names it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterIdentity {
    /// Its id there.
    #[serde(default, rename = "clusterID", skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Its name there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
}

/// The object that an event is about, with one object of details for its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Subject {
    /// Its kind.
    pub kind: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its UID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Details, by kind.
    #[serde(flatten)]
    #[schemars(skip)]
    pub details: BTreeMap<String, Value>,
}

/// Kept by ugallu; nothing here reads it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct SecurityEventStatus {
    /// Active, Attested or Archived.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// Without `additionalProperties`, below which the API server would prune.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

fn any_list(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "nullable": true,
        "items": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
    })
}
