//! The root of queries, accounts and teams.

use serde_json::Value;

use super::node::{Arguments, Item, Node, connection};
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::limits;
use crate::test_forge::github::model::{AccountKind, State, node_id, parse_node_id};
use crate::test_forge::github::operations::{actor, find, find_by_id};
use crate::test_forge::github::server::Context;

/// A field of `Query`.
pub(super) fn field(
    context: &Context,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    Ok(Some(match name {
        "viewer" => viewer(&state, &context.caller)?,
        "rateLimit" => rate_limit(context),
        "repository" => {
            let (owner, name) = (arguments.required("owner")?, arguments.required("name")?);
            let follow = arguments.flag("followRenames").unwrap_or(true);
            let found = find(&state, &context.caller, owner, name, follow)?;
            Item::Object(Node::Repository(found.id))
        }
        "node" => Item::Object(node(&state, &context.caller, arguments.required("id")?)?),
        "nodes" => {
            let ids = arguments.texts("ids").unwrap_or_default();
            let nodes = ids
                .iter()
                .map(|id| node(&state, &context.caller, id).map(Item::Object));
            Item::List(nodes.collect::<ApiResult<_>>()?)
        }
        "user" => account(&state, arguments.required("login")?, AccountKind::User)?,
        "organization" => account(
            &state,
            arguments.required("login")?,
            AccountKind::Organization,
        )?,
        _ => return Ok(None),
    }))
}

/// Who asks. An installation is a `User` here, with its `[bot]`.
fn viewer(state: &State, caller: &Caller) -> ApiResult<Item> {
    let account = actor(state, caller)?;
    if account.kind != AccountKind::Bot {
        return Ok(Item::Object(Node::Account(account.login.clone())));
    }
    Ok(Item::Object(Node::Record(
        "User",
        vec![
            ("id", Item::leaf(account.node_id())),
            ("databaseId", Item::leaf(account.id)),
            ("login", Item::leaf(account.login.clone())),
        ],
    )))
}

fn account(state: &State, login: &str, kind: AccountKind) -> ApiResult<Item> {
    let what = match kind {
        AccountKind::Organization => "an Organization",
        AccountKind::User | AccountKind::Bot => "a User",
    };
    let found = state.account(login).filter(|account| account.kind == kind);
    let found = found.ok_or_else(|| {
        ApiError::not_found(format!(
            "Could not resolve to {what} with the login of '{login}'."
        ))
    })?;
    Ok(Item::Object(Node::Account(found.login.clone())))
}

/// What a global id stands for.
pub(super) fn node(state: &State, caller: &Caller, id: &str) -> ApiResult<Node> {
    let none = || ApiError::no_node(id);
    let (prefix, parts) = parse_node_id(id).ok_or_else(none)?;
    let number = |index: usize| -> Option<u64> { parts.get(index)?.parse().ok() };
    let text = |index: usize| parts.get(index).cloned().unwrap_or_default();
    let repository = || find_by_id(state, caller, number(0).unwrap_or_default(), id);
    Ok(match prefix.as_str() {
        "U" | "O" | "BOT" => Node::Account(state.account(&text(0)).ok_or_else(none)?.login.clone()),
        "T" => Node::Team(text(0), text(1)),
        "R" => Node::Repository(repository()?.id),
        "PR" => {
            let pull = repository()?.pulls.get(&number(1).unwrap_or_default());
            Node::Pull(repository()?.id, pull.ok_or_else(none)?.number)
        }
        "REF" => {
            let oid = repository()?.refs.get(&text(1)).ok_or_else(none)?;
            Node::Ref(repository()?.id, text(1), oid.clone())
        }
        "C" => Node::Commit(repository()?.id, text(1)),
        "LA" => {
            let wanted = number(1);
            let mut labels = repository()?.labels.iter();
            let label = labels
                .find(|label| Some(label.id) == wanted)
                .ok_or_else(none)?;
            Node::Label(repository()?.id, label.id)
        }
        _ => return Err(none()),
    })
}

fn rate_limit(context: &Context) -> Item {
    let limits = limits::current(&context.server);
    Item::Object(Node::Record(
        "RateLimit",
        vec![
            ("cost", Item::leaf(1)),
            ("limit", Item::leaf(limits.limit)),
            ("remaining", Item::leaf(limits.remaining)),
            ("used", Item::leaf(limits.used)),
            ("nodeCount", Item::leaf(0)),
            ("resetAt", Item::leaf(limits.reset.to_string())),
        ],
    ))
}

/// The type of an account.
pub(super) fn account_type(context: &Context, login: &str) -> &'static str {
    match context.state().account(login).map(|account| account.kind) {
        Some(AccountKind::Organization) => "Organization",
        Some(AccountKind::Bot) => "Bot",
        _ => "User",
    }
}

/// A field of an account.
pub(super) fn account_field(
    context: &Context,
    login: &str,
    name: &str,
    arguments: &Arguments,
) -> ApiResult<Option<Item>> {
    let state = context.state();
    let gone = || ApiError::new(Kind::Internal, format!("no account {login}"));
    let account = state.account(login).ok_or_else(gone)?;
    let bot = account.kind == AccountKind::Bot;
    Ok(Some(match name {
        "id" => Item::leaf(account.node_id()),
        "databaseId" => Item::leaf(account.id),
        // GraphQL leaves the `[bot]` out that REST has.
        "login" if bot => Item::leaf(login.trim_end_matches("[bot]")),
        "login" => Item::leaf(login),
        "name" => Item::leaf(Value::Null),
        "url" => Item::leaf(format!("{}/{login}", context.server.url)),
        "team" => {
            let slug = arguments.required("slug")?;
            let team = account.teams.iter().find(|team| *team == slug);
            Item::optional(team.map(|slug| Node::Team(login.to_owned(), slug.clone())))
        }
        "teams" => {
            let team = |slug: &String| Item::Object(Node::Team(login.to_owned(), slug.clone()));
            connection(
                "TeamConnection",
                account.teams.iter().map(team).collect(),
                arguments,
            )
        }
        _ => return Ok(None),
    }))
}

/// A field of a team.
pub(super) fn team_field(organization: &str, slug: &str, name: &str) -> ApiResult<Option<Item>> {
    Ok(Some(match name {
        "id" => Item::leaf(node_id("T", &[organization, slug])),
        "slug" | "name" => Item::leaf(slug),
        "combinedSlug" => Item::leaf(format!("{organization}/{slug}")),
        "organization" => Item::Object(Node::Account(organization.to_owned())),
        _ => return Ok(None),
    }))
}
