//! The one writer: runs what waits together in one transaction, and answers after its commit.
//!
//! A call that is only rehearsed runs in the same transaction, and is undone before the next one.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tracing::error;

use super::rows::failed;
use crate::store::StoreError;
use crate::store::rehearsal::Run;

/// Calls that share one commit at most.
const BATCH: usize = 256;
/// Calls that may wait; more than that wait outside.
const QUEUE: usize = 1024;

/// Answers a caller: with the error of the commit if there was one.
type Answer = Box<dyn FnOnce(Option<&str>) + Send>;
/// One call: runs inside the transaction. `false` if what it did must be undone.
type Work =
    Box<dyn for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, (bool, Answer)> + Send>;

/// The sending side of the writer.
pub(super) struct Writer {
    shared: Arc<Shared>,
    run: Run,
}

struct Shared {
    work: Mutex<Option<mpsc::Sender<Work>>>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
    commits: watch::Sender<u64>,
}

impl Writer {
    /// Starts the task that owns the connection.
    pub(super) fn start(connection: SqliteConnection) -> Self {
        let (work, queue) = mpsc::channel(QUEUE);
        let commits = watch::Sender::default();
        let task = tokio::spawn(write(connection, queue, commits.clone()));
        let shared = Arc::new(Shared {
            work: Mutex::new(Some(work)),
            task: tokio::sync::Mutex::new(Some(task)),
            commits,
        });
        Self {
            shared,
            run: Run::Earnest,
        }
    }

    /// The same writer for calls that are undone.
    pub(super) fn rehearsing(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            run: Run::Dry,
        }
    }

    /// Counts the commits of this process.
    pub(super) fn commits(&self) -> watch::Receiver<u64> {
        self.shared.commits.subscribe()
    }

    /// Runs a call in the next transaction; returns after its commit.
    pub(super) async fn submit<T: Send + 'static>(
        &self,
        call: impl for<'c> FnOnce(&'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        let keep = !self.run.is_dry();
        let work: Work = Box::new(move |connection| {
            Box::pin(async move {
                let result = call(connection).await;
                let good = result.is_ok() && keep;
                let answer: Answer = Box::new(move |commit_error| {
                    let result = match (result, commit_error) {
                        (Ok(_), Some(error)) => Err(StoreError::Database {
                            action: "commit",
                            source: error.into(),
                        }),
                        (result, _) => result,
                    };
                    // Whoever asked may have gone away; what is stored stays stored.
                    let _ = reply.send(result);
                });
                (good, answer)
            })
        });
        let sender = self
            .shared
            .work
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone();
        sender
            .ok_or(StoreError::Closed)?
            .send(work)
            .await
            .map_err(|_| StoreError::Closed)?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    /// Ends after everything that waits is committed.
    pub(super) async fn close(&self) {
        self.shared
            .work
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        if let Some(task) = self.shared.task.lock().await.take() {
            let _ = task.await;
        }
    }
}

async fn write(
    mut connection: SqliteConnection,
    mut queue: mpsc::Receiver<Work>,
    commits: watch::Sender<u64>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let mut answers = Vec::with_capacity(batch.len());
        let committing = commit_together(&mut connection, &mut batch, &mut answers);
        // A call that panics takes its group along, not the writer.
        let error = match AssertUnwindSafe(committing).catch_unwind().await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("a call of the same group panicked".to_owned()),
        };
        if let Some(reason) = &error {
            error!(reason, "the store cannot commit");
            // Without an open transaction this is an error itself, and nothing is lost by it.
            let _ = sqlx::query("ROLLBACK").execute(&mut connection).await;
        }
        // Before the answers, so that whoever has one has been told of its commit as well.
        commits.send_modify(|count| *count += 1);
        for answer in answers {
            answer(error.as_deref());
        }
        // What was not run because the transaction failed is dropped here, and its caller sees a closed channel.
        batch.clear();
    }
    let _ = connection.close().await;
}

async fn commit_together(
    connection: &mut SqliteConnection,
    batch: &mut Vec<Work>,
    answers: &mut Vec<Answer>,
) -> Result<(), sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    let alone = batch.len() == 1;
    for work in batch.drain(..) {
        if alone {
            let (good, answer) = work(connection).await;
            answers.push(answer);
            if !good {
                sqlx::query("ROLLBACK").execute(&mut *connection).await?;
                return Ok(());
            }
            continue;
        }
        sqlx::query("SAVEPOINT call")
            .execute(&mut *connection)
            .await?;
        let (good, answer) = work(connection).await;
        answers.push(answer);
        if !good {
            sqlx::query("ROLLBACK TO call")
                .execute(&mut *connection)
                .await?;
        }
        sqlx::query("RELEASE call")
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("COMMIT").execute(connection).await?;
    Ok(())
}

/// Makes an engine's error ours.
pub(super) trait OrFailed<T> {
    /// `action` completes "the store cannot …".
    fn or_failed(self, action: &'static str) -> Result<T, StoreError>;
}

impl<T> OrFailed<T> for Result<T, sqlx::Error> {
    fn or_failed(self, action: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| failed(action, source))
    }
}
