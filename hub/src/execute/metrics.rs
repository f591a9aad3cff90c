//! What operators see of the work on responses. The three `ugallu_gitops_responder_*` names are those of the
//! in-cluster responder that existing dashboards know.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// Labels of a finished dispatch.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DispatchLabels {
    /// The provider kind.
    pub provider: &'static str,
    /// The outcome type.
    pub outcome: &'static str,
}

/// Labels of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AttemptLabels {
    /// `succeeded`, `failed`, `waited` (a limit, an outage) or `parked` (until people act).
    pub outcome: &'static str,
}

/// Labels of a try to close a pull request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ClosingLabels {
    /// The provider kind.
    pub provider: &'static str,
    /// `closed`, `merged` (people were faster), `not_found`, `failed` or `waited` (a limit, an outage).
    pub outcome: &'static str,
}

/// Labels of a try to make a pull request show another content.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct UpdateLabels {
    /// The provider kind.
    pub provider: &'static str,
    /// `updated`, `ended` (merged or closed before), `refused` (nothing was asked of the forge), `failed` or `waited` (a
    /// limit, an outage).
    pub outcome: &'static str,
}

/// Counters and gauges of [`super`]; clones share them.
#[derive(Clone, Debug)]
pub struct ExecuteMetrics {
    /// Responses that ended, by provider and outcome.
    pub dispatches: Family<DispatchLabels, Counter>,
    /// Attempts by how they ended.
    pub attempts: Family<AttemptLabels, Counter>,
    /// Tries to close pull requests of cancelled responses, by how they ended.
    pub closings: Family<ClosingLabels, Counter>,
    /// Tries to make pull requests show another content, by how they ended.
    pub updates: Family<UpdateLabels, Counter>,
    /// Responses that no route matched.
    pub routing_misses: Counter,
    /// Responses that are worked on now.
    pub running: Gauge,
    /// Responses that stand in line for a credential or repository.
    pub queued: Gauge,
    /// Credentials that wait because their forge limits them.
    pub limited: Gauge,
    /// Responses that wait for a time.
    pub delayed: Gauge,
    /// Seconds from the first observation to the terminal phase.
    pub completion: Histogram,
}

impl ExecuteMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            dispatches: Family::default(),
            attempts: Family::default(),
            closings: Family::default(),
            updates: Family::default(),
            routing_misses: Counter::default(),
            running: Gauge::default(),
            queued: Gauge::default(),
            limited: Gauge::default(),
            delayed: Gauge::default(),
            completion: Histogram::new(exponential_buckets(0.001, 2.0, 20)),
        };
        registry.register(
            "ugallu_gitops_responder_dispatches",
            "Responses that ended, by provider kind and outcome type",
            metrics.dispatches.clone(),
        );
        registry.register(
            "ugallu_gitops_responder_attempts",
            "Attempts to make a change, by how they ended",
            metrics.attempts.clone(),
        );
        registry.register(
            "nabu_hub_closings",
            "Tries to close the pull request of a cancelled response, by how they ended",
            metrics.closings.clone(),
        );
        registry.register(
            "nabu_hub_updates",
            "Tries to make a pull request show what its EventResponse asks for by now, by how they ended",
            metrics.updates.clone(),
        );
        registry.register(
            "ugallu_gitops_responder_routing_misses",
            "Responses that no route matched",
            metrics.routing_misses.clone(),
        );
        registry.register(
            "nabu_hub_responses_running",
            "Responses that are worked on now",
            metrics.running.clone(),
        );
        registry.register(
            "nabu_hub_responses_queued",
            "Responses in line for a credential or a repository",
            metrics.queued.clone(),
        );
        registry.register(
            "nabu_hub_credentials_limited",
            "Credentials whose work waits because their forge limits them",
            metrics.limited.clone(),
        );
        registry.register(
            "nabu_hub_responses_delayed",
            "Responses that wait for their next attempt",
            metrics.delayed.clone(),
        );
        registry.register_with_unit(
            "nabu_hub_response_completion",
            "Time from the first observation of a response to its terminal phase",
            Unit::Seconds,
            metrics.completion.clone(),
        );
        metrics
    }
}
