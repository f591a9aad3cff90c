//! What callers do with repositories, the same for GraphQL and REST: each looks at rights and rules first, then changes
//! git, then the state.

pub(super) mod commits;
pub(super) mod people;
pub(super) mod pulls;
pub(super) mod refs;

use super::auth::Caller;
use super::error::{ApiError, ApiResult, Kind};
use super::model::{Account, Permission, Protection, Repository, State};

/// What the caller may do with a repository.
pub(super) fn permission(caller: &Caller, repository: &Repository) -> Option<Permission> {
    let granted = (caller.login()).and_then(|login| repository.permissions.get(login).copied());
    granted.or_else(|| repository.public.then_some(Permission::Read))
}

/// A repository by its name, if the caller may know of it.
pub(super) fn find<'s>(
    state: &'s State,
    caller: &Caller,
    owner: &str,
    name: &str,
    follow: bool,
) -> ApiResult<&'s Repository> {
    state
        .repository(owner, name, follow)
        .filter(|repository| permission(caller, repository).is_some())
        .ok_or_else(|| ApiError::no_repository(owner, name))
}

/// A repository by its number, if the caller may know of it.
pub(super) fn find_by_id<'s>(
    state: &'s State,
    caller: &Caller,
    id: u64,
    node_id: &str,
) -> ApiResult<&'s Repository> {
    state
        .repositories
        .get(&id)
        .filter(|repository| permission(caller, repository).is_some())
        .ok_or_else(|| ApiError::no_node(node_id))
}

/// The repository, to change it, if the caller may.
pub(super) fn writable<'s>(
    state: &'s mut State,
    caller: &Caller,
    id: u64,
) -> ApiResult<&'s mut Repository> {
    let repository = state
        .repositories
        .get_mut(&id)
        .ok_or_else(|| ApiError::not_found("Not Found"))?;
    match permission(caller, repository) {
        None => return Err(ApiError::not_found("Not Found")),
        Some(Permission::Read) => return Err(ApiError::new(Kind::Forbidden, caller.refusal())),
        Some(Permission::Write | Permission::Admin) => {}
    }
    if repository.archived {
        // cli/cli#14242, actions-automation/manage-your-labels#4: UNPROCESSABLE in GraphQL; REST says 403.
        return Err(ApiError::unprocessable(
            "Repository was archived so is read-only",
        ));
    }
    Ok(repository)
}

/// The account that acts.
pub(super) fn actor<'s>(state: &'s State, caller: &Caller) -> ApiResult<&'s Account> {
    caller
        .login()
        .and_then(|login| state.account(login))
        .ok_or_else(|| ApiError::new(Kind::Forbidden, caller.refusal()))
}

/// Refuses what a rule is against.
pub(super) fn check_rules(repository: &Repository, branch: &str) -> ApiResult<()> {
    let Some(rule) = repository.rules.iter().find(|rule| rule.covers(branch)) else {
        return Ok(());
    };
    Err(match rule.protection {
        Protection::Branch => ApiError::new(Kind::BranchProtection, rule.message.clone()),
        Protection::Ruleset => ApiError::unprocessable(format!(
            "Repository rule violations found\n\n{}\n\n",
            rule.message
        )),
    })
}
