//! Owns the watch on `EventResponses`: one stream of what appears, changes and goes, that survives every failure.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use kube::runtime::utils::Backoff as StreamBackoff;
use kube::runtime::watcher::{self, Error};
use kube::runtime::{WatchStreamExt as _, watcher as watch_objects};
use kube::{Api, Client};
use nabu_common::ops::Check;

use crate::inventory::{Event, Inventory};
use crate::metrics::Metrics;
use crate::object::{Object, Watched};
use crate::session::Backoff;

/// Objects of one page of a list: a page is in memory at once, whatever is finished included.
const PAGE: u32 = 100;

/// What the API server says, for ever: failures are logged, counted and retried.
pub fn events(
    client: Client,
    metrics: Arc<Metrics>,
    check: Check,
) -> impl Stream<Item = watcher::Event<Watched>> + Send {
    let backoff = WatchBackoff(Backoff::new(
        Duration::from_millis(200),
        Duration::from_secs(10),
    ));
    let config = watcher::Config::default().page_size(PAGE);
    watch_objects(Api::<Watched>::all(client), config)
        .backoff(backoff)
        .filter_map(move |result| {
            let event = match result {
                Ok(event) => {
                    if matches!(event, watcher::Event::InitDone) {
                        check.set_ready();
                    }
                    Some(event)
                }
                Err(error) => {
                    metrics.watch_restarts.inc();
                    report(&error, &check);
                    None
                }
            };
            std::future::ready(event)
        })
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
            None => watched.uid().map(Event::Settled),
        },
        watcher::Event::Apply(watched) => {
            let uid = watched.uid()?;
            if watched.is_for(responders) && inventory.knows(&uid, watched.generation()) {
                return None;
            }
            match read(&watched, responders) {
                Some(object) => Some(Event::Applied(Box::new(object))),
                None => Some(Event::Settled(uid)),
            }
        }
        watcher::Event::Delete(watched) => watched.uid().map(Event::Deleted),
    }
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

fn report(error: &Error, check: &Check) {
    // A list that outlived its resource version starts over: that is how the API works.
    if let Error::WatchError(status) = error
        && status.code == 410
    {
        tracing::debug!("the watch starts over: its resource version is too old");
        return;
    }
    let missing =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 404);
    match error {
        Error::InitialListFailed(cause) if missing(cause) => {
            let reason = "the cluster has no EventResponse kind (security.ugallu.io/v1alpha1); apply its CRD";
            check.set_unready(reason);
            tracing::warn!("{reason}. Will look again");
        }
        Error::InitialListFailed(cause) => {
            let reason = crate::status::chain(cause);
            check.set_unready(format!("cannot list EventResponses: {reason}"));
            tracing::warn!(
                reason,
                "cannot list EventResponses; will try again. Check the API server and our rights"
            );
        }
        other => tracing::warn!(
            reason = crate::status::chain(other),
            "the watch on EventResponses broke; it goes on"
        ),
    }
}
