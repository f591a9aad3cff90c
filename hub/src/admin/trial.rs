//! The route test: what would become of an EventResponse, by the same functions that decide it in earnest. Pure; asks
//! no forge and stores nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid};
use serde_json::Value;

use crate::change::Intent;
use crate::execute::clusters::ClusterFacts;
use crate::plan::{self, Conclusion, Policy, Step, progress};
use crate::response::{
    Content, ErrorType, Observation, Response, ResponseError, SecurityEventAbsence,
};
use crate::routes::compile::{Problem, compile};
use crate::routes::decision::Decision;
use crate::routes::folder::parse;
use crate::routes::handle::InForce;
use crate::routes::{Facts, Route, RouteTable};

/// The UID of an object from a file that has none.
const MADE_UP_UID: &str = "00000000-0000-4000-8000-000000000000";

/// The reason of what is no end: it would wait. No status has it.
const WOULD_WAIT: &str = "ConfigurationIncomplete";
/// The reason of a response that nobody wants; no status has it.
const CANCELLED: &str = "Cancelled";

/// Something wrong in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Whether the document cannot be used.
    pub(super) error: bool,
    /// `<namespace>/<name>`, or the kind of the object.
    pub(super) document: String,
    /// What is wrong, and where.
    pub(super) problem: Problem,
}

/// What would become of an EventResponse.
pub(super) struct Trial {
    pub(super) decision: Decision,
    /// The pull request, or how the response would end.
    pub(super) result: Result<Box<Intent>, ResponseError>,
}

/// An EventResponse from the text of a file, perhaps with its SecurityEvent.
pub(super) fn observation(text: &str, cluster: ClusterId) -> Result<Observation, String> {
    let objects = parse(text)?;
    let of_kind = |kind: &str| {
        let mut found = objects.iter().filter(|object| object["kind"] == kind);
        let first = found.next();
        match found.next() {
            Some(_) => Err(format!("has several objects of kind {kind}; give one")),
            None => Ok(first),
        }
    };
    let event_response = of_kind("EventResponse")?.ok_or(
        "has no object of kind EventResponse; `kubectl get eventresponse NAME -o yaml` writes one",
    )?;
    let security_event = of_kind("SecurityEvent")?;
    let word = |pointer: &str| {
        let text = event_response.pointer(pointer).and_then(Value::as_str);
        text.map(str::to_owned)
    };
    let uid: ResponseUid = word("/metadata/uid")
        .unwrap_or_else(|| MADE_UP_UID.to_owned())
        .parse()
        .map_err(|error| format!("metadata.uid: {error}"))?;
    Ok(Observation {
        key: ResponseKey { cluster, uid },
        name: word("/metadata/name").unwrap_or_else(|| "unnamed".to_owned()),
        generation: event_response
            .pointer("/metadata/generation")
            .and_then(Value::as_i64)
            .unwrap_or(1),
        responder: word("/spec/responder/name").unwrap_or_default(),
        spec_hash: [0; 32],
        content: Content::Objects {
            event_response: event_response.clone(),
            security_event: security_event
                .cloned()
                .ok_or(SecurityEventAbsence::NotFound),
        },
    })
}

/// What would keep an agent from serving the EventResponse at all.
pub(super) fn unserved(observation: &Observation) -> Vec<Finding> {
    let Content::Objects { event_response, .. } = &observation.content else {
        return Vec::new();
    };
    let kind = event_response.pointer("/spec/action/type");
    if kind.and_then(Value::as_str) == Some("GitOpsChange") {
        return Vec::new();
    }
    let problem = Problem {
        path: "spec.action.type".to_owned(),
        message: "is not GitOpsChange; no agent would send it to the hub".to_owned(),
    };
    vec![Finding {
        error: true,
        document: "EventResponse".to_owned(),
        problem,
    }]
}

/// The routes that would be in force if these documents were applied over those in force.
pub(super) fn proposed(
    in_force: Vec<InForce>,
    text: &str,
    default_namespace: &str,
) -> Result<(RouteTable, Vec<Finding>), String> {
    let mut documents: BTreeMap<String, Option<Vec<Arc<Route>>>> = in_force
        .into_iter()
        .map(|document| (document.verdict.id, document.routes))
        .collect();
    let mut findings = Vec::new();
    for object in parse(text)? {
        if object["kind"] != "GitOpsResponderConfig" {
            let kind = object["kind"].as_str().unwrap_or("unknown");
            findings.push(note(
                kind,
                "",
                "is no GitOpsResponderConfig and was left out",
            ));
            continue;
        }
        let word = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
        let namespace = word("/metadata/namespace").unwrap_or(default_namespace);
        let name = word("/metadata/name").unwrap_or("unnamed");
        let id = format!("{namespace}/{name}");
        match compile(namespace, name, &object) {
            Ok(compiled) => {
                findings.extend(compiled.unsupported.into_iter().map(|problem| Finding {
                    error: false,
                    document: id.clone(),
                    problem,
                }));
                documents.insert(id, Some(compiled.routes));
            }
            // As in earnest, the last good version stays.
            Err(problems) => {
                findings.extend(problems.into_iter().map(|problem| Finding {
                    error: true,
                    document: id.clone(),
                    problem,
                }));
                documents.entry(id).or_default();
            }
        }
    }
    let complete = documents.values().all(Option::is_some);
    let routes = documents.into_values().flatten().flatten().collect();
    Ok((RouteTable::new(routes, complete), findings))
}

fn note(document: &str, path: &str, message: &str) -> Finding {
    Finding {
        error: false,
        document: document.to_owned(),
        problem: Problem {
            path: path.to_owned(),
            message: message.to_owned(),
        },
    }
}

/// Decides for an EventResponse that nothing has happened to yet.
pub(super) fn trial(
    observation: Observation,
    cluster: &ClusterFacts,
    routes: &RouteTable,
    max_attempts: u32,
    now: Timestamp,
) -> Trial {
    let policy = Policy {
        routes,
        max_attempts,
        cluster_name: &cluster.name,
        cluster_labels: &cluster.labels,
    };
    let response = Response {
        progress: progress::accept(&observation, now),
        observation,
        observed_at: now,
    };
    let decision = decision(&response, &policy);
    let result = match plan::plan(&response, &policy, now) {
        Step::Attempt(attempt) => Ok(Box::new(attempt.intent)),
        Step::Conclude(Conclusion::Failed { error, .. }) => Err(error),
        Step::Conclude(Conclusion::Cancelled { reason }) => {
            Err(ResponseError::new(ErrorType::Permanent, CANCELLED, reason))
        }
        // Nothing that was never tried is closed or updated.
        Step::WaitUntil(_) | Step::Settled | Step::Close(_) | Step::Update(_) | Step::Keep(_) => {
            Err(ResponseError::new(
                ErrorType::Transient,
                WOULD_WAIT,
                "no route takes it, but a document cannot be read or used: the response would wait for that",
            ))
        }
    };
    Trial { decision, result }
}

/// Which route takes a response by a policy, and why not the others.
pub(super) fn decision(response: &Response, policy: &Policy<'_>) -> Decision {
    match &response.observation.content {
        Content::Objects {
            event_response,
            security_event,
        } => policy.routes.decide(&Facts {
            cluster: &response.key().cluster,
            cluster_labels: policy.cluster_labels,
            event_response,
            security_event: security_event.as_ref().ok(),
        }),
        Content::Unserveable { .. } => Decision {
            candidates: Vec::new(),
            conclusive: true,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;

    const CONFIG: &str = "
kind: GitOpsResponderConfig
metadata: {name: c, namespace: ns}
spec:
  routes:
    - match: {clusters: [test-*]}
      provider: {kind: noop, repository: o/test}
    - provider: {kind: noop, repository: o/prod}
      allowedPaths: [rbac/]
";

    fn event_response(path: &str) -> String {
        let mut object = fixtures::event_response(json!({}));
        object["spec"]["action"]["parameters"]["path"] = json!(path);
        object.to_string()
    }

    fn run(config: &str, objects: &str) -> (Trial, Vec<Finding>) {
        let (table, findings) = proposed(Vec::new(), config, "default").unwrap();
        let seen = observation(objects, "prod-eu".parse().unwrap()).unwrap();
        let trial = trial(
            seen,
            &ClusterFacts::default(),
            &table,
            0,
            Timestamp::UNIX_EPOCH,
        );
        (trial, findings)
    }

    #[test]
    fn the_pull_request_is_the_one_that_would_be_made_in_earnest() {
        let (trial, findings) = run(CONFIG, &event_response("rbac/evil.yaml"));
        assert_eq!(findings, []);
        let intent = trial.result.unwrap();
        assert_eq!(intent.target.repository, "o/prod");
        assert!(
            intent.branch.starts_with("nabu/prod-eu/"),
            "{}",
            intent.branch
        );
        assert_eq!(intent.files[0].path, "rbac/evil.yaml");
        assert_eq!(trial.decision.route(), Some("ns/c/1"));
        let why = trial.decision.candidates[0].mismatch.as_ref().unwrap();
        assert_eq!(why.field, "clusters");
    }

    #[test]
    fn the_group_is_the_one_that_it_would_get_into() {
        let config = CONFIG.replace(
            "      allowedPaths",
            "      group: {window: 10m}\n      allowedPaths",
        );
        let mut object: Value = serde_json::from_str(&event_response("rbac/evil.yaml")).unwrap();
        let (trial, _) = run(&config, &object.to_string());
        assert_eq!(
            trial.result.unwrap().group,
            None,
            "nobody knows when it was created"
        );
        object["metadata"]["creationTimestamp"] = json!("2026-11-21T18:34:56Z");
        let (trial, _) = run(&config, &object.to_string());
        let group = trial.result.unwrap().group.unwrap();
        assert!(
            group.branch.ends_with("-20261121T183000Z"),
            "{}",
            group.branch
        );
    }

    #[test]
    fn what_a_safety_rule_refuses_is_refused_with_its_reason() {
        for (path, reason) in [
            ("../../etc/passwd", "PathNotAllowed"),
            ("apps/x.yaml", "PathNotAllowed"),
            (".github/workflows/x.yml", "PathNotAllowed"),
        ] {
            let (trial, _) = run(CONFIG, &event_response(path));
            assert_eq!(trial.result.unwrap_err().reason, reason, "{path}");
        }
    }

    #[test]
    fn a_document_that_cannot_be_used_is_a_finding_and_leaves_the_one_in_force() {
        let bad = CONFIG.replace("o/test", "nonsense");
        let (trial, findings) = run(&bad, &event_response("rbac/evil.yaml"));
        assert!(findings[0].error);
        assert_eq!(findings[0].document, "ns/c");
        assert_eq!(
            findings[0].problem.path,
            "spec.routes[0].provider.repository"
        );
        assert_eq!(trial.result.unwrap_err().reason, "ConfigurationIncomplete");

        let (table, _) = proposed(Vec::new(), CONFIG, "default").unwrap();
        let in_force = InForce {
            origin: "c.yaml".to_owned(),
            verdict: crate::routes::handle::Verdict {
                id: "ns/c".to_owned(),
                problems: Vec::new(),
                unsupported: Vec::new(),
            },
            routes: Some(table.routes().to_vec()),
        };
        let (kept, _) = proposed(vec![in_force], &bad, "default").unwrap();
        assert_eq!(kept.routes().len(), 2);
    }

    #[test]
    fn a_file_is_read_with_its_security_event_and_told_what_it_lacks() {
        let both = format!(
            "{}\n---\n{}",
            event_response("rbac/evil.yaml"),
            json!({"kind": "SecurityEvent", "metadata": {"name": "se-1"}, "spec": {"type": "X"}})
        );
        let seen = observation(&both, "c".parse().unwrap()).unwrap();
        let Content::Objects { security_event, .. } = &seen.content else {
            unreachable!("it is an object")
        };
        assert_eq!(security_event.as_ref().unwrap()["spec"]["type"], "X");
        assert_eq!(unserved(&seen), []);
        let error = observation("kind: ConfigMap", "c".parse().unwrap()).unwrap_err();
        assert!(error.contains("no object of kind EventResponse"), "{error}");
        let twice = format!("{0}\n---\n{0}", event_response("a"));
        assert!(observation(&twice, "c".parse().unwrap()).is_err());
    }
}
