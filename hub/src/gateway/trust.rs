//! Ends sessions whose certificate is of an authority that the hub does not trust any more.
//!
//! A certificate is checked when its connection is made, and a session may live longer than the trust in its authority:
//! after a rotation, or when the files of an authority were replaced. Whoever had the old key could certify itself for any
//! cluster until then.

use std::time::Duration;

use nabu_common::ids::ClusterId;
use nabu_common::tls::{PeerIdentity, ServerTls};
use nabu_proto::agent_v1::GoodbyeReason;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::{Farewell, Gateway, Shared};
use crate::store::StoreError;

/// How often every session is looked at; that costs nothing as long as the authorities are the same.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn distrusted() -> Farewell {
    let message = "the authority of this session's certificate is not trusted any more; a new join token by `nabuctl \
        cluster add` helps if the agent has no newer certificate";
    Farewell::new(GoodbyeReason::CertificateOutdated, message)
}

impl Gateway {
    /// Ends sessions of authorities that are gone, until `shutdown`. Certificates that others make from files are not
    /// looked at again: those files may be replaced without dropping a connection.
    pub async fn enforce_trust(self, shutdown: CancellationToken) {
        let Some(authority) = self.shared.identities.authority.clone() else {
            return;
        };
        let sleep = || shutdown.run_until_cancelled(tokio::time::sleep(LOOK));
        while sleep().await.is_some() {
            let tls = authority.tls();
            let peers = self.peers_unknown_to(&tls);
            if peers.is_empty() {
                continue;
            }
            let looked = tokio::task::spawn_blocking(move || outsiders(peers, &tls)).await;
            match looked {
                Ok(outsiders) => self.send_away(outsiders),
                Err(failure) => {
                    error!(error = %failure, "cannot look at the certificates of sessions");
                }
            }
        }
    }

    /// Sessions that were opened before the authorities were last changed, unless they were looked at since.
    fn peers_unknown_to(&self, tls: &ServerTls) -> Vec<(ClusterId, u64, PeerIdentity)> {
        let sessions = self.shared.sessions();
        let peers = sessions.iter().filter(|(_, live)| !tls.knows(&live.peer));
        peers
            .map(|(cluster, live)| (cluster.clone(), live.epoch, live.peer.clone()))
            .collect()
    }

    fn send_away(&self, outsiders: Vec<(ClusterId, u64, PeerIdentity)>) {
        for (cluster, epoch, peer) in outsiders {
            if let Some(live) = self.shared.sessions().get(&cluster)
                && live.epoch == epoch
            {
                warn!(%cluster, certificate = peer.fingerprint, "the authority of a session is gone");
                live.dismissal.dismiss(distrusted());
            }
        }
    }
}

fn outsiders(
    mut peers: Vec<(ClusterId, u64, PeerIdentity)>,
    tls: &ServerTls,
) -> Vec<(ClusterId, u64, PeerIdentity)> {
    peers.retain(|(_, _, peer)| !tls.trusts(peer));
    peers
}

impl Shared {
    /// Why a certificate may not be renewed though it opened a session: nobody but the hub has the key of the built-in
    /// authority, so what the hub has not certified, somebody has forged.
    pub(super) async fn bars_renewal(
        &self,
        peer: &PeerIdentity,
    ) -> Result<Option<&'static str>, StoreError> {
        let identities = &self.identities;
        let Some(authority) = &identities.authority else {
            return Ok(None);
        };
        if !authority.tls().trusts(peer) {
            return Ok(Some("the authority of this session's certificate is gone"));
        }
        if authority.is_built_in() && !identities.store.has_certified(&peer.fingerprint).await? {
            return Ok(Some("the hub has not made the certificate of this session"));
        }
        Ok(None)
    }
}
