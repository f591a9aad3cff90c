//! Repositories, refs and labels.

use super::git_objects::object;
use super::node::{Arguments, Item, Node, connection};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{Permission, PullRequest, PullState, Repository, node_id};
use crate::test_forge::github::operations::permission;
use crate::test_forge::github::server::Context;

/// A field of `Repository`.
pub(super) fn field(
    context: &Context,
    id: u64,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    let gone = || ApiError::not_found("Not Found");
    let repository = state.repositories.get(&id).ok_or_else(gone)?;
    if let Some(item) = plain_field(context, repository, name) {
        return Ok(Some(item));
    }
    Ok(Some(match name {
        "defaultBranchRef" => reference(
            repository,
            &format!("refs/heads/{}", repository.default_branch),
        ),
        "ref" => qualified(repository, arguments.required("qualifiedName")?),
        "refs" => refs(repository, arguments),
        "object" => match (arguments.text("expression"), arguments.text("oid")) {
            (Some(expression), _) => object(repository, expression)?,
            (None, Some(oid)) => object(repository, oid)?,
            (None, None) => Item::null(),
        },
        "pullRequest" => {
            let number = arguments.number("number").unwrap_or_default();
            let pull = repository.pulls.get(&number).ok_or_else(|| {
                ApiError::not_found(format!(
                    "Could not resolve to a PullRequest with the number of {number}."
                ))
            })?;
            Item::Object(Node::Pull(id, pull.number))
        }
        "pullRequests" => pulls(repository, arguments),
        "label" => {
            let label = repository.label(arguments.required("name")?);
            Item::optional(label.map(|label| Node::Label(id, label.id)))
        }
        "labels" => {
            let query = arguments.text("query").unwrap_or_default().to_lowercase();
            let labels = repository.labels.iter();
            let matching = labels.filter(|label| label.name.to_lowercase().contains(&query));
            let nodes = matching
                .map(|label| Item::Object(Node::Label(id, label.id)))
                .collect();
            connection("LabelConnection", nodes, arguments)
        }
        "assignableUsers" | "mentionableUsers" => {
            let query = arguments.text("query").unwrap_or_default();
            let logins = repository.permissions.keys();
            let people = logins.filter(|login| !login.ends_with("[bot]") && login.contains(query));
            let nodes = people
                .map(|login| Item::Object(Node::Account(login.clone())))
                .collect();
            connection("UserConnection", nodes, arguments)
        }
        "parent" => Item::optional(repository.parent.map(Node::Repository)),
        "owner" => Item::Object(Node::Account(repository.owner.clone())),
        _ => return Ok(None),
    }))
}

fn plain_field(context: &Context, repository: &Repository, name: &str) -> Option<Item> {
    Some(match name {
        "id" => Item::leaf(repository.node_id()),
        "databaseId" => Item::leaf(repository.id),
        "name" => Item::leaf(repository.name.clone()),
        "nameWithOwner" => Item::leaf(repository.full_name()),
        "url" => Item::leaf(format!("{}/{}", context.server.url, repository.full_name())),
        "isArchived" => Item::leaf(repository.archived),
        "isDisabled" => Item::leaf(repository.disabled),
        "isLocked" => Item::leaf(repository.locked),
        "isEmpty" => Item::leaf(repository.refs.is_empty()),
        "isFork" => Item::leaf(repository.parent.is_some()),
        "isPrivate" => Item::leaf(!repository.public),
        "autoMergeAllowed" => Item::leaf(repository.auto_merge_allowed),
        "mergeCommitAllowed" | "squashMergeAllowed" | "rebaseMergeAllowed" | "hasIssuesEnabled"
        | "hasWikiEnabled" => Item::leaf(true),
        "deleteBranchOnMerge" => Item::leaf(false),
        "description" => Item::null(),
        "viewerPermission" => match permission(&context.caller, repository) {
            Some(Permission::Read) => Item::leaf("READ"),
            Some(Permission::Write) => Item::leaf("WRITE"),
            Some(Permission::Admin) => Item::leaf("ADMIN"),
            None => Item::null(),
        },
        _ => return None,
    })
}

/// A ref by a name that may be short, as GitHub takes it.
fn qualified(repository: &Repository, name: &str) -> Item {
    let names = [
        name.to_owned(),
        format!("refs/heads/{name}"),
        format!("refs/tags/{name}"),
        format!("refs/{name}"),
    ];
    let found = names
        .iter()
        .find(|name| repository.refs.contains_key(*name));
    found.map_or_else(Item::null, |name| reference(repository, name))
}

fn reference(repository: &Repository, name: &str) -> Item {
    let oid = repository.refs.get(name);
    Item::optional(oid.map(|oid| Node::Ref(repository.id, name.to_owned(), oid.clone())))
}

fn refs(repository: &Repository, arguments: &Arguments) -> Item {
    let prefix = arguments.text("refPrefix").unwrap_or_default();
    let query = arguments.text("query").unwrap_or_default();
    let matching = |name: &&String| {
        let rest = name.strip_prefix(prefix);
        rest.is_some_and(|rest| rest.contains(query))
    };
    let names = repository.refs.keys().filter(matching);
    let nodes = names.map(|name| reference(repository, name)).collect();
    connection("RefConnection", nodes, arguments)
}

fn pulls(repository: &Repository, arguments: &Arguments) -> Item {
    let states = arguments.texts("states");
    let labels = arguments.texts("labels");
    let matching = |pull: &&PullRequest| {
        let is = |name, value: &str| arguments.text(name).is_none_or(|wanted| wanted == value);
        let labelled = labels.as_ref().is_none_or(|labels| {
            let mut found = labels.iter().filter_map(|name| repository.label(name));
            found.any(|label| pull.labels.contains(&label.id))
        });
        is("headRefName", &pull.head)
            && is("baseRefName", &pull.base)
            && (states.as_ref())
                .is_none_or(|states| states.iter().any(|s| s == pull.state.as_graphql()))
            && labelled
    };
    let mut found: Vec<&PullRequest> = repository.pulls.values().filter(matching).collect();
    let order = arguments.object("orderBy");
    if order.text("field") == Some("UPDATED_AT") {
        found.sort_by_key(|pull| pull.updated_at);
    }
    if order.text("direction") == Some("DESC") {
        found.reverse();
    }
    let nodes = found
        .iter()
        .map(|pull| Item::Object(Node::Pull(repository.id, pull.number)));
    connection("PullRequestConnection", nodes.collect(), arguments)
}

/// A field of `Ref`.
pub(super) fn ref_field(id: u64, ref_name: &str, oid: &str, name: &str) -> ApiResult<Option<Item>> {
    let (prefix, short) = match ref_name.rsplit_once("refs/heads/") {
        Some((_, short)) => ("refs/heads/", short),
        None => ("refs/", ref_name.trim_start_matches("refs/")),
    };
    Ok(Some(match name {
        "id" => Item::leaf(node_id("REF", &[&id.to_string(), ref_name])),
        "name" => Item::leaf(short),
        "prefix" => Item::leaf(prefix),
        "target" => Item::Object(Node::Commit(id, oid.to_owned())),
        "repository" => Item::Object(Node::Repository(id)),
        "branchProtectionRule" => Item::null(),
        _ => return Ok(None),
    }))
}

/// A field of `Label`.
pub(super) fn label_field(
    context: &Context,
    id: u64,
    label: u64,
    name: &str,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    let labels = state
        .repositories
        .get(&id)
        .map(|repository| repository.labels.iter());
    let found = labels.into_iter().flatten().find(|known| known.id == label);
    let found = found.ok_or_else(|| ApiError::not_found("Not Found"))?;
    Ok(Some(match name {
        "id" => Item::leaf(node_id("LA", &[&id.to_string(), &label.to_string()])),
        "name" => Item::leaf(found.name.clone()),
        "color" => Item::leaf(found.color.clone()),
        "description" => Item::Leaf(found.description.clone().into()),
        _ => return Ok(None),
    }))
}

/// Whether a pull request is of another repository.
pub(super) fn is_foreign(repository: u64, pull: &PullRequest) -> bool {
    pull.head_repository != repository
}

/// Whether a pull request was merged.
pub(super) fn is_merged(pull: &PullRequest) -> bool {
    pull.state == PullState::Merged
}
