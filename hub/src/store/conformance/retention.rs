//! What an engine may forget, and what it must keep.

use serde_json::json;

use super::{Moment, at};
use crate::change::ProviderKind;
use crate::fixtures::{event_response, intent, key_in, observation, session};
use crate::forge::{Made, ObservedPull, PullRequest, PullRequestState};
use crate::plan::progress::{mark_deleted, observe_pull_request, request_cancel, succeed};
use crate::response::{Phase, Progress};
use crate::store::{
    Acknowledgement, AttemptChange, AttemptResult, AuditEvent, AuditFilter, Observed, SideRecords,
    Store, Transition,
};

const CLUSTER: &str = "kept";

fn moment(second: i64) -> Moment {
    Moment {
        now: at(second),
        generation: 1,
        jitter: 0.0,
    }
}

/// What the forge says of a new pull request.
fn made() -> Made {
    Made::PullRequest(PullRequest {
        url: "https://git.example/o/r/pulls/1".to_owned(),
        commit: None,
        state: PullRequestState::Open,
        adopted: false,
        notes: Vec::new(),
    })
}

async fn change(
    store: &dyn Store,
    number: u32,
    change: impl FnOnce(&mut Progress) + Send + 'static,
) {
    let transition: Transition = Box::new(move |progress| {
        change(progress);
        SideRecords::default()
    });
    let after = store.transition(&key_in(CLUSTER, number), transition).await;
    assert!(after.unwrap().is_some());
}

async fn observe(store: &dyn Store, number: u32) -> Observed {
    let seen = observation(key_in(CLUSTER, number), event_response(json!({})));
    let mut answers = store.observe(vec![seen], at(0)).await.unwrap();
    answers.remove(0)
}

/// A response that has ended at second 10, on this forge, with a whole attempt.
async fn ended(store: &dyn Store, number: u32, kind: ProviderKind, closes: bool) {
    observe(store, number).await;
    let end: Transition = Box::new(move |progress| {
        let mut intent = intent();
        intent.target.kind = kind;
        intent.options.close_on_cancel = closes;
        progress.intent = Some(intent);
        succeed(progress, &made(), moment(10));
        let ended = AttemptChange::Ended {
            at: at(10),
            result: AttemptResult::Succeeded,
            error: None,
            requests: 3,
        };
        SideRecords {
            attempts: vec![AttemptChange::Begun { at: at(9) }, ended],
            audit: vec![line(10)],
        }
    });
    let key = key_in(CLUSTER, number);
    store.transition(&key, end).await.unwrap();
}

fn line(second: i64) -> AuditEvent {
    AuditEvent {
        at: at(second),
        actor: "hub".to_owned(),
        action: "Succeeded".to_owned(),
        detail: String::new(),
    }
}

async fn acknowledge(store: &dyn Store, number: u32, second: i64) {
    let key = key_in(CLUSTER, number);
    let revision = store.response(&key).await.unwrap().unwrap();
    let ack = Acknowledgement {
        uid: key.uid,
        revision: revision.progress.revision,
        refusal: None,
    };
    store
        .acknowledge(&key.cluster, vec![ack], at(second))
        .await
        .unwrap();
}

async fn left(store: &dyn Store) -> Vec<u32> {
    let mut left = Vec::new();
    for number in 1..=9 {
        if store
            .response(&key_in(CLUSTER, number))
            .await
            .unwrap()
            .is_some()
        {
            left.push(number);
        }
    }
    left
}

/// Runs on an empty store.
pub(crate) async fn run(store: &dyn Store) {
    store
        .open_session(session(CLUSTER, "a"), at(0))
        .await
        .unwrap();
    // 1 is done. 2 is not acknowledged, 3 has not ended, 4 waits for people, 5 was deleted and nobody can acknowledge it,
    // 6 has something left to do, 7 is watched, 8 is acknowledged late, 9 is the newest change.
    ended(store, 1, ProviderKind::Noop, false).await;
    acknowledge(store, 1, 11).await;
    ended(store, 2, ProviderKind::Noop, false).await;
    observe(store, 3).await;
    ended(store, 4, ProviderKind::ForgejoToken, false).await;
    acknowledge(store, 4, 11).await;
    ended(store, 5, ProviderKind::Noop, false).await;
    change(store, 5, mark_deleted).await;
    ended(store, 6, ProviderKind::Noop, true).await;
    change(store, 6, mark_deleted).await;
    ended(store, 7, ProviderKind::Noop, true).await;
    acknowledge(store, 7, 11).await;
    ended(store, 8, ProviderKind::Noop, false).await;
    acknowledge(store, 8, 99).await;
    ended(store, 9, ProviderKind::Noop, false).await;
    acknowledge(store, 9, 11).await;

    assert_eq!(
        store.prune_responses(at(10), 50).await.unwrap(),
        0,
        "too early"
    );
    assert_eq!(
        store.prune_responses(at(50), 1).await.unwrap(),
        1,
        "no more than asked for"
    );
    assert_eq!(left(store).await.len(), 8);
    assert_eq!(store.prune_responses(at(50), 50).await.unwrap(), 1);
    assert_eq!(left(store).await, [2, 3, 4, 6, 7, 8, 9]);
    assert!(
        store
            .attempts(&key_in(CLUSTER, 1))
            .await
            .unwrap()
            .is_empty()
    );
    let history = store.history(&key_in(CLUSTER, 1), 10).await.unwrap();
    assert_eq!(history.len(), 1, "the audit log has its own time");
    assert_eq!(
        store
            .transition(&key_in(CLUSTER, 1), Box::new(|_| SideRecords::default()))
            .await
            .unwrap(),
        None
    );

    // People merge it, the cluster hears of it, and it is kept from then on.
    change(store, 4, |progress| {
        let merged = ObservedPull {
            number: 1,
            state: PullRequestState::Merged,
            merge_commit: None,
            ended_at: None,
        };
        observe_pull_request(progress, &merged, moment(60));
    })
    .await;
    assert_eq!(
        store.prune_responses(at(200), 50).await.unwrap(),
        2,
        "8 and 9"
    );
    acknowledge(store, 4, 61).await;
    observe(store, 1).await;
    assert_eq!(store.prune_responses(at(61), 50).await.unwrap(), 0);
    assert_eq!(store.prune_responses(at(62), 50).await.unwrap(), 1);

    // One that is shown again is new, and numbers of changes have not begun anew.
    assert_eq!(left(store).await, [1, 2, 3, 6, 7]);
    let again = store.response(&key_in(CLUSTER, 1)).await.unwrap().unwrap();
    assert_eq!(
        (again.progress.phase, again.progress.intent),
        (Phase::Pending, None)
    );
    let newest = store.latest_change().await.unwrap();
    change(store, 3, |progress| request_cancel(progress, "not wanted")).await;
    assert!(store.latest_change().await.unwrap() > newest);

    audit_lines_go_oldest_first(store).await;
}

async fn audit_lines_go_oldest_first(store: &dyn Store) {
    let times = async || {
        let lines = store.audit_log(&AuditFilter::default(), None, 100).await;
        let lines = lines.unwrap().into_iter();
        lines.map(|line| line.event.at).collect::<Vec<_>>()
    };
    store.audit(None, line(500)).await.unwrap();
    let before = times().await.len() as u64;
    assert_eq!(store.prune_audit(at(10), 50).await.unwrap(), 0);
    assert_eq!(store.prune_audit(at(400), 3).await.unwrap(), 3);
    assert_eq!(store.prune_audit(at(400), 50).await.unwrap(), before - 4);
    assert_eq!(times().await, [at(500)]);
    // The newest one stays.
    assert_eq!(store.prune_audit(at(900), 50).await.unwrap(), 0);

    // Lines from a clock that was ahead keep no others, however many they are.
    for _ in 0..5 {
        store.audit(None, line(5000)).await.unwrap();
    }
    for second in 501..=503 {
        store.audit(None, line(second)).await.unwrap();
    }
    assert_eq!(store.prune_audit(at(600), 2).await.unwrap(), 2);
    assert_eq!(store.prune_audit(at(600), 2).await.unwrap(), 1);
    let mut left = times().await;
    left.sort_unstable();
    assert_eq!(left, [&[at(503)][..], &[at(5000); 5]].concat());
}
