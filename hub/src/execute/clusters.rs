//! What `plan` needs to know of a cluster: its name and labels, remembered for a short time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use std::sync::Arc;

use nabu_common::ids::ClusterId;

use crate::store::{SharedStore, StoreError};

/// How long a name that an agent gave may be out of date here.
const FRESH_FOR: Duration = Duration::from_secs(10);

/// Name and labels of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// What people call it; the id if nobody said.
    pub name: String,
    /// Labels that administrators gave.
    pub labels: BTreeMap<String, String>,
}

/// The clusters that the store knows, with the labels that operators gave on the command line laid over them.
#[derive(Debug, Default)]
pub struct ClusterDirectory {
    labels: HashMap<ClusterId, BTreeMap<String, String>>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    read_at: Option<Instant>,
    facts: HashMap<ClusterId, Arc<ClusterFacts>>,
}

impl ClusterDirectory {
    /// A directory with labels from the command line.
    pub fn new(labels: HashMap<ClusterId, BTreeMap<String, String>>) -> Self {
        Self {
            labels,
            known: Mutex::default(),
        }
    }

    /// What is known of a cluster.
    pub async fn facts(
        &self,
        store: &SharedStore,
        cluster: &ClusterId,
    ) -> Result<Arc<ClusterFacts>, StoreError> {
        if let Some(facts) = self.remembered(cluster) {
            return Ok(facts);
        }
        let records = store.clusters().await?;
        let facts = records
            .into_iter()
            .map(|record| {
                let id = record.facts.cluster;
                let labels = self.labels(&id, record.labels);
                (
                    id,
                    Arc::new(ClusterFacts {
                        name: record.facts.cluster_name,
                        labels,
                    }),
                )
            })
            .collect();
        let mut known = self.lock();
        *known = Known {
            read_at: Some(Instant::now()),
            facts,
        };
        let fallback = || Arc::new(self.unknown(cluster));
        Ok(known
            .facts
            .entry(cluster.clone())
            .or_insert_with(fallback)
            .clone())
    }

    /// The labels that count, key by key: `stored` are those that administrators gave, and over them lie those of the
    /// command line.
    pub fn labels(
        &self,
        cluster: &ClusterId,
        mut stored: BTreeMap<String, String>,
    ) -> BTreeMap<String, String> {
        let own = self.labels.get(cluster).into_iter().flatten();
        stored.extend(own.map(|(key, value)| (key.clone(), value.clone())));
        stored
    }

    fn remembered(&self, cluster: &ClusterId) -> Option<Arc<ClusterFacts>> {
        let known = self.lock();
        let fresh = known.read_at.is_some_and(|at| at.elapsed() < FRESH_FOR);
        if fresh {
            known.facts.get(cluster).cloned()
        } else {
            None
        }
    }

    fn unknown(&self, cluster: &ClusterId) -> ClusterFacts {
        let labels = self.labels.get(cluster).cloned().unwrap_or_default();
        ClusterFacts {
            name: cluster.to_string(),
            labels,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
