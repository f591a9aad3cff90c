//! The bounds of every cluster that came lately: a new session goes on where the one before ended.
//!
//! They live in memory, on each hub for itself: a restart of the hub forgives, which an agent cannot bring about.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nabu_common::ids::ClusterId;
use tokio::time::Instant;

use super::AgentBounds;

/// No need to look who can be forgotten while there are no more than so many.
const FEW: usize = 1024;
/// Beside those with a session, no more than so many are kept. Whoever can fill this has certificates of as many clusters.
const MOST: usize = 16_384;

/// The bounds of all clusters.
#[derive(Debug)]
pub(in crate::gateway) struct Agents {
    heartbeat: Duration,
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    bounds: HashMap<ClusterId, AgentBounds>,
    /// When there are so many, somebody looks who can be forgotten.
    look_at: usize,
}

impl Agents {
    /// For agents that are told to send a heartbeat so often.
    pub(in crate::gateway) fn new(heartbeat: Duration) -> Self {
        let known = Known {
            bounds: HashMap::new(),
            look_at: FEW,
        };
        Self {
            heartbeat,
            known: Mutex::new(known),
        }
    }

    /// Those of one cluster.
    pub(in crate::gateway) fn of(&self, cluster: &ClusterId, now: Instant) -> AgentBounds {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bounds) = known.bounds.get(cluster) {
            return bounds.clone();
        }
        if known.bounds.len() >= known.look_at {
            known.forget(now);
        }
        let bounds = AgentBounds::new(self.heartbeat);
        known.bounds.insert(cluster.clone(), bounds.clone());
        bounds
    }
}

impl Known {
    fn forget(&mut self, now: Instant) {
        self.bounds
            .retain(|_, one| one.is_in_use() || !one.is_over(now));
        if self.bounds.len() >= MOST {
            self.bounds.retain(|_, one| one.is_in_use());
        }
        self.look_at = FEW.max(self.bounds.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(number: usize) -> ClusterId {
        format!("c{number}").parse().unwrap()
    }

    fn known(agents: &Agents) -> usize {
        agents.known.lock().unwrap().bounds.len()
    }

    #[tokio::test]
    async fn a_cluster_that_comes_again_has_what_it_had_left_and_others_have_all() {
        let (agents, now) = (Agents::new(Duration::from_secs(20)), Instant::now());
        while agents.of(&cluster(1), now).heartbeat(now).is_ok() {}
        agents.of(&cluster(1), now).send_away(now);
        assert!(agents.of(&cluster(1), now).heartbeat(now).is_err());
        assert!(agents.of(&cluster(1), now).kept_away(now).is_some());
        assert!(agents.of(&cluster(2), now).heartbeat(now).is_ok());
        assert!(agents.of(&cluster(2), now).kept_away(now).is_none());
    }

    #[tokio::test]
    async fn whoever_has_spent_nothing_lately_is_forgotten_and_nobody_else() {
        let (agents, now) = (Agents::new(Duration::from_secs(20)), Instant::now());
        let session = agents.of(&cluster(0), now);
        for number in 0..FEW {
            let _ = agents.of(&cluster(number), now).session(now);
        }
        let later = now + Duration::from_secs(59);
        agents.of(&cluster(FEW), later).send_away(later);
        assert_eq!(known(&agents), FEW + 1, "a minute is not over");
        let later = now + Duration::from_mins(1);
        for number in 0..FEW {
            let _ = agents.of(&cluster(FEW + number), later);
        }
        assert_eq!(known(&agents), 2 * FEW);
        let _ = agents.of(&cluster(2 * FEW), later);
        assert_eq!(known(&agents), 3, "with a session, sent away, and new");
        drop(session);
    }

    #[tokio::test]
    async fn memory_is_bounded() {
        let (agents, now) = (Agents::new(Duration::from_secs(20)), Instant::now());
        for number in 0..5 * MOST {
            let _ = agents.of(&cluster(number), now).session(now);
        }
        assert!(known(&agents) <= 2 * MOST, "{}", known(&agents));
    }
}
