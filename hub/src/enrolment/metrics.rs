//! What operators see of enrolment and renewal.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Counters of [`super`] and of renewals; clones share them.
#[derive(Clone, Debug, Default)]
pub struct EnrolmentMetrics {
    enrolments: Family<ResultLabel, Counter>,
    renewals: Family<ResultLabel, Counter>,
}

impl EnrolmentMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "nabu_hub_enrolments",
            "Join tokens that were presented, by what came of them",
            metrics.enrolments.clone(),
        );
        registry.register(
            "nabu_hub_renewals",
            "Certificates that agents asked for over their session, by what came of it",
            metrics.renewals.clone(),
        );
        metrics
    }

    /// `enrolled`, `refused`, `limited` or `invalid`.
    pub(super) fn enrolment(&self, result: &'static str) {
        self.enrolments.get_or_create(&ResultLabel { result }).inc();
    }

    /// `renewed`, `refused` or `failed`.
    pub(crate) fn renewal(&self, result: &'static str) {
        self.renewals.get_or_create(&ResultLabel { result }).inc();
    }
}
