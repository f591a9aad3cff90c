//! Statements that remove a cluster together with what is under way for it: all of it, or nothing.

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid};
use sqlx::SqliteConnection;

use super::rows::key;
use super::write;
use super::writer::OrFailed as _;
use crate::plan::progress::mark_deleted;
use crate::store::{AuditEvent, SideRecords, StoreError};

/// Responses of removed clusters that are under way, as if their EventResponses were still there.
const LEFT_OVER: &str =
    "SELECT r.cluster, r.uid FROM responses r JOIN clusters c ON c.cluster = r.cluster
    WHERE c.removed_at IS NOT NULL AND r.phase IN ('Pending', 'Running') AND r.deleted = 0";

/// Gives the responses that are not wanted any more; `None` if there is no such cluster.
pub(super) async fn remove_cluster(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    audit: AuditEvent,
) -> Result<Option<Vec<ResponseUid>>, StoreError> {
    if !mark_removed(connection, &cluster, audit.at).await? {
        return Ok(None);
    }
    let gone = sqlx::query(sqlx::AssertSqlSafe(format!(
        "{LEFT_OVER} AND r.cluster = ?1"
    )))
    .bind(cluster.as_str())
    .fetch_all(&mut *connection)
    .await
    .or_failed("read what is under way for a removed cluster")?;
    let gone = gone.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    mark_gone(connection, gone.clone()).await?;
    write::audit(connection, Some(cluster), audit).await?;
    Ok(Some(gone.into_iter().map(|key| key.uid).collect()))
}

/// Ends what was stored for a cluster while it was removed, or by a hub that did so in steps and was interrupted; gives how
/// many responses that were.
pub(super) async fn finish_removals(connection: &mut SqliteConnection) -> Result<u64, StoreError> {
    let left = sqlx::query(LEFT_OVER)
        .fetch_all(&mut *connection)
        .await
        .or_failed("read what is under way for removed clusters")?;
    let left = left.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    let count = left.len() as u64;
    mark_gone(connection, left).await?;
    Ok(count)
}

async fn mark_removed(
    connection: &mut SqliteConnection,
    cluster: &ClusterId,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE clusters SET removed_at = ?2, labels = '{}' WHERE cluster = ?1 AND removed_at IS NULL",
    )
    .bind(cluster.as_str())
    .bind(at.as_microsecond())
    .execute(&mut *connection)
    .await
    .or_failed("remove a cluster")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    for statement in [
        "UPDATE certificates SET revoked_at = ?2 WHERE cluster = ?1 AND revoked_at IS NULL",
        "UPDATE join_tokens SET revoked_at = ?2 WHERE cluster = ?1 AND revoked_at IS NULL",
    ] {
        sqlx::query(statement)
            .bind(cluster.as_str())
            .bind(at.as_microsecond())
            .execute(&mut *connection)
            .await
            .or_failed("revoke what a removed cluster has")?;
    }
    Ok(true)
}

async fn mark_gone(
    connection: &mut SqliteConnection,
    responses: Vec<ResponseKey>,
) -> Result<(), StoreError> {
    for response in responses {
        let gone = Box::new(|progress: &mut _| {
            mark_deleted(progress);
            SideRecords::default()
        });
        write::transition(connection, response, gone).await?;
    }
    Ok(())
}
