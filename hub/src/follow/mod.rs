//! Follows pull requests until people have merged or closed them, and tells the result to their clusters.
//!
//! What is followed stands in the store. [`run`] looks at each again and again, those that are young more often
//! ([`interval`]), many of one repository in one request ([`look`]); a hint ([`Hints`]) makes it look at once, and is kept
//! until that has worked. Repositories are looked at beside each other, each once at a time. The phase of a response
//! stays: only the condition `PullRequest` changes.

mod look;
pub mod metrics;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio::sync::Notify;
use tokio::task::{self, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::change::Intent;
use crate::execute::Context;
use crate::store::{ResponseSummary, StoreError};
use crate::webhooks::{ForgeKind, Hint, Nudge};
use look::Looker;
use metrics::FollowMetrics;

/// Responses that one page brings.
const PAGE: u32 = 256;
/// Hints that wait; more are dropped, the next look finds what they were about.
const MOST_HINTS: usize = 1024;
/// Several hints often come together.
const GATHER: Duration = Duration::from_millis(250);
/// How long after a look that did not work the next one follows, for what a hint is about.
const HINT_RETRY: Duration = Duration::from_secs(30);
/// The longest time between two looks.
const LONGEST_INTERVAL: Duration = Duration::from_hours(1);

/// Takes hints; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    hints: Mutex<HashSet<Hint>>,
    wake: Notify,
}

impl Nudge for Hints {
    fn nudge(&self, hint: Hint) {
        let mut hints = self.hints();
        if hints.len() < MOST_HINTS {
            hints.insert(hint);
            self.inner.wake.notify_one();
        }
    }
}

impl Hints {
    fn take(&self) -> HashSet<Hint> {
        std::mem::take(&mut self.hints())
    }

    fn hints(&self) -> MutexGuard<'_, HashSet<Hint>> {
        self.inner
            .hints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long after a look the next one is due, for a pull request of this age: a tenth of it, between the shortest
/// interval and an hour.
fn interval(shortest: Duration, age: Duration) -> Duration {
    (age / 10).max(shortest).min(LONGEST_INTERVAL.max(shortest))
}

/// Follows pull requests until `shutdown`. `shortest` is the least time between two looks at one of them; zero leaves it
/// to hints.
pub async fn run(
    (context, hints, metrics): (Arc<Context>, Hints, FollowMetrics),
    shortest: Duration,
    shutdown: CancellationToken,
) {
    let mut follower = Follower {
        looker: Looker::new(context, metrics),
        shortest,
        looked: HashMap::new(),
        looks: JoinSet::new(),
        under_way: HashMap::new(),
        owed: HashSet::new(),
        retry_at: None,
    };
    let usual = if shortest.is_zero() {
        LONGEST_INTERVAL
    } else {
        shortest
    };
    let mut next_round = Instant::now() + usual;
    loop {
        let wake = follower
            .retry_at
            .map_or(next_round, |at| at.min(next_round));
        tokio::select! {
            () = shutdown.cancelled() => return,
            Some(ended) = follower.looks.join_next_with_id() => {
                follower.ended(ended);
                continue;
            }
            () = hints.inner.wake.notified() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep_until(wake) => {}
        }
        follower.owed.extend(hints.take());
        let is_round = next_round <= Instant::now();
        if is_round {
            next_round = Instant::now() + usual;
        }
        if let Err(error) = follower.start(is_round).await {
            error!(%error, "cannot follow pull requests; trying again");
            follower.retry_soon();
        }
    }
}

type LookResult = Result<Vec<ResponseKey>, StoreError>;

struct Follower {
    looker: Looker,
    shortest: Duration,
    /// When each was looked at last.
    looked: HashMap<ResponseKey, Instant>,
    looks: JoinSet<LookResult>,
    under_way: HashMap<task::Id, Look>,
    /// Hints whose look has not begun, or has not worked.
    owed: HashSet<Hint>,
    /// When to look again for their sake.
    retry_at: Option<Instant>,
}

/// A look at one repository.
struct Look {
    target: String,
    /// The hints that it answers, and what they are about.
    hints: Vec<(ResponseKey, Hint)>,
}

/// Responses whose pull requests can be looked at in one go, by their target.
type ByTarget = BTreeMap<String, Vec<ResponseSummary>>;

impl Follower {
    /// Starts a look at each repository with something that is hinted at or, in a round, due.
    async fn start(&mut self, is_round: bool) -> Result<(), StoreError> {
        let mut due = ByTarget::new();
        let hinted = self.hinted(&mut due).await?;
        if is_round {
            let taken = hinted.iter().map(|(_, key, _)| key.clone()).collect();
            self.add_due(&mut due, &taken).await?;
        }
        self.owed.clear();
        self.retry_at = None;
        let mut hints: HashMap<String, Vec<(ResponseKey, Hint)>> = HashMap::new();
        for (target, key, hint) in hinted {
            if self.can_look(&target, &due) {
                hints.entry(target).or_default().push((key, hint));
            } else {
                self.owed.insert(hint);
                self.retry_soon();
            }
        }
        for (target, summaries) in due {
            if self.is_busy(&target) {
                continue;
            }
            let looker = self.looker.clone();
            let task = self
                .looks
                .spawn(async move { looker.look_at_repository(&summaries).await });
            let hints = hints.remove(&target).unwrap_or_default();
            self.under_way.insert(task.id(), Look { target, hints });
        }
        Ok(())
    }

    fn can_look(&self, target: &str, due: &ByTarget) -> bool {
        let limited = due
            .get(target)
            .and_then(|summaries| summaries.first()?.progress.intent.as_ref())
            .is_some_and(|intent| self.looker.context.is_lane_closed(&intent.target));
        !limited && !self.is_busy(target)
    }

    fn is_busy(&self, target: &str) -> bool {
        self.under_way.values().any(|look| look.target == target)
    }

    fn retry_soon(&mut self) {
        self.retry_at
            .get_or_insert_with(|| Instant::now() + HINT_RETRY);
    }

    /// A look ended. What was not seen is due again at the next round, or sooner if somebody hinted at it.
    fn ended(&mut self, ended: Result<(task::Id, LookResult), task::JoinError>) {
        let (id, seen) = match ended {
            Ok((id, Ok(seen))) => (id, seen),
            Ok((id, Err(error))) => {
                error!(%error, "cannot follow pull requests; trying again");
                (id, Vec::new())
            }
            Err(error) => {
                error!(%error, "a look at pull requests was lost");
                (error.id(), Vec::new())
            }
        };
        let look = self.under_way.remove(&id);
        for (key, hint) in look.into_iter().flat_map(|look| look.hints) {
            if !seen.contains(&key) {
                self.owed.insert(hint);
                self.retry_soon();
            }
        }
        let now = Instant::now();
        // Hints came for this repository while it was looked at.
        if !seen.is_empty() && !self.owed.is_empty() {
            self.retry_at = Some(now);
        }
        self.looked.extend(seen.into_iter().map(|key| (key, now)));
    }

    /// Adds what hints are about; gives back which hint is about what.
    async fn hinted(
        &self,
        due: &mut ByTarget,
    ) -> Result<Vec<(String, ResponseKey, Hint)>, StoreError> {
        let mut hinted = Vec::new();
        for hint in &self.owed {
            let store = &self.looker.context.store;
            for summary in store.followed_on(&hint.branch).await? {
                let intent = summary.progress.intent.as_ref();
                let target = intent
                    .filter(|intent| is_about(hint, intent))
                    .and_then(group);
                if let Some(target) = target {
                    hinted.push((target.clone(), summary.key.clone(), hint.clone()));
                    due.entry(target).or_default().push(summary);
                }
            }
        }
        Ok(hinted)
    }

    /// Adds what is due by its age and was not taken for a hint.
    async fn add_due(
        &mut self,
        due: &mut ByTarget,
        taken: &HashSet<ResponseKey>,
    ) -> Result<(), StoreError> {
        let mut known = HashMap::new();
        let mut after = None;
        loop {
            let store = &self.looker.context.store;
            let page = store.followed(after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for summary in page {
                let last_look = self.looked.get(&summary.key).copied();
                known.insert(summary.key.clone(), last_look);
                if !taken.contains(&summary.key)
                    && let Some(target) = self.is_due(&summary, last_look)
                {
                    due.entry(target).or_default().push(summary);
                }
            }
        }
        self.looker
            .metrics
            .open
            .set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        self.looked = known
            .into_iter()
            .filter_map(|(key, last)| Some((key, last?)))
            .collect();
        Ok(())
    }

    /// What to group a response by, if its pull request is to be looked at now.
    fn is_due(&self, summary: &ResponseSummary, last_look: Option<Instant>) -> Option<String> {
        let intent = summary.progress.intent.as_ref()?;
        if self.shortest.is_zero() || self.looker.context.is_lane_closed(&intent.target) {
            return None;
        }
        let age = summary
            .progress
            .completed_at
            .map(|at| Timestamp::now().duration_since(at))
            .and_then(|age| Duration::try_from(age).ok())
            .unwrap_or_default();
        if last_look.is_some_and(|at| at.elapsed() < interval(self.shortest, age)) {
            return None;
        }
        group(intent)
    }
}

/// Whether a hint is about the pull request of a change.
fn is_about(hint: &Hint, intent: &Intent) -> bool {
    let group = intent.group.as_ref();
    (hint.branch == intent.branch || group.is_some_and(|group| hint.branch == group.branch))
        && Some(hint.forge) == ForgeKind::of(intent.target.kind)
        && hint
            .repository
            .eq_ignore_ascii_case(&intent.target.repository)
}

/// What goes together in one look.
fn group(intent: &Intent) -> Option<String> {
    serde_json::to_string(&intent.target).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_pull_requests_are_looked_at_more_often() {
        let minute = Duration::from_mins(1);
        for (age, expected) in [
            (Duration::ZERO, minute),
            (5 * minute, minute),
            (100 * minute, 10 * minute),
            (100_000 * minute, 60 * minute),
        ] {
            assert_eq!(interval(minute, age), expected, "{age:?}");
        }
        let day = Duration::from_hours(24);
        assert_eq!(
            interval(day, minute),
            day,
            "never more often than is wanted"
        );
    }

    #[test]
    fn hints_are_bounded_and_each_counts_once() {
        let hints = Hints::default();
        for number in 0..2 * MOST_HINTS {
            for _ in 0..2 {
                hints.nudge(Hint {
                    forge: ForgeKind::GitHub,
                    repository: "o/r".to_owned(),
                    branch: format!("nabu/c/{number}"),
                });
            }
        }
        assert_eq!(hints.take().len(), MOST_HINTS);
        assert!(hints.take().is_empty());
    }
}
