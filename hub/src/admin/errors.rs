//! What the admin API refuses, with gRPC codes and `google.rpc` details, as other APIs do.

use std::time::Duration;

use nabu_common::ids::{ClusterId, ResponseKey};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};
use tracing::error;

use crate::store::StoreError;

/// The domain of every `google.rpc.ErrorInfo` of ours.
pub const DOMAIN: &str = "nabu.admin";
/// When to ask again after the store did not answer.
const AFTER_STORE_ERROR: Duration = Duration::from_secs(2);
/// Characters of a text that somebody else wrote, in a message or a line of the audit log.
const LONGEST: usize = 300;

/// The beginning of a text, on one line.
pub(super) fn shortened(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST).map(visible).collect()
}

/// A field of the request is wrong.
pub(super) fn invalid(field: &str, description: impl Into<String>) -> Status {
    let description = description.into();
    Status::with_error_details(
        Code::InvalidArgument,
        format!("{field}: {description}"),
        ErrorDetails::with_bad_request_violation(field, description),
    )
}

/// Nothing has that name. `remedy` says how to find what there is.
pub(super) fn missing(kind: &str, name: &str, remedy: &str) -> Status {
    let message = format!("there is no {kind} {name}; {remedy}");
    Status::with_error_details(
        Code::NotFound,
        message.clone(),
        ErrorDetails::with_resource_info(kind, name, "", message),
    )
}

/// It cannot be done as things stand. `reason` is an `UPPER_SNAKE_CASE` word for programs.
pub(super) fn refused(reason: &str, message: impl Into<String>) -> Status {
    Status::with_error_details(
        Code::FailedPrecondition,
        message,
        ErrorDetails::with_error_info(reason, DOMAIN, std::collections::HashMap::new()),
    )
}

/// There is too much of it already. `subject` is what there is too much of, or what has it.
pub(super) fn exhausted(subject: &str, message: impl Into<String>) -> Status {
    let message = message.into();
    Status::with_error_details(
        Code::ResourceExhausted,
        message.clone(),
        ErrorDetails::with_quota_failure_violation(subject, message),
    )
}

/// Somebody else changed the same at the same time.
pub(super) fn raced(message: impl Into<String>) -> Status {
    Status::with_error_details(
        Code::Aborted,
        message,
        ErrorDetails::with_retry_info(Some(Duration::ZERO)),
    )
}

/// A response that was there a moment ago.
pub(super) fn gone(key: &ResponseKey) -> Status {
    let remedy = "it was removed meanwhile; `nabuctl response list` shows those that there are";
    missing("response", &key.to_string(), remedy)
}

/// The store failed; its own words stay in the log.
#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
pub(super) fn failed(error: StoreError) -> Status {
    error!(%error, source = ?std::error::Error::source(&error).map(ToString::to_string), "cannot answer an administrator");
    Status::with_error_details(
        Code::Unavailable,
        "the hub's store does not answer; its log says more",
        ErrorDetails::with_retry_info(Some(AFTER_STORE_ERROR)),
    )
}

/// Reads a cluster id.
pub(super) fn cluster_id(field: &str, text: &str) -> Result<ClusterId, Status> {
    text.parse()
        .map_err(|error| invalid(field, format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_is_named_in_the_details_too() {
        let status = invalid("page_size", "must not be negative");
        assert_eq!(status.code(), Code::InvalidArgument);
        let details = status.get_details_bad_request().unwrap();
        assert_eq!(details.field_violations[0].field, "page_size");
    }

    #[test]
    fn what_others_wrote_stays_short_and_on_one_line() {
        let text = shortened(&format!("a\nb{}", "x".repeat(1000)));
        assert_eq!(text.len(), LONGEST);
        assert!(text.starts_with("a b"));
    }
}
