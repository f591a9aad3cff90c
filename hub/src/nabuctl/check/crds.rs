//! The kinds that agent and hub need, and whether a cluster serves them as they need them. Pure.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};

use super::found::Found;
use super::rights::GROUP;

const CHECK: &str = "crd";
/// The version that both programs speak.
const VERSION: &str = "v1alpha1";

/// A kind that is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    plural: &'static str,
    scope: &'static str,
    /// Whether a status is written.
    status: bool,
    /// The chart that brings it.
    chart: &'static str,
}

/// What an agent needs.
pub(super) const OF_AGENT: [Kind; 2] = [
    Kind {
        plural: "eventresponses",
        scope: "Cluster",
        status: true,
        chart: "nabu-agent",
    },
    Kind {
        plural: "securityevents",
        scope: "Cluster",
        status: false,
        chart: "nabu-agent",
    },
];

/// What a hub needs that watches objects.
pub(super) const OF_HUB: [Kind; 1] = [Kind {
    plural: "gitopsresponderconfigs",
    scope: "Namespaced",
    status: true,
    chart: "nabu-hub",
}];

impl Kind {
    /// The name of the CRD.
    pub(super) fn name(&self) -> String {
        format!("{}.{GROUP}", self.plural)
    }

    fn apply(&self) -> String {
        format!(
            "kubectl apply --server-side -f charts/crds/{}.yaml; where ugallu is installed, its chart brings this kind",
            self.plural
        )
    }

    /// What is said if there is no such CRD. Before the installation there need not be.
    pub(super) fn missing(&self, before: bool) -> Found {
        let message = format!("{} is not served", self.name());
        if before {
            let remedy = format!("helm install {0} charts/{0} brings it", self.chart);
            return Found::skipped(CHECK, format!("{message} yet"), remedy);
        }
        Found::error(CHECK, message, self.apply())
    }

    /// What is said if there is no such CRD, and perhaps nobody needs it here.
    pub(super) fn not_needed(&self) -> Found {
        let message = format!(
            "{} is not served; only the hub's cluster needs it",
            self.name()
        );
        let remedy = "nabuctl check --hub-account nabu-system/nabu-hub looks at the hub's cluster";
        Found::skipped(CHECK, message, remedy)
    }

    /// What a CRD of that name is good for.
    pub(super) fn judge(&self, crd: &CustomResourceDefinition) -> Found {
        let name = self.name();
        let wrong = |what: String| Found::error(CHECK, format!("{name} {what}"), self.apply());
        let versions = &crd.spec.versions;
        let Some(version) = versions
            .iter()
            .find(|one| one.name == VERSION && one.served)
        else {
            let served: Vec<_> = versions
                .iter()
                .filter(|one| one.served)
                .map(|one| one.name.as_str())
                .collect();
            let served = served.join(", ");
            return wrong(format!("is served as {served}, not as {VERSION}"));
        };
        if crd.spec.scope != self.scope {
            return wrong(format!(
                "is of scope {}, not {}",
                crd.spec.scope, self.scope
            ));
        }
        if self.status && !has_status(version) {
            return wrong("has no status of its own".to_owned());
        }
        if !is_established(crd) {
            let message = format!("{name} is not established yet");
            let remedy = format!("kubectl describe crd {name} says why");
            return Found::error(CHECK, message, remedy);
        }
        Found::ok(CHECK, format!("{name} is served as {VERSION}"))
    }
}

fn has_status(version: &CustomResourceDefinitionVersion) -> bool {
    let subresources = version.subresources.as_ref();
    subresources.is_some_and(|subresources| subresources.status.is_some())
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.iter().flat_map(|status| &status.conditions);
    conditions
        .flatten()
        .any(|one| one.type_ == "Established" && one.status == "True")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::nabuctl::check::found::Level;
    use crate::nabuctl::check::found::tests::assert_remedies;

    fn ours(kind: &Kind) -> Value {
        let root = env!("CARGO_MANIFEST_DIR");
        let path = format!("{root}/../charts/crds/{}.yaml", kind.plural);
        let mut crd: Value =
            serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        crd["status"] = json!({"conditions": [{"type": "Established", "status": "True"}]});
        crd
    }

    fn judge(kind: &Kind, crd: Value) -> Found {
        kind.judge(&serde_json::from_value(crd).unwrap())
    }

    #[test]
    fn our_own_crds_are_what_is_needed() {
        for kind in OF_AGENT.iter().chain(&OF_HUB) {
            let found = judge(kind, ours(kind));
            assert_eq!(found.level, Level::Ok, "{found:?}");
            let chart = format!("{}/../charts/{}", env!("CARGO_MANIFEST_DIR"), kind.chart);
            let brought = format!("{chart}/crds/{}.yaml", kind.plural);
            assert!(std::path::Path::new(&brought).exists(), "{brought}");
        }
    }

    #[test]
    fn a_crd_that_serves_something_else_is_an_error() {
        let kind = OF_AGENT[0];
        let spoil = |path: &str, value: Value| {
            let mut crd = ours(&kind);
            *crd.pointer_mut(path).unwrap() = value;
            judge(&kind, crd)
        };
        let all = [
            spoil("/spec/versions/0/served", json!(false)),
            spoil("/spec/versions/0/name", json!("v1")),
            spoil("/spec/scope", json!("Namespaced")),
            spoil("/spec/versions/0/subresources", json!({})),
            spoil("/status/conditions/0/status", json!("False")),
            kind.missing(false),
        ];
        assert_remedies(&all);
        for found in all {
            assert_eq!(found.level, Level::Error, "{found:?}");
        }
        let skipped = [kind.missing(true), OF_HUB[0].not_needed()];
        assert_remedies(&skipped);
        assert!(skipped.iter().all(|one| one.level == Level::Skipped));
    }
}
