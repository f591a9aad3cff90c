//! Keeps the agent certified: enrols when it has no certificate, renews in time, and stores what is decided. Which of two
//! certificates is shown is the business of [`Trial`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use nabu_common::tls::{CaPin, ClientTls, Connector, HttpProxy};
use nabu_proto::agent_v1::{CertificateIssued, IssuedCertificate, TrustBundle, Welcome};
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::pki_types::CertificateDer;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;
use tonic::transport::Endpoint;
use tracing::{error, info, warn};

use super::enrol::{EnrolError, enrol};
use super::kept::{Bytes, Certified, Kept, renewal_wait, retry_wait};
use super::notice::Notice;
use super::place::{Place, PlaceError};
use super::trial::Trial;
use crate::metrics::Metrics;

/// A token that was refused is tried again after this time: a cluster may be restored.
const REFUSED_TOKEN_PAUSE: Duration = Duration::from_mins(10);
/// How soon to renew when the hub has a new authority, at most.
const NEW_AUTHORITY_SPREAD: Duration = Duration::from_secs(5);

/// Where a join token comes from.
#[derive(Clone)]
pub enum Token {
    /// There is none.
    None,
    /// Given with the flags.
    Given(SecretString),
    /// In a file, which may change.
    File(PathBuf),
}

impl Token {
    fn read(&self) -> Result<Option<SecretString>, String> {
        match self {
            Self::None => Ok(None),
            Self::Given(token) => Ok(Some(token.expose_secret().trim().into())),
            Self::File(path) => match std::fs::read_to_string(path) {
                Ok(text) if text.trim().is_empty() => Ok(None),
                Ok(text) => Ok(Some(text.trim().into())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(format!(
                    "cannot read --join-token-file {}: {error}",
                    path.display()
                )),
            },
        }
    }
}

/// What a keeper is told.
pub struct Keeper {
    /// The cluster id.
    pub cluster_id: String,
    /// The address of the hub.
    pub endpoint: Endpoint,
    /// The name in the hub's certificate, if it is not the host.
    pub server_name: Option<String>,
    /// The proxy that it is reached through.
    pub proxy: Option<HttpProxy>,
    /// What the hub's authority must be at the enrolment.
    pub pins: Vec<CaPin>,
    /// The join token.
    pub token: Token,
    /// Where the identity is kept.
    pub place: Place,
    /// What operators see.
    pub metrics: Arc<Metrics>,
    /// Tells in the cluster what it needs, if it runs in a pod.
    pub notice: Option<Notice>,
    /// What is known now.
    pub state: Mutex<State>,
}

/// What a keeper knows now.
#[derive(Default)]
pub struct State {
    kept: Kept,
    loaded: bool,
    /// What is known could not be kept: it is newer than what is.
    unsaved: bool,
    trial: Trial,
    /// What people have to do, while only they can help.
    needs: Option<String>,
    /// A token that the hub refused, when, and what it said.
    refused_token: Option<(String, Instant, String)>,
    /// How far our clock is ahead of the hub's.
    skew: SignedDuration,
    /// The key of a renewal that is asked for.
    renewing: Option<KeyPair>,
}

/// Why the agent did not enrol.
enum Unenrolled {
    /// Only people can help: it needs a join token.
    NeedsToken(String),
    /// What failed may pass.
    Failed(String),
}

impl From<String> for Unenrolled {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl State {
    fn hub_now(&self) -> Timestamp {
        Timestamp::now() - self.skew
    }
}

impl Keeper {
    /// Opens TLS connections with the certificate that is to be used now; enrols if there is none.
    ///
    /// # Errors
    /// If there is no certificate, and none to be had; the text says what to do.
    pub async fn connector(&self) -> Result<Connector, String> {
        let connector = self.certified_connector().await;
        if let Err(reason) = &connector {
            self.tell(reason);
        }
        connector
    }

    fn tell(&self, reason: &str) {
        if let Some(notice) = &self.notice {
            notice.not_certified(reason);
        }
    }

    async fn certified_connector(&self) -> Result<Connector, String> {
        let mut state = self.state.lock().await;
        if !state.loaded {
            self.load(&mut state).await?;
        }
        if state.trial.needs_token(&state.kept, state.hub_now()) {
            if let Err(failure) = self.enrol(&mut state).await {
                let (reason, needs) = match failure {
                    Unenrolled::NeedsToken(reason) => (reason.clone(), Some(reason)),
                    Unenrolled::Failed(reason) => (reason, None),
                };
                self.metrics.join_token_needed.set(needs.is_some().into());
                state.needs = needs;
                // A certificate that we think is of no use may be good for the hub, whose clock counts.
                if state.kept.newest().is_none() {
                    return Err(reason);
                }
                self.tell(&reason);
                warn!(
                    reason,
                    "the agent's certificate is of no use and there is no other one"
                );
            } else {
                self.metrics.join_token_needed.set(0);
                state.needs = None;
            }
        }
        let credentials = state
            .kept
            .credentials(state.trial.with_old())
            .ok_or("the agent has no certificate")?;
        let tls = ClientTls::hold(credentials)
            .map_err(|error| format!("the agent's own certificate cannot be used: {error}"))?;
        Ok(self.through(&tls))
    }

    fn through(&self, tls: &ClientTls) -> Connector {
        let connector = tls.connector(self.server_name.clone());
        connector.through(self.proxy.clone())
    }

    async fn load(&self, state: &mut State) -> Result<(), String> {
        let kept = self.place.load().await.map_err(|error| error.to_string())?;
        state.loaded = true;
        state.kept = kept;
        self.show(state);
        Ok(())
    }

    fn wanted(&self, why: &str) -> Unenrolled {
        Unenrolled::NeedsToken(format!(
            "the agent needs a join token because {why}: run `nabuctl cluster add {}` and give it the token that is printed \
            (--join-token-file)",
            self.cluster_id
        ))
    }

    async fn enrol(&self, state: &mut State) -> Result<(), Unenrolled> {
        let why = match (state.kept.newest(), state.trial.turned_away()) {
            (None, _) => "it has no certificate".to_owned(),
            (Some(used), Some(reason)) if used.not_after > state.hub_now() => {
                format!("the hub does not take its certificate ({reason})")
            }
            (Some(used), _) => format!("its certificate ran out at {}", used.not_after),
        };
        let Some(token) = self.token.read()? else {
            return Err(self.wanted(&why));
        };
        let digest = hex::encode(Sha256::digest(token.expose_secret()));
        if state.kept.used_token.as_ref() == Some(&digest) && state.kept.newest().is_some() {
            return Err(self.wanted(&format!("{why}, and the join token that it has is used")));
        }
        let refused = |reason: &str| format!("the hub refused the one that it has ({reason})");
        if let Some((token, at, reason)) = &state.refused_token
            && *token == digest
            && at.elapsed() < REFUSED_TOKEN_PAUSE
        {
            return Err(self.wanted(&refused(reason)));
        }
        let tls = ClientTls::pinned(&self.pins).map_err(|error| error.to_string())?;
        // Kept before the token leaves: after a crash only this key gets a certificate for it.
        let key = if let Some(key) = &state.kept.enrolling_key {
            KeyPair::try_from(key.0.as_slice()).map_err(|error| error.to_string())?
        } else {
            let key = KeyPair::generate().map_err(|error| error.to_string())?;
            state.kept.enrolling_key = Some(Bytes(key.serialize_der()));
            self.save(state).await.map_err(|error| error.to_string())?;
            key
        };
        let request = enrol(
            &self.endpoint,
            self.through(&tls),
            (&self.cluster_id, &token),
            request(&key)?,
        );
        let answer = match request.await {
            Ok(answer) => answer,
            Err(EnrolError::Refused(reason)) => {
                let wanted = self.wanted(&refused(&reason));
                state.refused_token = Some((digest, Instant::now(), reason));
                return Err(wanted);
            }
            Err(failed @ EnrolError::Failed(_)) => {
                return Err(Unenrolled::Failed(failed.to_string()));
            }
        };
        let authorities = authorities(answer.trust_bundle.unwrap_or_default());
        let certified = certified(&key, answer.certificate, &authorities)?;
        info!(until = %certified.not_after, "the agent has enrolled");
        state.kept = Kept {
            enrolling_key: None,
            used_token: Some(digest),
            current: Some(certified),
            candidate: None,
            authorities,
        };
        state.trial = Trial::default();
        self.show(state);
        // Without it on disk the agent works on, until it restarts.
        if let Err(error) = self.save(state).await {
            error!(%error, "the new certificate cannot be kept; after a restart the agent needs another join token");
            state.unsaved = true;
        }
        Ok(())
    }

    async fn save(&self, state: &State) -> Result<(), PlaceError> {
        self.place.save(&state.kept).await
    }

    fn show(&self, state: &State) {
        let until = state.kept.newest().map(|used| used.not_after.as_second());
        self.metrics.certificate_not_after.set(until.unwrap_or(0));
    }

    /// A session is open. Gives how long to wait before renewing, if the hub renews.
    pub async fn opened(&self, welcome: &Welcome, renews: bool) -> Option<Duration> {
        let mut guard = self.state.lock().await;
        let state = &mut *guard;
        (state.renewing, state.needs) = (None, None);
        self.metrics.join_token_needed.set(0);
        if let Some(sent) = welcome
            .sent_at
            .and_then(|at| Timestamp::new(at.seconds, at.nanos).ok())
        {
            state.skew = Timestamp::now().duration_since(sent);
        }
        if state.trial.opened(&mut state.kept) {
            info!("a session is open, and the other certificate is forgotten");
            self.show(state);
            if let Err(error) = self.save(state).await {
                warn!(%error, "cannot note which certificate works");
            }
        }
        let used = state.kept.newest().filter(|_| renews)?;
        Some(renewal_wait(used, state.hub_now(), rand::random()))
    }

    /// A session could not be opened. `refused` is why, if the hub turned the certificate away.
    pub async fn failed(&self, refused: Option<String>) {
        let mut guard = self.state.lock().await;
        let state = &mut *guard;
        // Another replica may have renewed or enrolled meanwhile.
        match self.place.load().await {
            Ok(kept) if kept != state.kept && !state.unsaved => {
                state.kept = kept;
                state.trial = Trial::default();
                state.needs = None;
                self.metrics.join_token_needed.set(0);
                self.show(state);
                return;
            }
            Ok(_) => {}
            Err(error) => warn!(%error, "cannot look whether there is another certificate"),
        }
        if state.trial.failed(&state.kept, refused) {
            warn!(
                old = state.trial.with_old(),
                "no session with this certificate; the other one is tried"
            );
        }
    }

    /// What people have to do before there can be a session again, if it is for them to do something.
    pub async fn needs(&self) -> Option<String> {
        self.state.lock().await.needs.clone()
    }

    /// Makes a key; gives the request for its certificate.
    pub async fn request(&self) -> Option<Vec<u8>> {
        let key = match KeyPair::generate() {
            Ok(key) => key,
            Err(error) => {
                error!(%error, "cannot make a key");
                return None;
            }
        };
        let csr = request(&key).ok()?;
        self.state.lock().await.renewing = Some(key);
        Some(csr)
    }

    /// Takes the next certificate; `true` if the next session shall use it.
    pub async fn issued(&self, issued: CertificateIssued) -> bool {
        let mut state = self.state.lock().await;
        let Some(key) = state.renewing.take() else {
            return false;
        };
        let authorities = authorities(issued.trust_bundle.unwrap_or_default());
        let candidate = match certified(&key, issued.certificate, &authorities) {
            Ok(candidate) => candidate,
            Err(reason) => {
                error!(reason, "the hub sent a certificate that cannot be used");
                return false;
            }
        };
        let before = state.kept.clone();
        state.kept.candidate = Some(candidate);
        if !authorities.is_empty() {
            state.kept.authorities = authorities;
        }
        // Kept before it is used: with its first use the hub refuses the old one.
        if let Err(error) = self.save(&state).await {
            error!(%error, "the new certificate cannot be kept and is not used");
            state.kept = before;
            return false;
        }
        state.unsaved = false;
        self.show(&state);
        self.metrics.renewals.inc();
        true
    }

    /// How long to wait before asking again after a refusal.
    pub async fn retry(&self) -> Option<Duration> {
        let state = self.state.lock().await;
        Some(retry_wait(state.kept.newest()?, state.hub_now()))
    }

    /// Trusts other authorities from now on; gives how long to wait before renewing if the one that certifies is a new one.
    pub async fn trust(&self, bundle: TrustBundle) -> Option<Duration> {
        let authorities = authorities(bundle);
        let mut state = self.state.lock().await;
        if !authorities.is_empty() && authorities != state.kept.authorities {
            info!(
                count = authorities.len(),
                "the hub's authorities have changed"
            );
            state.kept.authorities = authorities;
            if let Err(error) = self.save(&state).await {
                error!(%error, "the hub's authorities cannot be kept");
            }
        }
        let renew = state.kept.authority_has_changed();
        renew.then(|| NEW_AUTHORITY_SPREAD.mul_f64(rand::random()))
    }
}

fn request(key: &KeyPair) -> Result<Vec<u8>, String> {
    let params = CertificateParams::new(Vec::new()).map_err(|error| error.to_string())?;
    let request = params
        .serialize_request(key)
        .map_err(|error| error.to_string())?;
    Ok(request.der().to_vec())
}

fn certified(
    key: &KeyPair,
    issued: Option<IssuedCertificate>,
    authorities: &[Bytes],
) -> Result<Certified, String> {
    let issued = issued.ok_or("the hub sent no certificate")?;
    let time = |at: Option<prost_types::Timestamp>| {
        let at = at.ok_or("the hub sent no time")?;
        Timestamp::new(at.seconds, at.nanos).map_err(|_| "the hub sent a wrong time")
    };
    let (not_after, renew_after) = (time(issued.not_after)?, time(issued.renew_after)?);
    let chain: Vec<_> = issued
        .chain_der
        .iter()
        .map(|der| Bytes(der.to_vec()))
        .collect();
    let own = chain.first().ok_or("the hub sent no certificate")?;
    let wanted = Sha256::digest(key.subject_public_key_info());
    // A pin is the digest of a public key, whoever's it is.
    let found = CaPin::of_certificate(&CertificateDer::from(own.0.as_slice()));
    if found.map(|pin| pin.to_string()) != Some(format!("sha256:{}", hex::encode(wanted))) {
        return Err("the hub sent a certificate for another key".to_owned());
    }
    Ok(Certified {
        key: Bytes(key.serialize_der()),
        chain,
        not_after,
        renew_after,
        authority: authorities.first().cloned(),
    })
}

fn authorities(bundle: TrustBundle) -> Vec<Bytes> {
    let all = bundle.authorities_der.into_iter();
    all.map(|der| Bytes(der.to_vec())).collect()
}
