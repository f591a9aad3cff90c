//! GraphQL: each document is held to the schema in `tests/fixtures/gitlab.graphql` and to GitLab's limits, then done by
//! reading git. Errors have the form of GitLab's `app/controllers/graphql_controller.rb`.

use std::sync::OnceLock;

use anyhow::{Context as _, Result, anyhow};
use apollo_compiler::resolvers::{Execution, FieldError, ObjectValue, ResolveInfo, ResolvedValue};
use apollo_compiler::response::{JsonMap, JsonValue};
use apollo_compiler::validation::Valid;
use apollo_compiler::{ExecutableDocument, Schema};
use serde_json::{Map, Value, json};

use super::answer::Answer;
use super::commits::resolve;
use super::complexity::{LIMIT, complexity};
use super::model::{MergeRequest, Project, Role, State, TokenState};
use super::request::ApiRequest;
use crate::test_forge::log::Log;

/// `MAX_QUERY_SIZE`.
const LONGEST: usize = 10_000;

/// The most that a connection gives at once.
const PAGE: usize = 100;

/// Larger contents do not come whole (`MAX_DATA_DISPLAY_SIZE`).
const LARGEST_TEXT: usize = 10 * 1024 * 1024;

/// The schema; read once in a process.
fn schema() -> Result<&'static Valid<Schema>> {
    static SCHEMA: OnceLock<Result<Valid<Schema>, String>> = OnceLock::new();
    let load = || {
        let text = include_str!("../../../fixtures/gitlab.graphql");
        Schema::parse_and_validate(text, "gitlab.graphql").map_err(|error| error.to_string())
    };
    let schema = SCHEMA.get_or_init(load).as_ref();
    schema.map_err(|error| anyhow!("{error}"))
}

/// The names of the root fields of a document.
pub(super) fn root_fields(body: &[u8]) -> Vec<String> {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let (Some(text), Ok(schema)) = (body["query"].as_str(), schema()) else {
        return Vec::new();
    };
    let Ok(document) = ExecutableDocument::parse(schema, text, "document.graphql") else {
        return Vec::new();
    };
    let operation = document.operations.get(None).ok();
    let fields = operation.map(|operation| operation.root_fields(&document));
    fields
        .into_iter()
        .flatten()
        .map(|field| field.name.to_string())
        .collect()
}

/// `POST api/graphql`.
pub(super) fn answer(state: &State, request: &ApiRequest, log: &Log) -> Result<Answer> {
    // Whoever has a token that is not good for this is told the same, whatever is wrong with it.
    let Some(caller) = caller(state, request) else {
        return Ok(refused(401, "Invalid token"));
    };
    let text = request.body["query"].as_str().unwrap_or_default();
    if text.len() > LONGEST {
        return Ok(refused(422, "Query too large"));
    }
    let document = match ExecutableDocument::parse_and_validate(schema()?, text, "document.graphql")
    {
        Ok(document) => document,
        Err(invalid) => {
            log.violation(format!("a GraphQL document is refused: {}", invalid.errors));
            let errors = invalid.errors.iter();
            let errors: Vec<Value> = errors
                .map(|error| json!({ "message": error.error.to_string() }))
                .collect();
            return Ok(Answer::ok(json!({ "errors": errors })));
        }
    };
    let no_variables = Map::new();
    let variables = request.body["variables"].as_object();
    let variables = variables.unwrap_or(&no_variables);
    let operation = document.operations.get(None);
    let operation = operation.map_err(|_| anyhow!("not one operation"))?;
    let cost = complexity(&operation.selection_set, variables);
    if cost > LIMIT {
        let text =
            format!("Query has complexity of {cost}, which exceeds max complexity of {LIMIT}");
        log.violation(text.clone());
        return Ok(Answer::ok(json!({ "errors": [{ "message": text }] })));
    }
    let variables = JsonValue::from(Value::Object(variables.clone()));
    let no_variables = JsonMap::new();
    let root = Object {
        state,
        caller,
        node: Node::Query,
    };
    let execution = Execution::new(schema()?, &document)
        .raw_variable_values(variables.as_object().unwrap_or(&no_variables))
        .execute_sync(&root);
    match execution {
        Ok(answer) => Ok(Answer::ok(serde_json::to_value(answer)?)),
        Err(error) => {
            let error = error.to_graphql_error(&document.sources);
            log.violation(format!("a GraphQL request is refused: {}", error.message));
            Ok(Answer::ok(
                json!({ "errors": [{ "message": error.message }] }),
            ))
        }
    }
}

fn refused(status: u16, message: &str) -> Answer {
    Answer::new(status, json!({ "errors": [{ "message": message }] }))
}

fn caller(state: &State, request: &ApiRequest) -> Option<u64> {
    let token = state.tokens.get(request.token.as_ref()?)?;
    let may = ["api", "read_api"]
        .iter()
        .any(|wanted| token.scopes.iter().any(|scope| scope == wanted));
    (token.state == TokenState::Active && may).then_some(token.user)
}

/// An object of the schema.
#[derive(Clone)]
enum Node {
    Query,
    Project(u64),
    Repository(u64),
    /// One whose fields are known already.
    Record(&'static str, Vec<(&'static str, Item)>),
}

/// What a field gives.
#[derive(Clone)]
enum Item {
    Leaf(Value),
    Object(Node),
    List(Vec<Node>),
}

struct Object<'s> {
    state: &'s State,
    caller: u64,
    node: Node,
}

impl ObjectValue for Object<'_> {
    fn type_name(&self) -> &str {
        match &self.node {
            Node::Query => "Query",
            Node::Project(_) => "Project",
            Node::Repository(_) => "Repository",
            Node::Record(name, _) => name,
        }
    }

    fn resolve_field<'a>(
        &'a self,
        info: &'a ResolveInfo<'a>,
    ) -> Result<ResolvedValue<'a>, FieldError> {
        let arguments = serde_json::to_value(info.arguments()).unwrap_or_default();
        let item = self
            .field(info.field_name(), &arguments)
            .map_err(|error| FieldError {
                message: format!("{error:#}"),
            })?;
        Ok(match item {
            Item::Leaf(value) => ResolvedValue::Leaf(JsonValue::from(value)),
            Item::Object(node) => ResolvedValue::object(self.with(node)),
            Item::List(nodes) => {
                let objects = nodes.into_iter().map(|node| self.with(node));
                let objects: Vec<_> = objects.map(ResolvedValue::object).collect();
                ResolvedValue::list(objects)
            }
        })
    }
}

impl<'s> Object<'s> {
    fn with(&self, node: Node) -> Object<'s> {
        Object {
            state: self.state,
            caller: self.caller,
            node,
        }
    }

    fn field(&self, name: &str, arguments: &Value) -> Result<Item> {
        match &self.node {
            Node::Query => Ok(self.project(arguments["fullPath"].as_str().unwrap_or_default())),
            Node::Project(id) => self.project_field(self.state.project(*id)?, name, arguments),
            Node::Repository(id) => repository_field(self.state.project(*id)?, name, arguments),
            Node::Record(_, fields) => {
                let found = fields.iter().find(|(field, _)| *field == name);
                let (_, item) = found.with_context(|| format!("no {}.{name}", self.type_name()))?;
                Ok(item.clone())
            }
        }
    }

    /// `full_path_model_loader.rb`: whatever the case; a path that a project had before is nobody's.
    fn project(&self, path: &str) -> Item {
        let is_meant = |project: &&Project| {
            let seen = project.public || project.role(self.caller).is_some();
            seen && project.path.eq_ignore_ascii_case(path)
        };
        let found = self.state.projects.iter().find(is_meant);
        found.map_or(Item::Leaf(Value::Null), |project| {
            Item::Object(Node::Project(project.id))
        })
    }

    fn project_field(&self, project: &Project, name: &str, arguments: &Value) -> Result<Item> {
        let may_read = project.public || project.is_at_least(self.caller, Role::Reporter);
        Ok(match name {
            "id" => Item::Leaf(json!(format!("gid://gitlab/Project/{}", project.id))),
            "fullPath" => Item::Leaf(json!(project.path)),
            "archived" => Item::Leaf(json!(project.archived)),
            "mergeRequestsEnabled" => Item::Leaf(json!(project.merge_requests_enabled)),
            "mergeRequests" => self.merge_requests(project, arguments)?,
            "repository" if may_read => Item::Object(Node::Repository(project.id)),
            "repository" => Item::Leaf(Value::Null),
            _ => return Err(anyhow!("no Project.{name}")),
        })
    }

    fn merge_requests(&self, project: &Project, arguments: &Value) -> Result<Item> {
        let branches = texts(&arguments["sourceBranches"]);
        let is_meant = |one: &&MergeRequest| {
            branches
                .as_ref()
                .is_none_or(|branches| branches.contains(&one.source_branch))
        };
        let enabled = project.merge_requests_enabled;
        let all = project.merge_requests.iter().filter(|_| enabled);
        let mut found: Vec<&MergeRequest> = all.filter(is_meant).collect();
        if arguments["sort"] != "CREATED_ASC" {
            found.reverse();
        }
        let url = &self.state.url;
        let nodes = found
            .into_iter()
            .map(|one| merge_request(url, project, one));
        connection("MergeRequestConnection", nodes.collect(), arguments)
    }
}

fn merge_request(url: &str, project: &Project, one: &MergeRequest) -> Node {
    let address = format!("{url}/{}/-/merge_requests/{}", project.path, one.iid);
    let fields = [
        ("id", json!(format!("gid://gitlab/MergeRequest/{}", one.id))),
        ("iid", json!(one.iid.to_string())),
        ("title", json!(one.title)),
        ("state", json!(one.state.as_str())),
        ("webUrl", json!(address)),
        ("description", json!(one.description)),
        ("sourceBranch", json!(one.source_branch)),
        ("targetBranch", json!(one.target_branch)),
        ("sourceProjectId", json!(one.source_project)),
        ("targetProjectId", json!(project.id)),
        ("diffHeadSha", json!(one.sha)),
        ("autoMergeEnabled", json!(one.auto_merge)),
    ];
    record("MergeRequest", fields)
}

fn repository_field(project: &Project, name: &str, arguments: &Value) -> Result<Item> {
    let is_empty = project.is_empty()?;
    let git_ref = arguments["ref"].as_str();
    let git_ref = git_ref.or(project.default_branch.as_deref());
    let git_ref = git_ref.unwrap_or("main");
    Ok(match name {
        "empty" => Item::Leaf(json!(is_empty)),
        "exists" => Item::Leaf(json!(true)),
        "rootRef" if is_empty => Item::Leaf(Value::Null),
        "rootRef" => Item::Leaf(json!(project.default_branch)),
        "tree" => {
            let tip = resolve(project, git_ref)?;
            let commit = tip.map_or(Ok(Item::Leaf(Value::Null)), |oid| {
                let commit = project.git.commit(&oid)?;
                let id = json!(format!("gid://gitlab/CommitPresenter/{oid}"));
                let fields = [
                    ("id", id),
                    ("sha", json!(oid)),
                    ("message", json!(commit.message)),
                ];
                anyhow::Ok(Item::Object(record("Commit", fields)))
            })?;
            Item::Object(Node::Record("Tree", vec![("lastCommit", commit)]))
        }
        "blobs" => {
            let mut nodes = Vec::new();
            if let Some(commit) = resolve(project, git_ref)? {
                for path in texts(&arguments["paths"]).unwrap_or_default() {
                    nodes.extend(blob(project, &commit, &path)?);
                }
            }
            connection("RepositoryBlobConnection", nodes, arguments)?
        }
        _ => return Err(anyhow!("no Repository.{name}")),
    })
}

/// What Gitaly's `GetBlobs` says of a path: folders and submodules too, without content; nothing for what is not there.
fn blob(project: &Project, commit: &str, path: &str) -> Result<Option<Node>> {
    let Some(entry) = project.git.entry(commit, path)? else {
        return Ok(None);
    };
    let mut content = match entry.kind.as_str() {
        "blob" => project.git.blob(&entry.oid)?,
        _ => Vec::new(),
    };
    let size = content.len();
    let pointer = "version https://git-lfs.github.com/spec/v1\n";
    let text = String::from_utf8_lossy(&content).into_owned();
    let lfs = text.strip_prefix(pointer).and_then(|rest| {
        let (_, rest) = rest.split_once("oid sha256:")?;
        rest.lines().next().map(str::to_owned)
    });
    content.truncate(LARGEST_TEXT);
    let name = path.rsplit('/').next().unwrap_or_default();
    let fields = [
        ("id", json!(format!("gid://gitlab/Blob/{}", entry.oid))),
        ("name", json!(name)),
        ("path", json!(path)),
        ("oid", json!(entry.oid)),
        // Without leading zeros, as `to_s(8)` writes it.
        ("mode", json!(entry.mode.trim_start_matches('0'))),
        ("size", json!(size.to_string())),
        ("lfsOid", json!(lfs)),
        ("rawBlob", json!(String::from_utf8_lossy(&content))),
    ];
    Ok(Some(record("RepositoryBlob", fields)))
}

fn record<const N: usize>(name: &'static str, fields: [(&'static str, Value); N]) -> Node {
    let fields = fields.into_iter();
    Node::Record(
        name,
        fields
            .map(|(name, value)| (name, Item::Leaf(value)))
            .collect(),
    )
}

fn connection(name: &'static str, all: Vec<Node>, arguments: &Value) -> Result<Item> {
    let total = all.len();
    let first = match arguments["first"].as_u64() {
        Some(first) => usize::try_from(first)?.min(PAGE),
        None => PAGE,
    };
    let nodes: Vec<Node> = all.into_iter().take(first).collect();
    let page = record(
        "PageInfo",
        [
            ("endCursor", Value::Null),
            ("hasNextPage", json!(nodes.len() < total)),
            ("hasPreviousPage", json!(false)),
            ("startCursor", Value::Null),
        ],
    );
    let fields = vec![
        ("count", Item::Leaf(json!(total))),
        ("nodes", Item::List(nodes)),
        ("pageInfo", Item::Object(page)),
    ];
    Ok(Item::Object(Node::Record(name, fields)))
}

fn texts(value: &Value) -> Option<Vec<String>> {
    let values = value.as_array()?.iter();
    Some(
        values
            .filter_map(|one| one.as_str().map(str::to_owned))
            .collect(),
    )
}
