//! Owns one write of a status: server-side apply to the `status` subresource, and what the API server's answer means.
//!
//! Never a read first: the object's UID goes along, so that an object made again under the same name is not touched.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::core::{Request, Status};
use kube::{Client, Error, Resource as _};
use serde_json::{Value, json};

use super::StatusUpdate;
use crate::object::{FIELD_MANAGER, GROUP, KIND, VERSION, Watched};
use crate::schema::Schema;

/// How the API server names a field that the CRD lacks.
const UNDECLARED: &str = "field not declared in schema";
/// The most bytes of its words that go to the hub and into a log: they may quote the whole status.
const REASON_BYTES: usize = 2000;
/// An API server that does not answer in this time is taken as failed.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Writes statuses.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    schema: Schema,
}

impl Writer {
    /// Writes through `client` what `schema` allows.
    pub fn new(client: Client, schema: Schema) -> Self {
        Self { client, schema }
    }

    /// Writes one status.
    pub async fn write(&self, update: &StatusUpdate) -> Written {
        let mut answer = self.apply(update).await;
        if matches!(&answer, Answer::Invalid(reason) if reason.contains(UNDECLARED)) {
            // The CRD may have changed since we looked.
            self.schema.refresh(&self.client).await;
            answer = self.apply(update).await;
            if !self.schema.is_known()
                && let Answer::Invalid(reason) = answer
            {
                // An API server that just started serves objects before it says what they may hold.
                answer = Answer::Failed(reason);
            }
        }
        match answer {
            Answer::Stored => Written::Stored,
            Answer::Gone => Written::Refused("the EventResponse is gone".to_owned()),
            Answer::Recreated => {
                Written::Refused("the object was re-created under the same name".to_owned())
            }
            Answer::Invalid(reason) => {
                tracing::warn!(uid = %update.uid, name = update.name, reason, "the API server refused a status");
                Written::Refused(reason)
            }
            Answer::Failed(reason) => {
                tracing::warn!(uid = %update.uid, name = update.name, reason, "could not write a status; will try again");
                Written::Failed
            }
        }
    }

    async fn apply(&self, update: &StatusUpdate) -> Answer {
        let mut fields = Value::Object(update.fields.clone());
        self.schema.prune(&mut fields);
        let body = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {"name": update.name, "uid": update.uid.as_str()},
            "status": fields,
        });
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let request = Request::new(Watched::url_path(&(), None)).patch_subresource(
            "status",
            &update.name,
            &params,
            &Patch::Apply(body),
        );
        let request = match request {
            Ok(request) => request,
            Err(error) => return Answer::Invalid(format!("the status cannot be written: {error}")),
        };
        match tokio::time::timeout(TIMEOUT, self.client.request_text(request)).await {
            Ok(Ok(_)) => Answer::Stored,
            Ok(Err(Error::Api(status))) => classify(&status),
            Ok(Err(error)) => Answer::Failed(chain(&error)),
            Err(_) => Answer::Failed(format!("no answer from the API server within {TIMEOUT:?}")),
        }
    }
}

/// How a write ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Written {
    /// The API server has it.
    Stored,
    /// It never will, for this reason.
    Refused(String),
    /// It may, later.
    Failed,
}

/// What the API server said.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Stored,
    Gone,
    Recreated,
    /// As it is, it will never be taken.
    Invalid(String),
    /// It may be taken later.
    Failed(String),
}

/// An error with its causes, in one line. kube appends the Debug text of the API server's answer, which nobody reads.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    if let Some(debug) = text.find(" (Status {") {
        text.truncate(debug);
    }
    text
}

/// Reads an error answer. A field that the schema lacks comes as 500 with the words of the structured-merge-diff
/// library, an object of another UID as 409 or 422, and a lost race against other writers as 409.
fn classify(status: &Status) -> Answer {
    let message = &status.message;
    let message = message[..message.floor_char_boundary(REASON_BYTES)].to_owned();
    if message.contains(UNDECLARED) {
        return Answer::Invalid(message);
    }
    let about_uid = status.details.as_ref().is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.field == "metadata.uid")
    }) || message.contains("uid mismatch")
        || message.contains("Precondition failed: UID");
    match status.code {
        404 if names_object(status) => Answer::Gone,
        409 if message.contains("no existing object was found") => Answer::Gone,
        409 | 422 if about_uid => Answer::Recreated,
        // Not allowed to write at all is a right that somebody forgot; a denial of this very content is not.
        403 if message.contains("cannot patch resource") => Answer::Failed(format!(
            "{message}; allow the agent's service account to patch eventresponses/status in group {GROUP}"
        )),
        400 | 403 | 405 | 413 | 415 | 422 => Answer::Invalid(message),
        _ => Answer::Failed(format!(
            "the API server answered {}: {message}",
            status.code
        )),
    }
}

/// A 404 for one object names it; one for a kind that is not served does not.
fn names_object(status: &Status) -> bool {
    status.reason == "NotFound"
        && status
            .details
            .as_ref()
            .is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(json: Value) -> Answer {
        classify(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn a_missing_object_is_gone_but_a_missing_kind_may_come_back() {
        let object = json!({"code": 404, "reason": "NotFound", "message": "x not found", "details": {"name": "x"}});
        assert_eq!(answer(object), Answer::Gone);
        let kind = json!({"code": 404, "reason": "NotFound", "message": "the server could not find the requested resource"});
        assert!(matches!(answer(kind), Answer::Failed(_)));
    }

    #[test]
    fn another_uid_is_another_object() {
        let invalid = json!({
            "code": 422, "reason": "Invalid", "message": "metadata.uid: Invalid value: field is immutable",
            "details": {"causes": [{"field": "metadata.uid", "message": "field is immutable", "reason": "FieldValueInvalid"}]},
        });
        assert_eq!(answer(invalid), Answer::Recreated);
        let conflict = json!({"code": 409, "reason": "Conflict", "message": "Precondition failed: UID in precondition: a, UID in object meta: b"});
        assert_eq!(answer(conflict), Answer::Recreated);
    }

    #[test]
    fn an_answer_of_the_api_server_is_told_in_its_own_words() {
        let status = json!({"code": 429, "reason": "TooManyRequests", "message": "try later"});
        let error = Error::Api(serde_json::from_value(status).unwrap());
        assert_eq!(chain(&error), "ApiError: try later: TooManyRequests");
    }

    #[test]
    fn what_goes_on_about_a_refusal_is_bounded() {
        let Answer::Invalid(reason) = answer(json!({"code": 422, "message": "ä".repeat(5000)}))
        else {
            panic!("not invalid")
        };
        assert!(reason.len() <= REASON_BYTES);
    }

    #[test]
    fn a_lost_race_against_other_writers_is_tried_again() {
        let conflict = json!({
            "code": 409, "reason": "Conflict",
            "message": "Operation cannot be fulfilled on eventresponses \"x\": the object has been modified",
        });
        assert!(matches!(answer(conflict), Answer::Failed(_)));
    }

    #[test]
    fn a_field_that_the_schema_lacks_is_invalid_though_it_comes_as_a_server_error() {
        let undeclared = json!({
            "code": 500, "message": "failed to create typed patch object (/x; security.ugallu.io/v1alpha1, Kind=EventResponse): .status.providerRef: field not declared in schema",
        });
        assert!(matches!(answer(undeclared), Answer::Invalid(_)));
    }

    #[test]
    fn outages_and_missing_rights_are_tried_again_and_denials_are_not() {
        for code in [401, 429, 500, 503, 504] {
            assert!(
                matches!(
                    answer(json!({"code": code, "message": "x"})),
                    Answer::Failed(_)
                ),
                "{code}"
            );
        }
        let rights = json!({"code": 403, "reason": "Forbidden", "message": "eventresponses.security.ugallu.io \"x\" is forbidden: User \"y\" cannot patch resource \"eventresponses/status\""});
        assert!(matches!(answer(rights), Answer::Failed(_)));
        let denied = json!({"code": 403, "reason": "Forbidden", "message": "denied by policy"});
        assert!(matches!(answer(denied), Answer::Invalid(_)));
        assert!(matches!(
            answer(json!({"code": 422, "message": "bad"})),
            Answer::Invalid(_)
        ));
    }
}
