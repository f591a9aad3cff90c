//! Pull requests.

use jiff::Timestamp;
use serde_json::Value;

use super::node::{Arguments, Item, Node, connection};
use super::repository::{is_foreign, is_merged};
use crate::test_forge::github::error::{ApiError, ApiResult};
use crate::test_forge::github::model::{Comment, PullRequest, PullState, Repository, node_id};
use crate::test_forge::github::server::Context;

/// A field of `PullRequest`.
pub(super) fn field(
    context: &Context,
    id: u64,
    number: u64,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    let gone = || ApiError::not_found("Not Found");
    let repository = state.repositories.get(&id).ok_or_else(gone)?;
    let pull = repository.pulls.get(&number).ok_or_else(gone)?;
    if let Some(item) = plain_field(context, repository, pull, name) {
        return Ok(Some(item));
    }
    if let Some(item) = unused_field(name, arguments) {
        return Ok(Some(item));
    }
    let account = |login: &String| Item::Object(Node::Account(login.clone()));
    Ok(Some(match name {
        "author" => account(&pull.author),
        "mergedBy" => pull.merged_by.as_ref().map_or_else(Item::null, account),
        "mergeCommit" => {
            let oid = pull.merge_commit.clone();
            Item::optional(oid.map(|oid| Node::Commit(id, oid)))
        }
        "headRepository" => {
            let head = state.repositories.get(&pull.head_repository);
            Item::optional(head.map(|head| Node::Repository(head.id)))
        }
        "headRepositoryOwner" => {
            let head = state.repositories.get(&pull.head_repository);
            Item::optional(head.map(|head| Node::Account(head.owner.clone())))
        }
        "repository" | "baseRepository" => Item::Object(Node::Repository(id)),
        "headRef" => {
            let head = state.repositories.get(&pull.head_repository);
            reference(head, &pull.head)
        }
        "baseRef" => reference(Some(repository), &pull.base),
        "labels" => {
            let labels = pull.labels.iter();
            let nodes = labels
                .map(|label| Item::Object(Node::Label(id, *label)))
                .collect();
            connection("LabelConnection", nodes, arguments)
        }
        "assignees" => connection(
            "UserConnection",
            pull.assignees.iter().map(account).collect(),
            arguments,
        ),
        "reviewRequests" => review_requests(repository, pull, arguments),
        "comments" => {
            let url = url(context, repository, pull);
            let nodes =
                (pull.comments.iter()).map(|comment| comment_item(&url, id, number, comment));
            connection("IssueCommentConnection", nodes.collect(), arguments)
        }
        "commits" => {
            let base = repository.git.merge_base(&pull.base_oid, &pull.head_oid)?;
            let mut commits = repository.git.history(&pull.head_oid, base.as_deref())?;
            commits.reverse();
            let node = |oid: String| {
                let commit = ("commit", Item::Object(Node::Commit(id, oid)));
                Item::Object(Node::Record("PullRequestCommit", vec![commit]))
            };
            connection(
                "PullRequestCommitConnection",
                commits.into_iter().map(node).collect(),
                arguments,
            )
        }
        "mergeable" => {
            let base = repository.branch(&pull.base).cloned().unwrap_or_default();
            let merges = pull.state == PullState::Open
                && repository.git.merge_tree(&base, &pull.head_oid)?.is_some();
            Item::leaf(if merges { "MERGEABLE" } else { "CONFLICTING" })
        }
        "additions" | "deletions" | "changedFiles" => size(repository, pull, name)?,
        "autoMergeRequest" => Item::optional(pull.auto_merge.as_ref().map(|login| {
            let by = Item::Object(Node::Account(login.clone()));
            Node::Record(
                "AutoMergeRequest",
                vec![
                    ("enabledBy", by),
                    ("enabledAt", Item::leaf(pull.updated_at.to_string())),
                ],
            )
        })),
        _ => return Ok(None),
    }))
}

/// How much a pull request changes.
fn size(repository: &Repository, pull: &PullRequest, name: &str) -> ApiResult<Item> {
    let git = &repository.git;
    let base = git.merge_base(&pull.base_oid, &pull.head_oid)?;
    let base = base.as_deref().unwrap_or(&pull.base_oid);
    let (files, added, removed) = git.diff_stat(base, &pull.head_oid)?;
    Ok(Item::leaf(match name {
        "additions" => added,
        "deletions" => removed,
        _ => files,
    }))
}

/// What no pull request of this forge has.
fn unused_field(name: &str, arguments: &Arguments) -> Option<Item> {
    let empty = |type_name| connection(type_name, Vec::new(), arguments);
    Some(match name {
        "reviews" | "latestReviews" => empty("PullRequestReviewConnection"),
        "projectItems" => empty("ProjectV2ItemConnection"),
        "projectCards" => empty("ProjectCardConnection"),
        "reactionGroups" => Item::List(Vec::new()),
        "milestone" | "reviewDecision" => Item::null(),
        _ => return None,
    })
}

fn plain_field(
    context: &Context,
    repository: &Repository,
    pull: &PullRequest,
    name: &str,
) -> Option<Item> {
    let time = |time: Option<Timestamp>| {
        let text = |time: Timestamp| time.round(jiff::Unit::Second).unwrap_or(time).to_string();
        Item::Leaf(time.map_or(Value::Null, |time| text(time).into()))
    };
    let parts = [repository.id.to_string(), pull.number.to_string()];
    Some(match name {
        "id" => Item::leaf(node_id("PR", &[&parts[0], &parts[1]])),
        "databaseId" => Item::leaf(pull.id),
        "number" => Item::leaf(pull.number),
        "url" => Item::leaf(url(context, repository, pull)),
        "title" => Item::leaf(pull.title.clone()),
        "body" => Item::leaf(pull.body.clone()),
        "state" => Item::leaf(pull.state.as_graphql()),
        "merged" => Item::leaf(is_merged(pull)),
        "closed" => Item::leaf(pull.state != PullState::Open),
        "isDraft" => Item::leaf(pull.draft),
        "mergeStateStatus" if pull.state == PullState::Open => Item::leaf("CLEAN"),
        "mergeStateStatus" => Item::leaf("UNKNOWN"),
        "locked" | "isInMergeQueue" | "isMergeQueueEnabled" => Item::leaf(false),
        "createdAt" => time(Some(pull.created_at)),
        "updatedAt" => time(Some(pull.updated_at)),
        "closedAt" => time(pull.closed_at),
        "mergedAt" => time(pull.closed_at.filter(|_| is_merged(pull))),
        "headRefName" => Item::leaf(pull.head.clone()),
        "headRefOid" => Item::leaf(pull.head_oid.clone()),
        "baseRefName" => Item::leaf(pull.base.clone()),
        "baseRefOid" => Item::leaf(pull.base_oid.clone()),
        "isCrossRepository" => Item::leaf(is_foreign(repository.id, pull)),
        "maintainerCanModify" => Item::leaf(pull.maintainer_can_modify),
        _ => return None,
    })
}

/// The address of a pull request for people.
pub(super) fn url(context: &Context, repository: &Repository, pull: &PullRequest) -> String {
    let number = pull.number;
    format!(
        "{}/{}/pull/{number}",
        context.server.url,
        repository.full_name()
    )
}

fn reference(repository: Option<&Repository>, branch: &str) -> Item {
    let found = repository.and_then(|repository| {
        let oid = repository.branch(branch)?.clone();
        Some(Node::Ref(
            repository.id,
            format!("refs/heads/{branch}"),
            oid,
        ))
    });
    Item::optional(found)
}

fn review_requests(repository: &Repository, pull: &PullRequest, arguments: &Arguments) -> Item {
    let people = pull
        .reviewers
        .iter()
        .map(|login| Node::Account(login.clone()));
    let teams = pull.team_reviewers.iter();
    let teams = teams.map(|slug| Node::Team(repository.owner.clone(), slug.clone()));
    let request = |reviewer| {
        let reviewer = ("requestedReviewer", Item::Object(reviewer));
        Item::Object(Node::Record("ReviewRequest", vec![reviewer]))
    };
    let nodes = people.chain(teams).map(request).collect();
    connection("ReviewRequestConnection", nodes, arguments)
}

/// The comment that was written last.
pub(super) fn last_comment(context: &Context, id: u64, number: u64) -> ApiResult<Item> {
    let state = context.server.now();
    let gone = || ApiError::not_found("Not Found");
    let repository = state.repositories.get(&id).ok_or_else(gone)?;
    let pull = repository.pulls.get(&number).ok_or_else(gone)?;
    let comment = pull.comments.last().ok_or_else(gone)?;
    Ok(comment_item(
        &url(context, repository, pull),
        id,
        number,
        comment,
    ))
}

/// A comment.
pub(super) fn comment_item(pull_url: &str, id: u64, number: u64, comment: &Comment) -> Item {
    let parts = [id.to_string(), number.to_string(), comment.id.to_string()];
    let node = node_id("IC", &[&parts[0], &parts[1], &parts[2]]);
    Item::Object(Node::Record(
        "IssueComment",
        vec![
            ("id", Item::leaf(node)),
            ("databaseId", Item::leaf(comment.id)),
            (
                "url",
                Item::leaf(format!("{pull_url}#issuecomment-{}", comment.id)),
            ),
            ("body", Item::leaf(comment.body.clone())),
            ("createdAt", Item::leaf(comment.created_at.to_string())),
            (
                "author",
                Item::Object(Node::Account(comment.author.clone())),
            ),
        ],
    ))
}
