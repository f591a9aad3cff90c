//! Rows and the JSON inside them, to values and back.

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, Revision};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use crate::response::{Content, Observation, Progress, SecurityEventAbsence};
use crate::store::{RoutedTo, StoreError};

pub(super) fn failed(action: &'static str, source: sqlx::Error) -> StoreError {
    StoreError::Database {
        action,
        source: Box::new(source),
    }
}

/// The text of a value; only a value that JSON cannot hold fails, and none of ours is one.
pub(super) fn to_json<T: Serialize>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|source| StoreError::Database {
        action: "write a value as JSON",
        source: Box::new(source),
    })
}

pub(super) fn from_json<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| corrupt(what, &error))
}

pub(super) fn corrupt(what: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        what: what.to_owned(),
        detail: error.to_string(),
    }
}

pub(super) fn column<'r, T>(row: &'r SqliteRow, name: &'static str) -> Result<T, StoreError>
where
    T: sqlx::Decode<'r, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
{
    row.try_get(name)
        .map_err(|error| corrupt(&format!("column {name}"), &error))
}

pub(super) fn time(row: &SqliteRow, name: &'static str) -> Result<Timestamp, StoreError> {
    micros(column(row, name)?)
}

pub(super) fn optional_time(
    row: &SqliteRow,
    name: &'static str,
) -> Result<Option<Timestamp>, StoreError> {
    column::<Option<i64>>(row, name)?.map(micros).transpose()
}

fn micros(at: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(at).map_err(|error| corrupt("time", &error))
}

/// Revisions and epochs are far from 2^63.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) fn cluster_id(row: &SqliteRow) -> Result<ClusterId, StoreError> {
    let text: &str = column(row, "cluster")?;
    text.parse().map_err(|error| corrupt("cluster id", &error))
}

pub(super) fn key(row: &SqliteRow) -> Result<ResponseKey, StoreError> {
    let uid: &str = column(row, "uid")?;
    Ok(ResponseKey {
        cluster: cluster_id(row)?,
        uid: uid.parse().map_err(|error| corrupt("UID", &error))?,
    })
}

/// The progress of a row, with its intent where the row has one. The acknowledged revision of the column counts: it
/// is written without the rest.
pub(super) fn progress(row: &SqliteRow) -> Result<Progress, StoreError> {
    let mut progress: Progress = from_json("responses.progress", column(row, "progress")?)?;
    progress.acknowledged_revision = Revision(unsigned(column(row, "acknowledged_revision")?));
    if let Ok(Some(intent)) = row.try_get::<Option<&str>, _>("intent") {
        progress.intent = Some(from_json("intents.intent", intent)?);
    }
    Ok(progress)
}

/// Where a row's change goes, from the columns of its intent.
pub(super) fn routed(row: &SqliteRow) -> Result<Option<RoutedTo>, StoreError> {
    let Some(route) = column::<Option<String>>(row, "route")? else {
        return Ok(None);
    };
    let provider = Value::String(column(row, "provider")?);
    Ok(Some(RoutedTo {
        route,
        provider: serde_json::from_value(provider)
            .map_err(|error| corrupt("intents.provider", &error))?,
        repository: column(row, "repository")?,
    }))
}

/// The form of [`Content`] in the store. A version that adds a field must read rows without it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum StoredContent {
    #[serde(rename_all = "camelCase")]
    Objects {
        event_response: Value,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        security_event: Option<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        absence: Option<SecurityEventAbsence>,
    },
    Unserveable {
        reason: String,
        message: String,
    },
}

pub(super) fn content_to_json(content: &Content) -> Result<String, StoreError> {
    let stored = match content.clone() {
        Content::Objects {
            event_response,
            security_event,
        } => {
            let (security_event, absence) = match security_event {
                Ok(object) => (Some(object), None),
                Err(absence) => (None, Some(absence)),
            };
            StoredContent::Objects {
                event_response,
                security_event,
                absence,
            }
        }
        Content::Unserveable { reason, message } => StoredContent::Unserveable { reason, message },
    };
    to_json(&stored)
}

fn content_from_json(text: &str) -> Result<Content, StoreError> {
    Ok(match from_json("response_objects.content", text)? {
        StoredContent::Objects {
            event_response,
            security_event,
            absence,
        } => Content::Objects {
            event_response,
            security_event: security_event.ok_or(absence.unwrap_or(SecurityEventAbsence::NotFound)),
        },
        StoredContent::Unserveable { reason, message } => Content::Unserveable { reason, message },
    })
}

/// The hash of the spec that is kept.
pub(super) fn spec_hash(row: &SqliteRow) -> Result<[u8; 32], StoreError> {
    let hash: &[u8] = column(row, "spec_hash")?;
    hash.try_into()
        .map_err(|error| corrupt("responses.spec_hash", &error))
}

pub(super) fn observation(row: &SqliteRow) -> Result<Observation, StoreError> {
    Ok(Observation {
        key: key(row)?,
        name: column(row, "name")?,
        generation: column(row, "generation")?,
        responder: column(row, "responder")?,
        spec_hash: spec_hash(row)?,
        content: content_from_json(column(row, "content")?)?,
    })
}
