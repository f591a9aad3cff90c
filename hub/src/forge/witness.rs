//! What forges last said of our budget with each credential: for people, and for the gates, which hold everything up that
//! would use up what is left. What a refusal means is decided by [`super::http`].

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};

use super::http::date;
use crate::execute::lanes::LaneId;

/// Clocks that differ by less are taken for the same: a forge's `Date` has whole seconds.
const SAME_CLOCK: SignedDuration = SignedDuration::from_secs(5);

/// A budget as a forge tells of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Requests in a period.
    pub limit: u64,
    /// Requests that are left.
    pub remaining: u64,
    /// When the period ends.
    pub resets_at: Option<Timestamp>,
    /// When the forge said so.
    pub said_at: Timestamp,
}

/// What was last seen of a forge with one credential.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sighting {
    /// When the forge last answered.
    pub answered_at: Option<Timestamp>,
    /// How the last request ended, as in the metrics.
    pub last_result: &'static str,
    /// Budgets by what they are for; the name is empty where a forge has only one.
    pub limits: BTreeMap<String, RateLimit>,
}

/// The result of a request whose credential was not taken.
const REFUSED: &str = "unauthorized";
/// The longest that one answer can hold a credential back.
const LONGEST_HOLD: Duration = Duration::from_hours(2);

/// The sightings of all credentials since the hub began; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sightings {
    by_lane: Arc<Mutex<HashMap<LaneId, Sighting>>>,
}

impl Sightings {
    /// What was last seen with a credential.
    pub fn of(&self, lane: &LaneId) -> Option<Sighting> {
        self.lock().get(lane).cloned()
    }

    /// Until when nothing more should be asked with a credential, and why: a budget has no more left than `reserve`, or
    /// than its tenth part if that is less, so that a small budget can be used as well.
    pub fn spent(
        &self,
        lane: &LaneId,
        reserve: u64,
        now: Timestamp,
    ) -> Option<(Timestamp, String)> {
        let sightings = self.lock();
        let limits = sightings.get(lane)?.limits.iter();
        let spent = limits.filter_map(|(resource, limit)| {
            // A forge that says more is not believed, however often that is looked at.
            let latest = limit.said_at.saturating_add(LONGEST_HOLD).ok();
            let until = limit.resets_at.min(latest).filter(|at| *at > now)?;
            let is_spent = limit.remaining <= reserve.min(limit.limit / 10);
            is_spent.then_some((until, resource, limit))
        });
        let (until, resource, limit) = spent.max_by_key(|(until, ..)| *until)?;
        let space = if resource.is_empty() { "" } else { " " };
        let reason = format!(
            "{} of {}{space}{resource} requests are left until {until:.0}",
            limit.remaining, limit.limit
        );
        Some((until, reason))
    }

    /// Notes for one credential.
    pub(super) fn witness(&self, lane: LaneId) -> Witness {
        Witness {
            lane,
            all: self.clone(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<LaneId, Sighting>> {
        self.by_lane.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes what answers say of one credential.
#[derive(Clone, Debug)]
pub(super) struct Witness {
    lane: LaneId,
    all: Sightings,
}

impl Witness {
    /// A request ended; with the headers of its answer, if there was one.
    pub(super) fn note(&self, result: &'static str, headers: Option<&HeaderMap>, now: Timestamp) {
        let mut sightings = self.all.lock();
        let sighting = sightings.entry(self.lane.clone()).or_default();
        sighting.last_result = result;
        if let Some(headers) = headers {
            sighting.answered_at = Some(now);
            // An answer to a credential that is not taken tells of somebody else's budget: of none, or of everybody's without one.
            let counts = result != REFUSED;
            if let Some((resource, limit)) = budget(headers, now).filter(|_| counts) {
                sighting.limits.insert(resource, limit);
            }
        }
    }
}

/// The budget in an answer: GitHub's `x-ratelimit-*`, with the resource that it is for, or GitLab's `RateLimit-*`. Both
/// give the end of the period in seconds since 1970.
fn budget(headers: &HeaderMap, now: Timestamp) -> Option<(String, RateLimit)> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let prefix = ["x-ratelimit", "ratelimit"]
        .into_iter()
        .find(|prefix| text(&format!("{prefix}-remaining")).is_some())?;
    let number = |what: &str| text(&format!("{prefix}-{what}"))?.parse::<u64>().ok();
    let resource: String = text("x-ratelimit-resource")
        .unwrap_or_default()
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
        .take(40)
        .collect();
    // By the forge's clock; one second more, because it counts in whole ones.
    let resets_at = number("reset")
        .and_then(|second| i64::try_from(second).ok()?.checked_add(1))
        .and_then(|second| Timestamp::from_second(second).ok())
        .and_then(|reset| {
            let ahead = date(headers).map(|theirs| theirs.duration_since(now));
            let ahead = ahead.filter(|ahead| ahead.abs() > SAME_CLOCK);
            reset.checked_sub(ahead.unwrap_or_default()).ok()
        });
    Some((
        resource,
        RateLimit {
            limit: number("limit").filter(|limit| *limit > 0)?,
            remaining: number("remaining")?,
            resets_at,
            said_at: now,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::target;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (
                http::HeaderName::from_static(name),
                http::HeaderValue::from_static(value),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_budgets_of_github_are_kept_by_resource_and_that_of_gitlab_without_one() {
        let now = Timestamp::from_second(1_799_996_401).unwrap();
        let sightings = Sightings::default();
        let lane = LaneId::of(&target());
        let witness = sightings.witness(lane.clone());
        for (resource, remaining) in [("core", "4999"), ("graphql", "12"), ("graphql", "11")] {
            let answer = headers(&[
                ("x-ratelimit-limit", "5000"),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", "1800000000"),
                ("x-ratelimit-resource", resource),
            ]);
            witness.note("ok", Some(&answer), now);
        }
        witness.note("timeout", None, now);
        let seen = sightings.of(&lane).unwrap();
        assert_eq!((seen.last_result, seen.answered_at), ("timeout", Some(now)));
        let left: Vec<_> = seen
            .limits
            .iter()
            .map(|(name, limit)| (name.as_str(), limit.remaining))
            .collect();
        assert_eq!(left, [("core", 4999), ("graphql", 11)]);
        assert_eq!(
            seen.limits["core"].resets_at.unwrap().as_second(),
            1_800_000_001
        );

        let until = Timestamp::from_second(1_800_000_001).unwrap();
        let spent = |reserve, now| sightings.spent(&lane, reserve, now).map(|(at, _)| at);
        assert_eq!(spent(10, now), None);
        assert_eq!(spent(11, now), Some(until));
        assert_eq!(spent(11, until), None, "it has begun anew");
        let (_, why) = sightings.spent(&lane, 50, now).unwrap();
        assert!(why.starts_with("11 of 5000 graphql requests"), "{why}");

        let gitlab = headers(&[("ratelimit-limit", "600"), ("ratelimit-remaining", "599")]);
        let (resource, limit) = budget(&gitlab, now).unwrap();
        assert_eq!((resource.as_str(), limit.limit), ("", 600));
        assert_eq!(budget(&headers(&[("ratelimit-remaining", "x")]), now), None);
    }

    #[test]
    fn an_answer_to_a_credential_that_is_not_taken_tells_of_no_budget_of_ours() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sightings = Sightings::default();
        let lane = LaneId::of(&target());
        let witness = sightings.witness(lane.clone());
        let said = |limit, remaining| {
            headers(&[
                ("x-ratelimit-limit", limit),
                ("x-ratelimit-remaining", remaining),
                ("x-ratelimit-reset", "1800003600"),
            ])
        };
        witness.note("unauthorized", Some(&said("60", "0")), now);
        assert_eq!(sightings.spent(&lane, 50, now), None);
        witness.note("ok", Some(&said("0", "0")), now);
        assert_eq!(sightings.spent(&lane, 50, now), None, "no budget at all");
        witness.note("ok", Some(&said("60", "0")), now);
        assert!(sightings.spent(&lane, 50, now).is_some());
    }

    #[test]
    fn a_forge_that_names_a_far_end_is_not_believed_however_often_that_is_looked_at() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sightings = Sightings::default();
        let lane = LaneId::of(&target());
        let answer = headers(&[
            ("ratelimit-limit", "600"),
            ("ratelimit-remaining", "0"),
            ("ratelimit-reset", "1900000000"),
        ]);
        sightings
            .witness(lane.clone())
            .note("ok", Some(&answer), now);
        let latest = now.saturating_add(LONGEST_HOLD).unwrap();
        for later in [0, 3600, 7199] {
            let at = Timestamp::from_second(1_800_000_000 + later).unwrap();
            let until = sightings.spent(&lane, 50, at).map(|(until, _)| until);
            assert_eq!(until, Some(latest), "{later}");
        }
        assert_eq!(sightings.spent(&lane, 50, latest), None);
    }

    #[test]
    fn a_reserve_never_keeps_more_than_a_tenth_of_a_small_budget_and_goes_by_the_forges_clock() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let sightings = Sightings::default();
        let lane = LaneId::of(&target());
        let witness = sightings.witness(lane.clone());
        // The forge's clock is an hour ahead: the period ends in a minute.
        for (remaining, is_spent) in [("7", false), ("6", true), ("0", true)] {
            let answer = headers(&[
                ("ratelimit-limit", "60"),
                ("ratelimit-remaining", remaining),
                ("ratelimit-reset", "1800003659"),
                ("date", "Fri, 15 Jan 2027 09:00:00 GMT"),
            ]);
            witness.note("ok", Some(&answer), now);
            let spent = sightings.spent(&lane, 50, now).map(|(until, _)| until);
            let minute = Timestamp::from_second(1_800_000_060).unwrap();
            assert_eq!(spent, is_spent.then_some(minute), "{remaining}");
        }
        assert!(sightings.spent(&lane, 0, now).is_some());
    }
}
