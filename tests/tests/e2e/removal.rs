//! A cluster that is removed is removed as a whole, whenever the hub dies meanwhile.

use std::process::{Child, Command};

use anyhow::{Context as _, Result, ensure};
use nabu_proto::agent_v1::session_request::Frame;
use nabu_tests::hub::TestHub;
use nabu_tests::process::workspace_binary;
use nabu_tests::wait::eventually;

use crate::bed::LIMIT;
use crate::hostile::{observation, serves_others, stuck, welcomed};
use crate::identity::{Liar, sqlite};

/// Responses that are under way: more than a hub ends in the moment before it dies.
const UNDER_WAY: u32 = 1000;

async fn tell(agent: &mut Liar, hub: &TestHub) -> Result<()> {
    use nabu_proto::agent_v1::session_response::Frame as Answer;
    let (mut number, mut credit) = (0, 64);
    while number < UNDER_WAY {
        for _ in 0..std::mem::take(&mut credit) {
            let frame = observation(number, &format!("er-{number}"));
            agent.say(Frame::Observed(frame)).await?;
            number += 1;
        }
        if let Answer::Credit(more) = agent.hear().await? {
            credit += more.observed;
        }
    }
    eventually("all are stored", LIMIT, || async {
        (count(hub, "SELECT count(*) FROM responses").ok()? >= UNDER_WAY).then_some(())
    })
    .await
}

fn count(hub: &TestHub, statement: &str) -> Result<u32> {
    let found = sqlite(hub, statement)?;
    found.trim().parse().context(found)
}

const REMOVED: &str = "SELECT count(*) FROM clusters WHERE removed_at IS NOT NULL";
const UNFINISHED: &str = "SELECT count(*) FROM responses WHERE phase IN ('Pending', 'Running')";
const AUDITED: &str =
    "SELECT count(*) FROM audit WHERE action = 'ClusterRemoved' AND actor LIKE 'admin/%'";

/// Removes a cluster with much under way; gives back the process that wants it, as soon as the hub has begun.
async fn begun(hub: &TestHub) -> Result<Child> {
    ensure!(count(hub, UNFINISHED)? >= UNDER_WAY);
    let removing = Command::new(workspace_binary("nabuctl")?)
        .args(["--hub", &hub.admin_url(), "--tls-dir"])
        .arg(hub.admin_tls())
        .args(["cluster", "remove", "prod-eu"])
        .spawn()?;
    eventually("the cluster is removed", LIMIT, || async {
        (count(hub, REMOVED).ok()? == 1).then_some(())
    })
    .await?;
    Ok(removing)
}

async fn ended(hub: &TestHub) -> Result<()> {
    eventually("nothing of it is under way", LIMIT, || async {
        (count(hub, UNFINISHED).ok()? == 0).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_goes_on_when_whoever_wanted_it_has_gone() -> Result<()> {
    let (documents, options) = stuck(0)?;
    let hub = TestHub::start(&documents, options).await?;
    let mut agent = welcomed(&hub, "prod-eu").await?;
    tell(&mut agent, &hub).await?;
    let mut removing = begun(&hub).await?;
    removing.kill()?;
    removing.wait()?;
    ended(&hub).await?;
    assert_eq!(count(&hub, AUDITED)?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_the_hub_did_not_survive_is_whole_when_it_is_back() -> Result<()> {
    let (documents, options) = stuck(0)?;
    let mut hub = TestHub::start(&documents, options).await?;
    let mut agent = welcomed(&hub, "prod-eu").await?;
    tell(&mut agent, &hub).await?;
    let mut removing = begun(&hub).await?;
    hub.kill()?;
    removing.wait()?;
    drop(agent);
    hub.start_again().await?;
    ended(&hub).await?;
    assert_eq!(count(&hub, AUDITED)?, 1);
    let listed = hub.nabuctl(&["cluster", "list", "-o", "name"])?;
    ensure!(!listed.contains("prod-eu"), "{listed}");
    // There is nothing left to remove, and nothing is written down as if there were.
    let again = hub.nabuctl(&["cluster", "remove", "prod-eu"]);
    let refused = again.err().context("it was removed twice")?.to_string();
    ensure!(refused.contains("there is no cluster"), "{refused}");
    assert_eq!(count(&hub, AUDITED)?, 1);
    serves_others(&hub).await
}
