//! The root of mutations. Each field is done by itself: one that fails leaves those before it done, and those after it
//! are still tried.

use std::sync::atomic::Ordering;

use super::node::{Arguments, Item, Node};
use super::{pull as pull_fields, query};
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::model::State;
use crate::test_forge::github::operations::commits::{self, NewCommit};
use crate::test_forge::github::operations::pulls::{self, MergeMethod, NewPull, Update};
use crate::test_forge::github::operations::{find, people, refs};
use crate::test_forge::github::server::Context;

/// A field of `Mutation`.
pub(super) fn field(
    context: &Context,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let input = arguments.object("input");
    let done = match name {
        "createRef" | "updateRef" | "deleteRef" | "createCommitOnBranch" => {
            change_git(context, name, &input)
        }
        "createPullRequest" => create_pull(context, &input),
        "updatePullRequest"
        | "closePullRequest"
        | "reopenPullRequest"
        | "convertPullRequestToDraft"
        | "markPullRequestReadyForReview"
        | "mergePullRequest"
        | "enablePullRequestAutoMerge" => change_pull(context, name, &input),
        "addPullRequestReview" => add_review(context, &input),
        "addComment"
        | "addLabelsToLabelable"
        | "createLabel"
        | "addAssigneesToAssignable"
        | "requestReviews"
        | "requestReviewsByLogin" => change_people(context, name, &input),
        _ => return Ok(None),
    };
    done.map(Some)
}

/// The payload of a mutation.
fn payload(
    type_name: &'static str,
    input: &Arguments,
    mut fields: Vec<(&'static str, Item)>,
) -> Item {
    let id = input.text("clientMutationId").map(str::to_owned);
    fields.push(("clientMutationId", Item::Leaf(id.into())));
    Item::Object(Node::Record(type_name, fields))
}

fn change_git(context: &Context, name: &str, input: &Arguments) -> ApiResult<Item> {
    let caller = &context.caller;
    match name {
        "createRef" => {
            let (ref_name, oid) = (input.required("name")?, input.required("oid")?);
            let id = context.server.change(|state| {
                let id = repository(context, state, input.required("repositoryId")?)?;
                refs::create(state, caller, id, ref_name, oid).map(|()| id)
            })?;
            let node = Node::Ref(id, ref_name.to_owned(), oid.to_owned());
            Ok(payload(
                "CreateRefPayload",
                input,
                vec![("ref", Item::Object(node))],
            ))
        }
        "updateRef" => {
            let oid = input.required("oid")?;
            let force = input.flag("force").unwrap_or(false);
            let (id, ref_name) = context.server.change(|state| {
                let (id, ref_name) = reference(context, state, input.required("refId")?)?;
                refs::update(state, caller, id, &ref_name, oid, force).map(|()| (id, ref_name))
            })?;
            let node = Node::Ref(id, ref_name, oid.to_owned());
            Ok(payload(
                "UpdateRefPayload",
                input,
                vec![("ref", Item::Object(node))],
            ))
        }
        "deleteRef" => {
            context.server.change(|state| {
                let (id, ref_name) = reference(context, state, input.required("refId")?)?;
                refs::delete(state, caller, id, &ref_name)
            })?;
            Ok(payload("DeleteRefPayload", input, Vec::new()))
        }
        _ => create_commit(context, input),
    }
}

fn create_commit(context: &Context, input: &Arguments) -> ApiResult<Item> {
    let (branch, message) = (input.object("branch"), input.object("message"));
    let files = input.object("fileChanges");
    let text = |arguments: &Arguments, name| arguments.text(name).unwrap_or_default().to_owned();
    let mut new = NewCommit {
        branch: text(&branch, "branchName"),
        expected_head: text(input, "expectedHeadOid"),
        headline: text(&message, "headline"),
        body: text(&message, "body"),
        additions: (files.objects("additions").iter())
            .map(|file| (text(file, "path"), text(file, "contents")))
            .collect(),
        deletions: (files.objects("deletions").iter())
            .map(|file| text(file, "path"))
            .collect(),
        keeps_modes: context.server.keeps_modes.load(Ordering::Relaxed),
    };
    let (id, oid) = context.server.change(|state| {
        let id = if let Some(id) = branch.text("id") {
            let (id, ref_name) = reference(context, state, id)?;
            refs::branch_of(&ref_name)
                .unwrap_or_default()
                .clone_into(&mut new.branch);
            id
        } else {
            let full = branch.required("repositoryNameWithOwner")?;
            let (owner, name) = full.split_once('/').unwrap_or((full, ""));
            find(state, &context.caller, owner, name, true)?.id
        };
        let oid = commits::create(state, &context.caller, id, &new)?;
        Ok((id, oid))
    })?;
    let ref_name = format!("refs/heads/{}", new.branch);
    let fields = vec![
        ("commit", Item::Object(Node::Commit(id, oid.clone()))),
        ("ref", Item::Object(Node::Ref(id, ref_name, oid))),
    ];
    Ok(payload("CreateCommitOnBranchPayload", input, fields))
}

fn create_pull(context: &Context, input: &Arguments) -> ApiResult<Item> {
    let made = context.server.change(|state| {
        let id = repository(context, state, input.required("repositoryId")?)?;
        let head = input.text("headRepositoryId");
        let head = head
            .map(|head| repository(context, state, head))
            .transpose()?;
        let new = NewPull {
            base: input.required("baseRefName")?.to_owned(),
            head: input.required("headRefName")?.to_owned(),
            head_repository: head,
            title: input.required("title")?.to_owned(),
            body: input.text("body").unwrap_or_default().to_owned(),
            draft: input.flag("draft").unwrap_or(false),
            maintainer_can_modify: input.flag("maintainerCanModify").unwrap_or(true),
        };
        let number = pulls::create(state, &context.caller, id, &new)?;
        Ok((id, number))
    });
    match made {
        Ok((id, number)) => {
            let node = Item::Object(Node::Pull(id, number));
            Ok(payload(
                "CreatePullRequestPayload",
                input,
                vec![("pullRequest", node)],
            ))
        }
        // What is wrong with the pull request itself comes beside a payload without one: wso2/mi-vscode#1608 shows it.
        Err(error) if error.kind == Kind::Unprocessable && !error.message.contains("archived") => {
            let fields = vec![
                ("pullRequest", Item::null()),
                ("clientMutationId", Item::null()),
            ];
            Ok(Item::Failed(
                error,
                Node::Record("CreatePullRequestPayload", fields),
            ))
        }
        Err(error) => Err(error),
    }
}

fn change_pull(context: &Context, name: &str, input: &Arguments) -> ApiResult<Item> {
    let caller = &context.caller;
    let (id, number) = context.server.change(|state| {
        let (id, number) = pull_request(context, state, input.required("pullRequestId")?)?;
        let text = |name| input.text(name).map(str::to_owned);
        let mut update = Update::default();
        match name {
            "mergePullRequest" => {
                let expected = input.text("expectedHeadOid");
                let method = method(input.text("mergeMethod"));
                return pulls::merge(state, caller, id, number, method, expected)
                    .map(|_| (id, number));
            }
            "enablePullRequestAutoMerge" => {
                return pulls::enable_auto_merge(state, caller, id, number).map(|()| (id, number));
            }
            "closePullRequest" => update.open = Some(false),
            "reopenPullRequest" => update.open = Some(true),
            "convertPullRequestToDraft" => update.draft = Some(true),
            "markPullRequestReadyForReview" => update.draft = Some(false),
            _ => {
                update.title = text("title");
                update.body = text("body");
                update.base = text("baseRefName");
                update.open = input.text("state").map(|state| state == "OPEN");
                if let Some(wanted) = input.texts("labelIds") {
                    update.labels = Some(labels(context, state, id, &wanted)?);
                }
            }
        }
        pulls::update(state, caller, id, number, &update).map(|()| (id, number))
    })?;
    let type_name = match name {
        "updatePullRequest" => "UpdatePullRequestPayload",
        "closePullRequest" => "ClosePullRequestPayload",
        "reopenPullRequest" => "ReopenPullRequestPayload",
        "convertPullRequestToDraft" => "ConvertPullRequestToDraftPayload",
        "markPullRequestReadyForReview" => "MarkPullRequestReadyForReviewPayload",
        "mergePullRequest" => "MergePullRequestPayload",
        _ => "EnablePullRequestAutoMergePayload",
    };
    let actor = caller.login().map(|login| Node::Account(login.to_owned()));
    let fields = vec![
        ("pullRequest", Item::Object(Node::Pull(id, number))),
        ("actor", Item::optional(actor)),
    ];
    Ok(payload(type_name, input, fields))
}

/// The method of a merge by its name.
pub(crate) fn method(name: Option<&str>) -> MergeMethod {
    match name {
        Some("SQUASH" | "squash") => MergeMethod::Squash,
        Some("REBASE" | "rebase") => MergeMethod::Rebase,
        _ => MergeMethod::Merge,
    }
}

fn change_people(context: &Context, name: &str, input: &Arguments) -> ApiResult<Item> {
    let caller = &context.caller;
    match name {
        "createLabel" => {
            let (id, label) = context.server.change(|state| {
                let id = repository(context, state, input.required("repositoryId")?)?;
                let (name, color) = (input.required("name")?, input.required("color")?);
                let description = input.text("description");
                let label = people::create_label(state, caller, id, name, color, description)?;
                Ok((id, label))
            })?;
            let node = Item::Object(Node::Label(id, label));
            Ok(payload("CreateLabelPayload", input, vec![("label", node)]))
        }
        "addComment" => {
            let body = input.required("body")?;
            let (id, number) = context.server.change(|state| {
                let (id, number) = pull_request(context, state, input.required("subjectId")?)?;
                people::add_comment(state, caller, id, number, body)?;
                Ok((id, number))
            })?;
            let node = pull_fields::last_comment(context, id, number)?;
            let edge = Node::Record(
                "IssueCommentEdge",
                vec![("cursor", Item::leaf("")), ("node", node)],
            );
            let subject = ("subject", Item::Object(Node::Pull(id, number)));
            Ok(payload(
                "AddCommentPayload",
                input,
                vec![("commentEdge", Item::Object(edge)), subject],
            ))
        }
        "addLabelsToLabelable" => {
            let (id, number) = context.server.change(|state| {
                let (id, number) = pull_request(context, state, input.required("labelableId")?)?;
                let wanted = input.texts("labelIds").unwrap_or_default();
                let labels = labels(context, state, id, &wanted)?;
                people::add_labels(state, caller, id, number, &labels).map(|()| (id, number))
            })?;
            let node = ("labelable", Item::Object(Node::Pull(id, number)));
            Ok(payload("AddLabelsToLabelablePayload", input, vec![node]))
        }
        "addAssigneesToAssignable" => {
            let (id, number) = context.server.change(|state| {
                let (id, number) = pull_request(context, state, input.required("assignableId")?)?;
                let logins = logins(
                    context,
                    state,
                    &input.texts("assigneeIds").unwrap_or_default(),
                )?;
                people::add_assignees(state, caller, id, number, &logins).map(|()| (id, number))
            })?;
            let node = ("assignable", Item::Object(Node::Pull(id, number)));
            Ok(payload(
                "AddAssigneesToAssignablePayload",
                input,
                vec![node],
            ))
        }
        _ => request_reviews(context, name, input),
    }
}

fn add_review(context: &Context, input: &Arguments) -> ApiResult<Item> {
    let state = context.state();
    let (id, number) = pull_request(context, &state, input.required("pullRequestId")?)?;
    let event = input.text("event").unwrap_or_default();
    let pull = pulls::look(&state, id, number)?;
    people::may_review(&context.caller, pull, event)?;
    let node = ("pullRequest", Item::Object(Node::Pull(id, number)));
    Ok(payload("AddPullRequestReviewPayload", input, vec![node]))
}

fn request_reviews(context: &Context, name: &str, input: &Arguments) -> ApiResult<Item> {
    let by_login = name == "requestReviewsByLogin";
    let (id, number) = context.server.change(|state| {
        let (id, number) = pull_request(context, state, input.required("pullRequestId")?)?;
        let list = |name| input.texts(name).unwrap_or_default();
        let (people, teams) = if by_login {
            // `organization/slug`, or the slug alone.
            let slug = |team: &String| team.rsplit('/').next().unwrap_or_default().to_owned();
            (
                list("userLogins"),
                list("teamSlugs").iter().map(slug).collect(),
            )
        } else {
            let mut slugs = Vec::new();
            for team in list("teamIds") {
                match query::node(state, &context.caller, &team)? {
                    Node::Team(_, slug) => slugs.push(slug),
                    _ => return Err(ApiError::no_node(&team)),
                }
            }
            (logins(context, state, &list("userIds"))?, slugs)
        };
        let (caller, teams): (_, Vec<String>) = (&context.caller, teams);
        people::request_reviews(state, caller, id, number, &people, &teams).map(|()| (id, number))
    })?;
    let type_name = if by_login {
        "RequestReviewsByLoginPayload"
    } else {
        "RequestReviewsPayload"
    };
    let node = ("pullRequest", Item::Object(Node::Pull(id, number)));
    Ok(payload(type_name, input, vec![node]))
}

fn labels(context: &Context, state: &State, of: u64, ids: &[String]) -> ApiResult<Vec<u64>> {
    let label = |id: &String| match query::node(state, &context.caller, id)? {
        Node::Label(repository, label) if repository == of => Ok(label),
        _ => Err(ApiError::no_node(id)),
    };
    ids.iter().map(label).collect()
}

fn logins(context: &Context, state: &State, ids: &[String]) -> ApiResult<Vec<String>> {
    let login = |id: &String| match query::node(state, &context.caller, id)? {
        Node::Account(login) => Ok(login),
        _ => Err(ApiError::no_node(id)),
    };
    ids.iter().map(login).collect()
}

fn repository(context: &Context, state: &State, node_id: &str) -> ApiResult<u64> {
    match query::node(state, &context.caller, node_id)? {
        Node::Repository(id) => Ok(id),
        _ => Err(ApiError::no_node(node_id)),
    }
}

fn reference(context: &Context, state: &State, node_id: &str) -> ApiResult<(u64, String)> {
    match query::node(state, &context.caller, node_id)? {
        Node::Ref(id, name, _) => Ok((id, name)),
        _ => Err(ApiError::no_node(node_id)),
    }
}

fn pull_request(context: &Context, state: &State, node_id: &str) -> ApiResult<(u64, u64)> {
    match query::node(state, &context.caller, node_id)? {
        Node::Pull(id, number) => Ok((id, number)),
        _ => Err(ApiError::no_node(node_id)),
    }
}
