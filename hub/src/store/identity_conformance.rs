//! What every engine must do for enrolment, as one suite.

use std::collections::BTreeMap;

use jiff::Timestamp;
use nabu_common::ids::ClusterId;

use super::administrators::{Barred, Certified, Revocation};
use super::identity::*;
use super::{AuditEvent, Store};
use crate::response::Observation;

const HOUR: i64 = 3600;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + second).unwrap()
}

fn audit(second: i64) -> AuditEvent {
    AuditEvent {
        at: at(second),
        actor: "admin/tester".to_owned(),
        action: "Tested".to_owned(),
        detail: String::new(),
    }
}

fn cluster(id: &str) -> ClusterId {
    id.parse().unwrap()
}

fn token(id: &str, of: &str) -> NewToken {
    NewToken {
        id: id.to_owned(),
        cluster: cluster(of),
        hash: [7; 32],
        created_by: "admin/tester".to_owned(),
        created_at: at(0),
        expires_at: at(HOUR),
    }
}

fn certificate(fingerprint: &str, of: &str, authority: &str) -> CertificateRecord {
    CertificateRecord {
        fingerprint: fingerprint.to_owned(),
        serial: "01".to_owned(),
        identity: format!("cluster/{of}"),
        cluster: Some(cluster(of)),
        authority: authority.to_owned(),
        issued_at: at(0),
        not_after: at(24 * HOUR),
    }
}

/// Runs the whole suite on an empty store.
pub(crate) async fn run(store: &dyn Store, identities: &dyn IdentityStore) {
    a_token_is_used_for_one_key_only(identities).await;
    a_token_that_ran_out_or_is_revoked_is_useless(identities).await;
    tokens_of_a_cluster_are_bounded(identities).await;
    an_added_cluster_is_known_before_its_first_session(store, identities).await;
    the_first_use_of_a_certificate_supersedes_those_before(identities).await;
    a_certificate_in_the_wrong_cluster_costs_the_right_one_nothing(identities).await;
    a_revoked_cluster_gets_nothing_until_it_is_restored(identities).await;
    what_is_under_way_for_a_cluster_ends_with_it(store, identities).await;
    a_removed_cluster_comes_back_only_with_a_new_token(store, identities).await;
    a_cluster_id_is_bound_anew(identities).await;
    authorities_are_replaced_by_whoever_is_first(identities).await;
    a_revoked_administrator_stays_so_until_restored_and_revokes_nobody(identities).await;
    only_good_certificates_of_administrators_are_listed(identities).await;
}

async fn add(identities: &dyn IdentityStore, id: &str, of: &str) -> Added {
    let added = identities.add_cluster(BTreeMap::new(), token(id, of), audit(0));
    added.await.unwrap()
}

async fn a_token_is_used_for_one_key_only(identities: &dyn IdentityStore) {
    assert_eq!(add(identities, "t1", "one").await, Added::Stored);
    let redeem = async |key: u8, fingerprint: &str| {
        let made = certificate(fingerprint, "one", "a");
        let der = fingerprint.as_bytes().to_vec();
        let redeemed = identities.redeem("t1", [key; 32], made, der, audit(1));
        redeemed.await.unwrap()
    };
    assert_eq!(redeem(1, "one-1").await, Redeemed::New);
    // The answer may have been lost: it is the same again.
    let before = Redeemed::Again(certificate("one-1", "one", "a"), b"one-1".to_vec());
    assert_eq!(redeem(1, "one-2").await, before);
    assert_eq!(redeem(2, "one-3").await, Redeemed::No);
    for (fingerprint, made) in [("one-1", true), ("one-2", false), ("unknown", false)] {
        let certified = identities.has_certified(fingerprint).await.unwrap();
        assert_eq!(certified, made, "{fingerprint}");
    }
    // One of an authority that does not certify any more is made anew.
    let made = certificate("one-4", "one", "b");
    let redeemed = identities.redeem("t1", [1; 32], made, Vec::new(), audit(1));
    assert_eq!(redeemed.await.unwrap(), Redeemed::New);
    let listed = identities
        .tokens(Some(&cluster("one")), None, 10)
        .await
        .unwrap();
    assert_eq!(listed[0].used, Some((at(1), [1; 32])));
    let now = at(2);
    for good in ["one-1", "one-4", "unknown"] {
        let admitted = identities
            .admit(&cluster("one"), good, "", now)
            .await
            .unwrap();
        assert_eq!(admitted, Admission::Admitted, "{good}");
    }
}

async fn a_token_that_ran_out_or_is_revoked_is_useless(identities: &dyn IdentityStore) {
    add(identities, "t2", "two").await;
    add(identities, "t3", "two").await;
    let revoked = identities.revoke_token("t3", audit(1)).await.unwrap();
    assert_eq!(revoked, Some(cluster("two")));
    assert_eq!(identities.revoke_token("t9", audit(1)).await.unwrap(), None);
    for (id, second) in [("t2", HOUR), ("t3", 2), ("t9", 2)] {
        let made = certificate(id, "two", "a");
        let redeemed = identities.redeem(id, [1; 32], made, Vec::new(), audit(second));
        assert_eq!(redeemed.await.unwrap(), Redeemed::No, "{id}");
    }
}

async fn tokens_of_a_cluster_are_bounded(identities: &dyn IdentityStore) {
    for number in 0..TOKENS_OF_A_CLUSTER {
        assert_eq!(
            add(identities, &format!("many-{number}"), "many").await,
            Added::Stored
        );
    }
    assert_eq!(add(identities, "more", "many").await, Added::TooManyTokens);
}

async fn an_added_cluster_is_known_before_its_first_session(
    store: &dyn Store,
    identities: &dyn IdentityStore,
) {
    let labels = BTreeMap::from([("env".to_owned(), "prod".to_owned())]);
    let added = identities.add_cluster(labels.clone(), token("t4", "labelled"), audit(0));
    added.await.unwrap();
    // Another token leaves the labels alone.
    add(identities, "t5", "labelled").await;
    let clusters = store.clusters().await.unwrap();
    let found = clusters
        .iter()
        .find(|one| one.facts.cluster == cluster("labelled"));
    assert_eq!(found.unwrap().labels, labels);
    assert_eq!(found.unwrap().epoch, 0);
}

async fn the_first_use_of_a_certificate_supersedes_those_before(identities: &dyn IdentityStore) {
    for fingerprint in ["s1", "s2", "s3"] {
        let made = certificate(fingerprint, "super", "old");
        assert!(identities.record_certificate(made, None).await.unwrap());
    }
    let admit = async |fingerprint: &str| {
        let id = cluster("super");
        let admitted = identities.admit(&id, fingerprint, "", at(5)).await;
        admitted.unwrap()
    };
    assert_eq!(admit("s1").await, Admission::Admitted);
    assert_eq!(admit("s2").await, Admission::Admitted);
    assert_eq!(admit("s1").await, Admission::Superseded);
    assert_eq!(admit("s2").await, Admission::Admitted, "until s3 is used");
    let waiting = identities.certified_by("old", at(5)).await.unwrap();
    assert_eq!(waiting, ["cluster/super"]);
    let new = certificate("s4", "super", "new");
    identities.record_certificate(new, None).await.unwrap();
    let waiting = identities.certified_by("old", at(5)).await.unwrap();
    assert_eq!(waiting, ["cluster/super"], "the new one is not in use yet");
    assert_eq!(admit("s4").await, Admission::Admitted);
    let waiting = identities.certified_by("old", at(5)).await.unwrap();
    assert!(waiting.is_empty(), "{waiting:?}");
}

async fn a_certificate_in_the_wrong_cluster_costs_the_right_one_nothing(
    identities: &dyn IdentityStore,
) {
    let id = cluster("right");
    add(identities, "t12", "right").await;
    let bound = identities.rebind_cluster(&id, "uid-right", audit(1)).await;
    bound.unwrap();
    for fingerprint in ["r1", "r2"] {
        let made = certificate(fingerprint, "right", "a");
        assert!(identities.record_certificate(made, None).await.unwrap());
    }
    let admit = async |fingerprint: &str, uid: &str| {
        let admitted = identities.admit(&id, fingerprint, uid, at(5)).await;
        admitted.unwrap()
    };
    assert_eq!(admit("r1", "uid-right").await, Admission::Admitted);
    // The binding refuses it later; here it only must not count as used.
    assert_eq!(admit("r2", "uid-wrong").await, Admission::Admitted);
    assert_eq!(admit("r1", "uid-right").await, Admission::Admitted);
    assert_eq!(admit("r2", "uid-right").await, Admission::Admitted);
    assert_eq!(admit("r1", "uid-right").await, Admission::Superseded);
}

async fn a_revoked_cluster_gets_nothing_until_it_is_restored(identities: &dyn IdentityStore) {
    let id = cluster("bad");
    let set = async |revoked| {
        identities
            .set_revoked(&id, revoked, audit(3))
            .await
            .unwrap()
    };
    assert!(!set(true).await, "it is not known");
    add(identities, "t6", "bad").await;
    let made = certificate("b1", "bad", "a");
    assert!(identities.record_certificate(made, None).await.unwrap());
    assert!(set(true).await);
    assert!(identities.blocked().await.unwrap().contains(&id));
    for fingerprint in ["b1", "unknown"] {
        let admitted = identities.admit(&id, fingerprint, "", at(4)).await.unwrap();
        assert_eq!(admitted, Admission::Revoked);
    }
    let made = certificate("b2", "bad", "a");
    assert!(
        !identities
            .record_certificate(made.clone(), None)
            .await
            .unwrap()
    );
    let redeemed = identities.redeem("t6", [1; 32], made.clone(), Vec::new(), audit(4));
    assert_eq!(redeemed.await.unwrap(), Redeemed::No);
    assert_eq!(add(identities, "t7", "bad").await, Added::Revoked);
    assert!(set(false).await);
    assert!(!identities.blocked().await.unwrap().contains(&id));
    let admitted = identities.admit(&id, "b1", "", at(5)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
    // The refused attempt has not used the token up.
    let redeemed = identities.redeem("t6", [2; 32], made, Vec::new(), audit(5));
    assert_eq!(redeemed.await.unwrap(), Redeemed::New);
}

async fn what_is_under_way_for_a_cluster_ends_with_it(
    store: &dyn Store,
    identities: &dyn IdentityStore,
) {
    use crate::fixtures::{event_response, key_in, observation};
    let id = cluster("busy");
    add(identities, "t20", "busy").await;
    let seen = |number| {
        let seen = observation(
            key_in("busy", number),
            event_response(serde_json::json!({})),
        );
        Observation {
            name: format!("busy-{number}"),
            ..seen
        }
    };
    for number in 1..=2 {
        store.observe(vec![seen(number)], at(1)).await.unwrap();
    }
    assert!(identities.remove_cluster(&id, audit(2)).await.unwrap());
    let keys = [key_in("busy", 1), key_in("busy", 2)];
    // A hub may be interrupted after each step.
    let mut ended = Vec::new();
    for _ in 1..=2 {
        ended.extend(identities.finish_removals(1).await.unwrap());
    }
    ended.sort_by(|one, other| one.uid.cmp(&other.uid));
    assert_eq!(ended, keys);
    for key in keys {
        let found = store.response(&key).await.unwrap().unwrap();
        assert!(found.progress.deleted && found.progress.cancel_requested.is_some());
    }
    assert_eq!(identities.finish_removals(9).await.unwrap(), []);
    // Its session may not have ended yet.
    store.observe(vec![seen(3)], at(3)).await.unwrap();
    assert_eq!(identities.finish_removals(9).await.unwrap().len(), 1);
    assert_eq!(identities.finish_removals(9).await.unwrap(), []);
    let late = store.response(&key_in("busy", 3)).await.unwrap().unwrap();
    assert!(late.progress.deleted);
    assert!(!identities.remove_cluster(&id, audit(4)).await.unwrap());
}

async fn a_removed_cluster_comes_back_only_with_a_new_token(
    store: &dyn Store,
    identities: &dyn IdentityStore,
) {
    let id = cluster("gone");
    add(identities, "t8", "gone").await;
    let made = certificate("g1", "gone", "a");
    identities.record_certificate(made, None).await.unwrap();
    assert!(identities.remove_cluster(&id, audit(6)).await.unwrap());
    assert!(!identities.remove_cluster(&id, audit(6)).await.unwrap());
    let clusters = store.clusters().await.unwrap();
    assert!(clusters.iter().all(|one| one.facts.cluster != id));
    assert!(
        !identities
            .cluster_identities()
            .await
            .unwrap()
            .contains_key(&id)
    );
    assert!(identities.blocked().await.unwrap().contains(&id));
    let made = certificate("g2", "gone", "a");
    let redeemed = identities.redeem("t8", [1; 32], made, Vec::new(), audit(7));
    assert_eq!(redeemed.await.unwrap(), Redeemed::No);
    assert_eq!(add(identities, "t10", "gone").await, Added::Stored);
    let admitted = identities.admit(&id, "g1", "", at(8)).await.unwrap();
    assert_eq!(
        admitted,
        Admission::Revoked,
        "the old certificate stays bad"
    );
    let redeemed = identities.redeem(
        "t10",
        [1; 32],
        certificate("g3", "gone", "a"),
        Vec::new(),
        audit(8),
    );
    assert_eq!(redeemed.await.unwrap(), Redeemed::New);
    let admitted = identities.admit(&id, "g3", "", at(9)).await.unwrap();
    assert_eq!(admitted, Admission::Admitted);
}

async fn a_cluster_id_is_bound_anew(identities: &dyn IdentityStore) {
    let id = cluster("bound");
    let rebind = async |uid: &str| {
        let bound = identities.rebind_cluster(&id, uid, audit(9));
        bound.await.unwrap()
    };
    assert_eq!(rebind("a").await, None);
    add(identities, "t11", "bound").await;
    assert_eq!(rebind("a").await, Some(String::new()));
    identities.note_refused(&id, "b", at(9)).await.unwrap();
    let known = identities.cluster_identities().await.unwrap();
    assert_eq!(known[&id].refused, Some(("b".to_owned(), at(9))));
    assert_eq!(rebind("b").await, Some("a".to_owned()));
    let known = identities.cluster_identities().await.unwrap();
    assert_eq!(known[&id].refused, None);
}

async fn authorities_are_replaced_by_whoever_is_first(identities: &dyn IdentityStore) {
    let authority = |pin: &str| AuthorityRecord {
        pin: pin.to_owned(),
        certificate: vec![1],
        sealed_key: vec![2],
        sealing_key_id: "k".to_owned(),
        created_at: at(0),
    };
    let state = |revision, serving: &str, incoming: Option<&str>| AuthorityState {
        revision,
        serving: serving.to_owned(),
        incoming: incoming.map(str::to_owned),
        issuing: incoming.unwrap_or(serving).to_owned(),
    };
    let put = async |state, new| {
        let put = identities.put_authorities(state, new, audit(1));
        put.await.unwrap()
    };
    assert_eq!(identities.authorities().await.unwrap(), None);
    assert!(put(state(1, "a", None), Some(authority("a"))).await);
    assert!(!put(state(1, "b", None), Some(authority("b"))).await);
    assert!(put(state(2, "a", Some("b")), Some(authority("b"))).await);
    let (found, known) = identities.authorities().await.unwrap().unwrap();
    assert_eq!((found, known.len()), (state(2, "a", Some("b")), 2));
    assert!(put(state(3, "b", None), None).await);
    let (found, known) = identities.authorities().await.unwrap().unwrap();
    assert_eq!((found, known), (state(3, "b", None), vec![authority("b")]));
}

async fn a_revoked_administrator_stays_so_until_restored_and_revokes_nobody(
    identities: &dyn IdentityStore,
) {
    let revocation = |barred: &Barred, second| Revocation {
        barred: barred.clone(),
        at: at(second),
        by: "admin/tester".to_owned(),
        reason: "left".to_owned(),
    };
    let certified = |name: &str, fingerprint: &str| {
        Some(Certified {
            name: name.to_owned(),
            fingerprint: fingerprint.to_owned(),
        })
    };
    let (ada, one) = (
        Barred::Name("ada".to_owned()),
        Barred::Certificate("f1".to_owned()),
    );
    for (barred, by, done) in [
        (&ada, certified("grace", "f1"), true),
        (&one, certified("ada", "f2"), false),
        (&one, None, true),
        (&ada, certified("grace", "f1"), false),
        // It stays as it was.
        (&ada, certified("grace", "f2"), true),
    ] {
        let revoked = identities.revoke_administrator(revocation(barred, 1), by, audit(1));
        assert_eq!(revoked.await.unwrap(), done, "{barred:?}");
    }
    let listed = identities.revocations().await.unwrap();
    assert_eq!(listed, [revocation(&ada, 1), revocation(&one, 1)]);
    for (barred, done) in [(&ada, true), (&ada, false), (&one, true)] {
        let restored = identities.restore_administrator(barred.clone(), audit(2));
        assert_eq!(restored.await.unwrap(), done, "{barred:?}");
    }
    assert!(identities.revocations().await.unwrap().is_empty());
}

async fn only_good_certificates_of_administrators_are_listed(identities: &dyn IdentityStore) {
    for (fingerprint, identity, hours) in [
        ("a1", "admin/ada", 24),
        ("a2", "admin/grace", 1),
        ("a3", "hub/hub", 24),
    ] {
        let made = CertificateRecord {
            identity: identity.to_owned(),
            cluster: None,
            not_after: at(hours * HOUR),
            ..certificate(fingerprint, "unused", "a")
        };
        identities.record_certificate(made, None).await.unwrap();
    }
    let listed = identities
        .administrators(at(2 * HOUR), None, 10)
        .await
        .unwrap();
    let listed: Vec<_> = listed.iter().map(|(_, one)| &*one.fingerprint).collect();
    assert_eq!(listed, ["a1"]);
}
