//! What administrators do about the hub's authority: certificates for each other, and its rotation.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::identity::is_name;
use nabu_proto::admin_v1 as wire;
use nabu_proto::admin_v1::authority_service_server::AuthorityService;
use nabu_proto::admin_v1::{
    FinishRotationRequest, FinishRotationResponse, GetRotationRequest, GetRotationResponse,
    IssueAdminCertificateRequest, IssueAdminCertificateResponse, RollBackRotationRequest,
    RollBackRotationResponse, Rotation, StartRotationRequest, StartRotationResponse,
};
use tonic::{Request, Response, Status};
use tracing::error;

use super::clusters::{actor, audit_line, own_name};
use super::errors::{failed, invalid, raced, refused};
use super::guard::Target;
use crate::authority::first_admin::ADMIN_LIFETIME;
use crate::authority::signer::RequestedKey;
use crate::authority::{AuthorityError, HubAuthority, rotation};
use crate::enrolment::time;
use crate::pki::credentials::pem;
use crate::store::administrators::Barred;
use crate::store::identity::{AuthorityState, SharedIdentities};
use crate::store::rehearsal::Run;

/// Answers administrators about the hub's authority.
pub struct AuthorityAdmin {
    authority: Arc<HubAuthority>,
    identities: SharedIdentities,
}

impl AuthorityAdmin {
    /// Speaks for this authority.
    pub fn new(authority: Arc<HubAuthority>, identities: SharedIdentities) -> Self {
        Self {
            authority,
            identities,
        }
    }

    /// The authorities as they are.
    async fn rotation(&self) -> Result<Rotation, Status> {
        self.rotation_in(&self.authority.state()).await
    }

    /// The authorities after a step that led to `state`, if it was not only rehearsed; else what `state` would be.
    async fn rotation_after(&self, run: Run, state: &AuthorityState) -> Result<Rotation, Status> {
        match run {
            Run::Earnest => self.rotation().await,
            Run::Dry => self.rotation_in(state).await,
        }
    }

    async fn rotation_in(&self, state: &AuthorityState) -> Result<Rotation, Status> {
        let authorities = self.authority.view_in(state).into_iter();
        let mut authorities: Vec<_> = authorities
            .map(|one| wire::Authority {
                pin: one.pin.to_string(),
                issuing: one.issuing,
                serving: one.serving,
                created_at: one.created_at.map(time),
                not_after: Some(time(one.not_after)),
            })
            .collect();
        // The one that a rehearsal would make is not to be found.
        if !authorities.iter().any(|one| one.issuing) {
            let to_be_made = wire::Authority {
                issuing: true,
                ..wire::Authority::default()
            };
            authorities.insert(0, to_be_made);
        }
        Ok(Rotation {
            state: rotation::word(state).to_owned(),
            authorities,
            waiting_for: self.authority.waiting_in(state).await.map_err(failed)?,
        })
    }
}

fn explained(error: AuthorityError) -> Status {
    match error {
        AuthorityError::Store(error) => failed(error),
        AuthorityError::Rotation(_) => refused("ROTATION_STATE", error.to_string()),
        AuthorityError::FromFiles => refused("AUTHORITY_FROM_FILES", error.to_string()),
        AuthorityError::Raced => raced(error.to_string()),
        _ => {
            error!(%error, "the authority cannot be used");
            Status::internal("the authority cannot be used; the hub's log says more")
        }
    }
}

fn lifetime(asked: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(asked) = asked else {
        return Ok(ADMIN_LIFETIME);
    };
    Duration::try_from(asked)
        .ok()
        .filter(|asked| (Duration::from_secs(1)..=ADMIN_LIFETIME).contains(asked))
        .ok_or_else(|| invalid("lifetime", "must be from 1s to 365 days"))
}

#[tonic::async_trait]
impl AuthorityService for AuthorityAdmin {
    async fn issue_admin_certificate(
        &self,
        request: Request<IssueAdminCertificateRequest>,
    ) -> Result<Response<IssueAdminCertificateResponse>, Status> {
        Target::note(&request, || format!("admin/{}", request.get_ref().name));
        let (actor, own) = (actor(&request), own_name(&request));
        let run = Target::run(&request, request.get_ref().validate_only);
        let request = request.into_inner();
        let name = match request.name {
            name if name.is_empty() => own.unwrap_or_default(),
            name => name,
        };
        if !is_name(&name) {
            return Err(invalid("name", "use letters, digits, '-', '_' and '.'"));
        }
        let revocations = self.identities.revocations().await.map_err(failed)?;
        let barred = Barred::Name(name.clone());
        if revocations.iter().any(|one| one.barred == barred) {
            let message =
                format!("admin/{name} is revoked; `nabuctl admin restore {name}` takes that back");
            return Err(refused("ADMINISTRATOR_REVOKED", message));
        }
        let lifetime = lifetime(request.lifetime)?;
        let key = RequestedKey::of_request(&request.csr_der)
            .map_err(|error| invalid("csr_der", error.to_string()))?;
        let now = Timestamp::now();
        if run.is_dry() {
            let until = self.authority.admin_until(&name, now, lifetime);
            let until = until.map_err(|error| explained(error.into()))?;
            return Ok(Response::new(IssueAdminCertificateResponse {
                chain_pem: String::new(),
                authorities_pem: pem(&self.authority.bundle()),
                not_after: Some(time(until)),
                name,
            }));
        }
        let issued = self
            .authority
            .certify_admin(&name, &key, now, lifetime)
            .map_err(|error| explained(error.into()))?;
        let record = issued.record;
        let not_after = record.not_after;
        let detail = format!(
            "{}, certificate {} (serial {}) until {not_after}",
            record.identity, record.fingerprint, record.serial
        );
        let event = audit_line(run, &actor, "AdministratorCertified", detail);
        let recorded = self.identities.record_certificate(record, Some(event));
        recorded.await.map_err(failed)?;
        Ok(Response::new(IssueAdminCertificateResponse {
            chain_pem: pem(&[issued.certificate]),
            authorities_pem: pem(&self.authority.bundle()),
            not_after: Some(time(not_after)),
            name,
        }))
    }

    async fn start_rotation(
        &self,
        request: Request<StartRotationRequest>,
    ) -> Result<Response<StartRotationResponse>, Status> {
        let run = Target::run(&request, request.get_ref().validate_only);
        let started = self.authority.start_rotation(run, &actor(&request)).await;
        let state = started.map_err(explained)?;
        let rotation = Some(self.rotation_after(run, &state).await?);
        Ok(Response::new(StartRotationResponse { rotation }))
    }

    async fn get_rotation(
        &self,
        _: Request<GetRotationRequest>,
    ) -> Result<Response<GetRotationResponse>, Status> {
        let rotation = Some(self.rotation().await?);
        Ok(Response::new(GetRotationResponse { rotation }))
    }

    async fn finish_rotation(
        &self,
        request: Request<FinishRotationRequest>,
    ) -> Result<Response<FinishRotationResponse>, Status> {
        let run = Target::run(&request, request.get_ref().validate_only);
        let actor = actor(&request);
        let force = request.into_inner().force;
        let finished = self.authority.finish_rotation(run, force, &actor).await;
        let (state, left_behind) = finished.map_err(explained)?;
        let rotation = Some(self.rotation_after(run, &state).await?);
        Ok(Response::new(FinishRotationResponse {
            rotation,
            left_behind,
        }))
    }

    async fn roll_back_rotation(
        &self,
        request: Request<RollBackRotationRequest>,
    ) -> Result<Response<RollBackRotationResponse>, Status> {
        let run = Target::run(&request, request.get_ref().validate_only);
        let actor = actor(&request);
        let rolled_back = self.authority.roll_back_rotation(run, &actor).await;
        let state = rolled_back.map_err(explained)?;
        let rotation = Some(self.rotation_after(run, &state).await?);
        Ok(Response::new(RollBackRotationResponse { rotation }))
    }
}
