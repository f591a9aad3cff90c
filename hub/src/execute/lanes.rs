//! Fair order of attempts: a lane per credential, round-robin across clusters inside it, a bound per repository.
//!
//! A plain data structure without time or tasks. What it gives out is a [`Ticket`]; whoever holds one may attempt,
//! and gives it back when done. A cluster in a storm fills only its own line, and a slow repository only its own
//! share of a lane.

use std::collections::{HashMap, VecDeque};

use nabu_common::ids::{ClusterId, ResponseKey};

use crate::change::{CredentialRef, ForgeTarget, ProviderKind};

/// Attempts at one time with one credential.
const LANE_WIDTH: usize = 16;
/// Attempts at one time in one repository of a lane.
const REPOSITORY_WIDTH: usize = 4;
/// The same for `noop`, which waits for nobody.
const NOOP_WIDTH: usize = 64;

/// Who shares limits: everything that goes through one credential of one forge.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LaneId {
    kind: ProviderKind,
    base_url: Option<String>,
    credential: Option<CredentialRef>,
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
            },
            repository: target.repository.clone(),
        }
    }
}

/// All lanes of a hub.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: HashMap<LaneId, Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    running: usize,
    running_in: HashMap<String, usize>,
    /// Lines of waiting responses; the front cluster is served next.
    turns: VecDeque<ClusterId>,
    waiting: HashMap<ClusterId, HashMap<String, VecDeque<ResponseKey>>>,
}

impl Lanes {
    /// Takes a ticket if the lane has room and nobody waits for the same, else puts the response into line.
    pub fn enter(&mut self, ticket: &Ticket, key: &ResponseKey) -> bool {
        let lane = self.lanes.entry(ticket.lane.clone()).or_default();
        let queued = lane
            .waiting
            .values()
            .any(|line| line.contains_key(&ticket.repository));
        if !queued && lane.has_room(ticket) {
            lane.start(&ticket.repository);
            return true;
        }
        lane.push(key.clone(), ticket.repository.clone());
        false
    }

    /// Gives a ticket back; whoever may attempt now comes with a ticket already taken. More than one may, because the
    /// room that became free can be of use to several repositories.
    pub fn leave(&mut self, ticket: &Ticket) -> Vec<(ResponseKey, Ticket)> {
        let Some(lane) = self.lanes.get_mut(&ticket.lane) else {
            return Vec::new();
        };
        lane.stop(&ticket.repository);
        let mut next = Vec::new();
        while let Some((key, repository)) = lane.pop(&ticket.lane) {
            lane.start(&repository);
            next.push((
                key,
                Ticket {
                    lane: ticket.lane.clone(),
                    repository,
                },
            ));
        }
        if lane.running == 0 && lane.turns.is_empty() {
            self.lanes.remove(&ticket.lane);
        }
        next
    }

    /// Responses that stand in line.
    pub fn waiting(&self) -> usize {
        self.lanes
            .values()
            .flat_map(|lane| lane.waiting.values())
            .flat_map(HashMap::values)
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
        let line = lines.get_mut(repository)?;
        let key = line.pop_front();
        if line.is_empty() {
            lines.remove(repository);
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

    fn ticket(repository: &str) -> Ticket {
        Ticket::for_target(&ForgeTarget {
            kind: ProviderKind::ForgejoToken,
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
            lanes.enter(&a, &key("stormy", number));
        }
        assert!(!lanes.enter(&a, &key("calm", 0)));
        let next: Vec<_> = (0..2)
            .flat_map(|_| lanes.leave(&a))
            .map(|(key, _)| key.cluster.to_string())
            .collect();
        assert!(next.contains(&"calm".to_owned()), "served next: {next:?}");
    }

    #[test]
    fn a_slow_repository_does_not_stall_the_rest_of_its_lane() {
        let mut lanes = Lanes::default();
        for number in 0..50 {
            lanes.enter(&ticket("o/slow"), &key("c", number));
        }
        assert!(lanes.enter(&ticket("o/quick"), &key("c", 99)));
        let next = lanes.leave(&ticket("o/quick"));
        assert!(
            next.is_empty(),
            "the slow repository already has its share: {next:?}"
        );
    }

    #[test]
    fn every_response_in_line_is_served_once() {
        let mut lanes = Lanes::default();
        let mut running: VecDeque<Ticket> = VecDeque::new();
        let mut served = std::collections::HashSet::new();
        for number in 0..200 {
            let ticket = ticket(["o/a", "o/b", "o/c"][number % 3]);
            let key = key(["x", "y"][number % 2], number);
            if lanes.enter(&ticket, &key) {
                assert!(served.insert(key));
                running.push_back(ticket);
            }
        }
        while let Some(ticket) = running.pop_front() {
            for (key, ticket) in lanes.leave(&ticket) {
                assert!(served.insert(key));
                running.push_back(ticket);
            }
        }
        assert_eq!(served.len(), 200);
        assert_eq!(lanes.waiting(), 0);
        assert!(lanes.lanes.is_empty(), "an idle lane leaves nothing behind");
    }
}
