//! What became of merge requests: up to a hundred in one request. Branches are removed by GitLab itself: a merge request is
//! opened with that wish.

use super::super::{ForgeError, Job, ObservedPull};
use super::adopt::state;
use super::api::PAGE;
use super::{Gitlab, wire};

impl Gitlab {
    pub(super) async fn observe_requests(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        let api = self.api(job)?;
        let mut observed = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(PAGE) {
            let requests = api.merge_requests_by_number(numbers).await?;
            observed.extend(requests.iter().map(observed_pull));
        }
        Ok(observed)
    }
}

fn observed_pull(request: &wire::MergeRequest) -> ObservedPull {
    ObservedPull {
        number: request.iid,
        state: state(request),
        merge_commit: request
            .merge_commit_sha
            .clone()
            .or_else(|| request.squash_commit_sha.clone()),
        ended_at: request.merged_at.or(request.closed_at),
    }
}
