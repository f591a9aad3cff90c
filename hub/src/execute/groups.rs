//! One at a time on the pull request of a group: members join it in turn, and it is closed only if none is left in it.
//!
//! Turns are for one hub's own tasks and save them from getting in each other's way; what is on a forge is right without
//! them, because every commit is made on top of what is there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use nabu_common::ids::ResponseKey;
use tokio::sync::OwnedMutexGuard;
use tracing::info;

use super::{Context, lock};
use crate::change::Intent;
use crate::forge::{ClosedPull, Closing, Forge, ForgeError, GroupClosing, Job};
use crate::plan::Close;
use crate::plan::follow_up::{
    close_after_all, is_closing, keeps_group_open, leaves_group_to_others, waits_for_others,
};
use crate::response::{ErrorType, Progress};
use crate::store::{ResponseSummary, SideRecords, StoreError};

/// Responses that one look into the store brings.
const PAGE: u32 = 256;

type Turn = Arc<tokio::sync::Mutex<()>>;

/// Who works on which group.
#[derive(Debug, Default)]
pub struct Turns {
    by_group: Mutex<HashMap<(String, String), Turn>>,
}

impl Turns {
    /// Waits until nobody works on the group of this change; nothing if it has none.
    pub(super) async fn turn(&self, intent: &Intent) -> Option<OwnedMutexGuard<()>> {
        let group = intent.group.as_ref()?;
        let key = (intent.target.repository.clone(), group.branch.clone());
        let turn = {
            let mut turns = lock(&self.by_group);
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            Arc::clone(turns.entry(key).or_default())
        };
        Some(turn.lock_owned().await)
    }
}

/// Closes the pull request of a response, or says on that of its group that the response is not wanted any more. Tells as well
/// whether others stay in it whom the store knows.
pub(super) async fn close(
    context: &Context,
    forge: &dyn Forge,
    job: &Job<'_>,
    close: &Close,
) -> Result<(Result<Option<ClosedPull>, ForgeError>, bool), StoreError> {
    let alone = Closing {
        number: close.number,
        commit: close.commit.as_deref(),
        comment: &close.comment,
        again: close.again,
        remove_branch: close.intent.options.delete_branch_after_close,
        stays_open: false,
        group: None,
    };
    let is_shared = close.intent.is_shared();
    // Nobody knows how far an interrupted attempt has come: perhaps into the group.
    let wanted = is_shared || close.number.is_none();
    let Some(shared) = close.intent.in_group().filter(|_| wanted) else {
        return Ok((forge.close(job, &alone).await, false));
    };
    let _turn = context.groups.turn(&shared).await;
    let (stays_open, unwanted) = others(context, job.key, &shared).await?;
    let comment = if stays_open {
        &close.comment_if_others_stay
    } else {
        &close.comment
    };
    let together = Closing {
        comment,
        stays_open,
        again: close.again || stays_open && close.withdrawn,
        // Others may have put theirs on top of it.
        commit: None,
        group: Some(GroupClosing {
            unwanted: &unwanted,
            comment: &close.comment_if_others_stay,
        }),
        ..alone
    };
    let outcome = forge.close(&job.with(&shared), &together).await;
    let is_elsewhere = match &outcome {
        Ok(None) => true,
        Err(ForgeError::Failed(error)) => error.kind == ErrorType::Conflicting,
        _ => false,
    };
    if is_elsewhere && !is_shared {
        return Ok((forge.close(job, &alone).await, false));
    }
    Ok((outcome, stays_open))
}

/// Whether other members of a group are wanted that are in its pull request, or may be soon; and the UIDs of those that are
/// not wanted any more, this one among them.
async fn others(
    context: &Context,
    key: &ResponseKey,
    shared: &Intent,
) -> Result<(bool, Vec<String>), StoreError> {
    let (mut stay, mut unwanted) = (false, vec![key.uid.to_string()]);
    for member in members(context, shared).await? {
        if member.key == *key {
            continue;
        }
        if keeps_group_open(&member.progress) {
            stay = true;
        } else {
            unwanted.push(member.key.uid.to_string());
        }
    }
    Ok((stay, unwanted))
}

/// The responses whose change was decided for a group.
async fn members(context: &Context, shared: &Intent) -> Result<Vec<ResponseSummary>, StoreError> {
    let mut members = context.store.of_group(&shared.branch).await?;
    members.retain(|member| is_of(member, shared));
    Ok(members)
}

/// Of two groups that have branches of the same name, the right one.
fn is_of(member: &ResponseSummary, shared: &Intent) -> bool {
    let intent = member.progress.intent.as_ref();
    intent.is_some_and(|intent| intent.target.repository == shared.target.repository)
}

/// A step of a response has ended. If the pull request of its group stayed open for its sake, or for that of others who are
/// gone meanwhile, one of those that were withdrawn closes it; that one's key.
pub(super) async fn reconsider(
    context: &Context,
    progress: &Progress,
) -> Result<Option<ResponseKey>, StoreError> {
    let shared = progress.intent.as_ref().and_then(Intent::in_group);
    let Some(shared) = shared.filter(|_| leaves_group_to_others(progress)) else {
        return Ok(None);
    };
    // Those in the pull request are few; of a group there may be many, which are read only if it matters.
    let mut inside = context.store.followed_on(&shared.branch).await?;
    inside.retain(|member| is_of(member, &shared));
    let mut inside = inside.into_iter();
    let Some(last) = inside.find(|member| waits_for_others(&member.progress)) else {
        return Ok(None);
    };
    let members = members(context, &shared).await?;
    if members
        .iter()
        .any(|member| keeps_group_open(&member.progress) || is_closing(&member.progress))
    {
        return Ok(None);
    }
    let transition = Box::new(|progress: &mut Progress| {
        close_after_all(progress);
        SideRecords::default()
    });
    context.store.transition(&last.key, transition).await?;
    info!(key = %last.key, branch = shared.branch, "nobody is left for whom the pull request of the group stayed open");
    Ok(Some(last.key))
}

/// The same for every group, when the hub starts: it may have ended in between.
pub(super) async fn reconsider_all(context: &Context) -> Result<Vec<ResponseKey>, StoreError> {
    let (mut after, mut looked, mut found) = (None, HashSet::new(), Vec::new());
    loop {
        let page = context.store.followed(after.as_ref(), PAGE).await?;
        let is_last = page.len() < PAGE as usize;
        after = page.last().map(|last| last.key.clone());
        for member in page
            .iter()
            .filter(|member| waits_for_others(&member.progress))
        {
            let intent = member.progress.intent.as_ref();
            let group = intent.and_then(Intent::in_group);
            let name = group.map(|shared| (shared.target.repository, shared.branch));
            if name.is_some_and(|name| looked.insert(name)) {
                found.extend(reconsider(context, &member.progress).await?);
            }
        }
        if is_last {
            return Ok(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use crate::group::Group;

    fn member(branch: &str) -> Intent {
        let group = Group {
            branch: branch.to_owned(),
            title: String::new(),
            introduction: String::new(),
            max_responses: 2,
        };
        Intent {
            group: Some(group),
            ..fixtures::intent()
        }
    }

    #[tokio::test]
    async fn members_of_one_group_take_turns_and_nobody_else_waits() {
        let turns = Turns::default();
        assert!(turns.turn(&fixtures::intent()).await.is_none());
        let first = turns.turn(&member("a")).await;
        assert!(turns.turn(&member("b")).await.is_some());
        let intent = member("a");
        let mut second = Box::pin(turns.turn(&intent));
        let is_waiting = futures::poll!(second.as_mut()).is_pending();
        assert!(is_waiting);
        drop(first);
        assert!(second.await.is_some());
        turns.turn(&member("c")).await;
        assert_eq!(lock(&turns.by_group).len(), 1, "what nobody uses goes");
    }
}
