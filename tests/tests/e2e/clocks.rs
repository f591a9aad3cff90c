//! Agents whose clocks are off by an hour, in the real binary.

use anyhow::{Context as _, Result, ensure};
use nabu_tests::agent::TestAgent;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config};
use nabu_tests::wait::eventually;

use crate::bed::{LIMIT, eu, small_change, unique, us};

const HOUR: i32 = 3600;

#[tokio::test(flavor = "multi_thread")]
async fn agents_whose_clocks_are_an_hour_off_enrol_work_and_renew_and_the_hub_tells_by_how_much()
-> Result<()> {
    let options = HubOptions::certifying(&["--agent-certificate-lifetime", "20s"]);
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], options).await?;
    let (eu, us) = tokio::join!(eu(), us());
    for (cluster, id, off) in [(eu, "fast", HOUR), (us, "slow", -HOUR)] {
        let responder = unique("responder");
        let arguments = ["--responder", &responder, "--leader-elect=false"];
        let agent = TestAgent::prepare_join(cluster, id, &hub, None, &arguments)?;
        let mut agent = agent.with_clock_off(off)?;
        agent.start_again().await?;
        let name = unique("er");
        let spec = event_response("se", &responder, small_change());
        cluster.create_event_response(&name, spec).await?;
        let finished = cluster.finished(&name, LIMIT).await;
        let status = finished.with_context(|| agent.log())?;
        ensure!(status["phase"] == "Succeeded", "{status:#}");
        eventually("the certificate is renewed twice", LIMIT, || async {
            let renewals = agent.metric("nabu_agent_certificate_renewals_total");
            (renewals.await.ok()? >= 2.0).then_some(())
        })
        .await
        .with_context(|| agent.log())?;
        let series = format!("nabu_hub_cluster_clock_skew_seconds{{cluster=\"{id}\"}}");
        for told in [
            hub.metric(&series).await?,
            agent.metric("nabu_agent_clock_skew_seconds").await?,
        ] {
            // Seconds pass on the way, for an hour nobody waits.
            ensure!((told - f64::from(off)).abs() < 600.0, "{id}: {told} s");
        }
        ensure!(agent.log().contains("set the time of the node"));
    }
    Ok(())
}
