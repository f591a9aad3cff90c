//! What the agent keeps of its identity, and when a certificate is renewed: plain values, no I/O.
//!
//! A new certificate is a candidate until a session was opened with it; the old one stays until then.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use nabu_common::tls::TlsCredentials;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes that are base64 in JSON.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Some of them are keys.
        write!(f, "[{} bytes]", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text).map_err(serde::de::Error::custom)?;
        Ok(Self(bytes))
    }
}

/// A key with its certificate. Times are the hub's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Certified {
    /// PKCS #8, DER.
    pub(super) key: Bytes,
    /// DER, the agent's own certificate first.
    pub(super) chain: Vec<Bytes>,
    pub(super) not_after: Timestamp,
    pub(super) renew_after: Timestamp,
    /// The authority that certified when it was made: the first of the trusted ones then.
    pub(super) authority: Option<Bytes>,
}

/// Everything that is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Kept {
    /// The key that an enrolment was begun with: asked again after a crash, the hub takes the token for this key only.
    pub(super) enrolling_key: Option<Bytes>,
    /// SHA-256 of the token that the present certificate came from, in hex.
    pub(super) used_token: Option<String>,
    /// The certificate that sessions were opened with.
    pub(super) current: Option<Certified>,
    /// The next one.
    pub(super) candidate: Option<Certified>,
    /// The authorities that the hub may be certified by (DER), the one that certifies now first.
    pub(super) authorities: Vec<Bytes>,
}

impl Kept {
    /// The certificate to use: the newest.
    pub(super) fn newest(&self) -> Option<&Certified> {
        self.candidate.as_ref().or(self.current.as_ref())
    }

    /// A session was opened with the candidate; `true` if there was one.
    pub(super) fn confirm(&mut self) -> bool {
        match self.candidate.take() {
            Some(candidate) => {
                self.current = Some(candidate);
                true
            }
            None => false,
        }
    }

    /// A session was opened with the old certificate; `true` if a candidate is given up by that.
    pub(super) fn give_up_candidate(&mut self) -> bool {
        if self.current.is_none() {
            return false;
        }
        self.candidate.take().is_some()
    }

    /// Whether another authority than that of our certificate certifies now. Our own may be about to go.
    pub(super) fn authority_has_changed(&self) -> bool {
        let used = self.newest().and_then(|used| used.authority.as_ref());
        used.is_some() && used != self.authorities.first()
    }

    /// What to show and to trust, with the newest certificate or with the one before it.
    pub(super) fn credentials(&self, with_old: bool) -> Option<TlsCredentials> {
        let old = self.current.as_ref().filter(|_| with_old);
        let used = old.or_else(|| self.newest())?;
        let der = |bytes: &Bytes| CertificateDer::from(bytes.0.clone());
        Some(TlsCredentials {
            roots: self.authorities.iter().map(der).collect(),
            chain: used.chain.iter().map(der).collect(),
            key: PrivateKeyDer::from(PrivatePkcs8KeyDer::from(used.key.0.clone())),
        })
    }
}

/// When to ask for the next certificate: at `renew_after`, or up to a quarter of what is left then later, so that a fleet
/// does not ask at one time. `chance` is a random number from 0 to 1.
pub(super) fn renewal_wait(certified: &Certified, hub_now: Timestamp, chance: f64) -> Duration {
    let left = certified.not_after.duration_since(certified.renew_after);
    let jitter = positive(left).mul_f64(chance.clamp(0.0, 1.0) / 4.0);
    let wait = positive(certified.renew_after.duration_since(hub_now));
    wait + jitter
}

/// How long to wait before asking again after a refusal.
pub(super) fn retry_wait(certified: &Certified, hub_now: Timestamp) -> Duration {
    let left = positive(certified.not_after.duration_since(hub_now));
    (left / 10).clamp(Duration::from_secs(1), Duration::from_mins(30))
}

fn positive(span: SignedDuration) -> Duration {
    Duration::try_from(span).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn certified(mark: u8) -> Certified {
        Certified {
            key: Bytes(vec![mark]),
            chain: vec![Bytes(vec![mark])],
            not_after: at(2400),
            renew_after: at(1600),
            authority: Some(Bytes(vec![9])),
        }
    }

    #[test]
    fn a_certificate_of_another_authority_than_the_one_that_certifies_is_noticed() {
        let mut kept = Kept {
            current: Some(certified(1)),
            authorities: vec![Bytes(vec![9]), Bytes(vec![8])],
            ..Kept::default()
        };
        assert!(!kept.authority_has_changed());
        kept.authorities.reverse();
        assert!(kept.authority_has_changed(), "however often it is asked");
        assert!(kept.authority_has_changed());
    }

    #[test]
    fn the_old_certificate_stays_until_the_new_one_works() {
        let mut kept = Kept {
            current: Some(certified(1)),
            candidate: Some(certified(2)),
            ..Kept::default()
        };
        assert_eq!(kept.newest(), Some(&certified(2)));
        let mut failed = kept.clone();
        assert!(failed.give_up_candidate());
        assert_eq!(failed.newest(), Some(&certified(1)));
        assert!(!failed.give_up_candidate());
        assert!(kept.confirm());
        assert_eq!(
            (kept.newest(), kept.candidate.as_ref()),
            (Some(&certified(2)), None)
        );
        assert!(!kept.confirm());
    }

    #[test]
    fn what_is_kept_comes_back_and_keys_are_not_shown() {
        let kept = Kept {
            enrolling_key: Some(Bytes(b"secret".to_vec())),
            current: Some(certified(1)),
            authorities: vec![Bytes(vec![9])],
            ..Kept::default()
        };
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<Kept>(&text).unwrap(), kept);
        assert!(!format!("{kept:?}").contains("secret"));
        assert_eq!(serde_json::from_str::<Kept>("{}").unwrap(), Kept::default());
    }

    #[test]
    fn renewal_is_due_at_two_thirds_or_a_little_later() {
        let wait = |second, chance| renewal_wait(&certified(1), at(second), chance).as_secs();
        assert_eq!(wait(0, 0.0), 1600);
        assert_eq!(wait(0, 1.0), 1800);
        assert_eq!(wait(5000, 0.0), 0);
        assert_eq!(retry_wait(&certified(1), at(1600)), Duration::from_secs(80));
        assert_eq!(retry_wait(&certified(1), at(9000)), Duration::from_secs(1));
    }
}
