//! Statements that remove a cluster, and end what is under way for it a few responses at a time: others write meanwhile.

use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};
use sqlx::SqliteConnection;

use super::rows::key;
use super::write;
use super::writer::OrFailed as _;
use crate::plan::progress::mark_deleted;
use crate::store::{AuditEvent, SideRecords, StoreError};

/// Responses of removed clusters that are under way, as if their EventResponses were still there.
const LEFT_OVER: &str =
    "SELECT r.cluster, r.uid FROM responses r JOIN clusters c ON c.cluster = r.cluster
    WHERE c.removed_at IS NOT NULL AND r.phase IN ('Pending', 'Running') AND r.deleted = 0 LIMIT ?1";

/// `false` if there is no such cluster.
pub(super) async fn remove_cluster(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    audit: AuditEvent,
) -> Result<bool, StoreError> {
    if !mark_removed(connection, &cluster, audit.at).await? {
        return Ok(false);
    }
    write::audit(connection, Some(cluster), audit).await?;
    Ok(true)
}

/// Ends up to `limit` responses that are under way for clusters that were removed; gives them.
pub(super) async fn finish_removals(
    connection: &mut SqliteConnection,
    limit: u32,
) -> Result<Vec<ResponseKey>, StoreError> {
    let left = sqlx::query(LEFT_OVER)
        .bind(limit)
        .fetch_all(&mut *connection)
        .await
        .or_failed("read what is under way for removed clusters")?;
    let left = left.iter().map(key).collect::<Result<Vec<_>, _>>()?;
    mark_gone(connection, left.clone()).await?;
    Ok(left)
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
