//! Owns reading `SecurityEvents`: one by name, when an EventResponse that answers it is about to be sent.
//!
//! They are never cached or watched: a cluster has many more of them than responses.

use bytes::Bytes;
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Error};
use serde_json::Value;

use crate::object::{GROUP, SecurityEventRef, VERSION, strip_managed_fields};
use crate::session::Absence;

/// What a look for a SecurityEvent found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// The object, as JSON without managed fields.
    Here(Bytes),
    /// None of that name; it may still come.
    NotYet,
    /// It will not help to wait.
    Absent(Absence),
}

/// Looks once.
pub async fn fetch(client: &Client, wanted: &SecurityEventRef) -> Result<Found, Error> {
    let path = format!("/apis/{GROUP}/{VERSION}/securityevents");
    // A name that makes no valid path names no object.
    let Ok(request) = Request::new(path).get(&wanted.name, &GetParams::default()) else {
        return Ok(Found::Absent(Absence::NotFound));
    };
    match client.request::<Value>(request).await {
        Ok(object) => Ok(accept(object, wanted)),
        Err(error) => missing(error),
    }
}

fn accept(mut object: Value, wanted: &SecurityEventRef) -> Found {
    let uid = object
        .pointer("/metadata/uid")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if !wanted.uid.is_empty() && wanted.uid != uid {
        return Found::Absent(Absence::UidMismatch);
    }
    strip_managed_fields(&mut object);
    Found::Here(object.to_string().into())
}

fn missing(error: Error) -> Result<Found, Error> {
    let Error::Api(status) = &error else {
        return Err(error);
    };
    // A 404 for one object names it; one for a kind that is not served does not.
    let names_object = status
        .details
        .as_ref()
        .is_some_and(|details| !details.name.is_empty());
    match status.code {
        404 if names_object => Ok(Found::NotYet),
        403 | 404 => Ok(Found::Absent(Absence::NotReadable)),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted(uid: &str) -> SecurityEventRef {
        SecurityEventRef {
            name: "se-1".to_owned(),
            uid: uid.to_owned(),
        }
    }

    fn refusal(status: Value) -> Found {
        missing(Error::Api(serde_json::from_value(status).unwrap())).unwrap()
    }

    #[test]
    fn another_uid_is_another_security_event() {
        let object = json!({"metadata": {"name": "se-1", "uid": "b", "managedFields": []}});
        assert_eq!(
            accept(object.clone(), &wanted("a")),
            Found::Absent(Absence::UidMismatch)
        );
        let same = json!({"metadata": {"name": "se-1", "uid": "b"}}).to_string();
        assert_eq!(
            accept(object.clone(), &wanted("b")),
            Found::Here(same.clone().into())
        );
        assert_eq!(accept(object, &wanted("")), Found::Here(same.into()));
    }

    #[test]
    fn a_missing_object_may_come_but_a_missing_kind_or_right_will_not() {
        let object =
            json!({"code": 404, "reason": "NotFound", "message": "", "details": {"name": "se-1"}});
        assert_eq!(refusal(object), Found::NotYet);
        let kind = json!({"code": 404, "reason": "NotFound", "message": "could not find the requested resource"});
        assert_eq!(refusal(kind), Found::Absent(Absence::NotReadable));
        assert_eq!(
            refusal(json!({"code": 403, "message": "forbidden"})),
            Found::Absent(Absence::NotReadable)
        );
    }

    #[test]
    fn a_failing_api_server_is_an_error_and_no_absence() {
        let status = serde_json::from_value(json!({"code": 503, "message": "later"})).unwrap();
        assert!(missing(Error::Api(status)).is_err());
    }
}
