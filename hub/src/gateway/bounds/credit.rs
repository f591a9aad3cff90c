//! Observed frames that an agent may send, and whether its cluster has room for more.

use super::{AgentBounds, too_far};
use crate::gateway::Farewell;

/// Observed frames after which the cluster's unfinished responses are counted again.
const LOOK_EVERY: u32 = 1024;

/// What is known of the room that a cluster has, whatever session found out.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Observed frames since somebody looked whether there is room; `None` before the first look.
    since_look: Option<u32>,
    held: bool,
}

/// Observed frames that an agent may send in a session, and those for which it has not got its credit back.
#[derive(Debug)]
pub(in crate::gateway) struct CreditLine {
    left: u32,
    pub(in crate::gateway) owed: u32,
    bounds: AgentBounds,
}

impl AgentBounds {
    /// What an agent may send as it comes: one frame while its cluster has no room, so that it can name what the hub knows already,
    /// one after the other, and its inventory ends. What is held back of `full`, the session owes it.
    pub(in crate::gateway) fn first_credit(&self, full: u32) -> u32 {
        if self.spent().room.held {
            full.min(1)
        } else {
            full
        }
    }
}

impl CreditLine {
    /// An agent was told that it may send so many of the `full` credit of a session.
    pub(in crate::gateway) fn new(bounds: AgentBounds, told: u32, full: u32) -> Self {
        Self {
            left: told,
            owed: full.saturating_sub(told),
            bounds,
        }
    }

    /// Takes frames.
    ///
    /// # Errors
    /// If the agent has sent more than it may.
    pub(in crate::gateway) fn spend(&mut self, frames: u32) -> Result<(), Farewell> {
        let Some(left) = self.left.checked_sub(frames) else {
            return Err(too_far(
                "more Observed frames than there was credit for".to_owned(),
            ));
        };
        self.left = left;
        self.owed = self.owed.saturating_add(frames);
        if let Some(since) = &mut self.bounds.spent().room.since_look {
            *since = since.saturating_add(frames);
        }
        Ok(())
    }

    /// Whether somebody should look if there is room.
    pub(in crate::gateway) fn is_due_for_a_look(&self) -> bool {
        let room = &self.bounds.spent().room;
        room.held || room.since_look.is_none_or(|since| since >= LOOK_EVERY)
    }

    /// There is room.
    pub(in crate::gateway) fn looked(&mut self) {
        self.bounds.spent().room = Room {
            since_look: Some(0),
            held: false,
        };
    }

    /// There is none; `true` if there was before.
    pub(in crate::gateway) fn hold(&mut self) -> bool {
        !std::mem::replace(&mut self.bounds.spent().room.held, true)
    }

    /// Gives back what is owed for so many frames: the hub knew what they said, so they take no room.
    pub(in crate::gateway) fn settle_known(&mut self, known: u32) -> u32 {
        let back = known.min(self.owed);
        self.owed -= back;
        self.left = self.left.saturating_add(back);
        back
    }

    /// Gives back what is owed.
    pub(in crate::gateway) fn settle(&mut self) -> u32 {
        let owed = std::mem::take(&mut self.owed);
        self.left = self.left.saturating_add(owed);
        owed
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn line(bounds: &AgentBounds) -> CreditLine {
        CreditLine::new(bounds.clone(), bounds.first_credit(2), 2)
    }

    #[test]
    fn credit_is_spent_once_and_comes_back_when_there_is_room() {
        let bounds = AgentBounds::new(Duration::from_secs(20));
        let mut credit = line(&bounds);
        assert!(
            credit.is_due_for_a_look(),
            "at the begin of the first session"
        );
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

    #[test]
    fn a_cluster_without_room_gets_no_credit_by_coming_again() {
        let bounds = AgentBounds::new(Duration::from_secs(20));
        let mut first = line(&bounds);
        assert!(first.spend(2).is_ok());
        first.hold();
        let mut second = line(&bounds);
        assert!(second.spend(1).is_ok());
        assert!(second.spend(1).is_err());
        assert!(!second.hold(), "told once");
        assert_eq!(second.owed, 2, "it gets it when there is room");
        second.looked();
        assert_eq!(second.settle(), 2);
        assert!(second.spend(2).is_ok());
        assert_eq!(line(&bounds).owed, 0);
    }

    #[test]
    fn a_cluster_without_room_can_name_what_is_known_to_the_end() {
        let bounds = AgentBounds::new(Duration::from_secs(20));
        line(&bounds).hold();
        let mut again = CreditLine::new(bounds.clone(), bounds.first_credit(64), 64);
        for _ in 0..1_000 {
            assert!(again.spend(1).is_ok());
            assert!(again.spend(1).is_err());
            assert_eq!(again.settle_known(1), 1);
        }
        assert!(again.spend(1).is_ok(), "one that is new");
        assert_eq!(again.settle_known(0), 0);
        assert!(again.spend(1).is_err());
    }

    #[test]
    fn frames_of_all_sessions_lead_to_the_next_look() {
        let bounds = AgentBounds::new(Duration::from_secs(20));
        line(&bounds).looked();
        for _ in 0..LOOK_EVERY / 2 {
            assert!(!line(&bounds).is_due_for_a_look());
            assert!(line(&bounds).spend(2).is_ok());
        }
        assert!(line(&bounds).is_due_for_a_look());
    }
}
