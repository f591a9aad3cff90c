//! Decides whether a rule takes a response. Everything that a rule names must hold.

use std::collections::BTreeMap;
use std::fmt;

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

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("*"))
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
        self.first_mismatch(facts).is_none()
    }

    /// The first condition that does not hold, with what it wants and what was found; `None` if all hold.
    pub fn mismatch(&self, facts: &Facts<'_>) -> Option<Mismatch> {
        let field = self.first_mismatch(facts)?;
        let patterns = |list: &[Pattern]| list.iter().map(ToString::to_string).collect();
        let label = |key: &str, value: &str| format!("{key}={value}");
        let (wanted, found): (Vec<String>, Option<String>) = match field {
            Field::ActionRef => (
                self.action_ref.iter().cloned().collect(),
                facts.action_ref().map(str::to_owned),
            ),
            Field::Responder => (
                self.responder.iter().cloned().collect(),
                responder(facts).map(str::to_owned),
            ),
            Field::Clusters => (patterns(&self.clusters), Some(facts.cluster.to_string())),
            Field::ClusterLabels(key) => (
                self.cluster_labels
                    .get(key)
                    .map(|value| label(key, value))
                    .into_iter()
                    .collect(),
                facts.cluster_labels.get(key).map(|value| label(key, value)),
            ),
            Field::Severities => (
                self.severities.clone(),
                facts.of_event("/spec/severity").map(str::to_owned),
            ),
            Field::Classes => (
                self.classes.clone(),
                facts.of_event("/spec/class").map(str::to_owned),
            ),
            Field::EventTypes => (
                self.event_types.clone(),
                facts.of_event("/spec/type").map(str::to_owned),
            ),
            Field::Namespaces => (
                patterns(&self.namespaces),
                namespace(facts).map(str::to_owned),
            ),
            Field::Labels(key) => (
                self.labels
                    .get(key)
                    .map(|value| label(key, value))
                    .into_iter()
                    .collect(),
                facts.label(key).map(|value| label(key, value)),
            ),
        };
        Some(Mismatch {
            field: field.as_str(),
            wanted,
            found,
        })
    }

    /// In the order of the fields' cost and weight; the words of a mismatch follow it.
    fn first_mismatch<'m>(&'m self, facts: &Facts<'_>) -> Option<Field<'m>> {
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
        if !exact(&self.action_ref, facts.action_ref()) {
            return Some(Field::ActionRef);
        }
        if !exact(&self.responder, responder(facts)) {
            return Some(Field::Responder);
        }
        if !fits(&self.clusters, Some(facts.cluster.as_str())) {
            return Some(Field::Clusters);
        }
        let other =
            |(key, value): &(&String, &String)| facts.cluster_labels.get(*key) != Some(value);
        if let Some((key, _)) = self.cluster_labels.iter().find(other) {
            return Some(Field::ClusterLabels(key));
        }
        if !named(&self.severities, facts.of_event("/spec/severity")) {
            return Some(Field::Severities);
        }
        if !named(&self.classes, facts.of_event("/spec/class")) {
            return Some(Field::Classes);
        }
        if !named(&self.event_types, facts.of_event("/spec/type")) {
            return Some(Field::EventTypes);
        }
        if !fits(&self.namespaces, namespace(facts)) {
            return Some(Field::Namespaces);
        }
        let other = |(key, value): &(&String, &String)| facts.label(key) != Some(value.as_str());
        let (key, _) = self.labels.iter().find(other)?;
        Some(Field::Labels(key))
    }
}

/// A condition of `match`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field<'m> {
    ActionRef,
    Responder,
    Clusters,
    ClusterLabels(&'m str),
    Severities,
    Classes,
    EventTypes,
    Namespaces,
    Labels(&'m str),
}

impl Field<'_> {
    const fn as_str(self) -> &'static str {
        match self {
            Self::ActionRef => "actionRef",
            Self::Responder => "responder",
            Self::Clusters => "clusters",
            Self::ClusterLabels(_) => "clusterLabels",
            Self::Severities => "severities",
            Self::Classes => "classes",
            Self::EventTypes => "eventTypes",
            Self::Namespaces => "namespaces",
            Self::Labels(_) => "labels",
        }
    }
}

/// Why a rule does not take a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The field of `match`, as documents write it.
    pub field: &'static str,
    /// What the rule wants; one of these.
    pub wanted: Vec<String>,
    /// What the response has; `None` if it has nothing there.
    pub found: Option<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} wants {}", self.field, self.wanted.join(" or "))?;
        match &self.found {
            Some(found) => write!(f, ", and it is {found:?}"),
            None => write!(f, ", and there is none"),
        }
    }
}

fn responder<'a>(facts: &Facts<'a>) -> Option<&'a str> {
    text(facts.event_response, "/spec/responder/name")
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
        mismatch(spec).is_none()
    }

    fn mismatch(spec: serde_json::Value) -> Option<Mismatch> {
        let mut event_response = fixtures::event_response(json!({}));
        event_response["metadata"]["labels"] = json!({"team": "payments"});
        let event = fixtures::security_event();
        let facts = Facts {
            cluster: &"prod-eu".parse().unwrap(),
            cluster_labels: &BTreeMap::from([("env".to_owned(), "prod".to_owned())]),
            event_response: &event_response,
            security_event: Some(&event),
        };
        let matcher = Matcher::new(&serde_json::from_value(spec).unwrap());
        assert_eq!(matcher.takes(&facts), matcher.mismatch(&facts).is_none());
        matcher.mismatch(&facts)
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
            let why = mismatch(json!({ field: bad })).unwrap();
            assert_eq!(why.field, field);
            assert!(!why.wanted.is_empty(), "{why}");
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
    fn a_mismatch_names_the_first_field_with_what_is_wanted_and_what_was_found() {
        for (spec, words) in [
            (
                json!({"clusters": ["prod-us", "test-*"], "severities": ["low"]}),
                "clusters wants prod-us or test-*, and it is \"prod-eu\"",
            ),
            (
                json!({"labels": {"tier": "1"}}),
                "labels wants tier=1, and there is none",
            ),
            (
                json!({"clusterLabels": {"env": "test"}}),
                "clusterLabels wants env=test, and it is \"env=prod\"",
            ),
            (
                json!({"severities": ["low"]}),
                "severities wants low, and it is \"high\"",
            ),
        ] {
            assert_eq!(mismatch(spec).unwrap().to_string(), words);
        }
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
