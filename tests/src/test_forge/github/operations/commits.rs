//! Commits that the forge itself makes: `createCommitOnBranch`.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{actor, check_rules, refs, writable};
use crate::test_forge::git::{Change, EXECUTABLE, GitRepository, PLAIN, Signature};
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::model::State;

/// A commit that is to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewCommit {
    /// Name of the branch.
    pub branch: String,
    /// Tip that the branch must have.
    pub expected_head: String,
    /// First line of the message.
    pub headline: String,
    /// The rest of it.
    pub body: String,
    /// Paths with contents in base64.
    pub additions: Vec<(String, String)>,
    /// Paths.
    pub deletions: Vec<String>,
    /// Whether a file that may be run stays so.
    pub keeps_modes: bool,
}

/// Who commits what the forge makes.
pub(crate) fn web_flow() -> Signature {
    Signature::new("GitHub", "noreply@github.com")
}

/// Commits to a branch as the caller, and gives the new tip.
pub(crate) fn create(
    state: &mut State,
    caller: &Caller,
    id: u64,
    new: &NewCommit,
) -> ApiResult<String> {
    let author = actor(state, caller)?.signature();
    let repository = writable(state, caller, id)?;
    let Some(head) = repository.branch(&new.branch).cloned() else {
        return Err(ApiError::not_found(format!(
            "Could not resolve to a Ref with the name 'refs/heads/{}'.",
            new.branch
        )));
    };
    if head != new.expected_head {
        // Word for word, two spaces included: ministryofjustice/modernisation-platform#11985.
        return Err(ApiError::new(
            Kind::StaleData,
            format!(
                "Expected branch to point to \"{}\" but it did not.  Pull and try again.",
                new.expected_head
            ),
        ));
    }
    check_rules(repository, &new.branch)?;
    if new.headline.is_empty() {
        return Err(ApiError::unprocessable(
            "A commit message headline is required",
        ));
    }
    let changes = changes(&repository.git, &head, new)?;
    let tree = repository.git.write_tree(Some(&head), &changes)?;
    let message = if new.body.is_empty() {
        new.headline.clone()
    } else {
        format!("{}\n\n{}", new.headline, new.body)
    };
    let commit = (repository.git).write_commit(&tree, &[head], &message, &author, &web_flow())?;
    let name = format!("refs/heads/{}", new.branch);
    refs::set(state, id, &name, &commit)?;
    Ok(commit)
}

fn changes(git: &GitRepository, head: &str, new: &NewCommit) -> ApiResult<Vec<Change>> {
    let mut seen = BTreeSet::new();
    let paths = new
        .additions
        .iter()
        .map(|(path, _)| path)
        .chain(&new.deletions);
    for path in paths {
        check_path(path)?;
        if !seen.insert(path) {
            return Err(ApiError::unprocessable(format!(
                "The path \"{path}\" is given more than once"
            )));
        }
    }
    let mut changes = Vec::new();
    for path in &new.deletions {
        if git
            .entry(head, path)?
            .is_none_or(|entry| entry.kind == "tree")
        {
            return Err(ApiError::unprocessable(format!(
                "A path was requested for deletion which does not exist as of commit oid `{head}`"
            )));
        }
        changes.push(Change::Delete { path: path.clone() });
    }
    for (path, contents) in &new.additions {
        let content = STANDARD.decode(contents).map_err(|error| {
            ApiError::unprocessable(format!("The contents of \"{path}\" are no base64: {error}"))
        })?;
        let mode = if new.keeps_modes {
            mode_of(git, head, path)?
        } else {
            PLAIN.to_owned()
        };
        let oid = git.write_blob(&content)?;
        changes.push(Change::Put {
            path: path.clone(),
            mode,
            oid,
        });
    }
    Ok(changes)
}

/// The mode of a file, if it stays as it was.
fn mode_of(git: &GitRepository, head: &str, path: &str) -> ApiResult<String> {
    let mode = git.entry(head, path)?.map(|entry| entry.mode);
    Ok(match mode.as_deref() {
        Some(EXECUTABLE) => EXECUTABLE,
        _ => PLAIN,
    }
    .to_owned())
}

/// Refuses what git cannot have as a path.
pub(crate) fn check_path(path: &str) -> ApiResult<()> {
    let part_is_bad = |part: &str| {
        part.is_empty() || part == "." || part == ".." || part.eq_ignore_ascii_case(".git")
    };
    if path.contains('\0') || path.split('/').any(part_is_bad) {
        return Err(ApiError::unprocessable(format!(
            "path contains a malformed path component: {path}"
        )));
    }
    Ok(())
}
