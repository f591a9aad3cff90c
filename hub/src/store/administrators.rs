//! What the store knows of administrators: who was certified, and who may do nothing any more.

use async_trait::async_trait;
use jiff::Timestamp;

use super::identity::CertificateRecord;
use super::{AuditEvent, StoreError};

/// Whom a revocation is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Barred {
    /// An administrator, whatever the certificate.
    Name(String),
    /// One certificate: SHA-256 in hex.
    Certificate(String),
}

/// An administrator as a certificate names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certified {
    /// The name.
    pub name: String,
    /// SHA-256 of the certificate, in hex.
    pub fingerprint: String,
}

impl Certified {
    /// Whether a revocation is about this one.
    pub fn is(&self, barred: &Barred) -> bool {
        match barred {
            Barred::Name(name) => *name == self.name,
            Barred::Certificate(fingerprint) => *fingerprint == self.fingerprint,
        }
    }
}

/// A revocation in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Whom it is about.
    pub barred: Barred,
    /// Since when.
    pub at: Timestamp,
    /// Who did it.
    pub by: String,
    /// Why, in somebody's words.
    pub reason: String,
}

/// What the admin API asks of an engine about administrators. Every write is durable when its call returns, together with
/// its audit line.
#[async_trait]
pub trait AdministratorStore: Send + Sync {
    /// Bars somebody; `false` if `by` has been barred in the meantime, who then bars nobody. One who is barred already
    /// stays so as it was.
    async fn revoke_administrator(
        &self,
        revocation: Revocation,
        by: Option<Certified>,
        audit: AuditEvent,
    ) -> Result<bool, StoreError>;

    /// Takes a revocation back; `false` if there is none.
    async fn restore_administrator(
        &self,
        barred: Barred,
        audit: AuditEvent,
    ) -> Result<bool, StoreError>;

    /// All revocations, oldest first.
    async fn revocations(&self) -> Result<Vec<Revocation>, StoreError>;

    /// Certificates of administrators that the hub made and that are good at `now`, newest first, at most `limit`, each with its
    /// number; those after the one with the number `after`.
    async fn administrators(
        &self,
        now: Timestamp,
        after: Option<i64>,
        limit: u32,
    ) -> Result<Vec<(i64, CertificateRecord)>, StoreError>;
}
