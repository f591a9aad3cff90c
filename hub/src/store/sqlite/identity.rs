//! The statements of [`IdentityStore`].

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection, SqlitePool};

use super::SqliteStore;
use super::removal;
use super::rows::{cluster_id, column, corrupt, optional_time, signed, time, to_json, unsigned};
use super::write;
use super::writer::OrFailed as _;
use crate::store::identity::{
    Added, Admission, AuthorityRecord, AuthorityState, CertificateRecord, ClusterIdentity,
    IdentityStore, NewToken, Redeemed, SharedIdentities, TOKENS_OF_A_CLUSTER, TokenRecord,
};
use crate::store::{AuditEvent, StoreError};

#[async_trait]
impl IdentityStore for SqliteStore {
    fn rehearsal(&self) -> SharedIdentities {
        Arc::new(Self {
            writer: self.writer.rehearsing(),
            readers: self.readers.clone(),
            _lock: None,
        })
    }

    async fn add_cluster(
        &self,
        labels: BTreeMap<String, String>,
        token: NewToken,
        audit: AuditEvent,
    ) -> Result<Added, StoreError> {
        self.writer
            .submit(move |c| Box::pin(add_cluster(c, labels, token, audit)))
            .await
    }

    async fn tokens(
        &self,
        cluster: Option<&ClusterId>,
        after: Option<(Timestamp, &str)>,
        limit: u32,
    ) -> Result<Vec<TokenRecord>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM join_tokens WHERE (?1 IS NULL OR cluster = ?1)
            AND (?2 IS NULL OR created_at < ?2 OR (created_at = ?2 AND id > ?3))
            ORDER BY created_at DESC, id LIMIT ?4",
        )
        .bind(cluster.map(ClusterId::as_str))
        .bind(after.map(|(created_at, _)| created_at.as_microsecond()))
        .bind(after.map(|(_, id)| id))
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .or_failed("read join tokens")?;
        rows.iter().map(token).collect()
    }

    async fn revoke_token(
        &self,
        id: &str,
        audit: AuditEvent,
    ) -> Result<Option<ClusterId>, StoreError> {
        let id = id.to_owned();
        self.writer
            .submit(move |c| Box::pin(revoke_token(c, id, audit)))
            .await
    }

    async fn redeem(
        &self,
        token_id: &str,
        key_digest: [u8; 32],
        certificate: CertificateRecord,
        der: Vec<u8>,
        audit: AuditEvent,
    ) -> Result<Redeemed, StoreError> {
        let id = token_id.to_owned();
        self.writer
            .submit(move |c| Box::pin(redeem(c, id, key_digest, (certificate, der), audit)))
            .await
    }

    async fn has_certified(&self, fingerprint: &str) -> Result<bool, StoreError> {
        let row = sqlx::query("SELECT 1 FROM certificates WHERE fingerprint = ?1")
            .bind(fingerprint)
            .fetch_optional(&self.readers)
            .await
            .or_failed("read a certificate")?;
        Ok(row.is_some())
    }

    async fn record_certificate(
        &self,
        certificate: CertificateRecord,
        audit: Option<AuditEvent>,
    ) -> Result<bool, StoreError> {
        self.writer
            .submit(move |c| Box::pin(record_certificate(c, certificate, audit)))
            .await
    }

    async fn admit(
        &self,
        cluster: &ClusterId,
        fingerprint: &str,
        kube_system_uid: &str,
        now: Timestamp,
    ) -> Result<Admission, StoreError> {
        let (cluster, fingerprint) = (cluster.clone(), fingerprint.to_owned());
        let said = kube_system_uid.to_owned();
        self.writer
            .submit(move |c| Box::pin(admit(c, cluster, fingerprint, said, now)))
            .await
    }

    async fn set_revoked(
        &self,
        cluster: &ClusterId,
        revoked: bool,
        audit: AuditEvent,
    ) -> Result<bool, StoreError> {
        let cluster = cluster.clone();
        self.writer
            .submit(move |c| Box::pin(set_revoked(c, cluster, revoked, audit)))
            .await
    }

    async fn remove_cluster(
        &self,
        cluster: &ClusterId,
        audit: AuditEvent,
    ) -> Result<bool, StoreError> {
        let cluster = cluster.clone();
        self.writer
            .submit(move |c| Box::pin(removal::remove_cluster(c, cluster, audit)))
            .await
    }

    async fn finish_removals(&self, limit: u32) -> Result<Vec<ResponseKey>, StoreError> {
        self.writer
            .submit(move |c| Box::pin(removal::finish_removals(c, limit)))
            .await
    }

    async fn rebind_cluster(
        &self,
        cluster: &ClusterId,
        kube_system_uid: &str,
        audit: AuditEvent,
    ) -> Result<Option<String>, StoreError> {
        let (cluster, uid) = (cluster.clone(), kube_system_uid.to_owned());
        self.writer
            .submit(move |c| Box::pin(rebind(c, cluster, uid, audit)))
            .await
    }

    async fn note_refused(
        &self,
        cluster: &ClusterId,
        kube_system_uid: &str,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (cluster, uid) = (cluster.clone(), kube_system_uid.to_owned());
        self.writer
            .submit(move |c| Box::pin(note_refused(c, cluster, uid, now)))
            .await
    }

    async fn blocked(&self) -> Result<HashSet<ClusterId>, StoreError> {
        let rows = sqlx::query(
            "SELECT cluster FROM clusters WHERE revoked_at IS NOT NULL OR removed_at IS NOT NULL",
        )
        .fetch_all(&self.readers)
        .await
        .or_failed("read revoked clusters")?;
        rows.iter().map(cluster_id).collect()
    }

    async fn cluster_identities(&self) -> Result<HashMap<ClusterId, ClusterIdentity>, StoreError> {
        cluster_identities(&self.readers).await
    }

    async fn certified_by(
        &self,
        authority: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let rows = sqlx::query(
            "SELECT DISTINCT identity FROM certificates AS c
            WHERE authority = ?1 AND not_after > ?2 AND revoked_at IS NULL AND superseded_at IS NULL
                AND identity NOT LIKE 'hub/%'
                AND (cluster IS NOT NULL OR id = (SELECT max(id) FROM certificates WHERE identity = c.identity))
                AND NOT EXISTS (SELECT 1 FROM clusters WHERE clusters.cluster = c.cluster AND revoked_at IS NOT NULL)
                AND NOT EXISTS (SELECT 1 FROM revoked_administrators AS r
                    WHERE (r.kind = 'name' AND c.identity = 'admin/' || r.value)
                        OR (r.kind = 'certificate' AND r.value = c.fingerprint))
            ORDER BY identity",
        )
        .bind(authority)
        .bind(now.as_microsecond())
        .fetch_all(&self.readers)
        .await
        .or_failed("read certificates")?;
        rows.iter().map(|row| column(row, "identity")).collect()
    }

    async fn authorities(
        &self,
    ) -> Result<Option<(AuthorityState, Vec<AuthorityRecord>)>, StoreError> {
        authorities(&self.readers).await
    }

    async fn put_authorities(
        &self,
        state: AuthorityState,
        new: Option<AuthorityRecord>,
        audit: AuditEvent,
    ) -> Result<bool, StoreError> {
        self.writer
            .submit(move |c| Box::pin(put_authorities(c, state, new, audit)))
            .await
    }

    async fn reseal_authorities(
        &self,
        resealed: Vec<AuthorityRecord>,
        audit: AuditEvent,
    ) -> Result<(), StoreError> {
        self.writer
            .submit(move |c| Box::pin(reseal_authorities(c, resealed, audit)))
            .await
    }
}

fn digest(row: &SqliteRow, name: &'static str) -> Result<Option<[u8; 32]>, StoreError> {
    let bytes: Option<&[u8]> = row
        .try_get(name)
        .map_err(|error| corrupt(&format!("column {name}"), &error))?;
    bytes
        .map(|bytes| bytes.try_into().map_err(|error| corrupt(name, &error)))
        .transpose()
}

fn token(row: &SqliteRow) -> Result<TokenRecord, StoreError> {
    Ok(TokenRecord {
        token: NewToken {
            id: column(row, "id")?,
            cluster: cluster_id(row)?,
            hash: digest(row, "hash")?.ok_or_else(|| corrupt("join_tokens.hash", &"empty"))?,
            created_by: column(row, "created_by")?,
            created_at: time(row, "created_at")?,
            expires_at: time(row, "expires_at")?,
        },
        revoked_at: optional_time(row, "revoked_at")?,
        used: optional_time(row, "used_at")?.zip(digest(row, "used_key")?),
    })
}

async fn is_blocked(
    connection: &mut SqliteConnection,
    cluster: &ClusterId,
) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT 1 FROM clusters WHERE cluster = ?1 AND (revoked_at IS NOT NULL OR removed_at IS NOT NULL)",
    )
    .bind(cluster.as_str())
    .fetch_optional(connection)
    .await
    .or_failed("read a cluster")?;
    Ok(row.is_some())
}

async fn add_cluster(
    connection: &mut SqliteConnection,
    labels: BTreeMap<String, String>,
    token: NewToken,
    audit: AuditEvent,
) -> Result<Added, StoreError> {
    let now = audit.at.as_microsecond();
    let cluster = token.cluster.as_str();
    let revoked = sqlx::query(
        "SELECT 1 FROM clusters WHERE cluster = ?1 AND revoked_at IS NOT NULL AND removed_at IS NULL",
    )
    .bind(cluster)
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read a cluster")?;
    if revoked.is_some() {
        return Ok(Added::Revoked);
    }
    let row = sqlx::query(
        "SELECT count(*) AS usable FROM join_tokens
        WHERE cluster = ?1 AND expires_at > ?2 AND revoked_at IS NULL AND used_at IS NULL",
    )
    .bind(cluster)
    .bind(now)
    .fetch_one(&mut *connection)
    .await
    .or_failed("count join tokens")?;
    if column::<i64>(&row, "usable")? >= i64::from(TOKENS_OF_A_CLUSTER) {
        return Ok(Added::TooManyTokens);
    }
    sqlx::query(
        "INSERT INTO clusters (cluster, name, kube_system_uid, kubernetes_version, agent_version, responder_names,
            labels, registered_at, last_seen_at, epoch)
        VALUES (?1, '', '', '', '', '[]', ?2, ?3, 0, 0)
        ON CONFLICT (cluster) DO UPDATE SET
            labels = CASE WHEN ?2 = '{}' THEN labels ELSE ?2 END,
            kube_system_uid = CASE WHEN removed_at IS NULL THEN kube_system_uid ELSE '' END,
            registered_at = CASE WHEN removed_at IS NULL THEN registered_at ELSE ?3 END,
            refused_uid = CASE WHEN removed_at IS NULL THEN refused_uid END,
            removed_at = NULL, revoked_at = NULL",
    )
    .bind(cluster)
    .bind(to_json(&labels)?)
    .bind(now)
    .execute(&mut *connection)
    .await
    .or_failed("store a cluster")?;
    // What can never be used again is history, and history is in the audit log.
    sqlx::query("DELETE FROM join_tokens WHERE expires_at < ?1 - 30 * 86400 * 1000000")
        .bind(now)
        .execute(&mut *connection)
        .await
        .or_failed("forget old join tokens")?;
    sqlx::query(
        "INSERT INTO join_tokens (id, cluster, hash, created_by, created_at, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(&token.id)
    .bind(cluster)
    .bind(&token.hash[..])
    .bind(&token.created_by)
    .bind(token.created_at.as_microsecond())
    .bind(token.expires_at.as_microsecond())
    .execute(&mut *connection)
    .await
    .or_failed("store a join token")?;
    write::audit(connection, Some(token.cluster), audit).await?;
    Ok(Added::Stored)
}

async fn revoke_token(
    connection: &mut SqliteConnection,
    id: String,
    audit: AuditEvent,
) -> Result<Option<ClusterId>, StoreError> {
    let row = sqlx::query(
        "UPDATE join_tokens SET revoked_at = coalesce(revoked_at, ?2) WHERE id = ?1 RETURNING cluster",
    )
    .bind(id)
    .bind(audit.at.as_microsecond())
    .fetch_optional(&mut *connection)
    .await
    .or_failed("revoke a join token")?;
    let Some(row) = row else { return Ok(None) };
    let cluster = cluster_id(&row)?;
    write::audit(connection, Some(cluster.clone()), audit).await?;
    Ok(Some(cluster))
}

async fn redeem(
    connection: &mut SqliteConnection,
    id: String,
    key: [u8; 32],
    (certificate, der): (CertificateRecord, Vec<u8>),
    audit: AuditEvent,
) -> Result<Redeemed, StoreError> {
    let row = sqlx::query(
        "UPDATE join_tokens SET used_at = coalesce(used_at, ?2), used_key = ?3
        WHERE id = ?1 AND expires_at > ?2 AND revoked_at IS NULL AND (used_at IS NULL OR used_key = ?3)
            AND NOT EXISTS (SELECT 1 FROM clusters AS c WHERE c.cluster = join_tokens.cluster
                AND (c.revoked_at IS NOT NULL OR c.removed_at IS NOT NULL))
        RETURNING cluster",
    )
    .bind(&id)
    .bind(audit.at.as_microsecond())
    .bind(&key[..])
    .fetch_optional(&mut *connection)
    .await
    .or_failed("use a join token")?;
    let Some(row) = row else {
        return Ok(Redeemed::No);
    };
    let cluster = cluster_id(&row)?;
    let before = sqlx::query(
        "SELECT c.*, t.certificate AS der FROM join_tokens AS t JOIN certificates AS c ON c.fingerprint = t.fingerprint
        WHERE t.id = ?1 AND c.authority = ?2 AND c.not_after > ?3
            AND c.revoked_at IS NULL AND c.superseded_at IS NULL",
    )
    .bind(&id)
    .bind(&certificate.authority)
    .bind(audit.at.as_microsecond())
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read what a join token was used for")?;
    if let Some(row) = before {
        return Ok(Redeemed::Again(
            certificate_record(&row)?,
            column(&row, "der")?,
        ));
    }
    insert(connection, &certificate).await?;
    sqlx::query("UPDATE join_tokens SET certificate = ?2, fingerprint = ?3 WHERE id = ?1")
        .bind(&id)
        .bind(der)
        .bind(&certificate.fingerprint)
        .execute(&mut *connection)
        .await
        .or_failed("note what a join token was used for")?;
    write::audit(connection, Some(cluster), audit).await?;
    Ok(Redeemed::New)
}

pub(super) fn certificate_record(row: &SqliteRow) -> Result<CertificateRecord, StoreError> {
    let cluster: Option<String> = column(row, "cluster")?;
    Ok(CertificateRecord {
        fingerprint: column(row, "fingerprint")?,
        serial: column(row, "serial")?,
        identity: column(row, "identity")?,
        cluster: cluster.map(|_| cluster_id(row)).transpose()?,
        authority: column(row, "authority")?,
        issued_at: time(row, "issued_at")?,
        not_after: time(row, "not_after")?,
    })
}

async fn insert(
    connection: &mut SqliteConnection,
    certificate: &CertificateRecord,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO certificates (fingerprint, serial, identity, cluster, authority, issued_at, not_after)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )
    .bind(&certificate.fingerprint)
    .bind(&certificate.serial)
    .bind(&certificate.identity)
    .bind(certificate.cluster.as_ref().map(ClusterId::as_str))
    .bind(&certificate.authority)
    .bind(certificate.issued_at.as_microsecond())
    .bind(certificate.not_after.as_microsecond())
    .execute(connection)
    .await
    .or_failed("store a certificate")?;
    Ok(())
}

async fn record_certificate(
    connection: &mut SqliteConnection,
    certificate: CertificateRecord,
    audit: Option<AuditEvent>,
) -> Result<bool, StoreError> {
    if let Some(cluster) = &certificate.cluster
        && is_blocked(connection, cluster).await?
    {
        return Ok(false);
    }
    insert(connection, &certificate).await?;
    if let Some(audit) = audit {
        write::audit(connection, certificate.cluster, audit).await?;
    }
    Ok(true)
}

async fn admit(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    fingerprint: String,
    kube_system_uid: String,
    now: Timestamp,
) -> Result<Admission, StoreError> {
    if is_blocked(connection, &cluster).await? {
        return Ok(Admission::Revoked);
    }
    let row = sqlx::query(
        "SELECT id, first_used_at, superseded_at, revoked_at FROM certificates WHERE fingerprint = ?1",
    )
    .bind(fingerprint)
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read a certificate")?;
    let Some(row) = row else {
        return Ok(Admission::Admitted);
    };
    if optional_time(&row, "revoked_at")?.is_some() {
        return Ok(Admission::Revoked);
    }
    if optional_time(&row, "superseded_at")?.is_some() {
        return Ok(Admission::Superseded);
    }
    let bound_elsewhere = sqlx::query(
        "SELECT 1 FROM clusters WHERE cluster = ?1 AND kube_system_uid NOT IN ('', ?2)",
    )
    .bind(cluster.as_str())
    .bind(kube_system_uid)
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read a cluster")?;
    if optional_time(&row, "first_used_at")?.is_none() && bound_elsewhere.is_none() {
        let id: i64 = column(&row, "id")?;
        sqlx::query("UPDATE certificates SET first_used_at = ?2 WHERE id = ?1")
            .bind(id)
            .bind(now.as_microsecond())
            .execute(&mut *connection)
            .await
            .or_failed("note the use of a certificate")?;
        sqlx::query(
            "UPDATE certificates SET superseded_at = ?3
            WHERE identity = 'cluster/' || ?1 AND id < ?2 AND superseded_at IS NULL",
        )
        .bind(cluster.as_str())
        .bind(id)
        .bind(now.as_microsecond())
        .execute(&mut *connection)
        .await
        .or_failed("supersede certificates")?;
        // Certificates live for a day; what ran out long ago is history, and history is in the audit log.
        sqlx::query(
            "DELETE FROM certificates WHERE identity = 'cluster/' || ?1 AND not_after < ?2 - 90 * 86400 * 1000000",
        )
        .bind(cluster.as_str())
        .bind(now.as_microsecond())
        .execute(connection)
        .await
        .or_failed("forget old certificates")?;
    }
    Ok(Admission::Admitted)
}

async fn set_revoked(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    revoked: bool,
    audit: AuditEvent,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE clusters SET revoked_at = CASE WHEN ?2 THEN coalesce(revoked_at, ?3) END
        WHERE cluster = ?1 AND removed_at IS NULL",
    )
    .bind(cluster.as_str())
    .bind(revoked)
    .bind(audit.at.as_microsecond())
    .execute(&mut *connection)
    .await
    .or_failed("revoke a cluster")?;
    if done.rows_affected() == 0 {
        return Ok(false);
    }
    write::audit(connection, Some(cluster), audit).await?;
    Ok(true)
}

async fn rebind(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    uid: String,
    audit: AuditEvent,
) -> Result<Option<String>, StoreError> {
    let row = sqlx::query(
        "SELECT kube_system_uid FROM clusters WHERE cluster = ?1 AND removed_at IS NULL",
    )
    .bind(cluster.as_str())
    .fetch_optional(&mut *connection)
    .await
    .or_failed("read a cluster")?;
    let Some(row) = row else { return Ok(None) };
    let before: String = column(&row, "kube_system_uid")?;
    sqlx::query(
        "UPDATE clusters SET kube_system_uid = ?2, refused_uid = NULL, refused_at = NULL WHERE cluster = ?1",
    )
    .bind(cluster.as_str())
    .bind(uid)
    .execute(&mut *connection)
    .await
    .or_failed("bind a cluster id anew")?;
    write::audit(connection, Some(cluster), audit).await?;
    Ok(Some(before))
}

async fn note_refused(
    connection: &mut SqliteConnection,
    cluster: ClusterId,
    uid: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE clusters SET refused_uid = ?2, refused_at = ?3 WHERE cluster = ?1")
        .bind(cluster.as_str())
        .bind(uid)
        .bind(now.as_microsecond())
        .execute(connection)
        .await
        .or_failed("note a refused cluster")?;
    Ok(())
}

async fn cluster_identities(
    readers: &SqlitePool,
) -> Result<HashMap<ClusterId, ClusterIdentity>, StoreError> {
    let rows = sqlx::query(
        "SELECT c.cluster, c.revoked_at, c.refused_uid, c.refused_at,
            (SELECT t.not_after FROM certificates AS t WHERE t.identity = 'cluster/' || c.cluster
                ORDER BY t.id DESC LIMIT 1) AS not_after, a.action AS fault, a.detail AS fault_detail, a.at AS fault_at
        FROM clusters AS c LEFT JOIN audit AS a ON a.id = (SELECT max(id) FROM audit WHERE cluster = c.cluster
            AND action IN ('FrameRefused', 'SessionEnded', 'SessionLost', 'SessionRefused', 'StatusRefused'))
        WHERE c.removed_at IS NULL",
    )
    .fetch_all(readers)
    .await
    .or_failed("read clusters")?;
    rows.iter()
        .map(|row| {
            let uid: Option<String> = column(row, "refused_uid")?;
            let identity = ClusterIdentity {
                revoked_at: optional_time(row, "revoked_at")?,
                refused: uid.zip(optional_time(row, "refused_at")?),
                certificate_not_after: optional_time(row, "not_after")?,
                last_error: fault(row)?,
            };
            Ok((cluster_id(row)?, identity))
        })
        .collect()
}

/// What went wrong last, as a sentence with the word of the audit log before it.
fn fault(row: &SqliteRow) -> Result<Option<(String, Timestamp)>, StoreError> {
    let action: Option<String> = column(row, "fault")?;
    let detail: Option<String> = column(row, "fault_detail")?;
    let words = action
        .zip(detail)
        .map(|(action, detail)| format!("{action}: {detail}"));
    Ok(words.zip(optional_time(row, "fault_at")?))
}

async fn authorities(
    readers: &SqlitePool,
) -> Result<Option<(AuthorityState, Vec<AuthorityRecord>)>, StoreError> {
    let failed = "read the authorities";
    // One statement, so that state and authorities are of one moment.
    let rows = sqlx::query(
        "SELECT s.*, a.pin, a.certificate, a.sealed_key, a.sealing_key_id, a.created_at FROM authority_state AS s
        JOIN authorities AS a ON a.pin IN (s.serving, s.incoming)",
    )
    .fetch_all(readers)
    .await
    .or_failed(failed)?;
    let Some(first) = rows.first() else {
        return Ok(None);
    };
    let state = AuthorityState {
        revision: unsigned(column(first, "revision")?),
        serving: column(first, "serving")?,
        incoming: column(first, "incoming")?,
        issuing: column(first, "issuing")?,
    };
    let records = rows.iter().map(|row| {
        Ok(AuthorityRecord {
            pin: column(row, "pin")?,
            certificate: column(row, "certificate")?,
            sealed_key: column(row, "sealed_key")?,
            sealing_key_id: column(row, "sealing_key_id")?,
            created_at: time(row, "created_at")?,
        })
    });
    Ok(Some((state, records.collect::<Result<_, StoreError>>()?)))
}

async fn put_authorities(
    connection: &mut SqliteConnection,
    state: AuthorityState,
    new: Option<AuthorityRecord>,
    audit: AuditEvent,
) -> Result<bool, StoreError> {
    let now = audit.at.as_microsecond();
    let row = sqlx::query("SELECT revision FROM authority_state")
        .fetch_optional(&mut *connection)
        .await
        .or_failed("read the authorities")?;
    let current = row.map_or(Ok(0), |row| column(&row, "revision").map(unsigned))?;
    if current + 1 != state.revision {
        return Ok(false);
    }
    if let Some(new) = new {
        sqlx::query(
            "INSERT INTO authorities (pin, certificate, sealed_key, sealing_key_id, created_at)
            VALUES (?1, ?2, ?3, ?4, ?5)",
        )
        .bind(&new.pin)
        .bind(&new.certificate)
        .bind(&new.sealed_key)
        .bind(&new.sealing_key_id)
        .bind(new.created_at.as_microsecond())
        .execute(&mut *connection)
        .await
        .or_failed("store an authority")?;
    }
    sqlx::query(
        "INSERT INTO authority_state (one, revision, serving, incoming, issuing) VALUES (1, ?1, ?2, ?3, ?4)
        ON CONFLICT (one) DO UPDATE SET revision = ?1, serving = ?2, incoming = ?3, issuing = ?4",
    )
    .bind(signed(state.revision))
    .bind(&state.serving)
    .bind(&state.incoming)
    .bind(&state.issuing)
    .execute(&mut *connection)
    .await
    .or_failed("store the state of the authorities")?;
    // A key that nobody trusts any more need not be kept.
    sqlx::query(
        "UPDATE authorities SET retired_at = ?1, sealed_key = x''
        WHERE retired_at IS NULL AND pin <> ?2 AND pin <> coalesce(?3, '')",
    )
    .bind(now)
    .bind(&state.serving)
    .bind(&state.incoming)
    .execute(&mut *connection)
    .await
    .or_failed("retire authorities")?;
    write::audit(connection, None, audit).await?;
    Ok(true)
}

async fn reseal_authorities(
    connection: &mut SqliteConnection,
    resealed: Vec<AuthorityRecord>,
    audit: AuditEvent,
) -> Result<(), StoreError> {
    for record in resealed {
        sqlx::query(
            "UPDATE authorities SET sealed_key = ?2, sealing_key_id = ?3 WHERE pin = ?1 AND retired_at IS NULL",
        )
        .bind(&record.pin)
        .bind(&record.sealed_key)
        .bind(&record.sealing_key_id)
        .execute(&mut *connection)
        .await
        .or_failed("store an authority")?;
    }
    write::audit(connection, None, audit).await
}
