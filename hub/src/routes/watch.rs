//! Watches configuration in the hub's own cluster: GitOpsResponderConfig objects and the Secrets of one namespace.
//!
//! What the hub thinks of an object is written back: the conditions `Valid` and `Supported`, and a Kubernetes Event when
//! the verdict changes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use nabu_common::crd;
use nabu_common::ops::Check;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::ConfigHandle;
use super::handle::{Document, Snapshot, Verdict, join};
use crate::change::CredentialRef;
use crate::credentials::Secret;

/// The field manager of conditions.
const FIELD_MANAGER: &str = "nabu-hub";
/// What is said of a configuration without problems.
const IN_FORCE: &str = "every route is in force";
/// Changes that come together are looked at together.
const SETTLE: Duration = Duration::from_millis(100);

/// The configuration objects of one namespace.
pub struct ConfigWatch {
    configs: Api<DynamicObject>,
    secrets: Api<KubeSecret>,
    namespace: String,
    recorder: Recorder,
    /// Verdicts that the objects carry already.
    written: HashMap<String, (Option<i64>, Verdict)>,
}

impl ConfigWatch {
    /// A watch on a namespace of the cluster that `client` talks to.
    pub fn new(client: Client, namespace: &str) -> Self {
        let kind = GroupVersionKind::gvk(crd::GROUP, crd::VERSION, "GitOpsResponderConfig");
        let resource = ApiResource::from_gvk_with_plural(&kind, "gitopsresponderconfigs");
        Self {
            configs: Api::namespaced_with(client.clone(), namespace, &resource),
            secrets: Api::namespaced(client.clone(), namespace),
            namespace: namespace.to_owned(),
            recorder: Recorder::new(client, Reporter::from("nabu-hub")),
            written: HashMap::new(),
        }
    }

    /// Follows the objects until `shutdown`; `check` is ready while both watches are, and `loaded` is cancelled when the
    /// first state is in force.
    pub async fn run(
        mut self,
        config: ConfigHandle,
        (check, loaded): (Check, CancellationToken),
        shutdown: CancellationToken,
    ) {
        let resource = {
            let kind = GroupVersionKind::gvk(crd::GROUP, crd::VERSION, "GitOpsResponderConfig");
            ApiResource::from_gvk_with_plural(&kind, "gitopsresponderconfigs")
        };
        let config_writer = reflector::store::Writer::<DynamicObject>::new(resource);
        let configs = config_writer.as_reader();
        let (secrets, secret_writer) = reflector::store::<KubeSecret>();
        let config_events = reflector::reflector(
            config_writer,
            watcher(self.configs.clone(), watcher::Config::default()),
        )
        .default_backoff()
        .map(|event| event.map(drop));
        let secret_events = reflector::reflector(
            secret_writer,
            watcher(self.secrets.clone(), watcher::Config::default()),
        )
        .default_backoff()
        .map(|event| event.map(drop));
        let mut events = stream::select(config_events.boxed(), secret_events.boxed());
        loop {
            let Some(Some(event)) = shutdown.run_until_cancelled(events.next()).await else {
                return;
            };
            if let Err(error) = event {
                let reason = format!("cannot watch namespace {}: {error}", self.namespace);
                warn!(
                    "{reason}; check the rights of the hub's service account and the CRDs. Trying again"
                );
                check.set_unready(reason);
                continue;
            }
            if !(ready(&configs).await && ready(&secrets).await) {
                continue;
            }
            // More of the same burst is taken in one go.
            let _ = tokio::time::timeout(SETTLE, async {
                while let Some(Ok(())) = events.next().await {}
            })
            .await;
            self.take_over(&config, &configs, &secrets).await;
            check.set_ready();
            loaded.cancel();
        }
    }

    async fn take_over(
        &mut self,
        config: &ConfigHandle,
        configs: &Store<DynamicObject>,
        secrets: &Store<KubeSecret>,
    ) {
        let known = secrets.state();
        config
            .credentials()
            .replace(known.iter().map(|secret| self.credential(secret)).collect());
        let objects = configs.state();
        let documents = objects.iter().map(|object| document(object)).collect();
        let verdicts = config.apply(Snapshot {
            documents,
            unreadable: Vec::new(),
        });
        for verdict in verdicts {
            let object = objects.iter().find(|object| verdict.id == id(object));
            if let Some(object) = object {
                self.write_back(object, verdict).await;
            }
        }
    }

    fn credential(&self, secret: &KubeSecret) -> (CredentialRef, Arc<Secret>) {
        let reference = CredentialRef {
            namespace: self.namespace.clone(),
            name: secret.name_any(),
        };
        let values = secret.data.iter().flatten().filter_map(|(key, value)| {
            // What is no text is no credential of ours.
            Some((key.clone(), String::from_utf8(value.0.clone()).ok()?))
        });
        (reference, Arc::new(Secret::new(values)))
    }

    async fn write_back(&mut self, object: &DynamicObject, verdict: Verdict) {
        let said = (object.metadata.generation, verdict.clone());
        if self.written.get(&verdict.id) == Some(&said) {
            return;
        }
        let status = status(object, &verdict, Timestamp::now());
        if object.data.get("status") != Some(&status) {
            let patch = json!({
                "apiVersion": format!("{}/{}", crd::GROUP, crd::VERSION),
                "kind": "GitOpsResponderConfig",
                "status": status,
            });
            let params = PatchParams::apply(FIELD_MANAGER).force();
            let written = self
                .configs
                .patch_status(&object.name_any(), &params, &Patch::Apply(patch))
                .await;
            match written {
                Ok(_) => {}
                // Upstream's CRD of this name has no status to write to: the Event and the log say what there is to say.
                Err(kube::Error::Api(error)) if error.code == 404 => {
                    debug!(config = verdict.id, %error, "this object has no conditions");
                }
                Err(error) => {
                    warn!(config = verdict.id, %error, "cannot write the conditions of a configuration");
                    return;
                }
            }
        }
        self.announce(object, &verdict).await;
        self.written.insert(verdict.id.clone(), said);
    }

    async fn announce(&self, object: &DynamicObject, verdict: &Verdict) {
        let valid = verdict.problems.is_empty();
        let event = Event {
            type_: if valid {
                EventType::Normal
            } else {
                EventType::Warning
            },
            reason: if valid { "Valid" } else { "Invalid" }.to_owned(),
            note: Some(message(&verdict.to_string(), IN_FORCE)),
            action: "Validate".to_owned(),
            secondary: None,
        };
        let reference = object.object_ref(&ApiResource::from_gvk_with_plural(
            &GroupVersionKind::gvk(crd::GROUP, crd::VERSION, "GitOpsResponderConfig"),
            "gitopsresponderconfigs",
        ));
        if let Err(error) = self.recorder.publish(&event, &reference).await {
            debug!(config = verdict.id, %error, "cannot publish an Event");
        }
    }
}

async fn ready<K>(store: &Store<K>) -> bool
where
    K: reflector::Lookup + Clone + 'static,
    K::DynamicType: Eq + std::hash::Hash + Clone,
{
    tokio::time::timeout(Duration::ZERO, store.wait_until_ready())
        .await
        .is_ok_and(|ready| ready.is_ok())
}

fn id(object: &DynamicObject) -> String {
    format!(
        "{}/{}",
        object.namespace().unwrap_or_default(),
        object.name_any()
    )
}

/// The document without what changes by itself, so that a write to its status is no new version.
fn document(object: &DynamicObject) -> Document {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let spec = object.data.get("spec").cloned().unwrap_or(Value::Null);
    Document {
        origin: format!("gitopsresponderconfig {namespace}/{name}"),
        object: json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec}),
        namespace,
        name,
    }
}

/// The message of a condition and of an Event; both have limits.
fn message(text: &str, otherwise: &str) -> String {
    let text = if text.is_empty() { otherwise } else { text };
    text.chars().take(1000).collect()
}

fn status(object: &DynamicObject, verdict: &Verdict, now: Timestamp) -> Value {
    let valid = verdict.problems.is_empty();
    let supported = verdict.unsupported.is_empty();
    let condition = |kind: &str, holds: bool, reason: &str, text: String| {
        let status = if holds { "True" } else { "False" };
        let known = object
            .data
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let since = known
            .filter(|known| known["type"] == kind && known["status"] == status)
            .find_map(|known| known["lastTransitionTime"].as_str().map(str::to_owned));
        json!({
            "type": kind,
            "status": status,
            "reason": reason,
            "message": text,
            "lastTransitionTime": since.unwrap_or_else(|| format!("{now:.0}")),
            "observedGeneration": object.metadata.generation,
        })
    };
    json!({
        "observedGeneration": object.metadata.generation,
        "conditions": [
            condition(
                "Valid",
                valid,
                if valid { "Compiled" } else { "InvalidField" },
                message(&join(&verdict.problems), IN_FORCE),
            ),
            condition(
                "Supported",
                supported,
                if supported { "Supported" } else { "NotServed" },
                message(&join(&verdict.unsupported), "everything that it asks for is served"),
            ),
        ],
    })
}
