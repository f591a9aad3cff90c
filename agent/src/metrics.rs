//! Owns the numbers that operators see.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// How a status write ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PatchLabels {
    /// `stored`, `refused` or `failed`.
    pub result: &'static str,
}

/// The agent's metrics.
#[derive(Debug)]
pub struct Metrics {
    /// 1 while a session with the hub is open.
    pub session_connected: Gauge,
    /// Sessions that were tried after the first.
    pub reconnects: Counter,
    /// Observed frames.
    pub observed: Counter,
    /// Status writes by result.
    pub status_patches: Family<PatchLabels, Counter>,
    /// Seconds that a status write takes.
    pub status_patch_seconds: Histogram,
    /// `EventResponses` that the hub has not accepted.
    pub backlog: Gauge,
    /// Unfinished `EventResponses` that are remembered.
    pub tracked: Gauge,
    /// Inventories that were begun.
    pub resyncs: Counter,
    /// Failures of the watch.
    pub watch_restarts: Counter,
    /// 1 while this replica is the active one.
    pub leader: Gauge,
    /// Kubernetes Events that were left out.
    pub events_dropped: Counter,
    /// When the certificate that the agent keeps itself runs out, in seconds since 1970; 0 without one.
    pub certificate_not_after: Gauge,
    /// Certificates that were renewed.
    pub renewals: Counter,
    /// 1 while the agent waits for a join token.
    pub join_token_needed: Gauge,
    /// Seconds that our clock is ahead of the hub's.
    pub clock_skew: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Registers everything under `nabu_agent_`.
    pub fn new(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("nabu_agent");
        let metrics = Self {
            session_connected: Gauge::default(),
            reconnects: Counter::default(),
            observed: Counter::default(),
            status_patches: Family::default(),
            status_patch_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 14)),
            backlog: Gauge::default(),
            tracked: Gauge::default(),
            resyncs: Counter::default(),
            watch_restarts: Counter::default(),
            leader: Gauge::default(),
            events_dropped: Counter::default(),
            certificate_not_after: Gauge::default(),
            renewals: Counter::default(),
            join_token_needed: Gauge::default(),
            clock_skew: Gauge::default(),
        };
        let m = &metrics;
        registry.register(
            "session_connected",
            "1 while a session with the hub is open",
            m.session_connected.clone(),
        );
        registry.register(
            "reconnects",
            "Sessions that were tried after the first",
            m.reconnects.clone(),
        );
        registry.register(
            "observed",
            "Observed frames handed to the session",
            m.observed.clone(),
        );
        registry.register(
            "status_patches",
            "Status writes by result",
            m.status_patches.clone(),
        );
        registry.register_with_unit(
            "status_patch",
            "Time that a status write takes",
            Unit::Seconds,
            m.status_patch_seconds.clone(),
        );
        registry.register(
            "backlog",
            "EventResponses that the hub has not accepted yet",
            m.backlog.clone(),
        );
        registry.register(
            "tracked",
            "Unfinished EventResponses that are remembered",
            m.tracked.clone(),
        );
        registry.register("resyncs", "Inventories that were begun", m.resyncs.clone());
        registry.register(
            "watch_restarts",
            "Failures of the watch on EventResponses",
            m.watch_restarts.clone(),
        );
        registry.register(
            "leader",
            "1 while this replica is the active one",
            m.leader.clone(),
        );
        registry.register(
            "events_dropped",
            "Kubernetes Events that were left out",
            m.events_dropped.clone(),
        );
        registry.register_with_unit(
            "certificate_not_after_timestamp",
            "When the certificate that the agent keeps itself runs out, since 1970; 0 without one",
            Unit::Seconds,
            m.certificate_not_after.clone(),
        );
        registry.register(
            "certificate_renewals",
            "Certificates that were renewed",
            m.renewals.clone(),
        );
        registry.register(
            "join_token_needed",
            "1 while the agent has no certificate that the hub takes, and needs a join token",
            m.join_token_needed.clone(),
        );
        registry.register_with_unit(
            "clock_skew",
            "How far the agent's clock was ahead of the hub's when the session was opened",
            Unit::Seconds,
            m.clock_skew.clone(),
        );
        metrics
    }
}
