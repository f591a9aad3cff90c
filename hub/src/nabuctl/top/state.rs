//! What `nabuctl top` knows, and what keys do to it. Pure.

use jiff::Timestamp;
use nabu_proto::admin_v1::{Cluster, Forge, Response};

/// What was asked of the hub last.
#[derive(Clone, Debug, Default)]
pub(super) struct Fleet {
    pub(super) hub: String,
    pub(super) version: String,
    pub(super) clusters: Vec<Cluster>,
    pub(super) forges: Vec<Forge>,
    pub(super) responses: Vec<Response>,
}

/// The lists, in the order of the Tab key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Panel {
    #[default]
    Clusters,
    Forges,
    Responses,
}

impl Panel {
    const fn next(self) -> Self {
        match self {
            Self::Clusters => Self::Forges,
            Self::Forges => Self::Responses,
            Self::Responses => Self::Clusters,
        }
    }
}

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Up,
    Down,
    Next,
}

/// Everything that is drawn.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) fleet: Fleet,
    /// When the hub answered last.
    pub(super) fresh_at: Option<Timestamp>,
    /// Why it does not now.
    pub(super) trouble: Option<String>,
    pub(super) panel: Panel,
    /// The selected line of each list.
    pub(super) selected: [usize; 3],
}

impl State {
    /// The hub answered, or not.
    pub(super) fn heard(&mut self, answer: Result<Fleet, String>, now: Timestamp) {
        match answer {
            Ok(mut fleet) => {
                // Who needs somebody comes first.
                fleet
                    .clusters
                    .sort_by_key(|one| (one.connected, std::cmp::Reverse(one.unfinished)));
                self.fleet = fleet;
                self.fresh_at = Some(now);
                self.trouble = None;
            }
            Err(trouble) => self.trouble = Some(trouble),
        }
        for panel in [Panel::Clusters, Panel::Forges, Panel::Responses] {
            let last = self.lines(panel).saturating_sub(1);
            let selected = &mut self.selected[panel as usize];
            *selected = (*selected).min(last);
        }
    }

    /// A key was pressed; `false` ends the program.
    pub(super) fn key(&mut self, key: Key) -> bool {
        let last = self.lines(self.panel).saturating_sub(1);
        let selected = &mut self.selected[self.panel as usize];
        match key {
            Key::Quit => return false,
            Key::Up => *selected = selected.saturating_sub(1),
            Key::Down => *selected = (*selected + 1).min(last),
            Key::Next => self.panel = self.panel.next(),
        }
        true
    }

    fn lines(&self, panel: Panel) -> usize {
        match panel {
            Panel::Clusters => self.fleet.clusters.len(),
            Panel::Forges => self.fleet.forges.len(),
            Panel::Responses => self.fleet.responses.len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(id: &str, connected: bool, unfinished: u64) -> Cluster {
        Cluster {
            cluster_id: id.to_owned(),
            connected,
            unfinished,
            ..Cluster::default()
        }
    }

    #[test]
    fn clusters_that_are_away_come_first_and_then_the_busiest() {
        let mut state = State::default();
        let fleet = Fleet {
            clusters: vec![
                cluster("idle", true, 0),
                cluster("busy", true, 9),
                cluster("away", false, 0),
            ],
            ..Fleet::default()
        };
        state.heard(Ok(fleet), Timestamp::UNIX_EPOCH);
        let ids: Vec<_> = state
            .fleet
            .clusters
            .iter()
            .map(|one| one.cluster_id.as_str())
            .collect();
        assert_eq!(ids, ["away", "busy", "idle"]);
    }

    #[test]
    fn keys_move_within_a_list_and_trouble_keeps_what_was_known() {
        let mut state = State::default();
        let clusters = vec![cluster("a", true, 0), cluster("b", true, 0)];
        let fleet = Fleet {
            clusters,
            ..Fleet::default()
        };
        state.heard(Ok(fleet), Timestamp::UNIX_EPOCH);
        assert!(state.key(Key::Up));
        assert_eq!(state.selected[0], 0);
        for _ in 0..5 {
            assert!(state.key(Key::Down));
        }
        assert_eq!(state.selected[0], 1, "the last line");
        state.heard(Err("gone".to_owned()), Timestamp::UNIX_EPOCH);
        assert_eq!(state.fleet.clusters.len(), 2);
        assert!(state.key(Key::Next));
        assert_eq!(state.panel, Panel::Forges);
        state.heard(Ok(Fleet::default()), Timestamp::UNIX_EPOCH);
        assert_eq!((state.selected[0], state.trouble.as_ref()), (0, None));
        assert!(!state.key(Key::Quit));
    }
}
