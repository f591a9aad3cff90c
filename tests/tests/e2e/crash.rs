//! `kill -9` at every step: always exactly one pull request, its URL in the status.

use anyhow::Result;
use nabu_tests::fault_proxy::Fault;
use nabu_tests::objects::noop_config;

use crate::bed::{Bed, ForgeBed, LIMIT, eu, small_change, us};

#[derive(Clone, Copy, Debug)]
enum Victim {
    Hub,
    Agent,
}

/// Kills one process while the forge's n-th answer is outstanding.
async fn kill_at(victim: Victim, fault: Fault) -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.proxy.add(fault);
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    match victim {
        Victim::Hub => {
            stage.bed.hub.kill()?;
            stage.proxy.release();
            stage.bed.hub.start_again().await?;
        }
        Victim::Agent => {
            stage.bed.eu.kill()?;
            stage.proxy.release();
            stage.bed.eu.start_again().await?;
        }
    }
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    assert_eq!(
        status["attempts"], 1,
        "an interrupted attempt does not count: {status:#}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_looks_for_the_change() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldBefore(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_it_looked_for_the_change() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldAfter(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_commit_is_made() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldBefore(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_commit_was_made() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldAfter(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_pull_request_is_opened() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldBefore(3)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_pull_request_was_opened() -> Result<()> {
    kill_at(Victim::Hub, Fault::HoldAfter(3)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_before_the_hub_looks_for_the_change() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldBefore(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_after_the_hub_looked_for_the_change() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldAfter(1)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_after_the_commit_was_made() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldAfter(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_before_the_pull_request_is_opened() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldBefore(3)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_before_the_commit_is_made() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldBefore(2)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_dies_after_the_pull_request_was_opened() -> Result<()> {
    kill_at(Victim::Agent, Fault::HoldAfter(3)).await
}

/// The hub is dead before it has heard of the EventResponse, and the agent before it has written the result.
#[tokio::test(flavor = "multi_thread")]
async fn both_die_at_the_two_ends_of_the_way() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    stage.bed.hub.kill()?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.add(Fault::HoldAfter(3));
    stage.bed.hub.start_again().await?;
    stage.proxy.reached().await?;
    stage.bed.eu.kill()?;
    stage.bed.hub.kill()?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    stage
        .bed
        .explained("prod-eu", &name, "succeeds", |answer| {
            answer["phase"] == "Succeeded"
        })
        .await?;
    stage.bed.eu.start_again().await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await
}

/// Kills both, several times, at moments that nobody chose, while responses are created.
#[tokio::test(flavor = "multi_thread")]
async fn hub_and_agents_die_at_any_moment_and_nothing_is_lost_or_doubled() -> Result<()> {
    let mut stage = ForgeBed::start().await?;
    let mut names = Vec::new();
    for round in 0..4 {
        for number in 0..4 {
            let parameters = nabu_tests::objects::write_file(
                crate::bed::ACTION,
                &format!("storm/{round}-{number}.yaml"),
                "x: 1\n",
            );
            names.push(stage.bed.ask(eu().await, parameters).await?.0);
        }
        if round % 2 == 0 {
            stage.bed.hub.kill()?;
            stage.bed.hub.start_again().await?;
        } else {
            stage.bed.eu.kill()?;
            stage.bed.eu.start_again().await?;
        }
    }
    let mut urls = Vec::new();
    for name in &names {
        let status = eu().await.finished(name, LIMIT).await?;
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        urls.push(
            status["providerRef"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    let mut opened: Vec<_> = stage
        .repository
        .pull_requests()
        .await?
        .iter()
        .map(|one| one["html_url"].as_str().unwrap_or_default().to_owned())
        .collect();
    urls.sort();
    opened.sort();
    assert_eq!(urls, opened);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_in_one_cluster_survives_a_dying_hub_and_does_not_starve_the_other() -> Result<()> {
    let mut bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    let mut names = Vec::new();
    for _ in 0..40 {
        names.push(bed.ask(eu().await, small_change()).await?.0);
    }
    let (other, _) = bed.ask(us().await, small_change()).await?;
    bed.hub.kill()?;
    bed.hub.start_again().await?;
    assert_eq!(
        us().await.finished(&other, LIMIT).await?["phase"],
        "Succeeded"
    );
    for name in names {
        assert_eq!(
            eu().await.finished(&name, LIMIT).await?["phase"],
            "Succeeded"
        );
    }
    Ok(())
}
