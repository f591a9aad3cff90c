//! An agent with a good certificate and bad intentions: what it sends is refused and written down, it costs other clusters
//! nothing, and no forge hears of it.

use anyhow::Result;
use nabu_common::canonical::spec_hash;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{
    Applied, Deleted, GoodbyeReason, Heartbeat, ObjectRef, Observed, RefusalCode, ResponseObjects,
    SnapshotBegin, SnapshotEnd, StatusRefused, observed,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::mangle::mangle;
use nabu_tests::objects::{config, event_response};
use nabu_tests::process::free_port;
use nabu_tests::wait::eventually;
use serde_json::json;

use crate::bed::{LIMIT, small_change};
use crate::identity::{Liar, hello, hub, sqlite};

pub(crate) fn uid(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012}")
}

/// A whole and honest frame.
pub(crate) fn observation(number: u32, name: &str) -> Observed {
    let spec = event_response("se", "ugallu-gitops-responder", small_change());
    let object = json!({"metadata": {"name": name, "uid": uid(number)}, "spec": spec});
    Observed {
        r#ref: Some(ObjectRef {
            uid: uid(number),
            name: name.to_owned(),
        }),
        spec_hash: spec_hash(&spec).to_vec().into(),
        content: Some(observed::Content::Objects(ResponseObjects {
            event_response_json: object.to_string().into(),
            ..ResponseObjects::default()
        })),
        ..Observed::default()
    }
}

pub(crate) async fn welcomed(hub: &TestHub, cluster: &str) -> Result<Liar> {
    let mut liar = Liar::connect(hub, cluster, hello(cluster)).await?;
    assert!(matches!(liar.hear().await?, Answer::Welcome(_)));
    Ok(liar)
}

/// Answers until one of this kind comes.
pub(crate) async fn until<T>(liar: &mut Liar, wanted: impl Fn(Answer) -> Option<T>) -> Result<T> {
    loop {
        if let Some(found) = wanted(liar.hear().await?) {
            return Ok(found);
        }
    }
}

pub(crate) async fn forge_calls(hub: &TestHub) -> Result<f64> {
    let series = "ugallu_gitops_responder_attempts_total{outcome=\"succeeded\"}";
    hub.metric(series).await
}

/// A hub that still serves an honest agent of another cluster.
pub(crate) async fn serves_others(hub: &TestHub) -> Result<()> {
    let mut honest = welcomed(hub, "prod-us").await?;
    honest.say(Frame::Observed(observation(7, "er-7"))).await?;
    let done = until(&mut honest, |answer| match answer {
        Answer::Status(status) if status.phase == 3 => Some(status),
        _ => None,
    });
    assert!(done.await?.provider_ref.starts_with("noop://") || forge_calls(hub).await? > 0.0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_heartbeats_ends_the_session_and_is_written_down_once() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    for _ in 0..100_000 {
        // The hub is through with us before we are with it.
        if liar
            .say(Frame::Heartbeat(Heartbeat::default()))
            .await
            .is_err()
        {
            break;
        }
    }
    let goodbye = until(&mut liar, |answer| match answer {
        Answer::Goodbye(goodbye) => Some(goodbye),
        _ => None,
    })
    .await?;
    assert_eq!(goodbye.reason(), GoodbyeReason::ProtocolError);
    assert!(
        goodbye.message.contains("heartbeats"),
        "{}",
        goodbye.message
    );
    assert!(
        goodbye
            .reconnect_after
            .is_some_and(|after| after.seconds > 0)
    );
    let audited = sqlite(
        &hub,
        "SELECT actor FROM audit WHERE action = 'SessionEnded'",
    )?;
    assert_eq!(audited, "agent/prod-eu\n");
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_for_other_clusters_end_the_session_before_they_fill_the_audit_log() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    let mut sent = 0;
    let goodbye = loop {
        let mut frame = observation(sent, &format!("er-{sent}"));
        frame.cluster_id = "prod-us".to_owned();
        sent += 1;
        // Credit comes back with each answer; the stream ends with Goodbye.
        let _ = liar.say(Frame::Observed(frame)).await;
        match liar.hear().await? {
            Answer::Goodbye(goodbye) => break goodbye,
            Answer::Refused(refused) => assert_eq!(refused.code(), RefusalCode::NotAllowed),
            _ => {}
        }
    };
    assert_eq!(goodbye.reason(), GoodbyeReason::ProtocolError);
    let count = "SELECT count(*) FROM audit WHERE action = 'FrameRefused'";
    let audited: u32 = sqlite(&hub, count)?.trim().parse()?;
    assert!((1..100).contains(&audited), "{audited} of {sent}");
    assert_eq!(sqlite(&hub, "SELECT count(*) FROM responses")?, "0\n");
    assert!(forge_calls(&hub).await?.abs() < f64::EPSILON);
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_from_the_future_and_of_others_change_nothing() -> Result<()> {
    let hub = hub().await?;
    let mut honest = welcomed(&hub, "prod-us").await?;
    honest.say(Frame::Observed(observation(1, "er-1"))).await?;
    let status = until(&mut honest, |answer| match answer {
        Answer::Status(status) if status.phase == 3 => Some(status),
        _ => None,
    })
    .await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    for revision in [0, status.revision, u64::MAX] {
        liar.say(Frame::Applied(Applied {
            uid: uid(1),
            revision,
        }))
        .await?;
        liar.say(Frame::StatusRefused(StatusRefused {
            uid: uid(1),
            revision,
            reason: "x".repeat(100_000),
        }))
        .await?;
        let r#ref = observation(1, "er-1").r#ref;
        let gone = Deleted {
            r#ref,
            ..Deleted::default()
        };
        liar.say(Frame::Deleted(gone)).await?;
    }
    liar.say(Frame::Observed(observation(2, "er-2"))).await?;
    until(&mut liar, |answer| {
        matches!(answer, Answer::Accepted(_)).then_some(())
    })
    .await?;
    // What the other cluster has not acknowledged, it hears again.
    drop(honest);
    let mut again = welcomed(&hub, "prod-us").await?;
    let told = until(&mut again, |answer| match answer {
        Answer::Status(status) => Some(status),
        _ => None,
    });
    assert_eq!(told.await?.revision, status.revision);
    let refused =
        "SELECT count(*) FROM audit WHERE uid LIKE '%000000001' AND action = 'StatusRefused'";
    assert_eq!(
        sqlite(&hub, refused)?,
        "0\n",
        "nothing of the other's history"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_uid_stays_with_the_object_that_had_it_first() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    liar.say(Frame::Observed(observation(1, "er-1"))).await?;
    liar.say(Frame::Observed(observation(1, "er-2"))).await?;
    let refused = until(&mut liar, |answer| match answer {
        Answer::Refused(refused) => Some(refused),
        _ => None,
    });
    assert_eq!(refused.await?.code(), RefusalCode::Conflicting);
    assert_eq!(sqlite(&hub, "SELECT name FROM responses")?, "er-1\n");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_object_are_refused_each_and_leave_the_session_open() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    let whole = observation(1, "er-1");
    let Some(observed::Content::Objects(objects)) = whole.content.clone() else {
        anyhow::bail!("no objects")
    };
    let mut refused = 0;
    for seed in 0..300 {
        let mut frame = whole.clone();
        let spoiled = mangle(&objects.event_response_json, seed);
        frame.content = Some(observed::Content::Objects(ResponseObjects {
            event_response_json: spoiled.into(),
            security_event_json: [0xff, 0xfe, b'{'].to_vec().into(),
            ..ResponseObjects::default()
        }));
        liar.say(Frame::Observed(frame)).await?;
        refused += until(&mut liar, |answer| match answer {
            Answer::Refused(_) => Some(1),
            Answer::Accepted(_) => Some(0),
            _ => None,
        })
        .await?;
    }
    assert!(refused > 100, "{refused}");
    liar.say(Frame::Observed(observation(2, "er-2"))).await?;
    until(&mut liar, |answer| {
        matches!(answer, Answer::Accepted(_)).then_some(())
    })
    .await?;
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn inventories_without_end_and_without_begin_are_not_believed() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    liar.say(Frame::Observed(observation(1, "er-1"))).await?;
    for (begin, end, count) in [(1, 2, 0), (3, 3, u64::MAX)] {
        liar.say(Frame::SnapshotBegin(SnapshotBegin { snapshot_id: begin }))
            .await?;
        liar.say(Frame::SnapshotEnd(SnapshotEnd {
            snapshot_id: end,
            count,
        }))
        .await?;
    }
    for _ in 0..10_000 {
        let begin = Frame::SnapshotBegin(SnapshotBegin { snapshot_id: 9 });
        if liar.say(begin).await.is_err() {
            break;
        }
    }
    let goodbye = until(&mut liar, |answer| match answer {
        Answer::Goodbye(goodbye) => Some(goodbye),
        _ => None,
    });
    assert!(goodbye.await?.message.contains("inventories"));
    let deleted = "SELECT count(*) FROM responses WHERE deleted = 1";
    assert_eq!(sqlite(&hub, deleted)?, "0\n");
    serves_others(&hub).await
}

/// A hub for which nothing of prod-eu ever ends, and so many unfinished responses are enough.
pub(crate) fn stuck(limit: u32) -> Result<([(&'static str, String); 2], HubOptions)> {
    // Its forge is down for the time being: nothing ends, and nothing is given up.
    let nobody = format!("http://127.0.0.1:{}", free_port()?);
    let routes = format!(
        "  routes:
    - match: {{ clusters: [prod-eu] }}
      provider:
        kind: forgejo-token
        baseURL: {nobody}
        repository: o/r
        credentialsRef: {{ name: bot }}
    - provider: {{ kind: noop, repository: o/r }}
"
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: bot, namespace: ugallu-system }\n\
        stringData: { token: unused }\n";
    let documents = [
        ("config.yaml", config(&routes)),
        ("secret.yaml", secret.to_owned()),
    ];
    let options = HubOptions {
        arguments: vec!["--max-unfinished".to_owned(), limit.to_string()],
        ..HubOptions::default()
    };
    Ok((documents, options))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_asks_for_too_much_is_held_back_and_others_are_served() -> Result<()> {
    let (documents, options) = stuck(100)?;
    let hub = TestHub::start(&documents, options).await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    let flood = tokio::spawn(async move {
        let (mut number, mut credit) = (0, 64);
        while number < 5000 {
            for _ in 0..std::mem::take(&mut credit) {
                let frame = observation(number, &format!("er-{number}"));
                liar.say(Frame::Observed(frame)).await?;
                number += 1;
            }
            if let Answer::Credit(more) = liar.hear().await? {
                credit += more.observed;
            }
        }
        anyhow::Ok(())
    });
    eventually("the cluster is held", LIMIT, || async {
        let held = "SELECT count(*) FROM audit WHERE action = 'ClusterHeld'";
        (sqlite(&hub, held).ok()? == "1\n").then_some(())
    })
    .await?;
    serves_others(&hub).await?;
    let of_it = "SELECT count(*) FROM responses WHERE cluster = 'prod-eu'";
    let stored: u32 = sqlite(&hub, of_it)?.trim().parse()?;
    assert!((100..2000).contains(&stored), "{stored}");
    flood.abort();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn more_frames_than_there_is_credit_for_end_the_session() -> Result<()> {
    // Nothing is given back: the first response is unfinished for ever.
    let (documents, options) = stuck(1)?;
    let hub = TestHub::start(&documents, options).await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    liar.say(Frame::Observed(observation(0, "er-0"))).await?;
    until(&mut liar, |answer| {
        matches!(answer, Answer::Accepted(_)).then_some(())
    })
    .await?;
    for number in 1..200 {
        // The hub is through with us before we are with it.
        let frame = observation(number, &format!("er-{number}"));
        if liar.say(Frame::Observed(frame)).await.is_err() {
            break;
        }
    }
    let goodbye = until(&mut liar, |answer| match answer {
        Answer::Goodbye(goodbye) => Some(goodbye),
        _ => None,
    });
    assert!(goodbye.await?.message.contains("credit"));
    Ok(())
}
