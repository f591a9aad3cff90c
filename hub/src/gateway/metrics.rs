//! What operators see of sessions.

use nabu_common::ids::ClusterId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClusterLabel {
    cluster: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FrameLabel {
    frame: &'static str,
}

/// Counters and gauges of [`super`]; clones share them.
#[derive(Clone, Debug, Default)]
pub struct GatewayMetrics {
    pub(super) sessions: Gauge,
    refusals: Family<ReasonLabel, Counter>,
    frames: Family<FrameLabel, Counter>,
    pub(super) statuses: Counter,
    connected: Family<ClusterLabel, Gauge>,
    backlog: Family<ClusterLabel, Gauge>,
}

impl GatewayMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "nabu_hub_sessions",
            "Sessions that are open",
            metrics.sessions.clone(),
        );
        registry.register(
            "nabu_hub_sessions_refused",
            "Sessions and frames that were refused, by reason",
            metrics.refusals.clone(),
        );
        registry.register(
            "nabu_hub_frames_received",
            "Frames from agents, by kind",
            metrics.frames.clone(),
        );
        registry.register(
            "nabu_hub_statuses_sent",
            "Statuses that were sent to agents",
            metrics.statuses.clone(),
        );
        registry.register(
            "nabu_hub_cluster_connected",
            "Whether a session of the cluster is open (1) or not (0)",
            metrics.connected.clone(),
        );
        registry.register(
            "nabu_hub_cluster_backlog",
            "EventResponses that the cluster's agent holds and the hub has not accepted",
            metrics.backlog.clone(),
        );
        metrics
    }

    pub(super) fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(super) fn received(&self, frame: &'static str) {
        self.frames.get_or_create(&FrameLabel { frame }).inc();
    }

    pub(super) fn connected(&self, cluster: &ClusterId, connected: bool) {
        let label = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.connected
            .get_or_create(&label)
            .set(i64::from(connected));
        if !connected {
            self.backlog.remove(&label);
        }
    }

    pub(super) fn backlog(&self, cluster: &ClusterId, backlog: u64) {
        let label = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.backlog
            .get_or_create(&label)
            .set(i64::try_from(backlog).unwrap_or(i64::MAX));
    }
}
