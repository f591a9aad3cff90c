//! The inventory's decisions, as sentences: events go in, and what comes out is read as words.

mod finished;
mod flow;
mod lifecycle;
mod missing;
mod sessions;

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Effect, Event, Inventory, Settings};
use crate::object::{Object, Watched};
use crate::session::{Absence, Observation, Refusal, ToHub};
use crate::watch;

const PATIENCE: Duration = Duration::from_secs(5);
const RESYNC: Duration = Duration::from_mins(10);

/// An inventory, the time, and the number of the live session.
struct Rig {
    inventory: Inventory,
    now: Instant,
    session: u64,
}

impl Rig {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            slots: 32,
            kept_bytes: 1 << 20,
            security_event_wait: PATIENCE,
            resync: RESYNC,
        };
        change(&mut settings);
        Self {
            inventory: Inventory::new(settings),
            now: Instant::now(),
            session: 0,
        }
    }

    /// An inventory whose list of these objects is complete.
    fn listed(names: &[&str]) -> Self {
        let mut rig = Self::new();
        rig.list(names);
        rig
    }

    fn handle(&mut self, event: Event) -> Vec<String> {
        let effects = self.inventory.handle(self.now, event);
        effects.iter().map(words).collect()
    }

    fn list(&mut self, names: &[&str]) -> Vec<String> {
        let mut said = self.handle(Event::ListBegins);
        for name in names {
            said.extend(self.handle(Event::Listed(object(name, 1))));
        }
        said.extend(self.handle(Event::ListEnds));
        said
    }

    fn open(&mut self, credit: u32) -> Vec<String> {
        self.session += 1;
        self.handle(Event::SessionOpened {
            session: self.session,
            credit,
            resync: None,
        })
    }

    fn applied(&mut self, name: &str, revision: u8) -> Vec<String> {
        self.handle(Event::Applied(object(name, revision)))
    }

    fn prepared(&mut self, name: &str, revision: u8) -> Vec<String> {
        let event = Event::Prepared {
            session: self.session,
            observation: Box::new(observation(name, revision)),
        };
        self.handle(event)
    }

    /// The transport takes it, and the hub stores it.
    fn stored(&mut self, name: &str, revision: u8) -> Vec<String> {
        let mut said = self.handle(Event::FrameSent {
            session: self.session,
        });
        said.extend(self.handle(Event::Accepted {
            uid: name.parse().unwrap(),
            spec_hash: [revision; 32],
        }));
        said
    }

    fn missing(&mut self, name: &str) -> Vec<String> {
        let (session, uid) = (self.session, name.parse().unwrap());
        self.handle(Event::SecurityEventMissing { session, uid })
    }

    /// A change as the watch shows it.
    fn watch(&mut self, status: &serde_json::Value) -> Option<Vec<String>> {
        let watched = Watched::from_json(json!({
            "metadata": {"name": "a", "uid": "a", "generation": 1},
            "spec": {"action": {"type": "GitOpsChange"}, "responder": {"name": "ours"}},
            "status": status,
        }));
        let event = kube::runtime::watcher::Event::Apply(watched);
        let event = watch::to_inventory(event, &self.inventory, &["ours".to_owned()])?;
        Some(self.handle(event))
    }

    /// Time goes on to the next wake-up.
    fn wake(&mut self) -> Vec<String> {
        self.now = self.inventory.next_wake().unwrap();
        self.handle(Event::Tick)
    }

    fn assert_empty(&self) {
        assert!(self.inventory.is_empty() && self.inventory.entries.is_empty());
        assert!(self.inventory.queue.is_empty() && self.inventory.gone.is_empty());
        assert_eq!(self.inventory.kept_bytes, 0);
    }
}

fn object(name: &str, revision: u8) -> Box<Object> {
    Box::new(Object {
        uid: name.parse().unwrap(),
        name: name.to_owned(),
        generation: i64::from(revision),
        responder: "ours".to_owned(),
        spec_hash: [revision; 32],
        security_event: None,
        json: vec![b'x'; 100].into(),
    })
}

fn observation(name: &str, revision: u8) -> Observation {
    let object = object(name, revision);
    Observation {
        uid: object.uid,
        name: object.name,
        generation: object.generation,
        responder: object.responder,
        spec_hash: object.spec_hash,
        event_response: object.json,
        security_event: Err(Absence::NotFound),
    }
}

fn refusal(name: &str) -> Refusal {
    Refusal {
        uid: name.parse().unwrap(),
        reason: "Invalid",
        message: "spec.action is missing".to_owned(),
    }
}

fn words(effect: &Effect) -> String {
    match effect {
        Effect::Prepare(wanted) => {
            let how = match &wanted.object {
                Some(_) => "prepare",
                None => "read",
            };
            let without = if wanted.without_security_event {
                " without its event"
            } else {
                ""
            };
            format!("{how} {}{without}", wanted.name)
        }
        Effect::Send(ToHub::SnapshotBegin { id }) => format!("begin {id}"),
        Effect::Send(ToHub::SnapshotEnd { id, count }) => format!("end {id} of {count}"),
        Effect::Send(ToHub::Observed(observation)) => {
            format!("observed {} {}", observation.name, observation.generation)
        }
        Effect::Send(ToHub::Deleted {
            uid,
            own_success: true,
            ..
        }) => format!("own success {uid}"),
        Effect::Send(ToHub::Deleted {
            name,
            uid,
            still_there: true,
            ..
        }) if name.is_empty() => format!("ended {uid}"),
        Effect::Send(ToHub::Deleted {
            name, still_there, ..
        }) if *still_there => format!("out of hands {name}"),
        Effect::Send(ToHub::Deleted { name, uid, .. }) if name.is_empty() => format!("gone {uid}"),
        Effect::Send(ToHub::Deleted { name, .. }) => format!("deleted {name}"),
        Effect::Send(other) => format!("{other:?}"),
        Effect::WriteRefusal { refusal, name } => format!("refused {name} {}", refusal.reason),
        Effect::Synced => "synced".to_owned(),
        Effect::ResyncStarted => "resync".to_owned(),
    }
}
