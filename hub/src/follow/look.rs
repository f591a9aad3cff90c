//! Looks at the pull requests of one repository, stores what became of them, and tells their clusters.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio::sync::Semaphore;
use tracing::{info, warn};

use super::metrics::FollowMetrics;
use crate::change::{ForgeTarget, Intent};
use crate::execute::Context;
use crate::forge::{ForgeError, Job, ObservedPull, PullRequestState, number_of};
use crate::plan::progress::{self, Moment};
use crate::response::Progress;
use crate::store::{AuditEvent, ResponseSummary, SideRecords, StoreError};

/// Pull requests that one look asks for.
const TOGETHER: usize = 50;
/// Repositories that are looked at at one time.
const REPOSITORIES_AT_ONCE: usize = 16;

/// What a look needs; clones share it.
#[derive(Clone)]
pub(super) struct Looker {
    pub(super) context: Arc<Context>,
    pub(super) metrics: FollowMetrics,
    places: Arc<Semaphore>,
}

impl Looker {
    pub(super) fn new(context: Arc<Context>, metrics: FollowMetrics) -> Self {
        Self {
            context,
            metrics,
            places: Arc::new(Semaphore::new(REPOSITORIES_AT_ONCE)),
        }
    }

    /// Looks at pull requests of one repository. Gives back those that were seen.
    pub(super) async fn look_at_repository(
        &self,
        summaries: &[ResponseSummary],
    ) -> Result<Vec<ResponseKey>, StoreError> {
        let _place = self.places.acquire().await;
        let mut seen = Vec::new();
        for together in summaries.chunks(TOGETHER) {
            let target = together
                .first()
                .and_then(|one| one.progress.intent.as_ref());
            // A look before may have met a limit.
            if target.is_some_and(|intent| self.context.is_lane_closed(&intent.target)) {
                break;
            }
            if !self.look_together(together).await? {
                break;
            }
            seen.extend(together.iter().map(|one| one.key.clone()));
        }
        Ok(seen)
    }

    /// Looks at pull requests of one repository; `false` if the forge did not answer.
    async fn look_together(&self, summaries: &[ResponseSummary]) -> Result<bool, StoreError> {
        // Members of a group have one together.
        let mut by_number: HashMap<u64, Vec<&ResponseSummary>> = HashMap::new();
        for summary in summaries {
            if let Some(number) = summary.progress.url.as_deref().and_then(number_of) {
                by_number.entry(number).or_default().push(summary);
            }
        }
        let first = summaries.first();
        let Some((first, intent)) =
            first.and_then(|first| Some((first, first.progress.intent.as_ref()?)))
        else {
            return Ok(true);
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
                    let Some(of_it) = by_number.get(&pull.number) else {
                        continue;
                    };
                    if let Some(first) = of_it.first() {
                        self.clear_away(first, &pull).await;
                    }
                    for summary in of_it {
                        self.note(summary, pull.clone()).await?;
                    }
                }
                Ok(true)
            }
            Err(error) => {
                self.failed(&intent.target, &error);
                Ok(false)
            }
        }
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

    /// Removes the branch of a merged pull request where the route wants that.
    async fn clear_away(&self, summary: &ResponseSummary, pull: &ObservedPull) {
        let Some(intent) = summary.progress.intent.as_ref().filter(|intent| {
            pull.state == PullRequestState::Merged && intent.options.delete_branch_after_merge
        }) else {
            return;
        };
        let shared = intent.in_group().filter(|_| summary.progress.shared);
        self.remove_branch(&summary.key, shared.as_ref().unwrap_or(intent), pull.number)
            .await;
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

pub(super) const fn word(state: PullRequestState) -> &'static str {
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
