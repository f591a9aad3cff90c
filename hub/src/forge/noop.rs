//! The forge that calls nobody: says which pull request there would be, at an address that cannot exist.

use async_trait::async_trait;

use super::{
    Amended, Amending, ClosedPull, Closing, Forge, ForgeError, Job, Made, ObservedPull,
    PullRequest, PullRequestState, group,
};

/// Names the would-be pull request; the same for the same key and target, for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noop;

fn address(job: &Job<'_>) -> String {
    // Members of a group have one together.
    let own = if job.intent.is_shared() {
        job.intent.branch.rsplit('/').next().unwrap_or_default()
    } else {
        job.key.uid.as_str()
    };
    format!(
        "https://noop.invalid/{}/pulls/{}/{own}",
        job.intent.target.repository, job.key.cluster
    )
}

#[async_trait]
impl Forge for Noop {
    async fn make(&self, job: &Job<'_>) -> Result<Made, ForgeError> {
        if let Some(shared) = job.intent.in_group() {
            return Ok(group::shared(PullRequest {
                url: address(&job.with(&shared)),
                commit: None,
                state: PullRequestState::Open,
                adopted: false,
                notes: Vec::new(),
            }));
        }
        Ok(Made::PullRequest(PullRequest {
            url: address(job),
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

    async fn close(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        let state = if closing.stays_open {
            PullRequestState::Open
        } else {
            PullRequestState::Closed
        };
        Ok(Some(ClosedPull {
            url: address(job),
            pull: ObservedPull {
                number: 0,
                state,
                merge_commit: None,
                ended_at: None,
            },
            notes: Vec::new(),
        }))
    }

    async fn amend(
        &self,
        job: &Job<'_>,
        _amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        Ok(Some(Amended::Updated {
            url: address(job),
            commit: None,
            notes: Vec::new(),
        }))
    }

    fn leaves_traces(&self) -> bool {
        false
    }
}
