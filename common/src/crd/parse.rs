//! Parsing that says which field is wrong.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{EventResponse, EventResponseSpec, GitOpsResponderConfig, GitOpsResponderConfigSpec};

/// A field that is not what its type says.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// The field, for example `spec.retryPolicy.initialDelay`.
    pub path: String,
    /// What is wrong with it.
    pub message: String,
}

/// Reads what is needed of an EventResponse. Its status is not looked at.
///
/// # Errors
/// The first field that does not fit.
pub fn parse_event_response(object: &Value) -> Result<EventResponse, FieldError> {
    let (spec, _) = parse_spec::<EventResponseSpec>(object)?;
    let mut parsed = EventResponse::new(name(object), spec);
    parsed.metadata.uid = text(object, "/metadata/uid");
    Ok(parsed)
}

/// Reads a GitOpsResponderConfig. Fields that the type does not know are errors here, because a routing rule that is
/// silently ignored is worse than one that is refused.
///
/// # Errors
/// Every unknown field, or the first that does not fit.
pub fn parse_config(object: &Value) -> Result<GitOpsResponderConfig, Vec<FieldError>> {
    let (spec, unknown) =
        parse_spec::<GitOpsResponderConfigSpec>(object).map_err(|error| vec![error])?;
    let unknown: Vec<FieldError> = unknown
        .into_iter()
        .map(|path| FieldError {
            path,
            message: "no such field; check its spelling and its place".to_owned(),
        })
        .collect();
    if !unknown.is_empty() {
        return Err(unknown);
    }
    let mut parsed = GitOpsResponderConfig::new(name(object), spec);
    parsed.metadata.namespace = text(object, "/metadata/namespace");
    parsed.metadata.uid = text(object, "/metadata/uid");
    parsed.metadata.generation = object
        .pointer("/metadata/generation")
        .and_then(Value::as_i64);
    Ok(parsed)
}

fn name(object: &Value) -> &str {
    object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
}

fn text(object: &Value, pointer: &str) -> Option<String> {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .map(str::to_owned)
}

/// The parsed `spec`, and the paths of fields that its type does not know.
fn parse_spec<T: DeserializeOwned>(object: &Value) -> Result<(T, Vec<String>), FieldError> {
    let spec = object.get("spec").ok_or_else(|| FieldError {
        path: "spec".to_owned(),
        message: "is missing".to_owned(),
    })?;
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let tracked = serde_path_to_error::Deserializer::new(spec, &mut track);
    let parsed =
        serde_ignored::deserialize(tracked, |path| unknown.push(spec_path(&path.to_string())));
    match parsed {
        Ok(parsed) => Ok((parsed, unknown)),
        Err(error) => Err(FieldError {
            path: spec_path(&track.path().to_string()),
            message: error.to_string(),
        }),
    }
}

/// `spec.` before a path, with list indexes in brackets whichever library wrote it and marks of `Option`s left out.
fn spec_path(path: &str) -> String {
    let mut whole = "spec".to_owned();
    for part in path.split('.').filter(|part| !matches!(*part, "" | "?")) {
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            whole.extend(["[", part, "]"]);
        } else {
            whole.push('.');
            whole.push_str(part);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event_response(policy: &Value) -> Value {
        json!({
            "metadata": {"name": "er-1", "uid": "u"},
            "spec": {
                "securityEventRef": {"name": "se-1"},
                "responder": {"kind": "Controller", "name": "ugallu-gitops-responder"},
                "action": {"type": "GitOpsChange", "parameters": {"path": "a"}},
                "retryPolicy": policy,
                "fieldOfTomorrow": true,
            },
        })
    }

    #[test]
    fn an_event_response_with_fields_of_tomorrow_is_read() {
        let parsed = parse_event_response(&event_response(&json!({"initialDelay": "2s"}))).unwrap();
        let delay = parsed.spec.retry_policy.unwrap().initial_delay.unwrap();
        assert_eq!(delay.0.as_secs(), 2);
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        for (policy, path) in [
            (
                json!({"initialDelay": "soon"}),
                "spec.retryPolicy.initialDelay",
            ),
            (
                json!({"maxAttempts": "three"}),
                "spec.retryPolicy.maxAttempts",
            ),
            (
                json!({"backoffStrategy": "Sometimes"}),
                "spec.retryPolicy.backoffStrategy",
            ),
        ] {
            let error = parse_event_response(&event_response(&policy)).unwrap_err();
            assert_eq!(error.path, path, "{error}");
        }
    }

    #[test]
    fn a_missing_spec_is_named() {
        assert_eq!(parse_event_response(&json!({})).unwrap_err().path, "spec");
    }

    #[test]
    fn a_misspelt_field_of_a_config_is_an_error_with_its_path() {
        let config = json!({
            "metadata": {"name": "default"},
            "spec": {"routes": [{"match": {"actionReff": "x"}, "provider": {"kind": "noop", "repository": "a/b"}}]},
        });
        let errors = parse_config(&config).unwrap_err();
        assert_eq!(errors[0].path, "spec.routes[0].match.actionReff");
    }

    #[test]
    fn a_value_of_a_config_that_does_not_fit_is_named() {
        let config =
            json!({"spec": {"routes": [{"provider": {"kind": "bitbucket", "repository": "a/b"}}]}});
        let errors = parse_config(&config).unwrap_err();
        assert_eq!(errors[0].path, "spec.routes[0].provider.kind", "{errors:?}");
    }
}
