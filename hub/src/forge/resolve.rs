//! Makes whole files out of a change with patches. Every forge does it the same way: it reads the patched files at the
//! base, hands them in, and gets files to write or delete and the body that shows what the patches do. Pure, but for
//! [`in_background`].

use std::collections::BTreeMap;

use super::ForgeError;
use super::http::failed;
use crate::change::{FileAction, FileChange, Intent};
use crate::edit::{self, EditError};
use crate::render::diff::{Edited, body_with_diffs};
use crate::response::ErrorType;

/// The reason of a patch that does not fit its file.
pub const PATCH_DOES_NOT_APPLY: &str = "PatchDoesNotApply";

/// A file of the base that is patched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseFile {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// What the forge knows this version of the file by (the blob's hash), to notice when there is another.
    pub version: String,
}

/// One file as it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WholeFile {
    /// Path inside the repository.
    pub path: String,
    /// The whole content; `None` deletes the file.
    pub contents: Option<String>,
    /// For a patched file: the version of the base file that the content is made of.
    pub version: Option<String>,
    /// Whether the patch changes nothing, so that the file need not be written.
    pub as_before: bool,
}

/// A change without patches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The files, in the order of the intent.
    pub files: Vec<WholeFile>,
    /// The body of the pull request, with a diff of the patched files.
    pub body: String,
}

/// The paths whose files at the base are needed.
pub fn patched_paths(intent: &Intent) -> impl Iterator<Item = &str> {
    let patched = |file: &&FileChange| matches!(file.action, FileAction::Patch { .. });
    intent
        .files
        .iter()
        .filter(patched)
        .map(|file| file.path.as_str())
}

/// Applies the patches of a change to the files of the base; a file that is not handed in does not exist.
pub fn resolve(intent: &Intent, base: &BTreeMap<String, BaseFile>) -> Result<Resolved, ForgeError> {
    let files: Vec<WholeFile> = intent
        .files
        .iter()
        .map(|file| whole(file, base))
        .collect::<Result<_, _>>()?;
    let edited: Vec<Edited<'_>> = files
        .iter()
        .filter(|file| file.version.is_some())
        .filter_map(|file| {
            let old = std::str::from_utf8(&base.get(&file.path)?.bytes).ok()?;
            Some(Edited {
                path: &file.path,
                old,
                new: file.contents.as_deref()?,
            })
        })
        .collect();
    let body = body_with_diffs(&intent.body, &edited);
    Ok(Resolved { files, body })
}

/// [`resolve`] on a thread that may be kept busy: large files take a while.
pub async fn in_background(
    intent: &Intent,
    base: BTreeMap<String, BaseFile>,
) -> Result<Resolved, ForgeError> {
    if base.is_empty() {
        return resolve(intent, &base);
    }
    let intent = intent.clone();
    tokio::task::spawn_blocking(move || resolve(&intent, &base))
        .await
        .map_err(|error| {
            failed(
                ErrorType::Permanent,
                PATCH_DOES_NOT_APPLY,
                format!("applying the patches failed: {error}"),
            )
        })?
}

fn whole(file: &FileChange, base: &BTreeMap<String, BaseFile>) -> Result<WholeFile, ForgeError> {
    let path = file.path.clone();
    let written = |contents| WholeFile {
        path: path.clone(),
        contents,
        version: None,
        as_before: false,
    };
    match &file.action {
        FileAction::Write { contents } => Ok(written(Some(contents.clone()))),
        FileAction::Delete => Ok(written(None)),
        FileAction::Patch { patch } => {
            let Some(BaseFile { bytes, version }) = base.get(&path) else {
                return Err(no_file(&path, "does not exist on the base branch"));
            };
            let new =
                edit::apply(&path, patch, bytes).map_err(|error| does_not_apply(&path, &error))?;
            let as_before = new.as_bytes() == bytes.as_slice();
            Ok(WholeFile {
                version: Some(version.clone()),
                as_before,
                ..written(Some(new))
            })
        }
    }
}

fn does_not_apply(path: &str, error: &EditError) -> ForgeError {
    let EditError { at, what, remedy } = error;
    let at = if at.is_empty() {
        String::new()
    } else {
        format!(" at {}", clip(at))
    };
    let detail = format!(
        "the patch of {path:?} does not apply{at}: {}; {remedy}",
        clip(what)
    );
    failed(ErrorType::Permanent, PATCH_DOES_NOT_APPLY, detail)
}

/// The error for a path at which no file can be patched.
pub fn no_file(path: &str, why: &str) -> ForgeError {
    let detail = format!(
        "the patch of {path:?} does not apply: the file {why}; create a new EventResponse with contents instead of a patch"
    );
    failed(ErrorType::Permanent, PATCH_DOES_NOT_APPLY, detail)
}

/// Pointers and reasons may quote the patch or the file.
fn clip(text: &str) -> String {
    super::text::one_line(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edit::{Patch, PatchType};
    use crate::fixtures;

    fn intent(lines: &str) -> Intent {
        let patch = Patch::parse(PatchType::YamlSet, lines, None).unwrap();
        let mut intent = fixtures::intent();
        intent.files.push(FileChange {
            path: "x.yaml".to_owned(),
            action: FileAction::Patch { patch },
        });
        intent
    }

    fn base(text: &str) -> BTreeMap<String, BaseFile> {
        let file = BaseFile {
            bytes: text.as_bytes().to_vec(),
            version: "v1".to_owned(),
        };
        BTreeMap::from([("x.yaml".to_owned(), file)])
    }

    #[test]
    fn a_patched_file_becomes_a_whole_one_and_is_shown() {
        let intent = intent("a = 2");
        assert_eq!(patched_paths(&intent).collect::<Vec<_>>(), ["x.yaml"]);
        let resolved = resolve(&intent, &base("a: 1 # one\n")).unwrap();
        let file = resolved.files.last().unwrap();
        assert_eq!(file.contents.as_deref(), Some("a: 2 # one\n"));
        assert_eq!(
            (file.version.as_deref(), file.as_before),
            (Some("v1"), false)
        );
        assert!(
            resolved.body.contains("\n+a: 2 # one\n"),
            "{}",
            resolved.body
        );
        let again = resolve(&intent, &base("a: 2 # one\n")).unwrap();
        assert!(again.files.last().unwrap().as_before);
        assert_eq!(again.body, intent.body);
    }

    #[test]
    fn a_file_that_does_not_fit_is_a_permanent_failure() {
        for (file, what) in [
            (BTreeMap::new(), "does not exist"),
            (base("a: {b: 1}\n"), "at /a/b: "),
            (base("- x\n"), "it is no mapping"),
        ] {
            let Err(ForgeError::Failed(error)) = resolve(&intent("a.b.c = 2"), &file) else {
                panic!()
            };
            assert_eq!(
                (error.kind, error.reason.as_str()),
                (ErrorType::Permanent, PATCH_DOES_NOT_APPLY)
            );
            assert!(
                error.detail.contains("\"x.yaml\"") && error.detail.contains(what),
                "{}",
                error.detail
            );
            assert!(
                error.detail.contains("; create a new EventResponse"),
                "{}",
                error.detail
            );
        }
    }
}
