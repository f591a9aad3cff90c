//! Webhooks: forges tell that a pull request has changed, and somebody looks at it sooner than they would have.
//!
//! **A webhook is only a hint.** A signed one says "look at this pull request now", through [`Nudge`]; what is true is
//! then read from the forge itself, with the hub's own credential. So a webhook that is repeated, late, lost or made up
//! by somebody who knows the secret costs at most one look, and replay is harmless; deliveries that were taken already
//! are left out all the same ([`deliveries`]), because a look costs a request.
//!
//! Strangers reach this listener. Until a signature is checked ([`signature`]) nothing happens but reading a bounded
//! body in a bounded time ([`server`]); only then is a body looked at ([`payload`]).

mod deliveries;
mod metrics;
mod payload;
mod secrets;
mod server;
mod signature;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, header};
use jiff::Timestamp;
use prometheus_client::registry::Registry;
use secrecy::SecretString;
use tokio::sync::Semaphore;

use crate::change::ProviderKind;
use crate::routes::ConfigHandle;
use deliveries::{Deliveries, Delivery};
use metrics::WebhookMetrics;
use payload::Event;
pub use server::serve;
use signature::Proof;

/// Forge software, by what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ForgeKind {
    /// GitHub, Enterprise Server among them.
    GitHub,
    /// GitLab.
    GitLab,
    /// Forgejo and Gitea.
    Forgejo,
}

impl ForgeKind {
    /// The name in metric labels and at the end of the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GitHub => "github",
            Self::GitLab => "gitlab",
            Self::Forgejo => "forgejo",
        }
    }

    /// The software behind a provider of routes.
    pub const fn of(provider: ProviderKind) -> Option<Self> {
        match provider {
            ProviderKind::GithubApp | ProviderKind::GithubToken => Some(Self::GitHub),
            ProviderKind::GitlabToken => Some(Self::GitLab),
            ProviderKind::ForgejoToken => Some(Self::Forgejo),
            ProviderKind::Noop => None,
        }
    }

    fn from_path(path: &str) -> Option<Self> {
        let name = path.strip_prefix("/webhooks/")?;
        [Self::GitHub, Self::GitLab, Self::Forgejo]
            .into_iter()
            .find(|forge| forge.as_str() == name)
    }
}

/// A pull request that somebody says has changed. Not trusted: both texts are whatever the sender wrote, bounded in
/// length and without control characters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hint {
    /// The software that the hint is from. Not the host: several forges of one kind share a path.
    pub forge: ForgeKind,
    /// `owner/name`, or `group/sub-group/name` on GitLab, in the forge's own spelling.
    pub repository: String,
    /// The branch of the change (the head).
    pub branch: String,
}

/// Takes hints that a pull request has changed.
pub trait Nudge: Send + Sync {
    /// Takes one. Called for every hint, most of which are of no interest; must not block.
    fn nudge(&self, hint: Hint);
}

/// What became of a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// It was a hint, and was passed on.
    Accepted,
    /// It was passed on before.
    Duplicate,
    /// The forge tries whether anybody is there.
    Ping,
    /// It is about something else.
    Ignored,
    /// It has no signature of a secret of ours.
    Unsigned,
    /// It did not come whole, or not in time, so that nothing could be checked.
    Incomplete,
    /// It is signed and cannot be read.
    Invalid,
    /// It is signed and a form, not JSON.
    Form,
    /// It is larger than any that is taken.
    TooLarge,
}

impl Outcome {
    /// The label value.
    const fn result(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Duplicate => "duplicate",
            Self::Ping | Self::Ignored => "ignored",
            Self::Unsigned | Self::Incomplete => "unsigned",
            Self::Invalid | Self::Form => "invalid",
            Self::TooLarge => "too_large",
        }
    }
}

/// Checks webhooks and passes on what they hint at.
pub struct Receiver {
    config: ConfigHandle,
    nudge: Arc<dyn Nudge>,
    metrics: WebhookMetrics,
    deliveries: Mutex<Deliveries>,
    /// One signature is checked at a time, so that strangers with large bodies keep no more than one core busy.
    one_check: Arc<Semaphore>,
}

impl Receiver {
    /// A receiver that takes the secrets of `config`, as they are whenever a webhook comes.
    pub fn new(config: ConfigHandle, nudge: Arc<dyn Nudge>, registry: &mut Registry) -> Self {
        Self {
            config,
            nudge,
            metrics: WebhookMetrics::register(registry),
            deliveries: Mutex::default(),
            one_check: Arc::new(Semaphore::new(1)),
        }
    }

    /// What there is to check a body with; `None` if nothing in it could make it valid.
    fn claim(&self, forge: ForgeKind, headers: &HeaderMap) -> Option<Claim> {
        let proof = Proof::from_headers(forge, headers)?;
        let secrets = secrets::of(forge, &self.config);
        (!secrets.is_empty()).then_some(Claim { proof, secrets })
    }

    /// Whether a body has the signature that was claimed.
    async fn is_signed(&self, claim: Claim, body: Bytes) -> bool {
        let Ok(turn) = Arc::clone(&self.one_check).acquire_owned().await else {
            return false;
        };
        let check = move || {
            let _turn = turn;
            claim.proof.holds(&body, &claim.secrets, Timestamp::now())
        };
        tokio::task::spawn_blocking(check).await.unwrap_or(false)
    }

    /// Takes a webhook whose signature was checked.
    fn take(&self, forge: ForgeKind, headers: &HeaderMap, body: &[u8]) -> Outcome {
        if is_form(headers) {
            return Outcome::Form;
        }
        let hint = match payload::read(forge, headers, body) {
            Ok(Event::Changed(hint)) => hint,
            Ok(Event::Ping) => return Outcome::Ping,
            Ok(Event::Other) => return Outcome::Ignored,
            Err(payload::Invalid) => return Outcome::Invalid,
        };
        if let Some(delivery) = Delivery::from_headers(forge, headers)
            && !self.is_new(delivery)
        {
            return Outcome::Duplicate;
        }
        self.nudge.nudge(hint);
        Outcome::Accepted
    }

    fn is_new(&self, delivery: Delivery) -> bool {
        self.deliveries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(delivery, Instant::now())
    }
}

/// A signature that is claimed, and the secrets that may have made it.
struct Claim {
    proof: Proof,
    secrets: Vec<SecretString>,
}

/// GitHub sends forms unless it is told to send JSON.
fn is_form(headers: &HeaderMap) -> bool {
    let essence = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok()?.split(';').next());
    essence.is_some_and(|essence| {
        essence
            .trim()
            .eq_ignore_ascii_case("application/x-www-form-urlencoded")
    })
}
