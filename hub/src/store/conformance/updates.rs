//! What every engine must do for a change that follows its EventResponse.

use serde_json::json;

use super::at;
use crate::change::Intent;
use crate::fixtures::{event_response, intent, key_in, observation};
use crate::forge::{Amended, Made, PullRequest, PullRequestState};
use crate::plan::progress::{self, Moment};
use crate::plan::{Attempt, Update, retry::RetryPolicy, update};
use crate::response::{FollowUpKind, Observation, Progress, SpecVersion};
use crate::store::{Observed, SideRecords, Store, Transition};

fn moment(second: i64) -> Moment {
    Moment {
        now: at(second),
        generation: 1,
        jitter: 0.0,
    }
}

fn seen(hash: u8) -> Observation {
    Observation {
        generation: hash.into(),
        spec_hash: [hash; 32],
        ..observation(key_in("following", 81), event_response(json!({})))
    }
}

fn following(title: &str) -> Intent {
    let mut intent = intent();
    intent.options.update_existing = true;
    title.clone_into(&mut intent.title);
    intent
}

async fn transition(store: &dyn Store, change: impl FnOnce(&mut Progress) + Send + 'static) {
    let transition: Transition = Box::new(|progress| {
        change(progress);
        SideRecords::default()
    });
    let after = store.transition(&seen(1).key, transition).await;
    assert!(after.unwrap().is_some());
}

async fn look(store: &dyn Store, hash: u8) -> (Progress, [u8; 32]) {
    let observed = store.observe(vec![seen(hash)], at(30)).await.unwrap();
    let [Observed::Stored { response, .. }] = &observed[..] else {
        panic!("{observed:?}")
    };
    let stored = store.response(&seen(1).key).await.unwrap().unwrap();
    assert_eq!(&stored, response.as_ref());
    (stored.progress, stored.observation.spec_hash)
}

fn attempt(title: &str) -> Attempt {
    let typed = nabu_common::crd::parse_event_response(&event_response(json!({}))).unwrap();
    Attempt {
        intent: following(title),
        retry: RetryPolicy::of(&typed, 0, None).unwrap(),
        passed_over: String::new(),
    }
}

pub(super) async fn what_a_change_follows_is_kept_with_its_new_intent(store: &dyn Store) {
    let watched = async || {
        let watched = store.watched(&seen(1).key.cluster, None, 9).await.unwrap();
        let hashes = watched.into_iter().map(|one| one.spec_hash);
        hashes.collect::<Vec<_>>()
    };
    look(store, 1).await;
    // Nothing was written: what was decided is forgotten.
    transition(store, |progress| {
        progress::begin(progress, &attempt("First"), moment(21));
        progress.attempt_open = false;
        update::after_failure(progress, false);
    })
    .await;
    let (progress, hash) = look(store, 2).await;
    assert_eq!((progress.intent, hash), (None, [2; 32]));
    transition(store, |progress| {
        progress::begin(progress, &attempt("Second"), moment(22));
        let made = Made::PullRequest(PullRequest {
            url: "https://noop.invalid/o/r/pulls/1".into(),
            commit: None,
            state: PullRequestState::Open,
            adopted: false,
            notes: Vec::new(),
        });
        progress::succeed(progress, &made, moment(23));
    })
    .await;
    assert_eq!(watched().await, [Some([2; 32])]);
    let (progress, hash) = look(store, 3).await;
    assert_eq!(
        (progress.intent, hash),
        (Some(following("Second")), [3; 32])
    );
    assert_eq!(watched().await, [Some([3; 32])], "what it knows by now");
    let unfinished = store.unfinished(None, 1000).await.unwrap();
    assert!(
        unfinished.contains(&seen(1).key),
        "there is something to do"
    );

    let new = Update {
        asked: SpecVersion::of(&seen(3)),
        intent: following("Third"),
        number: 1,
        commit: None,
        leftovers: Vec::new(),
        again: false,
    };
    let begun = new.clone();
    transition(store, move |progress| {
        assert!(update::begin(progress, &begun));
    })
    .await;
    let (progress, _) = look(store, 3).await;
    let kept = match progress.follow_up.map(|one| one.kind) {
        Some(FollowUpKind::Update { intent, .. }) => intent.map(|intent| *intent),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        kept,
        Some(following("Third")),
        "kept before the first write"
    );
    transition(store, move |progress| {
        let amended = Amended::Updated {
            url: "https://noop.invalid/o/r/pulls/1".into(),
            commit: None,
            notes: Vec::new(),
        };
        update::done(progress, &new, &amended, moment(24));
    })
    .await;
    let (progress, _) = look(store, 3).await;
    assert_eq!(progress.intent, Some(following("Third")));
    assert_eq!(progress.follow_up, None);
}
