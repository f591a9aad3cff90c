//! What one agent may make the hub do: an agent that is broken or hostile ends its own session and costs nobody else.
//!
//! An honest agent never comes near these bounds. Whoever exceeds one is sent away for a while and named in the audit log;
//! nothing is lost, because its API server still holds what it has not told. What was spent is counted for the cluster
//! and not for the session ([`agents`]): an agent that comes again at once has what it had left.

mod agents;
mod credit;
mod lately;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nabu_proto::agent_v1::GoodbyeReason;
use tokio::time::Instant;

use self::credit::Room;
use super::Farewell;
pub(super) use agents::Agents;
pub(super) use credit::CreditLine;
pub(super) use lately::RefusedLately;

/// Sessions that may be opened within a minute. An honest agent whose sessions break at once waits longer each time and
/// opens about ten, and two of them that take over from each other some eight.
const SESSIONS: u32 = 120;
/// Heartbeats that may come within one heartbeat interval. An honest agent sends one, the first after an interval.
const HEARTBEATS: u32 = 60;
/// The store notes when an agent was last heard of, at most so often.
const TOUCH: Duration = Duration::from_secs(1);
/// Inventories that may begin within a minute. An honest agent sends one for each session, however many objects it has,
/// and one for each resync interval, a second at least.
const INVENTORIES: u32 = 120;
/// Certificates that may be asked for within a minute. An honest agent asks for one at two thirds of a lifetime.
const RENEWALS: u32 = 30;
/// Frames for other clusters, or with the UID of another object, that are written to the audit log within a minute.
const AUDITED_REFUSALS: u32 = 20;
/// So many of them within a minute end the session. An honest agent sends none.
const REFUSALS: u32 = 200;
/// Frames that are refused within a minute, whatever the reason, with a line of the log for each.
const LOGGED_REFUSALS: u32 = 100;
/// EventResponses that one inventory may name.
pub(super) const INVENTORY: usize = 200_000;
/// Frames that cannot be read and are written to the audit log within an hour. An honest agent sends some: whoever may create objects
/// in its cluster decides what they hold.
const AUDITED_UNREADABLE: u32 = 20;
/// How long an agent that went too far shall keep away.
const AWAY: Duration = Duration::from_mins(1);

const MINUTE: Duration = Duration::from_mins(1);

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
        if self.is_over(now) {
            self.begun = Some(now);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count
    }

    /// Whether nothing counts any more.
    fn is_over(&self, now: Instant) -> bool {
        self.begun
            .is_none_or(|begun| now.saturating_duration_since(begun) >= self.window)
    }
}

/// What the agent of one cluster has spent of its bounds, in all of its sessions; clones share it.
#[derive(Clone, Debug)]
pub(super) struct AgentBounds(Arc<Mutex<Spent>>);

#[derive(Debug)]
struct Spent {
    sessions: Pace,
    heartbeats: Pace,
    inventories: Pace,
    renewals: Pace,
    refusals: Pace,
    logged: Pace,
    unreadable: Pace,
    touched: Option<Instant>,
    away_until: Option<Instant>,
    room: Room,
}

impl AgentBounds {
    /// For an agent that is told to send a heartbeat so often.
    fn new(heartbeat: Duration) -> Self {
        Self(Arc::new(Mutex::new(Spent {
            sessions: Pace::new(MINUTE),
            heartbeats: Pace::new(heartbeat),
            inventories: Pace::new(MINUTE),
            renewals: Pace::new(MINUTE),
            refusals: Pace::new(MINUTE),
            logged: Pace::new(MINUTE),
            unreadable: Pace::new(Duration::from_hours(1)),
            touched: None,
            away_until: None,
            room: Room::default(),
        })))
    }

    fn spent(&self) -> MutexGuard<'_, Spent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the agent gets no session: it was sent away, and that time is not over.
    pub(super) fn kept_away(&self, now: Instant) -> Option<Farewell> {
        let rest = self
            .spent()
            .away_until?
            .checked_duration_since(now)
            .filter(|rest| !rest.is_zero())?;
        let message =
            "this agent went too far and shall keep away; the hub's log and its audit log say why";
        let farewell = Farewell::new(GoodbyeReason::ProtocolError, message);
        Some(farewell.after(rest))
    }

    /// The agent went too far.
    pub(super) fn send_away(&self, now: Instant) {
        self.spent().away_until = Some(now + AWAY);
    }

    /// Takes the begin of a session.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn session(&self, now: Instant) -> Result<(), Farewell> {
        if self.spent().sessions.count(now) > SESSIONS {
            let message = format!("more than {SESSIONS} sessions within a minute");
            return Err(too_far(message));
        }
        Ok(())
    }

    /// Takes a heartbeat; `true` if the store should note it.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn heartbeat(&self, now: Instant) -> Result<bool, Farewell> {
        let mut spent = self.spent();
        if spent.heartbeats.count(now) > HEARTBEATS {
            let message = format!("more than {HEARTBEATS} heartbeats within one interval");
            return Err(too_far(message));
        }
        let due = spent
            .touched
            .is_none_or(|at| now.saturating_duration_since(at) >= TOUCH);
        if due {
            spent.touched = Some(now);
        }
        Ok(due)
    }

    /// Takes the begin of an inventory.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn inventory(&self, now: Instant) -> Result<(), Farewell> {
        if self.spent().inventories.count(now) > INVENTORIES {
            let message = format!("more than {INVENTORIES} inventories within a minute");
            return Err(too_far(message));
        }
        Ok(())
    }

    /// Takes a request for a certificate.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn renewal(&self, now: Instant) -> Result<(), Farewell> {
        if self.spent().renewals.count(now) > RENEWALS {
            let message = format!("more than {RENEWALS} certificates within a minute");
            return Err(too_far(message));
        }
        Ok(())
    }

    /// Takes a frame that no honest agent sends; `true` if the audit log should have it.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn refusal(&self, now: Instant) -> Result<bool, Farewell> {
        let count = self.spent().refusals.count(now);
        if count > REFUSALS {
            let message =
                format!("more than {REFUSALS} frames that were not allowed within a minute");
            return Err(too_far(message));
        }
        Ok(count <= AUDITED_REFUSALS)
    }

    /// Takes a frame that cannot be read; `true` if the audit log should have it.
    pub(super) fn unreadable(&self, now: Instant) -> bool {
        self.spent().unreadable.count(now) <= AUDITED_UNREADABLE
    }

    /// Whether a refused frame, whatever the reason, should have a line of the log.
    pub(super) fn is_worth_a_line(&self, now: Instant) -> bool {
        self.spent().logged.count(now) <= LOGGED_REFUSALS
    }

    /// Whether nothing would be different if it were forgotten.
    fn is_over(&self, now: Instant) -> bool {
        let spent = self.spent();
        let paces = [
            &spent.sessions,
            &spent.heartbeats,
            &spent.inventories,
            &spent.renewals,
            &spent.refusals,
            &spent.logged,
            &spent.unreadable,
        ];
        paces.into_iter().all(|pace| pace.is_over(now))
            && spent.away_until.is_none_or(|until| until <= now)
    }

    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.0) > 1
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
        let bounds = AgentBounds::new(INTERVAL);
        for beat in 0..1000 {
            let now = start + INTERVAL * beat;
            assert_eq!(bounds.heartbeat(now), Ok(true));
            assert_eq!(bounds.inventory(now), Ok(()));
        }
    }

    #[tokio::test]
    async fn an_honest_agent_whose_sessions_break_all_the_time_is_never_stopped() {
        let start = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        // Every other second a session with its inventory, and a resync interval of a second beside that.
        for second in 0..1000 {
            let now = start + Duration::from_secs(second);
            assert_eq!(bounds.kept_away(now), None);
            if second % 2 == 0 {
                assert_eq!(bounds.session(now), Ok(()));
                assert_eq!(bounds.inventory(now), Ok(()));
            }
            assert_eq!(bounds.inventory(now), Ok(()));
            assert!(bounds.heartbeat(now).is_ok());
        }
    }

    #[tokio::test]
    async fn a_flood_of_heartbeats_is_noted_once_and_ends_the_session() {
        let now = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        let noted = (0..HEARTBEATS).filter(|_| bounds.heartbeat(now).unwrap());
        assert_eq!(noted.count(), 1);
        let farewell = bounds.heartbeat(now).unwrap_err();
        assert_eq!(farewell.reason, GoodbyeReason::ProtocolError);
        assert_eq!(farewell.reconnect_after, AWAY);
        assert!(bounds.heartbeat(now + INTERVAL).is_ok());
    }

    #[tokio::test]
    async fn an_agent_that_was_sent_away_is_told_for_how_long_and_let_in_when_it_comes_then() {
        let now = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        assert_eq!(bounds.kept_away(now), None);
        bounds.send_away(now);
        let half = bounds.kept_away(now + AWAY / 2).unwrap();
        assert_eq!(half.reconnect_after, AWAY / 2);
        assert_eq!(bounds.kept_away(now + AWAY), None);
    }

    #[tokio::test]
    async fn sessions_are_not_opened_as_fast_as_they_are_asked_for() {
        let now = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        assert!((0..SESSIONS).all(|_| bounds.session(now).is_ok()));
        assert!(bounds.session(now).is_err());
        assert!(bounds.session(now + MINUTE).is_ok());
    }

    #[tokio::test]
    async fn certificates_are_not_made_as_fast_as_they_are_asked_for() {
        let now = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        assert!((0..RENEWALS).all(|_| bounds.renewal(now).is_ok()));
        assert!(bounds.renewal(now).is_err());
    }

    #[tokio::test]
    async fn refused_frames_are_audited_as_far_as_somebody_may_want_to_read_them() {
        let now = Instant::now();
        let bounds = AgentBounds::new(INTERVAL);
        let audited = (0..REFUSALS).filter(|_| bounds.refusal(now).unwrap());
        assert_eq!(audited.count(), AUDITED_REFUSALS as usize);
        assert!(bounds.refusal(now).is_err());
        let logged = (0..10_000).filter(|_| bounds.is_worth_a_line(now));
        assert_eq!(logged.count(), LOGGED_REFUSALS as usize);
    }
}
