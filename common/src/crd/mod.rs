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
}
