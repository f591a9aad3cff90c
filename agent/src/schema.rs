//! Owns which fields `status` has in the EventResponse schema that this cluster serves.
//!
//! A server-side apply with a field that the CRD does not declare fails as a whole, and the CRD may be another than
//! ours (upstream's has no `providerRef`). The API server's `OpenAPI` v3 document says what it declares; it is read once
//! at the start, and again when a write fails on it or it is older than ten minutes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use serde_json::Value;

use crate::object::{GROUP, KIND, VERSION};

/// How long a document is taken as current.
const MAX_AGE: Duration = Duration::from_mins(10);
/// How long to wait for the document.
const TIMEOUT: Duration = Duration::from_secs(10);
/// `$ref`s are followed this deep; a CRD's own schema nests no deeper for what we write.
const MAX_DEPTH: usize = 12;

/// What a place in the schema may hold.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shape {
    /// Anything.
    Any,
    /// An object of these fields.
    Object(HashMap<String, Shape>),
    /// A list.
    List(Box<Shape>),
}

/// When the document was read, and what it said.
type Reading = (Instant, Arc<Shape>);

/// The shape of `status`, shared; unknown until it was read.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    known: Arc<Mutex<Option<Reading>>>,
    reading: Arc<tokio::sync::Mutex<()>>,
}

impl Schema {
    /// Takes out of a status what the schema does not declare; nothing while it is unknown.
    pub fn prune(&self, status: &mut Value) {
        if let Some((_, shape)) = self.current() {
            prune(status, &shape);
        }
    }

    /// Whether the document was read.
    pub fn is_known(&self) -> bool {
        self.current().is_some()
    }

    /// Whether it is time to read the document again.
    pub fn is_outdated(&self, now: Instant) -> bool {
        self.current()
            .is_none_or(|(read_at, _)| now.saturating_duration_since(read_at) > MAX_AGE)
    }

    /// Reads the document. On failure what was known stays.
    pub async fn refresh(&self, client: &Client) {
        let asked_at = Instant::now();
        let _one_at_a_time = self.reading.lock().await;
        // Somebody who waited for the lock has the answer already.
        if self
            .current()
            .is_some_and(|(read_at, _)| read_at >= asked_at)
        {
            return;
        }
        match read(client).await {
            Ok(shape) => {
                *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
                    Some((Instant::now(), Arc::new(shape)));
            }
            Err(reason) => {
                tracing::warn!(reason, "could not read the served schema of EventResponse");
            }
        }
    }

    fn current(&self) -> Option<Reading> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

async fn read(client: &Client) -> Result<Shape, String> {
    let request = http::Request::get(format!("/openapi/v3/apis/{GROUP}/{VERSION}"))
        .header(http::header::ACCEPT, "application/json")
        .body(Vec::new())
        .map_err(|error| error.to_string())?;
    let answer = tokio::time::timeout(TIMEOUT, client.request_text(request)).await;
    let text = answer
        .map_err(|_| format!("no answer from the API server within {TIMEOUT:?}"))?
        .map_err(|error| match error {
            kube::Error::Api(status) if status.code == 404 => {
                format!("the API server has no OpenAPI document of {GROUP}/{VERSION} yet")
            }
            error => crate::status::chain(&error),
        })?;
    let document: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    status_shape(&document).ok_or_else(|| {
        format!("the OpenAPI document of {GROUP}/{VERSION} has no {KIND} with a status")
    })
}

fn status_shape(document: &Value) -> Option<Shape> {
    let schemas = document.pointer("/components/schemas")?.as_object()?;
    let ours = schemas.values().find(|schema| {
        let kinds = schema
            .get("x-kubernetes-group-version-kind")
            .and_then(Value::as_array);
        kinds.is_some_and(|kinds| {
            kinds.iter().any(|gvk| {
                gvk["group"] == GROUP && gvk["version"] == VERSION && gvk["kind"] == KIND
            })
        })
    })?;
    Some(shape(ours.pointer("/properties/status")?, document, 0))
}

fn shape(schema: &Value, document: &Value, depth: usize) -> Shape {
    if depth > MAX_DEPTH
        || schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
    {
        return Shape::Any;
    }
    // Kubernetes wraps a reference that has a default or a description into an allOf of one.
    let reference = schema
        .get("$ref")
        .or_else(|| schema.pointer("/allOf/0/$ref"))
        .and_then(Value::as_str);
    if let Some(target) = reference.and_then(|path| document.pointer(path.trim_start_matches('#')))
    {
        return shape(target, document, depth + 1);
    }
    if let Some(items) = schema.get("items") {
        return Shape::List(Box::new(shape(items, document, depth + 1)));
    }
    match schema.get("properties").and_then(Value::as_object) {
        Some(fields) if schema.get("additionalProperties").is_none() => Shape::Object(
            fields
                .iter()
                .map(|(name, field)| (name.clone(), shape(field, document, depth + 1)))
                .collect(),
        ),
        _ => Shape::Any,
    }
}

fn prune(value: &mut Value, shape: &Shape) {
    match (value, shape) {
        (Value::Object(object), Shape::Object(fields)) => {
            object.retain(|name, _| fields.contains_key(name));
            for (name, inner) in object.iter_mut() {
                prune(inner, &fields[name]);
            }
        }
        (Value::Array(items), Shape::List(inner)) => {
            for item in items {
                prune(item, inner);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document(status: &Value) -> Value {
        json!({"components": {"schemas": {
            "io.ugallu.security.v1alpha1.EventResponse": {
                "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": KIND}],
                "properties": {"status": status},
            },
            "io.ugallu.security.v1alpha1.Other": {"properties": {}},
            "shared": {"properties": {"type": {"type": "string"}}},
        }}})
    }

    #[test]
    fn a_field_that_is_not_declared_is_left_out_at_every_depth() {
        let declared = json!({"type": "object", "properties": {
            "phase": {"type": "string"},
            "error": {"type": "object", "properties": {"type": {"type": "string"}}},
            "evidence": {"type": "array", "items": {"type": "object", "properties": {"url": {"type": "string"}}}},
            "outcome": {"allOf": [{"$ref": "#/components/schemas/shared"}]},
            "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {}},
        }});
        let shape = status_shape(&document(&declared)).unwrap();
        let mut status = json!({
            "phase": "Failed", "providerRef": "https://forge.example/1",
            "error": {"type": "Permanent", "detail": "d"},
            "evidence": [{"url": "u", "sha256": "s"}],
            "outcome": {"type": "Errored", "message": "m"},
            "parameters": {"a": "b"}, "free": {"a": 1},
        });
        prune(&mut status, &shape);
        assert_eq!(
            status,
            json!({
                "phase": "Failed", "error": {"type": "Permanent"}, "evidence": [{"url": "u"}],
                "outcome": {"type": "Errored"}, "parameters": {"a": "b"}, "free": {"a": 1},
            })
        );
    }

    #[test]
    fn our_own_kind_declares_everything_that_we_write() {
        let crds: Vec<_> = nabu_common::crd::all()
            .into_iter()
            .map(|crd| json!(crd))
            .collect();
        let ours = crds
            .iter()
            .find(|crd| crd["spec"]["names"]["kind"] == KIND)
            .unwrap();
        let schema = &ours["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let time = "2026-01-01T00:00:00Z";
        let mut status = json!({
            "phase": "Failed", "attempts": 1, "startedAt": time, "lastAttemptAt": time,
            "nextAttemptAt": time, "completedAt": time, "providerRef": "u", "cancelReason": "r",
            "outcome": {"type": "Errored", "message": "m"},
            "error": {"type": "Permanent", "reason": "r", "detail": "d"},
            "evidence": [{"mediaType": "m", "url": "u", "sha256": "s"}],
            "conditions": [{
                "type": "Accepted", "status": "True", "reason": "r", "message": "m",
                "lastTransitionTime": time, "observedGeneration": 1,
            }],
        });
        let whole = status.clone();
        prune(
            &mut status,
            &shape(&schema["properties"]["status"], schema, 0),
        );
        assert_eq!(status, whole);
    }

    #[test]
    fn an_unknown_schema_prunes_nothing() {
        let mut status = json!({"phase": "Failed", "providerRef": "u"});
        Schema::default().prune(&mut status);
        assert_eq!(status["providerRef"], "u");
        assert!(Schema::default().is_outdated(Instant::now()));
    }

    #[test]
    fn a_document_without_our_kind_says_nothing() {
        assert!(status_shape(&json!({"components": {"schemas": {}}})).is_none());
    }
}
