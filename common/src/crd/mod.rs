//! The objects of `security.ugallu.io/v1alpha1`: Rust types, the CRDs made of them, and parsing that names the field.
//!
//! The field names are those of ugallu (github.com/ninsun-labs/ugallu, `sdk/pkg/api/v1alpha1`), so that its objects
//! and ours are the same. What a cluster holds is never trusted to fit: [`parse_event_response`] and its siblings say
//! which field does not.

mod duration;
mod event_response;
mod gitops_responder_config;
mod parse;
mod security_event;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

pub use duration::{GoDuration, InvalidDuration};
pub use event_response::*;
pub use gitops_responder_config::*;
pub use parse::{FieldError, parse_config, parse_event_response};
pub use security_event::*;

/// The API group of all kinds.
pub const GROUP: &str = "security.ugallu.io";
/// The version of all kinds.
pub const VERSION: &str = "v1alpha1";

/// `spec.action.type` of the `EventResponses` that are served.
pub const GITOPS_CHANGE: &str = "GitOpsChange";

/// The media type of evidence that points at a pull request.
pub const CHANGE_MEDIA_TYPE: &str = "application/vnd.ugallu.gitops-change+json";

/// All CRDs, as `make crds` writes them.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        EventResponse::crd(),
        SecurityEvent::crd(),
        GitOpsResponderConfig::crd(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crds_have_the_names_and_scopes_of_ugallu() {
        let facts: Vec<_> = all()
            .into_iter()
            .map(|crd| {
                (
                    crd.metadata.name.unwrap(),
                    crd.spec.scope,
                    crd.spec.names.short_names.unwrap_or_default(),
                )
            })
            .collect();
        let name = |plural: &str| format!("{plural}.security.ugallu.io");
        assert_eq!(
            facts,
            [
                (
                    name("eventresponses"),
                    "Cluster".to_owned(),
                    vec!["er".to_owned()]
                ),
                (
                    name("securityevents"),
                    "Cluster".to_owned(),
                    vec!["se".to_owned()]
                ),
                (
                    name("gitopsresponderconfigs"),
                    "Namespaced".to_owned(),
                    vec!["gitopscfg".to_owned()]
                ),
            ]
        );
    }

    /// The schema of a kind, found by JSON pointer.
    fn schema(kind: &str, pointer: &str) -> serde_json::Value {
        let crd = all()
            .into_iter()
            .find(|crd| crd.spec.names.kind == kind)
            .unwrap();
        let version = serde_json::to_value(&crd.spec.versions[0]).unwrap();
        version
            .pointer(pointer)
            .unwrap_or_else(|| panic!("{kind} has no {pointer}"))
            .clone()
    }

    #[test]
    fn every_status_is_a_subresource_so_that_writing_it_leaves_the_generation_alone() {
        for kind in ["EventResponse", "SecurityEvent", "GitOpsResponderConfig"] {
            assert!(schema(kind, "/subresources/status").is_object(), "{kind}");
        }
    }

    #[test]
    fn conditions_are_merged_by_their_type() {
        let at = "/schema/openAPIV3Schema/properties/status/properties/conditions";
        let conditions = schema("EventResponse", at);
        assert_eq!(conditions["x-kubernetes-list-type"], "map");
        assert_eq!(
            conditions["x-kubernetes-list-map-keys"],
            serde_json::json!(["type"])
        );
    }

    #[test]
    fn details_of_a_security_event_that_we_do_not_know_survive() {
        let spec = "/schema/openAPIV3Schema/properties/spec/properties";
        for field in ["subject", "source", "evidence/items", "parents/items"] {
            let place = schema("SecurityEvent", &format!("{spec}/{field}"));
            assert_eq!(
                place["x-kubernetes-preserve-unknown-fields"], true,
                "{field}"
            );
            // Below it, the API server prunes all the same.
            assert!(place["additionalProperties"].is_null(), "{field}");
        }
        let subject = serde_json::json!({
            "kind": "ClusterRoleBinding", "name": "x",
            "clusterRoleBinding": {"roleRef": {"name": "cluster-admin"}, "fieldOfTomorrow": [1]},
        });
        let read: Subject = serde_json::from_value(subject.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), subject);
    }

    #[test]
    fn a_status_in_the_words_of_its_kind_is_read_back() {
        let status = serde_json::json!({
            "phase": "Failed", "attempts": 3, "completedAt": "2026-01-01T00:00:00Z",
            "outcome": {"type": "Errored", "message": "given up"},
            "error": {"type": "Transient", "reason": "ForgeUnavailable", "detail": "no answer"},
            "evidence": [{"mediaType": CHANGE_MEDIA_TYPE, "url": "https://forge.example/pulls/1"}],
            "providerRef": "https://forge.example/pulls/1",
        });
        let read: EventResponseStatus = serde_json::from_value(status.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), status);
    }
}
