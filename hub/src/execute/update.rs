//! Makes the pull request of a response that has ended show another content, as `plan` decided it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tracing::{info, warn};

use super::Context;
use super::advance::{by_hub, moment, tell};
use super::metrics::UpdateLabels;
use crate::forge::{Amended, Amending, ForgeError, Job};
use crate::plan::progress::{self, Moment};
use crate::plan::{Keep, Update, update as transitions};
use crate::response::{ErrorType, Progress, Response, ResponseError};
use crate::store::{AuditEvent, SideRecords, StoreError};

type Outcome = Result<Amended, ForgeError>;

/// Notes that it begins, amends, notes what came of it. `None` means that something else is wanted by now: plan again.
pub(super) async fn update(
    context: &Context,
    response: &Response,
    update: Update,
) -> Result<Option<Progress>, StoreError> {
    let key = response.key();
    let update = Arc::new(update);
    let wish = response.progress.follow_up.clone();
    let decided = Arc::clone(&update);
    let begin = Box::new(move |progress: &mut Progress| {
        // Another wish is planned anew.
        if progress.follow_up == wish {
            transitions::begin(progress, &decided);
        }
        SideRecords::default()
    });
    let noted = context.store.transition(key, begin).await?;
    let is_under_way =
        |progress: &Progress| progress.follow_up.as_ref().is_some_and(|one| one.begun);
    if !noted.as_ref().is_some_and(is_under_way) {
        return Ok(None);
    }
    let job = Job::new(key, &update.intent);
    let amending = Amending {
        number: update.number,
        commit: update.commit.as_deref(),
        leftovers: &update.leftovers,
        again: update.again,
    };
    let outcome = match context.forges.get(&update.intent.target) {
        Ok(forge) => forge.amend(&job, &amending).await,
        Err(error) => Err(error),
    };
    // One that was opened does not go away: the forge does not show it.
    let outcome = outcome.and_then(|amended| {
        amended.ok_or_else(|| {
            let detail = format!(
                "pull request {} of {} is not shown; see that the credential may still read the repository",
                update.number, update.intent.target.repository
            );
            let error = ResponseError::new(ErrorType::Transient, "ForgeError", detail);
            ForgeError::Failed(error)
        })
    });
    if let Err(ForgeError::RateLimited {
        retry_after,
        detail,
    }) = &outcome
    {
        context.close_lane(&update.intent.target, *retry_after, detail);
    }
    report(context, &update, &outcome);
    let requests = job.requests.load(Ordering::Relaxed);
    let wrote = response.progress.unrecorded || job.has_written();
    let moment = moment(response);
    let transition = Box::new(move |progress: &mut Progress| {
        match &outcome {
            Ok(amended) => transitions::done(progress, &update, amended, moment),
            Err(error) => transitions::failed(progress, &update, error, wrote, moment),
        }
        audited(line(progress, &outcome, requests, moment))
    });
    let progress = context.store.transition(key, transition).await?;
    Ok(told(context, response, progress))
}

/// Notes that the pull request stays as it is.
pub(super) async fn keep(
    context: &Context,
    response: &Response,
    keep: Keep,
) -> Result<Option<Progress>, StoreError> {
    let moment = moment(response);
    let intent = response.progress.intent.as_ref();
    warn!(
        reason = keep.error.reason,
        detail = keep.error.detail,
        "the pull request is not updated"
    );
    count(
        context,
        intent.map_or("none", |intent| intent.target.kind.as_str()),
        "refused",
    );
    let transition = Box::new(move |progress: &mut Progress| {
        transitions::kept(progress, &keep, moment);
        let ResponseError { reason, detail, .. } = &keep.error;
        audited(by_hub(
            moment.now,
            "UpdateRefused",
            format!("{reason}: {detail}"),
        ))
    });
    let progress = context.store.transition(response.key(), transition).await?;
    Ok(told(context, response, progress))
}

fn told(context: &Context, response: &Response, progress: Option<Progress>) -> Option<Progress> {
    if let Some(progress) = &progress
        && progress.revision > response.progress.revision
    {
        tell(context, response, progress);
    }
    progress
}

fn audited(line: AuditEvent) -> SideRecords {
    SideRecords {
        attempts: Vec::new(),
        audit: vec![line],
    }
}

fn line(progress: &Progress, outcome: &Outcome, requests: u32, moment: Moment) -> AuditEvent {
    let action = match outcome {
        Ok(Amended::Updated { .. }) => "PullRequestUpdated",
        Ok(Amended::Ended(_)) => "UpdateTooLate",
        Err(_) => "UpdateFailed",
    };
    let said = match outcome {
        Ok(_) => {
            let mut conditions = progress.conditions.iter();
            let found = conditions.find(|condition| condition.kind == progress::PULL_REQUEST);
            found.map_or(String::new(), |condition| condition.message.clone())
        }
        Err(error) => error.to_string(),
    };
    let next = progress.follow_up.as_ref().and_then(|one| one.next_at);
    let next = next.map_or(String::new(), |at| format!("; next look at {at:.0}"));
    let detail = format!("{said}{next} (requests: {requests})");
    by_hub(moment.now, action, detail)
}

fn report(context: &Context, update: &Update, outcome: &Outcome) {
    let generation = update.asked.generation;
    let word = match outcome {
        Ok(Amended::Updated { url, commit, .. }) => {
            info!(
                url,
                commit, generation, "the pull request shows what is asked for by now"
            );
            "updated"
        }
        Ok(Amended::Ended(ended)) => {
            info!(
                url = ended.url,
                generation, "the pull request had ended before it could be updated"
            );
            "ended"
        }
        Err(error @ ForgeError::Failed(_)) => {
            warn!(%error, generation, "the pull request could not be updated");
            "failed"
        }
        Err(error) => {
            warn!(%error, generation, "the forge has to be waited for before the pull request can be updated");
            "waited"
        }
    };
    count(context, update.intent.target.kind.as_str(), word);
}

fn count(context: &Context, provider: &'static str, outcome: &'static str) {
    let labels = UpdateLabels { provider, outcome };
    context.metrics.updates.get_or_create(&labels).inc();
}
