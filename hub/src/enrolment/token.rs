//! Join tokens: made here, shown once, kept as a hash, and compared without telling by time how close a guess was.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use nabu_common::ids::ClusterId;
use rand::RngCore as _;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

use crate::store::identity::TokenRecord;

/// What every token begins with; a scanner for leaked secrets can look for it.
const PREFIX: &str = "nabu1";

/// A new token: `nabu1.<cluster-id>.<32 random bytes>`.
pub fn generate(cluster: &ClusterId) -> SecretString {
    let mut secret = [0; 32];
    rand::rng().fill_bytes(&mut secret);
    format!("{PREFIX}.{cluster}.{}", URL_SAFE_NO_PAD.encode(secret)).into()
}

/// A name for a token in lists, that says nothing of the token.
pub fn generate_id() -> String {
    let mut id = [0; 6];
    rand::rng().fill_bytes(&mut id);
    hex::encode(id)
}

/// What the store keeps of a token.
pub fn hash(token: &SecretString) -> [u8; 32] {
    Sha256::digest(token.expose_secret().as_bytes()).into()
}

/// What lists say of a token that somebody can join with.
pub const USABLE: &str = "Usable";

/// What lists say of a token.
pub fn state(record: &TokenRecord, now: Timestamp) -> &'static str {
    if record.used.is_some() {
        "Used"
    } else if record.revoked_at.is_some() {
        "Revoked"
    } else if record.token.expires_at <= now {
        "Expired"
    } else {
        USABLE
    }
}

/// The token with this hash, if this key may join with it now. Looks at every one of them to its end.
pub fn find<'t>(
    tokens: &'t [TokenRecord],
    hash: &[u8; 32],
    key: &[u8; 32],
    now: Timestamp,
) -> Option<&'t TokenRecord> {
    let mut found = None;
    for record in tokens {
        let same = record.token.hash.ct_eq(hash);
        let alive = record.token.expires_at > now && record.revoked_at.is_none();
        // Asked again with the same key, the first answer was lost.
        let free = match &record.used {
            None => Choice::from(1),
            Some((_, used_key)) => used_key.ct_eq(key),
        };
        if bool::from(same & free & Choice::from(u8::from(alive))) {
            found = Some(record);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::identity::NewToken;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn record(token: &SecretString) -> TokenRecord {
        TokenRecord {
            token: NewToken {
                id: generate_id(),
                cluster: "prod-eu".parse().unwrap(),
                hash: hash(token),
                created_by: "admin/a".to_owned(),
                created_at: at(0),
                expires_at: at(100),
            },
            revoked_at: None,
            used: None,
        }
    }

    #[test]
    fn a_token_is_long_names_its_cluster_and_is_never_the_same() {
        let cluster = "prod-eu".parse().unwrap();
        let (one, two) = (generate(&cluster), generate(&cluster));
        assert!(one.expose_secret().starts_with("nabu1.prod-eu."));
        assert_eq!(one.expose_secret().len(), "nabu1.prod-eu.".len() + 43);
        assert_ne!(one.expose_secret(), two.expose_secret());
    }

    #[test]
    fn a_token_is_found_until_it_runs_out_is_revoked_or_used_by_another() {
        let cluster = "prod-eu".parse().unwrap();
        let (token, other) = (generate(&cluster), generate(&cluster));
        let (key, other_key) = ([1; 32], [2; 32]);
        let good = record(&token);
        let tokens = |record: TokenRecord| vec![self::record(&other), record, self::record(&other)];
        let finds = |record: TokenRecord, key, now| {
            find(&tokens(record), &hash(&token), key, now).is_some()
        };
        assert!(finds(good.clone(), &key, at(99)));
        assert!(!finds(good.clone(), &key, at(100)));
        let mut revoked = good.clone();
        revoked.revoked_at = Some(at(1));
        assert!(!finds(revoked, &key, at(2)));
        let mut used = good.clone();
        used.used = Some((at(1), key));
        assert!(finds(used.clone(), &key, at(2)), "the answer was lost");
        assert!(!finds(used, &other_key, at(2)));
        assert!(find(&[good], &[0; 32], &key, at(1)).is_none());
    }
}
