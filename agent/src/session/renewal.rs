//! Owns the renewal of the agent's certificate over the session: when to ask, and what the answers mean.

use std::sync::Arc;
use std::time::Duration;

use nabu_proto::agent_v1::session_request::Frame as ToHubFrame;
use nabu_proto::agent_v1::session_response::Frame as FromHubFrame;
use nabu_proto::agent_v1::{RenewCertificate, Welcome};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::identity::Keeper;

/// The capability of agents and hubs that renew.
pub(super) const RENEWAL: &str = "renewal";

/// The renewal of one session.
pub(super) struct Renewal {
    keeper: Option<Arc<Keeper>>,
    due: Option<Instant>,
}

/// What a frame meant.
#[derive(Debug)]
pub(super) enum Meant {
    /// It was about something else.
    Other(Box<FromHubFrame>),
    /// It is dealt with.
    Done,
    /// The next session shall begin, with a new certificate.
    Switch,
}

impl Renewal {
    /// After Welcome.
    pub(super) async fn begin(keeper: Option<&Arc<Keeper>>, welcome: &Welcome) -> Self {
        let renews = welcome.capabilities.iter().any(|one| one == RENEWAL);
        let wait = match keeper {
            Some(keeper) => keeper.opened(welcome, renews).await,
            None => None,
        };
        Self {
            keeper: keeper.cloned(),
            due: wait.map(|wait| Instant::now() + wait),
        }
    }

    /// Waits until it is time to ask.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// The question; should no answer come, it is asked again.
    pub(super) async fn ask(&mut self) -> Option<ToHubFrame> {
        let keeper = self.keeper.as_ref()?;
        self.due = keeper.retry().await.map(|wait| Instant::now() + wait);
        let csr_der = keeper.request().await?.into();
        Some(ToHubFrame::RenewCertificate(RenewCertificate { csr_der }))
    }

    /// Takes what is about certificates.
    pub(super) async fn take(&mut self, frame: FromHubFrame) -> Meant {
        let Some(keeper) = &self.keeper else {
            return Meant::Other(Box::new(frame));
        };
        match frame {
            FromHubFrame::CertificateIssued(issued) => {
                if keeper.issued(issued).await {
                    info!("the certificate is renewed; the session goes on with the new one");
                    return Meant::Switch;
                }
            }
            FromHubFrame::RenewalRefused(refused) => {
                warn!(
                    reason = refused.message,
                    "the hub does not renew the certificate"
                );
            }
            FromHubFrame::TrustBundle(bundle) => {
                if let Some(wait) = keeper.trust(bundle).await {
                    self.hurry(wait);
                }
            }
            other => return Meant::Other(Box::new(other)),
        }
        Meant::Done
    }

    fn hurry(&mut self, wait: Duration) {
        let soon = Instant::now() + wait;
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }
}
