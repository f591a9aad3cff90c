//! The responses of a group are found by its branch, and a webhook by the branch that they share.

use serde_json::json;

use super::{at, observe_one};
use crate::change::ProviderKind;
use crate::fixtures::{event_response, intent, key_in, observation};
use crate::forge::{Made, PullRequest, PullRequestState, Shared};
use crate::group::Group;
use crate::plan::progress::{Moment, succeed};
use crate::store::{SideRecords, Store, Transition};

const BRANCH: &str = "nabu/grouped/group-0-1";

/// A response whose change is in the pull request of its group, or only was to be.
async fn member(store: &dyn Store, number: u32, shared: bool) {
    let key = key_in("grouped", number);
    let seen = observation(key.clone(), event_response(json!({})));
    observe_one(store, seen, at(30)).await;
    let decide: Transition = Box::new(move |progress| {
        let mut intent = intent();
        intent.branch = format!("nabu/grouped/{number}");
        intent.target.kind = ProviderKind::ForgejoToken;
        intent.group = Some(Group {
            branch: BRANCH.to_owned(),
            title: "Changes".to_owned(),
            introduction: String::new(),
            max_responses: 20,
        });
        progress.intent = Some(intent);
        let pull = PullRequest {
            url: "https://git.example/o/r/pulls/1".to_owned(),
            commit: None,
            state: PullRequestState::Open,
            adopted: false,
            notes: Vec::new(),
        };
        let made = if shared {
            Made::Shared(Shared {
                pull,
                done_before: false,
            })
        } else {
            Made::PullRequest(pull)
        };
        let moment = Moment {
            now: at(31),
            generation: 1,
            jitter: 0.0,
        };
        succeed(progress, &made, moment);
        SideRecords::default()
    });
    store.transition(&key, decide).await.unwrap();
}

pub(super) async fn members_are_found_by_the_branch_that_they_share(store: &dyn Store) {
    member(store, 1, true).await;
    member(store, 2, true).await;
    member(store, 3, false).await;
    let numbers = |found: Vec<crate::store::ResponseSummary>| {
        let mut uids: Vec<_> = found.into_iter().map(|one| one.key.uid).collect();
        uids.sort();
        uids
    };
    let uids = |wanted: &[u32]| {
        let uid = |number: &u32| key_in("grouped", *number).uid;
        wanted.iter().map(uid).collect::<Vec<_>>()
    };
    let of_group = store.of_group(BRANCH).await.unwrap();
    assert!(of_group.iter().all(|one| one.progress.intent.is_some()));
    assert_eq!(numbers(of_group), uids(&[1, 2, 3]));
    assert!(store.of_group("nabu/other").await.unwrap().is_empty());
    let followed = store.followed_on(BRANCH).await.unwrap();
    assert_eq!(numbers(followed), uids(&[1, 2]));
    let alone = store.followed_on("nabu/grouped/3").await.unwrap();
    assert_eq!(numbers(alone), uids(&[3]));
}
