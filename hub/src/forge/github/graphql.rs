//! GraphQL documents over the one way to send a request. A partly failed answer arrives whole: its data, and each error
//! with type, path, message and extensions.

use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::http::{Call, Reply, failed, speaks_of_limit};
use super::super::metrics::Operation;
use super::super::text::one_line;
use super::super::{ForgeError, Job};
use super::account::Account;
use crate::response::ErrorType;

/// The wait for a limit that an answer with HTTP 200 tells of; such an answer names no time.
const LIMIT_WAIT: std::time::Duration = std::time::Duration::from_mins(1);

/// What a document gave.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct Answer {
    /// What succeeded, by alias.
    #[serde(default, deserialize_with = "null_as_default")]
    pub(super) data: Map<String, Value>,
    /// What did not.
    #[serde(default)]
    pub(super) errors: Vec<GraphqlError>,
}

/// One part that failed.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct GraphqlError {
    /// For example `NOT_FOUND`, `FORBIDDEN`, `UNPROCESSABLE`, `STALE_DATA`.
    #[serde(default, rename = "type")]
    pub(super) kind: Option<String>,
    /// Where; its first part is an alias of the document.
    #[serde(default)]
    path: Option<Vec<Value>>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    extensions: Option<Value>,
}

fn null_as_default<'de, D>(deserializer: D) -> Result<Map<String, Value>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Answer {
    /// What the document gave under an alias.
    pub(super) fn take(&mut self, alias: &str) -> Option<Value> {
        self.data.remove(alias).filter(|value| !value.is_null())
    }

    /// The errors of an alias.
    pub(super) fn errors_of<'a>(
        &'a self,
        alias: &'a str,
    ) -> impl Iterator<Item = &'a GraphqlError> {
        self.errors
            .iter()
            .filter(move |error| error.alias() == Some(alias))
    }

    /// The first error that belongs to no alias.
    pub(super) fn general_error(&self) -> Option<&GraphqlError> {
        self.errors.iter().find(|error| error.alias().is_none())
    }
}

impl GraphqlError {
    pub(super) fn alias(&self) -> Option<&str> {
        self.path.as_ref()?.first()?.as_str()
    }

    pub(super) fn is(&self, kind: &str) -> bool {
        self.kind.as_deref() == Some(kind)
    }

    pub(super) fn says(&self, words: &str) -> bool {
        self.message
            .to_ascii_lowercase()
            .contains(&words.to_ascii_lowercase())
    }

    /// What GitHub said, fit for a status.
    pub(super) fn said(&self) -> String {
        one_line(&self.message)
    }

    /// A limit that passes, in an answer with HTTP 200.
    fn is_limit(&self) -> bool {
        let code = self
            .extensions
            .as_ref()
            .and_then(|extensions| extensions.get("code"))
            .and_then(Value::as_str);
        ["RATE_LIMITED", "RATE_LIMIT"]
            .iter()
            .any(|kind| self.is(kind) || code == Some(kind))
            || code == Some("graphql_rate_limit")
            || speaks_of_limit(&self.message)
    }
}

impl Account {
    /// Sends a document once. Errors of single aliases are in the answer; a limit, or an answer that tells nothing, is
    /// an error.
    pub(super) async fn graphql(
        &self,
        job: &Job<'_>,
        operation: Operation,
        document: &str,
        variables: Value,
    ) -> Result<Answer, ForgeError> {
        let body = json!({ "query": document, "variables": variables });
        let call = || Call {
            operation,
            method: Method::POST,
            url: self.graphql_url().clone(),
            body: Some(body.clone()),
        };
        let reply = self.send(job, call).await?;
        self.read(&reply)
    }

    fn read(&self, reply: &Reply) -> Result<Answer, ForgeError> {
        let mut answer: Answer = reply.json()?;
        for error in &mut answer.errors {
            error.message = reply.without_token(&error.message);
        }
        if let Some(limit) = answer.errors.iter().find(|error| error.is_limit()) {
            return Err(ForgeError::RateLimited {
                retry_after: reply.reset_wait().unwrap_or(LIMIT_WAIT),
                detail: format!("{} limits our requests ({:?})", self.place(), limit.said()),
            });
        }
        if answer.data.is_empty() && answer.errors.iter().all(|error| error.path.is_none()) {
            let detail = match answer.errors.first() {
                Some(error) => format!(
                    "{} failed over a request ({:?})",
                    self.place(),
                    error.said()
                ),
                None => format!("{} gave an answer without data", self.place()),
            };
            // Nothing is known of what it did.
            return Err(failed(ErrorType::Transient, "ForgeError", detail));
        }
        Ok(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partly_failed_answer_arrives_whole() {
        let mut answer: Answer = serde_json::from_value(json!({
            "data": { "ref": { "id": 1 }, "commit": null },
            "errors": [
                { "type": "STALE_DATA", "path": ["commit"], "message": "Expected branch to point to …", "locations": [] },
                { "message": "Something went wrong" },
                { "type": "NOT_FOUND", "path": ["r0", "label"], "message": "no" },
            ],
        }))
        .unwrap();
        assert!(answer.take("ref").is_some());
        assert!(answer.take("commit").is_none());
        assert!(answer.errors_of("commit").next().unwrap().is("STALE_DATA"));
        assert!(answer.general_error().unwrap().says("something went"));
        assert!(answer.errors_of("r0").next().unwrap().is("NOT_FOUND"));
    }

    #[test]
    fn a_limit_is_known_in_each_of_its_forms() {
        for error in [
            json!({ "type": "RATE_LIMITED", "message": "API rate limit exceeded for installation ID 1." }),
            json!({ "type": "RATE_LIMIT", "message": "…", "extensions": { "code": "graphql_rate_limit" } }),
            json!({ "message": "You have exceeded a secondary rate limit." }),
            json!({ "type": "UNPROCESSABLE", "path": ["pull"], "message": "was submitted too quickly" }),
        ] {
            let error: GraphqlError = serde_json::from_value(error).unwrap();
            assert!(error.is_limit(), "{error:?}");
        }
        let other =
            json!({ "type": "FORBIDDEN", "message": "Resource not accessible by integration" });
        assert!(
            !serde_json::from_value::<GraphqlError>(other)
                .unwrap()
                .is_limit()
        );
    }
}
