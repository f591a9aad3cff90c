//! A pin: the authority that somebody must be certified by, named by the digest of its public key.

use std::fmt;
use std::str::FromStr;

use rustls::pki_types::CertificateDer;
use sha2::{Digest as _, Sha256};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const PREFIX: &str = "sha256:";

/// SHA-256 of the `SubjectPublicKeyInfo` of an authority's certificate, as text `sha256:` and 64 hex digits. It stays the
/// same when the certificate is made anew with the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CaPin([u8; 32]);

impl CaPin {
    /// The pin of a certificate; `None` if it cannot be read.
    pub fn of_certificate(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        Some(Self(Sha256::digest(certificate.public_key().raw).into()))
    }
}

impl FromStr for CaPin {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut digest = [0; 32];
        text.strip_prefix(PREFIX)
            .and_then(|digits| hex::decode_to_slice(digits, &mut digest).ok())
            .map(|()| Self(digest))
            .ok_or_else(|| {
                format!("{text:?} is no pin: use sha256: and 64 hex digits, as `nabuctl cluster add` prints it")
            })
    }
}

impl fmt::Display for CaPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", hex::encode(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_of_the_key_and_survives_a_new_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = |name: &str, key: &rcgen::KeyPair| {
            let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.self_signed(key).unwrap().der().clone()
        };
        let pin = CaPin::of_certificate(&certificate("a", &key)).unwrap();
        assert_eq!(CaPin::of_certificate(&certificate("b", &key)), Some(pin));
        let other = rcgen::KeyPair::generate().unwrap();
        assert_ne!(CaPin::of_certificate(&certificate("a", &other)), Some(pin));
        assert_eq!(pin.to_string().parse(), Ok(pin));
    }

    #[test]
    fn what_is_no_pin_is_refused() {
        for text in ["", "sha256:", "sha256:zz", &"0".repeat(64), "sha1:00"] {
            assert!(text.parse::<CaPin>().is_err(), "{text:?}");
        }
    }
}
