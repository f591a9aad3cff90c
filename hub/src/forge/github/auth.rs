//! How requests to GitHub are authorized: with a token as it is, or as an App that mints one for its installation.
//!
//! One mint serves everybody for an hour: whoever finds no usable token mints it while the others wait. It is replaced a
//! few minutes early, and at once when GitHub rejects it or when the Secret changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;
use tracing::{info, warn};
use url::Url;

use super::super::access;
use super::super::http::{Authorization, Call, Http, failed};
use super::super::metrics::Operation;
use super::super::{ForgeError, Job};
use crate::change::CredentialRef;
use crate::credentials::{Credentials, Secret};
use crate::response::ErrorType;

/// How long before its end a token is replaced, at least; jitter adds as much again.
const EARLY: Duration = Duration::from_mins(5);

/// What a token is taken to live for if its end cannot be told; GitHub's live for an hour.
const SHORTEST_LIFE: Duration = Duration::from_mins(10);

/// The App's own proof is dated back, for clocks that differ.
const BACKDATED: i64 = 60;

/// GitHub takes proofs of at most ten minutes; the rest is for clocks that differ.
const PROOF_LIFE: i64 = 9 * 60;

/// Gives the authorization of one credential; shared by all repositories that it serves.
#[derive(Debug)]
pub(super) struct Authority {
    credential: CredentialRef,
    credentials: Credentials,
    app: Option<App>,
}

#[derive(Debug)]
struct App {
    installation: Option<u64>,
    minted: Mutex<Option<Minted>>,
    minting: tokio::sync::Mutex<()>,
}

/// An installation token.
#[derive(Clone, Debug)]
struct Minted {
    token: SecretString,
    /// Of the App's identity and key: another one means another token.
    made_from: [u8; 32],
    replace_at: Instant,
    ends_at: Instant,
}

/// Who the App says it is.
struct Identity {
    issuer: String,
    installation: u64,
    key: SecretString,
}

#[derive(Serialize)]
struct Claims<'a> {
    iat: i64,
    exp: i64,
    iss: &'a str,
}

#[derive(Deserialize)]
struct InstallationToken {
    token: SecretString,
    #[serde(default)]
    expires_at: Option<Timestamp>,
}

impl Authority {
    /// Of a personal access token.
    pub(super) fn token(credential: CredentialRef, credentials: Credentials) -> Self {
        Self {
            credential,
            credentials,
            app: None,
        }
    }

    /// Of an App; the installation may be named by the Secret instead.
    pub(super) fn app(
        credential: CredentialRef,
        credentials: Credentials,
        installation: Option<u64>,
    ) -> Self {
        Self {
            credential,
            credentials,
            app: Some(App {
                installation,
                minted: Mutex::default(),
                minting: tokio::sync::Mutex::default(),
            }),
        }
    }

    /// What a request is authorized with now; may cost one request of the job's.
    pub(super) async fn authorization(
        &self,
        http: &Http,
        rest: &Url,
        job: &Job<'_>,
    ) -> Result<Authorization, ForgeError> {
        let Some(app) = &self.app else {
            let (all, one) = (&self.credentials, &self.credential);
            return access::authorization(all, one, "Bearer", http.place());
        };
        let identity = self.identity(app, http)?;
        let token = self
            .installation_token(app, &identity, http, rest, job)
            .await?;
        Authorization::new("Bearer", &token).ok_or_else(|| self.unusable_token())
    }

    /// GitHub rejected this authorization. Gives back whether another one can be had.
    pub(super) fn reject(&self, rejected: &Authorization) -> bool {
        let Some(app) = &self.app else {
            return false;
        };
        let mut minted = app.minted();
        if minted
            .as_ref()
            .is_some_and(|minted| rejected.is_of(&minted.token))
        {
            *minted = None;
        }
        true
    }

    /// Namespace and name of the Secret, for texts.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.credential.namespace, self.credential.name)
    }

    fn secret(&self, http: &Http) -> Result<std::sync::Arc<Secret>, ForgeError> {
        self.credentials
            .get(&self.credential)
            .ok_or_else(|| self.missing(http, "does not exist or cannot be read"))
    }

    fn missing(&self, http: &Http, what: &str) -> ForgeError {
        let detail = format!(
            "the Secret {} {what}; it is needed for {}",
            self.name(),
            http.place()
        );
        failed(ErrorType::Unauthorized, "CredentialMissing", detail)
    }

    fn unusable_token(&self) -> ForgeError {
        let detail = format!(
            "the token of the Secret {} holds characters that no token has",
            self.name()
        );
        failed(ErrorType::Unauthorized, "CredentialRejected", detail)
    }

    fn identity(&self, app: &App, http: &Http) -> Result<Identity, ForgeError> {
        let secret = self.secret(http)?;
        let text = |key: &str| {
            secret
                .get(key)
                .map(|value| value.expose_secret().to_owned())
        };
        let issuer = text("app-id")
            .or_else(|| text("client-id"))
            .filter(|issuer| !issuer.is_empty())
            .ok_or_else(|| self.missing(http, "holds neither app-id nor client-id"))?;
        let key = secret
            .get("private-key.pem")
            .ok_or_else(|| self.missing(http, "holds no private-key.pem"))?;
        let installation = match (app.installation, text("installation-id")) {
            (Some(id), _) => id,
            (None, Some(text)) => text
                .parse()
                .map_err(|_| self.missing(http, "holds an installation-id that is no number"))?,
            (None, None) => {
                let what = "holds no installation-id, and the route no provider.installationID";
                return Err(self.missing(http, what));
            }
        };
        Ok(Identity {
            issuer,
            installation,
            key: key.clone(),
        })
    }

    async fn installation_token(
        &self,
        app: &App,
        identity: &Identity,
        http: &Http,
        rest: &Url,
        job: &Job<'_>,
    ) -> Result<SecretString, ForgeError> {
        let made_from = identity.fingerprint();
        let known = || {
            let minted = app.minted().clone();
            minted.filter(|minted| minted.made_from == made_from)
        };
        let fresh = |minted: &Minted| minted.replace_at > Instant::now();
        if let Some(minted) = known().filter(fresh) {
            return Ok(minted.token);
        }
        let _only_one = app.minting.lock().await;
        let old = known();
        if let Some(minted) = old.clone().filter(fresh) {
            return Ok(minted.token);
        }
        match self.mint(identity, http, rest, job).await {
            Ok(minted) => {
                let token = minted.token.clone();
                *app.minted() = Some(Minted {
                    made_from,
                    ..minted
                });
                info!(
                    secret = self.name(),
                    installation = identity.installation,
                    "minted an installation token"
                );
                Ok(token)
            }
            // An early replacement may fail; the old one is good for some minutes.
            Err(error) => match old.filter(|old| old.ends_at > Instant::now()) {
                Some(old) => {
                    warn!(secret = self.name(), %error, "cannot replace the installation token yet");
                    Ok(old.token)
                }
                None => Err(error),
            },
        }
    }

    async fn mint(
        &self,
        identity: &Identity,
        http: &Http,
        rest: &Url,
        job: &Job<'_>,
    ) -> Result<Minted, ForgeError> {
        let proof = identity.proof().ok_or_else(|| {
            let detail = format!(
                "private-key.pem of the Secret {} is no RSA private key in PEM; take the file that GitHub gave for the App",
                self.name()
            );
            failed(ErrorType::Unauthorized, "CredentialRejected", detail)
        })?;
        let auth = Authorization::new("Bearer", &proof).ok_or_else(|| self.unusable_token())?;
        let path = format!("app/installations/{}/access_tokens", identity.installation);
        let call = Call {
            operation: Operation::Authorize,
            method: Method::POST,
            url: rest.join(&path).unwrap_or_else(|_| rest.clone()),
            body: Some(json!({})),
        };
        let reply = http
            .send(job, &auth, call)
            .await
            .map_err(|error| self.rejected(error))?;
        if !reply.status.is_success() {
            return Err(self.refused(identity, &reply));
        }
        let minted: InstallationToken = reply.json()?;
        let now = reply.date().unwrap_or_else(Timestamp::now);
        let life = minted
            .expires_at
            .and_then(|end| Duration::try_from(end.duration_since(now)).ok())
            .unwrap_or(SHORTEST_LIFE)
            .max(SHORTEST_LIFE);
        let early = EARLY.mul_f64(1.0 + rand::random::<f64>());
        Ok(Minted {
            token: minted.token,
            made_from: [0; 32],
            replace_at: Instant::now() + life.saturating_sub(early.min(life / 2)),
            ends_at: Instant::now() + life,
        })
    }

    fn rejected(&self, error: ForgeError) -> ForgeError {
        match error {
            ForgeError::Failed(error) if error.reason == "CredentialRejected" => {
                let detail = format!(
                    "GitHub does not take the App's proof: app-id (or client-id) and private-key.pem of the Secret {} do not \
                    belong together, or this machine's clock is wrong: {}",
                    self.name(),
                    error.detail
                );
                failed(ErrorType::Unauthorized, "CredentialRejected", detail)
            }
            other => other,
        }
    }

    fn refused(&self, identity: &Identity, reply: &super::super::http::Reply) -> ForgeError {
        let id = identity.installation;
        match reply.status.as_u16() {
            403 if reply.says("suspended") => ForgeError::parked(
                ErrorType::Unauthorized,
                "InstallationSuspended",
                format!(
                    "the installation {id} of the App is suspended{}; unsuspend it",
                    reply.said()
                ),
            ),
            404 => {
                let detail = format!(
                    "the App of the Secret {} has no installation {id}; correct installation-id, or install the App",
                    self.name()
                );
                failed(ErrorType::Unauthorized, "InstallationNotFound", detail)
            }
            _ => reply.error(),
        }
    }
}

impl App {
    fn minted(&self) -> MutexGuard<'_, Option<Minted>> {
        self.minted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Identity {
    fn fingerprint(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for part in [&self.issuer, &self.installation.to_string()] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part.as_bytes());
        }
        hasher.update(self.key.expose_secret().as_bytes());
        hasher.finalize().into()
    }

    /// The App's own proof, signed with its key; `None` if that is no key.
    fn proof(&self) -> Option<SecretString> {
        let key = EncodingKey::from_rsa_pem(self.key.expose_secret().as_bytes()).ok()?;
        let now = Timestamp::now().as_second();
        let claims = Claims {
            iat: now - BACKDATED,
            exp: now + PROOF_LIFE,
            iss: &self.issuer,
        };
        let proof = jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &key).ok()?;
        Some(proof.into())
    }
}
