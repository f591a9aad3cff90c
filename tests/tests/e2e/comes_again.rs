//! A hostile agent that opens one session after the other: it has what it had left, and no fresh allowance. An honest one
//! with much to say is never stopped.

use std::time::Duration;

use anyhow::{Result, ensure};
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{Goodbye, GoodbyeReason, Heartbeat, SnapshotBegin, SnapshotEnd};
use nabu_tests::hub::TestHub;
use nabu_tests::wait::eventually;

use crate::bed::LIMIT;
use crate::hostile::{observation, serves_others, stuck, until, welcomed};
use crate::identity::{Liar, hello, hub, sqlite};

/// Objects of an honest cluster.
const INVENTORY: u32 = 3_000;

/// Sends a frame again and again, until the hub says goodbye.
async fn flood(liar: &mut Liar, frame: impl Fn() -> Frame) -> Result<Goodbye> {
    for _ in 0..10_000 {
        // The hub is through with us before we are with it.
        if liar.say(frame()).await.is_err() {
            break;
        }
    }
    until(liar, |answer| match answer {
        Answer::Goodbye(goodbye) => Some(goodbye),
        _ => None,
    })
    .await
}

fn count(hub: &TestHub, what: &str) -> Result<u32> {
    let statement = format!("SELECT count(*) FROM {what}");
    Ok(sqlite(hub, &statement)?.trim().parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_was_sent_away_gets_no_session_by_coming_again_at_once() -> Result<()> {
    let hub = hub().await?;
    let mut liar = welcomed(&hub, "prod-eu").await?;
    let goodbye = flood(&mut liar, || Frame::Heartbeat(Heartbeat::default())).await?;
    ensure!(goodbye.message.contains("heartbeats"), "{goodbye:?}");
    let lines = count(&hub, "audit")?;
    for _ in 0..30 {
        let mut again = Liar::connect(&hub, "prod-eu", hello("prod-eu")).await?;
        let Answer::Goodbye(goodbye) = again.hear().await? else {
            anyhow::bail!("it has a session again")
        };
        assert_eq!(goodbye.reason(), GoodbyeReason::ProtocolError);
        let after = goodbye.reconnect_after.map_or(0, |after| after.seconds);
        ensure!((1..=60).contains(&after), "{goodbye:?}");
    }
    let kept_away = "nabu_hub_sessions_refused_total{reason=\"KeptAway\"}";
    assert_eq!(format!("{}", hub.metric(kept_away).await?), "30");
    assert_eq!(count(&hub, "audit")?, lines, "nothing new");
    let told = hub.log().matches("shall keep away").count();
    ensure!((1..10).contains(&told), "{told} lines of the log");
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn frames_for_other_clusters_are_counted_over_all_sessions() -> Result<()> {
    let hub = hub().await?;
    let mut sent = 0;
    'sessions: loop {
        let mut liar = welcomed(&hub, "prod-eu").await?;
        for _ in 0..50 {
            let mut frame = observation(sent, &format!("er-{sent}"));
            frame.cluster_id = "prod-us".to_owned();
            sent += 1;
            liar.say(Frame::Observed(frame)).await?;
            let answer = until(&mut liar, |answer| match answer {
                Answer::Refused(_) | Answer::Goodbye(_) => Some(answer),
                _ => None,
            });
            if let Answer::Goodbye(goodbye) = answer.await? {
                ensure!(goodbye.message.contains("not allowed"), "{goodbye:?}");
                break 'sessions;
            }
        }
        // A minute may have ended meanwhile, but not many.
        ensure!(sent < 2000, "it goes on for ever");
    }
    ensure!(sent > 50, "{sent} in one session");
    let audited = count(&hub, "audit WHERE action = 'FrameRefused'")?;
    ensure!((1..100).contains(&audited), "{audited} of {sent}");
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_are_opened_without_end_are_refused_before_the_store_hears_of_them()
-> Result<()> {
    let hub = hub().await?;
    let mut opened = 0;
    let goodbye = loop {
        let mut liar = Liar::connect(&hub, "prod-eu", hello("prod-eu")).await?;
        match liar.hear().await? {
            Answer::Welcome(_) => opened += 1,
            Answer::Goodbye(goodbye) => break goodbye,
            other => anyhow::bail!("{other:?}"),
        }
        ensure!(opened < 2000, "it goes on for ever");
    };
    ensure!(goodbye.message.contains("sessions"), "{goodbye:?}");
    ensure!(opened >= 120, "{opened}");
    serves_others(&hub).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_room_gets_none_by_coming_again() -> Result<()> {
    let (documents, options) = stuck(10)?;
    let mut hub = TestHub::start(&documents, options).await?;
    let liar = welcomed(&hub, "prod-eu").await?;
    for number in 0..64 {
        let frame = observation(number, &format!("er-{number}"));
        liar.say(Frame::Observed(frame)).await?;
    }
    eventually("all are stored", LIMIT, || async {
        (count(&hub, "responses").ok()? == 64).then_some(())
    })
    .await?;
    // A hub looks for room at a cluster's first frames, and then now and then.
    drop(liar);
    hub.kill()?;
    let held = "audit WHERE action = 'ClusterHeld'";
    let before = count(&hub, held)?;
    hub.start_again().await?;
    let liar = welcomed(&hub, "prod-eu").await?;
    let one_more = observation(100, "er-100");
    liar.say(Frame::Observed(one_more)).await?;
    eventually("the cluster is held", LIMIT, || async {
        (count(&hub, held).ok()? > before).then_some(())
    })
    .await?;
    for _ in 0..5 {
        let mut again = Liar::connect(&hub, "prod-eu", hello("prod-eu")).await?;
        let Answer::Welcome(welcome) = again.hear().await? else {
            anyhow::bail!("no welcome")
        };
        assert_eq!(welcome.credit, 1);
    }
    serves_others(&hub).await
}

/// The whole inventory of an honest agent, as fast as credit allows.
async fn tell_all(agent: &mut Liar) -> Result<()> {
    let begin = SnapshotBegin { snapshot_id: 1 };
    agent.say(Frame::SnapshotBegin(begin)).await?;
    let (mut accepted, mut credit) = (0, 64);
    let mut number = 0;
    while accepted < INVENTORY {
        while credit > 0 && number < INVENTORY {
            let frame = observation(number, &format!("er-{number}"));
            agent.say(Frame::Observed(frame)).await?;
            number += 1;
            credit -= 1;
        }
        match agent.hear().await? {
            Answer::Accepted(_) => accepted += 1,
            Answer::Credit(more) => credit += more.observed,
            Answer::Refused(refused) => anyhow::bail!("{refused:?}"),
            Answer::Goodbye(goodbye) => anyhow::bail!("{goodbye:?}"),
            _ => {}
        }
    }
    agent
        .say(Frame::SnapshotEnd(SnapshotEnd {
            snapshot_id: 1,
            count: INVENTORY.into(),
        }))
        .await
}

/// Sends heartbeats until one is answered: while a connection is full of statuses, the hub leaves the answer out.
async fn is_served(agent: &mut Liar) -> Result<()> {
    for _ in 0..30 {
        agent.say(Frame::Heartbeat(Heartbeat::default())).await?;
        let answered = until(agent, |answer| {
            matches!(answer, Answer::HeartbeatAck(_)).then_some(())
        });
        if let Ok(answered) = tokio::time::timeout(Duration::from_secs(2), answered).await {
            return answered;
        }
    }
    anyhow::bail!("no heartbeat is answered")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_honest_agent_tells_thousands_of_objects_again_after_a_restart_and_is_not_stopped()
-> Result<()> {
    let mut hub = hub().await?;
    tell_all(&mut welcomed(&hub, "prod-eu").await?).await?;
    hub.kill()?;
    hub.start_again().await?;
    let mut agent = welcomed(&hub, "prod-eu").await?;
    tell_all(&mut agent).await?;
    is_served(&mut agent).await?;
    let ended = count(&hub, "audit WHERE action = 'SessionEnded'")?;
    assert_eq!(ended, 0);
    Ok(())
}
