//! A pull request goes with its EventResponse where the route says so, whoever dies on the way.

use anyhow::Result;
use nabu_proto::agent_v1::Deleted;
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::session_response::Frame as Answer;
use nabu_tests::fault_proxy::Fault as ProxyFault;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{config, forge_config, token_secret};
use nabu_tests::test_forge::faults::{Effect, Fault, Faults};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::test_forge::gitlab::TestGitlab;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::Value;

use crate::bed::{Bed, ForgeBed, LIMIT, condition, eu, small_change};
use crate::hostile::{observation, uid, until, welcomed};
use crate::identity::sqlite;

const CLOSES: &str = "      closeOnCancel: true\n      deleteBranchAfterClose: true\n";
/// Nobody but the test looks at pull requests.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];

/// What the audit log says of an action.
fn happened(answer: &Value, action: &str) -> Option<String> {
    let mut history = answer["history"].as_array()?.iter();
    let found = history.find(|entry| entry["action"] == action)?;
    Some(found["detail"].to_string())
}

/// Waits until the one pull request is closed; fails unless it says why, once, and its branch is gone.
async fn closed_once(stage: &ForgeBed, name: &str, uid: &str) -> Result<()> {
    stage
        .bed
        .explained("prod-eu", name, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    let pulls = stage.repository.pull_requests().await?;
    let states: Vec<_> = pulls.iter().map(|pull| &pull["state"]).collect();
    assert_eq!(states, ["closed"]);
    let path = "/issues/1/comments";
    let comments = stage.repository.call(Method::GET, path, None).await?;
    let comments = comments.as_array().cloned().unwrap_or_default();
    assert_eq!(comments.len(), 1, "{comments:#?}");
    let text = comments[0]["body"].as_str().unwrap_or_default();
    assert!(
        text.contains("the EventResponse was deleted") && text.contains(name),
        "{text}"
    );
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(!stage.repository.branches().await?.contains(&branch));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_event_response_takes_its_pull_request_along() -> Result<()> {
    let stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.delete_event_response(&name).await?;
    closed_once(&stage, &name, &uid).await?;
    let answer = stage.bed.explain("prod-eu", &name)?;
    assert_eq!(
        answer["phase"], "Succeeded",
        "a terminal phase never changes"
    );
    let said = happened(&answer, "PullRequestClosed").unwrap_or_default();
    assert!(said.contains("the EventResponse was deleted"), "{said}");
    let series = "nabu_hub_closings_total{provider=\"forgejo-token\",outcome=\"closed\"}";
    let counted = stage.bed.hub.metric(series).await?;
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_while_the_agent_was_away_is_found_out_afterwards() -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    let (other, _) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.finished(&other, LIMIT).await?;
    stage.bed.eu.kill()?;
    eu().await.delete_event_response(&name).await?;
    stage.bed.eu.start_again().await?;
    stage
        .bed
        .explained("prod-eu", &name, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    let branches = stage.repository.branches().await?;
    assert!(!branches.contains(&format!("nabu/prod-eu/{uid}")));
    let kept = eu().await.status(&other).await?;
    let kept = condition(&kept, "PullRequest", "True").map(|condition| &condition["reason"]);
    assert_eq!(kept, Some(&Value::from("Open")), "it is still there");
    Ok(())
}

/// Kills the hub while the forge's n-th answer is outstanding; the first three are those of the change.
async fn kill_at(fault: ProxyFault) -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(fault);
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.delete_event_response(&name).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    closed_once(&stage, &name, &uid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_looks_at_the_pull_request_to_be_closed() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(4)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_says_why() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_it_said_why() -> Result<()> {
    kill_at(ProxyFault::HoldAfter(5)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_pull_request_is_closed() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(6)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_pull_request_was_closed() -> Result<()> {
    kill_at(ProxyFault::HoldAfter(6)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_branch_is_removed() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(8)).await
}

/// The attempt was interrupted with the pull request open and nobody told; meanwhile the EventResponse went.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_attempt_has_left_goes_with_its_event_response() -> Result<()> {
    let mut stage = ForgeBed::start_with(CLOSES, &UNFOLLOWED).await?;
    stage.proxy.add(ProxyFault::HoldAfter(3));
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    eu().await.delete_event_response(&name).await?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    closed_once(&stage, &name, &uid).await
}

/// A bed whose route goes to this forge and closes.
async fn bed_on(kind: &str, url: &str, repository: &str, token: &str) -> Result<Bed> {
    let documents = [
        ("config.yaml", forge_config(kind, url, repository) + CLOSES),
        ("secret.yaml", token_secret("bot", token)),
    ];
    Bed::start_with(&documents, &UNFOLLOWED).await
}

/// Kills the hub, if the forge holds a request, and waits until the pull request is closed.
async fn dies_and_closes(bed: &mut Bed, faults: &Faults, name: &str, kills: bool) -> Result<()> {
    eu().await.finished(name, LIMIT).await?;
    eu().await.delete_event_response(name).await?;
    if kills {
        faults.reached().await;
        bed.hub.kill()?;
        faults.release();
        bed.hub.start_again().await?;
    }
    bed.explained("prod-eu", name, "is closed", |answer| {
        happened(answer, "PullRequestClosed").is_some()
    })
    .await
    .map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_on_github_is_closed_once_though_the_hub_dies() -> Result<()> {
    let name = "ninsun-labs/gitops";
    for effect in [None, Some(Effect::HoldBefore), Some(Effect::HoldAfter)] {
        let github = TestGithub::start().await?;
        let repository = github.create_repository(name).await?;
        let mut bed = bed_on("github-token", github.url(), name, github.token()).await?;
        let kills = effect.is_some();
        if let Some(effect) = effect {
            github.fault(Fault::new(effect).operation("closePullRequest"));
        }
        let (name, uid) = bed.ask(eu().await, small_change()).await?;
        dies_and_closes(&mut bed, github.faults(), &name, kills).await?;
        let pulls = repository.pulls()?;
        let seen: Vec<_> = pulls
            .iter()
            .map(|pull| (pull.state, pull.comments.len()))
            .collect();
        assert_eq!(seen, [("closed", 1)]);
        assert!(
            pulls[0].comments[0].contains(&name),
            "{:?}",
            pulls[0].comments
        );
        assert!(
            !repository
                .branches()?
                .contains(&format!("nabu/prod-eu/{uid}"))
        );
        assert_eq!(github.violations(), Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_request_on_gitlab_is_closed_once_though_the_hub_dies() -> Result<()> {
    let name = "ninsun-labs/fleet/gitops";
    let notes = || Fault::new(Effect::HoldAfter).method("POST").path("/notes");
    let close = || {
        Fault::new(Effect::HoldBefore)
            .method("PUT")
            .path("/merge_requests/1")
    };
    for fault in [None, Some(notes()), Some(close())] {
        let gitlab = TestGitlab::start().await?;
        let project = gitlab.create_project(name)?;
        let mut bed = bed_on("gitlab-token", &gitlab.url(), name, gitlab.token()).await?;
        let kills = fault.is_some();
        if let Some(fault) = fault {
            gitlab.fail(fault);
        }
        let (name, uid) = bed.ask(eu().await, small_change()).await?;
        dies_and_closes(&mut bed, gitlab.faults(), &name, kills).await?;
        let requests = project.merge_requests()?;
        let states: Vec<_> = requests.iter().map(|one| &one["state"]).collect();
        assert_eq!(states, ["closed"]);
        let notes = project.notes(1)?;
        assert!(notes.len() == 1 && notes[0].contains(&name), "{notes:?}");
        assert!(!project.branches()?.contains(&format!("nabu/prod-eu/{uid}")));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_route_that_says_so_closes() -> Result<()> {
    let routes = config(
        "  routes:\n    - match: { actionRef: closes }\n      closeOnCancel: true\n      \
        provider: { kind: noop, repository: o/r }\n    - provider: { kind: noop, repository: o/r }\n",
    );
    let bed = Bed::start(&[("config.yaml", routes)]).await?;
    let mut names = Vec::new();
    for action in ["keeps", "closes"] {
        let change = nabu_tests::objects::write_file(action, "a.yaml", "x: 1\n");
        let (name, _) = bed.ask(eu().await, change).await?;
        eu().await.finished(&name, LIMIT).await?;
        names.push(name);
    }
    for name in &names {
        eu().await.delete_event_response(name).await?;
    }
    bed.explained("prod-eu", &names[1], "is closed", |answer| {
        happened(answer, "PullRequestClosed").is_some()
    })
    .await?;
    let kept = bed.explain("prod-eu", &names[0])?;
    assert_eq!(happened(&kept, "PullRequestClosed"), None);
    Ok(())
}

/// An agent that takes over may see an object finished by the one before it sooner than it hears from the hub how.
#[tokio::test(flavor = "multi_thread")]
async fn a_status_on_its_way_is_not_taken_for_a_deletion() -> Result<()> {
    let routes = config(
        "  routes:\n    - closeOnCancel: true\n      provider: { kind: noop, repository: o/r }\n",
    );
    let hub = TestHub::start(&[("config.yaml", routes)], HubOptions::default()).await?;
    let mut agent = welcomed(&hub, "prod-eu").await?;
    let succeeded = |answer| match answer {
        Answer::Status(status) if status.phase == 3 => status.r#ref.map(|one| one.uid),
        _ => None,
    };
    agent.say(Frame::Observed(observation(1, "er-1"))).await?;
    until(&mut agent, succeeded).await?;
    for (still_there, number, closed) in [(true, 2, "0\n"), (false, 3, "1\n")] {
        let gone = Deleted {
            r#ref: observation(1, "er-1").r#ref,
            still_there,
            own_success: false,
        };
        agent.say(Frame::Deleted(gone)).await?;
        // What comes later is done, so that was taken.
        let later = observation(number, &format!("er-{number}"));
        agent.say(Frame::Observed(later)).await?;
        let later = until(&mut agent, |answer| {
            succeeded(answer).filter(|done| *done == uid(number))
        });
        later.await?;
        for action in ["Deleted", "PullRequestClosed"] {
            let count = format!("SELECT count(*) FROM audit WHERE action = '{action}'");
            eventually(action, LIMIT, || async {
                (sqlite(&hub, &count).ok()? == closed).then_some(())
            })
            .await?;
        }
    }
    Ok(())
}
