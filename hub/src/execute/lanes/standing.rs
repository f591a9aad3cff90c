//! What lanes look like from outside: how many run and wait, and what holds them up.

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;

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
    /// Until when as many attempts have begun as the hub's own budget allows.
    pub spent: Option<Timestamp>,
    /// Whether attempts go one by one after a limit.
    pub careful: bool,
    /// When the next attempt may begin, if not now.
    pub opens_at: Option<Timestamp>,
}

/// What holds up everybody with a credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// It is the forge's, and not the hub's own.
    pub of_forge: bool,
    /// What it is, for people.
    pub detail: String,
    /// At least until then.
    pub until: Timestamp,
}

impl Limit {
    fn of_forge(until: Timestamp, said: &str) -> Self {
        Self {
            of_forge: true,
            detail: format!("everybody with this credential waits: {said}"),
            until,
        }
    }

    fn of_budget(until: Timestamp) -> Self {
        Self {
            of_forge: false,
            detail: "as many attempts with this credential have begun as --github-per-minute and --github-per-hour allow"
                .to_owned(),
            until,
        }
    }
}

impl Standing {
    /// The limit that the next attempt has to wait for, if any.
    pub fn limit(&self) -> Option<Limit> {
        let closed = self.closed.as_ref();
        let of_forge = closed.map(|(until, said)| Limit::of_forge(*until, said));
        of_forge.or_else(|| self.spent.map(Limit::of_budget))
    }
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
            spent: gate.and_then(|gate| gate.spent(self.budget(id), now)),
            careful: gate.is_some_and(|gate| gate.is_careful(now)),
            opens_at: gate.and_then(|gate| gate.opens_at(self.budget(id), now)),
        }
    }

    /// The hub's own budget, if it holds up those in line or was the last time that it did.
    pub fn last_budget(&self, id: &LaneId) -> Option<Limit> {
        self.spent.get(id).copied().map(Limit::of_budget)
    }

    /// The responses that stand in line.
    pub fn in_line(&self, id: &LaneId) -> Vec<ResponseKey> {
        let lane = self.by_id.get(id).into_iter();
        let lines = lane.flat_map(|lane| lane.waiting.values());
        let keys = lines.flat_map(|lines| lines.values().flatten());
        keys.cloned().collect()
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
    use crate::execute::gate::Budget;
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
        let limit = standing.limit().unwrap();
        assert_eq!((limit.of_forge, limit.until), (true, until));
        assert!(limit.detail.ends_with("slow down"), "{}", limit.detail);
        assert_eq!(lanes.in_line(&id), [key(2)]);
        assert_eq!(lanes.known(), [id]);
    }

    #[test]
    fn a_limit_begins_once_for_those_in_line_however_many_attempts_meet_it() {
        let (now, wait) = (Timestamp::UNIX_EPOCH, Duration::from_secs(30));
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut lanes = Lanes::default();
        let ticket = Ticket::for_target(&target());
        assert!(lanes.limit(&ticket, wait, "slow down", now));
        assert!(!lanes.limit(&ticket, wait, "slow down", at(1)), "longer");
        assert!(
            !lanes.hold(&ticket, at(99), "12 left", at(2)),
            "longer still"
        );
        assert!(lanes.hold(&ticket, at(200), "12 left", at(99)), "anew");
        assert!(
            !lanes.hold(&ticket, at(200), "12 left", at(150)),
            "the same"
        );
    }

    #[test]
    fn a_budget_that_is_used_up_is_a_limit_and_going_one_by_one_is_none() {
        let now = Timestamp::UNIX_EPOCH;
        let at = |second| Timestamp::from_second(second).unwrap();
        let budget = Budget {
            per_minute: 1,
            per_hour: 0,
        };
        let mut github = target();
        github.kind = ProviderKind::GithubToken;
        let (id, ticket) = (LaneId::of(&github), Ticket::for_target(&github));
        let mut lanes = Lanes::new(budget, []);
        assert!(lanes.enter(&ticket, &key(1), now));
        let limit = lanes.standing(&id, now).limit().unwrap();
        assert_eq!((limit.of_forge, limit.until), (false, at(60)));
        assert_eq!(lanes.standing(&id, at(60)).limit(), None);
        assert_eq!(lanes.last_budget(&id), None, "it held nobody up");
        assert!(!lanes.enter(&ticket, &key(2), at(1)));
        assert_eq!(lanes.open(at(60)).len(), 1);
        assert_eq!(lanes.last_budget(&id), Some(limit));

        let mut lanes = Lanes::default();
        lanes.limit(&ticket, Duration::from_secs(30), "slow down", now);
        assert!(lanes.enter(&ticket, &key(1), at(30)));
        let standing = lanes.standing(&id, at(30));
        assert!(standing.careful && standing.opens_at.is_some());
        assert_eq!(standing.limit(), None);
    }
}
