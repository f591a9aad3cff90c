//! What became of merge requests: up to twenty in one request.

use super::super::{ForgeError, Job, ObservedPull, PullRequestState};
use super::adopt::state;
use super::{Gitlab, wire};

/// Merge requests in one request. Each comes with its description, and long answers are not read.
const MOST_AT_ONCE: usize = 20;

impl Gitlab {
    pub(super) async fn observe_merge_requests(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        let api = self.api(job)?;
        let mut observed = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(MOST_AT_ONCE) {
            let found = api.merge_requests_by_number(numbers).await?;
            // Nothing at all if we may not see the project any more.
            observed.extend(found.unwrap_or_default().iter().map(observed_pull));
        }
        Ok(observed)
    }

    /// GitLab removes the branch by itself where it was asked to; this is for when it has not.
    pub(super) async fn remove_merged_branch(
        &self,
        job: &Job<'_>,
        number: u64,
    ) -> Result<(), ForgeError> {
        let api = self.api(job)?;
        let branch = &job.intent.branch;
        let request = api.merge_request(number).await?;
        let Some(head) = request
            .filter(|request| state(request) == PullRequestState::Merged)
            .and_then(|request| request.sha)
        else {
            return Ok(());
        };
        if api.branch(branch).await?.is_some_and(|tip| tip.id == head) {
            let reply = api.delete_branch(branch).await?;
            if !reply.status.is_success() && reply.status.as_u16() != 404 {
                return Err(reply.error());
            }
        }
        Ok(())
    }
}

fn observed_pull(request: &wire::MergeRequest) -> ObservedPull {
    let state = state(request);
    // Where commits are only put on top of the base branch, there is neither a merge nor a squashed commit.
    let commit = (request.merge_commit_sha.as_ref())
        .or(request.squash_commit_sha.as_ref())
        .or(request.sha.as_ref());
    ObservedPull {
        number: request.iid,
        state,
        merge_commit: commit
            .filter(|_| state == PullRequestState::Merged)
            .cloned(),
        ended_at: request.merged_at.or(request.closed_at),
    }
}
