//! Who asks: tokens of people, a GitHub App with its key, and the tokens of its installation.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, ensure};
use aws_lc_rs::encoding::Pkcs8V1Der;
use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{
    KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, UnparsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{Timestamp, ToSpan as _};
use serde_json::{Value, json};

use super::server::lock;

/// Clocks that differ by so much are no error; so GitHub's answers to a JWT from the future suggest.
const CLOCK_SKEW_SECONDS: i64 = 5;

/// The longest life of a JWT, in seconds.
const LONGEST_JWT_SECONDS: i64 = 600;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// A person with a token.
    User {
        /// Login.
        login: String,
    },
    /// An installation of the App.
    Installation {
        /// Login of the App's bot.
        login: String,
    },
    /// The App itself, with a JWT.
    App,
}

impl Caller {
    /// The account that acts; the App itself has none.
    pub(super) fn login(&self) -> Option<&str> {
        match self {
            Self::User { login } | Self::Installation { login } => Some(login),
            Self::App => None,
        }
    }

    /// What a caller without the right is told.
    pub(super) fn refusal(&self) -> &'static str {
        match self {
            Self::User { .. } => "Resource not accessible by personal access token",
            Self::Installation { .. } | Self::App => "Resource not accessible by integration",
        }
    }
}

/// A GitHub App with one installation.
#[derive(Clone, Debug)]
pub struct App {
    /// Number of the App.
    pub id: u64,
    /// Its client id.
    pub client_id: String,
    /// Its name in addresses; the bot is `<slug>[bot]`.
    pub slug: String,
    /// Number of the installation.
    pub installation_id: u64,
    /// The key, in PEM with `RSA PRIVATE KEY`, as GitHub hands it out.
    pub private_key: String,
    public_key: Vec<u8>,
}

impl App {
    /// An App with a new key.
    pub fn generate(id: u64, slug: &str, installation_id: u64) -> Result<Self> {
        let key = KeyPair::generate(KeySize::Rsa2048)?;
        let der = aws_lc_rs::encoding::AsDer::<Pkcs8V1Der<'_>>::as_der(&key)?;
        Ok(Self {
            id,
            client_id: "Iv23liNabuTestForge1".to_owned(),
            slug: slug.to_owned(),
            installation_id,
            private_key: pem(pkcs1(der.as_ref())?),
            public_key: key.public_key().as_ref().to_vec(),
        })
    }

    /// Login of the App's bot.
    pub fn bot(&self) -> String {
        format!("{}[bot]", self.slug)
    }

    /// A JWT as a client makes it, for tests of the forge.
    pub fn jwt(
        &self,
        issuer: &Value,
        issued_at: Timestamp,
        expires_at: Timestamp,
    ) -> Result<String> {
        let header = json!({ "alg": "RS256", "typ": "JWT" });
        let claims =
            json!({ "iss": issuer, "iat": issued_at.as_second(), "exp": expires_at.as_second() });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&header), part(&claims));
        let body: String = self
            .private_key
            .lines()
            .filter(|line| !line.contains('-'))
            .collect();
        let key = KeyPair::from_der(&STANDARD.decode(body)?)?;
        let mut signature = vec![0; key.public_modulus_len()];
        key.sign(
            &RSA_PKCS1_SHA256,
            &SystemRandom::new(),
            text.as_bytes(),
            &mut signature,
        )?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Checks a JWT; the error is what GitHub says.
    fn check(&self, token: &str, now: Timestamp) -> Result<(), &'static str> {
        const UNREADABLE: &str = "A JSON web token could not be decoded";
        let (text, signature) = token.rsplit_once('.').ok_or(UNREADABLE)?;
        let (header, claims) = text.split_once('.').ok_or(UNREADABLE)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| UNREADABLE);
        let object =
            |part: &str| serde_json::from_slice::<Value>(&decode(part)?).map_err(|_| UNREADABLE);
        if object(header)?["alg"] != "RS256" {
            return Err(UNREADABLE);
        }
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public_key)
            .verify(text.as_bytes(), &decode(signature)?)
            .map_err(|_| UNREADABLE)?;
        let claims = object(claims)?;
        let issuer = &claims["iss"];
        if issuer.as_u64() != Some(self.id)
            && issuer.as_str() != Some(&self.id.to_string())
            && issuer.as_str() != Some(&self.client_id)
        {
            return Err("'Issuer' claim ('iss') must be an Integer");
        }
        let now = now.as_second();
        let expires = claims["exp"].as_i64().ok_or(
            "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
        )?;
        if expires <= now {
            return Err(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            );
        }
        if expires > now + LONGEST_JWT_SECONDS + CLOCK_SKEW_SECONDS {
            return Err("'Expiration time' claim ('exp') is too far in the future");
        }
        match claims["iat"].as_i64() {
            Some(time) if time <= now + CLOCK_SKEW_SECONDS => Ok(()),
            _ => Err(
                "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
            ),
        }
    }
}

/// A token of the installation.
#[derive(Clone, Debug)]
pub(super) struct InstallationToken {
    /// The token.
    pub token: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// Everyone who may come in.
#[derive(Debug)]
pub(super) struct Credentials {
    /// Tokens of people with their logins.
    users: Mutex<Vec<(String, String)>>,
    /// The App.
    pub app: App,
    minted: Mutex<Vec<InstallationToken>>,
    mints: AtomicU32,
}

impl Credentials {
    /// An App, and nobody else.
    pub(super) fn new(app: App) -> Self {
        Self {
            users: Mutex::default(),
            app,
            minted: Mutex::default(),
            mints: AtomicU32::new(0),
        }
    }

    /// A new fine-grained token of a person.
    pub(super) fn add_user(&self, login: &str) -> Result<String> {
        let token = format!("github_pat_{}_{}", random(22)?, random(59)?);
        lock(&self.users).push((token.clone(), login.to_owned()));
        Ok(token)
    }

    /// A token is not known any more.
    pub(super) fn revoke(&self, token: &str) {
        lock(&self.users).retain(|(known, _)| known != token);
        lock(&self.minted).retain(|known| known.token != token);
    }

    /// A new token of the installation; long ones have the form that GitHub announced for stateless tokens.
    pub(super) fn mint(&self, long: bool) -> Result<InstallationToken> {
        self.mints.fetch_add(1, Ordering::Relaxed);
        let token = InstallationToken {
            token: format!("ghs_{}", random(if long { 500 } else { 36 })?),
            expires_at: Timestamp::from_second(Timestamp::now().as_second())? + 1.hour(),
        };
        lock(&self.minted).push(token.clone());
        Ok(token)
    }

    /// How many tokens of the installation were made.
    pub(super) fn mints(&self) -> u32 {
        self.mints.load(Ordering::Relaxed)
    }

    /// Every token of the installation ends now.
    pub(super) fn expire_installation_tokens(&self) {
        lock(&self.minted).clear();
    }

    /// Who sends this `Authorization` header; the error is what GitHub says.
    pub(super) fn caller(&self, authorization: Option<&str>) -> Result<Caller, String> {
        const BAD: &str = "Bad credentials";
        let header = authorization.ok_or("Requires authentication")?;
        let (scheme, token) = header.split_once(' ').ok_or(BAD)?;
        let token = token.trim();
        if !scheme.eq_ignore_ascii_case("bearer") && !scheme.eq_ignore_ascii_case("token") {
            return Err(BAD.to_owned());
        }
        if token.matches('.').count() == 2 {
            self.app.check(token, Timestamp::now())?;
            return Ok(Caller::App);
        }
        let users = lock(&self.users);
        if let Some((_, login)) = users.iter().find(|(known, _)| known == token) {
            let login = login.clone();
            return Ok(Caller::User { login });
        }
        let now = Timestamp::now();
        let mut minted = lock(&self.minted).clone().into_iter();
        if minted.any(|known| known.token == token && known.expires_at > now) {
            let login = self.app.bot();
            return Ok(Caller::Installation { login });
        }
        Err(BAD.to_owned())
    }
}

/// The `RSAPrivateKey` inside of a `PrivateKeyInfo`: what is in its only OCTET STRING, after the 26 bytes that are the
/// same for every key of 2048 bits.
fn pkcs1(pkcs8: &[u8]) -> Result<&[u8]> {
    const HEADER: usize = 26;
    let key = pkcs8.get(HEADER..).context("no key")?;
    let (declared, start) = (key.get(2..4).context("no key")?, &key[..2]);
    let length = usize::from(declared[0]) * 256 + usize::from(declared[1]);
    ensure!(
        start == [0x30, 0x82] && key.len() == length + 4,
        "no key of 2048 bits"
    );
    Ok(key)
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = (0..text.len())
        .step_by(64)
        .filter_map(|at| text.get(at..text.len().min(at + 64)))
        .collect();
    let body = lines.join("\n");
    format!("-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----\n")
}

/// Letters and digits.
fn random(length: usize) -> Result<String> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let mut bytes = vec![0; length];
    SystemRandom::new().fill(&mut bytes)?;
    let letter = |byte: u8| char::from(ALPHABET[usize::from(byte) % ALPHABET.len()]);
    Ok(bytes.into_iter().map(letter).collect())
}
