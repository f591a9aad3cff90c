//! When the next attempt with a credential may begin: the forge's limits that were hit, and the budget that is kept so
//! that they are not. Plain values; time is passed in, and the whole of it is stored, so that a restart forgets nothing.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// How long after a limit was hit attempts go one by one.
const CAREFUL_FOR: Duration = Duration::from_mins(15);
/// Attempts that go one by one begin at least this far apart.
const CAREFUL_GAP: Duration = Duration::from_secs(1);
/// The longest that one limit closes a gate for.
const LONGEST_CLOSED: Duration = Duration::from_hours(2);

/// Attempts that may begin in a span of time; 0 stands for any number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// In any minute.
    pub per_minute: u32,
    /// In any hour.
    pub per_hour: u32,
}

impl Budget {
    const fn is_bounded(self) -> bool {
        self.per_minute > 0 || self.per_hour > 0
    }
}

/// The gate of one credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Gate {
    /// The forge wants nothing before this time.
    closed_until: Option<Timestamp>,
    /// What it said, for people.
    reason: Option<String>,
    /// Until then attempts go one by one.
    careful_until: Option<Timestamp>,
    /// The forge's budget is left alone before this time, so that no limit is met.
    held_until: Option<Timestamp>,
    /// What it said of that budget, for people.
    held_reason: Option<String>,
    /// When attempts of the last hour began, oldest first; kept only as far as a budget needs it.
    begun: VecDeque<Timestamp>,
}

impl Gate {
    /// When the next attempt may begin, if not now.
    pub fn opens_at(&self, budget: Budget, now: Timestamp) -> Option<Timestamp> {
        let mut at = now;
        for until in [self.closed_until, self.held_until].into_iter().flatten() {
            at = at.max(until);
        }
        if self.is_careful(now)
            && let Some(last) = self.begun.back()
        {
            at = at.max(after(*last, CAREFUL_GAP));
        }
        at = at.max(self.spent(budget, now).unwrap_or(now));
        (at > now).then_some(at)
    }

    /// Until when so many attempts have begun lately as the budget allows.
    pub fn spent(&self, budget: Budget, now: Timestamp) -> Option<Timestamp> {
        let spans = [(budget.per_minute, MINUTE), (budget.per_hour, HOUR)];
        let until = spans.into_iter().filter_map(|(most, span)| {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            // The one that has to have left the span before another may enter it.
            let oldest = self.begun.len().checked_sub(most).filter(|_| most > 0)?;
            Some(after(*self.begun.get(oldest)?, span))
        });
        until.filter(|until| *until > now).max()
    }

    /// Whether attempts go one by one.
    pub fn is_careful(&self, now: Timestamp) -> bool {
        self.careful_until.is_some_and(|until| until > now)
    }

    /// Until when the forge wants nothing, and what it said.
    pub fn closed(&self, now: Timestamp) -> Option<(Timestamp, &str)> {
        let met = (self.closed_until, &self.reason);
        let spared = (self.held_until, &self.held_reason);
        let reasons = [met, spared].into_iter().filter_map(|(until, reason)| {
            let until = until.filter(|until| *until > now)?;
            Some((until, reason.as_deref().unwrap_or_default()))
        });
        reasons.max_by_key(|(until, _)| *until)
    }

    /// An attempt begins. Gives back whether that is worth storing.
    pub fn begin(&mut self, budget: Budget, now: Timestamp) -> bool {
        if !budget.is_bounded() && !self.is_careful(now) {
            return false;
        }
        while self
            .begun
            .front()
            .is_some_and(|begun| after(*begun, HOUR) <= now)
        {
            self.begun.pop_front();
        }
        self.begun.push_back(now);
        true
    }

    /// The forge said "later".
    pub fn limit(&mut self, wait: Duration, reason: &str, now: Timestamp) {
        let until = after(now, wait.min(LONGEST_CLOSED));
        if self.closed_until.is_none_or(|known| known < until) {
            self.closed_until = Some(until);
            self.reason = Some(reason.to_owned());
        }
        let careful = after(self.closed_until.unwrap_or(until), CAREFUL_FOR);
        self.careful_until = self.careful_until.max(Some(careful));
    }

    /// The forge's budget is used up, or nearly, and begins anew at `until`: nothing is begun before. No limit was met, so
    /// that nobody has to go one by one afterwards. Gives back whether that is news.
    pub fn hold(&mut self, until: Timestamp, reason: &str, now: Timestamp) -> bool {
        let until = until.min(after(now, LONGEST_CLOSED));
        let is_news = until > now && self.held_until.is_none_or(|known| known < until);
        if is_news {
            self.held_until = Some(until);
            self.held_reason = Some(reason.to_owned());
        }
        is_news
    }

    /// Whether it holds nothing back any more.
    pub fn is_idle(&self, now: Timestamp) -> bool {
        self.closed(now).is_none()
            && !self.is_careful(now)
            && self
                .begun
                .back()
                .is_none_or(|begun| after(*begun, HOUR) <= now)
    }
}

fn after(time: Timestamp, span: Duration) -> Timestamp {
    time.saturating_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUDGET: Budget = Budget {
        per_minute: 3,
        per_hour: 5,
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn no_minute_and_no_hour_sees_more_than_its_budget() {
        let mut gate = Gate::default();
        let mut now = at(0);
        let mut begun = Vec::new();
        for _ in 0..12 {
            while let Some(opens) = gate.opens_at(BUDGET, now) {
                assert!(opens > now);
                now = opens;
            }
            gate.begin(BUDGET, now);
            begun.push(now);
        }
        let most_within = |span: Duration| {
            let within = |first: &Timestamp| {
                begun
                    .iter()
                    .filter(|time| *time >= first && **time < after(*first, span))
                    .count()
            };
            begun.iter().map(within).max().unwrap()
        };
        assert_eq!((most_within(MINUTE), most_within(HOUR)), (3, 5));
        assert_eq!(begun[3], at(60), "as soon as the budget allows");
        assert_eq!(begun[5], at(3600));
    }

    #[test]
    fn without_a_budget_nothing_is_kept_until_a_limit_is_hit() {
        let mut gate = Gate::default();
        assert!(!gate.begin(Budget::default(), at(0)));
        assert_eq!(gate.opens_at(Budget::default(), at(0)), None);
        assert!(gate.is_idle(at(0)));
    }

    #[test]
    fn a_limit_closes_the_gate_and_then_lets_one_through_each_second() {
        let mut gate = Gate::default();
        gate.limit(Duration::from_secs(30), "slow down", at(0));
        let none = Budget::default();
        assert_eq!(gate.opens_at(none, at(10)), Some(at(30)));
        assert_eq!(gate.closed(at(10)), Some((at(30), "slow down")));
        assert_eq!(gate.opens_at(none, at(30)), None);
        gate.begin(none, at(30));
        assert_eq!(gate.opens_at(none, at(30)), Some(at(31)));
        assert!(gate.is_careful(at(60)));
        assert!(!gate.is_careful(at(2000)));
        assert!(gate.is_idle(at(8000)));
    }

    #[test]
    fn a_shorter_limit_never_opens_a_gate_early_and_none_closes_it_for_ever() {
        let mut gate = Gate::default();
        gate.limit(Duration::from_hours(999), "long", at(0));
        gate.limit(Duration::from_secs(1), "short", at(1));
        assert_eq!(gate.closed(at(2)), Some((at(7200), "long")));
        assert!(gate.is_careful(at(7300)), "not shorter either");
    }

    #[test]
    fn a_budget_that_is_spared_opens_at_its_end_without_care_and_never_before_a_limit() {
        let (mut gate, none) = (Gate::default(), Budget::default());
        assert!(gate.hold(at(60), "12 left", at(0)));
        assert!(!gate.hold(at(60), "11 left", at(1)), "known already");
        assert!(!gate.hold(at(30), "", at(40)), "long past");
        assert_eq!(gate.opens_at(none, at(10)), Some(at(60)));
        assert_eq!(gate.closed(at(10)), Some((at(60), "12 left")));
        assert!(!gate.is_idle(at(10)));
        assert_eq!(gate.opens_at(none, at(60)), None);
        assert!(!gate.is_careful(at(60)) && gate.is_idle(at(60)));
        gate.limit(Duration::from_secs(90), "slow down", at(10));
        assert_eq!(gate.closed(at(20)), Some((at(100), "slow down")));
        assert!(gate.hold(at(99_999), "reset is wrong", at(20)));
        assert_eq!(gate.closed(at(20)).unwrap().0, at(7220), "not for ever");
    }

    #[test]
    fn a_stored_gate_is_the_same_gate() {
        let mut gate = Gate::default();
        gate.hold(at(60), "12 left", at(0));
        gate.limit(Duration::from_secs(30), "slow down", at(0));
        gate.begin(BUDGET, at(31));
        let text = serde_json::to_string(&gate).unwrap();
        assert_eq!(serde_json::from_str::<Gate>(&text).unwrap(), gate);
    }
}
