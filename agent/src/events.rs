//! Owns the Kubernetes Events about EventResponses that people see with `kubectl describe`: one when a response ends, and no
//! others.
//!
//! They are a courtesy: published one after the other behind the status writes, and left out when there are too many or
//! the API server does not want them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use nabu_common::ids::ResponseUid;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::object::{GROUP, KIND, VERSION};
use crate::status::{Phase, StatusUpdate};

/// Events that may wait.
const QUEUE: usize = 1024;
/// The least time between two of them, so that a storm of responses does not cost the status writes their share of the
/// API server.
const PACE: Duration = Duration::from_millis(20);
/// A status may be stored twice, a transition happens once: so many are remembered.
const REMEMBERED: usize = 512;
/// The most characters of a note, by the API's rule of 1 kB.
const NOTE_BYTES: usize = 1000;

/// A response that ended.
#[derive(Debug, PartialEq, Eq)]
struct Transition {
    uid: ResponseUid,
    name: String,
    phase: Phase,
    note: String,
}

/// Takes transitions; never waits.
#[derive(Clone, Debug)]
pub struct Announcer {
    queue: mpsc::Sender<Transition>,
    metrics: Arc<Metrics>,
}

impl Announcer {
    /// Starts publishing, until `shutdown`.
    pub fn start(client: Client, metrics: Arc<Metrics>, shutdown: CancellationToken) -> Self {
        let (queue, transitions) = mpsc::channel(QUEUE);
        let announcer = Self {
            queue,
            metrics: Arc::clone(&metrics),
        };
        tokio::spawn(async move {
            shutdown
                .run_until_cancelled(publish(client, metrics, transitions))
                .await
        });
        announcer
    }

    /// Announces a stored status, if it ends its response.
    pub fn stored(&self, update: &StatusUpdate) {
        if !update.phase.is_terminal() {
            return;
        }
        let transition = Transition {
            uid: update.uid.clone(),
            name: update.name.clone(),
            phase: update.phase,
            note: shortened(update.sentence().to_owned()),
        };
        if self.queue.try_send(transition).is_err() {
            self.metrics.events_dropped.inc();
        }
    }
}

async fn publish(
    client: Client,
    metrics: Arc<Metrics>,
    mut transitions: mpsc::Receiver<Transition>,
) {
    let mut recent = VecDeque::with_capacity(REMEMBERED);
    let mut pace = tokio::time::interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while let Some(transition) = transitions.recv().await {
        let key = (transition.uid.clone(), transition.phase);
        if recent.contains(&key) {
            continue;
        }
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(key);
        pace.tick().await;
        // A recorder keeps each Event for six minutes to count repetitions. Ours have none, and would cost megabytes in
        // a storm: so each gets a recorder of its own.
        let recorder = Recorder::new(client.clone(), Reporter::from("nabu-agent"));
        if let Err(error) = recorder
            .publish(&event(&transition), &reference(&transition))
            .await
        {
            metrics.events_dropped.inc();
            tracing::debug!(
                name = transition.name,
                error = crate::status::chain(&error),
                "left out a Kubernetes Event"
            );
        }
    }
}

fn event(transition: &Transition) -> Event {
    let normal = transition.phase == Phase::Succeeded;
    Event {
        type_: if normal {
            EventType::Normal
        } else {
            EventType::Warning
        },
        reason: transition.phase.as_str().to_owned(),
        note: (!transition.note.is_empty()).then(|| transition.note.clone()),
        action: "GitOpsChange".to_owned(),
        secondary: None,
    }
}

fn reference(transition: &Transition) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/{VERSION}")),
        kind: Some(KIND.to_owned()),
        name: Some(transition.name.clone()),
        uid: Some(transition.uid.to_string()),
        ..ObjectReference::default()
    }
}

/// As much of a text as fits into an Event.
pub(crate) fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(NOTE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_cut_between_characters() {
        assert_eq!(shortened("short".to_owned()), "short");
        assert!(shortened("ä".repeat(600)).len() <= NOTE_BYTES);
    }

    #[test]
    fn success_is_normal_and_any_other_end_a_warning() {
        let ended = |phase| Transition {
            uid: "a".parse().unwrap(),
            name: "a".to_owned(),
            phase,
            note: "n".to_owned(),
        };
        assert_eq!(event(&ended(Phase::Succeeded)).type_, EventType::Normal);
        assert_eq!(event(&ended(Phase::Failed)).type_, EventType::Warning);
        assert_eq!(event(&ended(Phase::Cancelled)).reason, "Cancelled");
    }
}
