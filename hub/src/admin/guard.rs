//! The layer before every method of the admin port: lets in who may, and writes down who did what.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use jiff::Timestamp;
use nabu_common::tls::PeerIdentity;
use tonic::body::Body;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tower::{Layer, Service};

use super::barred::BarredAdmins;
use super::caller::Caller;
use super::journal::Journal;
use super::roles::{self, Method, Roles};
use super::{DOMAIN, shortened};
use crate::store::AdminCall;
use crate::store::rehearsal::Run;

/// How the audit log marks a call that has changed nothing because nothing was to be changed.
const DRY_RUN: &str = "dry run";

/// What a call is about, and whether it is a dry run, for the audit log: the method fills it in, the layer reads it.
#[derive(Clone, Debug, Default)]
pub struct Target(Arc<Noted>);

#[derive(Debug, Default)]
struct Noted {
    about: OnceLock<String>,
    run: OnceLock<Run>,
}

impl Target {
    /// Says what a call is about, once.
    pub(super) fn note<T>(request: &tonic::Request<T>, text: impl FnOnce() -> String) {
        if let Some(target) = request.extensions().get::<Self>() {
            target.0.about.get_or_init(|| shortened(&text()));
        }
    }

    /// How a call is to be run, by its field `validate_only`; the audit log tells a dry run.
    pub(super) fn run<T>(request: &tonic::Request<T>, validate_only: bool) -> Run {
        let run = Run::of(validate_only);
        match request.extensions().get::<Self>() {
            Some(target) => *target.0.run.get_or_init(|| run),
            None => run,
        }
    }

    fn text(&self) -> String {
        self.0.about.get().cloned().unwrap_or_default()
    }

    /// The words of a line of the audit log, with what the call ended with.
    fn detail(&self, end: String) -> String {
        let dry = self.0.run.get().is_some_and(|run| run.is_dry());
        match (dry, end.is_empty()) {
            (false, _) => end,
            (true, true) => DRY_RUN.to_owned(),
            (true, false) => format!("{DRY_RUN}: {end}"),
        }
    }
}

/// Authorises and audits.
#[derive(Clone)]
pub struct Guard {
    roles: Arc<Roles>,
    barred: BarredAdmins,
    journal: Journal,
    own_uid: u32,
}

impl Guard {
    /// A guard with these roles that lets in nobody who is barred, and writes to this journal. `own_uid` is the hub's own
    /// user.
    pub fn new(roles: Arc<Roles>, barred: BarredAdmins, journal: Journal, own_uid: u32) -> Self {
        Self {
            roles,
            barred,
            journal,
            own_uid,
        }
    }
}

impl<S> Layer<S> for Guard {
    type Service = Guarded<S>;

    fn layer(&self, inner: S) -> Guarded<S> {
        Guarded {
            inner,
            guard: self.clone(),
        }
    }
}

/// A service behind a [`Guard`].
#[derive(Clone)]
pub struct Guarded<S> {
    inner: S,
    guard: Guard,
}

type Answering<E> = Pin<Box<dyn Future<Output = Result<http::Response<Body>, E>> + Send>>;

impl<S> Service<http::Request<Body>> for Guarded<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>> + Clone + Send + 'static,
    S::Future: Send,
{
    type Response = http::Response<Body>;
    type Error = S::Error;
    type Future = Answering<S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        let guard = self.guard.clone();
        let path = shortened(request.uri().path().trim_start_matches('/'));
        let method = roles::method(&path);
        // Whoever makes up names does not choose what is stored.
        let path = if roles::is_known(&path) {
            path
        } else {
            "unknown".to_owned()
        };
        let bars = |peer: &PeerIdentity| guard.barred.bars(peer);
        let caller = Caller::of(request.extensions(), &guard.roles, guard.own_uid, bars);
        let peer = request.extensions().get::<PeerIdentity>().cloned();
        let target = Target::default();
        let call = AdminCall {
            at: Timestamp::now(),
            actor: caller.actor.clone(),
            method: path,
            target: String::new(),
            outcome: String::new(),
            detail: String::new(),
        };
        if let Err(refusal) = admit(&caller, method, &call.method) {
            return Box::pin(async move {
                let detail = refusal.message().to_owned();
                // Nothing was changed: it waits for no place in the log, and equal ones are counted.
                let method = Method {
                    changes: false,
                    ..method
                };
                guard.note(call, method, refusal.code(), detail).await;
                Ok(refusal.into_http())
            });
        }
        request.extensions_mut().insert(caller);
        request.extensions_mut().insert(target.clone());
        if let Some(peer) = &peer {
            request = guard.barred.watch_request(request, peer.clone());
        }
        // The service that was polled ready is the one to call.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let answer = inner.call(request).await?;
            let (code, end) = outcome(&answer);
            let detail = target.detail(end);
            let call = AdminCall {
                target: target.text(),
                ..call
            };
            guard.note(call, method, code, detail).await;
            Ok(match peer {
                Some(peer) => guard.barred.watch(answer, peer),
                None => answer,
            })
        })
    }
}

impl Guard {
    async fn note(&self, call: AdminCall, method: Method, code: Code, detail: String) {
        if method.audited {
            let call = AdminCall {
                outcome: format!("{code:?}"),
                detail: shortened(&detail),
                ..call
            };
            self.journal.note(call, method.changes).await;
        }
    }
}

/// Whether a caller may use a method.
fn admit(caller: &Caller, method: Method, path: &str) -> Result<(), Status> {
    let (reason, message) = match (caller.role, caller.barred) {
        (_, Some(reason)) => (reason.word(), reason.message(&caller.actor)),
        (Some(role), None) if role >= method.least => return Ok(()),
        (Some(role), None) => (
            "ROLE_TOO_LOW",
            format!(
                "{path} needs the role {}, and {} has the role {role}; --admin-role of the hub gives roles",
                method.least, caller.actor
            ),
        ),
        (None, None) if caller.actor.starts_with("admin/") => (
            "NO_ROLE",
            format!(
                "no --admin-role of the hub names {}; it needs the role {} for {path}",
                caller.actor, method.least
            ),
        ),
        (None, None) => (
            "NOT_AN_ADMINISTRATOR",
            format!(
                "this door is for administrators, not for {}: the certificate's URI SAN must be \
                spiffe://<trust-domain>/admin/<name>; make one with `nabuctl pki issue admin NAME`",
                caller.actor
            ),
        ),
    };
    let facts = [
        ("caller".to_owned(), caller.actor.clone()),
        ("method".to_owned(), path.to_owned()),
        ("leastRole".to_owned(), method.least.to_string()),
    ];
    Err(Status::with_error_details(
        Code::PermissionDenied,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, facts),
    ))
}

/// How a call ended, as far as it is known when its answer begins: an error is all of the answer, a stream may still
/// break.
fn outcome(answer: &http::Response<Body>) -> (Code, String) {
    match Status::from_header_map(answer.headers()) {
        Some(status) => (status.code(), status.message().to_owned()),
        None => (Code::Ok, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::barred::Reason;
    use super::super::roles::Role;
    use super::*;

    fn caller(actor: &str, role: Option<Role>) -> Caller {
        Caller {
            actor: actor.to_owned(),
            role,
            certified: None,
            barred: None,
        }
    }

    fn refusal(caller: &Caller, path: &str) -> Option<String> {
        admit(caller, roles::method(path), path)
            .err()
            .map(|status| {
                assert_eq!(status.code(), Code::PermissionDenied);
                status.get_details_error_info().unwrap().reason
            })
    }

    #[test]
    fn a_method_is_for_those_who_have_its_least_role_or_a_higher_one() {
        let list = "nabu.admin.v1.AdminService/ListClusters";
        let unknown = "nabu.admin.v1.NewService/Drop";
        let viewer = caller("admin/grace", Some(Role::Viewer));
        let admin = caller("admin/ada", Some(Role::Admin));
        assert_eq!(refusal(&viewer, list), None);
        assert_eq!(refusal(&viewer, unknown).as_deref(), Some("ROLE_TOO_LOW"));
        assert_eq!(refusal(&admin, unknown), None);
        assert_eq!(
            refusal(&caller("admin/x", None), list).as_deref(),
            Some("NO_ROLE")
        );
        assert_eq!(
            refusal(&caller("cluster/prod-eu", None), list).as_deref(),
            Some("NOT_AN_ADMINISTRATOR")
        );
        let barred = Caller {
            barred: Some(Reason::Revoked),
            ..caller("admin/ada", None)
        };
        assert_eq!(refusal(&barred, list).as_deref(), Some("REVOKED"));
    }
}
