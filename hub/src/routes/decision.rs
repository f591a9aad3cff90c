//! Which route takes a response, and why not the ones before it, as data for people.

use super::matcher::Mismatch;
use super::{Facts, RouteTable};

/// A route that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `<namespace>/<config>/<route>`.
    pub route: String,
    /// Why it does not take the response; `None` if it does.
    pub mismatch: Option<Mismatch>,
}

/// What the table says of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The routes in order, up to the one that takes it.
    pub candidates: Vec<Candidate>,
    /// Whether a miss is final.
    pub conclusive: bool,
}

impl Decision {
    /// The route that takes it.
    pub fn route(&self) -> Option<&str> {
        let last = self.candidates.last()?;
        last.mismatch.is_none().then_some(last.route.as_str())
    }

    /// Why the routes before that one do not take it, in one line; empty if there are none.
    pub fn passed_over(&self) -> String {
        let reason = |candidate: &Candidate| {
            let why = candidate.mismatch.as_ref()?.to_string();
            let short: String = why.chars().take(REASON).collect();
            let more = if short.len() < why.len() { "…" } else { "" };
            Some(format!("not {}: {short}{more}", candidate.route))
        };
        let mut reasons: Vec<_> = self.candidates.iter().filter_map(reason).collect();
        if let Some(left_out) = reasons.len().checked_sub(REASONS).filter(|more| *more > 0) {
            reasons.truncate(REASONS);
            reasons.push(format!("nor {left_out} more"));
        }
        reasons.join("; ")
    }
}

/// Routes whose reason a line gives.
const REASONS: usize = 8;
/// Characters of one reason: a part of it is somebody else's text.
const REASON: usize = 200;

impl RouteTable {
    /// The same decision as [`RouteTable::find`], with its reasons.
    pub fn decide(&self, facts: &Facts<'_>) -> Decision {
        let mut candidates = Vec::new();
        for route in self.routes() {
            let mismatch = route.matcher.mismatch(facts);
            let taken = mismatch.is_none();
            candidates.push(Candidate {
                route: route.id.clone(),
                mismatch,
            });
            if taken {
                break;
            }
        }
        Decision {
            candidates,
            conclusive: self.complete,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;
    use crate::fixtures;
    use crate::routes::compile::compile;

    fn table(matches: &[Value]) -> RouteTable {
        let routes: Vec<_> = matches
            .iter()
            .map(|spec| json!({"match": spec, "provider": {"kind": "noop", "repository": "o/r"}}))
            .collect();
        let compiled = compile("ns", "c", &json!({"spec": {"routes": routes}})).unwrap();
        RouteTable::new(compiled.routes, true)
    }

    fn decide(table: &RouteTable) -> Decision {
        let (event_response, event) = (
            fixtures::event_response(json!({})),
            fixtures::security_event(),
        );
        let facts = Facts {
            cluster: &"prod-eu".parse().unwrap(),
            cluster_labels: &BTreeMap::new(),
            event_response: &event_response,
            security_event: Some(&event),
        };
        let decision = table.decide(&facts);
        let found = table.find(&facts).ok().map(|route| route.id.as_str());
        assert_eq!(decision.route(), found, "as plan decides");
        decision
    }

    #[test]
    fn a_line_says_why_routes_were_passed_over_and_stays_a_line() {
        let wrong = json!({"actionRef": "x".repeat(1_000)});
        let mut matches = vec![wrong; 11];
        matches.push(json!({}));
        let line = decide(&table(&matches)).passed_over();
        assert!(
            line.starts_with("not ns/c/0: actionRef wants xxx"),
            "{line}"
        );
        assert!(line.ends_with("…; nor 3 more"), "{line}");
        assert!(line.len() < 2_500, "{}", line.len());
        assert_eq!(decide(&table(&[json!({})])).passed_over(), "");
    }

    #[test]
    fn the_routes_before_the_one_that_takes_it_say_why_they_do_not() {
        let decision = decide(&table(&[
            json!({"clusters": ["test-*"]}),
            json!({"severities": ["low"]}),
            json!({}),
            json!({}),
        ]));
        let fields: Vec<_> = decision
            .candidates
            .iter()
            .map(|candidate| candidate.mismatch.as_ref().map(|why| why.field))
            .collect();
        assert_eq!(fields, [Some("clusters"), Some("severities"), None]);
        assert_eq!(decision.route(), Some("ns/c/2"));
    }

    #[test]
    fn a_miss_tells_of_every_route() {
        let decision = decide(&table(&[
            json!({"actionRef": "x"}),
            json!({"responder": "y"}),
        ]));
        assert_eq!((decision.candidates.len(), decision.route()), (2, None));
    }
}
