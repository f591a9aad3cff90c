//! One at a time on the pull request of a group: members join it in turn, and it is closed only if none is left in it.
//!
//! Turns are for one hub's own tasks and save them from getting in each other's way; what is on a forge is right without
//! them, because every commit is made on top of what is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use nabu_common::ids::ResponseKey;
use tokio::sync::OwnedMutexGuard;

use super::{Context, lock};
use crate::change::Intent;
use crate::forge::{ClosedPull, Closing, Forge, ForgeError, GroupClosing, Job};
use crate::plan::Close;
use crate::plan::follow_up::keeps_group_open;
use crate::response::ErrorType;
use crate::store::StoreError;

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

/// Closes the pull request of a response, or says on that of its group that the response is not wanted any more.
pub(super) async fn close(
    context: &Context,
    forge: &dyn Forge,
    job: &Job<'_>,
    close: &Close,
) -> Result<Result<Option<ClosedPull>, ForgeError>, StoreError> {
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
        return Ok(forge.close(job, &alone).await);
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
        return Ok(forge.close(job, &alone).await);
    }
    Ok(outcome)
}

/// Whether other members of a group are wanted that are in its pull request, or may be soon; and the UIDs of those that are
/// not wanted any more, this one among them.
async fn others(
    context: &Context,
    key: &ResponseKey,
    shared: &Intent,
) -> Result<(bool, Vec<String>), StoreError> {
    let members = context.store.of_group(&shared.branch).await?;
    let (mut stay, mut unwanted) = (false, vec![key.uid.to_string()]);
    for member in members.iter().filter(|member| member.key != *key) {
        let intent = member.progress.intent.as_ref();
        if intent.is_none_or(|intent| intent.target.repository != shared.target.repository) {
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
