//! Whose is it, and what is missing? Pure: what was found and what is wanted give the one next thing to do.

use super::super::git::blob_id;
use super::super::http::failed;
use super::super::ours::{
    LINK, has_marker, has_trailers, is_our_name, not_a_file, refuse_base_branch,
};
use super::super::{ForgeError, Job};
use super::lookup::{Branch, Commit, Entry, PULLS_LOOKED_AT, Pull, Repository};
use crate::change::{FileAction, FileChange};
use crate::response::ErrorType;
use nabu_common::ids::ResponseKey;

/// An ordinary file, as git writes it.
const REGULAR: u32 = 0o100_644;
/// The bits of a mode that tell a file, a link and a submodule apart.
const KIND_BITS: u32 = 0o170_000;
const SYMBOLIC_LINK: u32 = 0o120_000;
const SUBMODULE: u32 = 0o160_000;

/// More is not put into one mutation; it goes over the Git Data API.
const MOST_MUTATION_BYTES: usize = 20 * 1024 * 1024;

/// The next thing to do.
#[derive(Debug)]
pub(super) enum Next<'a> {
    /// Our commit is there; the pull request is not.
    Open {
        /// The commit.
        commit: &'a str,
    },
    /// Our branch has another tip than the base, and no commit of ours: perhaps only the base has moved on. The branch
    /// may follow it, if that takes nothing off it.
    Follow {
        /// Our branch.
        branch: &'a Branch,
        /// The tip of the base.
        to: &'a str,
    },
    /// The commit is missing, perhaps the branch too.
    Commit {
        /// Where the commit goes on top of.
        base: &'a Branch,
        /// Our branch, if it exists; its tip is that of the base.
        branch: Option<&'a Branch>,
        /// What the commit changes.
        changes: Changes,
    },
    /// The base branch has everything as wanted.
    Unchanged {
        /// A branch of ours without a commit, to be taken away.
        litter: Option<&'a str>,
    },
}

/// What a commit changes, against a base that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// Files with their whole content and the mode that they keep.
    pub(super) writes: Vec<Write>,
    /// Files that go.
    pub(super) deletions: Vec<String>,
}

/// One file that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) path: String,
    pub(super) contents: String,
    pub(super) mode: u32,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.deletions.is_empty()
    }

    /// Whether `createCommitOnBranch` can do it: it writes ordinary files only, of a bounded size.
    pub(super) fn fit_one_mutation(&self) -> bool {
        let bytes: usize = self.writes.iter().map(|write| write.contents.len()).sum();
        bytes <= MOST_MUTATION_BYTES && self.writes.iter().all(|write| write.mode == REGULAR)
    }
}

/// Names the next thing to do where there is no pull request yet, for a change without patches.
///
/// # Errors
/// If somebody else's work is in the way, or the change cannot be made in this repository.
pub(super) fn next<'a>(
    job: &Job<'_>,
    repository: &'a Repository,
    place: &str,
) -> Result<Next<'a>, ForgeError> {
    let key = job.key;
    let base = base(job, repository, place)?;
    refuse_base_branch(job, &base.name, place)?;
    if let Some(branch) = &repository.branch {
        let tip = &branch.target;
        if has_trailers(&tip.message, key) {
            if let Some(path) = other_content(&job.intent.files, tip) {
                let why = format!("its tip {} has another {path} than this change", tip.oid);
                return Err(branch_taken(job, repository, &why));
            }
            return Ok(Next::Open { commit: &tip.oid });
        }
        if !is_our_name(job) {
            let why = format!("its tip {} is no commit of this response", tip.oid);
            return Err(branch_taken(job, repository, &why));
        }
    }
    let changes = changes(
        job.intent.files.iter().enumerate(),
        &base.target,
        &repository.name_with_owner,
    )?;
    let branch = repository.branch.as_ref();
    let elsewhere = |branch: &&Branch| branch.target.oid != base.target.oid;
    if changes.is_empty() {
        let litter = branch.filter(|branch| !elsewhere(branch));
        return Ok(Next::Unchanged {
            litter: litter.map(|branch| branch.id.as_str()),
        });
    }
    if let Some(branch) = branch.filter(elsewhere) {
        return Ok(Next::Follow {
            branch,
            to: &base.target.oid,
        });
    }
    Ok(Next::Commit {
        base,
        branch,
        changes,
    })
}

/// The pull request of this response: an open one before a merged one before a closed one.
///
/// # Errors
/// If there is one of our branch that is not ours.
pub(super) fn our_pull<'a>(
    job: &Job<'_>,
    repository: &'a Repository,
    place: &str,
) -> Result<Option<&'a Pull>, ForgeError> {
    let from_here = || {
        let pulls = repository.pulls().iter();
        pulls.filter(|pull| !pull.is_cross_repository)
    };
    let rank = |pull: &&Pull| match pull.state.as_str() {
        "OPEN" => 0,
        "MERGED" => 1,
        _ => 2,
    };
    if let Some(pull) = from_here()
        .filter(|pull| is_ours(pull, job.key))
        .min_by_key(rank)
    {
        return Ok(Some(pull));
    }
    if let Some(other) = from_here().min_by_key(rank) {
        let detail = format!(
            "{} is of the branch {} but not of this response; close it and remove the branch, then retry",
            other.url, job.intent.branch
        );
        return Err(failed(ErrorType::Conflicting, "BranchTaken", detail));
    }
    if repository.has_more_pulls() {
        let detail = format!(
            "more than {PULLS_LOOKED_AT} pull requests from forks of {place} use the branch name {}; close them, then retry",
            job.intent.branch
        );
        return Err(failed(ErrorType::Conflicting, "BranchTaken", detail));
    }
    Ok(None)
}

/// People may rewrite a body; the commit stays.
fn is_ours(pull: &Pull, key: &ResponseKey) -> bool {
    has_marker(&pull.body, key) || has_trailers(pull.head_message(), key)
}

pub(super) fn base<'a>(
    job: &Job<'_>,
    repository: &'a Repository,
    place: &str,
) -> Result<&'a Branch, ForgeError> {
    if repository.is_archived || repository.is_disabled {
        let (state, remedy) = if repository.is_archived {
            ("archived", "unarchive it")
        } else {
            ("disabled by GitHub", "ask its owner")
        };
        let detail = format!("{place} is {state}; {remedy} or change the route");
        return Err(ForgeError::parked(
            ErrorType::Permanent,
            "RepositoryArchived",
            detail,
        ));
    }
    if repository.is_empty {
        let detail = format!("{place} has no commit yet; make a first one on its base branch");
        return Err(failed(ErrorType::Permanent, "RepositoryEmpty", detail));
    }
    repository.base.as_ref().ok_or_else(|| {
        let branch = job.intent.base_branch.as_deref().unwrap_or("default");
        let detail =
            format!("{place} has no branch {branch:?}; correct provider.baseBranch of the route");
        failed(ErrorType::Permanent, "BaseBranchNotFound", detail)
    })
}

pub(super) fn branch_taken(job: &Job<'_>, repository: &Repository, why: &str) -> ForgeError {
    let detail = format!(
        "the branch {} of {} holds somebody else's work: {why}; remove or rename the branch, then retry",
        job.intent.branch, repository.name_with_owner
    );
    failed(ErrorType::Conflicting, "BranchTaken", detail)
}

/// The first file that a commit does not have as wanted.
fn other_content<'a>(files: &'a [FileChange], commit: &Commit) -> Option<&'a str> {
    let mut files = files.iter().enumerate();
    files
        .find(|(number, file)| !is_as_wanted(&file.action, commit.file(*number).as_ref()))
        .map(|(_, file)| file.path.as_str())
}

fn is_as_wanted(action: &FileAction, entry: Option<&Entry>) -> bool {
    match (action, entry) {
        (FileAction::Delete, entry) => entry.is_none(),
        (FileAction::Write { contents }, Some(entry)) => {
            entry.kind == "blob"
                && entry.mode & KIND_BITS != SYMBOLIC_LINK
                && entry.oid == blob_id(contents, entry.oid.len())
        }
        // It is made whole before: see [`super::patch`].
        (FileAction::Write { .. } | FileAction::Patch { .. }, _) => false,
    }
}

/// What is to be changed, with the mode of what is there. Each file comes with its number in the question.
pub(super) fn changes<'a>(
    files: impl IntoIterator<Item = (usize, &'a FileChange)>,
    base: &Commit,
    place: &str,
) -> Result<Changes, ForgeError> {
    let mut changes = Changes::default();
    for (number, file) in files {
        let entry = base.file(number);
        if is_as_wanted(&file.action, entry.as_ref()) {
            continue;
        }
        if let Some(what) = entry
            .as_ref()
            .and_then(|entry| no_file(entry, &file.action))
        {
            return Err(not_a_file(&file.path, what, place));
        }
        match &file.action {
            FileAction::Patch { .. } => {}
            FileAction::Delete => changes.deletions.push(file.path.clone()),
            FileAction::Write { contents } => changes.writes.push(Write {
                path: file.path.clone(),
                contents: contents.clone(),
                mode: entry.map_or(REGULAR, |entry| entry.mode),
            }),
        }
    }
    Ok(changes)
}

/// What is there instead of a file. A link may go, but not be written to.
fn no_file(entry: &Entry, action: &FileAction) -> Option<&'static str> {
    match entry.mode & KIND_BITS {
        SUBMODULE => Some("a submodule"),
        SYMBOLIC_LINK if *action != FileAction::Delete => Some(LINK),
        _ if entry.kind != "blob" => Some("a folder"),
        _ => None,
    }
}
