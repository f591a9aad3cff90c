//! What one agent may make the hub do: an agent that is broken or hostile ends its own session and costs nobody else.
//!
//! An honest agent never comes near these bounds. Whoever exceeds one is sent away for a while and named in the audit log;
//! nothing is lost, because its API server still holds what it has not told.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nabu_common::ids::ClusterId;
use nabu_proto::agent_v1::GoodbyeReason;
use tokio::time::Instant;

use super::Farewell;

/// Heartbeats that may come within one heartbeat interval. An honest agent sends one.
const HEARTBEATS: u32 = 60;
/// The store notes when an agent was last heard of, at most so often.
const TOUCH: Duration = Duration::from_secs(1);
/// Inventories that may begin within a minute. An honest agent sends one for each resync interval, a second at least.
const INVENTORIES: u32 = 120;
/// Certificates that may be asked for within a minute. An honest agent asks for one at two thirds of a lifetime.
const RENEWALS: u32 = 30;
/// A refused session of a cluster is a line of the audit log, at most so often.
const REFUSED_SESSION: Duration = Duration::from_secs(10);
/// Frames for other clusters, or with the UID of another object, that are written to the audit log within a minute.
const AUDITED_REFUSALS: u32 = 20;
/// So many of them within a minute end the session. An honest agent sends none.
const REFUSALS: u32 = 200;
/// Observed frames after which the cluster's unfinished responses are counted again.
const LOOK_EVERY: u32 = 1024;
/// EventResponses that one inventory may name.
pub(super) const INVENTORY: usize = 200_000;
/// How long an agent that went too far shall keep away.
const AWAY: Duration = Duration::from_mins(1);

/// Counts what happens within a window of time.
#[derive(Debug)]
struct Pace {
    window: Duration,
    begun: Option<Instant>,
    count: u32,
}

impl Pace {
    fn new(window: Duration) -> Self {
        Self {
            window,
            begun: None,
            count: 0,
        }
    }

    /// Counts one more; gives how many there were within the window, this one among them.
    fn count(&mut self, now: Instant) -> u32 {
        if self.begun.is_none_or(|begun| now - begun >= self.window) {
            self.begun = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }
}

/// Bounds on frames that are cheap to send.
#[derive(Debug)]
pub(super) struct FrameBounds {
    heartbeats: Pace,
    inventories: Pace,
    renewals: Pace,
    touched: Option<Instant>,
}

impl FrameBounds {
    /// For an agent that was told to send a heartbeat so often.
    pub(super) fn new(heartbeat: Duration) -> Self {
        Self {
            heartbeats: Pace::new(heartbeat),
            inventories: Pace::new(Duration::from_mins(1)),
            renewals: Pace::new(Duration::from_mins(1)),
            touched: None,
        }
    }

    /// Takes a heartbeat; `true` if the store should note it.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn heartbeat(&mut self, now: Instant) -> Result<bool, Farewell> {
        if self.heartbeats.count(now) > HEARTBEATS {
            let message = format!("more than {HEARTBEATS} heartbeats within one interval");
            return Err(too_far(message));
        }
        let due = self.touched.is_none_or(|at| now - at >= TOUCH);
        if due {
            self.touched = Some(now);
        }
        Ok(due)
    }

    /// Takes the begin of an inventory.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn inventory(&mut self, now: Instant) -> Result<(), Farewell> {
        if self.inventories.count(now) > INVENTORIES {
            let message = format!("more than {INVENTORIES} inventories within a minute");
            return Err(too_far(message));
        }
        Ok(())
    }

    /// Takes a request for a certificate.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn renewal(&mut self, now: Instant) -> Result<(), Farewell> {
        if self.renewals.count(now) > RENEWALS {
            let message = format!("more than {RENEWALS} certificates within a minute");
            return Err(too_far(message));
        }
        Ok(())
    }
}

/// Which clusters were refused a session lately: an agent that comes again and again leaves no line each time.
#[derive(Debug, Default)]
pub(super) struct RefusedLately(Mutex<HashMap<(ClusterId, String), std::time::Instant>>);

impl RefusedLately {
    /// Whether the audit log should have a line of it. Bounded by the certificates that there are.
    pub(super) fn is_news(
        &self,
        cluster: &ClusterId,
        action: &str,
        now: std::time::Instant,
    ) -> bool {
        let key = (cluster.clone(), action.to_owned());
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < REFUSED_SESSION);
        if told.contains_key(&key) {
            return false;
        }
        told.insert(key, now);
        true
    }
}

/// Bounds on frames that no honest agent sends.
#[derive(Debug)]
pub(super) struct RefusalBounds(Pace);

impl Default for RefusalBounds {
    fn default() -> Self {
        Self(Pace::new(Duration::from_mins(1)))
    }
}

impl RefusalBounds {
    /// Takes one; `true` if the audit log should have it.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn refusal(&mut self, now: Instant) -> Result<bool, Farewell> {
        let count = self.0.count(now);
        if count > REFUSALS {
            let message =
                format!("more than {REFUSALS} frames that were not allowed within a minute");
            return Err(too_far(message));
        }
        Ok(count <= AUDITED_REFUSALS)
    }
}

/// Observed frames that an agent may send, and those for which it has not got its credit back.
#[derive(Debug)]
pub(super) struct CreditLine {
    left: u32,
    pub(super) owed: u32,
    /// Observed frames since somebody looked whether there is room; `None` before the first look.
    since_look: Option<u32>,
    held: bool,
}

impl CreditLine {
    /// An agent was told that it may send so many.
    pub(super) fn new(left: u32) -> Self {
        Self {
            left,
            owed: 0,
            since_look: None,
            held: false,
        }
    }

    /// Takes frames.
    ///
    /// # Errors
    /// If the agent has sent more than it may.
    pub(super) fn spend(&mut self, frames: u32) -> Result<(), Farewell> {
        let Some(left) = self.left.checked_sub(frames) else {
            return Err(too_far(
                "more Observed frames than there was credit for".to_owned(),
            ));
        };
        self.left = left;
        self.owed = self.owed.saturating_add(frames);
        if let Some(since) = &mut self.since_look {
            *since = since.saturating_add(frames);
        }
        Ok(())
    }

    /// Whether somebody should look if there is room.
    pub(super) fn is_due_for_a_look(&self) -> bool {
        self.held || self.since_look.is_none_or(|since| since >= LOOK_EVERY)
    }

    /// There is room.
    pub(super) fn looked(&mut self) {
        self.since_look = Some(0);
        self.held = false;
    }

    /// There is none; `true` if there was before.
    pub(super) fn hold(&mut self) -> bool {
        !std::mem::replace(&mut self.held, true)
    }

    /// Gives back what is owed.
    pub(super) fn settle(&mut self) -> u32 {
        let owed = std::mem::take(&mut self.owed);
        self.left = self.left.saturating_add(owed);
        owed
    }
}

/// The end of a session whose inventory has no end.
pub(super) fn endless_inventory() -> Farewell {
    too_far(format!(
        "an inventory of more than {INVENTORY} EventResponses; remove what is not wanted any more"
    ))
}

fn too_far(message: String) -> Farewell {
    Farewell::new(GoodbyeReason::ProtocolError, message).after(AWAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(20);

    #[tokio::test]
    async fn an_honest_agent_is_never_stopped_and_its_heartbeats_are_noted() {
        let start = Instant::now();
        let mut bounds = FrameBounds::new(INTERVAL);
        for beat in 0..1000 {
            let now = start + INTERVAL * beat;
            assert_eq!(bounds.heartbeat(now), Ok(true));
            assert_eq!(bounds.inventory(now), Ok(()));
        }
    }

    #[tokio::test]
    async fn a_flood_of_heartbeats_is_noted_once_and_ends_the_session() {
        let now = Instant::now();
        let mut bounds = FrameBounds::new(INTERVAL);
        let noted = (0..HEARTBEATS).filter(|_| bounds.heartbeat(now).unwrap());
        assert_eq!(noted.count(), 1);
        let farewell = bounds.heartbeat(now).unwrap_err();
        assert_eq!(farewell.reason, GoodbyeReason::ProtocolError);
        assert_eq!(farewell.reconnect_after, AWAY);
        assert!(bounds.heartbeat(now + INTERVAL).is_ok());
    }

    #[test]
    fn a_cluster_that_is_refused_again_and_again_is_written_down_now_and_then() {
        let (lately, now) = (RefusedLately::default(), std::time::Instant::now());
        let (one, other) = ("prod-eu".parse().unwrap(), "prod-us".parse().unwrap());
        assert!(lately.is_news(&one, "a", now));
        assert!(!lately.is_news(&one, "a", now));
        assert!(lately.is_news(&one, "b", now));
        assert!(lately.is_news(&other, "a", now));
        assert!(lately.is_news(&one, "a", now + REFUSED_SESSION));
    }

    #[test]
    fn credit_is_spent_once_and_comes_back_when_there_is_room() {
        let mut credit = CreditLine::new(2);
        assert!(credit.is_due_for_a_look(), "at the begin of a session");
        credit.looked();
        assert!(credit.spend(2).is_ok());
        assert!(credit.spend(1).is_err());
        assert!(!credit.is_due_for_a_look());
        assert_eq!((credit.settle(), credit.settle()), (2, 0));
        assert!(credit.spend(2).is_ok());
        assert!(credit.hold());
        assert!(!credit.hold(), "told once");
        assert!(credit.is_due_for_a_look());
    }

    #[tokio::test]
    async fn certificates_are_not_made_as_fast_as_they_are_asked_for() {
        let now = Instant::now();
        let mut bounds = FrameBounds::new(INTERVAL);
        assert!((0..RENEWALS).all(|_| bounds.renewal(now).is_ok()));
        assert!(bounds.renewal(now).is_err());
    }

    #[tokio::test]
    async fn refused_frames_are_audited_as_far_as_somebody_may_want_to_read_them() {
        let now = Instant::now();
        let mut bounds = RefusalBounds::default();
        let audited = (0..REFUSALS).filter(|_| bounds.refusal(now).unwrap());
        assert_eq!(audited.count(), AUDITED_REFUSALS as usize);
        assert!(bounds.refusal(now).is_err());
    }
}
