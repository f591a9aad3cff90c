//! Which action of GitLab's commit API does what a change wants to a file. Pure: what is in the repository is passed in.
//!
//! GitLab takes `create` only for a file that is not there, and `update` and `delete` only for one that is. All actions of
//! a commit are done, or none.

use std::collections::BTreeMap;

use super::super::git::blob_id;
use super::super::ours::LINK;
use super::super::resolve::WholeFile;
use crate::change::FileChange;

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Create,
    Update,
    Delete,
}

impl Verb {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// One action of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action<'a> {
    pub(super) verb: Verb,
    pub(super) path: &'a str,
    /// The new content; empty for [`Verb::Delete`].
    pub(super) contents: &'a str,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AtPath {
    /// A file, by git's id of its content.
    File(String),
    /// A symbolic link: it can go, but writing to it would change where it points.
    Link,
    /// Something else, in words for people.
    Other(&'static str),
}

/// What is at the paths of a change; what is not named is not there.
pub(super) type Tree = BTreeMap<String, AtPath>;

/// A path holds something that the change cannot replace by a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NoFile {
    pub(super) path: String,
    pub(super) what: &'static str,
}

impl AtPath {
    /// From the mode and id of a tree entry.
    pub(super) fn of_entry(mode: &str, id: &str) -> Self {
        match mode {
            "120000" => Self::Link,
            "160000" => Self::Other("a submodule"),
            "040000" | "40000" => Self::Other("a folder"),
            _ => Self::File(id.to_owned()),
        }
    }
}

/// The actions that need no look at the repository: a file that is not known to exist is taken as new.
pub(super) fn guess(files: &[WholeFile], is_known: impl Fn(&str) -> bool) -> Vec<Action<'_>> {
    let needed = files.iter().filter(|file| !file.as_before);
    needed
        .map(|file| match &file.contents {
            // What was patched was read.
            Some(contents) if file.version.is_some() || is_known(&file.path) => {
                action(Verb::Update, file, contents)
            }
            Some(contents) => action(Verb::Create, file, contents),
            None => action(Verb::Delete, file, ""),
        })
        .collect()
}

/// The actions that make a repository in this state as the change wants it; none if it is so already.
pub(super) fn exact<'a>(files: &'a [WholeFile], now: &Tree) -> Result<Vec<Action<'a>>, NoFile> {
    let mut actions = Vec::new();
    for file in files {
        let at_path = now.get(&file.path);
        if is_as_wanted(file, at_path) {
            continue;
        }
        actions.push(match (&file.contents, at_path) {
            (Some(_), Some(AtPath::Link)) => {
                return Err(no_file(file, LINK));
            }
            (_, Some(AtPath::Other(what))) => return Err(no_file(file, what)),
            (Some(contents), None) => action(Verb::Create, file, contents),
            (Some(contents), Some(AtPath::File(_))) => action(Verb::Update, file, contents),
            (None, _) => action(Verb::Delete, file, ""),
        });
    }
    Ok(actions)
}

/// Whether a path is as the change wants it.
pub(super) fn is_as_wanted(file: &WholeFile, now: Option<&AtPath>) -> bool {
    match (&file.contents, now) {
        (Some(contents), Some(AtPath::File(id))) => *id == blob_id(contents, id.len()),
        (None, None) => true,
        _ => false,
    }
}

/// The folders of a change's paths, each with the paths in it; the root is the empty name.
pub(super) fn by_folder(files: &[FileChange]) -> BTreeMap<&str, Vec<&str>> {
    let mut folders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in files {
        let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
        folders.entry(folder).or_default().push(&file.path);
    }
    folders
}

fn action<'a>(verb: Verb, file: &'a WholeFile, contents: &'a str) -> Action<'a> {
    Action {
        verb,
        path: &file.path,
        contents,
    }
}

fn no_file(file: &WholeFile, what: &'static str) -> NoFile {
    NoFile {
        path: file.path.clone(),
        what,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::FileAction;

    fn whole(path: &str, contents: Option<&str>) -> WholeFile {
        WholeFile {
            path: path.to_owned(),
            contents: contents.map(str::to_owned),
            version: None,
            as_before: false,
        }
    }

    fn write(path: &str, contents: &str) -> WholeFile {
        whole(path, Some(contents))
    }

    fn delete(path: &str) -> WholeFile {
        whole(path, None)
    }

    fn verbs(actions: &[Action<'_>]) -> Vec<(&'static str, String)> {
        let pair = |action: &Action<'_>| (action.verb.as_str(), action.path.to_owned());
        actions.iter().map(pair).collect()
    }

    #[test]
    fn every_file_gets_the_one_action_that_is_taken_for_it() {
        let files = [
            write("new", "n"),
            write("changed", "c"),
            write("same", "s"),
            delete("there"),
            delete("gone"),
        ];
        let file = |contents| AtPath::File(blob_id(contents, 40));
        let now = Tree::from([
            ("changed".to_owned(), file("before")),
            ("same".to_owned(), file("s")),
            ("there".to_owned(), file("t")),
        ]);
        let expected = [
            ("create", "new".to_owned()),
            ("update", "changed".to_owned()),
            ("delete", "there".to_owned()),
        ];
        assert_eq!(verbs(&exact(&files, &now).unwrap()), expected);
    }

    #[test]
    fn nothing_is_left_to_do_once_it_is_done() {
        let files = [write("a", "1"), write("b/c", "2"), delete("d")];
        let done = Tree::from([
            ("a".to_owned(), AtPath::File(blob_id("1", 64))),
            ("b/c".to_owned(), AtPath::File(blob_id("2", 64))),
        ]);
        assert_eq!(exact(&files, &done), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_file_is_never_written() {
        let link = Tree::from([("x".to_owned(), AtPath::of_entry("120000", "00"))]);
        assert!(exact(&[write("x", "y")], &link).is_err());
        let delete_link = [delete("x")];
        assert_eq!(
            verbs(&exact(&delete_link, &link).unwrap()),
            [("delete", "x".to_owned())]
        );
        for (mode, what) in [("160000", "a submodule"), ("040000", "a folder")] {
            let now = Tree::from([("x".to_owned(), AtPath::of_entry(mode, "00"))]);
            let path = "x".to_owned();
            let refusal = NoFile { path, what };
            assert_eq!(exact(&[write("x", "y")], &now), Err(refusal.clone()));
            assert_eq!(exact(&[delete("x")], &now), Err(refusal));
        }
        assert!(matches!(AtPath::of_entry("100755", "00"), AtPath::File(_)));
    }

    #[test]
    fn a_guess_takes_a_file_as_new_unless_it_was_seen() {
        let patched = WholeFile {
            version: Some("v1".to_owned()),
            ..write("d", "4")
        };
        let same = WholeFile {
            as_before: true,
            ..patched.clone()
        };
        let files = [write("a", "1"), write("b", "2"), delete("c"), patched, same];
        let guessed = guess(&files, |path| path == "b");
        let verbs: Vec<&str> = guessed.iter().map(|action| action.verb.as_str()).collect();
        assert_eq!(verbs, ["create", "update", "delete", "update"]);
    }

    #[test]
    fn a_folder_is_looked_at_once() {
        let file = |path: &str| FileChange {
            path: path.to_owned(),
            action: FileAction::Delete,
        };
        let files = ["a/1", "a/2", "a/b/3", "4"].map(file);
        let folders = by_folder(&files);
        assert_eq!(folders["a"], ["a/1", "a/2"]);
        assert_eq!(folders["a/b"], ["a/b/3"]);
        assert_eq!(folders[""], ["4"]);
    }
}
