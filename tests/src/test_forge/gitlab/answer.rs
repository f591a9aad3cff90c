//! Answers in GitLab's words. The texts are those of `lib/api/helpers.rb` and `lib/api/api_guard.rb` of GitLab 17.

use anyhow::Error;
use serde_json::{Value, json};

/// An answer before it is sent.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, String)>,
    /// `Null` for an answer without a body.
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn new(status: u16, body: Value) -> Self {
        Self {
            status,
            headers: Vec::new(),
            body,
        }
    }

    pub(super) fn ok(body: Value) -> Self {
        Self::new(200, body)
    }

    pub(super) fn created(body: Value) -> Self {
        Self::new(201, body)
    }

    pub(super) fn none() -> Self {
        Self::new(204, Value::Null)
    }
}

/// A refusal; or something that this forge itself did wrong.
#[derive(Debug)]
pub(super) enum Refusal {
    Said(Answer),
    Broken(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}

pub(super) type ApiResult = Result<Answer, Refusal>;

fn message(status: u16, message: &str) -> Refusal {
    Refusal::Said(Answer::new(status, json!({ "message": message })))
}

/// `404 Project Not Found`.
pub(super) fn not_found(what: &str) -> Refusal {
    message(404, &format!("404 {what} Not Found"))
}

/// `403 Forbidden`, perhaps with a reason.
pub(super) fn forbidden(reason: Option<&str>) -> Refusal {
    match reason {
        Some(reason) => message(403, &format!("403 Forbidden - {reason}")),
        None => message(403, "403 Forbidden"),
    }
}

/// `401 Unauthorized`: nobody, or somebody who may not merge.
pub(super) fn unauthorized() -> Refusal {
    message(401, "401 Unauthorized")
}

/// What the token guard says, in the form of RFC 6750.
pub(super) fn token_refused(status: u16, error: &str, description: &str, scope: &str) -> Refusal {
    let mut body = json!({ "error": error, "error_description": description });
    if !scope.is_empty() {
        body["scope"] = json!(scope);
    }
    Refusal::Said(Answer::new(status, body))
}

/// A text with its status, as `render_api_error!` gives it.
pub(super) fn refused(status: u16, text: &str) -> Refusal {
    message(status, text)
}

/// Texts in a list, as the errors of a model come.
pub(super) fn refused_list(status: u16, texts: &[String]) -> Refusal {
    Refusal::Said(Answer::new(status, json!({ "message": texts })))
}

/// `400 Bad request - …`, for a parameter.
pub(super) fn bad_request(reason: &str) -> Refusal {
    message(400, &format!("400 Bad request - {reason}"))
}

/// What the parameter check says.
pub(super) fn missing(parameter: &str) -> Refusal {
    Refusal::Said(Answer::new(
        400,
        json!({ "error": format!("{parameter} is missing") }),
    ))
}
