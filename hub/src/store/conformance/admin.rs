//! What the admin API needs of every engine.

use nabu_common::ids::Revision;
use serde_json::json;

use super::{at, begin};
use crate::change::ProviderKind;
use crate::fixtures::{event_response, intent, key, key_in, observation};
use crate::response::{ErrorType, Phase};
use crate::store::{Acknowledgement, AdminCall, AuditFilter, ResponseFilter, Store};

pub(super) async fn changes_are_numbered_and_filtered(store: &dyn Store) {
    let before = store.latest_change().await.unwrap();
    assert!(before > 0);
    let mut commits = store.commits();
    commits.mark_unchanged();
    let seen = |number| {
        let object = event_response(json!({}));
        observation(key_in("watched", number), object)
    };
    store.observe(vec![seen(1), seen(2)], at(20)).await.unwrap();
    assert!(commits.has_changed().unwrap());
    begin(store, &key_in("watched", 1), at(21)).await.unwrap();
    let changed = async |filter: ResponseFilter, after: u64| {
        let upto = store.latest_change().await.unwrap();
        let found = store.responses_changed(&filter, after, upto, 10).await;
        let found = found.unwrap().into_iter();
        found
            .map(|(number, summary)| (number, summary.key))
            .collect::<Vec<_>>()
    };
    let all = changed(ResponseFilter::default(), before).await;
    let keys: Vec<_> = all.iter().map(|(_, key)| key.clone()).collect();
    assert_eq!(
        keys,
        [key_in("watched", 2), key_in("watched", 1)],
        "each once, in the order of its newest change"
    );
    assert!(all.is_sorted_by_key(|(number, _)| *number));
    assert_eq!(
        changed(ResponseFilter::default(), all[0].0).await.len(),
        1,
        "a watch goes on after a number"
    );
    store
        .acknowledge(
            &key_in("watched", 2).cluster,
            vec![Acknowledgement {
                uid: key(2).uid,
                revision: Revision(1),
                refusal: None,
            }],
            at(22),
        )
        .await
        .unwrap();
    let last = all[1].0;
    assert_eq!(
        changed(ResponseFilter::default(), last).await.len(),
        1,
        "an acknowledgement is a change"
    );
    let routed = |routes: &[&str], provider| ResponseFilter {
        routes: routes.iter().map(|text| (*text).to_owned()).collect(),
        providers: vec![provider],
        repositories: vec!["ninsun-labs/*".to_owned()],
        phases: vec![Phase::Running],
        since: Some(at(20)),
        clusters: Some(vec!["watched".parse().unwrap()]),
        ..ResponseFilter::default()
    };
    let route = intent().route;
    for (filter, count) in [
        (routed(&[&route], ProviderKind::Noop), 1),
        (routed(&["*"], ProviderKind::Noop), 1),
        (routed(&["nothing/*"], ProviderKind::Noop), 0),
        (routed(&["*"], ProviderKind::GithubApp), 0),
        (
            ResponseFilter {
                error_types: vec![ErrorType::Transient],
                ..routed(&["*"], ProviderKind::Noop)
            },
            0,
        ),
        (
            ResponseFilter {
                clusters: Some(Vec::new()),
                ..ResponseFilter::default()
            },
            0,
        ),
    ] {
        let found = store.responses(&filter, None, 10).await.unwrap();
        assert_eq!(found.len(), count, "{filter:?}");
    }
}

pub(super) async fn calls_of_administrators_are_found_in_the_audit_log(store: &dyn Store) {
    let call = |second, actor: &str, target: &str| AdminCall {
        at: at(second),
        actor: actor.to_owned(),
        method: "nabu.admin.v1.AdminService/GetResponse".to_owned(),
        target: target.to_owned(),
        outcome: "NotFound".to_owned(),
        detail: "there is none".to_owned(),
    };
    let calls = vec![
        call(1, "admin/ada", "audited/1"),
        call(2, "admin/grace", "audited"),
        call(3, "admin/ada", "audited-too/1"),
    ];
    store.audit_calls(calls).await.unwrap();
    let only = AuditFilter {
        admin_calls_only: true,
        ..AuditFilter::default()
    };
    let find = async |filter: AuditFilter, before| {
        let found = store.audit_log(&filter, before, 2).await.unwrap();
        found
            .into_iter()
            .map(|line| (line.event.actor, line.target, line.id))
            .collect::<Vec<_>>()
    };
    let first = find(only.clone(), None).await;
    assert_eq!(first[0].1, "audited-too/1", "newest first");
    let rest = find(only.clone(), Some(first[1].2)).await;
    assert_eq!((rest.len(), rest[0].1.as_str()), (1, "audited/1"));
    let of_cluster = AuditFilter {
        cluster: Some("audited".parse().unwrap()),
        ..only.clone()
    };
    let found = find(of_cluster, None).await;
    assert_eq!(found.len(), 2, "not of audited-too: {found:?}");
    let of_ada = AuditFilter {
        actor: Some("admin/ada".to_owned()),
        action: Some("GetResponse".to_owned()),
        since: Some(at(2)),
        ..only
    };
    assert_eq!(find(of_ada, None).await.len(), 1);
    let others = AuditFilter {
        action: Some("Deleted".to_owned()),
        ..AuditFilter::default()
    };
    let found = store.audit_log(&others, None, 10).await.unwrap();
    assert!(found.iter().all(|line| line.method.is_empty()));
    assert!(
        store
            .history(&key(1), 100)
            .await
            .unwrap()
            .iter()
            .all(|event| event.action != "GetResponse")
    );
}
