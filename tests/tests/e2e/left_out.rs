//! What an inventory leaves out may be gone, or ended by somebody else: only the agent knows, and only what is gone takes its
//! pull request along.

use anyhow::Result;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{Deleted, Hello, ObjectRef, SnapshotBegin, SnapshotEnd};
use nabu_tests::fault_proxy::Fault;
use nabu_tests::hub::TestHub;
use nabu_tests::wait::eventually;

use crate::bed::{ForgeBed, LIMIT, eu, small_change};
use crate::hostile::{observation, stuck, uid, until};
use crate::identity::{Liar, hello, sqlite};

const CLOSES: &str = "      closeOnCancel: true\n";
/// Nobody but the test looks at pull requests.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];

/// A hub that was killed with the pull request open and nobody told, and an agent that was killed as well. The forge is away.
async fn interrupted() -> Result<(ForgeBed, String)> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(Fault::HoldAfter(3));
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    stage.bed.eu.kill()?;
    stage.proxy.release();
    stage.proxy.stop();
    Ok((stage, name))
}

/// The state of the only pull request.
async fn state(stage: &ForgeBed) -> Result<String> {
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls.len(), 1);
    Ok(pulls[0]["state"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_else_ended_while_the_agent_was_away_keeps_its_pull_request() -> Result<()> {
    let (mut stage, name) = interrupted().await?;
    eu().await.end_as_somebody_else(&name).await?;
    stage.bed.hub.start_again().await?;
    stage.bed.eu.start_again().await?;
    let ended = |answer: &serde_json::Value| answer["phase"] == "Cancelled";
    stage
        .bed
        .explained("prod-eu", &name, "is cancelled", ended)
        .await?;
    assert_eq!(lines(&stage.bed.hub, 1).await?.len(), 1);
    let left = "SELECT phase, deleted, follow_up FROM responses";
    assert_eq!(sqlite(&stage.bed.hub, left)?, "Cancelled|1|0\n");
    let status = eu().await.status(&name).await?;
    assert_eq!(status["outcome"]["message"], "by hand", "{status:#}");
    stage.proxy.start_again().await?;
    assert_eq!(state(&stage).await?, "open");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_deleted_while_both_were_away_takes_its_pull_request_along() -> Result<()> {
    let (mut stage, name) = interrupted().await?;
    eu().await.delete_event_response(&name).await?;
    stage.bed.hub.start_again().await?;
    stage.bed.eu.start_again().await?;
    let ended = |answer: &serde_json::Value| answer["phase"] == "Cancelled";
    stage
        .bed
        .explained("prod-eu", &name, "is cancelled", ended)
        .await?;
    stage.proxy.start_again().await?;
    eventually("the pull request is closed", LIMIT, || async {
        (state(&stage).await.ok()? == "closed").then_some(())
    })
    .await
}

/// The backup is from a time when the pull request was open, and nobody knew.
#[tokio::test(flavor = "multi_thread")]
async fn a_restored_database_closes_nothing_and_finds_what_it_has_forgotten() -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(Fault::HoldAfter(3));
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    let backup = stage.bed.hub.dir().join("backup.db");
    sqlite(&stage.bed.hub, &format!(".backup {}", backup.display()))?;
    stage.proxy.release();
    let before = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&before).await?;
    stage.bed.hub.stop()?;
    stage.proxy.stop();
    let store = stage.bed.hub.store_path();
    for suffix in ["-wal", "-shm"] {
        let beside = format!("{}{suffix}", store.display());
        assert!(std::fs::remove_file(&beside).is_ok() || !std::fs::exists(&beside)?);
    }
    std::fs::copy(&backup, &store)?;
    stage.bed.hub.start_again().await?;
    eventually("the agent has answered", LIMIT, || async {
        let answered = "that this store does not know to be done";
        stage.bed.hub.log().contains(answered).then_some(())
    })
    .await?;
    assert_eq!(lines(&stage.bed.hub, 0).await?, [""; 0]);
    stage.proxy.start_again().await?;
    stage
        .bed
        .explained("prod-eu", &name, "ends again", |answer| {
            answer["phase"] == "Succeeded"
        })
        .await?;
    let found = sqlite(
        &stage.bed.hub,
        "SELECT json_extract(progress, '$.url') FROM responses",
    )?;
    assert_eq!(found.trim_end(), before["providerRef"]);
    assert_eq!(state(&stage).await?, "open");
    let after = eu().await.status(&name).await?;
    stage.assert_the_one_pull_request(&after).await
}

/// An agent with these capabilities, in session.
async fn agent(hub: &TestHub, capabilities: &[&str]) -> Result<Liar> {
    let hello = Hello {
        capabilities: capabilities.iter().map(ToString::to_string).collect(),
        ..hello("prod-eu")
    };
    let mut agent = Liar::connect(hub, "prod-eu", hello).await?;
    assert!(matches!(agent.hear().await?, Answer::Welcome(_)));
    Ok(agent)
}

/// Sends an inventory that names nothing.
async fn names_nothing(agent: &Liar) -> Result<()> {
    let (snapshot_id, count) = (1, 0);
    agent
        .say(Frame::SnapshotBegin(SnapshotBegin { snapshot_id }))
        .await?;
    let end = SnapshotEnd { snapshot_id, count };
    agent.say(Frame::SnapshotEnd(end)).await
}

/// The UIDs that the hub asks for.
async fn asked(agent: &mut Liar) -> Result<Vec<String>> {
    let refs = until(agent, |answer| match answer {
        Answer::Missing(missing) => Some(missing.refs),
        _ => None,
    });
    let mut uids: Vec<_> = refs.await?.into_iter().map(|one| one.uid).collect();
    uids.sort();
    Ok(uids)
}

/// Shows these objects, and waits until they are stored.
async fn show(agent: &mut Liar, numbers: &[u32]) -> Result<()> {
    for number in numbers {
        let shown = observation(*number, &format!("er-{number}"));
        agent.say(Frame::Observed(shown)).await?;
        until(agent, |answer| {
            matches!(answer, Answer::Accepted(_)).then_some(())
        })
        .await?;
    }
    Ok(())
}

/// What the audit log says of the agent's objects, with their number, once there are so many lines.
async fn lines(hub: &TestHub, count: usize) -> Result<Vec<String>> {
    let statement = "SELECT action || ' ' || CAST(substr(uid, -4) AS INTEGER) FROM audit
        WHERE action IN ('Deleted', 'OutOfHands', 'LeftOut') ORDER BY 1";
    eventually("the audit log", LIMIT, || async {
        let said = sqlite(hub, statement).ok()?;
        let said: Vec<_> = said.lines().map(str::to_owned).collect();
        (said.len() >= count).then_some(said)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_asked_for_what_its_inventory_leaves_out_until_it_answers() -> Result<()> {
    let (documents, options) = stuck(0)?;
    let mut hub = TestHub::start(&documents, options).await?;
    let mut first = agent(&hub, &["tell-missing"]).await?;
    show(&mut first, &[1, 2, 3]).await?;
    names_nothing(&first).await?;
    assert_eq!(asked(&mut first).await?, [uid(1), uid(2), uid(3)]);
    drop(first);
    // Neither the end of the session nor that of the hub answers.
    let mut second = agent(&hub, &["tell-missing"]).await?;
    names_nothing(&second).await?;
    assert_eq!(asked(&mut second).await?, [uid(1), uid(2), uid(3)]);
    hub.kill()?;
    hub.start_again().await?;
    let mut third = agent(&hub, &["tell-missing"]).await?;
    names_nothing(&third).await?;
    assert_eq!(asked(&mut third).await?, [uid(1), uid(2), uid(3)]);
    assert_eq!(lines(&hub, 0).await?, [""; 0]);

    for (number, still_there, own_success) in [(1, false, false), (2, true, false), (3, true, true)]
    {
        let deleted = Deleted {
            r#ref: Some(ObjectRef {
                uid: uid(number),
                name: String::new(),
            }),
            still_there,
            own_success,
        };
        third.say(Frame::Deleted(deleted)).await?;
    }
    assert_eq!(lines(&hub, 2).await?, ["Deleted 1", "OutOfHands 2"]);
    // Work on that one goes on, so it is asked for again.
    names_nothing(&third).await?;
    assert_eq!(asked(&mut third).await?, [uid(3)]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_cannot_answer_ends_the_work_and_nothing_more() -> Result<()> {
    let (documents, options) = stuck(0)?;
    let hub = TestHub::start(&documents, options).await?;
    let mut old = agent(&hub, &["watch-finished"]).await?;
    show(&mut old, &[1]).await?;
    names_nothing(&old).await?;
    let asks = until(&mut old, |answer| match answer {
        Answer::Missing(_) => Some(true),
        Answer::Watching(_) => Some(false),
        _ => None,
    });
    assert!(!asks.await?, "it would not understand");
    assert_eq!(lines(&hub, 1).await?, ["LeftOut 1"]);
    Ok(())
}
