//! Owns what the agent reads of an EventResponse: a lenient view of its JSON, never the full type.
//!
//! A cluster's CRD may differ from ours, and one odd object must neither break the watch nor hide the others. So
//! nothing here fails on a field's shape: what cannot be read counts as absent. What an EventResponse *means* is the
//! hub's business; here it is only told whether it is ours, whether it is finished, and what identifies its state.

use std::borrow::Cow;

use bytes::Bytes;
use k8s_openapi::ClusterResourceScope;
use kube::Resource;
use kube::core::ObjectMeta;
use nabu_common::ids::ResponseUid;
use serde::de::{Deserialize, Deserializer};
use serde_json::Value;

/// The API group of the objects that Nabu serves.
pub const GROUP: &str = "security.ugallu.io";
/// The version of [`GROUP`].
pub const VERSION: &str = "v1alpha1";
/// The kind that the agent watches.
pub const KIND: &str = "EventResponse";
/// Who writes the status, to the API server.
pub const FIELD_MANAGER: &str = "nabu-agent";
/// `spec.action.type` of what we serve.
const ACTION: &str = "GitOpsChange";

/// One EventResponse as the watch gives it.
///
/// `metadata` holds name, UID and resource version only: managed fields are often larger than the rest.
#[derive(Clone, Debug)]
pub struct Watched {
    metadata: ObjectMeta,
    /// Nothing more is expected of anybody.
    pub finished: bool,
    /// The object without managed fields; `None` for what is finished or asks for another kind of action.
    pub json: Option<Box<Value>>,
    /// Of what is finished and asks for our kind of action.
    pub end: Option<End>,
}

/// What is remembered of an EventResponse that is finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// One of our agents has written that it has succeeded with a pull request. Its spec is told from others by this.
    OwnSuccess(SpecPrint),
    /// It has ended in another way, or by another hand.
    Other(SpecPrint),
}

impl End {
    /// What tells its spec from another.
    pub fn spec(self) -> SpecPrint {
        match self {
            Self::OwnSuccess(spec) | Self::Other(spec) => spec,
        }
    }
}

/// The beginning of the SHA-256 of a spec: enough to tell two specs of one object apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpecPrint(u64);

impl SpecPrint {
    /// That of a whole hash.
    pub fn of(hash: &[u8; 32]) -> Self {
        let mut first = [0; 8];
        first.copy_from_slice(&hash[..8]);
        Self(u64::from_le_bytes(first))
    }
}

impl Watched {
    /// Takes what we need out of an object's JSON.
    pub fn from_json(mut json: Value) -> Self {
        let text = |path: &str| {
            json.pointer(path)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let metadata = ObjectMeta {
            name: text("/metadata/name"),
            uid: text("/metadata/uid"),
            resource_version: text("/metadata/resourceVersion"),
            ..ObjectMeta::default()
        };
        let finished = is_finished(&json);
        let ours = json.pointer("/spec/action/type").and_then(Value::as_str) == Some(ACTION);
        let end = (finished && ours).then(|| {
            let spec = SpecPrint::of(&spec_hash(&json));
            if is_own_success(&json) {
                End::OwnSuccess(spec)
            } else {
                End::Other(spec)
            }
        });
        let json = (ours && !finished).then(|| {
            strip_managed_fields(&mut json);
            Box::new(json)
        });
        Self {
            metadata,
            finished,
            json,
            end,
        }
    }

    /// A finished object as it is, with its JSON, as if it were unfinished; for one whose spec matters all the same.
    pub fn whole(mut json: Value) -> Self {
        if let Some(object) = json.as_object_mut() {
            object.remove("status");
        }
        Self::from_json(json)
    }

    /// `metadata.uid`, if it is one that we can carry.
    pub fn uid(&self) -> Option<ResponseUid> {
        self.metadata.uid.as_deref()?.parse().ok()
    }

    /// `metadata.name`.
    pub fn name(&self) -> Option<&str> {
        self.metadata.name.as_deref()
    }

    /// `metadata.generation` of what kept its JSON; 0 if unknown.
    pub fn generation(&self) -> i64 {
        self.json.as_deref().map(generation).unwrap_or_default()
    }

    /// Whether it is unfinished and meant for one of these responders.
    pub fn is_for(&self, responders: &[String]) -> bool {
        self.json.as_deref().is_some_and(|json| {
            let name = responder_name(json);
            responders.iter().any(|ours| ours == name)
        })
    }
}

impl<'de> Deserialize<'de> for Watched {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(Self::from_json)
    }
}

impl Resource for Watched {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        KIND.into()
    }
    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }
    fn version((): &()) -> Cow<'_, str> {
        VERSION.into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "eventresponses".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// `spec.securityEventRef`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecurityEventRef {
    /// The name of the SecurityEvent.
    pub name: String,
    /// Its UID; empty means any.
    pub uid: String,
}

/// An unfinished EventResponse of ours, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// `metadata.uid`.
    pub uid: ResponseUid,
    /// `metadata.name`.
    pub name: String,
    /// `metadata.generation`; 0 if the API server keeps none.
    pub generation: i64,
    /// `spec.responder.name`.
    pub responder: String,
    /// SHA-256 of the canonical JSON of `spec`.
    pub spec_hash: [u8; 32],
    /// What it answers; `None` if it names nothing.
    pub security_event: Option<SecurityEventRef>,
    /// The whole object as JSON, without managed fields.
    pub json: Bytes,
}

impl Object {
    /// Reads an object that [`Watched`] let through; `None` if it has no name or no UID.
    pub fn read(json: &Value) -> Option<Self> {
        let text = |path: &str| {
            json.pointer(path)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let uid = text("/metadata/uid").parse().ok()?;
        let name = text("/metadata/name").to_owned();
        let referred = SecurityEventRef {
            name: text("/spec/securityEventRef/name").to_owned(),
            uid: text("/spec/securityEventRef/uid").to_owned(),
        };
        Some(Self {
            uid,
            generation: generation(json),
            responder: responder_name(json).to_owned(),
            spec_hash: spec_hash(json),
            security_event: (!referred.name.is_empty()).then_some(referred),
            json: serde_json::to_vec(json).ok()?.into(),
            name: (!name.is_empty()).then_some(name)?,
        })
    }
}

/// Takes `metadata.managedFields` out of an object.
pub fn strip_managed_fields(json: &mut Value) {
    if let Some(metadata) = json.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

fn spec_hash(object: &Value) -> [u8; 32] {
    nabu_common::canonical::spec_hash(object.get("spec").unwrap_or(&Value::Null))
}

fn generation(json: &Value) -> i64 {
    json.pointer("/metadata/generation")
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

fn responder_name(json: &Value) -> &str {
    json.pointer("/spec/responder/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// A terminal phase, a pull request or evidence: whoever wrote it, the work is done.
fn is_finished(json: &Value) -> bool {
    let Some(status) = json.get("status") else {
        return false;
    };
    let text = |field: &str| {
        status
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    matches!(text("phase"), "Succeeded" | "Failed" | "Cancelled")
        || !text("providerRef").is_empty()
        || status
            .get("evidence")
            .and_then(Value::as_array)
            .is_some_and(|evidence| !evidence.is_empty())
}

/// It has succeeded with a pull request, and the phase is that of one of our agents.
fn is_own_success(json: &Value) -> bool {
    let status = |field: &str| json.pointer("/status").and_then(|status| status.get(field));
    let names_pull = status("providerRef").is_some_and(|url| url != "")
        || status("evidence").is_some_and(|evidence| evidence.get(0).is_some());
    let wrote_phase = |entry: &Value| {
        entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER)
            && entry.pointer("/fieldsV1/f:status/f:phase").is_some()
    };
    status("phase").and_then(Value::as_str) == Some("Succeeded")
        && names_pull
        && json
            .pointer("/metadata/managedFields")
            .and_then(Value::as_array)
            .is_some_and(|entries| entries.iter().any(wrote_phase))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Value {
        json!({
            "apiVersion": "security.ugallu.io/v1alpha1", "kind": "EventResponse",
            "metadata": {
                "name": "revoke-1", "uid": "7b1c1c1e-9a55-4c5f-8d6b-0d8c3c1f2a11", "generation": 1,
                "resourceVersion": "12", "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "action": {"type": "GitOpsChange"},
                "responder": {"name": "ugallu-gitops-responder"},
                "securityEventRef": {"name": "se-1", "uid": "u"},
            },
        })
    }

    #[test]
    fn what_is_unfinished_keeps_its_json_without_managed_fields() {
        let watched = Watched::from_json(example());
        assert!(watched.is_for(&["ugallu-gitops-responder".to_owned()]));
        assert!(!watched.is_for(&["another".to_owned()]));
        let object = Object::read(watched.json.as_deref().unwrap()).unwrap();
        assert_eq!(object.name, "revoke-1");
        assert_eq!(object.security_event.unwrap().name, "se-1");
        assert!(!String::from_utf8_lossy(&object.json).contains("managedFields"));
    }

    #[test]
    fn finished_is_a_terminal_phase_a_provider_ref_or_evidence() {
        for status in [
            json!({"phase": "Succeeded"}),
            json!({"phase": "Failed"}),
            json!({"phase": "Cancelled"}),
            json!({"phase": "Running", "providerRef": "https://forge.example/pull/1"}),
            json!({"evidence": [{"mediaType": "x"}]}),
        ] {
            let mut object = example();
            object["status"] = status.clone();
            let watched = Watched::from_json(object);
            assert!(watched.finished && watched.json.is_none(), "{status}");
        }
        for status in [
            json!({}),
            json!({"phase": "Running", "evidence": []}),
            json!({"providerRef": ""}),
            json!(7),
        ] {
            let mut object = example();
            object["status"] = status.clone();
            assert!(!Watched::from_json(object).finished, "{status}");
        }
    }

    #[test]
    fn an_object_of_any_shape_is_read_without_an_error() {
        for odd in [
            json!({}),
            json!({"metadata": 3, "spec": []}),
            json!({"spec": {"action": {"type": 4}}}),
            json!(null),
        ] {
            let watched: Watched = serde_json::from_value(odd).unwrap();
            assert!(watched.uid().is_none() && watched.json.is_none());
        }
    }

    #[test]
    fn a_success_is_our_own_only_if_our_agent_wrote_the_phase() {
        let done = |manager: &str, phase: &str, url: &str| {
            let mut object = example();
            object["status"] = json!({"phase": phase, "providerRef": url});
            object["metadata"]["managedFields"] = json!([
                {"manager": "kubectl", "fieldsV1": {"f:spec": {}}},
                {"manager": manager, "subresource": "status",
                 "fieldsV1": {"f:status": {"f:phase": {}, "f:providerRef": {}}}},
            ]);
            Watched::from_json(object).end.unwrap()
        };
        let url = "https://git.example.org/pulls/1";
        assert!(matches!(
            done("nabu-agent", "Succeeded", url),
            End::OwnSuccess(_)
        ));
        for other in [
            done("kubectl", "Succeeded", url),
            done("nabu-agent", "Failed", url),
            done("nabu-agent", "Succeeded", ""),
        ] {
            assert!(matches!(other, End::Other(_)), "{other:?}");
        }
    }
}
