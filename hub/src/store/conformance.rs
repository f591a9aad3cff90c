//! What every engine must do, as one suite.

mod admin;
mod group;
pub(crate) mod rehearsal;
pub(crate) mod retention;
mod updates;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::Revision;
use serde_json::json;

use super::*;
use crate::change::ProviderKind;
use crate::execute::gate::Budget;
use crate::execute::lanes::{Lanes, Ticket};
use crate::fixtures::{event_response, intent, key, key_in, observation, session};
use crate::forge::{Made, PullRequest, PullRequestState};
use crate::plan::progress::{Moment, mark_deleted, succeed};
use crate::response::{Content, ErrorType};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

/// Runs the whole suite on an empty store.
pub(crate) async fn run(store: Arc<dyn Store>) {
    sessions_get_growing_epochs_and_a_cluster_id_stays_bound(store.as_ref()).await;
    an_observation_is_stored_once(store.as_ref()).await;
    a_decided_response_keeps_its_observation(store.as_ref()).await;
    attempts_are_numbered_and_interrupted_ones_are_closed(store.as_ref()).await;
    statuses_are_unacknowledged_until_the_cluster_has_them(store.as_ref()).await;
    a_deleted_response_is_wanted_again_when_it_is_seen(store.as_ref()).await;
    what_is_left_to_do_after_the_end_is_found_again(store.as_ref()).await;
    updates::what_a_change_follows_is_kept_with_its_new_intent(store.as_ref()).await;
    lists_are_paged_newest_first(store.as_ref()).await;
    group::members_are_found_by_the_branch_that_they_share(store.as_ref()).await;
    a_transition_that_panics_harms_no_later_call(store.as_ref()).await;
    the_newest_state_of_a_gate_is_kept(store.as_ref()).await;
    admin::calls_of_administrators_are_found_in_the_audit_log(store.as_ref()).await;
    admin::changes_are_numbered_and_filtered(store.as_ref()).await;
    many_writers_share_commits_and_lose_nothing(store).await;
}

async fn a_transition_that_panics_harms_no_later_call(store: &dyn Store) {
    let panics: Transition = Box::new(|_| panic!("on purpose"));
    assert!(store.transition(&key(3), panics).await.is_err());
    let after = store
        .transition(&key(3), Box::new(|_| SideRecords::default()))
        .await;
    assert!(matches!(after, Ok(Some(_))), "{after:?}");
}

async fn the_newest_state_of_a_gate_is_kept(store: &dyn Store) {
    let mut lanes = Lanes::default();
    let ticket = Ticket::for_target(&intent().target);
    for second in [1, 5] {
        let wait = Duration::from_mins(1);
        lanes.limit(&ticket, wait, "slow down", at(second));
        store.put_gates(lanes.take_changed()).await.unwrap();
    }
    let mut stored = Lanes::new(Budget::default(), store.gates().await.unwrap());
    assert!(!stored.enter(&ticket, &key(1), at(64)));
    assert_eq!(stored.opens_at(at(64)), Some(at(65)));
}

/// Leaves something that [`assert_something`] finds.
pub(crate) async fn write_something(store: &dyn Store) {
    an_observation_is_stored_once(store).await;
}

/// See [`write_something`].
pub(crate) async fn assert_something(store: &dyn Store) {
    let response = store.response(&key(1)).await.unwrap().unwrap();
    assert_eq!(
        response.observation,
        observation(key(1), event_response(json!({})))
    );
    assert_eq!(response.observed_at, at(1));
}

async fn sessions_get_growing_epochs_and_a_cluster_id_stays_bound(store: &dyn Store) {
    let open = |uid: &str| store.open_session(session("prod-eu", uid), at(0));
    assert_eq!(open("a").await.unwrap(), Registration::Opened { epoch: 1 });
    assert_eq!(open("a").await.unwrap(), Registration::Opened { epoch: 2 });
    let unbound = |uid: &str| store.open_session(session("late", uid), at(0));
    assert_eq!(
        unbound("").await.unwrap(),
        Registration::Opened { epoch: 1 }
    );
    assert_eq!(
        unbound("x").await.unwrap(),
        Registration::Opened { epoch: 2 }
    );
    for other in ["", "y"] {
        let refused = unbound(other).await.unwrap();
        assert!(
            matches!(refused, Registration::BoundElsewhere { .. }),
            "{other:?}"
        );
    }
    let bound = Registration::BoundElsewhere {
        kube_system_uid: "a".to_owned(),
    };
    assert_eq!(open("b").await.unwrap(), bound);
    let cluster = "prod-eu".parse().unwrap();
    store.touch_cluster(&cluster, at(60)).await.unwrap();
    let clusters = store.clusters().await.unwrap();
    assert_eq!(clusters.len(), 2);
    let clusters = &clusters[1..];
    assert_eq!((clusters[0].epoch, clusters[0].last_seen_at), (2, at(60)));
    assert_eq!(clusters[0].facts, session("prod-eu", "a"));
}

async fn observe_one(store: &dyn Store, observation: Observation, now: Timestamp) -> Observed {
    store
        .observe(vec![observation], now)
        .await
        .unwrap()
        .remove(0)
}

async fn an_observation_is_stored_once(store: &dyn Store) {
    let seen = observation(key(1), event_response(json!({})));
    let first = observe_one(store, seen.clone(), at(1)).await;
    let Observed::Stored {
        response,
        changed: true,
    } = &first
    else {
        panic!("{first:?}")
    };
    assert_eq!(
        (response.progress.phase, response.progress.revision),
        (Phase::Pending, Revision(1))
    );
    let again = observe_one(store, seen.clone(), at(2)).await;
    let Observed::Stored {
        response,
        changed: false,
    } = &again
    else {
        panic!("{again:?}")
    };
    assert_eq!(response.observed_at, at(1));
    assert_eq!(
        store.response(&key(1)).await.unwrap().as_ref(),
        Some(response.as_ref())
    );

    let renamed = Observation {
        name: "er-2".to_owned(),
        ..seen
    };
    assert_eq!(
        observe_one(store, renamed, at(3)).await,
        Observed::NameMismatch {
            known: "er-1".to_owned()
        }
    );
    assert!(store.response(&key(99)).await.unwrap().is_none());
    assert_eq!(
        store
            .response_by_name(&key(1).cluster, "er-1")
            .await
            .unwrap(),
        Some(key(1))
    );
}

async fn begin(store: &dyn Store, key: &ResponseKey, now: Timestamp) -> Option<Progress> {
    let transition: Transition = Box::new(move |progress| {
        progress.intent.get_or_insert_with(intent);
        progress.phase = Phase::Running;
        progress.attempt_open = true;
        progress.revision = progress.revision.next();
        let audit = AuditEvent {
            at: now,
            actor: "hub".into(),
            action: "Routed".into(),
            detail: "x".into(),
        };
        SideRecords {
            attempts: vec![AttemptChange::Begun { at: now }],
            audit: vec![audit],
        }
    });
    store.transition(key, transition).await.unwrap()
}

async fn a_decided_response_keeps_its_observation(store: &dyn Store) {
    let known = observation(key(2), event_response(json!({})));
    let unserveable = Content::Unserveable {
        reason: "TooLarge".into(),
        message: "too large".into(),
    };
    observe_one(
        store,
        Observation {
            content: unserveable,
            ..known.clone()
        },
        at(1),
    )
    .await;
    let newer = observe_one(store, known.clone(), at(2)).await;
    let Observed::Stored {
        response,
        changed: true,
    } = &newer
    else {
        panic!("{newer:?}")
    };
    assert_eq!(response.observation, known, "undecided: the newest counts");

    begin(store, &key(2), at(3)).await.unwrap();
    let edited = Observation {
        spec_hash: [9; 32],
        ..known.clone()
    };
    observe_one(store, edited, at(4)).await;
    let kept = store.response(&key(2)).await.unwrap().unwrap();
    assert_eq!(kept.observation, known);
    let accepted = |response: &Response| response.progress.conditions[0].reason.clone();
    assert_eq!(accepted(&kept), "SpecChanged");
    assert_eq!(
        kept.progress.intent,
        Some(intent()),
        "the intent comes back whole"
    );
}

async fn attempts_are_numbered_and_interrupted_ones_are_closed(store: &dyn Store) {
    begin(store, &key(2), at(5)).await.unwrap();
    let error = ResponseError::new(ErrorType::Transient, "ForgeError", "it coughed");
    let ended = AttemptChange::Ended {
        at: at(6),
        result: AttemptResult::Failed,
        error: Some(error.clone()),
        requests: 3,
    };
    let transition: Transition = Box::new(move |_| SideRecords {
        attempts: vec![ended],
        audit: Vec::new(),
    });
    store.transition(&key(2), transition).await.unwrap();
    let attempts = store.attempts(&key(2)).await.unwrap();
    let interrupted = AttemptRecord {
        number: 1,
        started_at: at(3),
        ended: Some((at(5), AttemptResult::Interrupted)),
        error: None,
        requests: 0,
    };
    let failed = AttemptRecord {
        number: 2,
        started_at: at(5),
        ended: Some((at(6), AttemptResult::Failed)),
        error: Some(error),
        requests: 3,
    };
    assert_eq!(attempts, [interrupted, failed]);
    let history = store.history(&key(2), 10).await.unwrap();
    assert_eq!(
        history.iter().map(|event| event.at).collect::<Vec<_>>(),
        [at(3), at(5)]
    );
    let nobody = store
        .transition(&key(99), Box::new(|_| SideRecords::default()))
        .await
        .unwrap();
    assert_eq!(nobody, None);
}

async fn statuses_are_unacknowledged_until_the_cluster_has_them(store: &dyn Store) {
    let cluster = key(1).cluster;
    let waiting = || async {
        let page = store.unacknowledged(&cluster, None, 10).await.unwrap();
        page.into_iter()
            .map(|summary| (summary.key.uid, summary.progress.revision.0))
            .collect::<Vec<_>>()
    };
    assert_eq!(waiting().await, [(key(1).uid, 1), (key(2).uid, 4)]);
    let ack = |number, revision, refusal: Option<&str>| Acknowledgement {
        uid: key(number).uid,
        revision: Revision(revision),
        refusal: refusal.map(str::to_owned),
    };
    store
        .acknowledge(&cluster, vec![ack(1, 1, None), ack(2, 3, None)], at(7))
        .await
        .unwrap();
    assert_eq!(
        waiting().await,
        [(key(2).uid, 4)],
        "revision 3 of 4 is not enough"
    );
    store
        .acknowledge(&cluster, vec![ack(2, 4, Some("forbidden"))], at(8))
        .await
        .unwrap();
    assert_eq!(waiting().await, []);
    store
        .acknowledge(&cluster, vec![ack(2, 1, None), ack(1, 99, None)], at(9))
        .await
        .unwrap();
    assert_eq!(
        waiting().await,
        [],
        "an older acknowledgement changes nothing"
    );
    assert_eq!(
        store.acknowledged_at(&key(2)).await.unwrap(),
        Some(at(8)),
        "nor when it was"
    );
    begin(store, &key(1), at(10)).await.unwrap();
    assert_eq!(
        waiting().await,
        [(key(1).uid, 2)],
        "nobody can acknowledge the future"
    );
    let from_the_future = vec![ack(1, u64::MAX, None), ack(1, 99, None)];
    store
        .acknowledge(&cluster, from_the_future, at(11))
        .await
        .unwrap();
    let lines = store.history(&key(1), 10).await.unwrap();
    let told = lines
        .iter()
        .filter(|event| event.action == "RevisionUnknown");
    assert_eq!(told.count(), 1, "{lines:?}");
    let refusals = store.history(&key(2), 10).await.unwrap();
    assert!(
        refusals
            .iter()
            .any(|event| event.action == "StatusRefused" && event.detail.contains("forbidden"))
    );
}

async fn a_deleted_response_is_wanted_again_when_it_is_seen(store: &dyn Store) {
    let seen = observation(key(3), event_response(json!({})));
    observe_one(store, seen.clone(), at(11)).await;
    let delete: Transition = Box::new(|progress| {
        mark_deleted(progress);
        SideRecords::default()
    });
    store.transition(&key(3), delete).await.unwrap();
    let uids = |list: Vec<(ResponseUid, Timestamp)>| {
        list.into_iter().map(|(uid, _)| uid).collect::<Vec<_>>()
    };
    assert!(!uids(store.unfinished_of(&key(3).cluster).await.unwrap()).contains(&key(3).uid));
    let again = observe_one(store, seen, at(12)).await;
    let Observed::Stored {
        response,
        changed: true,
    } = &again
    else {
        panic!("{again:?}")
    };
    assert_eq!(
        (
            response.progress.deleted,
            &response.progress.cancel_requested
        ),
        (false, &None)
    );
    assert!(uids(store.unfinished_of(&key(3).cluster).await.unwrap()).contains(&key(3).uid));
}

async fn what_is_left_to_do_after_the_end_is_found_again(store: &dyn Store) {
    let made = PullRequest {
        url: "https://git.example/o/r/pulls/1".to_owned(),
        commit: None,
        state: PullRequestState::Open,
        adopted: false,
        notes: Vec::new(),
    };
    for number in [71, 72] {
        let seen = observation(key_in("closing", number), event_response(json!({})));
        observe_one(store, seen, at(20)).await;
        let made = Made::PullRequest(made.clone());
        let succeed: Transition = Box::new(move |progress| {
            let mut intent = intent();
            intent.options.close_on_cancel = true;
            if number == 72 {
                intent.target.kind = ProviderKind::ForgejoToken;
            }
            progress.intent = Some(intent);
            let moment = Moment {
                now: at(21),
                generation: 1,
                jitter: 0.0,
            };
            succeed(progress, &made, moment);
            SideRecords::default()
        });
        let key = key_in("closing", number);
        store.transition(&key, succeed).await.unwrap();
    }
    let (first, second) = (key_in("closing", 71), key_in("closing", 72));
    let unfinished = async || store.unfinished(None, 1000).await.unwrap();
    let watched = async |after: Option<&ResponseUid>, limit| {
        let watched = store.watched(&first.cluster, after, limit).await.unwrap();
        let uids = watched.into_iter().map(|one| one.uid);
        uids.collect::<Vec<_>>()
    };
    let followed = async |branch: &str| {
        let followed = store.followed_on(branch).await.unwrap().into_iter();
        followed.map(|one| one.key).collect::<Vec<_>>()
    };
    assert_eq!(
        followed(&intent().branch).await,
        std::slice::from_ref(&second),
        "nobody follows what noop makes"
    );
    assert!(followed("nabu/other").await.is_empty());
    assert!(!unfinished().await.contains(&first));
    assert_eq!(watched(None, 1).await, std::slice::from_ref(&first.uid));
    assert_eq!(
        watched(Some(&first.uid), 9).await,
        std::slice::from_ref(&second.uid)
    );
    let delete: Transition = Box::new(|progress| {
        mark_deleted(progress);
        SideRecords::default()
    });
    store.transition(&first, delete).await.unwrap();
    assert_eq!(watched(None, 9).await, std::slice::from_ref(&second.uid));
    assert!(unfinished().await.contains(&first), "it is to be closed");
    let wish = store.response(&first).await.unwrap().unwrap().progress;
    assert!(wish.follow_up.is_some());
    let done: Transition = Box::new(|progress| {
        progress.follow_up = None;
        SideRecords::default()
    });
    store.transition(&first, done).await.unwrap();
    assert!(!unfinished().await.contains(&first));
}

async fn lists_are_paged_newest_first(store: &dyn Store) {
    for number in 10..15 {
        let seen = observation(key_in("prod-us", number), event_response(json!({})));
        observe_one(store, seen, at(20 + i64::from(number % 3))).await;
    }
    let filter = ResponseFilter {
        cluster: Some("prod-us".parse().unwrap()),
        phases: vec![Phase::Pending],
        ..ResponseFilter::default()
    };
    let (mut before, mut listed) = (None, Vec::new());
    loop {
        let page = store.responses(&filter, before.clone(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        before = Some((last.observed_at, last.key.clone()));
        listed.extend(page);
    }
    assert_eq!(listed.len(), 5);
    assert!(
        listed
            .windows(2)
            .all(|pair| pair[0].observed_at >= pair[1].observed_at)
    );
    let all = store
        .responses(&ResponseFilter::default(), None, 100)
        .await
        .unwrap();
    let routed = all.iter().find(|summary| summary.key == key(2)).unwrap();
    assert_eq!(
        routed.routed.as_ref().map(|to| &*to.repository),
        Some("ninsun-labs/ugallu-gitops")
    );

    let (mut after, mut unfinished) = (None, Vec::new());
    loop {
        let page = store.unfinished(after.as_ref(), 2).await.unwrap();
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        unfinished.extend(page);
    }
    assert_eq!(unfinished.len(), 8);
}

async fn many_writers_share_commits_and_lose_nothing(store: Arc<dyn Store>) {
    let writers: Vec<_> = (100..400)
        .map(|number| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let key = key_in("storm", number);
                observe_one(
                    store.as_ref(),
                    observation(key.clone(), event_response(json!({}))),
                    at(30),
                )
                .await;
                begin(store.as_ref(), &key, at(31)).await.unwrap();
            })
        })
        .collect();
    for writer in writers {
        tokio::time::timeout(Duration::from_mins(1), writer)
            .await
            .unwrap()
            .unwrap();
    }
    let stored = store
        .unfinished_of(&"storm".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(stored.len(), 300);
}
