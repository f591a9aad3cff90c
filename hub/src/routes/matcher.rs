//! Decides whether a rule takes a response. Everything that a rule names must hold.

use std::collections::BTreeMap;

use nabu_common::crd::MatchSpec;

use super::{Facts, text};

/// A text with `*` for any characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<String>);

impl Pattern {
    /// Reads a pattern; every text is one.
    pub fn new(pattern: &str) -> Self {
        Self(pattern.split('*').map(str::to_owned).collect())
    }

    /// Whether the whole text fits.
    pub fn fits(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|only| only == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else {
            return false;
        };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else {
                return false;
            };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

/// The conditions of one rule.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    action_ref: Option<String>,
    clusters: Vec<Pattern>,
    cluster_labels: BTreeMap<String, String>,
    responder: Option<String>,
    severities: Vec<String>,
    classes: Vec<String>,
    event_types: Vec<String>,
    namespaces: Vec<Pattern>,
    labels: BTreeMap<String, String>,
}

impl Matcher {
    /// The conditions that a rule names.
    pub fn new(spec: &MatchSpec) -> Self {
        let patterns = |texts: &[String]| texts.iter().map(|text| Pattern::new(text)).collect();
        Self {
            action_ref: spec.action_ref.clone(),
            clusters: patterns(&spec.clusters),
            cluster_labels: spec.cluster_labels.clone(),
            responder: spec.responder.clone(),
            severities: spec.severities.clone(),
            classes: spec.classes.clone(),
            event_types: spec.event_types.clone(),
            namespaces: patterns(&spec.namespaces),
            labels: spec.labels.clone(),
        }
    }

    /// Whether all conditions hold.
    pub fn takes(&self, facts: &Facts<'_>) -> bool {
        let named = |list: &[String], text: Option<&str>| {
            list.is_empty()
                || text.is_some_and(|text| list.iter().any(|one| one.eq_ignore_ascii_case(text)))
        };
        let fits = |list: &[Pattern], text: Option<&str>| {
            list.is_empty() || text.is_some_and(|text| list.iter().any(|one| one.fits(text)))
        };
        let exact = |wanted: &Option<String>, text: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == text)
        };
        exact(&self.action_ref, facts.action_ref())
            && exact(
                &self.responder,
                text(facts.event_response, "/spec/responder/name"),
            )
            && fits(&self.clusters, Some(facts.cluster.as_str()))
            && self
                .cluster_labels
                .iter()
                .all(|(key, value)| facts.cluster_labels.get(key) == Some(value))
            && named(&self.severities, facts.of_event("/spec/severity"))
            && named(&self.classes, facts.of_event("/spec/class"))
            && named(&self.event_types, facts.of_event("/spec/type"))
            && fits(&self.namespaces, namespace(facts))
            && self.labels.iter().all(|(key, value)| {
                let label = facts.labels().and_then(|labels| labels.get(key));
                label.and_then(|label| label.as_str()) == Some(value)
            })
    }
}

/// The namespace that a response is about: of the event's subject, else of the action's target.
fn namespace<'a>(facts: &Facts<'a>) -> Option<&'a str> {
    let subject = facts
        .of_event("/spec/subject/namespace")
        .filter(|namespace| !namespace.is_empty());
    subject.or_else(|| text(facts.event_response, "/spec/action/targetRef/namespace"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    fn takes(spec: serde_json::Value) -> bool {
        let mut event_response = fixtures::event_response(json!({}));
        event_response["metadata"]["labels"] = json!({"team": "payments"});
        let event = fixtures::security_event();
        let facts = Facts {
            cluster: &"prod-eu".parse().unwrap(),
            cluster_labels: &BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
            event_response: &event_response,
            security_event: Some(&event),
        };
        Matcher::new(&serde_json::from_value(spec).unwrap()).takes(&facts)
    }

    #[test]
    fn every_condition_of_a_rule_decides() {
        assert!(takes(json!({})), "no condition takes everything");
        for (field, good, bad) in [
            (
                "actionRef",
                json!("revoke-clusterrolebinding"),
                json!("block-image"),
            ),
            (
                "clusters",
                json!(["prod-us", "prod-*"]),
                json!(["prod-us", "prod"]),
            ),
            (
                "clusterLabels",
                json!({"env": "prod"}),
                json!({"env": "test"}),
            ),
            (
                "responder",
                json!("ugallu-gitops-responder"),
                json!("another"),
            ),
            ("severities", json!(["critical", "High"]), json!(["low"])),
            ("classes", json!(["Rbac"]), json!(["Network"])),
            (
                "eventTypes",
                json!(["ClusterAdminGranted"]),
                json!(["PodExec"]),
            ),
            ("namespaces", json!(["pay*"]), json!(["pay"])),
            (
                "labels",
                json!({"team": "payments"}),
                json!({"team": "payments", "tier": "1"}),
            ),
        ] {
            assert!(takes(json!({ field: good })), "{field}: {good}");
            assert!(!takes(json!({ field: bad })), "{field}: {bad}");
        }
        assert!(
            !takes(json!({"clusters": ["prod-eu"], "severities": ["low"]})),
            "all must hold"
        );
    }

    #[test]
    fn the_action_is_taken_from_the_label_where_no_parameter_names_it() {
        let event_response = json!({"metadata": {"labels": {"ugallu.io/action-ref": "x"}}});
        let (cluster, labels) = ("c".parse().unwrap(), BTreeMap::new());
        let facts = Facts {
            cluster: &cluster,
            cluster_labels: &labels,
            event_response: &event_response,
            security_event: None,
        };
        assert_eq!(facts.action_ref(), Some("x"));
        let spec = MatchSpec {
            action_ref: Some("x".into()),
            ..MatchSpec::default()
        };
        assert!(Matcher::new(&spec).takes(&facts));
        let spec = MatchSpec {
            severities: vec!["high".into()],
            ..MatchSpec::default()
        };
        assert!(
            !Matcher::new(&spec).takes(&facts),
            "an event that is not there has no severity"
        );
    }

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*", "a", true),
            ("*-prod", "eu-prod", true),
            ("a*b*c", "a--b--c", true),
            ("a*b*c", "a--c--b", false),
            ("ab*ba", "aba", false),
            ("prod", "prod-eu", false),
        ] {
            assert_eq!(Pattern::new(pattern).fits(text), fits, "{pattern} {text}");
        }
    }
}
