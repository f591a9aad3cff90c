//! What readers ask. Each statement sees one state of the database.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid};
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{QueryBuilder, SqlitePool};

use super::filter;
use super::rows::{
    cluster_id, column, corrupt, from_json, key, observation, optional_time, progress, routed,
    spec_hash, time, unsigned,
};
use super::writer::OrFailed as _;
use crate::execute::gate::Gate;
use crate::execute::lanes::LaneId;
use crate::response::Response;
use crate::store::{
    AttemptRecord, AttemptResult, AuditEvent, ClusterRecord, ResponseFilter, ResponseSummary,
    SessionFacts, StoreError, Watched,
};

pub(super) async fn count_unfinished(
    pool: &SqlitePool,
    cluster: &ClusterId,
) -> Result<u64, StoreError> {
    let row = sqlx::query(
        "SELECT count(*) AS number FROM responses WHERE cluster = ?1 AND phase IN ('Pending', 'Running')",
    )
    .bind(cluster.as_str())
    .fetch_one(pool)
    .await
    .or_failed("count unfinished responses")?;
    column::<i64>(&row, "number").map(i64::unsigned_abs)
}

pub(super) async fn unfinished_of(
    pool: &SqlitePool,
    cluster: &ClusterId,
) -> Result<Vec<(ResponseUid, Timestamp)>, StoreError> {
    let rows = sqlx::query(
        "SELECT cluster, uid, observed_at FROM responses
        WHERE cluster = ?1 AND phase IN ('Pending', 'Running') AND deleted = 0",
    )
    .bind(cluster.as_str())
    .fetch_all(pool)
    .await
    .or_failed("read unfinished responses")?;
    rows.iter()
        .map(|row| Ok((key(row)?.uid, time(row, "observed_at")?)))
        .collect()
}

pub(super) async fn response(
    pool: &SqlitePool,
    wanted: &ResponseKey,
) -> Result<Option<Response>, StoreError> {
    let row = sqlx::query(
        "SELECT r.*, o.content, i.intent FROM responses r
        JOIN response_objects o ON o.response = r.id LEFT JOIN intents i ON i.response = r.id
        WHERE r.cluster = ?1 AND r.uid = ?2",
    )
    .bind(wanted.cluster.as_str())
    .bind(wanted.uid.as_str())
    .fetch_optional(pool)
    .await
    .or_failed("read a response")?;
    row.map(|row| {
        Ok(Response {
            observation: observation(&row)?,
            observed_at: time(&row, "observed_at")?,
            progress: progress(&row)?,
        })
    })
    .transpose()
}

pub(super) async fn unfinished(
    pool: &SqlitePool,
    after: Option<&ResponseKey>,
    limit: u32,
) -> Result<Vec<ResponseKey>, StoreError> {
    let (cluster, uid) = after.map_or(("", ""), |key| (key.cluster.as_str(), key.uid.as_str()));
    // Each half walks its own index.
    let rows = sqlx::query(
        "SELECT * FROM (SELECT cluster, uid FROM responses WHERE phase IN ('Pending', 'Running')
            AND (cluster, uid) > (?1, ?2) ORDER BY cluster, uid LIMIT ?3)
        UNION SELECT * FROM (SELECT cluster, uid FROM responses WHERE follow_up = 1
            AND (cluster, uid) > (?1, ?2) ORDER BY cluster, uid LIMIT ?3)
        ORDER BY cluster, uid LIMIT ?3",
    )
    .bind(cluster)
    .bind(uid)
    .bind(limit)
    .fetch_all(pool)
    .await
    .or_failed("read unfinished responses")?;
    rows.iter().map(key).collect()
}

pub(super) async fn unacknowledged(
    pool: &SqlitePool,
    cluster: &ClusterId,
    after: Option<&ResponseUid>,
    limit: u32,
) -> Result<Vec<ResponseSummary>, StoreError> {
    let rows = sqlx::query(
        "SELECT r.*, i.route, i.provider, i.repository FROM responses r LEFT JOIN intents i ON i.response = r.id
        WHERE r.cluster = ?1 AND r.uid > ?2 AND r.revision > r.acknowledged_revision AND r.deleted = 0
        ORDER BY r.uid LIMIT ?3",
    )
    .bind(cluster.as_str())
    .bind(after.map_or("", ResponseUid::as_str))
    .bind(limit)
    .fetch_all(pool)
    .await
    .or_failed("read statuses")?;
    rows.iter().map(summary).collect()
}

pub(super) async fn followed(
    pool: &SqlitePool,
    after: Option<&ResponseKey>,
    limit: u32,
) -> Result<Vec<ResponseSummary>, StoreError> {
    let (cluster, uid) = after.map_or(("", ""), |key| (key.cluster.as_str(), key.uid.as_str()));
    let rows = sqlx::query(
        "SELECT r.*, i.route, i.provider, i.repository, i.intent FROM responses r
        JOIN intents i ON i.response = r.id
        WHERE r.followed = 1 AND (r.cluster, r.uid) > (?1, ?2) ORDER BY r.cluster, r.uid LIMIT ?3",
    )
    .bind(cluster)
    .bind(uid)
    .bind(limit)
    .fetch_all(pool)
    .await
    .or_failed("read followed responses")?;
    rows.iter().map(summary).collect()
}

pub(super) async fn followed_on(
    pool: &SqlitePool,
    branch: &str,
) -> Result<Vec<ResponseSummary>, StoreError> {
    let rows = sqlx::query(
        "SELECT r.*, i.route, i.provider, i.repository, i.intent FROM responses r
        JOIN intents i ON i.response = r.id WHERE r.followed = 1 AND r.followed_branch = ?1",
    )
    .bind(branch)
    .fetch_all(pool)
    .await
    .or_failed("read followed responses")?;
    rows.iter().map(summary).collect()
}

pub(super) async fn of_group(
    pool: &SqlitePool,
    branch: &str,
) -> Result<Vec<ResponseSummary>, StoreError> {
    let rows = sqlx::query(
        // There may be many, and nobody looks at their files.
        "SELECT r.*, i.route, i.provider, i.repository,
            json_set(i.intent, '$.files', json('[]'), '$.body', '') AS intent FROM intents i
        JOIN responses r ON r.id = i.response WHERE i.group_branch = ?1",
    )
    .bind(branch)
    .fetch_all(pool)
    .await
    .or_failed("read the responses of a group")?;
    rows.iter().map(summary).collect()
}

pub(super) async fn watched(
    pool: &SqlitePool,
    cluster: &ClusterId,
    after: Option<&ResponseUid>,
    limit: u32,
) -> Result<Vec<Watched>, StoreError> {
    let rows = sqlx::query(
        "SELECT cluster, uid, name, spec_hash, progress, acknowledged_revision FROM responses
        WHERE watched = 1 AND cluster = ?1 AND uid > ?2 ORDER BY uid LIMIT ?3",
    )
    .bind(cluster.as_str())
    .bind(after.map_or("", ResponseUid::as_str))
    .bind(limit)
    .fetch_all(pool)
    .await
    .or_failed("read watched responses")?;
    let watched = |row| {
        let spec_hash = spec_hash(row)?;
        Ok(Watched {
            uid: key(row)?.uid,
            name: column(row, "name")?,
            spec_hash: progress(row)?.spec_watched.then_some(spec_hash),
        })
    };
    rows.iter().map(watched).collect()
}

pub(super) fn summary(row: &SqliteRow) -> Result<ResponseSummary, StoreError> {
    Ok(ResponseSummary {
        key: key(row)?,
        name: column(row, "name")?,
        generation: column(row, "generation")?,
        spec_hash: spec_hash(row)?,
        observed_at: time(row, "observed_at")?,
        progress: progress(row)?,
        routed: routed(row)?,
    })
}

pub(super) async fn clusters(pool: &SqlitePool) -> Result<Vec<ClusterRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT c.*, count(r.id) AS unfinished, min(r.observed_at) AS oldest_unfinished_at FROM clusters c
        LEFT JOIN responses r ON r.cluster = c.cluster AND r.phase IN ('Pending', 'Running')
        WHERE c.removed_at IS NULL GROUP BY c.cluster ORDER BY c.cluster",
    )
    .fetch_all(pool)
    .await
    .or_failed("read clusters")?;
    rows.iter().map(cluster).collect()
}

fn cluster(row: &SqliteRow) -> Result<ClusterRecord, StoreError> {
    let labels: BTreeMap<String, String> = from_json("clusters.labels", column(row, "labels")?)?;
    Ok(ClusterRecord {
        facts: SessionFacts {
            cluster: cluster_id(row)?,
            cluster_name: column(row, "name")?,
            kube_system_uid: column(row, "kube_system_uid")?,
            kubernetes_version: column(row, "kubernetes_version")?,
            agent_version: column(row, "agent_version")?,
            responder_names: from_json(
                "clusters.responder_names",
                column(row, "responder_names")?,
            )?,
        },
        registered_at: time(row, "registered_at")?,
        last_seen_at: time(row, "last_seen_at")?,
        epoch: unsigned(column(row, "epoch")?),
        labels,
        unfinished: unsigned(column(row, "unfinished")?),
        oldest_unfinished_at: optional_time(row, "oldest_unfinished_at")?,
    })
}

pub(super) async fn responses(
    pool: &SqlitePool,
    filter: &ResponseFilter,
    before: Option<(Timestamp, ResponseKey)>,
    limit: u32,
) -> Result<Vec<ResponseSummary>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new(
        "SELECT r.*, i.route, i.provider, i.repository FROM responses r LEFT JOIN intents i ON i.response = r.id
        WHERE 1",
    );
    filter::push(&mut query, filter);
    if let Some((at, key)) = before {
        query
            .push(" AND (r.observed_at, r.cluster, r.uid) < (")
            .push_bind(at.as_microsecond());
        query.push(", ").push_bind(key.cluster.as_str().to_owned());
        query
            .push(", ")
            .push_bind(key.uid.as_str().to_owned())
            .push(")");
    }
    query
        .push(" ORDER BY r.observed_at DESC, r.cluster DESC, r.uid DESC LIMIT ")
        .push_bind(limit);
    let rows = query
        .build()
        .fetch_all(pool)
        .await
        .or_failed("list responses")?;
    rows.iter().map(summary).collect()
}

pub(super) async fn response_by_name(
    pool: &SqlitePool,
    cluster: &ClusterId,
    name: &str,
) -> Result<Option<ResponseKey>, StoreError> {
    let row = sqlx::query(
        "SELECT cluster, uid FROM responses WHERE cluster = ?1 AND name = ?2 ORDER BY observed_at DESC LIMIT 1",
    )
    .bind(cluster.as_str())
    .bind(name)
    .fetch_optional(pool)
    .await
    .or_failed("find a response by its name")?;
    row.as_ref().map(key).transpose()
}

pub(super) async fn attempts(
    pool: &SqlitePool,
    key: &ResponseKey,
) -> Result<Vec<AttemptRecord>, StoreError> {
    let rows = sqlx::query(
        "SELECT a.* FROM attempts a JOIN responses r ON r.id = a.response
        WHERE r.cluster = ?1 AND r.uid = ?2 ORDER BY a.number",
    )
    .bind(key.cluster.as_str())
    .bind(key.uid.as_str())
    .fetch_all(pool)
    .await
    .or_failed("read attempts")?;
    rows.iter().map(attempt).collect()
}

fn attempt(row: &SqliteRow) -> Result<AttemptRecord, StoreError> {
    let ended = match (
        optional_time(row, "ended_at")?,
        column::<Option<&str>>(row, "result")?,
    ) {
        (Some(at), Some(word)) => {
            let result =
                AttemptResult::parse(word).ok_or_else(|| corrupt("attempts.result", &word))?;
            Some((at, result))
        }
        _ => None,
    };
    let error = column::<Option<&str>>(row, "error")?;
    Ok(AttemptRecord {
        number: column(row, "number")?,
        started_at: time(row, "started_at")?,
        ended,
        error: error
            .map(|text| from_json("attempts.error", text))
            .transpose()?,
        requests: column(row, "requests")?,
    })
}

pub(super) async fn history(
    pool: &SqlitePool,
    key: &ResponseKey,
    limit: u32,
) -> Result<Vec<AuditEvent>, StoreError> {
    let rows = sqlx::query(
        "SELECT at, actor, action, detail FROM audit WHERE cluster = ?1 AND uid = ?2 ORDER BY id LIMIT ?3",
    )
    .bind(key.cluster.as_str())
    .bind(key.uid.as_str())
    .bind(limit)
    .fetch_all(pool)
    .await
    .or_failed("read the audit log")?;
    rows.iter()
        .map(|row| {
            Ok(AuditEvent {
                at: time(row, "at")?,
                actor: column(row, "actor")?,
                action: column(row, "action")?,
                detail: column(row, "detail")?,
            })
        })
        .collect()
}

pub(super) async fn gates(pool: &SqlitePool) -> Result<Vec<(LaneId, Gate)>, StoreError> {
    let rows = sqlx::query("SELECT lane, state FROM gates")
        .fetch_all(pool)
        .await
        .or_failed("read the limits of forges")?;
    rows.iter()
        .map(|row| {
            let lane = from_json("a lane", column(row, "lane")?)?;
            Ok((lane, from_json("a gate", column(row, "state")?)?))
        })
        .collect()
}
