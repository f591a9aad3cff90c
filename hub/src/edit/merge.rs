//! JSON Merge Patch (RFC 7396), as JSON or YAML: mappings are merged, `null` removes, everything else replaces.

use indexmap::IndexMap;

use super::plain::{self, Plain};

/// Reads a patch; says what is wrong with one.
pub(super) fn parse(text: &str) -> Result<Plain, String> {
    let mut documents = plain::yaml(text)
        .map_err(|error| format!("is no merge patch (RFC 7396) in JSON or YAML: {error}"))?;
    let patch = documents.pop().filter(|_| documents.is_empty());
    match patch {
        Some(patch) if patch.is_too_deep() => Err("is nested too deep".to_owned()),
        Some(Plain::Map(map)) if map.contains_key("<<") => Err("has a merge key (`<<`)".to_owned()),
        Some(patch @ Plain::Map(_)) => Ok(patch),
        _ => Err("is no merge patch (RFC 7396): it must be one mapping".to_owned()),
    }
}

/// Applies a patch.
pub(super) fn apply(target: &mut Plain, patch: &Plain) {
    let Plain::Map(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !matches!(target, Plain::Map(_)) {
        *target = Plain::Map(IndexMap::new());
    }
    let Plain::Map(target) = target else { return };
    for (key, value) in patch {
        if matches!(value, Plain::Null) {
            target.shift_remove(key);
        } else {
            apply(target.entry(key.clone()).or_insert(Plain::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 7396, appendix A, whose patch is a mapping.
    #[test]
    fn it_does_as_the_rfc_says() {
        for (document, patch, wanted) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (
                r#"{"a":{"b":"c"}}"#,
                r#"{"a":{"b":"d","c":null}}"#,
                r#"{"a":{"b":"d"}}"#,
            ),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            let mut document = plain::json(document).unwrap();
            apply(&mut document, &parse(patch).unwrap());
            assert_eq!(document, plain::json(wanted).unwrap(), "{patch}");
        }
    }

    #[test]
    fn a_patch_that_is_no_mapping_is_refused() {
        for patch in [
            "",
            "[]",
            "x",
            "a: 1\n---\nb: 2\n",
            "a: [",
            "<<: {a: 1}",
            &"{a: ".repeat(80),
        ] {
            assert!(parse(patch).is_err(), "{patch}");
        }
    }
}
