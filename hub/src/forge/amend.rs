//! Amends a pull request: what holds on every forge alike. Whether our branch is ours alone, what it was made on top of, and
//! how each file is to read afterwards.
//!
//! A pull request shows what differs from the commit below ours, so the new content is made of that commit's files: patches
//! apply to them, and what an earlier content wrote and the new one does not name becomes again what it is there. The base
//! branch may have gone on since; that is for the merge.

use std::collections::{BTreeMap, BTreeSet};

use super::http::failed;
use super::ours::has_trailers;
use super::resolve::{BaseFile, Resolved, WholeFile, in_background, patched_paths};
use super::{Amending, ForgeError, Job};
use crate::change::{FileAction, FileChange, Intent};
use crate::response::ErrorType;

/// Commits of a branch that are looked at. Forgejo and Gitea give no more at once.
pub(super) const HISTORY: usize = 50;

/// One commit of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) oid: String,
    pub(super) message: String,
}

/// The ends of what is ours on a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends<'a> {
    /// Our last commit.
    pub(super) tip: &'a str,
    /// The commit that our first one was made on top of.
    pub(super) below: &'a str,
}

/// Finds the ends of our commits in a branch, the newest commit first.
///
/// # Errors
/// If the tip is not the last commit that is known as ours. After an earlier try it may be one that this try has made and
/// nobody has noted: it has our trailers then, and lies right on top of those that are known.
pub(super) fn ends<'a>(
    job: &Job<'_>,
    amending: &Amending<'_>,
    history: &'a [Link],
    place: &str,
) -> Result<Ends<'a>, ForgeError> {
    let taken = |why: String| {
        let detail = format!(
            "the branch {} of {place} holds somebody else's work: {why}; nothing was changed",
            job.intent.branch
        );
        Err(failed(ErrorType::Conflicting, "BranchTaken", detail))
    };
    let is_ours = |link: &&Link| has_trailers(&link.message, job.key);
    let ours = history.iter().take_while(is_ours).count();
    let Some(tip) = history.first() else {
        return taken("it has no commit".to_owned());
    };
    if ours == 0 {
        return taken(format!("its tip {} is no commit of this response", tip.oid));
    }
    if let Some(known) = amending.commit.filter(|known| *known != tip.oid) {
        let lies_below = || history[..ours].iter().any(|link| link.oid == known);
        if !amending.again || !lies_below() {
            return taken(format!("its tip {} is not our commit {known}", tip.oid));
        }
    }
    match history.get(ours) {
        Some(below) => Ok(Ends {
            tip: &tip.oid,
            below: &below.oid,
        }),
        None if history.len() < HISTORY => {
            taken("nothing lies below the commits of this response".to_owned())
        }
        None => {
            let detail = format!(
                "the branch {} of {place} has {HISTORY} commits of this response; close its pull request and create a new \
                EventResponse",
                job.intent.branch
            );
            Err(failed(ErrorType::Permanent, "TooManyUpdates", detail))
        }
    }
}

/// The change with all paths of earlier contents, as files that go: for looking at them.
pub(super) fn with_leftovers(intent: &Intent, leftovers: &[String]) -> Intent {
    let mut wide = intent.clone();
    for path in leftovers_of(intent, leftovers) {
        wide.files.push(FileChange {
            path: path.to_owned(),
            action: FileAction::Delete,
        });
    }
    wide
}

/// The paths of earlier contents that the change does not name, each once.
pub(super) fn leftovers_of<'a>(
    intent: &'a Intent,
    leftovers: &'a [String],
) -> impl Iterator<Item = &'a str> {
    let mut given: BTreeSet<&str> = intent.files.iter().map(|file| &*file.path).collect();
    leftovers
        .iter()
        .map(String::as_str)
        .filter(move |path| given.insert(path))
}

/// The paths whose files below our commits are needed.
pub(super) fn paths_below<'a>(
    intent: &'a Intent,
    leftovers: &'a [String],
) -> impl Iterator<Item = &'a str> {
    patched_paths(intent).chain(leftovers_of(intent, leftovers))
}

/// How every file is to read, and the body that shows it. `below`: the files below our commits; one that is not handed in
/// does not exist there.
pub(super) async fn whole(
    intent: &Intent,
    leftovers: &[String],
    below: BTreeMap<String, BaseFile>,
) -> Result<Resolved, ForgeError> {
    let mut back = Vec::new();
    for path in leftovers_of(intent, leftovers) {
        let contents = match below.get(path) {
            None => None,
            Some(file) => Some(
                String::from_utf8(file.bytes.clone())
                    .map_err(|_| cannot_restore(path, "it is no text"))?,
            ),
        };
        back.push((path.to_owned(), contents));
    }
    let mut resolved = in_background(intent, below).await?;
    let whole = |(path, contents)| WholeFile {
        path,
        contents,
        version: None,
        as_before: false,
    };
    for file in &mut resolved.files {
        // What is on our branch is looked at anew.
        (file.version, file.as_before) = (None, false);
    }
    resolved.files.extend(back.into_iter().map(whole));
    Ok(resolved)
}

/// A file that an earlier content wrote cannot become again what it was.
pub(super) fn cannot_restore(path: &str, why: &str) -> ForgeError {
    let detail = format!(
        "{path} was changed before and is not named any more, and cannot become again what it was: {why}; put it back on \
        the branch by hand, or name it"
    );
    failed(ErrorType::Permanent, "CannotRestore", detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn history(commits: &[(&str, bool)]) -> Vec<Link> {
        let message = |ours: bool| {
            if ours {
                let key = fixtures::key(1);
                format!(
                    "Fix\n\nNabu-Cluster: {}\nNabu-Response: {}\n",
                    key.cluster, key.uid
                )
            } else {
                "Theirs".to_owned()
            }
        };
        let link = |(oid, ours): &(&str, bool)| Link {
            oid: (*oid).to_owned(),
            message: message(*ours),
        };
        commits.iter().map(link).collect()
    }

    fn judge(
        commits: &[(&str, bool)],
        commit: Option<&str>,
        again: bool,
    ) -> Result<(String, String), String> {
        let (key, intent) = (fixtures::key(1), fixtures::intent());
        let job = Job::new(&key, &intent);
        let amending = Amending {
            number: 1,
            commit,
            leftovers: &[],
            again,
        };
        let history = history(commits);
        match ends(&job, &amending, &history, "o/r") {
            Ok(ends) => Ok((ends.tip.to_owned(), ends.below.to_owned())),
            Err(ForgeError::Failed(error)) => Err(error.reason),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn only_our_last_commit_may_be_at_the_tip() {
        let ends = |tip: &str, below: &str| Ok((tip.to_owned(), below.to_owned()));
        let taken = || Err("BranchTaken".to_owned());
        let (two, base) = ([("c2", true), ("c1", true), ("b", false)], ("b", false));
        assert_eq!(
            judge(&[("c1", true), base], Some("c1"), false),
            ends("c1", "b")
        );
        assert_eq!(judge(&two, Some("c2"), false), ends("c2", "b"));
        assert_eq!(
            judge(&two, Some("c1"), false),
            taken(),
            "nobody knows of it"
        );
        assert_eq!(
            judge(&two, Some("c1"), true),
            ends("c2", "b"),
            "ours of an earlier try"
        );
        assert_eq!(judge(&two, Some("c0"), true), taken(), "ours was replaced");
        assert_eq!(judge(&two, None, false), ends("c2", "b"));
        let theirs = [("x", false), ("c1", true), base];
        assert_eq!(judge(&theirs, Some("c1"), true), taken());
        assert_eq!(judge(&[("c1", true)], Some("c1"), true), taken());
        assert_eq!(judge(&[], None, true), taken());
        assert_eq!(
            judge(&[("c1", true); HISTORY], Some("c1"), true),
            Err("TooManyUpdates".to_owned())
        );
    }

    #[tokio::test]
    async fn what_is_not_named_any_more_becomes_what_it_was() {
        let intent = fixtures::intent();
        let named = intent.files[0].path.clone();
        let leftovers = [
            named.clone(),
            "gone".to_owned(),
            "there".to_owned(),
            "gone".to_owned(),
        ];
        let file = BaseFile {
            bytes: b"before\n".to_vec(),
            version: "v".to_owned(),
        };
        let below = BTreeMap::from([("there".to_owned(), file)]);
        let resolved = whole(&intent, &leftovers, below).await.unwrap();
        let read = |path: &str| {
            let file = resolved.files.iter().find(|file| file.path == path);
            file.unwrap().contents.clone()
        };
        assert_eq!(read("gone"), None);
        assert_eq!(read("there").as_deref(), Some("before\n"));
        assert_eq!(
            resolved.files.len(),
            intent.files.len() + 2,
            "{named} comes once"
        );
        let wide = with_leftovers(&intent, &leftovers);
        assert_eq!(wide.files.len(), intent.files.len() + 2);
        let binary = BaseFile {
            bytes: vec![0xff],
            version: "v".to_owned(),
        };
        let below = BTreeMap::from([("there".to_owned(), binary)]);
        assert!(whole(&intent, &leftovers, below).await.is_err());
    }
}
