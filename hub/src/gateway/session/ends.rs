//! How a session ends, and what the audit log has of it.

use std::time::Duration;

use jiff::Timestamp;
use nabu_proto::agent_v1::GoodbyeReason;
use tokio::time::Instant;
use tracing::{error, warn};

use super::Session;
use crate::gateway::Farewell;
use crate::store::{AuditEvent, StoreError};

/// How long an agent shall wait when the store fails.
const AFTER_STORE_ERROR: Duration = Duration::from_secs(5);

impl Session {
    /// Whether nothing of this kind has happened to the cluster a moment ago.
    pub(super) fn is_news(&self, action: &str) -> bool {
        let now = Instant::now().into_std();
        self.shared.refusals.is_news(&self.cluster, action, now)
    }

    /// Writes down what went wrong, unless something did a moment ago; `false` if so.
    pub(super) async fn note(&self, action: &str, message: &str) -> bool {
        if !self.is_news(action) {
            return false;
        }
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: format!("agent/{}", self.cluster),
            action: action.to_owned(),
            detail: message.chars().take(300).collect(),
        };
        if let Err(error) = self.shared.store.audit(Some(&self.cluster), event).await {
            error!(%error, "cannot write the audit log");
        }
        true
    }

    /// Notes that an agent went too far.
    pub(super) async fn sent_away(&self, farewell: Farewell) -> Farewell {
        self.bounds.send_away(Instant::now());
        warn!(remote = %self.peer.remote_addr, message = farewell.message, "an agent went too far");
        self.shared.metrics.refused("TooFar");
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: format!("agent/{}", self.cluster),
            action: "SessionEnded".to_owned(),
            detail: farewell.message.clone(),
        };
        if let Err(error) = self.shared.store.audit(Some(&self.cluster), event).await {
            error!(%error, "cannot write the audit log");
        }
        farewell
    }
}

pub(super) fn shutting_down() -> Farewell {
    Farewell::new(GoodbyeReason::Shutdown, "the hub shuts down")
}

pub(super) fn superseded() -> Farewell {
    Farewell::new(
        GoodbyeReason::Superseded,
        "a newer session of this cluster took over; run one agent for each cluster id",
    )
}

pub(super) fn store_failed(error: &StoreError) -> Farewell {
    error!(%error, source = ?std::error::Error::source(error).map(ToString::to_string), "the store failed under a session");
    Farewell::new(GoodbyeReason::Overloaded, "the hub's store does not answer")
        .after(AFTER_STORE_ERROR)
}
