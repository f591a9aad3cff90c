//! What an EventResponse asks for: the files in `spec.action.parameters`, read strictly. Whether a path is allowed is
//! decided in [`super::paths`].

use std::collections::BTreeSet;

use serde_json::Value;

use super::text;
use crate::change::{FileAction, FileChange};
use crate::edit::{self, Patch, PatchType};
use crate::response::{ErrorType, ResponseError};

/// Where the parameters are in the object, for messages.
const FIELD: &str = "spec.action.parameters";
/// What the parameters of a file begin with.
const STEMS: [&str; 6] = [
    "path",
    "contents",
    "delete",
    "patchType",
    "patchTarget",
    "patch",
];
const MAX_FILES: usize = 100;
const MAX_CONTENT_BYTES: usize = 900 * 1024;
/// How much is shown of why a patch cannot be read; the reason may quote the patch.
const MAX_REASON: usize = 400;

/// The files that are asked for, in the order of their numbers, paths as they were given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// At least one file.
    pub files: Vec<FileChange>,
}

impl Request {
    /// Reads `path` with `contents`, `delete` or `patch` (and `patchType`, `patchTarget`), then `path1`, `contents1` and so
    /// on.
    pub fn parse(parameters: &Value) -> Result<Self, ResponseError> {
        if !matches!(parameters, Value::Null | Value::Object(_)) {
            return Err(invalid("", "is no map", "give a map of strings"));
        }
        let numbers = numbers(parameters)?;
        let last = numbers.last().copied().unwrap_or_default();
        if last >= MAX_FILES {
            let what =
                format!("is more than the {MAX_FILES} files that one EventResponse may change");
            return Err(invalid(&format!("path{last}"), &what, "split the change"));
        }
        let mut files = Vec::new();
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for number in 0..=last {
            let file = file(parameters, number)?;
            if !seen.insert(file.path.clone()) {
                return Err(invalid(
                    &name("path", number),
                    "names a file again",
                    "name each file once",
                ));
            }
            bytes += match &file.action {
                FileAction::Write { contents } => contents.len(),
                FileAction::Patch { patch } => patch.text().len(),
                FileAction::Delete => 0,
            };
            files.push(file);
        }
        if bytes > MAX_CONTENT_BYTES {
            let what = format!(
                "has {bytes} bytes in all its contents and patches, more than {MAX_CONTENT_BYTES}"
            );
            return Err(invalid("", &what, "split the change"));
        }
        Ok(Self { files })
    }
}

/// `spec.action.parameters.<name>`, then what is wrong, then the remedy.
fn invalid(name: &str, what: &str, remedy: &str) -> ResponseError {
    let dot = if name.is_empty() { "" } else { "." };
    let detail = format!("{FIELD}{dot}{name} {what}; create a new EventResponse: {remedy}");
    ResponseError::new(ErrorType::Permanent, "InvalidEventResponse", detail)
}

fn name(stem: &str, number: usize) -> String {
    if number == 0 {
        stem.to_owned()
    } else {
        format!("{stem}{number}")
    }
}

/// All numbers that any field of a file has, so that a gap is seen and no file is silently left out.
fn numbers(parameters: &Value) -> Result<BTreeSet<usize>, ResponseError> {
    let mut numbers = BTreeSet::new();
    for key in parameters
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys)
    {
        let suffix = STEMS.iter().find_map(|stem| key.strip_prefix(stem));
        let Some(suffix) = suffix.filter(|suffix| suffix.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            continue;
        };
        if suffix.is_empty() {
            numbers.insert(0);
        } else if suffix.starts_with('0') || suffix.len() > 6 {
            let shown = text::clip(key, 60);
            return Err(invalid(
                &shown,
                "has no usable number",
                "count files without a number, then 1, 2, 3, …",
            ));
        } else {
            numbers.insert(suffix.parse().unwrap_or(usize::MAX));
        }
    }
    Ok(numbers)
}

fn file(parameters: &Value, number: usize) -> Result<FileChange, ResponseError> {
    let [path_name, contents_name, delete_name] =
        ["path", "contents", "delete"].map(|stem| name(stem, number));
    let path = string(parameters, &path_name)?.filter(|path| !path.is_empty());
    let Some(path) = path else {
        let remedy = if number == 0 {
            "name the file to change"
        } else {
            "number files without a gap"
        };
        return Err(invalid(&path_name, "is missing", remedy));
    };
    let contents = string(parameters, &contents_name)?;
    let edit = patch(parameters, number, path)?;
    let action = match (contents, edit, delete(parameters, &delete_name)?) {
        (None, None, false) => {
            let remedy = format!(
                "give the file's whole content, or {}, or {delete_name}: \"true\"",
                name("patch", number)
            );
            return Err(invalid(&contents_name, "is missing", &remedy));
        }
        (Some(contents), None, false) => FileAction::Write {
            contents: contents.to_owned(),
        },
        (None, Some(edit), false) => FileAction::Patch { patch: edit },
        (None, None, true) => FileAction::Delete,
        (Some(_), Some(_), _) => {
            let what = format!("is there beside {contents_name}");
            return Err(invalid(
                &name("patch", number),
                &what,
                "give either of them",
            ));
        }
        (_, given, true) => {
            let other = given.map_or(contents_name, |_| name("patch", number));
            let what = format!("is true, and there is {other}");
            return Err(invalid(&delete_name, &what, "give either of them"));
        }
    };
    Ok(FileChange {
        path: path.to_owned(),
        action,
    })
}

/// The patch of a file, if there is one; what is wrong with its text is found here, before anybody looks at the file.
fn patch(parameters: &Value, number: usize, file: &str) -> Result<Option<Patch>, ResponseError> {
    let [text_name, type_name, target_name] =
        ["patch", "patchType", "patchTarget"].map(|stem| name(stem, number));
    let kind = string(parameters, &type_name)?;
    let target = string(parameters, &target_name)?;
    let Some(patch) = string(parameters, &text_name)? else {
        return match kind.map(|_| &type_name).or(target.map(|_| &target_name)) {
            Some(lone) => Err(invalid(
                lone,
                "is there without a patch",
                &format!("add {text_name}"),
            )),
            None => Ok(None),
        };
    };
    let kinds = PatchType::ALL.map(PatchType::as_str).join(", ");
    let Some(kind) = PatchType::ALL
        .into_iter()
        .find(|known| Some(known.as_str()) == kind)
    else {
        let what = if kind.is_some() {
            "is unknown"
        } else {
            "is missing"
        };
        return Err(invalid(&type_name, what, &format!("use one of {kinds}")));
    };
    if !edit::serves(file) {
        let what = "is for a file that is neither .yaml, .yml nor .json";
        return Err(invalid(&text_name, what, "give the file's whole content"));
    }
    let target = target.filter(|target| !target.trim().is_empty());
    let patch = Patch::parse(kind, patch, target).map_err(|why| {
        let why = text::clip(&text::squeeze(&why), MAX_REASON);
        invalid(&text_name, &why, "correct the patch")
    })?;
    Ok(Some(patch))
}

fn string<'a>(parameters: &'a Value, name: &str) -> Result<Option<&'a str>, ResponseError> {
    match parameters.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(name, "is no string", "put the value into quotes")),
    }
}

fn delete(parameters: &Value, name: &str) -> Result<bool, ResponseError> {
    let wrong = || {
        invalid(
            name,
            "is neither true nor false",
            "use \"true\" or \"false\"",
        )
    };
    match parameters.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(delete)) => Ok(*delete),
        Some(Value::String(word)) => match word.trim().to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" | "" => Ok(false),
            _ => Err(wrong()),
        },
        Some(_) => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(parameters: &Value) -> String {
        let error = Request::parse(parameters).unwrap_err();
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorType::Permanent, "InvalidEventResponse")
        );
        assert!(error.detail.starts_with(FIELD), "{}", error.detail);
        assert!(
            error.detail.contains("create a new EventResponse: "),
            "{}",
            error.detail
        );
        error.detail[FIELD.len()..]
            .split(' ')
            .next()
            .unwrap()
            .trim_start_matches('.')
            .to_owned()
    }

    #[test]
    fn numbered_files_are_read_in_their_order() {
        let parameters = json!({
            "path": "a", "contents": "", "path1": "b", "delete1": "True", "path2": "c", "contents2": "x",
            "delete2": "false", "prTitle": "t", "pathology": "no file",
        });
        let files = Request::parse(&parameters).unwrap().files;
        let write = |path: &str, contents: &str| FileChange {
            path: path.to_owned(),
            action: FileAction::Write {
                contents: contents.to_owned(),
            },
        };
        let delete = FileChange {
            path: "b".to_owned(),
            action: FileAction::Delete,
        };
        assert_eq!(files, [write("a", ""), delete, write("c", "x")]);
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        for (parameters, field) in [
            (json!(null), "path"),
            (json!({}), "path"),
            (json!({"contents": "x"}), "path"),
            (json!({"path": ""}), "path"),
            (json!({"path": "a"}), "contents"),
            (json!({"path": "a", "delete": "false"}), "contents"),
            (json!({"path": "a", "delete": "yes"}), "delete"),
            (
                json!({"path": "a", "delete": "true", "contents": "x"}),
                "delete",
            ),
            (
                json!({"path": "a", "contents": "x", "path2": "b", "contents2": "x"}),
                "path1",
            ),
            (
                json!({"path": "a", "contents": "x", "contents1": "x"}),
                "path1",
            ),
            (json!({"path1": "a", "contents1": "x"}), "path"),
            (
                json!({"path": "a", "contents": "x", "path1": "a", "contents1": "x"}),
                "path1",
            ),
            (
                json!({"path": "a", "contents": "x", "path01": "b"}),
                "path01",
            ),
            (
                json!({"path": "a", "contents": "x", "path100": "b"}),
                "path100",
            ),
            (
                json!({"path": "a.yaml", "contents": "x", "patch": "a = 1", "patchType": "yaml-set"}),
                "patch",
            ),
            (
                json!({"path": "a.yaml", "delete": "true", "patch": "a = 1", "patchType": "yaml-set"}),
                "delete",
            ),
            (json!({"path": "a.yaml", "patch": "a = 1"}), "patchType"),
            (
                json!({"path": "a.yaml", "patch": "a = 1", "patchType": "strategic"}),
                "patchType",
            ),
            (
                json!({"path": "a.yaml", "contents": "x", "patchType": "merge"}),
                "patchType",
            ),
            (
                json!({"path": "a.yaml", "contents": "x", "patchTarget": "kind=A"}),
                "patchTarget",
            ),
            (
                json!({"path": "a.toml", "patch": "a = 1", "patchType": "yaml-set"}),
                "patch",
            ),
            (
                json!({"path": "a.yaml", "patch": "a", "patchType": "yaml-set"}),
                "patch",
            ),
            (
                json!({"path": "a.yaml", "patch": "a = 1", "patchType": "yaml-set", "patchTarget": "x"}),
                "patch",
            ),
            (
                json!({"path": "a", "contents": "x", "path1": "b.json", "patch1": "{", "patchType1": "json6902"}),
                "patch1",
            ),
            (
                json!({"path": "a", "contents": "x", "patch2": "{"}),
                "path1",
            ),
            (json!({"path": 1}), "path"),
            (json!({"path": "a", "contents": {}}), "contents"),
            (
                json!({"path": "a", "contents": "x".repeat(900 * 1024 + 1)}),
                "",
            ),
            (json!("path"), ""),
        ] {
            assert_eq!(fault(&parameters), field);
        }
    }

    #[test]
    fn a_patch_is_read_with_its_type_and_its_document() {
        let parameters = json!({
            "path": "a", "contents": "", "path1": "b.yml", "patch1": "a.b = 1", "patchType1": "yaml-set",
            "patchTarget1": "kind=A",
        });
        let files = Request::parse(&parameters).unwrap().files;
        let patch = Patch::parse(PatchType::YamlSet, "a.b = 1", Some("kind=A")).unwrap();
        assert_eq!(files[1].action, FileAction::Patch { patch });
    }

    #[test]
    fn a_hundred_files_are_served_and_one_more_is_not() {
        let parameters = |count: usize| {
            let fields = (0..count).flat_map(|number| {
                [
                    (name("path", number), json!(format!("f{number}"))),
                    (name("contents", number), json!("x")),
                ]
            });
            Value::Object(fields.collect())
        };
        assert_eq!(Request::parse(&parameters(100)).unwrap().files.len(), 100);
        assert_eq!(fault(&parameters(101)), "path100");
    }
}
