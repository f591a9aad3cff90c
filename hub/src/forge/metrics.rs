//! What operators see of the requests to forges. Labels are small fixed sets: never a text of a forge, never a name.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::change::ProviderKind;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Mints a token.
    Authorize,
    /// Finds the pull request of a key.
    Lookup,
    /// Reads anything else.
    Read,
    /// Makes branch and commit.
    Commit,
    /// Opens the pull request.
    Open,
    /// Finds or makes a label.
    Label,
    /// Asks for a review.
    Review,
    /// Assigns people.
    Assign,
    /// Puts labels and people on a pull request, all at once.
    Adorn,
    /// Sets title and body of a pull request.
    Edit,
    /// Closes a pull request.
    Close,
    /// Says something on a pull request.
    Comment,
    /// Asks what became of pull requests.
    Observe,
    /// Finds the id of a user name.
    Person,
    /// Asks the forge to merge by itself once its rules allow it.
    AutoMerge,
    /// Takes back a branch that turned out to hold no change.
    DeleteBranch,
}

impl Operation {
    /// Whether it changes anything on the forge.
    pub const fn writes(self) -> bool {
        !matches!(
            self,
            Self::Authorize | Self::Lookup | Self::Read | Self::Observe | Self::Person
        )
    }

    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Authorize => "authorize",
            Self::Lookup => "lookup",
            Self::Read => "read",
            Self::Commit => "commit",
            Self::Open => "open",
            Self::Label => "label",
            Self::Review => "review",
            Self::Assign => "assign",
            Self::Adorn => "adorn",
            Self::Edit => "edit",
            Self::Close => "close",
            Self::Comment => "comment",
            Self::Observe => "observe",
            Self::Person => "person",
            Self::AutoMerge => "auto_merge",
            Self::DeleteBranch => "delete_branch",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DurationLabels {
    provider: &'static str,
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    provider: &'static str,
    operation: &'static str,
    result: &'static str,
}

/// Counts and times of requests; clones share them.
#[derive(Clone, Debug)]
pub struct ForgeMetrics {
    duration: Family<DurationLabels, Histogram>,
    requests: Family<RequestLabels, Counter>,
}

impl ForgeMetrics {
    /// Registers everything.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            duration: Family::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.005, 2.0, 13))
            }),
            requests: Family::default(),
        };
        registry.register_with_unit(
            "nabu_hub_forge_request_duration",
            "Time from sending a request to a forge to the end of its answer",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "nabu_hub_forge_requests",
            "Requests to forges, by what they were for and how they ended",
            metrics.requests.clone(),
        );
        metrics
    }

    /// Records one request.
    pub(super) fn record(
        &self,
        kind: ProviderKind,
        operation: Operation,
        result: &'static str,
        took: Duration,
    ) {
        let (provider, operation) = (kind.as_str(), operation.as_str());
        self.duration
            .get_or_create(&DurationLabels {
                provider,
                operation,
            })
            .observe(took.as_secs_f64());
        self.requests
            .get_or_create(&RequestLabels {
                provider,
                operation,
                result,
            })
            .inc();
    }
}
