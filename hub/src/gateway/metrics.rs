//! What operators see of sessions.

use std::sync::atomic::AtomicU64;

use nabu_common::ids::ClusterId;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

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
    skew: Family<ClusterLabel, Gauge<f64, AtomicU64>>,
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
        registry.register_with_unit(
            "nabu_hub_cluster_clock_skew",
            "How far the clock of the cluster's agent was ahead of the hub's when its session was opened",
            Unit::Seconds,
            metrics.skew.clone(),
        );
        metrics
    }

    /// Ends the series of a cluster that is gone.
    pub(super) fn forget(&self, cluster: &ClusterId) {
        let label = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.connected.remove(&label);
        self.backlog.remove(&label);
        self.skew.remove(&label);
    }

    pub(super) fn skew(&self, cluster: &ClusterId, seconds: f64) {
        let label = ClusterLabel {
            cluster: cluster.to_string(),
        };
        self.skew.get_or_create(&label).set(seconds);
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
