//! What a document costs by GitLab's rules: `app/graphql/types/base_field.rb`, `resolvers/base_resolver.rb` and
//! `resolvers/blobs_resolver.rb`.

use apollo_compiler::ast;
use apollo_compiler::executable::{Field, Selection, SelectionSet};
use serde_json::{Map, Value};

/// `AUTHENTICATED_MAX_COMPLEXITY` of `app/graphql/gitlab_schema.rb`.
pub(super) const LIMIT: u64 = 250;

/// Fields that ask Gitaly cost one more.
const CALL_GITALY: [&str; 7] = [
    "tree",
    "blobs",
    "lastCommit",
    "rootRef",
    "empty",
    "diffHeadSha",
    "lfsOid",
];

/// The cost of everything in a selection.
pub(super) fn complexity(selections: &SelectionSet, variables: &Map<String, Value>) -> u64 {
    let fields = selections.selections.iter().filter_map(Selection::as_field);
    fields.map(|field| of_field(field, variables)).sum()
}

fn of_field(field: &Field, variables: &Map<String, Value>) -> u64 {
    let name = field.name.as_str();
    let children = complexity(&field.selection_set, variables);
    let gitaly = u64::from(CALL_GITALY.contains(&name));
    // A resolver costs one, one more if it sorts; and each path is one.
    let own = 1 + u64::from(argument(field, "sort", variables).is_some());
    let paths = argument(field, "paths", variables);
    let paths = paths.and_then(|paths| paths.as_array().map(Vec::len));
    let cost = children + own + u64::try_from(paths.unwrap_or(0)).unwrap_or(u64::MAX) + gitaly;
    if matches!(name, "blobs" | "mergeRequests") {
        // A connection costs one per cent more for each thing that it may give.
        let first = argument(field, "first", variables).and_then(|first| first.as_u64());
        cost + cost * first.unwrap_or(100).min(100) / 100
    } else {
        cost
    }
}

fn argument(field: &Field, name: &str, variables: &Map<String, Value>) -> Option<Value> {
    let given = field.arguments.iter().find(|given| given.name == name)?;
    match given.value.as_ref() {
        ast::Value::Variable(name) => variables.get(name.as_str()).cloned(),
        ast::Value::Int(number) => number.as_str().parse::<u64>().ok().map(Value::from),
        ast::Value::Enum(name) => Some(Value::from(name.as_str())),
        _ => None,
    }
}
