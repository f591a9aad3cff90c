//! The statements of [`AdministratorStore`].

use async_trait::async_trait;
use jiff::Timestamp;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::identity::certificate_record;
use super::rows::{column, corrupt, time};
use super::write;
use super::writer::OrFailed as _;
use crate::store::administrators::{AdministratorStore, Barred, Certified, Revocation};
use crate::store::identity::CertificateRecord;
use crate::store::{AuditEvent, StoreError};

#[async_trait]
impl AdministratorStore for SqliteStore {
    async fn revoke_administrator(
        &self,
        revocation: Revocation,
        by: Option<Certified>,
        audit: AuditEvent,
    ) -> Result<bool, StoreError> {
        self.writer
            .submit(move |c| Box::pin(revoke(c, revocation, by, audit)))
            .await
    }

    async fn restore_administrator(
        &self,
        barred: Barred,
        audit: AuditEvent,
    ) -> Result<bool, StoreError> {
        self.writer
            .submit(move |c| Box::pin(restore(c, barred, audit)))
            .await
    }

    async fn revocations(&self) -> Result<Vec<Revocation>, StoreError> {
        let rows = sqlx::query("SELECT * FROM revoked_administrators ORDER BY revoked_at, value")
            .fetch_all(&self.readers)
            .await
            .or_failed("read revoked administrators")?;
        rows.iter().map(revocation).collect()
    }

    async fn administrators(
        &self,
        now: Timestamp,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Vec<(i64, CertificateRecord)>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM certificates WHERE identity LIKE 'admin/%' AND not_after > ?1 AND (?2 IS NULL OR id < ?2)
            ORDER BY id DESC LIMIT ?3",
        )
        .bind(now.as_microsecond())
        .bind(after)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .or_failed("read certificates of administrators")?;
        let numbered = |row: &SqliteRow| Ok((column(row, "id")?, certificate_record(row)?));
        rows.iter().map(numbered).collect()
    }
}

/// Kind and value, as the table has them.
fn key(barred: &Barred) -> (&'static str, &str) {
    match barred {
        Barred::Name(name) => ("name", name),
        Barred::Certificate(fingerprint) => ("certificate", fingerprint),
    }
}

fn revocation(row: &SqliteRow) -> Result<Revocation, StoreError> {
    let (kind, value): (String, String) = (column(row, "kind")?, column(row, "value")?);
    Ok(Revocation {
        barred: match kind.as_str() {
            "name" => Barred::Name(value),
            "certificate" => Barred::Certificate(value),
            other => return Err(corrupt("revoked_administrators.kind", &other)),
        },
        at: time(row, "revoked_at")?,
        by: column(row, "revoked_by")?,
        reason: column(row, "reason")?,
    })
}

async fn revoke(
    connection: &mut SqliteConnection,
    revocation: Revocation,
    by: Option<Certified>,
    audit: AuditEvent,
) -> Result<bool, StoreError> {
    if let Some(by) = by {
        let barred = sqlx::query(
            "SELECT 1 FROM revoked_administrators
            WHERE kind = 'name' AND value = ?1 OR kind = 'certificate' AND value = ?2",
        )
        .bind(by.name)
        .bind(by.fingerprint)
        .fetch_optional(&mut *connection)
        .await
        .or_failed("read revoked administrators")?;
        if barred.is_some() {
            return Ok(false);
        }
    }
    let (kind, value) = key(&revocation.barred);
    sqlx::query(
        "INSERT INTO revoked_administrators (kind, value, revoked_at, revoked_by, reason) VALUES (?1, ?2, ?3, ?4, ?5)
        ON CONFLICT (kind, value) DO NOTHING",
    )
    .bind(kind)
    .bind(value)
    .bind(revocation.at.as_microsecond())
    .bind(&revocation.by)
    .bind(&revocation.reason)
    .execute(&mut *connection)
    .await
    .or_failed("revoke an administrator")?;
    write::audit(connection, None, audit).await?;
    Ok(true)
}

async fn restore(
    connection: &mut SqliteConnection,
    barred: Barred,
    audit: AuditEvent,
) -> Result<bool, StoreError> {
    let (kind, value) = key(&barred);
    let done = sqlx::query("DELETE FROM revoked_administrators WHERE kind = ?1 AND value = ?2")
        .bind(kind)
        .bind(value)
        .execute(&mut *connection)
        .await
        .or_failed("restore an administrator")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    write::audit(connection, None, audit).await?;
    Ok(true)
}
