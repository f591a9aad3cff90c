//! Groups: responses of one cluster and one route, created within one window of time, whose pull request is shared. Pure.
//!
//! Which group a response belongs to follows from the response and its route alone, so that it is the same after a store
//! was lost. What is on the branch of a group, and who may still join, is found out by each forge (`forge::group`).

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use nabu_common::ids::ClusterId;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::change::Intent;

/// Windows that a route may have, in seconds.
pub const WINDOWS: std::ops::RangeInclusive<u64> = 1..=24 * 60 * 60;
/// How many responses a pull request may have: so many commits can be looked at in one request on every forge.
pub const SIZES: std::ops::RangeInclusive<u32> = 2..=50;
/// Responses in one pull request, where a route says nothing.
pub const DEFAULT_SIZE: u32 = 20;

/// What a route says of its groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRule {
    /// How long a window is, in seconds.
    pub window: u64,
    /// Responses in one pull request.
    pub max_responses: u32,
}

/// A window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first moment.
    pub start: Timestamp,
    /// The first moment after it.
    pub end: Timestamp,
}

/// The group of a change: decided with it, and stored with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The branch that its members share.
    pub branch: String,
    /// Title of the pull request, one line. The member that opens it names it.
    pub title: String,
    /// The first paragraph of the pull request, in Markdown; the members' sections follow.
    pub introduction: String,
    /// Members that it may have.
    pub max_responses: u32,
}

impl GroupRule {
    /// The window that a moment falls into: windows follow each other without a gap from 1970 on.
    pub fn window_of(&self, created: Timestamp) -> Option<Window> {
        let length = i64::try_from(self.window)
            .ok()
            .filter(|length| *length > 0)?;
        let start = Timestamp::from_second(created.as_second().div_euclid(length) * length).ok()?;
        let end = start.checked_add(SignedDuration::from_secs(length)).ok()?;
        Some(Window { start, end })
    }
}

/// What makes one group another than the next, beside the window.
#[derive(Clone, Copy, Debug)]
pub struct GroupScope<'a> {
    /// What every branch of the route begins with.
    pub prefix: &'a str,
    /// The cluster.
    pub cluster: &'a ClusterId,
    /// The route, by its id.
    pub route: &'a str,
    /// The repository.
    pub repository: &'a str,
    /// The branch that the pull request is against.
    pub base: Option<&'a str>,
}

/// The branch of a group: under `<prefix><cluster>/`, as all branches of that cluster, and never named like a UID.
pub fn branch(scope: &GroupScope<'_>, window: &Window) -> String {
    let mut hasher = Sha256::new();
    for part in [
        scope.route,
        scope.repository,
        scope.base.unwrap_or_default(),
    ] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    let hash = hex::encode(hasher.finalize());
    let start = window.start.strftime("%Y%m%dT%H%M%SZ");
    format!(
        "{}{}/group-{}-{start}",
        scope.prefix,
        scope.cluster,
        &hash[..8]
    )
}

/// A length of time as people write it: `10m`, `1h30m`.
pub fn spoken(seconds: u64) -> String {
    let parts = [
        (seconds / 3600, 'h'),
        (seconds / 60 % 60, 'm'),
        (seconds % 60, 's'),
    ];
    let part = |(number, unit): &(u64, char)| (*number > 0).then(|| format!("{number}{unit}"));
    parts.iter().filter_map(part).collect()
}

/// A window as a whole number of seconds; nothing if it is none that is served.
pub fn seconds(window: Duration) -> Option<u64> {
    let whole = window.subsec_nanos() == 0 && WINDOWS.contains(&window.as_secs());
    whole.then_some(window.as_secs())
}

impl Intent {
    /// The change as a member of its group: on the group's branch, under its title. Its body is still that of the change
    /// alone.
    #[must_use]
    pub fn in_group(&self) -> Option<Self> {
        let group = self.group.as_ref()?;
        Some(Self {
            branch: group.branch.clone(),
            title: group.title.clone(),
            ..self.clone()
        })
    }

    /// Whether its branch is shared with others ([`Intent::in_group`]).
    pub fn is_shared(&self) -> bool {
        let group = self.group.as_ref();
        group.is_some_and(|group| group.branch == self.branch)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixtures;
    use crate::render::branch::check;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const RULE: GroupRule = GroupRule {
        window: 600,
        max_responses: 20,
    };

    fn named(created: &str, scope: GroupScope<'_>) -> String {
        branch(&scope, &RULE.window_of(at(created)).unwrap())
    }

    #[test]
    fn responses_of_one_window_have_one_branch_and_all_others_another() {
        let key = fixtures::key(1);
        let scope = GroupScope {
            prefix: "nabu/",
            cluster: &key.cluster,
            route: "ns/c/0",
            repository: "o/r",
            base: Some("main"),
        };
        let first = named("2026-11-21T18:30:00Z", scope);
        assert!(
            first.starts_with("nabu/prod-eu/group-") && first.ends_with("-20261121T183000Z"),
            "{first}"
        );
        assert_eq!(named("2026-11-21T18:39:59.999Z", scope), first);
        let route = GroupScope {
            route: "ns/c/1",
            ..scope
        };
        let repository = GroupScope {
            repository: "o/s",
            ..scope
        };
        let base = GroupScope {
            base: None,
            ..scope
        };
        for other in [
            named("2026-11-21T18:40:00Z", scope),
            named("2026-11-21T18:29:59Z", scope),
            named("2026-11-21T18:30:00Z", route),
            named("2026-11-21T18:30:00Z", repository),
            named("2026-11-21T18:30:00Z", base),
        ] {
            assert_ne!(other, first);
        }
    }

    #[test]
    fn lengths_are_spoken_as_people_write_them() {
        for (seconds, text) in [(1, "1s"), (600, "10m"), (5400, "1h30m"), (86_400, "24h")] {
            assert_eq!(spoken(seconds), text);
        }
    }

    #[test]
    fn only_whole_seconds_up_to_a_day_are_windows() {
        assert_eq!(seconds(Duration::from_mins(10)), Some(600));
        assert_eq!(seconds(Duration::from_hours(24)), Some(86_400));
        for none in [
            Duration::ZERO,
            Duration::from_millis(1500),
            Duration::from_secs(86_401),
        ] {
            assert_eq!(seconds(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn every_moment_is_in_its_window_and_windows_do_not_overlap(
            second in -10_000_000_000_i64..100_000_000_000, window in 1_u64..=86_400
        ) {
            let rule = GroupRule { window, max_responses: 2 };
            let created = Timestamp::from_second(second).unwrap();
            let found = rule.window_of(created).unwrap();
            prop_assert!(found.start <= created && created < found.end);
            prop_assert_eq!(rule.window_of(found.start), Some(found));
            prop_assert_eq!(rule.window_of(found.end).unwrap().start, found.end);
            let key = fixtures::key(1);
            let scope = GroupScope {
                prefix: "nabu/", cluster: &key.cluster, route: "r", repository: "o/r", base: None,
            };
            prop_assert_eq!(check(&branch(&scope, &found)), Ok(()));
        }
    }
}
