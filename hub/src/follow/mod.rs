//! Follows pull requests until people have merged or closed them, and tells the result to their clusters.
//!
//! What is followed stands in the store. [`run`] looks at each again and again, those that are young more often
//! ([`interval`]), many of one repository in one request; a hint ([`Hints`]) makes it look at once. The phase of a
//! response stays: only the condition `PullRequest` changes.

pub mod metrics;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::change::{ForgeTarget, Intent};
use crate::execute::Context;
use crate::forge::{ForgeError, Job, ObservedPull, PullRequestState, number_of};
use crate::plan::progress::{self, Moment};
use crate::response::Progress;
use crate::store::{AuditEvent, ResponseSummary, SideRecords, StoreError};
use crate::webhooks::{ForgeKind, Hint, Nudge};
use metrics::FollowMetrics;

/// Responses that one page brings.
const PAGE: u32 = 256;
/// Pull requests that one look asks for.
const TOGETHER: usize = 50;
/// Hints that wait; more are dropped, the next look finds what they were about.
const MOST_HINTS: usize = 1024;
/// Several hints often come together.
const GATHER: Duration = Duration::from_millis(250);
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
        context,
        metrics,
        shortest,
        looked: HashMap::new(),
    };
    loop {
        let pause = if shortest.is_zero() {
            LONGEST_INTERVAL
        } else {
            shortest
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = hints.inner.wake.notified() => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(pause) => {}
        }
        let hinted = hints.take();
        let looked = shutdown.run_until_cancelled(follower.look(&hinted)).await;
        match looked {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                error!(%error, "cannot follow pull requests; trying again");
            }
        }
    }
}

struct Follower {
    context: Arc<Context>,
    metrics: FollowMetrics,
    shortest: Duration,
    /// When each was looked at last.
    looked: HashMap<ResponseKey, Instant>,
}

impl Follower {
    /// Looks at all that are due or hinted at.
    async fn look(&mut self, hinted: &HashSet<Hint>) -> Result<(), StoreError> {
        let mut due: BTreeMap<String, Vec<ResponseSummary>> = BTreeMap::new();
        let mut known = HashMap::new();
        let mut after = None;
        loop {
            let page = self.context.store.followed(after.as_ref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.clone());
            for summary in page {
                let last_look = self.looked.get(&summary.key).copied();
                known.insert(summary.key.clone(), last_look);
                if let Some(target) = self.is_due(&summary, last_look, hinted) {
                    due.entry(target).or_default().push(summary);
                }
            }
        }
        self.metrics
            .open
            .set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        self.looked = known
            .into_iter()
            .filter_map(|(key, last)| Some((key, last?)))
            .collect();
        for summaries in due.values() {
            for together in summaries.chunks(TOGETHER) {
                let target = together
                    .first()
                    .and_then(|one| one.progress.intent.as_ref());
                // A look before may have met a limit.
                if target.is_some_and(|intent| self.context.is_lane_closed(&intent.target)) {
                    break;
                }
                self.look_together(together).await?;
            }
        }
        Ok(())
    }

    /// What to group a response by, if its pull request is to be looked at now.
    fn is_due(
        &self,
        summary: &ResponseSummary,
        last_look: Option<Instant>,
        hinted: &HashSet<Hint>,
    ) -> Option<String> {
        let intent = summary.progress.intent.as_ref()?;
        if self.context.is_lane_closed(&intent.target) {
            return None;
        }
        let hinted = hinted.iter().any(|hint| {
            hint.branch == intent.branch
                && Some(hint.forge) == ForgeKind::of(intent.target.kind)
                && hint
                    .repository
                    .eq_ignore_ascii_case(&intent.target.repository)
        });
        if !hinted {
            if self.shortest.is_zero() {
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
        }
        serde_json::to_string(&intent.target).ok()
    }

    /// Looks at pull requests of one repository.
    async fn look_together(&mut self, summaries: &[ResponseSummary]) -> Result<(), StoreError> {
        let mut by_number: HashMap<u64, &ResponseSummary> = HashMap::new();
        for summary in summaries {
            self.looked.insert(summary.key.clone(), Instant::now());
            if let Some(number) = summary.progress.url.as_deref().and_then(number_of) {
                by_number.insert(number, summary);
            }
        }
        let first = summaries.first();
        let Some((first, intent)) =
            first.and_then(|first| Some((first, first.progress.intent.as_ref()?)))
        else {
            return Ok(());
        };
        let mut numbers: Vec<u64> = by_number.keys().copied().collect();
        numbers.sort_unstable();
        let observed = match self.context.forges.get(&intent.target) {
            Ok(forge) => forge.observe(&Job::new(&first.key, intent), &numbers).await,
            Err(error) => Err(error),
        };
        match observed {
            Ok(observed) => {
                for pull in observed {
                    if let Some(summary) = by_number.get(&pull.number) {
                        self.note(summary, pull).await?;
                    }
                }
            }
            Err(error) => self.failed(&intent.target, &error),
        }
        Ok(())
    }

    fn failed(&self, target: &ForgeTarget, error: &ForgeError) {
        if let ForgeError::RateLimited {
            retry_after,
            detail,
        } = error
        {
            self.context.close_lane(target, *retry_after, detail);
        }
        warn!(repository = target.repository, %error, "cannot look at pull requests; the next look tries again");
    }

    /// Stores what became of one pull request, and tells its cluster.
    async fn note(&self, summary: &ResponseSummary, pull: ObservedPull) -> Result<(), StoreError> {
        if pull.state == PullRequestState::Open {
            return Ok(());
        }
        let key = &summary.key;
        let Some(intent) = &summary.progress.intent else {
            return Ok(());
        };
        if pull.state == PullRequestState::Merged && intent.options.delete_branch_after_merge {
            self.remove_branch(key, intent, pull.number).await;
        }
        let moment = Moment {
            now: Timestamp::now(),
            generation: summary.generation,
            jitter: 0.0,
        };
        let (state, ended_at) = (pull.state, pull.ended_at);
        let transition = Box::new(move |progress: &mut Progress| {
            let before = progress.revision;
            progress::observe_pull_request(progress, &pull, moment);
            let mut records = SideRecords::default();
            if progress.revision > before {
                records.audit.push(ended(progress, state, moment.now));
            }
            records
        });
        let Some(progress) = self.context.store.transition(key, transition).await? else {
            return Ok(());
        };
        if progress.revision == summary.progress.revision {
            return Ok(());
        }
        info!(%key, url = progress.url, state = word(state), "the pull request has ended");
        self.metrics.count(
            intent.target.kind,
            state,
            summary.progress.completed_at,
            ended_at,
        );
        if !progress.deleted {
            let summary = ResponseSummary {
                progress,
                ..summary.clone()
            };
            self.context.statuses.publish(Arc::new(summary));
        }
        Ok(())
    }

    async fn remove_branch(&self, key: &ResponseKey, intent: &Intent, number: u64) {
        let removed = match self.context.forges.get(&intent.target) {
            Ok(forge) => forge.remove_branch(&Job::new(key, intent), number).await,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            warn!(%key, branch = intent.branch, %error, "the branch of a merged pull request stays");
        }
    }
}

const fn word(state: PullRequestState) -> &'static str {
    match state {
        PullRequestState::Open => "open",
        PullRequestState::Merged => "merged",
        PullRequestState::Closed => "closed",
    }
}

fn ended(progress: &Progress, state: PullRequestState, at: Timestamp) -> AuditEvent {
    let action = match state {
        PullRequestState::Merged => "PullRequestMerged",
        _ => "PullRequestClosed",
    };
    let conditions = progress.conditions.iter();
    let detail = conditions
        .filter(|condition| condition.kind == progress::PULL_REQUEST)
        .map(|condition| condition.message.clone())
        .next();
    AuditEvent {
        at,
        actor: "hub".to_owned(),
        action: action.to_owned(),
        detail: detail.unwrap_or_default(),
    }
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
