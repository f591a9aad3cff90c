//! The default engine: one SQLite file in WAL mode, one writer that commits in groups, several readers.
//!
//! The writer ([`writer`]) runs what waits together in one transaction, so that the cost of making it durable
//! (`synchronous = FULL`) is shared. Statements are in [`write`] and [`read`], rows become values in [`rows`].

mod admin;
mod administrators;
pub mod backup;
mod filter;
mod identity;
mod read;
mod removal;
mod retention;
mod rows;
mod write;
mod writer;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey, ResponseUid};
use sqlx::migrate::Migrator;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqlitePool};

use super::{
    Acknowledgement, AdminCall, AttemptRecord, AuditEvent, AuditFilter, AuditRecord, ClusterRecord,
    Observed, Registration, ResponseFilter, ResponseSummary, SessionFacts, Store, StoreError,
    Transition, Watched,
};
use crate::execute::gate::Gate;
use crate::execute::lanes::LaneId;
use crate::response::{Observation, Progress, Response};
use writer::Writer;

static MIGRATIONS: Migrator = sqlx::migrate!("migrations/sqlite");

/// Connections that only read.
const READERS: u32 = 4;
/// How long a reader waits for the file's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Why the database cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file or its folder cannot be used.
    #[error("cannot use the store {}; --store must name a file in a folder that nabu-hub may write to", path.display())]
    File {
        /// The database.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("the store {} is in use by another nabu-hub; only one may run on one SQLite file", .0.display())]
    InUse(PathBuf),
    /// SQLite refuses it.
    #[error("cannot open the store {}; is it a database of nabu-hub?", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// Why.
        source: sqlx::Error,
    },
    /// It was written by another version.
    #[error("cannot bring the store {} to this version; was it written by a newer nabu-hub?", path.display())]
    Migration {
        /// The database.
        path: PathBuf,
        /// Why.
        source: sqlx::migrate::MigrateError,
    },
}

/// A store in one SQLite file.
pub struct SqliteStore {
    writer: Writer,
    readers: SqlitePool,
    /// Held for as long as the store is open; `None` if a hub has it.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens the file, makes it if it is missing (readable by its owner only), and brings it to this version.
    ///
    /// # Errors
    /// If it cannot be used; the text names the file and the remedy.
    pub async fn open(path: &Path) -> Result<Arc<Self>, OpenError> {
        let lock = lock_file(path)?;
        Self::open_as(path, Some(lock)).await
    }

    /// The same for a command that does one thing beside a hub that may run: without the lock if a hub has it. That hub's
    /// version decides the form of the database.
    ///
    /// # Errors
    /// See [`SqliteStore::open`].
    pub async fn open_beside(path: &Path) -> Result<Arc<Self>, OpenError> {
        match lock_file(path) {
            Ok(lock) => Self::open_as(path, Some(lock)).await,
            Err(OpenError::InUse(_)) => Self::open_as(path, None).await,
            Err(error) => Err(error),
        }
    }

    async fn open_as(path: &Path, lock: Option<File>) -> Result<Arc<Self>, OpenError> {
        let database = |source| OpenError::Database {
            path: path.to_owned(),
            source,
        };
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            // Beside the database nothing is writable in a container: no folder for temporary files.
            .pragma("temp_store", "memory")
            .disable_statement_logging();
        let mut connection = options.connect().await.map_err(database)?;
        if lock.is_some() {
            MIGRATIONS
                .run(&mut connection)
                .await
                .map_err(|source| OpenError::Migration {
                    path: path.to_owned(),
                    source,
                })?;
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_lazy_with(options.read_only(true));
        Ok(Arc::new(Self {
            writer: Writer::start(connection),
            readers,
            _lock: lock,
        }))
    }
}

/// Makes the file for its owner only, and takes the lock beside it.
fn lock_file(path: &Path) -> Result<File, OpenError> {
    let failed = |source| OpenError::File {
        path: path.to_owned(),
        source,
    };
    let open = |path: &Path| {
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .read(true)
            .mode(0o600)
            .open(path)
    };
    open(path).map_err(failed)?;
    let mut lock_path = path.as_os_str().to_owned();
    lock_path.push(".lock");
    let lock = open(Path::new(&lock_path)).map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(std::fs::TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
        Err(std::fs::TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// The store keeps microseconds.
fn rounded(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

#[async_trait]
impl Store for SqliteStore {
    async fn open_session(
        &self,
        facts: SessionFacts,
        now: Timestamp,
    ) -> Result<Registration, StoreError> {
        self.writer
            .submit(move |c| Box::pin(write::open_session(c, facts, now)))
            .await
    }

    async fn touch_cluster(&self, cluster: &ClusterId, now: Timestamp) -> Result<(), StoreError> {
        let cluster = cluster.clone();
        self.writer
            .submit(move |c| Box::pin(write::touch_cluster(c, cluster, now)))
            .await
    }

    async fn observe(
        &self,
        observations: Vec<Observation>,
        now: Timestamp,
    ) -> Result<Vec<Observed>, StoreError> {
        let now = rounded(now);
        self.writer
            .submit(move |c| Box::pin(write::observe(c, observations, now)))
            .await
    }

    async fn transition(
        &self,
        key: &ResponseKey,
        transition: Transition,
    ) -> Result<Option<Progress>, StoreError> {
        let key = key.clone();
        self.writer
            .submit(move |c| Box::pin(write::transition(c, key, transition)))
            .await
    }

    async fn acknowledge(
        &self,
        cluster: &ClusterId,
        acks: Vec<Acknowledgement>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let cluster = cluster.clone();
        self.writer
            .submit(move |c| Box::pin(write::acknowledge(c, cluster, acks, now)))
            .await
    }

    async fn count_unfinished(&self, cluster: &ClusterId) -> Result<u64, StoreError> {
        read::count_unfinished(&self.readers, cluster).await
    }

    async fn unfinished_of(
        &self,
        cluster: &ClusterId,
    ) -> Result<Vec<(ResponseUid, Timestamp)>, StoreError> {
        read::unfinished_of(&self.readers, cluster).await
    }

    async fn response(&self, key: &ResponseKey) -> Result<Option<Response>, StoreError> {
        read::response(&self.readers, key).await
    }

    async fn unfinished(
        &self,
        after: Option<&ResponseKey>,
        limit: u32,
    ) -> Result<Vec<ResponseKey>, StoreError> {
        read::unfinished(&self.readers, after, limit).await
    }

    async fn unacknowledged(
        &self,
        cluster: &ClusterId,
        after: Option<&ResponseUid>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError> {
        read::unacknowledged(&self.readers, cluster, after, limit).await
    }

    async fn followed(
        &self,
        after: Option<&ResponseKey>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError> {
        read::followed(&self.readers, after, limit).await
    }

    async fn of_group(&self, branch: &str) -> Result<Vec<ResponseSummary>, StoreError> {
        read::of_group(&self.readers, branch).await
    }

    async fn followed_on(&self, branch: &str) -> Result<Vec<ResponseSummary>, StoreError> {
        read::followed_on(&self.readers, branch).await
    }

    async fn watched(
        &self,
        cluster: &ClusterId,
        after: Option<&ResponseUid>,
        limit: u32,
    ) -> Result<Vec<Watched>, StoreError> {
        read::watched(&self.readers, cluster, after, limit).await
    }

    async fn clusters(&self) -> Result<Vec<ClusterRecord>, StoreError> {
        read::clusters(&self.readers).await
    }

    async fn responses(
        &self,
        filter: &ResponseFilter,
        before: Option<(Timestamp, ResponseKey)>,
        limit: u32,
    ) -> Result<Vec<ResponseSummary>, StoreError> {
        read::responses(&self.readers, filter, before, limit).await
    }

    async fn latest_change(&self) -> Result<u64, StoreError> {
        filter::latest_change(&self.readers).await
    }

    async fn responses_changed(
        &self,
        filter: &ResponseFilter,
        after: u64,
        upto: u64,
        limit: u32,
    ) -> Result<Vec<(u64, ResponseSummary)>, StoreError> {
        filter::responses_changed(&self.readers, filter, after, upto, limit).await
    }

    fn commits(&self) -> tokio::sync::watch::Receiver<u64> {
        self.writer.commits()
    }

    async fn response_by_name(
        &self,
        cluster: &ClusterId,
        name: &str,
    ) -> Result<Option<ResponseKey>, StoreError> {
        read::response_by_name(&self.readers, cluster, name).await
    }

    async fn attempts(&self, key: &ResponseKey) -> Result<Vec<AttemptRecord>, StoreError> {
        read::attempts(&self.readers, key).await
    }

    async fn history(&self, key: &ResponseKey, limit: u32) -> Result<Vec<AuditEvent>, StoreError> {
        read::history(&self.readers, key, limit).await
    }

    async fn audit(
        &self,
        cluster: Option<&ClusterId>,
        event: AuditEvent,
    ) -> Result<(), StoreError> {
        let cluster = cluster.cloned();
        self.writer
            .submit(move |c| Box::pin(write::audit(c, cluster, event)))
            .await
    }

    async fn audit_calls(&self, calls: Vec<AdminCall>) -> Result<(), StoreError> {
        self.writer
            .submit(move |c| Box::pin(admin::audit_calls(c, calls)))
            .await
    }

    async fn audit_log(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<AuditRecord>, StoreError> {
        admin::audit_log(&self.readers, filter, before, limit).await
    }

    async fn acknowledged_at(&self, key: &ResponseKey) -> Result<Option<Timestamp>, StoreError> {
        admin::acknowledged_at(&self.readers, &key.cluster, key.uid.as_str()).await
    }

    async fn put_gates(&self, gates: Vec<(LaneId, Gate)>) -> Result<(), StoreError> {
        self.writer
            .submit(move |c| Box::pin(write::put_gates(c, gates)))
            .await
    }

    async fn gates(&self) -> Result<Vec<(LaneId, Gate)>, StoreError> {
        read::gates(&self.readers).await
    }

    async fn prune_responses(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.writer
            .submit(move |c| Box::pin(retention::prune_responses(c, before, limit)))
            .await
    }

    async fn prune_audit(&self, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
        self.writer
            .submit(move |c| Box::pin(retention::prune_audit(c, before, limit)))
            .await
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::store::{conformance, identity_conformance};

    async fn fresh() -> (tempfile::TempDir, Arc<SqliteStore>) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join("nabu.db"))
            .await
            .unwrap();
        (folder, store)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_does_what_a_store_must_do() {
        let (_folder, store) = fresh().await;
        conformance::run(store).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_forgets_what_is_done_and_keeps_everything_else() {
        let (_folder, store) = fresh().await;
        conformance::retention::run(store.as_ref()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_removes_a_line_of_the_audit_log_that_is_not_old() {
        let (folder, store) = fresh().await;
        conformance::retention::run(store.as_ref()).await;
        let path = folder.path().join("nabu.db");
        let mut other = SqliteConnectOptions::new()
            .filename(path)
            .connect()
            .await
            .unwrap();
        sqlx::query("INSERT INTO audit (at, actor, action, detail) VALUES (1800000900000000, 'x', 'y', 'z')")
            .execute(&mut other)
            .await
            .unwrap();
        let refused = sqlx::query("DELETE FROM audit WHERE at >= 1800000900000000");
        let error = refused.execute(&mut other).await.unwrap_err().to_string();
        assert!(error.contains("append-only"), "{error}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_does_what_enrolment_asks_of_a_store() {
        let (_folder, store) = fresh().await;
        identity_conformance::run(store.as_ref(), store.as_ref()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn it_keeps_nothing_of_what_is_rehearsed() {
        let (_folder, store) = fresh().await;
        conformance::rehearsal::run(store.as_ref(), store.as_ref()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn everything_is_there_after_it_was_opened_again() {
        let (folder, store) = fresh().await;
        conformance::write_something(store.as_ref()).await;
        store.close().await;
        drop(store);
        let store = SqliteStore::open(&folder.path().join("nabu.db"))
            .await
            .unwrap();
        conformance::assert_something(store.as_ref()).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_second_process_is_refused_and_told_why() {
        let (folder, _store) = fresh().await;
        let error = SqliteStore::open(&folder.path().join("nabu.db"))
            .await
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("in use by another nabu-hub"),
            "{error}"
        );
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_the_owner_may_read_the_file() {
        let (folder, store) = fresh().await;
        conformance::write_something(store.as_ref()).await;
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o077,
                0,
                "{:?}",
                entry.path()
            );
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_file_that_is_no_database_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nabu.db");
        std::fs::write(
            &path,
            "this is no database, and long enough to be seen as one ".repeat(40),
        )
        .unwrap();
        let error = SqliteStore::open(&path).await.err().unwrap();
        assert!(error.to_string().contains("nabu.db"), "{error}");
    }
}
