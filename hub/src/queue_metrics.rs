//! How much work waits, by cluster, as the store knows it: for alerts on a queue that does not move.

use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ops::Check;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::store::SharedStore;

/// How often the store is asked.
const INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

/// Gauges of what waits.
#[derive(Clone, Debug, Default)]
pub struct QueueMetrics {
    unfinished: Family<ClusterLabel, Gauge>,
    oldest: Family<ClusterLabel, Gauge<f64, AtomicU64>>,
}

impl QueueMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "nabu_hub_responses_unfinished",
            "Responses that are not in a terminal phase",
            metrics.unfinished.clone(),
        );
        registry.register_with_unit(
            "nabu_hub_oldest_unfinished_age",
            "Age of the oldest response that is not in a terminal phase",
            Unit::Seconds,
            metrics.oldest.clone(),
        );
        metrics
    }

    /// Asks the store again and again until `shutdown`; says in `check` whether it answers.
    pub async fn keep_fresh(self, store: SharedStore, check: Check, shutdown: CancellationToken) {
        let mut shown = HashSet::new();
        loop {
            match store.clusters().await {
                Ok(clusters) => {
                    check.set_ready();
                    let mut now_shown = HashSet::new();
                    for record in clusters {
                        let label = ClusterLabel {
                            cluster: record.facts.cluster.to_string(),
                        };
                        let age = record
                            .oldest_unfinished_at
                            .map_or(0.0, |at| Timestamp::now().duration_since(at).as_secs_f64());
                        let count = i64::try_from(record.unfinished).unwrap_or(i64::MAX);
                        self.unfinished.get_or_create(&label).set(count);
                        self.oldest.get_or_create(&label).set(age.max(0.0));
                        now_shown.insert(label);
                    }
                    for gone in shown.difference(&now_shown) {
                        self.unfinished.remove(gone);
                        self.oldest.remove(gone);
                    }
                    shown = now_shown;
                }
                Err(failure) => {
                    error!(error = %failure, "the store does not answer");
                    check.set_unready(failure.to_string());
                }
            }
            if shutdown
                .run_until_cancelled(tokio::time::sleep(INTERVAL))
                .await
                .is_none()
            {
                return;
            }
        }
    }
}
