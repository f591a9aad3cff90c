//! Owns the Lease that makes one of several replicas the active one.
//!
//! Of the crates for this, `kube-lease-manager` is the one for kube 5 (`kube-leader-election` needs kube 4, `kubert`
//! kube 1), and takes the Lease by server-side apply without force, so that two replicas cannot both win a race. What it
//! lacks is done here: a standby that sleeps until the Lease it saw expires would not notice a clean release, so it is
//! asked anew every few seconds; and an active replica that cannot renew stands down when the Lease has run out.
//!
//! Should two replicas be active nevertheless, no harm is done: everything they write is the same.

use std::time::Duration;

use kube::Client;
use kube_lease_manager::{LeaseManager, LeaseManagerBuilder, LeaseManagerError};
use nabu_common::ops::Check;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long a Lease is valid after it was renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How long before its end it is renewed.
const GRACE: Duration = Duration::from_secs(10);
/// How often a standby looks.
const LOOK: Duration = Duration::from_secs(2);
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// A field manager's name has at most 128 characters.
const IDENTITY_CHARACTERS: usize = 90;

/// The Lease and who we are in it.
#[derive(Clone)]
pub struct Election {
    client: Client,
    namespace: String,
    lease: String,
    identity: String,
}

/// The Lease is ours.
pub struct Term {
    lease: LeaseManager,
}

impl Election {
    /// Takes part under the name of this pod and process.
    pub fn new(client: Client, namespace: Option<String>, lease: String) -> Self {
        let namespace = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        Self {
            client,
            namespace,
            lease,
            identity: identity(),
        }
    }

    /// Waits until the Lease is ours; `None` if `shutdown` comes first.
    /// A standby that cannot take part is not ready.
    pub async fn win(&self, check: &Check, shutdown: &CancellationToken) -> Option<Term> {
        let mut last_reason = String::new();
        let mut standing_by = false;
        loop {
            match shutdown.run_until_cancelled(self.look()).await? {
                Ok(Some(lease)) => {
                    check.set_ready();
                    tracing::info!(
                        namespace = self.namespace,
                        lease = self.lease,
                        identity = self.identity,
                        "active"
                    );
                    return Some(Term { lease });
                }
                Ok(None) => {
                    last_reason.clear();
                    check.set_ready();
                    if !std::mem::replace(&mut standing_by, true) {
                        tracing::info!(
                            namespace = self.namespace,
                            lease = self.lease,
                            "standing by: another replica holds the Lease"
                        );
                    }
                }
                Err(error) => {
                    let reason = crate::status::chain(&error);
                    check.set_unready(format!("cannot take part in leader election: {reason}"));
                    if reason != last_reason {
                        tracing::warn!(
                            namespace = self.namespace,
                            lease = self.lease,
                            reason,
                            "cannot take part in leader election; will try again. Check the rights on leases"
                        );
                        last_reason = reason;
                    }
                    shutdown
                        .run_until_cancelled(tokio::time::sleep(PAUSE))
                        .await?;
                }
            }
        }
    }

    /// Tries for a while; `None` if somebody else holds it.
    async fn look(&self) -> Result<Option<LeaseManager>, LeaseManagerError> {
        let lease = LeaseManagerBuilder::new(self.client.clone(), &self.lease)
            .with_namespace(&self.namespace)
            .with_identity(&self.identity)
            .with_field_manager(format!("nabu-agent-{}", self.identity))
            .with_grace(1)
            .with_duration(DURATION.as_secs())
            .with_grace(GRACE.as_secs())
            .build()
            .await?;
        let ours = tokio::time::timeout(LOOK, async {
            while !lease.changed().await? {}
            Ok::<_, LeaseManagerError>(())
        });
        match ours.await {
            Ok(Ok(())) => Ok(Some(lease)),
            Ok(Err(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }
}

impl Term {
    /// Renews the Lease until it is lost.
    pub async fn end(&self) {
        let mut failing_since = None;
        loop {
            match self.lease.changed().await {
                Ok(true) => failing_since = None,
                Ok(false) => return tracing::warn!("the Lease was lost; standing by"),
                Err(error) => {
                    let since = *failing_since.get_or_insert_with(Instant::now);
                    let reason = crate::status::chain(&error);
                    if since.elapsed() >= GRACE {
                        return tracing::warn!(
                            reason,
                            "the Lease ran out because it could not be renewed; standing by"
                        );
                    }
                    tracing::warn!(reason, "could not renew the Lease; will try again");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Gives the Lease back, so that a standby need not wait for its end.
    pub async fn release(self) {
        if let Ok(Err(error)) = tokio::time::timeout(LOOK, self.lease.release()).await {
            tracing::warn!(
                reason = crate::status::chain(&error),
                "could not release the Lease; it will run out"
            );
        }
    }
}

/// The pod, or the host, and the process: in a container the process id stays the same when it restarts, so that a
/// restarted container finds its own Lease.
fn identity() -> String {
    let host = ["POD_NAME", "HOSTNAME"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .or_else(|| std::fs::read_to_string("/proc/sys/kernel/hostname").ok())
        .unwrap_or_else(|| "nabu-agent".to_owned());
    let host: String = host.trim().chars().take(IDENTITY_CHARACTERS).collect();
    format!("{host}-{}", std::process::id())
}
