//! Names that must not be mixed up, parsed once at the edge and valid from there on.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A text that is not the id it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {what}: {rule}")]
pub struct InvalidId {
    /// What it should have been.
    what: &'static str,
    /// What it was, shortened.
    text: String,
    /// What a valid one looks like.
    rule: &'static str,
}

/// Longer texts are cut in error messages.
const SHOWN_CHARACTERS: usize = 80;

impl InvalidId {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self { what, text: text.chars().take(SHOWN_CHARACTERS).collect(), rule }
    }
}

macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidId;

            fn try_from(text: &str) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.as_str().to_owned()
            }
        }
    };
}

/// The name under which the hub knows a cluster: a DNS-1123 label of at most 63 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ClusterId(Arc<str>);

text_id!(ClusterId);

impl FromStr for ClusterId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let inner = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let bytes = text.as_bytes();
        let valid = (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| inner(byte) || *byte == b'-')
            && bytes.first().is_some_and(inner)
            && bytes.last().is_some_and(inner);
        if valid {
            Ok(Self(text.into()))
        } else {
            let rule = "use 1 to 63 of a-z, 0-9 and '-', with a letter or digit at both ends, for example prod-eu";
            Err(InvalidId::new("cluster id", text, rule))
        }
    }
}

/// `metadata.uid` of an EventResponse: unique over the lifetime of its cluster.
///
/// Kubernetes gives UUIDs; any 1 to 64 of letters, digits and `-` are taken, because the id becomes part of branch
/// names and nothing else is asked of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ResponseUid(Arc<str>);

text_id!(ResponseUid);

impl FromStr for ResponseUid {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = text.as_bytes();
        let valid = (1..=64).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
            && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric);
        if valid {
            Ok(Self(text.into()))
        } else {
            let rule = "use metadata.uid as the API server gave it, for example 0b5f7c1e-3c1a-4b8e-9d55-6f1f3f0f8a10";
            Err(InvalidId::new("UID", text, rule))
        }
    }
}

/// The key of a response: exactly one pull request belongs to it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ResponseKey {
    /// The cluster, from the agent's certificate.
    pub cluster: ClusterId,
    /// The EventResponse.
    pub uid: ResponseUid,
}

impl fmt::Display for ResponseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cluster, self.uid)
    }
}

impl fmt::Debug for ResponseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Grows with every change of a response's outward status; 0 is before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Revision(pub u64);

impl Revision {
    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_cluster_id_is_a_dns_label() {
        for valid in ["a", "prod-eu", "0", &"x".repeat(63)] {
            assert_eq!(valid.parse::<ClusterId>().unwrap().as_str(), valid);
        }
        for invalid in ["", "-a", "a-", "A", "a.b", "a_b", "a/b", "ä", &"x".repeat(64)] {
            let error = invalid.parse::<ClusterId>().unwrap_err().to_string();
            assert!(error.contains("for example prod-eu"), "{error}");
        }
    }

    #[test]
    fn a_uid_cannot_carry_a_path_or_a_space() {
        for invalid in ["", "a/b", "..", "a b", "a\n", "-a", "a-", &"x".repeat(65)] {
            assert!(invalid.parse::<ResponseUid>().is_err(), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn what_parses_prints_as_it_was(text in "\\PC{0,70}") {
            if let Ok(id) = text.parse::<ClusterId>() {
                prop_assert_eq!(id.to_string(), text.clone());
            }
            if let Ok(uid) = text.parse::<ResponseUid>() {
                prop_assert_eq!(uid.to_string(), text);
            }
        }

        #[test]
        fn ids_survive_json(text in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?") {
            let id: ClusterId = text.parse().unwrap();
            let json = serde_json::to_string(&id).unwrap();
            prop_assert_eq!(serde_json::from_str::<ClusterId>(&json).unwrap(), id);
        }
    }
}
