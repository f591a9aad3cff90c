//! Whether a webhook comes from somebody who knows a secret of ours: pure, over the raw body, in constant time.
//!
//! A [`Proof`] is what the headers claim, read before the body is; [`Proof::holds`] compares it with what each secret
//! would have made of the body. All secrets are tried, whichever of them fits.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac as _};
use http::HeaderMap;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use super::ForgeKind;

/// How far a signed timestamp may be from now, in both directions.
pub(super) const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);
/// What a Standard Webhooks secret begins with; its key follows in base64.
const STANDARD_PREFIX: &str = "whsec_";
/// More signatures in one `webhook-signature` are not looked at; there are two while a sender changes its secret.
const MOST_SIGNATURES: usize = 8;
/// A longer `webhook-id` is malformed: GitLab sends a UUID.
const LONGEST_ID: usize = 256;

type Tag = [u8; 32];

/// What the headers of a webhook claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// HMAC-SHA256 over the body.
    Body(Tag),
    /// SHA-256 of the secret itself, which GitLab sends as it is: hashed so that its length does not show in the time
    /// that the comparison takes.
    Token(Tag),
    /// HMAC-SHA256 over id, time and body, by Standard Webhooks.
    Standard {
        /// `<id>.<timestamp>.`, which is signed before the body.
        before_body: Vec<u8>,
        /// When it was signed.
        at: Timestamp,
        /// One of them has to fit.
        tags: Vec<Tag>,
    },
}

impl Proof {
    /// Reads the headers of a forge's scheme; `None` if one is missing, twice there or malformed. Where a forge sends
    /// several proofs, the strongest that is there counts, and another does not make good for it.
    pub(super) fn from_headers(forge: ForgeKind, headers: &HeaderMap) -> Option<Self> {
        match forge {
            // docs.github.com/webhooks/using-webhooks/validating-webhook-deliveries: `sha256=` and hex. The older
            // X-Hub-Signature (SHA-1) is not looked at.
            ForgeKind::GitHub => prefixed(headers).map(Self::Body),
            // Gitea's services/webhook/deliver.go and forgejo.org/docs/latest/user/webhooks: hex without prefix, under
            // both names, and as GitHub does beside. It is empty for a webhook without secret.
            ForgeKind::Forgejo => ["x-forgejo-signature", "x-gitea-signature"]
                .iter()
                .find(|name| headers.contains_key(**name))
                .map_or_else(|| prefixed(headers), |name| tag_of(only(headers, name)?))
                .map(Self::Body),
            // docs.gitlab.com/user/project/integrations/webhooks: a signing token signs by Standard Webhooks; the older
            // secret token is sent in the clear.
            ForgeKind::GitLab if headers.contains_key("webhook-signature") => standard(headers),
            ForgeKind::GitLab => {
                let token = only(headers, "x-gitlab-token")?;
                (!token.is_empty()).then(|| Self::Token(Sha256::digest(token).into()))
            }
        }
    }

    /// Whether one of the secrets made the proof for this body, and not too long ago.
    pub(super) fn holds(&self, body: &[u8], secrets: &[SecretString], now: Timestamp) -> bool {
        if let Self::Standard { at, .. } = self
            && now.duration_since(*at).abs() > TOLERANCE
        {
            return false;
        }
        let mut holds = Choice::from(0);
        for secret in secrets {
            holds |= self.is_made_with(secret.expose_secret(), body);
        }
        holds.into()
    }

    fn is_made_with(&self, secret: &str, body: &[u8]) -> Choice {
        match self {
            // Anybody can make what an empty secret makes.
            _ if secret.is_empty() => Choice::from(0),
            Self::Body(tag) => hmac(secret.as_bytes(), &[body]).ct_eq(tag),
            Self::Token(tag) if !secret.starts_with(STANDARD_PREFIX) => {
                Tag::from(Sha256::digest(secret)).ct_eq(tag)
            }
            Self::Standard {
                before_body, tags, ..
            } if let Some(key) = standard_key(secret) => {
                let made = hmac(&key, &[before_body, body]);
                tags.iter()
                    .fold(Choice::from(0), |any, tag| any | made.ct_eq(tag))
            }
            Self::Token(_) | Self::Standard { .. } => Choice::from(0),
        }
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Tag {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
        unreachable!("HMAC takes keys of every length")
    };
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn prefixed(headers: &HeaderMap) -> Option<Tag> {
    tag_of(only(headers, "x-hub-signature-256")?.strip_prefix(b"sha256=")?)
}

fn tag_of(hex: &[u8]) -> Option<Tag> {
    let mut tag = Tag::default();
    hex::decode_to_slice(hex, &mut tag).ok()?;
    Some(tag)
}

/// github.com/standard-webhooks/standard-webhooks, spec: `v1,<base64>` entries, separated by spaces, over
/// `<id>.<timestamp>.<body>`. Entries of other versions are left out.
fn standard(headers: &HeaderMap) -> Option<Proof> {
    let text = |name| std::str::from_utf8(only(headers, name)?).ok();
    let (id, timestamp) = (text("webhook-id")?, text("webhook-timestamp")?);
    // A dot in the id would leave open where the id ends.
    if id.is_empty() || id.len() > LONGEST_ID || id.contains('.') {
        return None;
    }
    let seconds = timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let at = Timestamp::from_second(timestamp.parse().ok().filter(|_| seconds)?).ok()?;
    let tags: Vec<Tag> = text("webhook-signature")?
        .split(' ')
        .filter_map(|entry| entry.strip_prefix("v1,"))
        .take(MOST_SIGNATURES)
        .filter_map(|tag| STANDARD.decode(tag).ok()?.try_into().ok())
        .collect();
    (!tags.is_empty()).then(|| Proof::Standard {
        before_body: format!("{id}.{timestamp}.").into_bytes(),
        at,
        tags,
    })
}

fn standard_key(secret: &str) -> Option<Vec<u8>> {
    let key = STANDARD
        .decode(secret.strip_prefix(STANDARD_PREFIX)?)
        .ok()?;
    (!key.is_empty()).then_some(key)
}

/// The value of a header that is there exactly once.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?;
    values.next().is_none().then(|| value.as_bytes())
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
