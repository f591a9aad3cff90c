//! Fair order of attempts: a lane per credential, round-robin across clusters inside it, a bound per repository.
//!
//! A plain data structure without tasks; time is passed in. What it gives out is a [`Ticket`]; whoever holds one may
//! attempt, and gives it back when done. A cluster in a storm fills only its own line, a slow repository only its own
//! share of a lane, and a limit of a forge (see [`super::gate`]) holds up only the lane of the credential that met it.

pub mod standing;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use indexmap::IndexMap;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};
use serde::{Deserialize, Serialize};

use super::gate::{Budget, Gate};
use crate::change::{CredentialRef, ForgeTarget, ProviderKind};

/// Attempts at one time with one credential.
const LANE_WIDTH: usize = 16;
/// Attempts at one time in one repository of a lane.
const REPOSITORY_WIDTH: usize = 4;
/// The same for `noop`, which waits for nobody.
const NOOP_WIDTH: usize = 64;

/// Who shares limits: everything that goes through one credential (of a GitHub App, one installation) of one forge.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaneId {
    kind: ProviderKind,
    base_url: Option<String>,
    credential: Option<CredentialRef>,
    installation: Option<u64>,
}

/// The right to attempt in a repository of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    lane: LaneId,
    repository: String,
}

impl Ticket {
    /// The ticket that attempts at a target need.
    pub fn for_target(target: &ForgeTarget) -> Self {
        Self {
            lane: LaneId {
                kind: target.kind,
                base_url: target.base_url.clone(),
                credential: target.credential.clone(),
                installation: target.installation_id,
            },
            repository: target.repository.clone(),
        }
    }
}

/// All lanes of a hub.
#[derive(Debug, Default)]
pub struct Lanes {
    by_id: HashMap<LaneId, Lane>,
    gates: HashMap<LaneId, Gate>,
    /// Until when the budget of a lane last held somebody up.
    spent: HashMap<LaneId, Timestamp>,
    /// Gates that are not stored as they are now.
    changed: BTreeSet<LaneId>,
    github: Budget,
}

#[derive(Debug, Default)]
struct Lane {
    running: usize,
    running_in: HashMap<String, usize>,
    /// Clusters that have waiting responses; the front one is served next.
    turns: VecDeque<ClusterId>,
    /// Lines of each cluster by repository; the front one is served next.
    waiting: HashMap<ClusterId, IndexMap<String, VecDeque<ResponseKey>>>,
}

impl Lanes {
    /// Lanes whose gates are as they were stored, with a budget for each credential of GitHub.
    pub fn new(github: Budget, gates: impl IntoIterator<Item = (LaneId, Gate)>) -> Self {
        Self {
            gates: gates.into_iter().collect(),
            github,
            ..Self::default()
        }
    }

    /// Takes a ticket if the lane has room and nobody waits for the same, else puts the response into line.
    pub fn enter(&mut self, ticket: &Ticket, key: &ResponseKey, now: Timestamp) -> bool {
        let open = self.is_open(&ticket.lane, now);
        if !open {
            self.note_spent(&ticket.lane, now);
        }
        let lane = self.by_id.entry(ticket.lane.clone()).or_default();
        let queued = lane
            .waiting
            .values()
            .any(|line| line.contains_key(&ticket.repository));
        if open && !queued && lane.has_room(ticket) {
            lane.start(&ticket.repository);
            self.begin(&ticket.lane, now);
            return true;
        }
        lane.push(key.clone(), ticket.repository.clone());
        false
    }

    /// Takes a response out of the line that it stands in; `false` if it stands in none.
    pub fn withdraw(&mut self, key: &ResponseKey) -> bool {
        let withdrawn = self.by_id.values_mut().any(|lane| lane.withdraw(key));
        self.by_id
            .retain(|_, lane| lane.running > 0 || !lane.turns.is_empty());
        withdrawn
    }

    /// Gives a ticket back; whoever may attempt now comes with a ticket already taken. More than one may, because the
    /// room that became free can be of use to several repositories.
    pub fn leave(&mut self, ticket: &Ticket, now: Timestamp) -> Vec<(ResponseKey, Ticket)> {
        let Some(lane) = self.by_id.get_mut(&ticket.lane) else {
            return Vec::new();
        };
        lane.stop(&ticket.repository);
        let next = self.call(&ticket.lane, now);
        if let Some(lane) = self.by_id.get(&ticket.lane)
            && lane.running == 0
            && lane.turns.is_empty()
        {
            self.by_id.remove(&ticket.lane);
        }
        next
    }

    /// Whoever may attempt now because a gate has opened.
    pub fn open(&mut self, now: Timestamp) -> Vec<(ResponseKey, Ticket)> {
        self.gates.retain(|_, gate| !gate.is_idle(now));
        self.spent.retain(|id, _| self.gates.contains_key(id));
        let waiting: Vec<LaneId> = self.waiting_lanes().cloned().collect();
        waiting.iter().flat_map(|id| self.call(id, now)).collect()
    }

    /// When the first gate opens that somebody waits at; now, if it has opened and nobody was called yet. Where attempts
    /// run, whoever ends one calls the next.
    pub fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        let opens = |id: &LaneId| {
            let gate = self.gates.get(id);
            match gate.and_then(|gate| gate.opens_at(self.budget(id), now)) {
                Some(at) => Some(at),
                None => self
                    .by_id
                    .get(id)
                    .filter(|lane| lane.running == 0)
                    .map(|_| now),
            }
        };
        self.waiting_lanes().filter_map(opens).min()
    }

    /// Whether a limit of its forge holds a lane up.
    pub fn is_closed(&self, ticket: &Ticket, now: Timestamp) -> bool {
        let gate = self.gates.get(&ticket.lane);
        gate.is_some_and(|gate| gate.closed(now).is_some())
    }

    /// A forge said "later": the whole lane waits. `true` if it did not wait before.
    pub fn limit(&mut self, ticket: &Ticket, wait: Duration, reason: &str, now: Timestamp) -> bool {
        let gate = self.gates.entry(ticket.lane.clone()).or_default();
        let was_closed = gate.closed(now).is_some();
        gate.limit(wait, reason, now);
        self.changed.insert(ticket.lane.clone());
        !was_closed
    }

    /// A forge's budget with a credential is used up, or nearly: the whole lane waits until it begins anew. `true` if it did
    /// not wait before.
    pub fn hold(
        &mut self,
        ticket: &Ticket,
        until: Timestamp,
        reason: &str,
        now: Timestamp,
    ) -> bool {
        let gate = self.gates.entry(ticket.lane.clone()).or_default();
        let was_closed = gate.closed(now).is_some();
        let is_news = gate.hold(until, reason, now);
        if is_news {
            self.changed.insert(ticket.lane.clone());
        }
        is_news && !was_closed
    }

    /// Lanes that a limit of their forge holds up.
    pub fn closed(&self, now: Timestamp) -> usize {
        let closed = self
            .gates
            .values()
            .filter(|gate| gate.closed(now).is_some());
        closed.count()
    }

    /// Gates that could not be stored are to be stored again, as they are then.
    pub fn not_stored(&mut self, ids: impl IntoIterator<Item = LaneId>) {
        self.changed.extend(ids);
    }

    /// The gates that changed since the last call, to be stored.
    pub fn take_changed(&mut self) -> Vec<(LaneId, Gate)> {
        std::mem::take(&mut self.changed)
            .into_iter()
            .map(|id| {
                let gate = self.gates.get(&id).cloned().unwrap_or_default();
                (id, gate)
            })
            .collect()
    }

    fn budget(&self, id: &LaneId) -> Budget {
        match id.kind {
            ProviderKind::GithubApp | ProviderKind::GithubToken => self.github,
            ProviderKind::GitlabToken | ProviderKind::ForgejoToken | ProviderKind::Noop => {
                Budget::default()
            }
        }
    }

    /// Whether the lane's gate lets another attempt through.
    fn is_open(&self, id: &LaneId, now: Timestamp) -> bool {
        let Some(gate) = self.gates.get(id) else {
            return true;
        };
        let running = self.by_id.get(id).map_or(0, |lane| lane.running);
        gate.opens_at(self.budget(id), now).is_none() && (running == 0 || !gate.is_careful(now))
    }

    fn note_spent(&mut self, id: &LaneId, now: Timestamp) {
        let gate = self.gates.get(id);
        if let Some(until) = gate.and_then(|gate| gate.spent(self.budget(id), now)) {
            self.spent.insert(id.clone(), until);
        }
    }

    fn begin(&mut self, id: &LaneId, now: Timestamp) {
        let budget = self.budget(id);
        if !self.gates.contains_key(id) && budget == Budget::default() {
            return;
        }
        let gate = self.gates.entry(id.clone()).or_default();
        if gate.begin(budget, now) {
            self.changed.insert(id.clone());
        }
    }

    fn call(&mut self, id: &LaneId, now: Timestamp) -> Vec<(ResponseKey, Ticket)> {
        let mut next = Vec::new();
        while self.is_open(id, now) {
            let Some(lane) = self.by_id.get_mut(id) else {
                break;
            };
            let Some((key, repository)) = lane.pop(id) else {
                break;
            };
            lane.start(&repository);
            self.begin(id, now);
            next.push((
                key,
                Ticket {
                    lane: id.clone(),
                    repository,
                },
            ));
        }
        let is_waited_for = (self.by_id.get(id)).is_some_and(|lane| !lane.turns.is_empty());
        if is_waited_for {
            self.note_spent(id, now);
        }
        next
    }

    fn waiting_lanes(&self) -> impl Iterator<Item = &LaneId> {
        let waiting = self.by_id.iter().filter(|(_, lane)| !lane.turns.is_empty());
        waiting.map(|(id, _)| id)
    }

    /// Responses that stand in line.
    pub fn waiting(&self) -> usize {
        self.by_id
            .values()
            .flat_map(|lane| lane.waiting.values())
            .flat_map(IndexMap::values)
            .map(VecDeque::len)
            .sum()
    }
}

impl Lane {
    fn widths(kind: ProviderKind) -> (usize, usize) {
        if kind == ProviderKind::Noop {
            (NOOP_WIDTH, NOOP_WIDTH)
        } else {
            (LANE_WIDTH, REPOSITORY_WIDTH)
        }
    }

    fn has_room(&self, ticket: &Ticket) -> bool {
        self.has_room_in(ticket.lane.kind, &ticket.repository)
    }

    fn has_room_in(&self, kind: ProviderKind, repository: &str) -> bool {
        let (width, repository_width) = Self::widths(kind);
        self.running < width
            && self.running_in.get(repository).copied().unwrap_or(0) < repository_width
    }

    fn start(&mut self, repository: &str) {
        self.running += 1;
        *self.running_in.entry(repository.to_owned()).or_default() += 1;
    }

    fn stop(&mut self, repository: &str) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.running_in.get_mut(repository) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.running_in.remove(repository);
            }
        }
    }

    fn push(&mut self, key: ResponseKey, repository: String) {
        if !self.waiting.contains_key(&key.cluster) {
            self.turns.push_back(key.cluster.clone());
        }
        let cluster = self.waiting.entry(key.cluster.clone()).or_default();
        cluster.entry(repository).or_default().push_back(key);
    }

    fn withdraw(&mut self, key: &ResponseKey) -> bool {
        let Some(lines) = self.waiting.get_mut(&key.cluster) else {
            return false;
        };
        let waiting = |line: &VecDeque<ResponseKey>| line.iter().position(|other| other == key);
        let found = lines
            .values_mut()
            .find_map(|line| waiting(line).and_then(|at| line.remove(at)));
        lines.retain(|_, line| !line.is_empty());
        if lines.is_empty() {
            self.waiting.remove(&key.cluster);
            self.turns.retain(|cluster| *cluster != key.cluster);
        }
        found.is_some()
    }

    /// The next response that may attempt: the first cluster in turn that has one for a repository with room.
    fn pop(&mut self, id: &LaneId) -> Option<(ResponseKey, String)> {
        for turn in 0..self.turns.len() {
            let cluster = self.turns.get(turn)?.clone();
            let repository = self
                .waiting
                .get(&cluster)?
                .keys()
                .find(|repository| self.has_room_in(id.kind, repository))
                .cloned();
            let Some(repository) = repository else {
                continue;
            };
            self.turns.remove(turn);
            let key = self.take(&cluster, &repository)?;
            if self.waiting.contains_key(&cluster) {
                self.turns.push_back(cluster);
            }
            return Some((key, repository));
        }
        None
    }

    fn take(&mut self, cluster: &ClusterId, repository: &str) -> Option<ResponseKey> {
        let lines = self.waiting.get_mut(cluster)?;
        let (repository, mut line) = lines.shift_remove_entry(repository)?;
        let key = line.pop_front();
        // The rest of the line goes behind those of the other repositories.
        if !line.is_empty() {
            lines.insert(repository, line);
        }
        if lines.is_empty() {
            self.waiting.remove(cluster);
        }
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn ticket(repository: &str) -> Ticket {
        ticket_of(ProviderKind::ForgejoToken, repository)
    }

    fn ticket_of(kind: ProviderKind, repository: &str) -> Ticket {
        Ticket::for_target(&ForgeTarget {
            kind,
            base_url: Some("https://git.example".into()),
            repository: repository.into(),
            credential: Some(CredentialRef {
                namespace: "n".into(),
                name: "s".into(),
            }),
            installation_id: None,
            ca_bundle: None,
        })
    }

    fn key(cluster: &str, number: usize) -> ResponseKey {
        ResponseKey {
            cluster: cluster.parse().unwrap(),
            uid: format!("00000000-0000-4000-8000-{number:012}")
                .parse()
                .unwrap(),
        }
    }

    #[test]
    fn a_cluster_in_a_storm_does_not_starve_another() {
        let mut lanes = Lanes::default();
        let a = ticket("o/a");
        for number in 0..100 {
            lanes.enter(&a, &key("stormy", number), NOW);
        }
        assert!(!lanes.enter(&a, &key("calm", 0), NOW));
        let next: Vec<_> = (0..2)
            .flat_map(|_| lanes.leave(&a, NOW))
            .map(|(key, _)| key.cluster.to_string())
            .collect();
        assert!(next.contains(&"calm".to_owned()), "served next: {next:?}");
    }

    #[test]
    fn a_slow_repository_does_not_stall_the_rest_of_its_lane() {
        let mut lanes = Lanes::default();
        for number in 0..50 {
            lanes.enter(&ticket("o/slow"), &key("c", number), NOW);
        }
        assert!(lanes.enter(&ticket("o/quick"), &key("c", 99), NOW));
        let next = lanes.leave(&ticket("o/quick"), NOW);
        assert!(
            next.is_empty(),
            "the slow repository already has its share: {next:?}"
        );
    }

    #[test]
    fn a_cluster_takes_turns_between_its_repositories() {
        let mut lanes = Lanes::default();
        let first = ticket("o/first");
        assert!(lanes.enter(&first, &key("c", 0), NOW));
        lanes.limit(&first, Duration::from_secs(30), "slow down", NOW);
        for number in 1..10 {
            lanes.enter(&ticket("o/busy"), &key("c", number), NOW);
        }
        lanes.enter(&ticket("o/quiet"), &key("c", 99), NOW);
        lanes.leave(&first, NOW);
        let mut served = Vec::new();
        for second in 30..33 {
            for (_, ticket) in lanes.open(at(second)) {
                lanes.leave(&ticket, at(second));
                served.push(ticket.repository);
            }
        }
        assert_eq!(served, ["o/busy", "o/quiet", "o/busy"]);
    }

    #[test]
    fn whoever_leaves_the_line_is_not_called_and_holds_nobody_up() {
        let mut lanes = Lanes::default();
        let a = ticket("o/a");
        assert!(lanes.enter(&a, &key("c", 0), NOW));
        lanes.limit(&a, Duration::from_secs(30), "slow down", NOW);
        for number in 1..4 {
            lanes.enter(&a, &key("c", number), NOW);
        }
        lanes.enter(&a, &key("other", 1), NOW);
        lanes.leave(&a, NOW);
        assert!(lanes.withdraw(&key("c", 2)));
        assert!(lanes.withdraw(&key("other", 1)));
        assert!(!lanes.withdraw(&key("c", 2)), "it has left");
        assert_eq!(lanes.waiting(), 2);
        let mut served = Vec::new();
        for second in 30..40 {
            for (key, ticket) in lanes.open(at(second)) {
                lanes.leave(&ticket, at(second));
                served.push(key);
            }
        }
        assert_eq!(served, [key("c", 1), key("c", 3)]);
        assert!(lanes.by_id.is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_gate_that_could_not_be_stored_is_to_be_stored_again_as_it_is_then() {
        let mut lanes = Lanes::default();
        let a = ticket("o/a");
        lanes.limit(&a, Duration::from_secs(30), "slow down", NOW);
        let failed: Vec<LaneId> = lanes.take_changed().into_iter().map(|(id, _)| id).collect();
        lanes.limit(&a, Duration::from_mins(1), "slow down", NOW);
        assert!(lanes.take_changed().len() == 1 && lanes.take_changed().is_empty());
        lanes.not_stored(failed);
        let again = lanes.take_changed();
        assert_eq!(again[0].1.closed(NOW), Some((at(60), "slow down")));
    }

    #[test]
    fn every_response_in_line_is_served_once() {
        let mut lanes = Lanes::default();
        let mut running: VecDeque<Ticket> = VecDeque::new();
        let mut served = std::collections::HashSet::new();
        for number in 0..200 {
            let ticket = ticket(["o/a", "o/b", "o/c"][number % 3]);
            let key = key(["x", "y"][number % 2], number);
            if lanes.enter(&ticket, &key, NOW) {
                assert!(served.insert(key));
                running.push_back(ticket);
            }
        }
        while let Some(ticket) = running.pop_front() {
            for (key, ticket) in lanes.leave(&ticket, NOW) {
                assert!(served.insert(key));
                running.push_back(ticket);
            }
        }
        assert_eq!(served.len(), 200);
        assert_eq!(lanes.waiting(), 0);
        assert!(lanes.by_id.is_empty(), "an idle lane leaves nothing behind");
    }

    #[test]
    fn a_limit_holds_up_its_own_lane_and_stays_fair() {
        let mut lanes = Lanes::default();
        let (limited, other) = (ticket("o/a"), ticket_of(ProviderKind::GitlabToken, "o/a"));
        assert!(lanes.enter(&limited, &key("stormy", 0), NOW));
        lanes.limit(&limited, Duration::from_secs(30), "slow down", NOW);
        assert!(lanes.leave(&limited, NOW).is_empty());
        for number in 1..50 {
            assert!(!lanes.enter(&limited, &key("stormy", number), at(1)));
        }
        assert!(!lanes.enter(&limited, &key("calm", 0), at(1)));
        assert!(
            lanes.enter(&other, &key("stormy", 99), at(1)),
            "nobody else waits"
        );
        assert_eq!(
            (lanes.opens_at(at(1)), lanes.closed(at(1))),
            (Some(at(30)), 1)
        );
        assert!(lanes.open(at(29)).is_empty());

        // Then one at a time, a second apart, and the clusters in turn.
        let mut served = Vec::new();
        for second in 30..34 {
            let next = lanes.open(at(second));
            assert_eq!(next.len(), 1, "{second}");
            for (key, ticket) in next {
                served.push(key.cluster.to_string());
                assert!(lanes.open(at(second)).is_empty());
                assert!(lanes.leave(&ticket, at(second)).is_empty());
            }
        }
        assert_eq!(served[..2], ["stormy", "calm"]);
    }

    #[test]
    fn a_budget_is_kept_for_each_credential_of_github_and_survives_a_restart() {
        let budget = Budget {
            per_minute: 2,
            per_hour: 0,
        };
        let mut lanes = Lanes::new(budget, []);
        let ticket = ticket_of(ProviderKind::GithubApp, "o/a");
        assert!(lanes.enter(&ticket, &key("c", 1), at(0)));
        assert!(lanes.enter(&ticket, &key("c", 2), at(1)));
        assert!(!lanes.enter(&ticket, &key("c", 3), at(2)));
        let stored = lanes.take_changed();
        assert!(lanes.take_changed().is_empty(), "each state is stored once");

        let mut lanes = Lanes::new(budget, stored);
        assert!(!lanes.enter(&ticket, &key("c", 3), at(3)));
        assert_eq!(lanes.opens_at(at(3)), Some(at(60)));
        assert_eq!(
            lanes.opens_at(at(61)),
            Some(at(61)),
            "nobody was called in time"
        );
        assert_eq!(lanes.open(at(60)).len(), 1);
    }
}
