//! What is rehearsed is answered as in earnest, and leaves nothing behind.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nabu_common::ids::ClusterId;

use super::super::administrators::{Barred, Revocation};
use super::super::identity::{AuthorityRecord, AuthorityState, IdentityStore, NewToken};
use super::super::{AuditEvent, AuditFilter, Store};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_950_000_000 + second).unwrap()
}

fn audit(second: i64) -> AuditEvent {
    AuditEvent {
        at: at(second),
        actor: "admin/tester".to_owned(),
        action: "Rehearsed".to_owned(),
        detail: String::new(),
    }
}

fn token(id: &str, of: &str) -> NewToken {
    NewToken {
        id: id.to_owned(),
        cluster: cluster(of),
        hash: [9; 32],
        created_by: "admin/tester".to_owned(),
        created_at: at(0),
        expires_at: at(3600),
    }
}

fn cluster(id: &str) -> ClusterId {
    id.parse().unwrap()
}

fn grace() -> Barred {
    Barred::Name("grace".to_owned())
}

/// Runs it on a store that nobody else uses meanwhile.
pub(crate) async fn run(store: &dyn Store, identities: &dyn IdentityStore) {
    add(identities, "r1", "stage").await;
    every_order_is_answered_alike_and_only_those_in_earnest_are_kept(store, identities).await;
    what_is_rehearsed_beside_others_takes_nothing_of_theirs_along(identities).await;
}

async fn every_order_is_answered_alike_and_only_those_in_earnest_are_kept(
    store: &dyn Store,
    identities: &dyn IdentityStore,
) {
    let rehearsal = identities.rehearsal();
    for order in 0..ORDERS {
        let before = everything(store, identities).await;
        let rehearsed = give(rehearsal.as_ref(), order).await;
        assert_eq!(everything(store, identities).await, before, "order {order}");
        assert_eq!(give(identities, order).await, rehearsed, "order {order}");
        let after = everything(store, identities).await;
        assert_eq!(after == before, REFUSED.contains(&order), "order {order}");
    }
}

async fn what_is_rehearsed_beside_others_takes_nothing_of_theirs_along(
    identities: &dyn IdentityStore,
) {
    let rehearsal = identities.rehearsal();
    let rehearsal = rehearsal.as_ref();
    // More at a time than one, so that some share a commit.
    futures::future::join_all((0..8).map(|number| async move {
        let (kept, undone) = (format!("kept-{number}"), format!("undone-{number}"));
        tokio::join!(
            add(identities, &kept, "busy"),
            add(rehearsal, &undone, "busy")
        );
    }))
    .await;
    let tokens = identities.tokens(Some(&cluster("busy")), None, 100).await;
    let mut ids: Vec<_> = tokens
        .unwrap()
        .into_iter()
        .map(|one| one.token.id)
        .collect();
    ids.sort();
    assert_eq!(ids, (0..8).map(|n| format!("kept-{n}")).collect::<Vec<_>>());
}

async fn add(identities: &dyn IdentityStore, id: &str, of: &str) -> String {
    let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    let added = identities.add_cluster(labels, token(id, of), audit(0));
    format!("{:?}", added.await.unwrap())
}

const ORDERS: usize = 14;
/// Those that find nothing to be done to.
const REFUSED: [usize; 4] = [3, 7, 10, 13];

/// Gives an order, and tells the answer.
async fn give(to: &dyn IdentityStore, order: usize) -> String {
    let (stage, nowhere) = (cluster("stage"), cluster("nowhere"));
    let second = i64::try_from(order).unwrap();
    let audit = audit(second);
    let said: &dyn std::fmt::Debug = match order {
        0 => return add(to, "r2", "another").await,
        1 => &to.revoke_token("r1", audit).await.unwrap(),
        2 => &to.set_revoked(&stage, true, audit).await.unwrap(),
        3 => return add(to, "r3", "stage").await,
        4 => &to.set_revoked(&stage, false, audit).await.unwrap(),
        5 => &to.rebind_cluster(&stage, "uid-1", audit).await.unwrap(),
        6 => &to.remove_cluster(&stage, audit).await.unwrap(),
        7 => &to.remove_cluster(&nowhere, audit).await.unwrap(),
        8 => {
            let revocation = Revocation {
                barred: grace(),
                at: audit.at,
                by: audit.actor.clone(),
                reason: String::new(),
            };
            &to.revoke_administrator(revocation, None, audit)
                .await
                .unwrap()
        }
        9 | 10 => &to.restore_administrator(grace(), audit).await.unwrap(),
        11 | 12 => {
            let authorities = AuthorityState {
                revision: order as u64 - 10,
                serving: "old".to_owned(),
                incoming: (order == 12).then(|| "new".to_owned()),
                issuing: "old".to_owned(),
            };
            let pin = if order == 12 { "new" } else { "old" };
            let record = AuthorityRecord {
                pin: pin.to_owned(),
                certificate: vec![1],
                sealed_key: vec![2],
                sealing_key_id: "key".to_owned(),
                created_at: audit.at,
            };
            let put = to.put_authorities(authorities, Some(record), audit);
            &put.await.unwrap()
        }
        _ => &to.revoke_token("nothing", audit).await.unwrap(),
    };
    format!("{said:?}")
}

/// All that these orders could change.
async fn everything(store: &dyn Store, identities: &dyn IdentityStore) -> String {
    let clusters = store.clusters().await.unwrap();
    let mut known = Vec::new();
    let cluster_identities = identities.cluster_identities().await.unwrap();
    known.extend(cluster_identities.into_iter().map(|one| format!("{one:?}")));
    known.sort();
    let mut blocked: Vec<_> = identities.blocked().await.unwrap().into_iter().collect();
    blocked.sort();
    let filter = AuditFilter::default();
    let lines = store.audit_log(&filter, None, 1000).await.unwrap();
    format!(
        "{clusters:?}\n{known:?}\n{blocked:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        identities.tokens(None, None, 1000).await.unwrap(),
        identities.revocations().await.unwrap(),
        identities.authorities().await.unwrap(),
        lines,
    )
}
