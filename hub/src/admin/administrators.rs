//! Who may use the admin API: lists administrators, shuts one out, lets one in again.

use std::sync::Arc;

use jiff::Timestamp;
use nabu_common::identity::is_name;
use nabu_proto::admin_v1 as wire;
use nabu_proto::admin_v1::administrator_service_server::AdministratorService;
use nabu_proto::admin_v1::{
    ListAdministratorsRequest, ListAdministratorsResponse, RestoreAdministratorRequest,
    RestoreAdministratorResponse, RevokeAdministratorRequest, RevokeAdministratorResponse,
};
use tonic::{Request, Response, Status};

use super::barred::BarredAdmins;
use super::caller::Caller;
use super::clusters::{actor, audit_line};
use super::errors::{failed, invalid, missing, refused};
use super::guard::Target;
use super::roles::{Role, Roles};
use super::{next_page, not_our_page, page_size_or, shortened};
use crate::enrolment::time;
use crate::store::administrators::{Barred, Certified, Revocation};
use crate::store::identity::{CertificateRecord, SharedIdentities};

/// Certificates that a list shows.
const LISTED: i32 = 500;

/// Answers administrators about administrators.
pub struct Administrators {
    identities: SharedIdentities,
    roles: Arc<Roles>,
    barred: BarredAdmins,
}

impl Administrators {
    /// Knows the roles in force, and tells the guard at once whom to bar.
    pub fn new(identities: SharedIdentities, roles: Arc<Roles>, barred: BarredAdmins) -> Self {
        Self {
            identities,
            roles,
            barred,
        }
    }

    /// Certificates that the hub made, that are good now, and that are worth nothing if somebody is barred.
    async fn good_certificates(&self, barred: &Barred) -> Result<u32, Status> {
        let certified = self
            .identities
            .administrators(Timestamp::now(), None, u32::MAX);
        let certified = certified.await.map_err(failed)?.into_iter();
        let certified = certified.map(|(_, record)| self.certificate(record));
        let good = certified.filter(|one| {
            let certified = Certified {
                name: one.name.clone(),
                fingerprint: one.fingerprint.clone(),
            };
            !one.revoked && certified.is(barred)
        });
        Ok(u32::try_from(good.count()).unwrap_or(u32::MAX))
    }

    fn certificate(&self, record: CertificateRecord) -> wire::AdministratorCertificate {
        let name = record.identity.trim_start_matches("admin/").to_owned();
        let role = self.roles.of(&name).map(Role::as_str).unwrap_or_default();
        let certified = Certified {
            fingerprint: record.fingerprint,
            name,
        };
        wire::AdministratorCertificate {
            revoked: self.barred.is_revoked(&certified),
            name: certified.name,
            fingerprint: certified.fingerprint,
            role: role.to_owned(),
            issued_at: Some(time(record.issued_at)),
            not_after: Some(time(record.not_after)),
        }
    }
}

fn revocation(revocation: Revocation) -> wire::AdministratorRevocation {
    let (name, fingerprint) = match revocation.barred {
        Barred::Name(name) => (name, String::new()),
        Barred::Certificate(fingerprint) => (String::new(), fingerprint),
    };
    wire::AdministratorRevocation {
        name,
        fingerprint,
        revoked_at: Some(time(revocation.at)),
        revoked_by: revocation.by,
        reason: revocation.reason,
    }
}

/// Whom a request names.
fn barred(name: &str, fingerprint: &str) -> Result<Barred, Status> {
    match (name, fingerprint) {
        ("", "") => Err(invalid("name", "give a name or a fingerprint")),
        (_, "") if is_name(name) => Ok(Barred::Name(name.to_owned())),
        (_, "") => Err(invalid("name", "use letters, digits, '-', '_' and '.'")),
        ("", _) => {
            let digits = fingerprint.replace(':', "").to_ascii_lowercase();
            if digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit()) {
                Ok(Barred::Certificate(digits))
            } else {
                Err(invalid(
                    "fingerprint",
                    "must be SHA-256 of the certificate: 64 hex digits, as `nabuctl admin list` and the audit log show it",
                ))
            }
        }
        _ => Err(invalid("name", "give a name or a fingerprint, not both")),
    }
}

fn text(barred: &Barred) -> String {
    match barred {
        Barred::Name(name) => format!("admin/{name}"),
        Barred::Certificate(fingerprint) => format!("certificate {fingerprint}"),
    }
}

/// Nobody can lock themselves out, so that whoever revokes remains: the last administrator is never revoked but by
/// the machine's own operator.
fn may_revoke(caller: Option<&Certified>, barred: &Barred) -> Result<(), Status> {
    if caller.is_some_and(|caller| caller.is(barred)) {
        let message = "nobody can revoke themselves; let another administrator do it, or use the socket of the hub's own \
            machine (--admin-socket)";
        return Err(refused("REVOKES_ITSELF", message));
    }
    Ok(())
}

#[tonic::async_trait]
impl AdministratorService for Administrators {
    async fn list_administrators(
        &self,
        request: Request<ListAdministratorsRequest>,
    ) -> Result<Response<ListAdministratorsResponse>, Status> {
        let request = request.into_inner();
        let size = page_size_or(LISTED, request.page_size)?;
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(token.parse().map_err(|_| not_our_page())?),
        };
        let revocations = match after {
            None => self.identities.revocations().await.map_err(failed)?,
            Some(_) => Vec::new(),
        };
        let certified = self
            .identities
            .administrators(Timestamp::now(), after, size + 1);
        let mut certified = certified.await.map_err(failed)?;
        let next = next_page(&mut certified, size, |(number, _)| number.to_string());
        let certified = certified.into_iter();
        Ok(Response::new(ListAdministratorsResponse {
            certificates: certified.map(|(_, one)| self.certificate(one)).collect(),
            revocations: revocations.into_iter().map(revocation).collect(),
            next_page_token: next,
        }))
    }

    async fn revoke_administrator(
        &self,
        request: Request<RevokeAdministratorRequest>,
    ) -> Result<Response<RevokeAdministratorResponse>, Status> {
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let caller = request.extensions().get::<Caller>();
        let caller = caller.and_then(|caller| caller.certified.clone());
        let barred = barred(&request.get_ref().name, &request.get_ref().fingerprint)?;
        Target::note(&request, || text(&barred));
        may_revoke(caller.as_ref(), &barred)?;
        let reason = shortened(&request.get_ref().reason);
        let detail = if reason.is_empty() {
            text(&barred)
        } else {
            format!("{}: {reason}", text(&barred))
        };
        let audit = audit_line(run, &actor, "AdministratorRevoked", detail);
        let certificates = self.good_certificates(&barred).await?;
        let revocation = Revocation {
            barred,
            at: audit.at,
            by: actor,
            reason,
        };
        let identities = run.identities(&self.identities);
        let revoked = identities.revoke_administrator(revocation, caller, audit);
        if !revoked.await.map_err(failed)? {
            return Err(refused("REVOKED", "you were revoked in the meantime"));
        }
        if !run.is_dry() {
            self.barred.refresh().await.map_err(failed)?;
        }
        Ok(Response::new(RevokeAdministratorResponse { certificates }))
    }

    async fn restore_administrator(
        &self,
        request: Request<RestoreAdministratorRequest>,
    ) -> Result<Response<RestoreAdministratorResponse>, Status> {
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let barred = barred(&request.get_ref().name, &request.get_ref().fingerprint)?;
        Target::note(&request, || text(&barred));
        let audit = audit_line(run, &actor, "AdministratorRestored", text(&barred));
        let identities = run.identities(&self.identities);
        let restored = identities.restore_administrator(barred.clone(), audit);
        if !restored.await.map_err(failed)? {
            let remedy = "`nabuctl admin list` shows them";
            return Err(missing("revocation of", &text(&barred), remedy));
        }
        if !run.is_dry() {
            self.barred.refresh().await.map_err(failed)?;
        }
        Ok(Response::new(RestoreAdministratorResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_one_administrator_or_one_certificate() {
        let hex = "0aA1".repeat(16);
        let colons = hex.replace("aA", "a:A");
        assert_eq!(barred("ada", "").unwrap(), Barred::Name("ada".to_owned()));
        let certificate = Barred::Certificate(hex.to_ascii_lowercase());
        for fingerprint in [&hex, &colons] {
            assert_eq!(barred("", fingerprint).unwrap(), certificate);
        }
        for (name, fingerprint) in [("", ""), ("a/b", ""), ("ada", &*hex), ("", "0a"), ("", "ä")] {
            assert!(barred(name, fingerprint).is_err(), "{name} {fingerprint}");
        }
    }

    #[test]
    fn nobody_revokes_themselves_except_at_the_socket() {
        let caller = Certified {
            name: "ada".to_owned(),
            fingerprint: "f1".to_owned(),
        };
        let of = |barred| may_revoke(Some(&caller), &barred).is_ok();
        assert!(!of(Barred::Name("ada".to_owned())));
        assert!(!of(Barred::Certificate("f1".to_owned())));
        assert!(of(Barred::Name("grace".to_owned())));
        assert!(of(Barred::Certificate("f2".to_owned())));
        assert!(may_revoke(None, &Barred::Name("ada".to_owned())).is_ok());
    }
}
