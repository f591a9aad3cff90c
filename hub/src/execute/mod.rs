//! Makes steps happen: keeps every unfinished response moving, fairly, and never one twice at a time.
//!
//! [`run`] is a loop over events (something was observed, a time has come, a step ended). It holds keys only; what a
//! response is stands in the store, so a restart begins where the last run ended. What to do is never decided here
//! (see [`crate::plan`]), and in which order is decided by [`lanes`].

mod advance;
mod close;
pub mod clusters;
pub mod gate;
mod groups;
pub mod lanes;
pub mod metrics;
pub mod operate;
mod record;
mod schedule;
#[cfg(test)]
mod tests;
mod update;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::change::ForgeTarget;
use crate::forge::registry::Forges;
use crate::response::Response;
use crate::routes::ConfigHandle;
use crate::store::{ResponseSummary, SharedStore, StoreError};
use advance::{Advanced, advance};
use clusters::ClusterDirectory;
pub use groups::Turns;
use lanes::{LaneId, Lanes, Ticket};
use metrics::ExecuteMetrics;
use schedule::Schedule;

/// Events that may wait before senders fall back to a scan of the store.
const INBOX: usize = 4096;
/// Responses that are planned or attempted at one time.
const CONCURRENT_STEPS: usize = 512;
/// Keys that one page of a scan brings.
const SCAN_PAGE: u32 = 512;
/// How long to leave a response alone after the store failed under it.
const AFTER_STORE_ERROR: Duration = Duration::from_secs(2);

/// Takes outward statuses that changed; the gateway sends them to agents.
pub trait StatusSink: Send + Sync {
    /// A newer whole status of a response is committed.
    fn publish(&self, summary: Arc<ResponseSummary>);
}

/// Settings of the executor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Attempts for every response; 0 leaves it to routes and objects.
    pub max_attempts: u32,
    /// Requests of a forge's budget that are left unused.
    pub reserve: u64,
}

/// Everything that steps need.
pub struct Context {
    /// The durable memory.
    pub store: SharedStore,
    /// The routes in force.
    pub config: ConfigHandle,
    /// Forge clients by target.
    pub forges: Arc<Forges>,
    /// Names and labels of clusters.
    pub clusters: ClusterDirectory,
    /// Where changed statuses go.
    pub statuses: Arc<dyn StatusSink>,
    /// Counters and gauges.
    pub metrics: ExecuteMetrics,
    /// Settings of the operator.
    pub settings: Settings,
    /// The lanes; starts with the gates that are stored.
    pub lanes: Mutex<Lanes>,
    /// Responses whose turn came when a ticket was given back outside the loop.
    pub called: Mutex<Vec<(ResponseKey, Ticket)>>,
    /// Responses that something is to be done for because of what became of others.
    pub woken: Mutex<Vec<ResponseKey>>,
    /// Who works on which group's pull request.
    pub groups: Turns,
}

impl Context {
    fn enter_lane(&self, ticket: &Ticket, key: &ResponseKey) -> bool {
        self.heed(ticket);
        lock(&self.lanes).enter(ticket, key, Timestamp::now())
    }

    /// A forge said "later" to one attempt: everybody with that credential waits.
    pub(crate) fn close_lane(&self, target: &ForgeTarget, wait: Duration, reason: &str) {
        let ticket = Ticket::for_target(target);
        let begins = lock(&self.lanes).limit(&ticket, wait, reason, Timestamp::now());
        if begins {
            self.note_limit(&ticket);
        }
    }

    /// A limit begins for those who stand in line.
    fn note_limit(&self, ticket: &Ticket) {
        let lanes = lock(&self.lanes);
        let limit = lanes.standing(ticket.lane(), Timestamp::now()).limit();
        let keys = lanes.in_line(ticket.lane());
        drop(lanes);
        if let Some(limit) = limit {
            record::note_limit_of_all(&self.store, keys, limit);
        }
    }

    /// Whether a limit holds up everybody with this credential.
    pub(crate) fn is_lane_closed(&self, target: &ForgeTarget) -> bool {
        let ticket = Ticket::for_target(target);
        self.heed(&ticket);
        lock(&self.lanes).is_closed(&ticket, Timestamp::now())
    }

    /// How the lane of a credential stands.
    pub(crate) fn standing(
        &self,
        lane: &lanes::LaneId,
        now: Timestamp,
    ) -> lanes::standing::Standing {
        lock(&self.lanes).standing(lane, now)
    }

    /// The hub's own budget, if it holds up those in line for a credential or was the last time that it did.
    fn last_budget(&self, lane: &LaneId) -> Option<lanes::standing::Limit> {
        lock(&self.lanes).last_budget(lane)
    }

    /// The lanes that somebody uses, or whose gate is remembered.
    pub(crate) fn known_lanes(&self) -> Vec<lanes::LaneId> {
        lock(&self.lanes).known()
    }

    /// What a forge last said of its budget with a credential holds everybody with it up before a limit does.
    fn heed(&self, ticket: &Ticket) {
        let (now, reserve) = (Timestamp::now(), self.settings.reserve);
        let spent = self.forges.sightings().spent(ticket.lane(), reserve, now);
        if let Some((until, reason)) = spent {
            let begins = lock(&self.lanes).hold(ticket, until, &reason, now);
            if begins {
                self.note_limit(ticket);
            }
        }
    }

    fn leave_lane(&self, ticket: &Ticket) {
        self.heed(ticket);
        let next = lock(&self.lanes).leave(ticket, Timestamp::now());
        lock(&self.called).extend(next);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Debug)]
enum Event {
    Observed(Arc<Response>),
    Deleted(ResponseKey, Farewell),
    Changed(ResponseKey),
}

/// Why an agent shows an EventResponse no longer.
#[derive(Clone, Copy, Debug)]
enum Farewell {
    /// It is gone.
    Gone,
    /// It is there, but finished or not for this responder any more.
    OutOfHands,
    /// An inventory left it out, and the agent cannot say why.
    LeftOut,
}

/// Tells the executor that something was observed. Never blocks; what does not fit is found again by a scan.
#[derive(Clone, Debug)]
pub struct Dispatcher {
    events: mpsc::Sender<Event>,
    overflow: Arc<Overflow>,
}

#[derive(Debug, Default)]
struct Overflow {
    happened: AtomicBool,
    wake: Notify,
}

/// What [`run`] reads from.
#[derive(Debug)]
pub struct Inbox {
    events: mpsc::Receiver<Event>,
    overflow: Arc<Overflow>,
}

/// A dispatcher and the inbox that it fills.
pub fn channel() -> (Dispatcher, Inbox) {
    let (sender, receiver) = mpsc::channel(INBOX);
    let overflow = Arc::<Overflow>::default();
    (
        Dispatcher {
            events: sender,
            overflow: Arc::clone(&overflow),
        },
        Inbox {
            events: receiver,
            overflow,
        },
    )
}

impl Dispatcher {
    /// A new or changed observation is stored.
    pub fn observed(&self, response: Arc<Response>) {
        if self.events.try_send(Event::Observed(response)).is_err() {
            self.overflow.happened.store(true, Ordering::Release);
            self.overflow.wake.notify_one();
        }
    }

    /// What is wanted of a response has changed: it is looked at without waiting for its turn.
    pub fn changed(&self, key: ResponseKey) {
        if self.events.try_send(Event::Changed(key)).is_err() {
            self.overflow.happened.store(true, Ordering::Release);
            self.overflow.wake.notify_one();
        }
    }

    /// An EventResponse is gone from its cluster. Should the inbox be full, the next inventory says it again.
    pub fn deleted(&self, key: ResponseKey) {
        self.end(Event::Deleted(key, Farewell::Gone));
    }

    /// An EventResponse is there, but finished or not for us any more. Should the inbox be full, the next inventory leaves
    /// out what is not finished here.
    pub fn out_of_hands(&self, key: ResponseKey) {
        self.end(Event::Deleted(key, Farewell::OutOfHands));
    }

    /// An inventory left an EventResponse out, and the agent cannot say whether it is gone. Should the inbox be full, the next
    /// one does so again.
    pub fn left_out(&self, key: ResponseKey) {
        self.end(Event::Deleted(key, Farewell::LeftOut));
    }

    fn end(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            warn!("the executor is behind; a deletion waits for the next inventory");
        }
    }
}

/// What a task of the executor ended with.
enum Finished {
    /// A response was advanced; a ticket that it held goes back.
    Advanced(ResponseKey, Result<Advanced, StoreError>, Option<Ticket>),
    /// A deletion was noted; `true` if that leaves work to do.
    Deleted(ResponseKey, Result<bool, StoreError>),
    /// Gates were stored, or not.
    Gates(Vec<LaneId>, Result<(), StoreError>),
    /// All groups were looked at; the responses that close theirs.
    Groups(Result<Vec<ResponseKey>, StoreError>),
}

/// Keeps every unfinished response moving until `shutdown`; attempts that run then are given `grace` to end.
pub async fn run(
    context: Arc<Context>,
    inbox: Inbox,
    shutdown: CancellationToken,
    grace: Duration,
) {
    let mut executor = Executor {
        context,
        schedule: Schedule::default(),
        steps: JoinSet::new(),
        scan: Scan::Due,
        storing_gates: false,
    };
    let Inbox {
        mut events,
        overflow,
    } = inbox;
    executor.look_at_groups();
    loop {
        executor.start_ready();
        executor.store_gates();
        let may_scan = !matches!(executor.scan, Scan::Done) && executor.schedule.ready() == 0;
        tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Some(finished) = executor.steps.join_next() => executor.finished(finished),
            Some(event) = events.recv(), if executor.schedule.ready() < INBOX => executor.event(event),
            Some(due) = executor.schedule.due() => executor.schedule.add(due.into_inner(), None),
            () = opening(&executor.context) => executor.open_lanes(),
            () = overflow.wake.notified() => {
                overflow.happened.store(false, Ordering::Release);
                executor.scan = Scan::Due;
            }
            () = std::future::ready(()), if may_scan => executor.scan_page().await,
        }
    }
    executor.drain(grace).await;
}

/// Waits until a gate opens that somebody waits at; for ever while there is none.
async fn opening(context: &Context) {
    let now = Timestamp::now();
    let opens = lock(&context.lanes).opens_at(now);
    match opens {
        Some(at) => {
            let wait = Duration::try_from(at.duration_since(now)).unwrap_or_default();
            tokio::time::sleep(wait).await;
        }
        None => std::future::pending().await,
    }
}

/// How far a scan of the store for unfinished responses has come.
enum Scan {
    /// It begins.
    Due,
    /// It goes on after this key.
    After(ResponseKey),
    /// None is under way.
    Done,
}

struct Executor {
    context: Arc<Context>,
    schedule: Schedule,
    steps: JoinSet<Finished>,
    scan: Scan,
    storing_gates: bool,
}

impl Executor {
    fn event(&mut self, event: Event) {
        match event {
            Event::Observed(response) => {
                let key = response.key().clone();
                self.schedule.add(key, Some(response));
            }
            Event::Deleted(key, farewell) => {
                let context = Arc::clone(&self.context);
                self.steps.spawn(async move {
                    let result = advance::mark_deleted(&context, &key, farewell).await;
                    Finished::Deleted(key, result)
                });
            }
            Event::Changed(key) => self.hurry(key),
        }
    }

    /// A response is to be advanced as soon as possible, even if it stands in line. One that was called from there at
    /// this moment is advanced with its ticket.
    fn hurry(&mut self, key: ResponseKey) {
        if !self.schedule.is_in_line(&key) {
            self.schedule.add(key, None);
        } else if lock(&self.context.lanes).withdraw(&key) {
            self.schedule.withdrawn(key);
        }
    }

    fn start_ready(&mut self) {
        while self.steps.len() < CONCURRENT_STEPS {
            let Some(start) = self.schedule.next() else {
                break;
            };
            let context = Arc::clone(&self.context);
            self.steps.spawn(async move {
                let key = start.key.clone();
                let (result, ticket) = advance(&context, start).await;
                Finished::Advanced(key, result, ticket)
            });
        }
        let metrics = &self.context.metrics;
        metrics.running.set(gauge(self.steps.len()));
        metrics.delayed.set(gauge(self.schedule.delayed()));
        metrics
            .queued
            .set(gauge(lock(&self.context.lanes).waiting()));
        metrics
            .limited
            .set(gauge(lock(&self.context.lanes).closed(Timestamp::now())));
    }

    fn open_lanes(&mut self) {
        let called = lock(&self.context.lanes).open(Timestamp::now());
        for (key, ticket) in called {
            self.schedule.call(key, ticket);
        }
    }

    /// Stores the gates that have changed, so that a restart keeps to them.
    fn store_gates(&mut self) {
        // One after the other, so that the newest state is the last one.
        if self.storing_gates {
            return;
        }
        let changed = lock(&self.context.lanes).take_changed();
        if changed.is_empty() {
            return;
        }
        self.storing_gates = true;
        let store = Arc::clone(&self.context.store);
        self.steps.spawn(async move {
            let ids = changed.iter().map(|(id, _)| id.clone()).collect();
            let stored = store.put_gates(changed).await;
            if stored.is_err() {
                tokio::time::sleep(AFTER_STORE_ERROR).await;
            }
            Finished::Gates(ids, stored)
        });
    }

    fn finished(&mut self, finished: Result<Finished, tokio::task::JoinError>) {
        match finished {
            Ok(Finished::Advanced(key, result, ticket)) => {
                if let Some(ticket) = ticket {
                    self.context.leave_lane(&ticket);
                }
                let advanced = result.unwrap_or_else(|error| {
                    error!(%key, error = %chain(&error), "the store failed; trying again");
                    Advanced::in_(AFTER_STORE_ERROR)
                });
                if self.schedule.ended(&key, advanced) {
                    self.hurry(key);
                }
            }
            Ok(Finished::Deleted(key, Ok(true))) => self.hurry(key),
            Ok(Finished::Deleted(_, Ok(false))) => {}
            Ok(Finished::Deleted(key, Err(error))) => {
                error!(%key, error = %chain(&error), "cannot note a deletion; it waits for the next inventory");
            }
            Ok(Finished::Gates(ids, stored)) => {
                self.storing_gates = false;
                if let Err(error) = stored {
                    error!(error = %chain(&error), "cannot store the limits of forges; trying again");
                    lock(&self.context.lanes).not_stored(ids);
                }
            }
            Ok(Finished::Groups(Ok(keys))) => lock(&self.context.woken).extend(keys),
            Ok(Finished::Groups(Err(error))) => {
                error!(error = %chain(&error), "cannot look at the groups; the next start does");
            }
            Err(error) => error!(%error, "a task of the executor was lost"),
        }
        let woken = std::mem::take(&mut *lock(&self.context.woken));
        for key in woken {
            self.hurry(key);
        }
        for (key, ticket) in std::mem::take(&mut *lock(&self.context.called)) {
            self.schedule.call(key, ticket);
        }
    }

    fn look_at_groups(&mut self) {
        let context = Arc::clone(&self.context);
        self.steps
            .spawn(async move { Finished::Groups(groups::reconsider_all(&context).await) });
    }

    async fn scan_page(&mut self) {
        let after = match std::mem::replace(&mut self.scan, Scan::Done) {
            Scan::Due => None,
            Scan::After(key) => Some(key),
            Scan::Done => return,
        };
        match self
            .context
            .store
            .unfinished(after.as_ref(), SCAN_PAGE)
            .await
        {
            Ok(keys) => {
                self.scan = keys.last().cloned().map_or(Scan::Done, Scan::After);
                for key in keys {
                    self.schedule.add(key, None);
                }
            }
            Err(error) => {
                error!(error = %chain(&error), "cannot read unfinished responses; trying again");
                self.scan = after.map_or(Scan::Due, Scan::After);
                tokio::time::sleep(AFTER_STORE_ERROR).await;
            }
        }
    }

    async fn drain(mut self, grace: Duration) {
        let ended = tokio::time::timeout(grace, async {
            while self.steps.join_next().await.is_some() {}
        });
        if ended.await.is_err() {
            warn!(
                running = self.steps.len(),
                "attempts were still running; the next start looks their changes up"
            );
            self.steps.abort_all();
        }
    }
}

fn gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
