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

/// Asks people and teams for a review whom the forge has not asked yet, and assigns whom it has not assigned. First all
/// at once; if it refuses, one by one, so that one unknown name costs the others nothing.
pub(super) async fn add_missing_people(api: &Api<'_>, pull: &wire::Pull) -> Result<(), ForgeError> {
    let intent = api.job.intent;
    let users = missing(&intent.reviewers, logins(pull.requested_reviewers.as_ref()));
    let teams = pull.requested_reviewers_teams.iter().flatten();
    let teams = missing(
        &intent.options.team_reviewers,
        teams.map(|team| team.name.as_str()).collect(),
    );
    request_reviews(api, pull.number, &users, &teams).await?;
    assign(api, pull).await
}

fn logins(users: Option<&Vec<wire::User>>) -> Vec<&str> {
    users
        .into_iter()
        .flatten()
        .map(|user| user.login.as_str())
        .collect()
}

fn missing(wanted: &[String], there: Vec<&str>) -> Vec<String> {
    let there: HashSet<String> = there.into_iter().map(str::to_lowercase).collect();
    let missing = wanted
        .iter()
        .filter(|name| !there.contains(&name.to_lowercase()));
    missing.cloned().collect()
}

async fn request_reviews(
    api: &Api<'_>,
    pull: u64,
    users: &[String],
    teams: &[String],
) -> Result<(), ForgeError> {
    let all = users.len() + teams.len();
    if all == 0
        || api
            .request_reviews(pull, users, teams)
            .await?
            .status
            .is_success()
    {
        return Ok(());
    }
    let users = users
        .iter()
        .map(|name| (std::slice::from_ref(name), &[][..]));
    let teams = teams
        .iter()
        .map(|name| (&[][..], std::slice::from_ref(name)));
    for (user, team) in users.chain(teams) {
        let reply = api.request_reviews(pull, user, team).await?;
        if !reply.status.is_success() {
            warn!(
                key = %api.job.key, repository = api.repository, reviewer = ?user.first().or(team.first()),
                status = reply.status.as_u16(),
                "the reviewer cannot be asked{}; give them access to the repository or correct the route", reply.said(),
            );
        }
    }
    Ok(())
}

/// The forge takes only whole lists of assignees, and each only if it may assign all of it.
async fn assign(api: &Api<'_>, pull: &wire::Pull) -> Result<(), ForgeError> {
    let there = logins(pull.assignees.as_ref());
    let missing = missing(&api.job.intent.options.assignees, there.clone());
    let mut assigned: Vec<String> = there.into_iter().map(str::to_owned).collect();
    for name in missing {
        assigned.push(name);
        let reply = api.assign(pull.number, &assigned).await?;
        if !reply.status.is_success() {
            let name = assigned.pop();
            warn!(
                key = %api.job.key, repository = api.repository, assignee = ?name, status = reply.status.as_u16(),
                "the pull request cannot be assigned to them{}; give them access to the repository or correct the route",
                reply.said(),
            );
        }
    }
    Ok(())
}
