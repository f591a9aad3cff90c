//! One form of a JSON value that both sides can hash.

use serde_json::Value;
use sha2::{Digest, Sha256};

/// SHA-256 of the canonical JSON of a value: keys sorted, no white space.
///
/// `serde_json` keeps objects sorted by key unless its feature `preserve_order` is on; a test holds that.
pub fn spec_hash(value: &Value) -> [u8; 32] {
    Sha256::digest(value.to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_keys_does_not_matter() {
        let one: Value = serde_json::from_str(r#"{"b": {"y": 1, "x": 2}, "a": [1, 2]}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"a":[1,2],"b":{"x":2,"y":1}}"#).unwrap();
        assert_eq!(one.to_string(), r#"{"a":[1,2],"b":{"x":2,"y":1}}"#);
        assert_eq!(spec_hash(&one), spec_hash(&other));
    }

    #[test]
    fn another_value_has_another_hash() {
        assert_ne!(
            spec_hash(&serde_json::json!({"a": 1})),
            spec_hash(&serde_json::json!({"a": "1"}))
        );
    }
}
