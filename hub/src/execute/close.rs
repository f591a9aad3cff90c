//! Closes the pull request of a response that has ended, as `plan` decided it.

use std::sync::atomic::Ordering;

use tracing::{info, warn};

use super::advance::{by_hub, moment, tell};
use super::metrics::ClosingLabels;
use super::{Context, groups};
use crate::forge::{ClosedPull, ForgeError, Job, PullRequestState};
use crate::plan::{Close, follow_up, progress};
use crate::response::{ErrorType, Progress, Response, ResponseError};
use crate::store::{AuditEvent, SideRecords, StoreError};

type Outcome = Result<Option<ClosedPull>, ForgeError>;

/// Notes that it begins, closes, notes what came of it. `None` means that nothing is wanted any more: plan again.
pub(super) async fn close(
    context: &Context,
    response: &Response,
    close: Close,
) -> Result<Option<Progress>, StoreError> {
    let key = response.key();
    let wish = response.progress.follow_up.clone();
    let begin = Box::new(move |progress: &mut Progress| {
        // Another wish is planned anew.
        if progress.follow_up == wish {
            follow_up::begin(progress);
        }
        SideRecords::default()
    });
    let noted = context.store.transition(key, begin).await?;
    let is_under_way =
        |progress: &Progress| progress.follow_up.as_ref().is_some_and(|one| one.begun);
    if !noted.as_ref().is_some_and(is_under_way) {
        return Ok(None);
    }
    let job = Job::new(key, &close.intent);
    let (outcome, others_stay) = match context.forges.get(&close.intent.target) {
        Ok(forge) => groups::close(context, forge.as_ref(), &job, &close).await?,
        Err(error) => (Err(error), false),
    };
    // One that was opened does not go away: the forge does not show it.
    let outcome = match (outcome, close.number) {
        (Ok(None), Some(number)) => Err(ForgeError::Failed(ResponseError::new(
            ErrorType::Transient,
            "ForgeError",
            format!(
                "pull request {number} of {} is not shown; see that the credential may still read the repository",
                close.intent.target.repository
            ),
        ))),
        (outcome, _) => outcome,
    };
    if let Err(ForgeError::RateLimited {
        retry_after,
        detail,
    }) = &outcome
    {
        context.close_lane(&close.intent.target, *retry_after, detail);
    }
    report(context, &close, &outcome);
    let requests = job.requests.load(Ordering::Relaxed);
    end(context, response, outcome, others_stay, requests).await
}

async fn end(
    context: &Context,
    response: &Response,
    outcome: Outcome,
    others_stay: bool,
    requests: u32,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    let transition = Box::new(move |progress: &mut Progress| {
        match &outcome {
            Ok(closed) => {
                follow_up::closed(progress, closed.as_ref(), moment);
                if !others_stay {
                    follow_up::leave_to_people(progress);
                }
            }
            Err(error) => follow_up::failed(progress, error, moment),
        }
        SideRecords {
            attempts: Vec::new(),
            audit: vec![line(progress, &outcome, requests, moment)],
        }
    });
    let progress = context.store.transition(response.key(), transition).await?;
    if let Some(progress) = &progress
        && progress.revision > response.progress.revision
    {
        tell(context, response, progress);
    }
    Ok(progress)
}

fn line(
    progress: &Progress,
    outcome: &Outcome,
    requests: u32,
    moment: progress::Moment,
) -> AuditEvent {
    let action = match outcome {
        Ok(Some(closed)) if closed.pull.state == PullRequestState::Merged => "PullRequestMerged",
        Ok(Some(closed)) if closed.pull.state == PullRequestState::Open => "Withdrawn",
        Ok(Some(_)) => "PullRequestClosed",
        Ok(None) => "PullRequestNotFound",
        Err(_) => "CloseFailed",
    };
    let said = match outcome {
        Ok(Some(_)) => {
            let mut conditions = progress.conditions.iter();
            let found = conditions.find(|condition| condition.kind == progress::PULL_REQUEST);
            found.map_or(String::new(), |condition| condition.message.clone())
        }
        Ok(None) => "there is no pull request to close".to_owned(),
        Err(error) => error.to_string(),
    };
    let next = progress.follow_up.as_ref().and_then(|one| one.next_at);
    let next = next.map_or(String::new(), |at| format!("; next look at {at:.0}"));
    by_hub(
        moment.now,
        action,
        format!("{said}{next} (requests: {requests})"),
    )
}

fn report(context: &Context, close: &Close, outcome: &Outcome) {
    let word = match outcome {
        Ok(Some(closed)) => {
            info!(url = closed.url, state = ?closed.pull.state, notes = ?closed.notes, "the response's pull request is dealt with");
            match closed.pull.state {
                PullRequestState::Merged => "merged",
                PullRequestState::Closed => "closed",
                PullRequestState::Open => "withdrawn",
            }
        }
        Ok(None) => {
            info!(
                branch = close.intent.branch,
                "there is no pull request to close"
            );
            "not_found"
        }
        Err(error @ ForgeError::Failed(_)) => {
            warn!(%error, "the pull request could not be closed");
            "failed"
        }
        Err(error) => {
            warn!(%error, "the forge has to be waited for before the pull request can be closed");
            "waited"
        }
    };
    let labels = ClosingLabels {
        provider: close.intent.target.kind.as_str(),
        outcome: word,
    };
    context.metrics.closings.get_or_create(&labels).inc();
}
