//! Who calls the admin API: an administrator by certificate, or the machine's own operator by the Unix socket.

use nabu_common::identity::Identity;
use nabu_common::tls::PeerIdentity;
use tonic::transport::server::UdsConnectInfo;

use super::barred::{self, Reason};
use super::roles::{Role, Roles};
use crate::store::administrators::Certified;

/// Whoever calls, as the audit log names them; a request extension in the services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// `admin/<name>` or `local/<uid>`; of a certificate that is for something else, `cluster/<id>` or `hub/<name>`.
    pub actor: String,
    /// What they may do; `None` for those who may nothing here.
    pub role: Option<Role>,
    /// The administrator's certificate; `None` at the socket.
    pub certified: Option<Certified>,
    /// Why the certificate counts for nothing, if it does.
    pub barred: Option<Reason>,
}

impl Caller {
    /// Whoever is at the other end of a connection.
    pub(super) fn of(
        extensions: &http::Extensions,
        roles: &Roles,
        own_uid: u32,
        bars: impl FnOnce(&PeerIdentity) -> Option<Reason>,
    ) -> Self {
        if let Some(peer) = extensions.get::<PeerIdentity>() {
            let mut caller = Self::certified(&peer.identity, roles);
            caller.certified = barred::certified(peer);
            caller.barred = if barred::ran_out(peer) {
                Some(Reason::RanOut)
            } else {
                bars(peer)
            };
            if caller.barred.is_some() {
                caller.role = None;
            }
            // Who may nothing here may not stay either.
            if caller.role.is_some() {
                peer.heard.note();
            }
            return caller;
        }
        let credentials = extensions
            .get::<UdsConnectInfo>()
            .and_then(|peer| peer.peer_cred);
        credentials.map_or_else(Self::nobody, |peer| Self::local(peer.uid(), own_uid))
    }

    fn certified(identity: &Identity, roles: &Roles) -> Self {
        let role = match identity {
            Identity::Admin(name) => roles.of(name),
            Identity::Cluster(_) | Identity::Hub(_) => None,
        };
        Self {
            actor: identity.to_string(),
            role,
            certified: None,
            barred: None,
        }
    }

    fn local(uid: u32, own_uid: u32) -> Self {
        Self {
            actor: format!("local/{uid}"),
            role: (uid == 0 || uid == own_uid).then_some(Role::Admin),
            certified: None,
            barred: None,
        }
    }

    fn nobody() -> Self {
        Self {
            actor: "nobody".to_owned(),
            role: None,
            certified: None,
            barred: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use nabu_common::tls::{Heard, Shown};

    use super::*;

    #[test]
    fn only_an_administrators_certificate_has_a_role() {
        let roles = Roles::new(Vec::new());
        let role = |identity| Caller::certified(&identity, &roles).role;
        assert_eq!(role(Identity::Admin("ada".into())), Some(Role::Admin));
        assert_eq!(role(Identity::Cluster("prod-eu".parse().unwrap())), None);
        assert_eq!(role(Identity::Hub("ada".into())), None);
    }

    #[test]
    fn a_certificate_that_ran_out_or_is_revoked_has_no_role_on_a_connection_that_is_still_open() {
        let caller = |not_after, reason| {
            let mut extensions = http::Extensions::new();
            extensions.insert(PeerIdentity {
                identity: Identity::Admin("ada".to_owned()),
                fingerprint: "f".to_owned(),
                not_after,
                remote_addr: ([127, 0, 0, 1], 1).into(),
                heard: Heard::default(),
                shown: Shown::default(),
            });
            Caller::of(&extensions, &Roles::new(Vec::new()), 0, |_| reason)
        };
        let (minute, now) = (Duration::from_mins(1), SystemTime::now());
        assert_eq!(caller(now + minute, None).role, Some(Role::Admin));
        assert_eq!(caller(now - minute, None).barred, Some(Reason::RanOut));
        assert_eq!(caller(now - minute, None).role, None);
        assert_eq!(caller(now + minute, Some(Reason::Revoked)).role, None);
    }

    #[test]
    fn at_the_socket_root_and_the_hubs_own_user_are_admins_and_nobody_else() {
        assert_eq!(Caller::local(0, 1000).role, Some(Role::Admin));
        assert_eq!(Caller::local(1000, 1000).role, Some(Role::Admin));
        assert_eq!(Caller::local(1001, 1000).role, None);
        assert_eq!(Caller::local(1001, 1000).actor, "local/1001");
    }
}
