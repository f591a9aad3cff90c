//! Owns the Kubernetes Event by which people learn from `kubectl describe pod` that the agent is not certified, and what it
//! needs from them.
//!
//! Like those about responses ([`crate::events`]) it is a courtesy, left out if the API server does not want it: log,
//! readiness and metric say the same.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use crate::events::shortened;
use crate::metrics::Metrics;

/// When the same is said again: API servers keep Events for an hour, if they are not told otherwise.
const AGAIN: Duration = Duration::from_mins(30);
/// The least time between two that say something different.
const PACE: Duration = Duration::from_mins(1);

/// Tells of this process's own pod.
pub struct Notice {
    client: Client,
    pod: ObjectReference,
    metrics: Arc<Metrics>,
    last: Mutex<Option<(String, Instant)>>,
}

impl Notice {
    /// About the pod that the environment names (`POD_NAME`, `POD_UID`), in the client's own namespace; `None` outside of one.
    pub fn of_pod(client: &Client, metrics: &Arc<Metrics>) -> Option<Self> {
        let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let pod = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(client.default_namespace().to_owned()),
            name: Some(named("POD_NAME")?),
            uid: Some(named("POD_UID")?),
            ..ObjectReference::default()
        };
        Some(Self {
            client: client.clone(),
            pod,
            metrics: Arc::clone(metrics),
            last: Mutex::default(),
        })
    }

    /// The agent is not certified for this reason; never waits.
    pub fn not_certified(&self, reason: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if !is_due(last.as_ref(), reason, now) {
            return;
        }
        *last = Some((reason.to_owned(), now));
        drop(last);
        let recorder = Recorder::new(
            self.client.clone(),
            Reporter {
                controller: "nabu-agent".to_owned(),
                instance: self.pod.name.clone(),
            },
        );
        let event = Event {
            type_: EventType::Warning,
            reason: "NotCertified".to_owned(),
            note: Some(shortened(reason.to_owned())),
            action: "OpenSession".to_owned(),
            secondary: None,
        };
        let (pod, metrics) = (self.pod.clone(), Arc::clone(&self.metrics));
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &pod).await {
                metrics.events_dropped.inc();
                let error = crate::status::chain(&error);
                tracing::debug!(error, "left out a Kubernetes Event about this pod");
            }
        });
    }
}

fn is_due(last: Option<&(String, Instant)>, reason: &str, now: Instant) -> bool {
    last.is_none_or(|(said, at)| {
        let pause = if said == reason { AGAIN } else { PACE };
        now.duration_since(*at) >= pause
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_is_said_twice_an_hour_and_something_else_within_a_minute() {
        let begin = Instant::now();
        let last = Some(("it has none".to_owned(), begin));
        assert!(is_due(None, "it has none", begin));
        assert!(!is_due(last.as_ref(), "it has none", begin + AGAIN / 2));
        assert!(is_due(last.as_ref(), "it has none", begin + AGAIN));
        assert!(!is_due(last.as_ref(), "it ran out", begin + PACE / 2));
        assert!(is_due(last.as_ref(), "it ran out", begin + PACE));
    }
}
