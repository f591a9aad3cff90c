//! Branches and other refs; pull requests follow their branches.

use jiff::Timestamp;

use super::{check_rules, writable};
use crate::test_forge::git::NO_OBJECT;
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{PullState, Repository, State};

/// Makes a ref.
pub(crate) fn create(
    state: &mut State,
    caller: &Caller,
    id: u64,
    name: &str,
    oid: &str,
) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    if !name.starts_with("refs/") || !repository.git.is_ref_name(name)? {
        return Err(ApiError::unprocessable(format!(
            "{name} is not a valid ref name."
        )));
    }
    if repository.refs.contains_key(name) {
        // From an answer that gliptak.github.io/post/github_graphql_newbranch shows.
        return Err(ApiError::unprocessable(format!(
            "A ref named \"{name}\" already exists in the repository."
        )));
    }
    let nested = |other: &String| {
        other.starts_with(&format!("{name}/")) || name.starts_with(&format!("{other}/"))
    };
    if repository.refs.keys().any(nested) {
        return Err(ApiError::unprocessable(format!(
            "The ref \"{name}\" conflicts with another ref."
        )));
    }
    if repository.git.kind(oid)?.as_deref() != Some("commit") {
        return Err(ApiError::unprocessable("Object does not exist"));
    }
    // A ruleset that wants pull requests is against pushes to a branch, and against its creation as well.
    check_rules(repository, branch_of(name).unwrap_or_default())?;
    repository.git.update_ref(name, oid, NO_OBJECT)?;
    repository.refs.insert(name.to_owned(), oid.to_owned());
    Ok(())
}

/// Moves a ref.
pub(crate) fn update(
    state: &mut State,
    caller: &Caller,
    id: u64,
    name: &str,
    oid: &str,
    force: bool,
) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    let old = repository
        .refs
        .get(name)
        .cloned()
        .ok_or_else(|| ApiError::unprocessable("Reference does not exist"))?;
    if repository.git.kind(oid)?.as_deref() != Some("commit") {
        return Err(ApiError::unprocessable("Object does not exist"));
    }
    if !force && !repository.git.is_ancestor(&old, oid)? {
        return Err(ApiError::unprocessable("Update is not a fast forward"));
    }
    check_rules(repository, branch_of(name).unwrap_or_default())?;
    set(state, id, name, oid)
}

/// Removes a ref; pull requests of the branch are closed.
pub(crate) fn delete(state: &mut State, caller: &Caller, id: u64, name: &str) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    if !repository.refs.contains_key(name) {
        return Err(ApiError::unprocessable("Reference does not exist"));
    }
    if branch_of(name) == Some(&repository.default_branch) {
        return Err(ApiError::unprocessable("Cannot delete the default branch"));
    }
    check_rules(repository, branch_of(name).unwrap_or_default())?;
    remove(state, id, name)
}

/// Moves a ref, whoever may be against it, with the pull requests of the branch.
pub(crate) fn set(state: &mut State, id: u64, name: &str, oid: &str) -> ApiResult<()> {
    let repository = get(state, id)?;
    let old = repository
        .refs
        .get(name)
        .map_or(NO_OBJECT, String::as_str)
        .to_owned();
    repository.git.update_ref(name, oid, &old)?;
    repository.refs.insert(name.to_owned(), oid.to_owned());
    let source = repository.git.clone();
    let Some(branch) = branch_of(name) else {
        return Ok(());
    };
    for target in state.repositories.values_mut() {
        let foreign = target.id != id;
        let git = target.git.clone();
        let moved = |pull: &&mut super::super::model::PullRequest| {
            pull.state == PullState::Open && pull.head_repository == id && pull.head == branch
        };
        for pull in target.pulls.values_mut().filter(moved) {
            if foreign {
                git.take_objects_of(&source)?;
            }
            oid.clone_into(&mut pull.head_oid);
            pull.updated_at = Timestamp::now();
        }
    }
    Ok(())
}

/// Removes a ref, whoever may be against it; pull requests of the branch are closed.
pub(crate) fn remove(state: &mut State, id: u64, name: &str) -> ApiResult<()> {
    let repository = get(state, id)?;
    repository.git.delete_ref(name)?;
    repository.refs.remove(name);
    let Some(branch) = branch_of(name) else {
        return Ok(());
    };
    for target in state.repositories.values_mut() {
        let own = target.id == id;
        for pull in target.pulls.values_mut() {
            let head = pull.head_repository == id && pull.head == branch;
            if pull.state == PullState::Open && (head || own && pull.base == branch) {
                pull.state = PullState::Closed;
                pull.closed_at = Some(Timestamp::now());
                pull.updated_at = Timestamp::now();
            }
        }
    }
    Ok(())
}

/// The branch that a ref is.
pub(crate) fn branch_of(name: &str) -> Option<&str> {
    name.strip_prefix("refs/heads/")
}

fn get(state: &mut State, id: u64) -> ApiResult<&mut Repository> {
    let repository = state.repositories.get_mut(&id);
    repository.ok_or_else(|| ApiError::not_found("Not Found"))
}
