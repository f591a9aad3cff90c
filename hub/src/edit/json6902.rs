//! JSON Patch (RFC 6902): a JSON list of operations, applied one after the other, all or nothing.

use serde::Deserialize;

use super::plain::Plain;
use super::{EditError, MAX_OPERATIONS};

/// One operation.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub(super) enum Operation {
    Add { path: String, value: Plain },
    Remove { path: String },
    Replace { path: String, value: Plain },
    Move { from: String, path: String },
    Copy { from: String, path: String },
    Test { path: String, value: Plain },
}

/// Reads a patch; says what is wrong with one.
pub(super) fn parse(text: &str) -> Result<Vec<Operation>, String> {
    let operations: Vec<Operation> = serde_json::from_str(text).map_err(|error| {
        format!("is no JSON Patch (RFC 6902), a JSON list of operations: {error}")
    })?;
    if operations.is_empty() {
        return Err("has no operation".to_owned());
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(format!(
            "has {} operations, more than {MAX_OPERATIONS}",
            operations.len()
        ));
    }
    for (at, operation) in operations.iter().enumerate() {
        operation
            .check()
            .map_err(|why| format!("has a wrong operation {at}: {why}"))?;
    }
    Ok(operations)
}

impl Operation {
    fn check(&self) -> Result<(), String> {
        let (paths, changes_path) = match self {
            Self::Add { path, .. } | Self::Remove { path } | Self::Replace { path, .. } => {
                ([path, path], true)
            }
            Self::Test { path, .. } => ([path, path], false),
            Self::Move { from, path } | Self::Copy { from, path } => ([from, path], true),
        };
        for path in paths {
            split(path).ok_or_else(|| format!("{path:?} is no JSON Pointer (RFC 6901)"))?;
        }
        if changes_path && paths[1].is_empty() {
            return Err(
                "it replaces the whole document; give the file's contents instead".to_owned(),
            );
        }
        if let Self::Move { from, path } = self
            && path
                .strip_prefix(from.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
        {
            return Err(format!("it moves {from} into itself"));
        }
        match self {
            Self::Add { value, .. } | Self::Replace { value, .. } if value.is_too_deep() => {
                Err("its value is nested too deep".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Applies the operation.
    pub(super) fn apply(&self, document: &mut Plain) -> Result<(), EditError> {
        match self {
            Self::Add { path, value } => add(document, path, value.clone()),
            Self::Remove { path } => remove(document, path).map(drop),
            Self::Replace { path, value } => {
                *at_mut(document, path, path)? = value.clone();
                Ok(())
            }
            Self::Move { from, path } => {
                let value = remove(document, from)?;
                add(document, path, value)
            }
            Self::Copy { from, path } => {
                let value = at_mut(document, from, from)?.clone();
                add(document, path, value)
            }
            Self::Test { path, value } if at_mut(document, path, path)? == value => Ok(()),
            Self::Test { path, .. } => Err(EditError::new(
                path,
                "the patch tests for another value than there is",
            )),
        }
    }
}

/// The parts of a JSON Pointer; nothing if it is none.
fn split(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer
        .strip_prefix('/')?
        .split('/')
        .map(unescape)
        .collect()
}

fn unescape(part: &str) -> Option<String> {
    let wrong = part
        .split('~')
        .skip(1)
        .any(|after| !after.starts_with(['0', '1']));
    (!wrong).then(|| part.replace("~1", "/").replace("~0", "~"))
}

/// An index without sign and leading zeros.
fn index(part: &str) -> Option<usize> {
    let digits = part.bytes().all(|byte| byte.is_ascii_digit());
    let usual = part == "0" || !part.starts_with('0');
    if digits && usual {
        part.parse().ok()
    } else {
        None
    }
}

/// The value at a pointer; `whole` is the pointer for messages.
fn at_mut<'a>(
    document: &'a mut Plain,
    pointer: &str,
    whole: &str,
) -> Result<&'a mut Plain, EditError> {
    let mut value = document;
    for part in split(pointer).unwrap_or_default() {
        value = match value {
            Plain::Map(map) => map.get_mut(&part),
            Plain::List(items) => index(&part).and_then(|at| items.get_mut(at)),
            _ => None,
        }
        .ok_or_else(|| EditError::missing(whole))?;
    }
    Ok(value)
}

/// The parent of a pointer's last part, and that part.
fn parent<'a>(
    document: &'a mut Plain,
    pointer: &str,
) -> Result<(&'a mut Plain, String), EditError> {
    let (before, _) = pointer.rsplit_once('/').unwrap_or_default();
    let last = split(pointer)
        .and_then(|mut parts| parts.pop())
        .unwrap_or_default();
    Ok((at_mut(document, before, pointer)?, last))
}

fn add(document: &mut Plain, pointer: &str, value: Plain) -> Result<(), EditError> {
    match parent(document, pointer)? {
        (Plain::Map(map), key) => {
            map.insert(key, value);
        }
        (Plain::List(items), part) => {
            let at = if part == "-" {
                Some(items.len())
            } else {
                index(&part)
            };
            let at = at
                .filter(|at| *at <= items.len())
                .ok_or_else(|| EditError::missing(pointer))?;
            items.insert(at, value);
        }
        _ => {
            return Err(EditError::new(
                pointer,
                "its parent is neither a mapping nor a list",
            ));
        }
    }
    Ok(())
}

fn remove(document: &mut Plain, pointer: &str) -> Result<Plain, EditError> {
    match parent(document, pointer)? {
        (Plain::Map(map), key) => map.shift_remove(&key),
        (Plain::List(items), part) => index(&part)
            .filter(|at| *at < items.len())
            .map(|at| items.remove(at)),
        _ => None,
    }
    .ok_or_else(|| EditError::missing(pointer))
}

#[cfg(test)]
mod tests {
    use super::super::plain;
    use super::*;

    fn applied(document: &str, patch: &str) -> Result<Plain, EditError> {
        let mut document = plain::json(document).unwrap();
        for operation in parse(patch).unwrap() {
            operation.apply(&mut document)?;
        }
        Ok(document)
    }

    /// From the appendix of RFC 6902 where it has one.
    #[test]
    fn every_operation_does_as_the_rfc_says() {
        for (document, patch, wanted) in [
            (
                r#"{"foo":"bar"}"#,
                r#"[{"op":"add","path":"/baz","value":"qux"}]"#,
                r#"{"baz":"qux","foo":"bar"}"#,
            ),
            (
                r#"{"foo":["bar","baz"]}"#,
                r#"[{"op":"add","path":"/foo/1","value":"qux"}]"#,
                r#"{"foo":["bar","qux","baz"]}"#,
            ),
            (
                r#"{"foo":["bar"]}"#,
                r#"[{"op":"add","path":"/foo/-","value":["abc"]}]"#,
                r#"{"foo":["bar",["abc"]]}"#,
            ),
            (
                r#"{"a":1,"b":2}"#,
                r#"[{"op":"remove","path":"/a"}]"#,
                r#"{"b":2}"#,
            ),
            (
                r#"{"a":[1,2,3]}"#,
                r#"[{"op":"remove","path":"/a/1"}]"#,
                r#"{"a":[1,3]}"#,
            ),
            (
                r#"{"a":1}"#,
                r#"[{"op":"replace","path":"/a","value":{"x":null}}]"#,
                r#"{"a":{"x":null}}"#,
            ),
            (
                r#"{"f":["a","g","c","e"]}"#,
                r#"[{"op":"move","from":"/f/1","path":"/f/3"}]"#,
                r#"{"f":["a","c","e","g"]}"#,
            ),
            (
                r#"{"a":{"b":1}}"#,
                r#"[{"op":"copy","from":"/a","path":"/c"}]"#,
                r#"{"a":{"b":1},"c":{"b":1}}"#,
            ),
            (
                r#"{"a~b/c":1}"#,
                r#"[{"op":"test","path":"/a~0b~1c","value":1}]"#,
                r#"{"a~b/c":1}"#,
            ),
            (
                r#"{"foo":1}"#,
                r#"[{"op":"add","path":"/","value":2,"xyz":3}]"#,
                r#"{"foo":1,"":2}"#,
            ),
        ] {
            assert_eq!(
                applied(document, patch).unwrap(),
                plain::json(wanted).unwrap(),
                "{patch}"
            );
        }
    }

    #[test]
    fn a_path_that_is_not_there_is_named() {
        for (patch, path) in [
            (r#"[{"op":"remove","path":"/b"}]"#, "/b"),
            (r#"[{"op":"replace","path":"/a/7","value":1}]"#, "/a/7"),
            (r#"[{"op":"add","path":"/a/3","value":1}]"#, "/a/3"),
            (r#"[{"op":"add","path":"/a/01","value":1}]"#, "/a/01"),
            (r#"[{"op":"add","path":"/b/c","value":1}]"#, "/b/c"),
            (r#"[{"op":"remove","path":"/a/-"}]"#, "/a/-"),
            (r#"[{"op":"test","path":"/a/0","value":2}]"#, "/a/0"),
            (r#"[{"op":"move","from":"/x","path":"/y"}]"#, "/x"),
        ] {
            assert_eq!(applied(r#"{"a":[1,2]}"#, patch).unwrap_err().at, path);
        }
    }

    #[test]
    fn a_patch_that_is_wrong_is_refused_before_it_meets_a_file() {
        let deep = format!(
            r#"[{{"op":"add","path":"/a","value":{}{}}}]"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        let many = format!("[{}]", [r#"{"op":"remove","path":"/a"}"#; 201].join(","));
        for patch in [
            "",
            "{}",
            "[]",
            r#"[{"op":"frobnicate","path":"/a"}]"#,
            r#"[{"op":"add","path":"/a"}]"#,
            r#"[{"op":"add","path":"a","value":1}]"#,
            r#"[{"op":"add","path":"/~2","value":1}]"#,
            r#"[{"op":"replace","path":"","value":{}}]"#,
            r#"[{"op":"move","from":"/a","path":"/a/b"}]"#,
            &deep,
            &many,
        ] {
            assert!(parse(patch).is_err(), "{patch}");
        }
    }
}
