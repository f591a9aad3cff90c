//! Owns the active agent: a thin loop that turns what happens into events for `inventory` and the status queue, and
//! makes their effects happen. It decides nothing.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use jiff::Timestamp;
use kube::Client;
use kube::runtime::watcher;
use nabu_common::ids::{ResponseUid, Revision};
use nabu_common::ops::Check;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use crate::events::Announcer;
use crate::identity::Identity;
use crate::inventory::{Effect, Event, Inventory, Settings};
use crate::metrics::{Metrics, PatchLabels};
use crate::object::Watched;
use crate::schema::Schema;
use crate::session::{FromHub, Introduction, Outbox, SessionEvent, ToHub};
use crate::status::{Outcome, Queue, Report, StatusUpdate, Writer, Written};
use crate::{read, session, watch};

/// Status writes at one time.
const PATCHES: usize = 32;
/// Frames from the hub that may wait; more stay in the transport.
const FRAMES: usize = 64;
/// How long writes that are under way may take at the end.
const DRAIN: Duration = Duration::from_secs(2);
/// How often gauges are set.
const GAUGES: Duration = Duration::from_secs(1);
/// How long not to ask for the schema again in the background.
const SCHEMA_PAUSE: Duration = Duration::from_secs(30);
/// Wake-ups further away than this need no timer.
const FAR: Duration = Duration::from_hours(1);
/// Why a status is not written to an object that has an end.
const ENDED: &str =
    "the EventResponse is finished, or not for this responder any more: its status stays as it is";

/// What an active agent works with.
#[derive(Clone)]
pub struct Context {
    /// The API server.
    pub client: Client,
    /// The address of the hub.
    pub endpoint: Endpoint,
    /// Shows the hub who we are.
    pub identity: Identity,
    /// What to say in Hello.
    pub introduction: Introduction,
    /// What bounds the inventory.
    pub inventory: Settings,
    /// What operators see.
    pub metrics: Arc<Metrics>,
    /// Ready after the first list.
    pub watch_check: Check,
    /// Ready while a session is open.
    pub session_check: Check,
}

/// What a task reports back.
enum Done {
    Read(Event),
    Wrote {
        uid: ResponseUid,
        revision: Option<Revision>,
        outcome: Outcome,
    },
}

/// Serves until `shutdown`, then lets writes that are under way end and closes the session.
pub async fn serve(context: Context, shutdown: CancellationToken) {
    let session_end = CancellationToken::new();
    let (events, mut frames) = mpsc::channel(FRAMES);
    let (notices, mut sent) = mpsc::unbounded_channel();
    let (done, mut results) = mpsc::unbounded_channel();
    let backlog = Arc::new(AtomicU64::new(0));
    let client = session::Client {
        endpoint: context.endpoint.clone(),
        identity: context.identity.clone(),
        introduction: context.introduction.clone(),
        backlog: Arc::clone(&backlog),
        metrics: Arc::clone(&context.metrics),
        check: context.session_check.clone(),
        events,
        notices,
    };
    let session_task = tokio::spawn(client.run(session_end.clone()));
    let mut objects = pin!(watch::events(
        context.client.clone(),
        Arc::clone(&context.metrics),
        context.watch_check.clone(),
        shutdown.clone(),
    ));
    let mut shell = Shell::new(&context, done, backlog, &shutdown);
    let mut gauges = tokio::time::interval(GAUGES);
    loop {
        let wake = tokio::time::Instant::from_std(shell.next_wake());
        tokio::select! {
            () = shutdown.cancelled() => break,
            Some(event) = frames.recv() => shell.on_session(event),
            Some(event) = sent.recv() => shell.on_session(event),
            Some(event) = results.recv() => shell.on_done(event),
            Some(event) = objects.next() => shell.on_watch(event),
            () = tokio::time::sleep_until(wake) => shell.step(Event::Tick),
            _ = gauges.tick() => shell.set_gauges(),
        }
        shell.start_writes();
    }
    let drain = async {
        while shell.statuses.running() > 0
            && let Some(event) = results.recv().await
        {
            shell.on_done(event);
        }
    };
    let _ = tokio::time::timeout(DRAIN, drain).await;
    drop(shell);
    session_end.cancel();
    let _ = tokio::time::timeout(DRAIN, session_task).await;
}

struct Shell {
    client: Client,
    responders: Arc<[String]>,
    inventory: Inventory,
    statuses: Queue,
    writer: Writer,
    schema: Schema,
    schema_asked_at: Option<Instant>,
    announcer: Announcer,
    metrics: Arc<Metrics>,
    backlog: Arc<AtomicU64>,
    done: mpsc::UnboundedSender<Done>,
    live: Option<(u64, Outbox)>,
    /// Statuses that are no end, until it is known which objects have one.
    early: HashMap<ResponseUid, Box<StatusUpdate>>,
    /// For tasks that need not be waited for.
    shutdown: CancellationToken,
}

impl Shell {
    fn new(
        context: &Context,
        done: mpsc::UnboundedSender<Done>,
        backlog: Arc<AtomicU64>,
        shutdown: &CancellationToken,
    ) -> Self {
        let schema = Schema::default();
        let mut shell = Self {
            client: context.client.clone(),
            responders: context.introduction.responders.clone().into(),
            inventory: Inventory::new(context.inventory.clone()),
            statuses: Queue::new(PATCHES),
            writer: Writer::new(context.client.clone(), schema.clone()),
            schema,
            schema_asked_at: None,
            announcer: Announcer::start(
                context.client.clone(),
                Arc::clone(&context.metrics),
                shutdown.clone(),
            ),
            metrics: Arc::clone(&context.metrics),
            backlog,
            done,
            live: None,
            early: HashMap::new(),
            shutdown: shutdown.clone(),
        };
        shell.refresh_schema(Instant::now());
        shell
    }

    fn next_wake(&self) -> Instant {
        let far = Instant::now() + FAR;
        [self.inventory.next_wake(), self.statuses.next_wake()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(far)
    }

    fn on_watch(&mut self, event: watcher::Event<Watched>) {
        if let Some(event) = watch::to_inventory(event, &self.inventory, &self.responders) {
            self.step(event);
        }
    }

    fn on_session(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Opened {
                session,
                outbox,
                credit,
                resync,
            } => {
                self.live = Some((session, outbox));
                self.step(Event::SessionOpened {
                    session,
                    credit,
                    resync,
                });
            }
            SessionEvent::Closed { superseded } => {
                self.live = None;
                self.early = HashMap::new();
                if superseded {
                    self.statuses.abandon();
                }
                self.step(Event::SessionClosed);
            }
            SessionEvent::FrameSent { session } => self.step(Event::FrameSent { session }),
            SessionEvent::Frame { frame, .. } => self.on_frame(frame),
        }
    }

    fn on_frame(&mut self, frame: FromHub) {
        match frame {
            FromHub::Accepted { uid, spec_hash } => self.step(Event::Accepted { uid, spec_hash }),
            FromHub::Refused(refusal) => {
                tracing::warn!(uid = %refusal.uid, reason = refusal.reason, message = refusal.message, "the hub refused an EventResponse");
                self.step(Event::Refused(refusal));
            }
            FromHub::Credit(more) => self.step(Event::Credit(more)),
            FromHub::Watching { responses, more } => {
                self.step(Event::Watching { responses, more });
            }
            FromHub::Missing(uids) => self.step(Event::Missing(uids)),
            FromHub::Status(update) => {
                if update.phase.is_terminal() {
                    self.step(Event::FinalStatusOrdered(update.uid.clone()));
                    self.step(Event::Watched {
                        uid: update.uid.clone(),
                        watched: update.watched,
                        spec: update.known_spec.clone(),
                    });
                } else if !self.inventory.is_synced() {
                    self.early.insert(update.uid.clone(), update);
                    return;
                }
                self.early.remove(&update.uid);
                self.statuses.offer(Instant::now(), update);
            }
        }
    }

    fn on_done(&mut self, done: Done) {
        match done {
            Done::Read(event) => self.step(event),
            Done::Wrote {
                uid,
                revision,
                outcome,
            } => {
                let frame = match self.statuses.done(Instant::now(), &uid, revision, outcome) {
                    Some(Report::Applied(uid, revision)) => ToHub::Applied { uid, revision },
                    Some(Report::Refused(uid, revision, reason)) => ToHub::StatusRefused {
                        uid,
                        revision,
                        reason,
                    },
                    None => return,
                };
                self.send(frame);
            }
        }
    }

    /// One event for the inventory, and its effects.
    fn step(&mut self, event: Event) {
        for effect in self.inventory.handle(Instant::now(), event) {
            match effect {
                Effect::Prepare(wanted) => {
                    let (client, responders, done) = (
                        self.client.clone(),
                        Arc::clone(&self.responders),
                        self.done.clone(),
                    );
                    // Nobody listens any more only when the agent stops.
                    tokio::spawn(async move {
                        let _ = done.send(Done::Read(
                            read::prepare(&client, &responders, wanted).await,
                        ));
                    });
                }
                Effect::Send(frame) => {
                    if matches!(frame, ToHub::Observed(_)) {
                        self.metrics.observed.inc();
                    }
                    self.send(frame);
                }
                Effect::WriteRefusal { refusal, name } => {
                    let session = self.live.as_ref().map_or(0, |(session, _)| *session);
                    let update = StatusUpdate::refused(&refusal, &name, session, Timestamp::now());
                    self.statuses.offer(Instant::now(), Box::new(update));
                }
                Effect::Synced => {
                    tracing::info!(
                        unfinished = self.inventory.len(),
                        "all EventResponses are listed"
                    );
                    for (_, update) in std::mem::take(&mut self.early) {
                        self.statuses.offer(Instant::now(), update);
                    }
                }
                Effect::ResyncStarted => {
                    self.metrics.resyncs.inc();
                }
            }
        }
    }

    /// A frame that does not fit is lost with its session: dropping the outbox ends it, and the next one starts over.
    fn send(&mut self, frame: ToHub) {
        let Some((_, outbox)) = &self.live else {
            return;
        };
        if let Err(overflow) = outbox.send(frame) {
            tracing::warn!(%overflow, "the session starts over");
            outbox.abort();
        }
    }

    fn start_writes(&mut self) {
        let now = Instant::now();
        while let Some(update) = self.statuses.next(now) {
            if (self.inventory).keeps_its_status_from(&update.uid, update.phase) {
                let (uid, revision) = (update.uid.clone(), update.revision);
                let outcome = Outcome::Refused(ENDED.to_owned());
                self.on_done(Done::Wrote {
                    uid,
                    revision,
                    outcome,
                });
                continue;
            }
            self.refresh_schema(now);
            let (writer, announcer, metrics, done) = (
                self.writer.clone(),
                self.announcer.clone(),
                Arc::clone(&self.metrics),
                self.done.clone(),
            );
            tokio::spawn(async move {
                let (uid, revision) = (update.uid.clone(), update.revision);
                let outcome = write(&writer, &announcer, &metrics, update).await;
                let _ = done.send(Done::Wrote {
                    uid,
                    revision,
                    outcome,
                });
            });
        }
    }

    /// Reads the schema again in the background if it is outdated, and not while the last try may still run.
    fn refresh_schema(&mut self, now: Instant) {
        let asked_lately = self
            .schema_asked_at
            .is_some_and(|at| now.saturating_duration_since(at) < SCHEMA_PAUSE);
        if asked_lately || !self.schema.is_outdated(now) {
            return;
        }
        self.schema_asked_at = Some(now);
        let (schema, client, shutdown) = (
            self.schema.clone(),
            self.client.clone(),
            self.shutdown.clone(),
        );
        tokio::spawn(async move { shutdown.run_until_cancelled(schema.refresh(&client)).await });
    }

    fn set_gauges(&self) {
        let backlog = self.inventory.backlog();
        self.backlog.store(backlog as u64, Ordering::Relaxed);
        self.metrics
            .backlog
            .set(i64::try_from(backlog).unwrap_or(i64::MAX));
        self.metrics
            .tracked
            .set(i64::try_from(self.inventory.len()).unwrap_or(i64::MAX));
    }
}

async fn write(
    writer: &Writer,
    announcer: &Announcer,
    metrics: &Metrics,
    update: Box<StatusUpdate>,
) -> Outcome {
    let started = Instant::now();
    let written = writer.write(&update).await;
    metrics
        .status_patch_seconds
        .observe(started.elapsed().as_secs_f64());
    let result = match written {
        Written::Stored => "stored",
        Written::Refused(_) => "refused",
        Written::Failed => "failed",
    };
    metrics
        .status_patches
        .get_or_create(&PatchLabels { result })
        .inc();
    match written {
        Written::Stored => {
            if update.phase.is_terminal() {
                tracing::info!(uid = %update.uid, name = update.name, phase = update.phase.as_str(), "response ended");
            }
            announcer.stored(&update);
            Outcome::Stored
        }
        Written::Refused(reason) => Outcome::Refused(reason),
        Written::Failed => Outcome::Failed(update),
    }
}
