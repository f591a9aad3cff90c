//! What lanes look like from outside: how many run and wait, and what holds them up.

use jiff::Timestamp;

use super::{Lane, LaneId, Lanes, Ticket};
use crate::change::{CredentialRef, ForgeTarget, ProviderKind};

/// How the lane of one credential stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Attempts that run.
    pub running: usize,
    /// Responses in line.
    pub waiting: usize,
    /// Until when the forge wants nothing, and what it said.
    pub closed: Option<(Timestamp, String)>,
    /// Whether attempts go one by one after a limit.
    pub careful: bool,
    /// When the next attempt may begin, if not now.
    pub opens_at: Option<Timestamp>,
}

impl Ticket {
    /// The lane that it is for.
    pub fn lane(&self) -> &LaneId {
        &self.lane
    }
}

impl LaneId {
    /// The lane of a target.
    pub fn of(target: &ForgeTarget) -> Self {
        Ticket::for_target(target).lane
    }

    /// Forge software and authentication.
    pub fn kind(&self) -> ProviderKind {
        self.kind
    }

    /// Base URL of a self-hosted forge.
    pub fn base_url(&self) -> Option<&str> {
        self.base_url.as_deref()
    }

    /// The Secret with the credential.
    pub fn credential(&self) -> Option<&CredentialRef> {
        self.credential.as_ref()
    }
}

impl Lanes {
    /// How a lane stands; one that nobody has used stands open and empty.
    pub fn standing(&self, id: &LaneId, now: Timestamp) -> Standing {
        let lane = self.by_id.get(id);
        let gate = self.gates.get(id);
        let closed = gate.and_then(|gate| gate.closed(now));
        Standing {
            running: lane.map_or(0, |lane| lane.running),
            waiting: lane.map_or(0, Lane::in_line),
            closed: closed.map(|(until, reason)| (until, reason.to_owned())),
            careful: gate.is_some_and(|gate| gate.is_careful(now)),
            opens_at: gate.and_then(|gate| gate.opens_at(self.budget(id), now)),
        }
    }

    /// The lanes that are known: someone runs or waits there, or a gate is remembered.
    pub fn known(&self) -> Vec<LaneId> {
        let mut known: Vec<_> = self
            .by_id
            .keys()
            .chain(self.gates.keys())
            .cloned()
            .collect();
        known.sort();
        known.dedup();
        known
    }
}

impl Lane {
    fn in_line(&self) -> usize {
        let lines = self.waiting.values().flat_map(|lines| lines.values());
        lines.map(std::collections::VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fixtures::{key, target};

    #[test]
    fn a_lane_that_a_forge_limits_says_until_when_and_who_waits() {
        let now = Timestamp::UNIX_EPOCH;
        let mut lanes = Lanes::default();
        let id = LaneId::of(&target());
        assert_eq!(lanes.standing(&id, now), Standing::default());
        let ticket = Ticket::for_target(&target());
        assert!(lanes.enter(&ticket, &key(1), now));
        lanes.limit(&ticket, Duration::from_secs(30), "slow down", now);
        assert!(!lanes.enter(&ticket, &key(2), now));
        let standing = lanes.standing(&id, now);
        assert_eq!((standing.running, standing.waiting), (1, 1));
        let until = Timestamp::from_second(30).unwrap();
        assert_eq!(standing.closed, Some((until, "slow down".to_owned())));
        assert_eq!(standing.opens_at, Some(until));
        assert_eq!(lanes.known(), [id]);
    }
}
