//! Sees statuses as a user would: through a watch on the API server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::task::JoinHandle;

/// When each EventResponse was seen in a terminal phase, and which.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<HashMap<String, (Instant, String)>>>);

/// A watch that notes when EventResponses end.
pub(super) struct Observer {
    seen: Seen,
    task: JoinHandle<Result<(), kube::Error>>,
}

impl Observer {
    /// Watches from now on.
    pub(super) async fn start(api: Api<DynamicObject>) -> Result<Self> {
        let now = api
            .list_metadata(&kube::api::ListParams::default().limit(1))
            .await?;
        let version = now.metadata.resource_version.unwrap_or_default();
        let seen = Seen::default();
        let noted = seen.clone();
        let task = tokio::spawn(async move {
            let mut stream = api
                .watch(&WatchParams::default().timeout(290), &version)
                .await?
                .boxed();
            while let Some(event) = stream.try_next().await? {
                if let WatchEvent::Modified(object) = event {
                    let phase = object.data["status"]["phase"].as_str().unwrap_or_default();
                    if matches!(phase, "Succeeded" | "Failed" | "Cancelled") {
                        let mut seen = noted.0.lock().unwrap_or_else(PoisonError::into_inner);
                        seen.entry(object.name_any())
                            .or_insert_with(|| (Instant::now(), phase.to_owned()));
                    }
                }
            }
            Ok(())
        });
        Ok(Self { seen, task })
    }

    /// Waits until so many have ended; when each did.
    pub(super) async fn all(
        &self,
        count: usize,
        limit: Duration,
    ) -> Result<HashMap<String, (Instant, String)>> {
        let deadline = Instant::now() + limit;
        loop {
            let seen = self
                .seen
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            if seen.len() >= count {
                return Ok(seen);
            }
            ensure!(
                Instant::now() < deadline,
                "only {} of {count} have ended within {limit:?}",
                seen.len()
            );
            ensure!(
                !self.task.is_finished(),
                "the watch of the benchmark has ended"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.task.abort();
    }
}
