//! What is in force: the last good version of every configuration document, and what was said about each.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use serde_json::Value;
use tracing::{error, info, warn};

use super::compile::{Compiled, Problem, compile};
use super::{Route, RouteTable};
use crate::credentials::Credentials;

/// One GitOpsResponderConfig as a source read it.
#[derive(Clone, Debug)]
pub struct Document {
    /// Where it stands, for people: a file, or an object.
    pub origin: String,
    /// Its namespace; its Secrets are those of this namespace.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The whole object.
    pub object: Value,
}

/// Everything that a source holds now.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The documents that could be read as YAML or JSON.
    pub documents: Vec<Document>,
    /// Origins that could not be read, with the reason. Documents that came from there stay in force.
    pub unreadable: Vec<(String, String)>,
}

/// What the hub says of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The document, as `<namespace>/<name>`.
    pub id: String,
    /// Why it is not in force as it stands; empty if it is.
    pub problems: Vec<Problem>,
    /// What is understood and not served.
    pub unsupported: Vec<Problem>,
}

/// A document, what was said of it, and what of it is in force.
#[derive(Clone, Debug)]
pub struct InForce {
    /// Where it stands, for people.
    pub origin: String,
    /// What the hub says of it as it stands now.
    pub verdict: Verdict,
    /// The routes of its last good version; `None` if it never had one.
    pub routes: Option<Vec<Arc<Route>>>,
}

#[derive(Debug)]
struct Entry {
    origin: String,
    /// The object that was looked at last, so that what has not changed is not compiled and reported again.
    object: Value,
    verdict: Verdict,
    /// The routes of the last good version.
    good: Option<Vec<Arc<Route>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counters of [`ConfigHandle`].
#[derive(Clone, Debug, Default)]
pub struct ConfigMetrics {
    loads: Family<ResultLabel, Counter>,
    invalid: Gauge,
    routes: Gauge,
}

impl ConfigMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "nabu_hub_config_loads",
            "GitOpsResponderConfig documents that were read, by whether they could be used",
            metrics.loads.clone(),
        );
        registry.register(
            "nabu_hub_config_invalid",
            "GitOpsResponderConfig documents that cannot be used as they stand now",
            metrics.invalid.clone(),
        );
        registry.register("nabu_hub_routes", "Routes in force", metrics.routes.clone());
        metrics
    }
}

/// The configuration in force; clones share it.
#[derive(Clone, Debug)]
pub struct ConfigHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    table: ArcSwap<RouteTable>,
    entries: Mutex<BTreeMap<String, Entry>>,
    credentials: Credentials,
    metrics: ConfigMetrics,
}

impl ConfigHandle {
    /// A handle without any document yet; a miss in it is not conclusive.
    pub fn new(credentials: Credentials, metrics: ConfigMetrics) -> Self {
        let shared = Shared {
            table: ArcSwap::default(),
            entries: Mutex::default(),
            credentials,
            metrics,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The routes in force.
    pub fn table(&self) -> Arc<RouteTable> {
        self.shared.table.load_full()
    }

    /// The Secrets in force.
    pub fn credentials(&self) -> &Credentials {
        &self.shared.credentials
    }

    /// Every document, in the order in which their routes are asked.
    pub fn in_force(&self) -> Vec<InForce> {
        let entries = self
            .shared
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let documents = entries.values().map(|entry| InForce {
            origin: entry.origin.clone(),
            verdict: entry.verdict.clone(),
            routes: entry.good.clone(),
        });
        documents.collect()
    }

    /// Takes over everything that a source holds now, and says of each document what came of it.
    pub fn apply(&self, snapshot: Snapshot) -> Vec<Verdict> {
        let mut entries = self
            .shared
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut next = BTreeMap::new();
        for (origin, reason) in &snapshot.unreadable {
            warn!(
                origin,
                reason, "a configuration cannot be read; what was in force before stays"
            );
            let kept: Vec<String> = entries
                .iter()
                .filter(|(_, entry)| entry.origin == *origin)
                .map(|(id, _)| id.clone())
                .collect();
            next.extend(kept.into_iter().filter_map(|id| entries.remove_entry(&id)));
        }
        for document in snapshot.documents {
            let id = format!("{}/{}", document.namespace, document.name);
            let before = entries.remove(&id);
            let entry = match before {
                Some(entry) if entry.object == document.object => entry,
                before => self.look_at(&id, document, before.and_then(|entry| entry.good)),
            };
            next.insert(id, entry);
        }
        for id in entries.keys() {
            info!(
                config = id,
                "a configuration is gone; its routes are out of force"
            );
        }
        *entries = next;
        self.publish(&entries, snapshot.unreadable.is_empty());
        entries
            .values()
            .map(|entry| entry.verdict.clone())
            .collect()
    }

    fn look_at(&self, id: &str, document: Document, good: Option<Vec<Arc<Route>>>) -> Entry {
        let Document {
            origin,
            namespace,
            name,
            object,
        } = document;
        let result = compile(&namespace, &name, &object);
        let label = ResultLabel {
            result: if result.is_ok() { "valid" } else { "invalid" },
        };
        self.shared.metrics.loads.get_or_create(&label).inc();
        let (good, problems, unsupported) = match result {
            Ok(Compiled {
                routes,
                unsupported,
            }) => {
                info!(
                    config = id,
                    origin,
                    routes = routes.len(),
                    "a configuration is in force"
                );
                for problem in &unsupported {
                    warn!(config = id, origin, %problem, "a configuration asks for what is not served");
                }
                (Some(routes), Vec::new(), unsupported)
            }
            Err(problems) => {
                for problem in &problems {
                    error!(config = id, origin, %problem, "a configuration cannot be used; the last good one stays");
                }
                (good, problems, Vec::new())
            }
        };
        Entry {
            origin,
            object,
            good,
            verdict: Verdict {
                id: id.to_owned(),
                problems,
                unsupported,
            },
        }
    }

    fn publish(&self, entries: &BTreeMap<String, Entry>, readable: bool) {
        let routes: Vec<_> = entries
            .values()
            .flat_map(|entry| entry.good.iter().flatten().cloned())
            .collect();
        let invalid = entries
            .values()
            .filter(|entry| !entry.verdict.problems.is_empty())
            .count();
        self.shared
            .metrics
            .invalid
            .set(i64::try_from(invalid).unwrap_or(i64::MAX));
        self.shared
            .metrics
            .routes
            .set(i64::try_from(routes.len()).unwrap_or(i64::MAX));
        let complete = readable && entries.values().all(|entry| entry.good.is_some());
        self.shared
            .table
            .store(Arc::new(RouteTable::new(routes, complete)));
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [join(&self.problems), join(&self.unsupported)];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        f.write_str(&parts.join("; "))
    }
}

/// All problems in one line.
pub(super) fn join(problems: &[Problem]) -> String {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(name: &str, repository: &str) -> Document {
        Document {
            origin: "a.yaml".to_owned(),
            namespace: "ns".to_owned(),
            name: name.to_owned(),
            object: json!({"spec": {"routes": [{"provider": {"kind": "noop", "repository": repository}}]}}),
        }
    }

    fn repositories(handle: &ConfigHandle) -> Vec<String> {
        handle
            .table()
            .routes()
            .iter()
            .map(|route| route.target.repository.clone())
            .collect()
    }

    fn apply(handle: &ConfigHandle, documents: Vec<Document>) -> Vec<Verdict> {
        handle.apply(Snapshot {
            documents,
            unreadable: Vec::new(),
        })
    }

    #[test]
    fn the_last_good_version_stays_in_force_and_the_bad_one_is_reported() {
        let handle = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
        apply(
            &handle,
            vec![document("a", "o/one"), document("b", "o/two")],
        );
        assert_eq!(repositories(&handle), ["o/one", "o/two"]);
        let verdicts = apply(
            &handle,
            vec![document("a", "no repository"), document("b", "o/three")],
        );
        assert_eq!(repositories(&handle), ["o/one", "o/three"]);
        assert_eq!(
            verdicts[0].problems[0].path,
            "spec.routes[0].provider.repository"
        );
        apply(&handle, vec![document("b", "o/three")]);
        assert_eq!(
            repositories(&handle),
            ["o/three"],
            "a document that is gone is out of force"
        );
    }

    #[test]
    fn a_file_that_cannot_be_read_leaves_its_documents_in_force() {
        let handle = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
        apply(&handle, vec![document("a", "o/one")]);
        handle.apply(Snapshot {
            documents: vec![],
            unreadable: vec![("a.yaml".into(), "line 3".into())],
        });
        assert_eq!(repositories(&handle), ["o/one"]);
        assert!(!handle.table().complete);
    }

    #[test]
    fn a_miss_is_conclusive_only_when_every_document_was_good_once() {
        let handle = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
        assert!(!handle.table().complete, "nothing was read yet");
        apply(
            &handle,
            vec![document("a", "o/one"), document("b", "no repository")],
        );
        assert!(!handle.table().complete);
        apply(
            &handle,
            vec![document("a", "o/one"), document("b", "o/two")],
        );
        assert!(handle.table().complete);
    }
}
