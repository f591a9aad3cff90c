//! What became of merge requests: up to fifty in one request. Branches are removed by GitLab itself: a merge request is
//! opened with that wish.

use super::super::{ForgeError, Job, ObservedPull, PullRequestState};
use super::adopt::state;
use super::{Gitlab, wire};

/// Merge requests in one request. Each comes with its description of up to 60,000 characters, and an answer of more than
/// 4 MiB is not read.
const MOST_AT_ONCE: usize = 50;

impl Gitlab {
    pub(super) async fn observe_requests(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        let api = self.api(job)?;
        let mut observed = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(MOST_AT_ONCE) {
            let requests = api.merge_requests_by_number(numbers).await?;
            observed.extend(requests.iter().map(observed_pull));
        }
        Ok(observed)
    }
}

pub(super) fn observed_pull(request: &wire::MergeRequest) -> ObservedPull {
    let state = state(request);
    // Where a project only puts commits on top of the base branch, there is neither a merge nor a squashed commit.
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
