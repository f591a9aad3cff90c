//! A whole agent between an API server and a hub: the watch, the session over mutual TLS, and the status.

#![expect(clippy::unwrap_used, reason = "a test ends with what is wrong")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use nabu_agent::identity::Identity;
use nabu_agent::inventory::Settings;
use nabu_agent::metrics::Metrics;
use nabu_agent::serve::{Context, serve};
use nabu_agent::session::Introduction;
use nabu_common::ops::Health;
use nabu_common::tls::ClientTls;
use nabu_proto::agent_v1::session_request::Frame as FromAgent;
use nabu_proto::agent_v1::session_response::Frame as ToAgent;
use nabu_proto::agent_v1::{
    Goodbye, GoodbyeReason, Missing, ObjectRef, Phase, RefusalCode, Refused, SecurityEventAbsence,
    WatchedResponse, Watching, observed,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::Endpoint;

use support::api::Api;
use support::hub::{Hub, Session, status};
use support::{Ca, LIMIT, uri};

struct Rig {
    api: Api,
    hub: Hub,
    health: Health,
    shutdown: CancellationToken,
    agent: JoinHandle<()>,
    _dir: TempDir,
}

impl Rig {
    /// An agent that finds what `prepare` has put into its cluster.
    async fn start(prepare: impl FnOnce(&Api)) -> Self {
        let (dir, ca, shutdown) = (TempDir::new().unwrap(), Ca::new(), CancellationToken::new());
        let api = Api::start().await;
        prepare(&api);
        let hub = Hub::start(&ca, dir.path(), &shutdown).await;
        let name = uri("spiffe://nabu/cluster/prod-eu");
        let tls = ClientTls::load(ca.issue(&dir.path().join("agent"), name)).unwrap();
        let health = Health::default();
        let context = Context {
            client: api.client.clone(),
            endpoint: Endpoint::from_shared(format!("http://{}", hub.address)).unwrap(),
            identity: Identity::Files(tls.connector(None)),
            introduction: Introduction {
                kube_system_uid: "kube-system-uid".to_owned(),
                kubernetes_version: "v1.35.4".to_owned(),
                responders: vec!["ours".to_owned()],
                cluster_name: "Europe".to_owned(),
                cluster_id: "prod-eu".to_owned(),
            },
            inventory: Settings {
                slots: 32,
                kept_bytes: 1 << 20,
                security_event_wait: Duration::from_millis(400),
                resync: Duration::from_mins(10),
            },
            metrics: Arc::new(Metrics::new(
                &mut prometheus_client::registry::Registry::default(),
            )),
            watch_check: health.check("watch"),
            session_check: health.check("session"),
        };
        let agent = tokio::spawn(serve(context, shutdown.child_token()));
        Self {
            api,
            hub,
            health,
            shutdown,
            agent,
            _dir: dir,
        }
    }

    async fn until_ready(&self) {
        self.api.until("ready", |_| self.health.is_ready()).await;
    }

    async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(LIMIT, self.agent)
            .await
            .expect("it ends in time")
            .unwrap();
    }
}

fn plain(api: &Api, name: &str) {
    api.create(name, &json!({}), &Value::Null);
}

fn succeeded(name: &str) -> impl Fn(&Api) -> bool {
    let name = name.to_owned();
    move |api| api.status(&name)["phase"] == "Succeeded"
}

#[tokio::test]
async fn a_response_goes_to_the_hub_and_its_result_into_the_object() {
    let mut rig = Rig::start(|_| {}).await;
    let (mut session, hello) = rig.hub.next_session().await;
    assert_eq!(session.peer.identity.to_string(), "cluster/prod-eu");
    assert_eq!(
        (hello.kube_system_uid.as_str(), hello.cluster_name.as_str()),
        ("kube-system-uid", "Europe")
    );
    assert_eq!(hello.responder_names, ["ours"]);
    assert!(!rig.health.is_ready(), "not before Welcome");
    session.welcome().await;
    assert!(session.inventory().await.is_empty());
    rig.until_ready().await;

    rig.api.create_security_event("se-1");
    let spec = json!({"securityEventRef": {"name": "se-1"}});
    rig.api.create("a", &spec, &Value::Null);
    let seen = session.observed().await;
    let Some(observed::Content::Objects(objects)) = seen.content else {
        panic!("no objects")
    };
    let object: Value = serde_json::from_slice(&objects.event_response_json).unwrap();
    assert_eq!(object["spec"]["securityEventRef"]["name"], "se-1");
    assert!(String::from_utf8_lossy(&objects.security_event_json).contains("uid-se-1"));

    session.status("a", 1, Phase::Running).await;
    session.status("a", 2, Phase::Succeeded).await;
    assert_eq!(session.applied().await, ("uid-a".to_owned(), 2));
    let stored = rig.api.status("a");
    assert_eq!(
        stored["evidence"][0]["url"],
        "https://forge.example/pulls/a"
    );
    assert!(stored.get("providerRef").is_none(), "the schema lacks it");
    assert_eq!(rig.api.patches(), ["a Succeeded"], "one write");
    assert!(
        session.is_silent().await,
        "it is finished, and the hub knows"
    );
    rig.api
        .until("one Kubernetes Event", |api| api.events().len() == 1)
        .await;
    assert_eq!(rig.api.events()[0]["reason"], "Succeeded");
    rig.stop().await;
}

#[tokio::test]
async fn only_unfinished_objects_of_ours_are_named() {
    let mut rig = Rig::start(|api| {
        for number in 0..1000 {
            let done = json!({"phase": "Succeeded"});
            api.create(&format!("done-{number}"), &json!({}), &done);
        }
        plain(api, "a");
        api.create(
            "b",
            &json!({"responder": {"name": "another"}}),
            &Value::Null,
        );
        api.create("c", &json!({"action": {"type": "Freeze"}}), &Value::Null);
        api.create("d", &json!({}), &json!({"evidence": [{"url": "u"}]}));
        api.create("e", &json!({}), &json!({"phase": "Running"}));
    })
    .await;
    let mut session = rig.hub.welcome().await;
    assert_eq!(session.inventory().await, ["a", "e"]);
    rig.stop().await;
}

#[tokio::test]
async fn a_lost_session_is_opened_again_with_everything_unfinished() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut first = rig.hub.welcome().await;
    assert_eq!(first.inventory().await, ["a"]);
    drop(first);
    plain(&rig.api, "b");
    let mut second = rig.hub.welcome().await;
    let mut named = second.inventory().await;
    if named.len() == 1 {
        // The watch has told of it only after the inventory had begun.
        named.push(second.observed().await.r#ref.unwrap().name);
    }
    assert_eq!(named, ["a", "b"]);
    second.status("a", 3, Phase::Succeeded).await;
    assert_eq!(second.applied().await, ("uid-a".to_owned(), 3));
    drop(second);
    let mut third = rig.hub.welcome().await;
    assert_eq!(third.inventory().await, ["b"]);
    rig.stop().await;
}

#[tokio::test]
async fn a_status_that_arrives_twice_is_acknowledged_twice_and_changes_nothing() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    for _ in 0..2 {
        session.status("a", 1, Phase::Succeeded).await;
        assert_eq!(session.applied().await, ("uid-a".to_owned(), 1));
    }
    assert!(session.is_silent().await);
    rig.stop().await;
}

#[tokio::test]
async fn conflicts_and_outages_do_not_lose_the_newest_status() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    rig.api.trouble(&[409, 503, 500]);
    session.status("a", 1, Phase::Succeeded).await;
    assert_eq!(session.applied().await, ("uid-a".to_owned(), 1));
    assert_eq!(rig.api.patches().len(), 4);
    assert!(succeeded("a")(&rig.api));
    rig.stop().await;
}

#[tokio::test]
async fn annotations_of_others_cause_no_traffic() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    for count in 0..15 {
        rig.api.annotate("a", count);
    }
    assert!(session.is_silent().await);
    session.status("a", 1, Phase::Succeeded).await;
    session.applied().await;
    rig.stop().await;
}

#[tokio::test]
async fn a_missing_security_event_is_waited_for_and_then_named_absent() {
    let spec = json!({"securityEventRef": {"name": "late"}});
    let mut rig = Rig::start(|api| api.create("a", &spec, &Value::Null)).await;
    let mut session = rig.hub.welcome().await;
    let asked = std::time::Instant::now();
    let seen = session.observed().await;
    assert!(
        asked.elapsed() >= Duration::from_millis(300),
        "it was waited for"
    );
    let Some(observed::Content::Objects(objects)) = seen.content else {
        panic!("no objects")
    };
    assert_eq!(
        objects.security_event_absence(),
        SecurityEventAbsence::NotFound
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_security_event_that_comes_a_little_later_goes_along() {
    let spec = json!({"securityEventRef": {"name": "late"}});
    let mut rig = Rig::start(|api| api.create("a", &spec, &Value::Null)).await;
    let mut session = rig.hub.welcome().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    rig.api.create_security_event("late");
    let seen = session.observed().await;
    let Some(observed::Content::Objects(objects)) = seen.content else {
        panic!("no objects")
    };
    assert!(!objects.security_event_json.is_empty());
    rig.stop().await;
}

#[tokio::test]
async fn an_object_that_is_too_large_is_named_and_its_neighbour_served() {
    let contents = "x".repeat(1_200_000);
    let spec = json!({"action": {"type": "GitOpsChange", "parameters": {"contents": contents}}});
    let mut rig = Rig::start(|api| {
        api.create("large", &spec, &Value::Null);
        plain(api, "small");
    })
    .await;
    let mut session = rig.hub.welcome().await;
    for _ in 0..2 {
        let seen = session.observed().await;
        let large = matches!(seen.content, Some(observed::Content::Unserveable(_)));
        assert_eq!(large, seen.r#ref.unwrap().name == "large");
    }
    rig.stop().await;
}

#[tokio::test]
async fn a_refusal_ends_in_the_object_and_is_not_sent_again() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    session
        .send(ToAgent::Refused(Refused {
            uid: "uid-a".to_owned(),
            code: RefusalCode::Invalid.into(),
            message: "spec.action is missing".to_owned(),
        }))
        .await;
    rig.api
        .until("a failed", |api| api.status("a")["phase"] == "Failed")
        .await;
    let error = rig.api.status("a")["error"].clone();
    assert_eq!(
        (&error["type"], &error["detail"]),
        (&json!("Permanent"), &json!("spec.action is missing"))
    );
    assert!(session.is_silent().await);
    rig.stop().await;
}

#[tokio::test]
async fn an_api_server_that_was_away_is_caught_up_with() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    rig.api.set_down(true);
    session.status("a", 1, Phase::Succeeded).await;
    rig.api.until("unready", |_| !rig.health.is_ready()).await;
    rig.api.set_down(false);
    assert_eq!(session.applied().await, ("uid-a".to_owned(), 1));
    plain(&rig.api, "b");
    assert_eq!(session.observed().await.r#ref.unwrap().name, "b");
    rig.until_ready().await;
    rig.stop().await;
}

/// Whatever the hub believes meanwhile: somebody has ended it.
#[tokio::test]
async fn only_an_end_is_written_over_an_end() {
    let ended = |api: &Api| {
        let status = json!({"phase": "Failed", "outcome": {"message": "by hand"}});
        api.create("a", &json!({}), &status);
        plain(api, "b");
    };
    let mut rig = Rig::start(ended).await;
    let mut session = rig.hub.welcome().await;
    // Perhaps before the list is known, and once after.
    let (mut listed, mut refused) = (false, 0);
    session.status("a", 1, Phase::Running).await;
    while refused < 2 {
        match session.frame().await {
            FromAgent::StatusRefused(one) => {
                refused += 1;
                assert_eq!((one.uid.as_str(), one.revision), ("uid-a", refused));
            }
            FromAgent::SnapshotEnd(_) => listed = true,
            FromAgent::Applied(applied) => panic!("it was written: {applied:?}"),
            _ => {}
        }
        if listed && refused == 1 {
            session.status("a", 2, Phase::Running).await;
        }
    }
    assert_eq!(rig.api.status("a")["phase"], "Failed");
    session.status("b", 1, Phase::Running).await;
    assert_eq!(session.applied().await, ("uid-b".to_owned(), 1));
    session.status("a", 3, Phase::Succeeded).await;
    assert_eq!(session.applied().await, ("uid-a".to_owned(), 3));
    rig.api.until("a succeeds", succeeded("a")).await;
    rig.stop().await;
}

#[tokio::test]
async fn what_the_hub_misses_is_told_gone_or_ended() {
    let mut rig = Rig::start(|api| {
        api.create("a", &json!({}), &json!({"phase": "Failed"}));
        plain(api, "b");
    })
    .await;
    let (mut session, hello) = rig.hub.next_session().await;
    assert!(hello.capabilities.contains(&"tell-missing".to_owned()));
    session.welcome().await;
    assert_eq!(session.inventory().await, ["b"]);
    let refs = ["uid-a", "uid-lost"].map(|uid| ObjectRef {
        uid: uid.to_owned(),
        name: String::new(),
    });
    let refs = refs.to_vec();
    session.send(ToAgent::Missing(Missing { refs })).await;
    let mut told = Vec::new();
    for _ in 0..2 {
        let FromAgent::Deleted(deleted) = session.frame().await else {
            panic!("another frame")
        };
        told.push((deleted.r#ref.unwrap().uid, deleted.still_there));
    }
    told.sort();
    assert_eq!(
        told,
        [("uid-a".to_owned(), true), ("uid-lost".to_owned(), false)]
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_deletion_is_told() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    rig.api.delete("a");
    let gone = loop {
        match session.frame().await {
            FromAgent::Deleted(gone) => break gone,
            FromAgent::SnapshotEnd(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(gone.r#ref.unwrap().name, "a");
    session.status("a", 9, Phase::Cancelled).await;
    let FromAgent::StatusRefused(refused) = session.frame().await else {
        panic!("not refused")
    };
    assert_eq!(refused.revision, 9);
    rig.stop().await;
}

#[tokio::test]
async fn a_goodbye_says_when_to_come_back() {
    let mut rig = Rig::start(|_| {}).await;
    let session = rig.hub.welcome().await;
    rig.until_ready().await;
    let said = std::time::Instant::now();
    let after = prost_types::Duration {
        seconds: 1,
        nanos: 0,
    };
    session
        .send(ToAgent::Goodbye(Goodbye {
            reason: GoodbyeReason::Overloaded.into(),
            reconnect_after: Some(after),
            message: "come back later".to_owned(),
        }))
        .await;
    rig.api.until("unready", |_| !rig.health.is_ready()).await;
    rig.hub.welcome().await;
    assert!(said.elapsed() >= Duration::from_secs(1));
    rig.stop().await;
}

#[tokio::test]
async fn the_end_closes_the_session_on_our_side_too() {
    let mut rig = Rig::start(|api| plain(api, "a")).await;
    let mut session = rig.hub.welcome().await;
    session.observed().await;
    session.status("a", 1, Phase::Succeeded).await;
    session.applied().await;
    let ended: JoinHandle<bool> = tokio::spawn(async move { session.ends().await });
    rig.stop().await;
    assert!(ended.await.unwrap());
}

#[tokio::test]
async fn a_burst_is_served_with_one_write_each() {
    const COUNT: usize = 500;
    let mut rig = Rig::start(|_| {}).await;
    let mut session: Session = rig.hub.welcome().await;
    session.inventory().await;
    for number in 0..COUNT {
        plain(&rig.api, &format!("er-{number}"));
    }
    let (mut applied, mut observed) = (0, 0);
    while applied < COUNT {
        match session.frame().await {
            FromAgent::Observed(seen) => {
                observed += 1;
                let name = seen.r#ref.unwrap().name;
                for (revision, phase) in [
                    (1, Phase::Pending),
                    (2, Phase::Running),
                    (3, Phase::Succeeded),
                ] {
                    session.send(status(&name, revision, phase)).await;
                }
            }
            FromAgent::Applied(done) => {
                assert_eq!(done.revision, 3);
                applied += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((observed, rig.api.patches().len()), (COUNT, COUNT));
    rig.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_hears_of_finished_objects_that_go_and_of_those_that_went_before() {
    let mut rig = Rig::start(|api| {
        for name in ["kept", "goes"] {
            api.create(name, &json!({}), &json!({"phase": "Succeeded"}));
        }
    })
    .await;
    let (mut session, hello) = rig.hub.next_session().await;
    assert!(hello.capabilities.contains(&"watch-finished".to_owned()));
    session.welcome().await;
    assert!(session.inventory().await.is_empty());
    for (names, more) in [(&["kept", "goes"][..], true), (&["went"][..], false)] {
        let responses = names.iter().map(|name| WatchedResponse {
            uid: format!("uid-{name}"),
            ..WatchedResponse::default()
        });
        let responses = responses.collect();
        session
            .send(ToAgent::Watching(Watching { responses, more }))
            .await;
    }
    assert_eq!(session.deleted().await, "uid-went");
    rig.api.delete("goes");
    assert_eq!(session.deleted().await, "uid-goes");
    assert!(session.is_silent().await, "the other is there");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_hears_of_a_finished_object_whose_spec_is_another_than_it_knows() {
    let mut rig = Rig::start(|api| {
        for name in ["edited", "same", "unwatched"] {
            api.create(name, &json!({}), &json!({"phase": "Succeeded"}));
        }
    })
    .await;
    let (mut session, _) = rig.hub.next_session().await;
    session.welcome().await;
    assert!(session.inventory().await.is_empty());
    let watched = |name: &str, spec_hash: Vec<u8>| WatchedResponse {
        uid: format!("uid-{name}"),
        name: name.to_owned(),
        spec_hash: spec_hash.into(),
    };
    let list = |responses| {
        ToAgent::Watching(Watching {
            responses,
            more: false,
        })
    };
    session
        .send(list(vec![watched("edited", vec![9; 32])]))
        .await;
    let observed = session.observed().await;
    assert_eq!(observed.r#ref.as_ref().unwrap().name, "edited");
    let hash = observed.spec_hash.to_vec();
    assert!(hash.len() == 32 && hash != [9; 32]);
    assert!(session.is_silent().await, "it is sent once");
    // What the hub knows, and what it does not want to know, is not sent.
    let rest = vec![
        watched("edited", hash.clone()),
        watched("same", hash),
        watched("unwatched", Vec::new()),
    ];
    session.send(list(rest)).await;
    assert!(session.is_silent().await);
}
