//! Holds requests and answers to GitHub's published `OpenAPI` description, from the npm package `@octokit/openapi`.
//!
//! What is asked and what is answered with success must be of the published form. Errors are not checked: their
//! description leaves almost everything open.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::{Context as _, Result, anyhow};
use jsonschema::{Draft, Validator};
use serde_json::{Value, json};

use super::rest::Request;
use super::server::lock;
use crate::process::npm_path;
use crate::test_forge::faults::Reply;

/// Differences that are told of one body.
const MOST: usize = 5;

/// The description, with what was made of it so far.
struct Published {
    document: Value,
    validators: Mutex<HashMap<String, Arc<Validator>>>,
}

/// Everything in which a request and its answer differ from what is published.
pub(super) fn check(request: &Request, body: &[u8], reply: &Reply) -> Result<Vec<String>> {
    let published = published()?;
    let name = format!("{} /{}", request.method(), request.path().join("/"));
    if !(200..300).contains(&reply.status) {
        return Ok(Vec::new());
    }
    // Where renamed repositories lead: GitHub sends clients there without writing about it.
    if request
        .path()
        .first()
        .is_some_and(|first| first == "repositories")
    {
        return Ok(Vec::new());
    }
    let Some(pointer) = published.operation(request) else {
        return Ok(vec![format!("{name} is not published")]);
    };
    let mut differences = Vec::new();
    let asked = format!("{pointer}/requestBody/content/application~1json/schema");
    if !body.is_empty() && published.document.pointer(&asked).is_some() {
        let body = serde_json::from_slice(body)?;
        let found = published.differences(&asked, &body)?;
        differences.extend(found.iter().map(|text| format!("{name} asks: {text}")));
    }
    let mut answered = format!("{pointer}/responses/{}", reply.status);
    let Some(response) = published.document.pointer(&answered) else {
        differences.push(format!("{name} is never answered with {}", reply.status));
        return Ok(differences);
    };
    if let Some(reference) = response["$ref"].as_str() {
        answered = reference.trim_start_matches('#').to_owned();
    }
    answered.push_str("/content/application~1json/schema");
    if published.document.pointer(&answered).is_some() {
        let body = serde_json::from_str(&reply.body)?;
        let found = published.differences(&answered, &body)?;
        differences.extend(found.iter().map(|text| format!("{name} answers: {text}")));
    }
    Ok(differences)
}

fn published() -> Result<&'static Published> {
    static PUBLISHED: OnceLock<Result<Published, String>> = OnceLock::new();
    let load = || -> Result<Published> {
        let path = npm_path("@octokit/openapi/generated/api.github.com.json")?;
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Published {
            document: serde_json::from_str(&text)?,
            validators: Mutex::default(),
        })
    };
    let loaded = PUBLISHED.get_or_init(|| load().map_err(|error| format!("{error:#}")));
    loaded.as_ref().map_err(|error| anyhow!("{error}"))
}

impl Published {
    /// Where the operation of a request is: of all templates that fit, the one with the most literal parts.
    fn operation(&self, request: &Request) -> Option<String> {
        let method = request.method().as_str().to_lowercase();
        let paths = self.document["paths"].as_object()?;
        let fitting = paths.iter().filter_map(|(template, operations)| {
            operations.get(&method)?;
            Some((literal_parts(template, request.path())?, template))
        });
        let (_, template) = fitting.max()?;
        let key = template.replace('~', "~0").replace('/', "~1");
        Some(format!("/paths/{key}/{method}"))
    }

    fn differences(&self, pointer: &str, body: &Value) -> Result<Vec<String>> {
        let validator = self.validator(pointer)?;
        // Of a label in a list of pull requests the description says that it always has a description; it may be null.
        let mistaken = |path: &str| path.contains("/labels/") && path.ends_with("/description");
        let errors = validator.iter_errors(body);
        let errors = errors.filter(|error| !mistaken(error.instance_path().as_str()));
        let errors = errors.take(MOST);
        Ok(errors
            .map(|error| {
                format!(
                    "{} at {}",
                    shortened(&error.to_string()),
                    error.instance_path()
                )
            })
            .collect())
    }

    fn validator(&self, pointer: &str) -> Result<Arc<Validator>> {
        let mut validators = lock(&self.validators);
        if let Some(validator) = validators.get(pointer) {
            return Ok(Arc::clone(validator));
        }
        let schema = self.document.pointer(pointer).context("no schema")?;
        let mut schema = schema.clone();
        let named = self.named_schemas(&schema);
        as_json_schema(&mut schema);
        // `$ref` has no neighbours in this draft, hence the list.
        let whole = json!({ "allOf": [schema], "components": { "schemas": named } });
        let validator = jsonschema::options()
            .with_draft(Draft::Draft4)
            .should_validate_formats(false)
            .build(&whole)
            .map_err(|error| anyhow!("{pointer}: {error}"))?;
        let validator = Arc::new(validator);
        validators.insert(pointer.to_owned(), Arc::clone(&validator));
        Ok(validator)
    }

    /// The schemas that one refers to, directly or not.
    fn named_schemas(&self, schema: &Value) -> BTreeMap<String, Value> {
        let mut named = BTreeMap::new();
        let mut wanted = BTreeSet::new();
        references(schema, &mut wanted);
        while let Some(name) = wanted.pop_first() {
            if named.contains_key(&name) {
                continue;
            }
            let mut found = self.document["components"]["schemas"][&name].clone();
            references(&found, &mut wanted);
            as_json_schema(&mut found);
            named.insert(name, found);
        }
        named
    }
}

/// How many parts of a template are the same in a path, if it fits. The last part of a path may have slashes in it, as
/// names of branches do.
fn literal_parts(template: &str, path: &[String]) -> Option<usize> {
    let parts: Vec<&str> = template
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    let open = parts.last().is_some_and(|last| last.starts_with('{'));
    if path.len() < parts.len() || (path.len() > parts.len() && !open) {
        return None;
    }
    let mut literal = 0;
    for (part, given) in parts.iter().zip(path) {
        if *part == given.as_str() {
            literal += 1;
        } else if !part.starts_with('{') {
            return None;
        }
    }
    Some(literal)
}

fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(members) => {
            let reference = members.get("$ref").and_then(Value::as_str);
            found.extend(
                reference
                    .and_then(|reference| reference.strip_prefix("#/components/schemas/"))
                    .map(str::to_owned),
            );
            members
                .values()
                .for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// `nullable` is `OpenAPI`'s own.
fn as_json_schema(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.remove("example");
            members.remove("examples");
            members.values_mut().for_each(as_json_schema);
            if members.get("nullable") == Some(&Value::Bool(true)) {
                members.remove("nullable");
                *schema = json!({ "anyOf": [schema.take(), { "type": "null" }] });
            }
        }
        Value::Array(items) => items.iter_mut().for_each(as_json_schema),
        _ => {}
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(300).collect()
}
