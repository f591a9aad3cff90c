//! Goes over to another encryption key: what the one before has sealed is sealed by the new one.

use jiff::Timestamp;
use tracing::info;

use super::AuthorityError;
use super::seal::SealingKey;
use crate::store::AuditEvent;
use crate::store::identity::{AuthorityRecord, SharedIdentities};

/// Seals what an older key has sealed by the one that seals from now on. Who has opened it before goes on with it.
pub(super) async fn reseal(
    identities: &SharedIdentities,
    sealing: &SealingKey,
    records: &[AuthorityRecord],
) -> Result<(), AuthorityError> {
    let older = records
        .iter()
        .filter(|record| record.sealing_key_id != sealing.id());
    let mut resealed = Vec::new();
    for record in older {
        let secret = sealing.open(&record.pin, &record.sealing_key_id, &record.sealed_key)?;
        resealed.push(AuthorityRecord {
            sealed_key: sealing.seal(&record.pin, &secret)?,
            sealing_key_id: sealing.id().to_owned(),
            ..record.clone()
        });
    }
    if resealed.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "the keys of {} authorities are encrypted by the key {}",
        resealed.len(),
        sealing.id()
    );
    info!(
        detail,
        "the key that authorities are encrypted by has changed"
    );
    let event = AuditEvent {
        at: Timestamp::now(),
        actor: "hub".to_owned(),
        action: "AuthorityReencrypted".to_owned(),
        detail,
    };
    identities.reseal_authorities(resealed, event).await?;
    Ok(())
}
