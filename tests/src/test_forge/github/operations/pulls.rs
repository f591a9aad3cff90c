//! Pull requests.

use jiff::Timestamp;

use super::commits::web_flow;
use super::{actor, find_by_id, permission, refs, writable};
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::model::{Permission, PullRequest, PullState, Repository, State};

/// A pull request that is to be opened.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewPull {
    /// Branch that it goes to.
    pub base: String,
    /// `branch` or `owner:branch`.
    pub head: String,
    /// Repository of the head, if it is named.
    pub head_repository: Option<u64>,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Whether it is a draft.
    pub draft: bool,
    /// Whether people of the base may push to the head of a fork.
    pub maintainer_can_modify: bool,
}

/// Opens a pull request and gives its number.
pub(crate) fn create(state: &mut State, caller: &Caller, id: u64, new: &NewPull) -> ApiResult<u64> {
    let author = actor(state, caller)?.login.clone();
    let (head_repository, branch) = head_of(state, caller, id, new)?;
    let head_git = head_repository.git.clone();
    let head_oid = head_repository.branch(&branch).cloned();
    let head_owner = head_repository.owner.clone();
    let source_id = head_repository.id;
    let repository = pull_target(state, caller, id)?;
    let base_oid = repository.branch(&new.base).cloned();
    let mut problems = Vec::new();
    if head_oid.is_none() {
        problems.push("Head sha can't be blank".to_owned());
    }
    if base_oid.is_none() {
        problems.push("Base sha can't be blank".to_owned());
    }
    if let (Some(head), Some(base)) = (&head_oid, &base_oid) {
        if source_id != id {
            repository.git.take_objects_of(&head_git)?;
        }
        if repository.git.history(head, Some(base))?.is_empty() {
            problems.push(format!("No commits between {} and {}", new.base, new.head));
        }
    } else {
        problems.push(format!("No commits between {} and {}", new.base, new.head));
    }
    if head_oid.is_none() {
        problems.push("Head ref must be a branch".to_owned());
    }
    if base_oid.is_none() {
        problems.push("Base ref must be a branch".to_owned());
    }
    let same = |pull: &&PullRequest| {
        pull.state == PullState::Open
            && (pull.head_repository, &pull.head, &pull.base) == (source_id, &branch, &new.base)
    };
    if repository.pulls.values().any(|pull| same(&pull)) {
        problems.push(format!(
            "A pull request already exists for {head_owner}:{branch}."
        ));
    }
    let (Some(head_oid), Some(base_oid), []) = (head_oid, base_oid, &problems[..]) else {
        return Err(ApiError::unprocessable(problems.join(", ")));
    };
    let number = repository.next_number;
    repository.next_number += 1;
    let now = Timestamp::now();
    let pull = PullRequest {
        id: 0,
        number,
        title: new.title.clone(),
        body: new.body.clone(),
        state: PullState::Open,
        draft: new.draft,
        base: new.base.clone(),
        base_oid,
        head: branch,
        head_repository: source_id,
        head_oid,
        merge_commit: None,
        author,
        created_at: now,
        updated_at: now,
        closed_at: None,
        merged_by: None,
        labels: Vec::new(),
        assignees: Vec::new(),
        reviewers: Vec::new(),
        team_reviewers: Vec::new(),
        comments: Vec::new(),
        auto_merge: None,
        maintainer_can_modify: new.maintainer_can_modify && source_id != id,
    };
    repository.pulls.insert(number, pull);
    let pull_id = state.next_id();
    let pull = get(state, id, number)?;
    pull.id = pull_id;
    Ok(number)
}

/// The repository and the branch of the head.
fn head_of<'s>(
    state: &'s State,
    caller: &Caller,
    id: u64,
    new: &NewPull,
) -> ApiResult<(&'s Repository, String)> {
    let base = find_by_id(state, caller, id, "")?;
    if let Some(head) = new.head_repository {
        return Ok((find_by_id(state, caller, head, "")?, new.head.clone()));
    }
    let Some((owner, branch)) = new.head.split_once(':') else {
        return Ok((base, new.head.clone()));
    };
    if owner.eq_ignore_ascii_case(&base.owner) {
        return Ok((base, branch.to_owned()));
    }
    let root = base.parent.unwrap_or(id);
    let of_owner = |repository: &&Repository| {
        repository.owner.eq_ignore_ascii_case(owner)
            && (repository.id == root || repository.parent == Some(root))
            && permission(caller, repository).is_some()
    };
    let fork = state.repositories.values().find(of_owner);
    Ok((
        fork.ok_or_else(|| ApiError::unprocessable("Head ref must be a branch"))?,
        branch.to_owned(),
    ))
}

/// People may open pull requests wherever they may read; an App needs the right to write them.
fn pull_target<'s>(
    state: &'s mut State,
    caller: &Caller,
    id: u64,
) -> ApiResult<&'s mut Repository> {
    let may_read = (state.repositories.get(&id))
        .is_some_and(|repository| permission(caller, repository) == Some(Permission::Read));
    if may_read && matches!(caller, Caller::User { .. }) {
        let repository = state.repositories.get_mut(&id);
        let repository = repository.ok_or_else(|| ApiError::not_found("Not Found"))?;
        if repository.archived {
            return Err(ApiError::unprocessable(
                "Repository was archived so is read-only",
            ));
        }
        return Ok(repository);
    }
    writable(state, caller, id)
}

/// What an update of a pull request may change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Update {
    /// Title.
    pub title: Option<String>,
    /// Text.
    pub body: Option<String>,
    /// Branch that it goes to.
    pub base: Option<String>,
    /// Whether it is open.
    pub open: Option<bool>,
    /// Whether it is a draft.
    pub draft: Option<bool>,
    /// Numbers of all labels that it has from now on.
    pub labels: Option<Vec<u64>>,
}

/// Changes a pull request.
pub(crate) fn update(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    update: &Update,
) -> ApiResult<()> {
    let repository = writable(state, caller, id)?;
    if let Some(base) = &update.base
        && repository.branch(base).is_none()
    {
        return Err(ApiError::unprocessable(
            "Proposed base branch was not found",
        ));
    }
    if let Some(open) = update.open {
        set_open(state, id, number, open)?;
    }
    let pull = get(state, id, number)?;
    let fields = [
        (&update.title, &mut pull.title),
        (&update.body, &mut pull.body),
        (&update.base, &mut pull.base),
    ];
    for (new, field) in fields {
        if let Some(new) = new {
            field.clone_from(new);
        }
    }
    if let Some(draft) = update.draft {
        pull.draft = draft;
    }
    if let Some(labels) = &update.labels {
        pull.labels.clone_from(labels);
    }
    pull.updated_at = Timestamp::now();
    Ok(())
}

/// Opens or closes a pull request.
fn set_open(state: &mut State, id: u64, number: u64, open: bool) -> ApiResult<()> {
    let pull = get(state, id, number)?.clone();
    match (pull.state, open) {
        (PullState::Merged, true) => {
            return Err(ApiError::unprocessable("Pull request was already merged"));
        }
        (PullState::Open, true) | (PullState::Closed | PullState::Merged, false) => return Ok(()),
        (PullState::Open, false) => {
            let pull = get(state, id, number)?;
            pull.state = PullState::Closed;
            pull.closed_at = Some(Timestamp::now());
            return Ok(());
        }
        (PullState::Closed, true) => {}
    }
    let tip = (state.repositories.get(&pull.head_repository))
        .and_then(|repository| repository.branch(&pull.head).cloned())
        .ok_or_else(|| {
            ApiError::unprocessable("Could not open the pull request: its branch is gone.")
        })?;
    let own = get(state, id, number)?;
    own.state = PullState::Open;
    own.closed_at = None;
    own.head_oid = tip;
    Ok(())
}

/// How a merge is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MergeMethod {
    /// A commit with two parents.
    Merge,
    /// One commit with everything.
    Squash,
    /// The same commits once more on top of the base.
    Rebase,
}

/// Merges a pull request and gives the new commit. The branch of the head stays.
pub(crate) fn merge(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
    method: MergeMethod,
    expected_head: Option<&str>,
) -> ApiResult<String> {
    let who = actor(state, caller)?.clone();
    let repository = writable(state, caller, id)?;
    let pull =
        (repository.pulls.get(&number).cloned()).ok_or_else(|| ApiError::not_found("Not Found"))?;
    let refused = |message: &str| Err(ApiError::new(Kind::NotMergeable, message));
    if pull.state != PullState::Open {
        return refused("Pull Request is not mergeable");
    }
    if pull.draft {
        return refused("Pull Request is still a draft");
    }
    if expected_head.is_some_and(|expected| expected != pull.head_oid) {
        return Err(ApiError::new(
            Kind::StaleData,
            "Head branch was modified. Review and try the merge again.",
        ));
    }
    let git = repository.git.clone();
    let base = (repository.branch(&pull.base).cloned())
        .ok_or_else(|| ApiError::new(Kind::NotMergeable, "Base branch does not exist"))?;
    let Some(tree) = git.merge_tree(&base, &pull.head_oid)? else {
        return refused("Pull Request has merge conflicts");
    };
    let (title, author) = (pull.title.clone(), who.signature());
    let from = format!(
        "Merge pull request #{number} from {}/{}\n\n{title}",
        repository.owner, pull.head
    );
    let squashed = format!("{title} (#{number})");
    let both = [base.clone(), pull.head_oid.clone()];
    let commit = match method {
        MergeMethod::Merge => git.write_commit(&tree, &both, &from, &author, &web_flow())?,
        MergeMethod::Squash => git.write_commit(&tree, &[base], &squashed, &author, &web_flow())?,
        MergeMethod::Rebase => rebase(&git, &base, &pull.head_oid)?,
    };
    refs::set(state, id, &format!("refs/heads/{}", pull.base), &commit)?;
    let pull = get(state, id, number)?;
    let now = Timestamp::now();
    pull.state = PullState::Merged;
    pull.merge_commit = Some(commit.clone());
    pull.merged_by = Some(who.login);
    pull.closed_at = Some(now);
    pull.updated_at = now;
    Ok(commit)
}

/// Every commit of the head once more on top of the base.
fn rebase(
    git: &crate::test_forge::git::GitRepository,
    base: &str,
    head: &str,
) -> ApiResult<String> {
    let mut tip = base.to_owned();
    let mut commits = git.history(head, Some(base))?;
    commits.reverse();
    for oid in commits {
        let commit = git.commit(&oid)?;
        let tree = git
            .merge_tree(&tip, &oid)?
            .ok_or_else(|| ApiError::new(Kind::NotMergeable, "This branch can't be rebased"))?;
        let (message, author) = (&commit.message, &commit.author);
        tip = git.write_commit(&tree, &[tip], message, author, &web_flow())?;
    }
    Ok(tip)
}

/// Asks for a merge as soon as it is possible.
pub(crate) fn enable_auto_merge(
    state: &mut State,
    caller: &Caller,
    id: u64,
    number: u64,
) -> ApiResult<()> {
    let login = actor(state, caller)?.login.clone();
    let repository = writable(state, caller, id)?;
    if !repository.auto_merge_allowed {
        return Err(ApiError::unprocessable(
            "Auto merge is not allowed for this repository",
        ));
    }
    let rules = !repository.rules.is_empty();
    let pull = get(state, id, number)?;
    if !rules {
        // What GitHub says where nothing is required that a merge could wait for.
        return Err(ApiError::unprocessable("Pull request is in clean status"));
    }
    pull.auto_merge = Some(login);
    Ok(())
}

/// A pull request as it is.
pub(crate) fn look(state: &State, id: u64, number: u64) -> ApiResult<&PullRequest> {
    let repository = state.repositories.get(&id);
    repository
        .and_then(|repository| repository.pulls.get(&number))
        .ok_or_else(|| ApiError::not_found("Not Found"))
}

/// A pull request, to change it.
pub(crate) fn get(state: &mut State, id: u64, number: u64) -> ApiResult<&mut PullRequest> {
    let repository = state.repositories.get_mut(&id);
    repository
        .and_then(|repository| repository.pulls.get_mut(&number))
        .ok_or_else(|| ApiError::not_found("Not Found"))
}
