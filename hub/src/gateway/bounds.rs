//! What one agent may make the hub do: an agent that is broken or hostile ends its own session and costs nobody else.
//!
//! An honest agent never comes near these bounds. Whoever exceeds one is sent away for a while and named in the audit log;
//! nothing is lost, because its API server still holds what it has not told.

use std::time::Duration;

use nabu_proto::agent_v1::GoodbyeReason;
use tokio::time::Instant;

use super::Farewell;

/// Heartbeats that may come within one heartbeat interval. An honest agent sends one.
const HEARTBEATS: u32 = 60;
/// The store notes when an agent was last heard of, at most so often.
const TOUCH: Duration = Duration::from_secs(1);
/// Inventories that may begin within a minute. An honest agent sends one for each resync interval, a second at least.
const INVENTORIES: u32 = 120;
/// Frames for other clusters, or with the UID of another object, that are written to the audit log within a minute.
const AUDITED_REFUSALS: u32 = 20;
/// So many of them within a minute end the session. An honest agent sends none.
const REFUSALS: u32 = 200;
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
    touched: Option<Instant>,
}

impl FrameBounds {
    /// For an agent that was told to send a heartbeat so often.
    pub(super) fn new(heartbeat: Duration) -> Self {
        Self {
            heartbeats: Pace::new(heartbeat),
            inventories: Pace::new(Duration::from_mins(1)),
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

    #[tokio::test]
    async fn refused_frames_are_audited_as_far_as_somebody_may_want_to_read_them() {
        let now = Instant::now();
        let mut bounds = RefusalBounds::default();
        let audited = (0..REFUSALS).filter(|_| bounds.refusal(now).unwrap());
        assert_eq!(audited.count(), AUDITED_REFUSALS as usize);
        assert!(bounds.refusal(now).is_err());
    }
}
