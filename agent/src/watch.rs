//! Owns the watch on `EventResponses`: one stream of what appears, changes and goes, that survives every failure.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::api::ListParams;
use kube::runtime::utils::Backoff as StreamBackoff;
use kube::runtime::watcher::{self, Error};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use nabu_common::ops::Check;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::inventory::{Event, Inventory};
use crate::metrics::Metrics;
use crate::object::{Object, Watched};
use crate::session::Backoff;

/// Objects of one page of a list: a page is in memory at once, whatever is finished included.
const PAGE: u32 = 100;

/// The longest wait before the watch is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// A watch that could not be started is taken as running again after this time without another failure.
const QUIET: Duration = Duration::from_secs(7);

/// What the API server says, until `shutdown`: failures are logged, counted and retried.
pub fn events(
    client: Client,
    metrics: Arc<Metrics>,
    check: Check,
    shutdown: CancellationToken,
) -> impl Stream<Item = watcher::Event<Watched>> + Send {
    let backoff = WatchBackoff(Backoff::new(Duration::from_millis(200), LONGEST_PAUSE));
    let config = watcher::Config::default().page_size(PAGE);
    let mut readiness = Readiness::new(client.clone(), check, shutdown);
    watch_objects(Api::<Watched>::all(client), config)
        .backoff(backoff)
        .filter_map(move |result| {
            let event = match result {
                Ok(event) => {
                    readiness.heard(matches!(event, watcher::Event::InitDone));
                    Some(event)
                }
                Err(error) => {
                    metrics.watch_restarts.inc();
                    report(&error, &mut readiness);
                    None
                }
            };
            std::future::ready(event)
        })
}

/// Keeps the readiness check true to what the watch can do.
struct Readiness {
    client: Client,
    check: Check,
    shutdown: CancellationToken,
    /// The first list is complete.
    synced: bool,
    /// Ends the look for an API server that is back; there if the watch could not be started.
    probe: Option<DropGuard>,
}

impl Readiness {
    fn new(client: Client, check: Check, shutdown: CancellationToken) -> Self {
        Self {
            client,
            check,
            shutdown,
            synced: false,
            probe: None,
        }
    }

    /// Something arrived.
    fn heard(&mut self, list_complete: bool) {
        self.synced |= list_complete;
        if self.synced && (list_complete || self.probe.take().is_some()) {
            self.check.set_ready();
        }
    }

    /// The list or the watch could not be started.
    fn failed(&mut self, reason: String) {
        self.check.set_unready(reason);
        self.probe = self.synced.then(|| self.look());
    }

    /// A watch that starts again says nothing until something happens: so the API server is asked.
    fn look(&self) -> DropGuard {
        let end = self.shutdown.child_token();
        let (client, check, ended) = (self.client.clone(), self.check.clone(), end.clone());
        tokio::spawn(async move {
            let api = Api::<Watched>::all(client);
            let look = async {
                loop {
                    tokio::time::sleep(QUIET).await;
                    if api.list(&ListParams::default().limit(1)).await.is_ok() {
                        return;
                    }
                }
            };
            if ended.run_until_cancelled(look).await.is_some() {
                check.set_ready();
            }
        });
        end.drop_guard()
    }
}

/// Translates for the inventory; `None` for what does not concern it.
pub fn to_inventory(
    event: watcher::Event<Watched>,
    inventory: &Inventory,
    responders: &[String],
) -> Option<Event> {
    match event {
        watcher::Event::Init => Some(Event::ListBegins),
        watcher::Event::InitDone => Some(Event::ListEnds),
        watcher::Event::InitApply(watched) => match read(&watched, responders) {
            Some(object) => Some(Event::Listed(Box::new(object))),
            None => settled(&watched),
        },
        watcher::Event::Apply(watched) => {
            let uid = watched.uid()?;
            if watched.is_for(responders) && inventory.knows(&uid, watched.generation()) {
                return None;
            }
            match read(&watched, responders) {
                Some(object) => Some(Event::Applied(Box::new(object))),
                None => settled(&watched),
            }
        }
        watcher::Event::Delete(watched) => watched.uid().map(Event::Deleted),
    }
}

fn settled(watched: &Watched) -> Option<Event> {
    let uid = watched.uid()?;
    Some(match watched.end {
        Some(end) => Event::Finished { uid, end },
        None => Event::Settled(uid),
    })
}

/// Shorter than kube's own: an API server that was restarted is missed by everybody.
struct WatchBackoff(Backoff);

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.0.next(Duration::from_millis(50), rand::random()))
    }
}

impl StreamBackoff for WatchBackoff {
    fn reset(&mut self) {
        self.0.reset();
    }
}

fn read(watched: &Watched, responders: &[String]) -> Option<Object> {
    watched
        .is_for(responders)
        .then_some(watched.json.as_deref())
        .flatten()
        .and_then(Object::read)
}

fn report(error: &Error, readiness: &mut Readiness) {
    match error {
        // A list that outlived its resource version starts over: that is how the API works.
        Error::WatchError(status) if status.code == 410 => {
            tracing::debug!("the watch starts over: its resource version is too old");
        }
        Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404 => {
            let reason = "the cluster has no EventResponse kind (security.ugallu.io/v1alpha1); apply its CRD";
            readiness.failed(reason.to_owned());
            tracing::warn!("{reason}. Will look again");
        }
        Error::InitialListFailed(cause) | Error::WatchStartFailed(cause) => {
            let reason = crate::status::chain(cause);
            readiness.failed(format!("cannot list and watch EventResponses: {reason}"));
            tracing::warn!(
                reason,
                "cannot list and watch EventResponses; will try again. Check the API server and our rights"
            );
        }
        other => tracing::warn!(
            reason = crate::status::chain(other),
            "the watch on EventResponses broke; it goes on"
        ),
    }
}
