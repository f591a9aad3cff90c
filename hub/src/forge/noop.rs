//! The forge that calls nobody: says which pull request there would be, at an address that cannot exist.

use async_trait::async_trait;

use super::{Forge, ForgeError, Job, Made, ObservedPull, PullRequest, PullRequestState};

/// Names the would-be pull request; the same for the same key and target, for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

#[async_trait]
impl Forge for Noop {
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError> {
        let url = format!(
            "https://noop.invalid/{}/pulls/{}/{}",
            job.intent.target.repository, job.key.cluster, job.key.uid
        );
        Ok(Made::PullRequest(PullRequest {
            url,
            commit: None,
            state: PullRequestState::Open,
            adopted: false,
            notes: Vec::new(),
        }))
    }

    async fn observe(
        &self,
        _job: &Job<'_>,
        _numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        Ok(Vec::new())
    }

    async fn remove_branch(&self, _job: &Job<'_>, _number: u64) -> Result<(), ForgeError> {
        Ok(())
    }

    fn leaves_traces(&self) -> bool {
        false
    }
}
