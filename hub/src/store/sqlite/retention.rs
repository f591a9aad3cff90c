//! Statements that remove what is kept long enough, a few rows at a time.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::rows::column;
use super::writer::OrFailed as _;
use crate::store::StoreError;

/// The newest change stays, whatever it is: its number is what the next one is counted from.
const PRUNABLE: &str = "SELECT id FROM responses
    WHERE phase NOT IN ('Pending', 'Running') AND followed = 0 AND follow_up = 0 AND watched = 0
        AND json_extract(progress, '$.completed_at') < ?1
        AND coalesce(acknowledged_at, 0) < ?2
        AND (acknowledged_revision >= revision OR deleted = 1
            OR cluster IN (SELECT cluster FROM clusters WHERE removed_at IS NOT NULL))
        AND change < (SELECT max(change) FROM responses)
    ORDER BY json_extract(progress, '$.completed_at') LIMIT ?3";

pub(super) async fn prune_responses(
    connection: &mut SqliteConnection,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    let failed = "remove old responses";
    // Times in JSON are text; to a second they sort as times do.
    let rows = sqlx::query(PRUNABLE)
        .bind(format!("{before:.0}"))
        .bind(before.as_microsecond())
        .bind(limit)
        .fetch_all(&mut *connection)
        .await
        .or_failed(failed)?;
    for row in &rows {
        let id = column::<i64>(row, "id")?;
        for table in ["attempts", "intents", "response_objects"] {
            let statement = format!("DELETE FROM {table} WHERE response = ?1");
            sqlx::query(sqlx::AssertSqlSafe(statement))
                .bind(id)
                .execute(&mut *connection)
                .await
                .or_failed(failed)?;
        }
        sqlx::query("DELETE FROM responses WHERE id = ?1")
            .bind(id)
            .execute(&mut *connection)
            .await
            .or_failed(failed)?;
    }
    Ok(rows.len() as u64)
}

/// Oldest first by their time, which need not be the order in which they were written: clocks may have been ahead. The newest
/// one stays, so that numbers go on.
pub(super) async fn prune_audit(
    connection: &mut SqliteConnection,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    let failed = "remove old lines of the audit log";
    sqlx::query(
        "INSERT INTO audit_floor (one, before) VALUES (1, ?1)
        ON CONFLICT (one) DO UPDATE SET before = max(before, ?1)",
    )
    .bind(before.as_microsecond())
    .execute(&mut *connection)
    .await
    .or_failed(failed)?;
    let removed = sqlx::query(
        "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < ?1 AND id < (SELECT max(id) FROM audit)
            ORDER BY at, id LIMIT ?2)",
    )
    .bind(before.as_microsecond())
    .bind(limit)
    .execute(connection)
    .await
    .or_failed(failed)?;
    Ok(removed.rows_affected())
}
