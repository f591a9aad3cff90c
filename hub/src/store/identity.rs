//! What the store knows of identities: join tokens, certificates, revocations, and the authorities of the hub.
//!
//! [`IdentityStore`] is the part of an engine that enrolment needs. Secrets come here only hashed (tokens) or sealed (keys
//! of authorities).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};

use super::administrators::AdministratorStore;
use super::{AuditEvent, StoreError};

/// The identities of a store that many parts share.
pub type SharedIdentities = Arc<dyn IdentityStore>;

/// No cluster may have more tokens that can be used at one time.
pub const TOKENS_OF_A_CLUSTER: u32 = 16;

/// The most characters of a UID; those of Kubernetes have 36.
pub const LONGEST_UID: usize = 64;

/// Whether a text may be the UID of a namespace kube-system, which an agent says and people paste; the empty one stands for none.
pub fn is_kube_system_uid(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.len() <= LONGEST_UID && text.chars().all(plain)
}

/// Responses of a removed cluster that are ended in one step: whoever writes to the store waits for no longer than that.
pub const ENDED_AT_ONCE: u32 = 128;

/// Actions of the audit log that tell of a fault between the hub and an agent. The index of them has the same list.
pub const FAULTS: [&str; 5] = [
    "FrameRefused",
    "SessionEnded",
    "SessionLost",
    "SessionRefused",
    "StatusRefused",
];

/// A join token that was just made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Names it in lists.
    pub id: String,
    /// The cluster that may join with it.
    pub cluster: ClusterId,
    /// SHA-256 of its text.
    pub hash: [u8; 32],
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it runs out.
    pub expires_at: Timestamp,
}

/// A join token as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    /// What it was made with.
    pub token: NewToken,
    /// When somebody made it useless.
    pub revoked_at: Option<Timestamp>,
    /// When it was used, and SHA-256 of the public key that it was used for.
    pub used: Option<(Timestamp, [u8; 32])>,
}

/// What became of the wish to add a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// The cluster is known and the token stored.
    Stored,
    /// The cluster is revoked.
    Revoked,
    /// The cluster has [`TOKENS_OF_A_CLUSTER`] tokens already.
    TooManyTokens,
}

/// A certificate that the hub made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRecord {
    /// SHA-256 of the certificate, in hex.
    pub fingerprint: String,
    /// Its serial number, in hex.
    pub serial: String,
    /// `cluster/<id>`, `admin/<name>` or `hub/<name>`.
    pub identity: String,
    /// The cluster, if it is for one.
    pub cluster: Option<ClusterId>,
    /// The pin of the authority that made it.
    pub authority: String,
    /// When it was made.
    pub issued_at: Timestamp,
    /// When it runs out.
    pub not_after: Timestamp,
}

/// Whether a certificate may open a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Yes.
    Admitted,
    /// The cluster or the certificate is revoked, or the cluster removed.
    Revoked,
    /// A newer certificate of the cluster is in use.
    Superseded,
}

/// What lists show of a cluster's identity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterIdentity {
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// The last other cluster that came with this id: its kube-system UID, and when.
    pub refused: Option<(String, Timestamp)>,
    /// When its newest certificate of the hub's authority runs out.
    pub certificate_not_after: Option<Timestamp>,
    /// The newest line of the audit log about something that went wrong with its agent ([`FAULTS`]): what, and when.
    pub last_error: Option<(String, Timestamp)>,
}

/// An authority as the store holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityRecord {
    /// Names it.
    pub pin: String,
    /// Its certificate in DER.
    pub certificate: Vec<u8>,
    /// Its private key, sealed.
    pub sealed_key: Vec<u8>,
    /// Which encryption key sealed it.
    pub sealing_key_id: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Which authorities are in use, by pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthorityState {
    /// Grows with every change.
    pub revision: u64,
    /// The authority of the hub's own certificate: everybody trusts it.
    pub serving: String,
    /// The authority that takes over, during a rotation.
    pub incoming: Option<String>,
    /// The authority that certifies agents and administrators: one of the two.
    pub issuing: String,
}

/// What became of the wish to use a join token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Redeemed {
    /// The token is not good.
    No,
    /// It is used up for the key, and the certificate is stored.
    New,
    /// It was used for the same key before: what came of that, with the certificate in DER.
    Again(CertificateRecord, Vec<u8>),
}

/// What enrolment asks of an engine. Every write is durable when its call returns, together with its audit line.
#[async_trait]
pub trait IdentityStore: AdministratorStore + Send + Sync {
    /// The same identities, for a rehearsal: every call writes as in earnest, answers what it would answer, and is undone
    /// before it returns.
    fn rehearsal(&self) -> SharedIdentities;

    /// Stores a token, and the cluster if it is new or was removed. `labels` replace the cluster's if there are any.
    async fn add_cluster(
        &self,
        labels: BTreeMap<String, String>,
        token: NewToken,
        audit: AuditEvent,
    ) -> Result<Added, StoreError>;

    /// Tokens of one cluster or of all, newest first, at most `limit`; those after the one that was made then under this id.
    async fn tokens(
        &self,
        cluster: Option<&ClusterId>,
        after: Option<(Timestamp, &str)>,
        limit: u32,
    ) -> Result<Vec<TokenRecord>, StoreError>;

    /// Makes a token useless; the cluster it was for, `None` if there is no such token.
    async fn revoke_token(
        &self,
        id: &str,
        audit: AuditEvent,
    ) -> Result<Option<ClusterId>, StoreError>;

    /// Uses up a token for a public key and stores the certificate (`der` is its bytes), in one step. That cannot be if the
    /// token has run out by `audit.at`, is revoked or used for another key, or its cluster is revoked or removed. A key that
    /// comes again gets what it got before, as long as that is good and of the same authority, and nothing is stored.
    async fn redeem(
        &self,
        token_id: &str,
        key_digest: [u8; 32],
        certificate: CertificateRecord,
        der: Vec<u8>,
        audit: AuditEvent,
    ) -> Result<Redeemed, StoreError>;

    /// Whether the hub has made a certificate, by its fingerprint.
    async fn has_certified(&self, fingerprint: &str) -> Result<bool, StoreError>;

    /// Stores a certificate. `false` if it is for a cluster that is revoked or removed.
    async fn record_certificate(
        &self,
        certificate: CertificateRecord,
        audit: Option<AuditEvent>,
    ) -> Result<bool, StoreError>;

    /// Whether a certificate of a cluster may open a session. The first use of a certificate supersedes all that were made
    /// before it, unless it is by another Kubernetes cluster than the one that the id is bound to: that gets no session, and
    /// must not cost the true one its own. Certificates of other authorities are unknown here, and admitted unless the cluster is revoked.
    async fn admit(
        &self,
        cluster: &ClusterId,
        fingerprint: &str,
        kube_system_uid: &str,
        now: Timestamp,
    ) -> Result<Admission, StoreError>;

    /// Revokes a cluster, or takes that back; `false` if there is no such cluster.
    async fn set_revoked(
        &self,
        cluster: &ClusterId,
        revoked: bool,
        audit: AuditEvent,
    ) -> Result<bool, StoreError>;

    /// Forgets a cluster and revokes its certificates and tokens, in one step; `false` if there is no such cluster. What is under
    /// way for it is for [`IdentityStore::finish_removals`].
    async fn remove_cluster(
        &self,
        cluster: &ClusterId,
        audit: AuditEvent,
    ) -> Result<bool, StoreError>;

    /// Marks up to `limit` responses that are still under way for removed clusters as if their EventResponses were gone; gives
    /// them. Whoever asks until there are none has finished every removal, also one that a hub was interrupted in.
    async fn finish_removals(&self, limit: u32) -> Result<Vec<ResponseKey>, StoreError>;

    /// Binds a cluster id to another kube-system UID, or to the next one that comes if that is empty; gives the UID
    /// before, `None` if there is no such cluster.
    async fn rebind_cluster(
        &self,
        cluster: &ClusterId,
        kube_system_uid: &str,
        audit: AuditEvent,
    ) -> Result<Option<String>, StoreError>;

    /// Notes that another cluster came with a cluster id.
    async fn note_refused(
        &self,
        cluster: &ClusterId,
        kube_system_uid: &str,
        now: Timestamp,
    ) -> Result<(), StoreError>;

    /// The clusters that may have no session: revoked or removed.
    async fn blocked(&self) -> Result<HashSet<ClusterId>, StoreError>;

    /// What lists show of the identities of clusters.
    async fn cluster_identities(&self) -> Result<HashMap<ClusterId, ClusterIdentity>, StoreError>;

    /// Identities that would lose their certificate with this authority: clusters that use, or may come to use, one that
    /// it made and that is good at `now`, and administrators whose newest one is such.
    async fn certified_by(
        &self,
        authority: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError>;

    /// The authorities that are in use, with the state; `None` before the first one is made.
    async fn authorities(
        &self,
    ) -> Result<Option<(AuthorityState, Vec<AuthorityRecord>)>, StoreError>;

    /// Replaces the state if its revision is the one before `state`'s, and adds a new authority; `false` if somebody else
    /// was faster. Authorities that the state does not name are retired.
    async fn put_authorities(
        &self,
        state: AuthorityState,
        new: Option<AuthorityRecord>,
        audit: AuditEvent,
    ) -> Result<bool, StoreError>;

    /// Replaces the sealed keys of authorities that are not retired, with the id of the key that sealed them.
    async fn reseal_authorities(
        &self,
        resealed: Vec<AuthorityRecord>,
        audit: AuditEvent,
    ) -> Result<(), StoreError>;
}
