//! Parts that go away and come back.

use anyhow::Result;
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::fault_proxy::Fault;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config};

use crate::bed::{Bed, ForgeBed, LIMIT, eu, small_change};

#[tokio::test(flavor = "multi_thread")]
async fn a_result_waits_for_an_agent_that_is_down() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.proxy.add(Fault::HoldBefore(1));
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.eu.kill()?;
    stage.proxy.release();
    stage
        .bed
        .explained("prod-eu", &name, "succeeds without its agent", |answer| {
            answer["phase"] == "Succeeded"
        })
        .await?;
    assert_ne!(eu().await.status(&name).await?["phase"], "Succeeded");
    stage.bed.eu.start_again().await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_that_are_created_while_the_hub_is_down_are_served_when_it_is_back() -> Result<()>
{
    let mut bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    let status = bed.hub.stop()?;
    assert!(status.success(), "SIGTERM drains and exits 0: {status}");
    let mut names = Vec::new();
    for _ in 0..10 {
        names.push(bed.ask(eu().await, small_change()).await?.0);
    }
    bed.hub.start_again().await?;
    for name in names {
        assert_eq!(
            eu().await.finished(&name, LIMIT).await?["phase"],
            "Succeeded"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_restarts_interrupts_nothing_for_good() -> Result<()> {
    let mut cluster = TestCluster::start(Crds::Nabu).await?;
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let mut agent = TestAgent::start(&cluster, "lone", &hub, &["--leader-elect=false"]).await?;
    let spec = || event_response("nobody", "ugallu-gitops-responder", small_change());
    cluster.create_event_response("before", spec()).await?;
    cluster.stop()?;
    cluster.start_again().await?;
    cluster.create_event_response("after", spec()).await?;
    for name in ["before", "after"] {
        assert_eq!(cluster.finished(name, LIMIT).await?["phase"], "Succeeded");
    }
    agent.process()?.assert_running()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_response_that_is_deleted_before_its_pull_request_leaves_none() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.proxy.stop();
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage
        .bed
        .explained("prod-eu", &name, "waits for the forge", |answer| {
            answer["error"]["reason"] == "ForgeUnavailable"
        })
        .await?;
    eu().await.delete_event_response(&name).await?;
    let answer = stage
        .bed
        .explained("prod-eu", &name, "is cancelled", |answer| {
            answer["phase"] == "Cancelled"
        })
        .await?;
    assert_eq!(answer["deleted"], true);
    stage.proxy.start_again().await?;
    assert!(stage.repository.pull_requests().await?.is_empty());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_response_that_is_deleted_during_its_attempt_ends_with_one_pull_request()
-> Result<()> {
    let stage = ForgeBed::start().await?;
    stage.proxy.add(Fault::HoldBefore(3));
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    eu().await.delete_event_response(&name).await?;
    stage
        .bed
        .explained("prod-eu", &name, "is known to be gone", |answer| {
            answer["deleted"] == true
        })
        .await?;
    stage.proxy.release();
    stage
        .bed
        .explained("prod-eu", &name, "ends", |answer| {
            answer["phase"] == "Succeeded"
        })
        .await?;
    assert_eq!(stage.repository.pull_requests().await?.len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_while_the_agent_is_down_is_noticed_by_the_inventory() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.proxy.stop();
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage
        .bed
        .explained("prod-eu", &name, "is known", |answer| {
            !answer["phase"].is_null()
        })
        .await?;
    stage.bed.eu.stop()?;
    eu().await.delete_event_response(&name).await?;
    stage.bed.eu.start_again().await?;
    stage
        .bed
        .explained("prod-eu", &name, "is cancelled", |answer| {
            answer["phase"] == "Cancelled"
        })
        .await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_of_one_cluster_do_no_harm() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    let arguments = ["--responder", &bed.responder, "--leader-elect=false"];
    let mut second = TestAgent::prepare(eu().await, "prod-eu", &bed.hub, &arguments)?;
    second.launch()?;
    let mut names = Vec::new();
    for _ in 0..20 {
        names.push(bed.ask(eu().await, small_change()).await?.0);
    }
    for name in names {
        assert_eq!(
            eu().await.finished(&name, LIMIT).await?["phase"],
            "Succeeded"
        );
    }
    Ok(())
}
