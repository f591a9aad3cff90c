//! What an inventory leaves out may be gone, or ended by somebody else: only the agent knows, and only what is gone takes its
//! pull request along.

use anyhow::Result;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_proto::agent_v1::{Deleted, Hello, ObjectRef, SnapshotBegin, SnapshotEnd};
use nabu_tests::hub::TestHub;
use nabu_tests::wait::eventually;

use crate::bed::LIMIT;
use crate::hostile::{observation, stuck, uid, until};
use crate::identity::{Liar, hello, sqlite};

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
