//! The audit of calls to the admin API: what changes something is written before its answer goes out, questions are
//! written soon, and the same question again within a minute is counted instead of written.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::store::{AdminCall, SharedStore};

/// Questions that may wait to be written; more are counted as lost, and answered all the same.
const WAITING: usize = 1024;
/// Lines that share one write.
const BATCH: usize = 128;
/// Within this time the same question is written once.
const FOLD: Duration = Duration::from_mins(1);
/// Questions that are remembered at one time. More are about [`ANYTHING`], so that nobody fills memory, or the log, by
/// asking for what there is not.
const REMEMBERED: usize = 4096;
/// What a question is about that is one of too many.
const ANYTHING: &str = "*";
/// How often what was counted is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How long an answer waits for its audit line at most.
const PATIENCE: Duration = Duration::from_secs(5);

struct Entry {
    call: AdminCall,
    /// Told when the line is stored; only a change asks.
    stored: Option<oneshot::Sender<()>>,
}

/// Where calls are written down; clones share it.
#[derive(Clone)]
pub struct Journal {
    entries: mpsc::Sender<Entry>,
    lost: Counter,
}

/// What [`Journal`]s are written from.
pub struct Scribe {
    entries: mpsc::Receiver<Entry>,
}

/// A journal and its scribe.
pub fn journal(registry: &mut Registry) -> (Journal, Scribe) {
    let lost = Counter::default();
    registry.register(
        "nabu_hub_admin_audit_lost",
        "Calls to the admin API that could not be written to the audit log",
        lost.clone(),
    );
    let (sender, entries) = mpsc::channel(WAITING);
    let journal = Journal {
        entries: sender,
        lost,
    };
    (journal, Scribe { entries })
}

impl Journal {
    /// Writes a call down. `changes`: returns when it is stored, or after a few seconds.
    pub(super) async fn note(&self, call: AdminCall, changes: bool) {
        if !changes {
            let entry = Entry { call, stored: None };
            if self.entries.try_send(entry).is_err() {
                self.lost.inc();
            }
            return;
        }
        let (stored, told) = oneshot::channel();
        let entry = Entry {
            call,
            stored: Some(stored),
        };
        let writing = async {
            self.entries.send(entry).await.ok()?;
            told.await.ok()
        };
        if !matches!(tokio::time::timeout(PATIENCE, writing).await, Ok(Some(()))) {
            self.lost.inc();
            error!("a call to the admin API is not in the audit log");
        }
    }
}

/// A scribe at work.
pub struct Writing {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Writing {
    /// Ends after everything that was noted before is written.
    pub async fn finish(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            error!(%error, "the writer of the audit log was lost");
        }
    }
}

impl Scribe {
    /// Writes until it is told to finish.
    pub fn start(self, store: SharedStore) -> Writing {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.run(store, stop.clone()));
        Writing { stop, task }
    }

    /// Writes until `shutdown`, and then what is left.
    async fn run(mut self, store: SharedStore, shutdown: CancellationToken) {
        let mut folding = Folding::default();
        let mut entries = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                received = self.entries.recv_many(&mut entries, BATCH) => {
                    if received == 0 {
                        break;
                    }
                }
                () = tokio::time::sleep(LOOK), if !folding.is_empty() => {}
            }
            let mut lines = folding.over(Timestamp::now());
            write(&store, &mut entries, &mut folding, &mut lines).await;
        }
        self.entries.close();
        while let Some(entry) = self.entries.recv().await {
            entries.push(entry);
        }
        let mut lines = Vec::new();
        write(&store, &mut entries, &mut folding, &mut lines).await;
        store_lines(&store, folding.rest()).await;
    }
}

async fn write(
    store: &SharedStore,
    entries: &mut Vec<Entry>,
    folding: &mut Folding,
    lines: &mut Vec<AdminCall>,
) {
    let mut waiting = Vec::new();
    for entry in entries.drain(..) {
        match entry.stored {
            Some(stored) => {
                lines.push(entry.call);
                waiting.push(stored);
            }
            None => lines.extend(folding.take(entry.call)),
        }
    }
    if store_lines(store, std::mem::take(lines)).await {
        for stored in waiting {
            // Whoever waited may have gone away.
            let _ = stored.send(());
        }
    }
}

async fn store_lines(store: &SharedStore, lines: Vec<AdminCall>) -> bool {
    if lines.is_empty() {
        return true;
    }
    match store.audit_calls(lines).await {
        Ok(()) => true,
        Err(error) => {
            error!(%error, "cannot write calls of administrators to the audit log");
            false
        }
    }
}

/// Counts the same question within a minute of its first time.
#[derive(Debug, Default)]
struct Folding {
    seen: HashMap<(String, String, String, String), Seen>,
}

#[derive(Debug)]
struct Seen {
    first: AdminCall,
    last: Timestamp,
    again: u32,
}

impl Folding {
    fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// Gives a question back if it is to be written now.
    fn take(&mut self, mut call: AdminCall) -> Option<AdminCall> {
        let mut key = (
            call.actor.clone(),
            call.method.clone(),
            call.target.clone(),
            call.outcome.clone(),
        );
        if self.seen.len() >= REMEMBERED && !self.seen.contains_key(&key) {
            ANYTHING.clone_into(&mut key.2);
            ANYTHING.clone_into(&mut call.target);
        }
        if let Some(seen) = self.seen.get_mut(&key) {
            seen.again += 1;
            seen.last = call.at;
            return None;
        }
        let seen = Seen {
            first: call.clone(),
            last: call.at,
            again: 0,
        };
        self.seen.insert(key, seen);
        Some(call)
    }

    /// Lines for what was asked again and whose minute is over.
    fn over(&mut self, now: Timestamp) -> Vec<AdminCall> {
        let over = |seen: &Seen| {
            seen.first
                .at
                .saturating_add(FOLD)
                .is_ok_and(|end| end <= now)
        };
        let ended = self.seen.extract_if(|_, seen| over(seen));
        ended.filter_map(|(_, seen)| seen.line()).collect()
    }

    /// Lines for everything that was asked again.
    fn rest(&mut self) -> Vec<AdminCall> {
        let rest = self.seen.drain();
        rest.filter_map(|(_, seen)| seen.line()).collect()
    }
}

impl Seen {
    fn line(self) -> Option<AdminCall> {
        (self.again > 0).then(|| AdminCall {
            at: self.last,
            detail: format!("{} times more since {:.0}", self.again, self.first.at),
            ..self.first
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(second: i64, target: &str) -> AdminCall {
        AdminCall {
            at: Timestamp::from_second(1_800_000_000 + second).unwrap(),
            actor: "admin/ada".to_owned(),
            method: "nabu.admin.v1.AdminService/GetResponse".to_owned(),
            target: target.to_owned(),
            outcome: "Ok".to_owned(),
            detail: String::new(),
        }
    }

    #[test]
    fn the_same_question_within_a_minute_is_written_once_and_then_counted() {
        let mut folding = Folding::default();
        assert!(folding.take(call(0, "a")).is_some());
        assert!(folding.take(call(1, "b")).is_some(), "another question");
        assert!(folding.take(call(2, "a")).is_none());
        assert!(folding.take(call(3, "a")).is_none());
        assert!(folding.over(call(59, "").at).is_empty());
        let lines = folding.over(call(61, "").at);
        assert_eq!(lines.len(), 1, "what was asked once needs no second line");
        assert_eq!((lines[0].at, &*lines[0].target), (call(3, "").at, "a"));
        assert!(lines[0].detail.starts_with("2 times more since 2027-"));
        assert!(folding.is_empty());
        assert!(folding.take(call(62, "a")).is_some(), "a new minute");
    }

    #[test]
    fn questions_about_ever_new_things_fill_neither_memory_nor_the_log() {
        let mut folding = Folding::default();
        let asked = (0..100_000).map(|number| call(0, &number.to_string()));
        let written = asked
            .filter_map(|call| folding.take(call))
            .collect::<Vec<_>>();
        assert_eq!(written.len(), REMEMBERED + 1);
        assert_eq!(written.last().unwrap().target, ANYTHING);
        assert_eq!(folding.seen.len(), REMEMBERED + 1);
        let lines = folding.over(call(61, "").at);
        let counted = lines.iter().map(|line| (&*line.target, &*line.detail));
        let counted: Vec<_> = counted.collect();
        assert_eq!(counted.len(), 1);
        assert!(counted[0].1.starts_with("95903 times more"), "{counted:?}");
    }
}
