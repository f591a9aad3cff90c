//! The door for agents that have no certificate yet: a join token against the first one.
//!
//! Every refusal has the same words and takes the same time, whatever was wrong: a token that is used, has run out, is for
//! another cluster or was guessed, or a cluster that is revoked. [`token`] decides, [`limit`] bounds how often a source may
//! try, [`audited`] how much all of them can write into the audit log. Certificates are made by [`crate::authority`].

pub mod audited;
pub mod limit;
pub mod metrics;
pub mod token;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nabu_common::ids::ClusterId;
use nabu_common::tls::StrangerAddress;
use nabu_proto::agent_v1::enrolment_service_server::EnrolmentService;
use nabu_proto::agent_v1::{EnrolRequest, EnrolResponse, IssuedCertificate, TrustBundle};
use tonic::{Request, Response, Status};
use tracing::{error, info, warn};

use self::audited::AuditBudget;
use self::limit::FailureLimit;
use self::metrics::EnrolmentMetrics;
use crate::authority::HubAuthority;
use crate::authority::signer::{Issued, RequestedKey};
use crate::store::identity::{Redeemed, SharedIdentities};
use crate::store::{AuditEvent, SharedStore, StoreError};

/// How long every refusal takes: longer than the store needs.
const REFUSAL: Duration = Duration::from_secs(1);
/// What every refusal says.
const REFUSED: &str = "the join token is not good: it may be used, run out, revoked, or for another cluster id; \
    make a new one with `nabuctl cluster add`";
/// Tokens of one cluster that are looked at, newest first.
const TOKENS: u32 = 256;
/// Texts of strangers are cut in the audit log.
const SHOWN: usize = 80;

/// Gives certificates for join tokens.
pub struct Enrolment {
    authority: Arc<HubAuthority>,
    identities: SharedIdentities,
    store: SharedStore,
    failures: Mutex<FailureLimit>,
    audited: Mutex<AuditBudget>,
    metrics: EnrolmentMetrics,
}

impl Enrolment {
    /// Certifies by this authority.
    pub fn new(
        authority: Arc<HubAuthority>,
        identities: SharedIdentities,
        store: SharedStore,
        metrics: EnrolmentMetrics,
    ) -> Self {
        Self {
            authority,
            identities,
            store,
            failures: Mutex::default(),
            audited: Mutex::default(),
            metrics,
        }
    }

    /// `None` if the token is not good, whatever the reason.
    async fn certify(
        &self,
        request: &EnrolRequest,
        key: &RequestedKey,
        remote: SocketAddr,
    ) -> Result<Option<Issued>, StoreError> {
        let now = Timestamp::now();
        let hash = token::hash(&request.token.as_str().into());
        // A text that is no cluster id has no tokens, as a cluster that nobody added has none.
        let cluster: Result<ClusterId, _> = request.cluster_id.parse();
        let tokens = match &cluster {
            Ok(cluster) => self.identities.tokens(Some(cluster), None, TOKENS).await?,
            Err(_) => Vec::new(),
        };
        let digest = key.digest();
        let Some(found) = token::find(&tokens, &hash, &digest, now) else {
            return Ok(None);
        };
        let cluster = &found.token.cluster;
        let issued = match self.authority.certify_cluster(cluster, key, now) {
            Ok(issued) => issued,
            Err(failure) => {
                error!(error = %failure, "cannot certify an agent");
                return Ok(None);
            }
        };
        let record = issued.record.clone();
        let der = issued.certificate.to_vec();
        let event = AuditEvent {
            at: now,
            actor: format!("agent/{cluster}"),
            action: "Enrolled".to_owned(),
            detail: format!(
                "from {remote} with token {}; certificate {} (serial {}) until {}",
                found.token.id, record.fingerprint, record.serial, record.not_after
            ),
        };
        let redeemed = self
            .identities
            .redeem(&found.token.id, digest, record, der, event);
        Ok(match redeemed.await? {
            Redeemed::No => None,
            Redeemed::New => Some(issued),
            Redeemed::Again(record, der) => Some(Issued {
                certificate: der.into(),
                record,
            }),
        })
    }

    async fn refuse(&self, request: &EnrolRequest, remote: SocketAddr) {
        let named: String = request.cluster_id.chars().take(SHOWN).collect();
        warn!(%remote, cluster = ?named, "refused a join token");
        let audited = self
            .audited
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .refusal(Instant::now());
        let others = match audited {
            None => return,
            Some(0) => String::new(),
            Some(others) => format!("; {others} more were refused since the line before"),
        };
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: format!("stranger/{}", remote.ip()),
            action: "EnrolmentRefused".to_owned(),
            detail: format!("a join token for the cluster id {named:?} is not good{others}"),
        };
        let cluster = named.parse().ok();
        if let Err(failure) = self.store.audit(cluster.as_ref(), event).await {
            error!(error = %failure, "cannot write the audit log");
        }
    }

    fn failures(&self) -> std::sync::MutexGuard<'_, FailureLimit> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl EnrolmentService for Enrolment {
    async fn enrol(
        &self,
        request: Request<EnrolRequest>,
    ) -> Result<Response<EnrolResponse>, Status> {
        let began = Instant::now();
        let Some(StrangerAddress(remote)) = request.extensions().get().copied() else {
            return Err(Status::internal("the connection has no address"));
        };
        if !self.failures().take(remote.ip(), began) {
            self.metrics.enrolment("limited");
            return Err(Status::resource_exhausted(
                "too many join tokens from this address were not good; try again in some minutes",
            ));
        }
        let request = request.into_inner();
        let key = RequestedKey::of_request(&request.csr_der).map_err(|error| {
            self.metrics.enrolment("invalid");
            Status::invalid_argument(format!("csr_der: {error}"))
        })?;
        let certified = self
            .certify(&request, &key, remote)
            .await
            .map_err(|failure| {
                error!(error = %failure, "the store failed under an enrolment");
                self.failures().give_back(remote.ip());
                Status::unavailable("the hub's store does not answer")
            })?;
        let Some(issued) = certified else {
            self.refuse(&request, remote).await;
            self.metrics.enrolment("refused");
            tokio::time::sleep_until((began + REFUSAL).into()).await;
            return Err(Status::permission_denied(REFUSED));
        };
        self.failures().give_back(remote.ip());
        self.metrics.enrolment("enrolled");
        info!(cluster = request.cluster_id, %remote, serial = issued.record.serial, "an agent has enrolled");
        Ok(Response::new(EnrolResponse {
            certificate: Some(to_wire(&issued, self.authority.agent_lifetime())),
            trust_bundle: Some(bundle_to_wire(&self.authority)),
            sent_at: Some(time(Timestamp::now())),
        }))
    }
}

/// A certificate as agents get it: they shall renew at two thirds of its life.
pub(crate) fn to_wire(issued: &Issued, lifetime: Duration) -> IssuedCertificate {
    IssuedCertificate {
        chain_der: vec![issued.certificate.to_vec().into()],
        not_after: Some(time(issued.record.not_after)),
        renew_after: Some(time(issued.record.issued_at + lifetime * 2 / 3)),
    }
}

/// The authorities that agents shall trust.
pub(crate) fn bundle_to_wire(authority: &HubAuthority) -> TrustBundle {
    let bundle = authority.bundle();
    TrustBundle {
        authorities_der: bundle.iter().map(|der| der.to_vec().into()).collect(),
    }
}

pub(crate) fn time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}
