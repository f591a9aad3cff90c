//! An authority from files: read again when they change.
//!
//! The file of certificates may hold several: the one that the key belongs to certifies, all are trusted. So an authority
//! is replaced without an interruption: first both certificates with the new key, and, when everybody has a certificate of
//! the new one, that alone.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::KeyPair;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use super::signer::{SignError, Signer};
use super::{AuthorityError, Known, Ring};
use crate::store::identity::AuthorityState;

/// The files of an authority, and what they held last.
pub(super) struct AuthorityFiles {
    cert: PathBuf,
    key: PathBuf,
    read: Mutex<Digested>,
}

/// What two files hold, digested.
type Digested = [u8; 32];

/// An authority that is not in force yet.
pub(super) struct Changed {
    pub(super) ring: Ring,
    /// For [`AuthorityFiles::in_force`].
    pub(super) digest: Digested,
}

/// What the files hold.
struct Texts {
    certificates: String,
    key: String,
}

impl Texts {
    fn digest(&self) -> Digested {
        let parts = [&self.certificates, &self.key].map(Sha256::digest);
        Sha256::digest(parts.concat()).into()
    }

    fn ring(&self, revision: u64) -> Result<Ring, AuthorityError> {
        let unreadable = |detail: String| SignError::Authority(detail);
        let certificates = CertificateDer::pem_slice_iter(self.certificates.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unreadable(error.to_string()))?;
        let key = || KeyPair::from_pem(&self.key).map_err(|error| unreadable(error.to_string()));
        let mut wrong = unreadable("there is no certificate".to_owned());
        let mut signer = None;
        for certificate in &certificates {
            match Signer::new(certificate.clone(), key()?) {
                Ok(found) => {
                    signer = Some(found);
                    break;
                }
                Err(error) => wrong = error,
            }
        }
        let signer = signer.ok_or(wrong)?;
        let pin = signer.pin().to_string();
        let own = signer.certificate().clone();
        Ok(Ring {
            state: AuthorityState {
                revision,
                serving: pin.clone(),
                incoming: None,
                issuing: pin,
            },
            known: vec![Known {
                signer: Arc::new(signer),
                created_at: None,
            }],
            others: certificates
                .into_iter()
                .filter(|certificate| *certificate != own)
                .collect(),
        })
    }
}

impl AuthorityFiles {
    pub(super) fn new(cert: PathBuf, key: PathBuf) -> Self {
        Self {
            cert,
            key,
            read: Mutex::default(),
        }
    }

    fn texts(&self) -> Result<Texts, AuthorityError> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).map_err(|source| AuthorityError::File {
                path: path.clone(),
                source,
            })
        };
        Ok(Texts {
            certificates: read(&self.cert)?,
            key: read(&self.key)?,
        })
    }

    /// The authority of the files.
    pub(super) fn ring(&self, revision: u64) -> Result<Ring, AuthorityError> {
        let texts = self.texts()?;
        let ring = texts.ring(revision)?;
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = texts.digest();
        Ok(ring)
    }

    /// The authority of the files if they have changed since one of them was in force.
    pub(super) fn changed(&self, revision: u64) -> Result<Option<Changed>, AuthorityError> {
        let texts = self.texts()?;
        let digest = texts.digest();
        if digest == *self.read.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(None);
        }
        let ring = texts.ring(revision)?;
        Ok(Some(Changed { ring, digest }))
    }

    /// What was read is in force now.
    pub(super) fn in_force(&self, digest: Digested) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = digest;
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn authority() -> (String, String) {
        let domain = "nabu".parse().unwrap();
        let (signer, secret) = Signer::generate(&domain, Timestamp::now()).unwrap();
        let key = KeyPair::try_from(secret).unwrap();
        let certificate = [signer.certificate().clone()];
        let pem = crate::pki::credentials::pem(&certificate);
        (pem, key.serialize_pem())
    }

    fn taken(files: &AuthorityFiles, revision: u64) -> Ring {
        let changed = files.changed(revision).unwrap().unwrap();
        files.in_force(changed.digest);
        changed.ring
    }

    #[test]
    fn the_certificate_of_the_key_certifies_wherever_it_stands_and_all_are_trusted() {
        let ((old, old_key), (new, new_key)) = (authority(), authority());
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("ca.crt"), folder.path().join("ca.key"));
        std::fs::write(&cert, &old).unwrap();
        std::fs::write(&key, &old_key).unwrap();
        let files = AuthorityFiles::new(cert.clone(), key.clone());
        let first = files.ring(1).unwrap();
        assert!(files.changed(2).unwrap().is_none());

        // One file after the other: in between, both fit together.
        std::fs::write(&cert, format!("{old}{new}")).unwrap();
        assert!(files.changed(2).unwrap().is_some());
        let both = taken(&files, 2);
        assert_eq!(both.state.issuing, first.state.issuing);
        assert_eq!(both.others.len(), 1);
        std::fs::write(&key, &new_key).unwrap();
        let turned = taken(&files, 3);
        assert_ne!(turned.state.issuing, first.state.issuing);
        assert_eq!(turned.others, [first.known[0].signer.certificate().clone()]);

        std::fs::write(&cert, &old).unwrap();
        assert!(files.changed(4).is_err(), "they do not fit together");
        std::fs::write(&cert, &new).unwrap();
        let alone = taken(&files, 4);
        assert_eq!(alone.state.issuing, turned.state.issuing);
        assert!(alone.others.is_empty() && alone.state.revision == 4);
        assert!(files.changed(5).unwrap().is_none());
    }
}
