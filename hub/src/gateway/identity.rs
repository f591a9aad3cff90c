//! Who may keep a session: admission, renewal of certificates, and the end of what was revoked.
//!
//! What is allowed, the store decides. A revocation on this replica ends a session at once; one on another replica is seen
//! when the store is asked the next time.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::{SignedDuration, Timestamp};
use nabu_common::ids::ClusterId;
use nabu_common::tls::PeerIdentity;
use nabu_proto::agent_v1::session_response::Frame as Outgoing;
use nabu_proto::agent_v1::{
    CertificateIssued, GoodbyeReason, Hello, RenewCertificate, RenewalRefused,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Farewell, Gateway, Shared, convert};
use crate::authority::HubAuthority;
use crate::authority::signer::RequestedKey;
use crate::enrolment::metrics::EnrolmentMetrics;
use crate::enrolment::{bundle_to_wire, to_wire};
use crate::store::identity::{Admission, SharedIdentities};
use crate::store::{AuditEvent, StoreError};

/// The capability of hubs and agents that renew certificates over the session.
pub(super) const RENEWAL: &str = "renewal";
/// How often the store is asked who is revoked. A session shall end within five seconds after a revocation on another
/// replica, also if one answer is an error and another one does not come.
const LOOK: Duration = Duration::from_secs(1);
/// How long the store may take for an answer.
const ANSWER: Duration = Duration::from_secs(1);
/// How long an agent shall keep away that is revoked.
const REVOKED_AWAY: Duration = Duration::from_mins(1);
/// An agent whose certificate is outdated should come again at once, with the newer one.
const AT_ONCE: Duration = Duration::ZERO;

/// What sessions need to know of identities.
pub struct Identities {
    /// Who is certified and revoked.
    pub store: SharedIdentities,
    /// Certifies, if this hub does.
    pub authority: Option<Arc<HubAuthority>>,
    /// What operators see.
    pub metrics: EnrolmentMetrics,
}

/// Ends a session from outside.
#[derive(Debug, Default)]
pub(super) struct Dismissal {
    token: CancellationToken,
    farewell: Mutex<Option<Farewell>>,
}

impl Dismissal {
    pub(super) fn dismiss(&self, farewell: Farewell) {
        let mut place = self.farewell.lock().unwrap_or_else(PoisonError::into_inner);
        place.get_or_insert(farewell);
        self.token.cancel();
    }

    /// Waits for it.
    pub(super) async fn dismissed(&self) -> Option<Farewell> {
        self.token.cancelled().await;
        let farewell = self.farewell.lock().unwrap_or_else(PoisonError::into_inner);
        farewell.clone()
    }
}

fn revoked() -> Farewell {
    let message = "the cluster or its certificate is revoked; if that was a mistake: `nabuctl cluster restore`, or a new \
        join token by `nabuctl cluster add`";
    Farewell::new(GoodbyeReason::Revoked, message).after(REVOKED_AWAY)
}

impl Shared {
    /// Whether the certificate of a peer may open a session of its cluster.
    pub(super) async fn admit(
        &self,
        cluster: &ClusterId,
        peer: &PeerIdentity,
        kube_system_uid: &str,
    ) -> Result<Result<(), Farewell>, StoreError> {
        let now = Timestamp::now();
        let store = &self.identities.store;
        let admission = store.admit(cluster, &peer.fingerprint, kube_system_uid, now);
        let (reason, farewell) = match admission.await? {
            Admission::Admitted => return Ok(Ok(())),
            Admission::Revoked => ("Revoked", revoked()),
            Admission::Superseded => {
                let message = "a newer certificate of this cluster is in use; if it was lost, a new join token by \
                    `nabuctl cluster add` helps";
                let farewell = Farewell::new(GoodbyeReason::CertificateOutdated, message);
                ("Superseded", farewell.after(Duration::from_secs(15)))
            }
        };
        self.metrics.refused(reason);
        if !self
            .refusals
            .is_news(cluster, "SessionRefused", std::time::Instant::now())
        {
            return Ok(Err(farewell));
        }
        warn!(%cluster, remote = %peer.remote_addr, reason, "refused a session");
        let event = AuditEvent {
            at: now,
            actor: format!("agent/{cluster}"),
            action: "SessionRefused".to_owned(),
            detail: format!(
                "certificate {} from {}: {reason}",
                peer.fingerprint, peer.remote_addr
            ),
        };
        self.store.audit(Some(cluster), event).await?;
        Ok(Err(farewell))
    }

    /// What Welcome says of the hub's abilities.
    pub(super) fn capabilities(&self) -> Vec<String> {
        let renews = self.identities.authority.is_some();
        renews.then(|| RENEWAL.to_owned()).into_iter().collect()
    }

    /// Answers `RenewCertificate`.
    pub(super) async fn renew(
        &self,
        cluster: &ClusterId,
        peer: &PeerIdentity,
        request: &RenewCertificate,
    ) -> Result<Outgoing, StoreError> {
        let metrics = &self.identities.metrics;
        let refuse = |result, message: String| {
            warn!(%cluster, message, "no certificate was renewed");
            metrics.renewal(result);
            Ok(Outgoing::RenewalRefused(RenewalRefused { message }))
        };
        let Some(authority) = &self.identities.authority else {
            return refuse("failed", "this hub does not certify".to_owned());
        };
        // A session may be open whose certificate is not good for another one.
        let now = Timestamp::now();
        let store = &self.identities.store;
        let admission = store.admit(cluster, &peer.fingerprint, "", now).await?;
        if admission != Admission::Admitted {
            let message = "the certificate of this session is revoked or has a successor";
            return refuse("refused", message.to_owned());
        }
        if let Some(message) = self.bars_renewal(peer).await? {
            return refuse("refused", message.to_owned());
        }
        let key = match RequestedKey::of_request(&request.csr_der) {
            Ok(key) => key,
            Err(error) => return refuse("failed", error.to_string()),
        };
        let issued = match authority.certify_cluster(cluster, &key, now) {
            Ok(issued) => issued,
            Err(error) => return refuse("failed", error.to_string()),
        };
        let record = issued.record.clone();
        let event = AuditEvent {
            at: now,
            actor: format!("agent/{cluster}"),
            action: "CertificateRenewed".to_owned(),
            detail: format!(
                "certificate {} (serial {}) until {}",
                record.fingerprint, record.serial, record.not_after
            ),
        };
        let recorded = self
            .identities
            .store
            .record_certificate(record, Some(event));
        if !recorded.await? {
            return refuse("refused", "the cluster is revoked".to_owned());
        }
        metrics.renewal("renewed");
        info!(%cluster, serial = issued.record.serial, until = %issued.record.not_after, "a certificate was renewed");
        Ok(Outgoing::CertificateIssued(CertificateIssued {
            certificate: Some(to_wire(&issued, authority.agent_lifetime())),
            trust_bundle: Some(bundle_to_wire(authority)),
        }))
    }

    /// Waits until the trusted authorities change; gives the frame that tells so. Never ends for an agent that would not
    /// understand it.
    pub(super) async fn next_bundle(&self, understood: bool, seen: &mut u64) -> Outgoing {
        let Some(authority) = self.identities.authority.as_ref().filter(|_| understood) else {
            return std::future::pending().await;
        };
        let mut changes = authority.changes();
        // The sender lives as long as the authority.
        if let Ok(revision) = changes.wait_for(|revision| revision != seen).await {
            *seen = *revision;
        }
        Outgoing::TrustBundle(bundle_to_wire(authority))
    }

    /// The state of the authorities that an agent knows that has just connected: none, so that it hears of the present one.
    pub(super) const UNKNOWN_AUTHORITIES: u64 = 0;
}

impl Gateway {
    /// Ends the session of a cluster that was revoked or removed on this replica.
    pub fn dismiss_revoked(&self, cluster: &ClusterId) {
        self.dismiss(cluster, revoked());
    }

    /// Ends the session of a cluster whose id was bound anew.
    pub fn dismiss_rebound(&self, cluster: &ClusterId) {
        let message = "the cluster id is bound anew";
        let farewell = Farewell::new(GoodbyeReason::IdentityMismatch, message);
        self.dismiss(cluster, farewell.after(Duration::from_secs(5)));
    }

    /// Forgets the metrics of a cluster that was removed.
    pub fn forget(&self, cluster: &ClusterId) {
        if !self.is_connected(cluster) {
            self.shared.metrics.forget(cluster);
        }
    }

    fn dismiss(&self, cluster: &ClusterId, farewell: Farewell) {
        if let Some(live) = self.shared.sessions().get(cluster) {
            live.dismissal.dismiss(farewell);
        }
    }

    /// Ends sessions of clusters that were revoked anywhere, until `shutdown`.
    pub async fn enforce_revocations(self, shutdown: CancellationToken) {
        let mut known = HashSet::new();
        let store = &self.shared.identities.store;
        while let Some(blocked) = next_look(&shutdown, || store.blocked(), tokio::time::sleep).await
        {
            for cluster in &blocked {
                self.dismiss_revoked(cluster);
            }
            let forgotten = self.forget_removed(&blocked, &mut known);
            if tokio::time::timeout(ANSWER, forgotten).await.is_err() {
                error!("the store does not say which clusters there are");
            }
        }
    }

    /// Ends the series of clusters that are gone from the store's list. `known` are those that were blocked before.
    async fn forget_removed(&self, blocked: &HashSet<ClusterId>, known: &mut HashSet<ClusterId>) {
        if blocked.iter().all(|cluster| known.contains(cluster)) {
            known.retain(|cluster| blocked.contains(cluster));
            return;
        }
        match self.shared.identities.store.cluster_identities().await {
            Ok(listed) => {
                let gone = blocked.iter().filter(|one| !listed.contains_key(*one));
                let mut all_gone = true;
                for cluster in gone {
                    // Its session may need a moment to end.
                    all_gone &= !self.is_connected(cluster);
                    self.forget(cluster);
                }
                if all_gone {
                    known.clone_from(blocked);
                }
            }
            Err(failure) => error!(error = %failure, "cannot ask which clusters there are"),
        }
    }
}

/// The next answer to who is blocked; `None` after `shutdown`. All that it waits for beside the store is `sleep`.
async fn next_look<A, S>(
    shutdown: &CancellationToken,
    ask: impl Fn() -> A,
    sleep: impl Fn(Duration) -> S,
) -> Option<HashSet<ClusterId>>
where
    A: Future<Output = Result<HashSet<ClusterId>, StoreError>>,
    S: Future<Output = ()>,
{
    loop {
        shutdown.run_until_cancelled(sleep(LOOK)).await?;
        tokio::select! {
            biased;
            answer = ask() => match answer {
                Ok(blocked) => return Some(blocked),
                Err(failure) => error!(error = %failure, "cannot ask who is revoked"),
            },
            () = sleep(ANSWER) => error!("the store does not say who is revoked"),
        }
    }
}

/// Ends when a certificate runs out, by the hub's clock at the time of the call.
pub(super) async fn certificate_ran_out(not_after: SystemTime) -> Farewell {
    let left = not_after.duration_since(SystemTime::now());
    tokio::time::sleep(left.unwrap_or_default()).await;
    ran_out()
}

pub(super) fn ran_out() -> Farewell {
    let message =
        "the certificate of this session has run out; open another one with its successor";
    Farewell::new(GoodbyeReason::CertificateOutdated, message).after(AT_ONCE)
}

/// How far an agent's clock is ahead of ours, if it says what time it has.
pub(super) fn clock_skew(hello: &Hello, now: Timestamp) -> Option<SignedDuration> {
    let sent = hello.sent_at?;
    let sent = Timestamp::new(sent.seconds, sent.nanos).ok()?;
    Some(sent.duration_since(now))
}

pub(super) fn skew_to_wire(skew: SignedDuration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: skew.as_secs(),
        nanos: skew.subsec_nanos(),
    }
}

pub(super) fn now_to_wire() -> prost_types::Timestamp {
    convert::time(Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_skew_of_a_clock_is_positive_when_it_goes_fast() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let skew = |second| {
            let sent_at = Some(prost_types::Timestamp {
                seconds: second,
                nanos: 0,
            });
            let hello = Hello {
                sent_at,
                ..Hello::default()
            };
            clock_skew(&hello, now).unwrap()
        };
        assert_eq!(skew(1_800_003_600), SignedDuration::from_hours(1));
        assert_eq!(skew(1_799_996_400), SignedDuration::from_hours(-1));
        assert_eq!(clock_skew(&Hello::default(), now), None);
    }

    #[tokio::test]
    async fn the_first_reason_to_end_a_session_is_the_one_that_is_told() {
        let dismissal = Dismissal::default();
        dismissal.dismiss(revoked());
        dismissal.dismiss(Farewell::new(GoodbyeReason::IdentityMismatch, "later"));
        let told = dismissal.dismissed().await.unwrap();
        assert_eq!(told.reason, GoodbyeReason::Revoked);
    }

    /// A clock that goes only while somebody sleeps on it.
    #[derive(Default)]
    struct Clock(std::cell::Cell<Duration>);

    impl Clock {
        fn sleep(&self, time: Duration) -> impl Future<Output = ()> {
            std::future::poll_fn(move |_| {
                self.0.set(self.0.get() + time);
                std::task::Poll::Ready(())
            })
        }
    }

    /// What a look finds is dismissed in the same turn.
    #[tokio::test]
    async fn a_revocation_elsewhere_is_seen_within_five_seconds_though_one_look_fails_and_one_hangs()
     {
        let (clock, asked) = (Clock::default(), std::cell::Cell::new(0));
        let ask = || async {
            asked.set(asked.get() + 1);
            match asked.get() {
                1 => Err(StoreError::Closed),
                2 => std::future::pending().await,
                _ => Ok(HashSet::from(["prod-eu".parse().unwrap()])),
            }
        };
        let shutdown = CancellationToken::new();
        let look = next_look(&shutdown, ask, |time| clock.sleep(time));
        assert_eq!(look.await.unwrap().len(), 1);
        assert_eq!(asked.get(), 3);
        let took = clock.0.get();
        assert!(
            took > Duration::ZERO,
            "it looks without a pause: a busy loop"
        );
        assert!(took <= Duration::from_secs(5), "{took:?}");
    }

    #[tokio::test]
    async fn looking_ends_with_the_hub() {
        let (clock, shutdown) = (Clock::default(), CancellationToken::new());
        shutdown.cancel();
        let ask = || std::future::ready(Ok(HashSet::new()));
        let look = next_look(&shutdown, ask, |time| clock.sleep(time));
        assert_eq!(look.await, None);
    }
}
