//! Secrets that routes name, as they are now: in memory only, never logged, never stored.
//!
//! [`crate::routes`] fills a [`Credentials`] from Secret objects or files and replaces it when they change; a forge reads
//! it at each attempt, so that a rotated token needs no restart. `Debug` shows names, never values.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arc_swap::ArcSwap;
use secrecy::SecretString;

use crate::change::CredentialRef;

/// The keys of a Secret that may hold a token, in the order in which they are looked at.
pub(crate) const TOKEN_KEYS: [&str; 3] = ["token", "github-token", "GITHUB_TOKEN"];

/// The values of one Secret, by key.
#[derive(Clone, Debug, Default)]
pub struct Secret {
    values: BTreeMap<String, SecretString>,
}

impl Secret {
    /// A Secret with these values; white space around a value (the newline at the end of a file) is no part of it.
    pub fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let values = values
            .into_iter()
            .map(|(key, value)| (key, SecretString::from(value.trim().to_owned())))
            .collect();
        Self { values }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&SecretString> {
        self.values.get(key)
    }

    /// The access token, under any of the names that are in use for it.
    pub fn token(&self) -> Option<&SecretString> {
        TOKEN_KEYS.iter().find_map(|key| self.get(key))
    }
}

/// All Secrets that are known now; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    secrets: Arc<ArcSwap<HashMap<CredentialRef, Arc<Secret>>>>,
}

impl Credentials {
    /// The Secret of this name, as it is now.
    pub fn get(&self, name: &CredentialRef) -> Option<Arc<Secret>> {
        self.secrets.load().get(name).cloned()
    }

    /// Takes over what is there now; what is not named is forgotten.
    pub fn replace(&self, secrets: HashMap<CredentialRef, Arc<Secret>>) {
        self.secrets.store(Arc::new(secrets));
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_token_is_found_under_each_of_its_names_and_never_shown() {
        for key in TOKEN_KEYS {
            let secret = Secret::new([(key.to_owned(), "s3cret\n".to_owned())]);
            assert_eq!(secret.token().unwrap().expose_secret(), "s3cret");
            assert!(!format!("{secret:?}").contains("s3cret"));
        }
        assert!(
            Secret::new([("password".to_owned(), "x".to_owned())])
                .token()
                .is_none()
        );
    }
}
