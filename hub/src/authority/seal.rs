//! Keeps private keys of authorities unreadable in the database: AES-256-GCM with a key from a file.

use std::path::{Path, PathBuf};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// Why a key cannot be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The file cannot be read.
    #[error("cannot read --ca-encryption-key-file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file holds no key.
    #[error(
        "--ca-encryption-key-file {} must hold 32 bytes in base64; make one with `openssl rand -base64 32`",
        .0.display()
    )]
    NoKey(PathBuf),
    /// The authority was sealed by another key.
    #[error(
        "the authority in the database is encrypted by the key {sealed_by}, and --ca-encryption-key-file has the key \
        {given}; give the file that it was made with, or, to go over to the new key, that one as --ca-old-encryption-key-file \
        as well"
    )]
    OtherKey {
        /// The id of the key that is needed.
        sealed_by: String,
        /// The id of the key that was given.
        given: String,
    },
    /// What is sealed was changed.
    #[error("the authority in the database cannot be decrypted: it was changed")]
    Changed,
}

/// The key that private keys are sealed with.
pub struct SealingKey {
    key: RandomizedNonceKey,
    id: String,
    /// The one before; opens what it has sealed, and seals nothing any more.
    older: Option<Box<SealingKey>>,
}

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SealingKey({})", self.id)
    }
}

impl SealingKey {
    /// Reads the key.
    ///
    /// # Errors
    /// If the file holds none.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let text = std::fs::read_to_string(path).map_err(|source| SealError::Read {
            path: path.to_owned(),
            source,
        })?;
        let bytes = STANDARD.decode(text.trim()).ok();
        bytes
            .and_then(|bytes| Self::new(&bytes))
            .ok_or_else(|| SealError::NoKey(path.to_owned()))
    }

    fn new(bytes: &[u8]) -> Option<Self> {
        let key = RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()?;
        let mut hasher = Sha256::new();
        hasher.update(b"nabu: id of a sealing key\0");
        hasher.update(bytes);
        let id = hex::encode(&hasher.finalize()[..8]);
        let older = None;
        Some(Self { key, id, older })
    }

    /// The same key, which also opens what an older one has sealed.
    #[must_use]
    pub fn after(self, older: Self) -> Self {
        Self {
            older: Some(Box::new(older)),
            ..self
        }
    }

    /// Tells this key from others; says nothing about it.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Seals a secret that belongs to `owner`.
    ///
    /// # Errors
    /// If the random number generator fails.
    pub fn seal(&self, owner: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut text = secret.to_vec();
        let nonce = self
            .key
            .seal_in_place_append_tag(Aad::from(owner.as_bytes()), &mut text)
            .map_err(|_| SealError::Changed)?;
        let mut sealed = nonce.as_ref().to_vec();
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Opens what a key of this id, this one or the one before it, has sealed for `owner`.
    ///
    /// # Errors
    /// If it was another key, or the content was changed.
    pub fn open(&self, owner: &str, sealed_by: &str, sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        if sealed_by != self.id {
            if let Some(older) = self.older.as_ref().filter(|older| older.id == sealed_by) {
                return older.open(owner, sealed_by, sealed);
            }
            return Err(SealError::OtherKey {
                sealed_by: sealed_by.to_owned(),
                given: self.id.clone(),
            });
        }
        let (nonce, text) = sealed
            .split_at_checked(NONCE_LEN)
            .ok_or(SealError::Changed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Changed)?;
        let mut text = text.to_vec();
        let opened = self
            .key
            .open_in_place(nonce, Aad::from(owner.as_bytes()), &mut text)
            .map_err(|_| SealError::Changed)?;
        Ok(opened.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_is_opened_by_its_key_and_for_its_owner_only() {
        let (key, other) = (
            SealingKey::new(&[1; 32]).unwrap(),
            SealingKey::new(&[2; 32]).unwrap(),
        );
        let sealed = key.seal("a", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
        assert_eq!(key.open("a", key.id(), &sealed).unwrap(), b"secret");
        assert!(matches!(
            key.open("b", key.id(), &sealed),
            Err(SealError::Changed)
        ));
        let error = other.open("a", key.id(), &sealed).unwrap_err();
        assert!(error.to_string().contains(key.id()), "{error}");
        let mut changed = sealed.clone();
        changed[NONCE_LEN] ^= 1;
        assert!(key.open("a", key.id(), &changed).is_err());
        assert!(key.open("a", key.id(), &[0; 3]).is_err());
    }

    #[test]
    fn a_key_opens_what_the_one_before_it_has_sealed_and_seals_by_itself() {
        let key = |byte| SealingKey::new(&[byte; 32]).unwrap();
        let sealed = key(1).seal("a", b"secret").unwrap();
        let new = key(2).after(key(1));
        assert_eq!(new.open("a", key(1).id(), &sealed).unwrap(), b"secret");
        let again = new.seal("a", b"secret").unwrap();
        assert_eq!(new.id(), key(2).id());
        assert_eq!(key(2).open("a", new.id(), &again).unwrap(), b"secret");
        let error = new.open("a", key(3).id(), &sealed).unwrap_err();
        assert!(error.to_string().contains(key(3).id()), "{error}");
    }

    #[test]
    fn a_file_without_a_whole_key_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for text in ["", "short", &STANDARD.encode([0; 31])] {
            std::fs::write(&path, text).unwrap();
            let error = SealingKey::from_file(&path).unwrap_err();
            assert!(error.to_string().contains("openssl rand"), "{error}");
        }
        std::fs::write(&path, format!("{}\n", STANDARD.encode([0; 32]))).unwrap();
        assert!(SealingKey::from_file(&path).is_ok());
    }
}
