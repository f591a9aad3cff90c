//! What operators see of pull requests after they were opened.

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use super::look::word;
use crate::change::ProviderKind;
use crate::forge::PullRequestState;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    provider: &'static str,
    state: &'static str,
}

/// Counters and gauges; clones share them.
#[derive(Clone, Debug)]
pub struct FollowMetrics {
    /// Pull requests that wait for people, as of the last look.
    pub open: Gauge,
    ended: Family<EndLabels, Counter>,
    time_to_merge: Histogram,
}

impl FollowMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            open: Gauge::default(),
            ended: Family::default(),
            time_to_merge: Histogram::new(exponential_buckets(60.0, 2.0, 16)),
        };
        registry.register(
            "nabu_hub_pull_requests_open",
            "Pull requests of the hub that wait for people",
            metrics.open.clone(),
        );
        registry.register(
            "nabu_hub_pull_requests_ended",
            "Pull requests of the hub that people have merged or closed",
            metrics.ended.clone(),
        );
        registry.register_with_unit(
            "nabu_hub_pull_request_time_to_merge",
            "Time from the success of a response to the merge of its pull request",
            Unit::Seconds,
            metrics.time_to_merge.clone(),
        );
        metrics
    }

    pub(super) fn count(
        &self,
        provider: ProviderKind,
        state: PullRequestState,
        opened_at: Option<Timestamp>,
        ended_at: Option<Timestamp>,
    ) {
        let labels = EndLabels {
            provider: provider.as_str(),
            state: word(state),
        };
        self.ended.get_or_create(&labels).inc();
        if let (PullRequestState::Merged, Some(opened), Some(ended)) = (state, opened_at, ended_at)
        {
            let taken = ended.duration_since(opened).as_secs_f64();
            self.time_to_merge.observe(taken.max(0.0));
        }
    }
}
