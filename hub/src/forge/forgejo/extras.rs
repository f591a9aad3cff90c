//! Labels and reviewers: welcome on a pull request, never a reason to lose it.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::super::ForgeError;
use super::api::Api;
use super::{Forgejo, wire};

/// How long the ids of labels are taken as known.
const LABELS_KEPT: Duration = Duration::from_mins(5);

/// More pages of labels are not read: a repository with more has names that nobody routes by.
const MAX_LABEL_PAGES: u32 = 10;

/// Ids of labels by name.
#[derive(Clone, Debug)]
pub(super) struct KnownLabels {
    ids: BTreeMap<String, u64>,
    since: Instant,
}

impl Forgejo {
    /// Ids of the wanted labels; those that do not exist are made, those that cannot be made are left out.
    pub(super) async fn label_ids(&self, api: &Api<'_>) -> Result<Vec<u64>, ForgeError> {
        let wanted = &api.job.intent.labels;
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let known = self
            .memory()
            .labels
            .clone()
            .filter(|known| known.since.elapsed() < LABELS_KEPT);
        let mut ids = match known {
            Some(known) if wanted.iter().all(|name| known.ids.contains_key(name)) => known.ids,
            _ => self.read_labels(api).await?,
        };
        for name in wanted {
            if !ids.contains_key(name)
                && let Some(label) = create_label(api, name).await?
            {
                ids.insert(label.name, label.id);
            }
        }
        let found = wanted
            .iter()
            .filter_map(|name| ids.get(name).copied())
            .collect();
        self.memory().labels = Some(KnownLabels {
            ids,
            since: Instant::now(),
        });
        Ok(found)
    }

    async fn read_labels(&self, api: &Api<'_>) -> Result<BTreeMap<String, u64>, ForgeError> {
        let wanted = &api.job.intent.labels;
        let mut ids = BTreeMap::new();
        for organisation in [None, Some(self.owner())] {
            for page in 1..=MAX_LABEL_PAGES {
                let labels = api.labels(organisation, page).await?;
                if labels.is_empty() {
                    break;
                }
                for label in labels {
                    ids.entry(label.name).or_insert(label.id);
                }
                if wanted.iter().all(|name| ids.contains_key(name)) {
                    return Ok(ids);
                }
            }
        }
        Ok(ids)
    }
}

async fn create_label(api: &Api<'_>, name: &str) -> Result<Option<wire::Label>, ForgeError> {
    let reply = api.create_label(name).await?;
    if reply.status.is_success() {
        return reply.json().map(Some);
    }
    warn!(
        key = %api.job.key, repository = api.repository, label = name, status = reply.status.as_u16(),
        "the label does not exist and cannot be made; the pull request goes without it{}", reply.said(),
    );
    Ok(None)
}

/// Asks those for a review whom the forge has not asked yet. First all at once; if it refuses, one by one, so that one
/// unknown name costs the others nothing.
pub(super) async fn request_missing_reviews(
    api: &Api<'_>,
    pull: &wire::Pull,
) -> Result<(), ForgeError> {
    let asked: HashSet<String> = pull
        .requested_reviewers
        .iter()
        .flatten()
        .map(|user| user.login.to_lowercase())
        .collect();
    let missing: Vec<String> = api
        .job
        .intent
        .reviewers
        .iter()
        .filter(|name| !asked.contains(&name.to_lowercase()))
        .cloned()
        .collect();
    if missing.is_empty()
        || api
            .request_reviews(pull.number, &missing)
            .await?
            .status
            .is_success()
    {
        return Ok(());
    }
    for name in missing {
        let reply = api
            .request_reviews(pull.number, std::slice::from_ref(&name))
            .await?;
        if !reply.status.is_success() {
            warn!(
                key = %api.job.key, repository = api.repository, reviewer = name, status = reply.status.as_u16(),
                "the reviewer cannot be asked{}; give them access to the repository or correct the route", reply.said(),
            );
        }
    }
    Ok(())
}
