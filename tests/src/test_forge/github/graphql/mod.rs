//! GraphQL: each document is held to GitHub's published schema before any of it is done.

mod git_objects;
mod mutation;
mod node;
mod pull;
mod query;
mod repository;
mod schema;

use std::sync::Arc;

use anyhow::{Context as _, Result};
use apollo_compiler::ExecutableDocument;
use apollo_compiler::executable::{Operation, OperationType, Selection};
use apollo_compiler::resolvers::Execution;
use apollo_compiler::response::JsonMap;
use apollo_compiler::validation::{DiagnosticList, Valid};
use serde_json::{Value, json};

use super::server::{Context, lock};
use node::{Beside, Node, Object, SEPARATOR};

pub(super) use mutation::method;
pub(super) use schema::schema;

/// A document that was read, or what is wrong with it.
pub(super) struct Request {
    document: Result<Valid<ExecutableDocument>, Value>,
    operation: Option<String>,
    variables: Value,
}

impl Request {
    /// Reads the body of a request.
    pub(super) fn parse(body: &[u8]) -> Result<Self> {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let operation = body["operationName"]
            .as_str()
            .filter(|name| !name.is_empty());
        let document = match body["query"].as_str() {
            Some(text) => {
                ExecutableDocument::parse_and_validate(schema()?, text, "document.graphql")
                    .map_err(|invalid| refusals(&invalid.errors))
            }
            None => Err(
                json!([{ "message": "A query attribute must be specified and must be a string." }]),
            ),
        };
        Ok(Self {
            document,
            operation: operation.map(str::to_owned),
            variables: body["variables"].clone(),
        })
    }

    fn operation(&self) -> Option<&Operation> {
        let document = self.document.as_ref().ok()?;
        let operation = document.operations.get(self.operation.as_deref());
        operation.ok().map(AsRef::as_ref)
    }

    /// Names of the root fields, in their order.
    pub(super) fn root_fields(&self) -> Vec<String> {
        let (Ok(document), Some(operation)) = (&self.document, self.operation()) else {
            return Vec::new();
        };
        let fields = operation.root_fields(document);
        fields.map(|field| field.name.to_string()).collect()
    }

    /// Whether it is one that may change something.
    pub(super) fn is_mutation(&self) -> bool {
        self.operation()
            .is_some_and(|operation| operation.operation_type == OperationType::Mutation)
    }

    /// Does it, and gives the answer.
    pub(super) fn execute(&self, context: Context) -> Result<Value> {
        let document = match &self.document {
            Ok(document) => document,
            Err(errors) => {
                let text = format!("a GraphQL document is refused: {errors}");
                context.server.log.violation(text);
                return Ok(json!({ "errors": errors }));
            }
        };
        let no_variables = JsonMap::new();
        let variables: Value = match &self.variables {
            Value::Null => json!({}),
            variables => variables.clone(),
        };
        let variables = apollo_compiler::response::JsonValue::from(variables);
        let variables = variables.as_object().unwrap_or(&no_variables);
        let mut context = context;
        let document = cut(document, self.operation.as_deref(), &mut context)?;
        let server = Arc::clone(&context.server);
        if !document.has_fields(self.operation.as_deref()) {
            return Ok(finish(
                json!({ "data": {} }),
                &Beside::default(),
                &document.skipped,
            ));
        }
        let root = Object {
            node: if self.is_mutation() {
                Node::Mutation
            } else {
                Node::Query
            },
            context: Arc::new(context),
            beside: Arc::default(),
        };
        let execution = Execution::new(schema()?, &document.document)
            .operation_name(self.operation.as_deref())
            .map(|execution| execution.raw_variable_values(variables))
            .and_then(|execution| {
                execution
                    .enable_schema_introspection(true)
                    .execute_sync(&root)
            });
        let answer = match execution {
            Ok(answer) => serde_json::to_value(answer)?,
            Err(error) => {
                let error =
                    serde_json::to_value(error.to_graphql_error(&document.document.sources))?;
                server
                    .log
                    .violation(format!("a GraphQL request is refused: {error}"));
                return Ok(json!({ "errors": [error] }));
            }
        };
        Ok(finish(answer, &root.beside, &document.skipped))
    }
}

/// A document, perhaps without its last root fields.
struct Cut {
    document: Valid<ExecutableDocument>,
    skipped: Vec<String>,
}

impl Cut {
    fn has_fields(&self, operation: Option<&str>) -> bool {
        let operation = self.document.operations.get(operation);
        operation.is_ok_and(|operation| !operation.selection_set.selections.is_empty())
    }
}

/// Takes away the root fields that a fault does not let happen.
fn cut(
    document: &Valid<ExecutableDocument>,
    operation: Option<&str>,
    context: &mut Context,
) -> Result<Cut> {
    let Some(only_first) = context.only_first.take() else {
        let document = document.clone();
        return Ok(Cut {
            document,
            skipped: Vec::new(),
        });
    };
    let mut shorter = document.clone().into_inner();
    let found = shorter.operations.get_mut(operation);
    let found = found.ok().context("no such operation")?;
    let selections = &mut found.selection_set.selections;
    let rest = selections.split_off(selections.len().min(only_first));
    let keys = rest.iter().filter_map(Selection::as_field);
    let skipped = keys.map(|field| field.response_key().to_string()).collect();
    Ok(Cut {
        document: Valid::assume_valid(shorter),
        skipped,
    })
}

/// Gives errors GitHub's form, and adds those that stand beside a value.
fn finish(mut answer: Value, beside: &Beside, skipped: &[String]) -> Value {
    let mut errors = Vec::new();
    for error in answer["errors"].as_array().cloned().unwrap_or_default() {
        let mut error = error;
        let message = error["message"].as_str().unwrap_or_default().to_owned();
        let mut parts = message.split(SEPARATOR).skip(1);
        if let (Some(kind), Some(message)) = (parts.next(), parts.next()) {
            error["type"] = kind.into();
            error["message"] = message.into();
        }
        errors.push(error);
    }
    for ((key, (line, column)), error) in lock(beside).drain(..) {
        errors.push(json!({
            "type": error.graphql_type(),
            "path": [key],
            "locations": [{ "line": line, "column": column }],
            "message": error.message,
        }));
    }
    for key in skipped {
        answer["data"][key] = Value::Null;
        // GitHub's words where it gives up on its own.
        errors.push(json!({
            "path": [key],
            "message": "Something went wrong while executing your query. This may be the result of a timeout, or it could be a GitHub bug.",
        }));
    }
    let mut whole = json!({ "data": answer["data"].take() });
    if !errors.is_empty() {
        whole["errors"] = errors.into();
    }
    whole
}

/// What is wrong with a document.
fn refusals(errors: &DiagnosticList) -> Value {
    let errors = errors.iter().map(|error| {
        let error = error.to_json();
        let locations = serde_json::to_value(&error.locations).unwrap_or_default();
        json!({
            "message": error.message,
            "locations": locations,
            "extensions": { "code": "invalidDocument" },
        })
    });
    errors.collect()
}
