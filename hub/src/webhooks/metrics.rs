//! What operators see of webhooks: how many came, and what became of each.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::ForgeKind;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    forge: &'static str,
    result: &'static str,
}

/// Counts of webhooks; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct WebhookMetrics {
    webhooks: Family<Labels, Counter>,
}

impl WebhookMetrics {
    /// Registers everything.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "nabu_hub_webhooks",
            "Webhooks that came to the path of a forge, by what became of them",
            metrics.webhooks.clone(),
        );
        metrics
    }

    /// Counts one.
    pub(super) fn count(&self, forge: ForgeKind, result: &'static str) {
        let forge = forge.as_str();
        self.webhooks.get_or_create(&Labels { forge, result }).inc();
    }

    #[cfg(test)]
    pub(super) fn counted(&self, forge: ForgeKind, result: &'static str) -> u64 {
        let forge = forge.as_str();
        self.webhooks.get_or_create(&Labels { forge, result }).get()
    }
}
