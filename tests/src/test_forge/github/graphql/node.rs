//! One object of the schema and how its fields are found: each kind of object in its own file.

use std::sync::Arc;

use apollo_compiler::resolvers::{FieldError, ObjectValue, ResolveInfo, ResolvedValue};
use apollo_compiler::response::JsonValue;
use serde_json::{Map, Value};

use super::{git_objects, mutation, pull, query, repository};
use crate::test_forge::git::Entry;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::server::Context;

/// Between the type of an error and its message, while the executor carries them as one text.
pub(super) const SEPARATOR: char = '\u{1f}';

/// An object of the schema.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// The root of queries.
    Query,
    /// The root of mutations.
    Mutation,
    /// A repository, by its number.
    Repository(u64),
    /// A pull request, by its repository and its number there.
    Pull(u64, u64),
    /// A ref of a repository, with what it pointed to.
    Ref(u64, String, String),
    /// A commit.
    Commit(u64, String),
    /// A blob.
    Blob(u64, String),
    /// A tree, with its path.
    Tree(u64, String, String),
    /// An entry of a tree; the path is from the root.
    TreeEntry(u64, Entry),
    /// A label of a repository.
    Label(u64, u64),
    /// An account, by its login.
    Account(String),
    /// A team of an organisation.
    Team(String, String),
    /// An object whose fields are known already.
    Record(&'static str, Vec<(&'static str, Item)>),
}

/// What a field gives.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A scalar or an enum, or nothing.
    Leaf(Value),
    /// An object.
    Object(Node),
    /// A list.
    List(Vec<Item>),
    /// An error beside an object, as `createPullRequest` gives it.
    Failed(ApiError, Node),
}

impl Item {
    /// A scalar or an enum.
    pub(super) fn leaf(value: impl Into<Value>) -> Self {
        Self::Leaf(value.into())
    }

    /// Nothing.
    pub(super) fn null() -> Self {
        Self::Leaf(Value::Null)
    }

    /// An object, or nothing.
    pub(super) fn optional(node: Option<Node>) -> Self {
        node.map_or_else(Self::null, Self::Object)
    }
}

/// Arguments of a field, with variables and defaults in their places.
#[derive(Clone, Debug)]
pub(super) struct Arguments(pub Map<String, Value>);

impl Arguments {
    /// An argument that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// An argument that is a text and must be there.
    pub(super) fn required(&self, name: &str) -> ApiResult<&str> {
        self.text(name)
            .ok_or_else(|| ApiError::unprocessable(format!("{name} is missing")))
    }

    /// The texts in a list; `None` if there is no list.
    pub(super) fn texts(&self, name: &str) -> Option<Vec<String>> {
        let list = self.0.get(name)?.as_array()?;
        Some(
            list.iter()
                .filter_map(|item| item.as_str().map(str::to_owned))
                .collect(),
        )
    }

    /// The objects in a list.
    pub(super) fn objects(&self, name: &str) -> Vec<Self> {
        let list = self
            .0
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        list.filter_map(|item| item.as_object().cloned().map(Self))
            .collect()
    }

    /// An argument that is yes or no.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.0.get(name).and_then(Value::as_bool)
    }

    /// An argument that is a number.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    /// An argument that is an input object; empty if there is none.
    pub(super) fn object(&self, name: &str) -> Self {
        Self(
            self.0
                .get(name)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default(),
        )
    }
}

/// Key of a root field, and its line and column.
pub(super) type Place = (String, (usize, usize));

/// Errors that stand beside a value.
pub(super) type Beside = std::sync::Mutex<Vec<(Place, ApiError)>>;

/// An object while it is looked at.
pub(super) struct Object {
    /// The request.
    pub context: Arc<Context>,
    /// Errors beside values.
    pub beside: Arc<Beside>,
    /// What it is.
    pub node: Node,
}

impl ObjectValue for Object {
    fn type_name(&self) -> &str {
        match &self.node {
            Node::Query => "Query",
            Node::Mutation => "Mutation",
            Node::Repository(_) => "Repository",
            Node::Pull(..) => "PullRequest",
            Node::Ref(..) => "Ref",
            Node::Commit(..) => "Commit",
            Node::Blob(..) => "Blob",
            Node::Tree(..) => "Tree",
            Node::TreeEntry(..) => "TreeEntry",
            Node::Label(..) => "Label",
            Node::Account(login) => query::account_type(&self.context, login),
            Node::Team(..) => "Team",
            Node::Record(name, _) => name,
        }
    }

    fn resolve_field<'a>(
        &'a self,
        info: &'a ResolveInfo<'a>,
    ) -> Result<ResolvedValue<'a>, FieldError> {
        let arguments = match serde_json::to_value(info.arguments()) {
            Ok(Value::Object(arguments)) => Arguments(arguments),
            _ => Arguments(Map::new()),
        };
        let selection = info.field_selections()[0];
        let place = selection.name.location();
        let place = place.and_then(|place| place.line_column(&info.document().sources));
        let place = (
            selection.response_key().to_string(),
            place.map_or((0, 0), |place| (place.line, place.column)),
        );
        let item = self
            .field(info.field_name(), &arguments)
            .map_err(|error| FieldError {
                message: format!(
                    "{SEPARATOR}{}{SEPARATOR}{}",
                    error.graphql_type(),
                    error.message
                ),
            })?;
        Ok(self.resolved(&place, item))
    }
}

impl Object {
    fn field(&self, name: &str, arguments: &Arguments) -> ApiResult<Item> {
        let context = &self.context;
        let found = match &self.node {
            Node::Query => query::field(context, name, arguments),
            Node::Mutation => mutation::field(context, name, arguments),
            Node::Repository(id) => repository::field(context, *id, name, arguments),
            Node::Pull(id, number) => pull::field(context, *id, *number, name, arguments),
            Node::Ref(id, ref_name, oid) => repository::ref_field(*id, ref_name, oid, name),
            Node::Commit(id, oid) => git_objects::commit(context, *id, oid, name, arguments),
            Node::Blob(id, oid) => git_objects::blob(context, *id, oid, name),
            Node::Tree(id, oid, path) => git_objects::tree(context, *id, oid, path, name),
            Node::TreeEntry(id, entry) => git_objects::entry(*id, entry, name),
            Node::Label(id, label) => repository::label_field(context, *id, *label, name),
            Node::Account(login) => query::account_field(context, login, name, arguments),
            Node::Team(organization, slug) => query::team_field(organization, slug, name),
            Node::Record(_, fields) => {
                let mut fields = fields.iter();
                Ok(fields
                    .find(|(field, _)| *field == name)
                    .map(|(_, item)| item.clone()))
            }
        }?;
        found.ok_or_else(|| {
            let what = format!("the test forge does not know {}.{name}", self.type_name());
            context.server.log.violation(what.clone());
            ApiError::new(Kind::Internal, what)
        })
    }

    fn resolved<'a>(&self, place: &Place, item: Item) -> ResolvedValue<'a> {
        match item {
            Item::Leaf(value) => ResolvedValue::Leaf(JsonValue::from(value)),
            Item::Object(node) => ResolvedValue::object(self.with(node)),
            Item::List(items) => {
                let items: Vec<_> = items
                    .into_iter()
                    .map(|item| self.resolved(place, item))
                    .collect();
                ResolvedValue::list(items)
            }
            Item::Failed(error, node) => {
                let mut beside = crate::test_forge::github::server::lock(&self.beside);
                beside.push((place.clone(), error));
                ResolvedValue::object(self.with(node))
            }
        }
    }

    fn with(&self, node: Node) -> Self {
        Self {
            context: Arc::clone(&self.context),
            beside: Arc::clone(&self.beside),
            node,
        }
    }
}

/// How cursors begin; the number of the item comes after it.
const CURSOR: &str = "cursor:";

/// A connection with its nodes, cut as `first`, `last` and `before` say. Cursors lead back only.
pub(super) fn connection(
    type_name: &'static str,
    mut all: Vec<Item>,
    arguments: &Arguments,
) -> Item {
    let total = all.len();
    let before = arguments.text("before").and_then(|cursor| {
        let number = cursor.strip_prefix(CURSOR)?;
        number.parse::<usize>().ok()
    });
    all.truncate(before.unwrap_or(total));
    let limit = |name| {
        let number = arguments.number(name);
        number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    let end = all.len();
    let (start, nodes): (usize, Vec<Item>) = match (limit("first"), limit("last")) {
        (Some(first), _) => (0, all.into_iter().take(first).collect()),
        (None, Some(last)) => {
            let start = end.saturating_sub(last);
            (start, all.into_iter().skip(start).collect())
        }
        (None, None) => (0, all),
    };
    let has_next = limit("first").is_some() && nodes.len() < end;
    let page = Node::Record(
        "PageInfo",
        vec![
            ("hasNextPage", Item::leaf(has_next)),
            ("hasPreviousPage", Item::leaf(start > 0)),
            ("startCursor", Item::leaf(format!("{CURSOR}{start}"))),
            ("endCursor", Item::null()),
        ],
    );
    Item::Object(Node::Record(
        type_name,
        vec![
            ("totalCount", Item::leaf(total)),
            ("nodes", Item::List(nodes)),
            ("pageInfo", Item::Object(page)),
        ],
    ))
}
