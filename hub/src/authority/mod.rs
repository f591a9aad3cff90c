//! The certificates that the hub makes: for agents, administrators and itself, by an authority of its own.
//!
//! The authority is the built-in one, whose key is sealed in the store ([`seal`]), or one from files ([`files`]). [`signer`] makes
//! certificates, [`rotation`] decides how one authority takes over from another. What was certified, the store knows; who
//! may ask for a certificate is decided by [`crate::enrolment`], [`crate::gateway`] and [`crate::admin`].

mod files;
pub mod first_admin;
mod reseal;
pub mod rotation;
pub mod seal;
pub mod signer;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use nabu_common::identity::TrustDomain;
use nabu_common::ids::ClusterId;
use nabu_common::tls::{CaPin, ServerTls, TlsCredentials, TlsError};
use rcgen::KeyPair;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::files::AuthorityFiles;
use self::rotation::RotationError;
use self::seal::{SealError, SealingKey};
use self::signer::{Issued, RequestedKey, SignError, Signer};
use crate::config::AuthorityArgs;
use crate::pki::{PkiError, Subject};
use crate::store::identity::{AuthorityRecord, AuthorityState, SharedIdentities};
use crate::store::rehearsal::Run;
use crate::store::{AuditEvent, StoreError};

/// The hub makes its own certificate for so long, and anew at two thirds.
const OWN_LIFETIME: Duration = Duration::from_hours(7 * 24);
/// The hub's certificate is valid from so long ago, for agents whose clocks go slow.
const OWN_BACKDATED: Duration = Duration::from_hours(2);
/// How often the store is asked whether another replica has changed the authorities.
const REFRESH: Duration = Duration::from_secs(2);

/// Why the hub cannot certify.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The key of the built-in authority cannot be used.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The authority cannot be used, or a request not be certified.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// A rotation cannot go on.
    #[error(transparent)]
    Rotation(#[from] RotationError),
    /// The hub's own certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The authority comes from files.
    #[error(
        "the authority comes from --ca-cert-file; replace the files, with both certificates in it for a while, instead of \
        rotating"
    )]
    FromFiles,
    /// The hub has no name to certify.
    #[error(
        "the hub needs --server-name for the certificate that it makes for itself: the DNS names and IP addresses that agents and \
        administrators dial"
    )]
    NoServerName,
    /// Two administrators changed the authorities at one time.
    #[error("somebody else has just changed the authorities; look with `nabuctl ca rotate status`")]
    Raced,
}

impl From<PkiError> for AuthorityError {
    fn from(error: PkiError) -> Self {
        Self::Sign(SignError::Pki(error))
    }
}

/// The authorities that are in use.
struct Ring {
    state: AuthorityState,
    known: Vec<Known>,
    /// Certificates of authorities that are trusted and whose keys are elsewhere.
    others: Vec<CertificateDer<'static>>,
}

struct Known {
    signer: Arc<Signer>,
    created_at: Option<Timestamp>,
}

impl Ring {
    fn signer(&self, pin: &str) -> Option<&Arc<Signer>> {
        let mut signers = self.known.iter().map(|known| &known.signer);
        signers.find(|signer| signer.pin().to_string() == pin)
    }
}

/// One authority in use, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityView {
    /// Names it.
    pub pin: CaPin,
    /// It certifies agents and administrators.
    pub issuing: bool,
    /// The hub's own certificate is of it.
    pub serving: bool,
    /// When it was made, if that is known.
    pub created_at: Option<Timestamp>,
    /// When it runs out.
    pub not_after: Timestamp,
}

enum Source {
    Stored(SealingKey),
    Files(AuthorityFiles),
}

/// The hub's authority.
pub struct HubAuthority {
    identities: SharedIdentities,
    source: Source,
    domain: TrustDomain,
    server_names: Vec<String>,
    lifetime: Duration,
    ring: ArcSwap<Ring>,
    tls: ServerTls,
    /// When the hub needs its next certificate; held while authorities change.
    own_due: Mutex<Instant>,
    changes: watch::Sender<u64>,
}

impl HubAuthority {
    /// The authority that the flags name; `None` if certificates come from files. The built-in one is made at the first
    /// start.
    ///
    /// # Errors
    /// If it cannot be used; the text says what to do.
    pub async fn open(
        config: &AuthorityArgs,
        server_names: &[String],
        lifetime: Duration,
        identities: SharedIdentities,
    ) -> Result<Option<Arc<Self>>, AuthorityError> {
        let (source, ring) = if let Some(path) = &config.ca_encryption_key_file {
            let mut key = SealingKey::from_file(path)?;
            if let Some(old) = &config.ca_old_encryption_key_file {
                key = key.after(SealingKey::from_file(old)?);
            }
            let ring = open_stored(&identities, &key, &config.trust_domain).await?;
            (Source::Stored(key), ring)
        } else if let (Some(cert), Some(key)) = (&config.ca_cert_file, &config.ca_key_file) {
            let files = AuthorityFiles::new(cert.clone(), key.clone());
            let ring = files.ring(1)?;
            (Source::Files(files), ring)
        } else {
            return Ok(None);
        };
        if server_names.is_empty() {
            return Err(AuthorityError::NoServerName);
        }
        let (credentials, issued) = own_credentials(&ring, &config.trust_domain, server_names)?;
        let authority = Self {
            source,
            domain: config.trust_domain.clone(),
            server_names: server_names.to_owned(),
            lifetime,
            changes: watch::Sender::new(ring.state.revision),
            ring: ArcSwap::from_pointee(ring),
            tls: ServerTls::hold(credentials, config.trust_domain.clone())?,
            own_due: Mutex::new(Instant::now() + OWN_LIFETIME * 2 / 3),
            identities,
        };
        authority
            .identities
            .record_certificate(issued.record, None)
            .await?;
        info!(pins = ?authority.pins().iter().map(ToString::to_string).collect::<Vec<_>>(), "the hub certifies");
        Ok(Some(Arc::new(authority)))
    }

    /// The hub's side of TLS, with its newest certificate and everybody whom it trusts.
    pub fn tls(&self) -> ServerTls {
        self.tls.clone()
    }

    /// The trust domain of everything that is certified.
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.domain
    }

    /// How long certificates of agents live.
    pub fn agent_lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Changes whenever the trusted authorities do.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The trusted authorities, the one that certifies first.
    pub fn bundle(&self) -> Vec<CertificateDer<'static>> {
        let ring = self.ring.load();
        let own = ordered(&ring).map(|known| known.signer.certificate());
        own.chain(&ring.others).cloned().collect()
    }

    /// Pins of the trusted authorities.
    pub fn pins(&self) -> Vec<CaPin> {
        let ring = self.ring.load();
        let own = ordered(&ring).map(|known| known.signer.pin());
        let others = ring.others.iter().filter_map(CaPin::of_certificate);
        own.chain(others).collect()
    }

    /// Which authorities are in use.
    pub fn state(&self) -> AuthorityState {
        self.ring.load().state.clone()
    }

    /// The authorities that a state names, as far as there are any, for people; the one that certifies first.
    pub fn view_in(&self, state: &AuthorityState) -> Vec<AuthorityView> {
        let ring = self.ring.load();
        let views = ring.known.iter().map(|known| {
            let pin = known.signer.pin();
            AuthorityView {
                pin,
                issuing: state.issuing == pin.to_string(),
                serving: state.serving == pin.to_string(),
                created_at: known.created_at,
                not_after: known.signer.not_after(),
            }
        });
        let named = |view: &AuthorityView| {
            view.issuing || view.serving || state.incoming.as_deref() == Some(&view.pin.to_string())
        };
        let mut views: Vec<_> = views.filter(named).collect();
        views.sort_by_key(|view| !view.issuing);
        views
    }

    /// Makes a certificate for the agent of a cluster. Whoever asks for it has to be allowed to, and has to store the
    /// record before the certificate leaves.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn certify_cluster(
        &self,
        cluster: &ClusterId,
        key: &RequestedKey,
        now: Timestamp,
    ) -> Result<Issued, SignError> {
        let subject = Subject::cluster(cluster);
        self.issuing()?
            .sign(&subject, &self.domain, key, now, self.lifetime)
    }

    /// The same for an administrator.
    ///
    /// # Errors
    /// If the authority cannot sign.
    pub fn certify_admin(
        &self,
        name: &str,
        key: &RequestedKey,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Issued, SignError> {
        let subject = Subject::admin(name);
        self.issuing()?
            .sign(&subject, &self.domain, key, now, lifetime)
    }

    /// Until when a certificate for an administrator would be good; none is made.
    ///
    /// # Errors
    /// Where [`HubAuthority::certify_admin`] has one before it signs.
    pub fn admin_until(
        &self,
        name: &str,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Timestamp, SignError> {
        self.issuing()?
            .until(&Subject::admin(name), &self.domain, now, lifetime)
    }

    fn issuing(&self) -> Result<Arc<Signer>, SignError> {
        let ring = self.ring.load();
        ring.signer(&ring.state.issuing)
            .cloned()
            .ok_or_else(|| SignError::Authority("it is gone".to_owned()))
    }

    /// Begins a rotation: a new authority certifies from now on. Gives the state that it leads to. In a dry run the new
    /// authority is made as well, stored nowhere, and gone with this call.
    ///
    /// # Errors
    /// If one is under way, or the store fails.
    pub async fn start_rotation(
        &self,
        run: Run,
        actor: &str,
    ) -> Result<AuthorityState, AuthorityError> {
        let Source::Stored(sealing) = &self.source else {
            return Err(AuthorityError::FromFiles);
        };
        let now = Timestamp::now();
        let (signer, record) = new_authority(sealing, &self.domain, now)?;
        let state = rotation::start(&self.ring.load().state, signer.pin())?;
        let detail = format!("the new authority is {}", signer.pin());
        let step = ("RotationStarted", detail);
        self.change(run, state, Some(record), actor, step).await
    }

    /// Lets the old authority certify again. Gives the state that it leads to.
    ///
    /// # Errors
    /// If no rotation goes forward, or the store fails.
    pub async fn roll_back_rotation(
        &self,
        run: Run,
        actor: &str,
    ) -> Result<AuthorityState, AuthorityError> {
        self.must_be_built_in()?;
        let state = rotation::roll_back(&self.ring.load().state)?;
        let detail = format!("{} certifies again", state.issuing);
        let step = ("RotationRolledBack", detail);
        self.change(run, state, None, actor, step).await
    }

    /// Ends the trust in the authority that is to go. Gives the state that it leads to, and who is left behind.
    ///
    /// # Errors
    /// If somebody depends on it and nobody forces it, or the store fails.
    pub async fn finish_rotation(
        &self,
        run: Run,
        force: bool,
        actor: &str,
    ) -> Result<(AuthorityState, Vec<String>), AuthorityError> {
        self.must_be_built_in()?;
        let waiting = self.waiting_in(&self.state()).await?;
        let state = rotation::finish(&self.ring.load().state, &waiting, force)?;
        let detail = format!("{} is the only authority", state.serving);
        let step = ("RotationFinished", detail);
        let state = self.change(run, state, None, actor, step).await?;
        Ok((state, waiting))
    }

    /// Who depends on the authority that is to go in a state.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn waiting_in(&self, state: &AuthorityState) -> Result<Vec<String>, StoreError> {
        match rotation::outgoing(state) {
            Some(pin) => self.identities.certified_by(pin, Timestamp::now()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Whether the hub alone has the authority's key.
    pub fn is_built_in(&self) -> bool {
        matches!(self.source, Source::Stored(_))
    }

    fn must_be_built_in(&self) -> Result<(), AuthorityError> {
        if self.is_built_in() {
            Ok(())
        } else {
            Err(AuthorityError::FromFiles)
        }
    }

    async fn change(
        &self,
        run: Run,
        state: AuthorityState,
        new: Option<AuthorityRecord>,
        actor: &str,
        (action, detail): (&str, String),
    ) -> Result<AuthorityState, AuthorityError> {
        if !run.is_dry() {
            info!(actor, action, detail, "the authorities change");
        }
        let event = AuditEvent {
            at: Timestamp::now(),
            actor: actor.to_owned(),
            action: action.to_owned(),
            detail,
        };
        let identities = run.identities(&self.identities);
        if !identities
            .put_authorities(state.clone(), new, event)
            .await?
        {
            return Err(AuthorityError::Raced);
        }
        if !run.is_dry() {
            self.refresh().await?;
        }
        Ok(state)
    }

    /// Takes over what other replicas have changed, and makes the hub's own certificate anew in time, until `shutdown`.
    pub async fn keep_fresh(self: Arc<Self>, shutdown: CancellationToken) {
        let mut told = None;
        while shutdown
            .run_until_cancelled(tokio::time::sleep(REFRESH))
            .await
            .is_some()
        {
            match self.refresh().await {
                Ok(()) => told = None,
                // Files that do not fit together stay like that until somebody mends them.
                Err(failure) if told.as_ref() == Some(&failure.to_string()) => {}
                Err(failure) => {
                    error!(error = %failure, "the hub's authorities cannot be brought up to date; the last good ones stay");
                    told = Some(failure.to_string());
                }
            }
        }
    }

    async fn refresh(&self) -> Result<(), AuthorityError> {
        let mut own_due = self.own_due.lock().await;
        let revision = self.ring.load().state.revision;
        let mut read = None;
        let changed = match &self.source {
            Source::Stored(sealing) => match self.identities.authorities().await? {
                Some((state, records)) if state.revision != revision => {
                    Some(unsealed(sealing, state, records)?)
                }
                _ => None,
            },
            Source::Files(files) => {
                let changed = files.changed(revision + 1)?;
                changed.map(|changed| {
                    read = Some(changed.digest);
                    changed.ring
                })
            }
        };
        if changed.is_none() && Instant::now() < *own_due {
            return Ok(());
        }
        let present = self.ring.load_full();
        let ring = changed.as_ref().unwrap_or(&present);
        let (credentials, issued) = own_credentials(ring, &self.domain, &self.server_names)?;
        self.identities
            .record_certificate(issued.record, None)
            .await?;
        self.tls.replace(credentials)?;
        *own_due = Instant::now() + OWN_LIFETIME * 2 / 3;
        if let Some(ring) = changed {
            let revision = ring.state.revision;
            warn!(
                revision,
                state = rotation::word(&ring.state),
                "the hub's authorities have changed"
            );
            self.ring.store(Arc::new(ring));
            self.changes.send_replace(revision);
        }
        // Not before: what was read and could not be put into force is read again.
        if let (Source::Files(files), Some(digest)) = (&self.source, read) {
            files.in_force(digest);
        }
        Ok(())
    }
}

/// The one that certifies first.
fn ordered(ring: &Ring) -> impl Iterator<Item = &Known> {
    let (issuing, others): (Vec<_>, Vec<_>) = ring
        .known
        .iter()
        .partition(|known| known.signer.pin().to_string() == ring.state.issuing);
    issuing.into_iter().chain(others)
}

fn new_authority(
    sealing: &SealingKey,
    domain: &TrustDomain,
    now: Timestamp,
) -> Result<(Signer, AuthorityRecord), AuthorityError> {
    let (signer, secret) = Signer::generate(domain, now)?;
    let pin = signer.pin().to_string();
    let record = AuthorityRecord {
        certificate: signer.certificate().to_vec(),
        sealed_key: sealing.seal(&pin, &secret)?,
        sealing_key_id: sealing.id().to_owned(),
        created_at: now,
        pin,
    };
    Ok((signer, record))
}

async fn open_stored(
    identities: &SharedIdentities,
    sealing: &SealingKey,
    domain: &TrustDomain,
) -> Result<Ring, AuthorityError> {
    loop {
        if let Some((state, records)) = identities.authorities().await? {
            reseal::reseal(identities, sealing, &records).await?;
            return unsealed(sealing, state, records);
        }
        let now = Timestamp::now();
        let (signer, record) = new_authority(sealing, domain, now)?;
        let pin = signer.pin().to_string();
        let state = AuthorityState {
            revision: 1,
            serving: pin.clone(),
            incoming: None,
            issuing: pin.clone(),
        };
        let event = AuditEvent {
            at: now,
            actor: "hub".to_owned(),
            action: "AuthorityCreated".to_owned(),
            detail: format!("the built-in authority {pin} of trust domain {domain}"),
        };
        // Another replica may have been faster; then there is one now.
        identities
            .put_authorities(state, Some(record), event)
            .await?;
    }
}

fn unsealed(
    sealing: &SealingKey,
    state: AuthorityState,
    records: Vec<AuthorityRecord>,
) -> Result<Ring, AuthorityError> {
    let known = records.into_iter().map(|record| {
        let secret = sealing.open(&record.pin, &record.sealing_key_id, &record.sealed_key)?;
        let key =
            KeyPair::try_from(secret).map_err(|error| SignError::Authority(error.to_string()))?;
        Ok(Known {
            signer: Arc::new(Signer::new(CertificateDer::from(record.certificate), key)?),
            created_at: Some(record.created_at),
        })
    });
    Ok(Ring {
        known: known.collect::<Result<_, AuthorityError>>()?,
        others: Vec::new(),
        state,
    })
}

/// A new key and certificate for the hub itself. The chain has the authority in it, for agents that know only its pin.
fn own_credentials(
    ring: &Ring,
    domain: &TrustDomain,
    names: &[String],
) -> Result<(TlsCredentials, Issued), AuthorityError> {
    let signer = ring
        .signer(&ring.state.serving)
        .ok_or_else(|| SignError::Authority("it is gone".to_owned()))?;
    let subject = names
        .iter()
        .fold(Subject::hub("hub"), |subject, name| subject.with_ip(name));
    let key = KeyPair::generate().map_err(PkiError::from)?;
    let validity = (OWN_BACKDATED, OWN_LIFETIME);
    let issued = signer.sign_key(&subject, domain, &key, Timestamp::now(), validity)?;
    let credentials = TlsCredentials {
        roots: ring
            .known
            .iter()
            .map(|known| known.signer.certificate())
            .chain(&ring.others)
            .cloned()
            .collect(),
        chain: vec![issued.certificate.clone(), signer.certificate().clone()],
        key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der())),
    };
    Ok((credentials, issued))
}

#[cfg(test)]
mod tests {
    use x509_parser::prelude::{FromDer as _, X509Certificate};

    use super::*;

    #[test]
    fn the_hubs_own_certificate_is_good_for_agents_whose_clocks_are_an_hour_off() {
        let domain: TrustDomain = "nabu".parse().unwrap();
        let now = Timestamp::now();
        let (signer, _) = Signer::generate(&domain, now).unwrap();
        let pin = signer.pin().to_string();
        let ring = Ring {
            state: AuthorityState {
                revision: 1,
                serving: pin.clone(),
                incoming: None,
                issuing: pin,
            },
            known: vec![Known {
                signer: Arc::new(signer),
                created_at: None,
            }],
            others: Vec::new(),
        };
        let names = ["hub.example.com".to_owned(), "127.0.0.1".to_owned()];
        let (credentials, _) = own_credentials(&ring, &domain, &names).unwrap();
        let (_, own) = X509Certificate::from_der(&credentials.chain[0]).unwrap();
        let hour = 3600;
        assert!(own.validity().not_before.timestamp() <= now.as_second() - hour);
        // It is made anew at two thirds of its life.
        let third = i64::try_from(OWN_LIFETIME.as_secs() / 3).unwrap();
        assert!(own.validity().not_after.timestamp() - now.as_second() >= 2 * third + hour);
        // Agents that know only the pin find the authority in the chain.
        assert_eq!(credentials.chain[1], credentials.roots[0]);
    }
}
