//! Statements of the admin API: its audit lines, and the numbered changes of responses.

use jiff::Timestamp;
use nabu_common::ids::ClusterId;
use sqlx::sqlite::{Sqlite, SqliteRow};
use sqlx::{QueryBuilder, SqliteConnection, SqlitePool};

use super::rows::{column, optional_time, signed, time, unsigned};
use super::writer::OrFailed as _;
use crate::store::{AdminCall, AuditEvent, AuditFilter, AuditRecord, StoreError};

pub(super) async fn audit_calls(
    connection: &mut SqliteConnection,
    calls: Vec<AdminCall>,
) -> Result<(), StoreError> {
    for call in calls {
        let action = call.method.rsplit('/').next().unwrap_or_default();
        sqlx::query(
            "INSERT INTO audit (at, actor, action, detail, method, target, outcome) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )
        .bind(call.at.as_microsecond())
        .bind(&call.actor)
        .bind(action)
        .bind(&call.detail)
        .bind(&call.method)
        .bind(&call.target)
        .bind(&call.outcome)
        .execute(&mut *connection)
        .await
        .or_failed("append to the audit log")?;
    }
    Ok(())
}

pub(super) async fn audit_log(
    pool: &SqlitePool,
    filter: &AuditFilter,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<AuditRecord>, StoreError> {
    let mut query = QueryBuilder::<Sqlite>::new("SELECT * FROM audit WHERE 1");
    if filter.admin_calls_only {
        query.push(" AND method IS NOT NULL");
    }
    for (column, wanted) in [
        ("actor", &filter.actor),
        ("action", &filter.action),
        ("outcome", &filter.outcome),
    ] {
        if let Some(wanted) = wanted {
            query
                .push(format!(" AND {column} = "))
                .push_bind(wanted.clone());
        }
    }
    if let Some(cluster) = &filter.cluster {
        // Of a call that is about a response, the target begins with the cluster.
        let cluster = cluster.as_str().to_owned();
        query.push(" AND (cluster = ").push_bind(cluster.clone());
        query.push(" OR target = ").push_bind(cluster.clone());
        query
            .push(" OR substr(target, 1, ")
            .push_bind(i64::try_from(cluster.len() + 1).unwrap_or(i64::MAX))
            .push(") = ")
            .push_bind(format!("{cluster}/"))
            .push(")");
    }
    if let Some(since) = filter.since {
        query.push(" AND at >= ").push_bind(since.as_microsecond());
    }
    if let Some(before) = before {
        query.push(" AND id < ").push_bind(signed(before));
    }
    query.push(" ORDER BY id DESC LIMIT ").push_bind(limit);
    let rows = query
        .build()
        .fetch_all(pool)
        .await
        .or_failed("read the audit log")?;
    rows.iter().map(audit_record).collect()
}

fn audit_record(row: &SqliteRow) -> Result<AuditRecord, StoreError> {
    let text = |name| Ok::<_, StoreError>(column::<Option<String>>(row, name)?.unwrap_or_default());
    let cluster = column::<Option<&str>>(row, "cluster")?;
    let uid = column::<Option<&str>>(row, "uid")?;
    let about = [cluster, uid].into_iter().flatten().collect::<Vec<_>>();
    let target = text("target")?;
    Ok(AuditRecord {
        id: unsigned(column(row, "id")?),
        event: AuditEvent {
            at: time(row, "at")?,
            actor: column(row, "actor")?,
            action: column(row, "action")?,
            detail: column(row, "detail")?,
        },
        method: text("method")?,
        target: if target.is_empty() {
            about.join("/")
        } else {
            target
        },
        outcome: text("outcome")?,
    })
}

pub(super) async fn acknowledged_at(
    pool: &SqlitePool,
    cluster: &ClusterId,
    uid: &str,
) -> Result<Option<Timestamp>, StoreError> {
    let row = sqlx::query("SELECT acknowledged_at FROM responses WHERE cluster = ?1 AND uid = ?2")
        .bind(cluster.as_str())
        .bind(uid)
        .fetch_optional(pool)
        .await
        .or_failed("read an acknowledgement")?;
    row.as_ref()
        .map_or(Ok(None), |row| optional_time(row, "acknowledged_at"))
}
