//! What became of pull requests: the open ones in pages of fifty, each of the others by itself.

use std::collections::HashSet;

use super::super::ours::has_trailers;
use super::super::{ForgeError, Job, ObservedPull, PullRequestState};
use super::api::Api;
use super::{Forgejo, wire};

/// Fewer pull requests are asked for one by one.
const WORTH_A_LIST: usize = 3;

/// Pages of open pull requests that are read at most.
const MOST_PAGES: u32 = 10;

impl Forgejo {
    pub(super) async fn observe_pulls(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        let api = self.api(job)?;
        let open = if numbers.len() < WORTH_A_LIST {
            HashSet::new()
        } else {
            open_numbers(&api).await?
        };
        let mut observed = Vec::with_capacity(numbers.len());
        for number in numbers {
            if open.contains(number) {
                observed.push(ObservedPull {
                    number: *number,
                    state: PullRequestState::Open,
                    merge_commit: None,
                    ended_at: None,
                });
            } else if let Some(pull) = api.pull_by_number(*number).await? {
                observed.push(observed_pull(&pull));
            }
        }
        Ok(observed)
    }

    pub(super) async fn remove_merged_branch(
        &self,
        job: &Job<'_>,
        number: u64,
    ) -> Result<(), ForgeError> {
        let api = self.api(job)?;
        let branch = &job.intent.branch;
        let Some(pull) = api.pull_by_number(number).await?.filter(|pull| pull.merged) else {
            return Ok(());
        };
        let Some(tip) = api.branch(branch).await? else {
            return Ok(());
        };
        // What a merged pull request says of its head follows the branch, even after the merge; the ref does not.
        if !has_trailers(&tip.message, job.key)
            && api.pull_head(pull.number).await?.as_ref() != Some(&tip.id)
        {
            return Ok(());
        }
        let reply = api.delete_branch(branch).await?;
        if !reply.status.is_success() && reply.status.as_u16() != 404 {
            return Err(reply.error());
        }
        Ok(())
    }
}

async fn open_numbers(api: &Api<'_>) -> Result<HashSet<u64>, ForgeError> {
    let mut numbers = HashSet::new();
    for page in 1..=MOST_PAGES {
        let pulls = api.open_pulls(page).await?;
        let last = pulls.is_empty();
        numbers.extend(pulls.into_iter().map(|pull| pull.number));
        if last {
            break;
        }
    }
    Ok(numbers)
}

pub(super) fn observed_pull(pull: &wire::Pull) -> ObservedPull {
    ObservedPull {
        number: pull.number,
        state: pull.state(),
        merge_commit: pull.merge_commit_sha.clone().filter(|_| pull.merged),
        ended_at: pull.merged_at.or(pull.closed_at),
    }
}
