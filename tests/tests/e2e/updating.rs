//! A pull request follows its EventResponse where the route says so, whoever dies on the way.

use std::ops::RangeBounds;

use anyhow::Result;
use nabu_tests::fault_proxy::Fault as ProxyFault;
use nabu_tests::objects::{config, forge_config, token_secret, write_file};
use nabu_tests::test_forge::faults::{Effect, Fault};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::test_forge::gitlab::TestGitlab;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::Value;

use crate::bed::{ACTION, Bed, ForgeBed, LIMIT, condition, eu, small_change};

const UPDATES: &str = "      updateExisting: true\n";
/// Nobody but the test and the update look at pull requests.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];
const OTHER: &str = "rbac/other.yaml";

fn other_change() -> Value {
    write_file(ACTION, OTHER, "other: true\n")
}

/// The message of the condition that tells of the pull request.
fn said(status: &Value) -> &str {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut told = conditions.filter(|one| one["type"] == "PullRequest");
    let message = told.next().and_then(|one| one["message"].as_str());
    message.unwrap_or_default()
}

/// Waits until the condition says this.
async fn says(name: &str, words: &str) -> Result<Value> {
    let what = format!("says {words:?}");
    eu().await
        .status_where(name, &what, LIMIT, |status| said(status).contains(words))
        .await
}

/// The paths that the one pull request changes, and how many commits it has.
async fn shown(stage: &ForgeBed) -> Result<(Vec<String>, usize)> {
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls.len(), 1, "{pulls:#?}");
    let list = async |what: &str| -> Result<Vec<Value>> {
        let path = format!("/pulls/1/{what}");
        let list = stage.repository.call(Method::GET, &path, None).await?;
        Ok(list.as_array().cloned().unwrap_or_default())
    };
    let files = list("files").await?;
    let name = |file: &Value| file["filename"].as_str().unwrap_or_default().to_owned();
    Ok((
        files.iter().map(name).collect(),
        list("commits").await?.len(),
    ))
}

/// Waits until the one pull request shows this path and no other, in so many commits: what was pushed, the forge looks at
/// a moment later.
async fn shows(stage: &ForgeBed, path: &str, commits: impl RangeBounds<usize>) -> Result<()> {
    let showing = eventually("the pull request shows the change", LIMIT, || async {
        let (files, count) = shown(stage).await.ok()?;
        (files == [path] && commits.contains(&count)).then_some(())
    });
    match showing.await {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("it shows {:?}", shown(stage).await?))),
    }
}

/// Waits until the one pull request shows the other change and nothing else, in one more commit.
async fn updated_once(stage: &ForgeBed, name: &str, uid: &str) -> Result<()> {
    let status = says(name, "updated for generation 2").await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    let branch = format!("nabu/prod-eu/{uid}");
    let tip = stage.repository.commit(&branch).await?;
    assert!(said(&status).contains(&tip.id), "{status:#}");
    assert_eq!(status["evidence"][0]["url"], status["providerRef"]);
    let told = condition(&status, "PullRequest", "True").unwrap_or(&Value::Null);
    let what = (&told["reason"], &told["observedGeneration"]);
    assert_eq!(what, (&Value::from("Open"), &Value::from(2)));
    shows(stage, OTHER, 2..=2).await?;
    let pull = stage.repository.pull_request(1).await?;
    assert_eq!(pull["state"], "open");
    Ok(())
}

async fn stage() -> Result<ForgeBed> {
    ForgeBed::start_with(UPDATES, &UNFOLLOWED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_event_response_gets_one_more_commit_on_its_pull_request() -> Result<()> {
    let stage = stage().await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    let before = stage.repository.pull_request(1).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    updated_once(&stage, &name, &uid).await?;
    let after = stage.repository.pull_request(1).await?;
    assert_ne!(
        before["body"], after["body"],
        "the marker has the new digest"
    );
    let series = "nabu_hub_updates_total{provider=\"forgejo-token\",outcome=\"updated\"}";
    let counted = stage.bed.hub.metric(series).await?;
    assert!((counted - 1.0).abs() < f64::EPSILON, "{counted}");
    // And back: the base branch never had the first file.
    eu().await.ask_anew(&name, small_change()).await?;
    says(&name, "updated for generation 3").await?;
    shows(&stage, "rbac/evil-binding.yaml", 3..=3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_while_agent_or_hub_was_away_is_found_out_afterwards() -> Result<()> {
    for agent in [true, false] {
        let mut stage = stage().await?;
        let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
        let (other, _) = stage.bed.ask(eu().await, small_change()).await?;
        eu().await.finished(&name, LIMIT).await?;
        eu().await.finished(&other, LIMIT).await?;
        if agent {
            stage.bed.eu.kill()?;
        } else {
            stage.bed.hub.kill()?;
        }
        eu().await.ask_anew(&name, other_change()).await?;
        if agent {
            stage.bed.eu.start_again().await?;
        } else {
            stage.bed.hub.start_again().await?;
        }
        says(&name, "updated for generation 2").await?;
        let branch = format!("nabu/prod-eu/{uid}");
        let file = stage.repository.file(&branch, OTHER).await?;
        assert_eq!(file.as_deref(), Some("other: true\n"));
        let kept = eu().await.status(&other).await?;
        assert!(!said(&kept).contains("updated"), "{kept:#}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_somebody_else_on_top_is_never_built_upon() -> Result<()> {
    let stage = stage().await?;
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    let branch = format!("nabu/prod-eu/{uid}");
    stage
        .repository
        .add_file(&branch, "mine.txt", "mine\n")
        .await?;
    let tip = stage.repository.commit(&branch).await?;
    let before = stage.repository.pull_request(1).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    let status = says(&name, "not updated for generation 2: BranchTaken").await?;
    let accepted = condition(&status, "Accepted", "True").unwrap_or(&Value::Null);
    assert_eq!(accepted["reason"], "SpecChanged");
    assert_eq!(stage.repository.commit(&branch).await?, tip);
    let after = stage.repository.pull_request(1).await?;
    assert_eq!(
        (&after["title"], &after["body"]),
        (&before["title"], &before["body"])
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merged_pull_request_is_left_alone_and_a_path_that_is_not_allowed_refused() -> Result<()>
{
    let stage = stage().await?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    let forbidden = write_file(ACTION, ".github/workflows/x.yaml", "x: 1\n");
    eu().await.ask_anew(&name, forbidden).await?;
    says(&name, "not updated for generation 2: PathNotAllowed").await?;
    assert_eq!(shown(&stage).await?.1, 1);
    stage.repository.merge_pull_request(1).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    let status = says(&name, "too late (generation 3)").await?;
    let told = condition(&status, "PullRequest", "True").unwrap_or(&Value::Null);
    assert_eq!(
        (&told["reason"], &status["phase"]),
        (&Value::from("Merged"), &Value::from("Succeeded"))
    );
    Ok(())
}

/// Kills the hub while the forge's n-th answer is outstanding; the first three are those of the change, the next five look.
async fn kill_at(fault: ProxyFault) -> Result<()> {
    let mut stage = stage().await?;
    stage.proxy.add(fault);
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    updated_once(&stage, &name, &uid).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_it_looks_at_the_pull_request_to_be_updated() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(4)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_while_it_looks_at_the_files() -> Result<()> {
    kill_at(ProxyFault::HoldAfter(7)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_further_commit() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(9)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_further_commit() -> Result<()> {
    kill_at(ProxyFault::HoldAfter(9)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_before_the_text_is_set() -> Result<()> {
    kill_at(ProxyFault::HoldBefore(10)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_after_the_text_was_set() -> Result<()> {
    kill_at(ProxyFault::HoldAfter(10)).await
}

/// The commit of the second content is made and nobody noted it; meanwhile a third one is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_further_edit_while_the_hub_is_dead_in_an_update_ends_in_the_newest_content() -> Result<()>
{
    let mut stage = stage().await?;
    stage.proxy.add(ProxyFault::HoldAfter(9));
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    let third = write_file(ACTION, "rbac/third.yaml", "third: true\n");
    eu().await.ask_anew(&name, third).await?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    says(&name, "updated for generation 3").await?;
    shows(&stage, "rbac/third.yaml", ..).await
}

/// The attempt is interrupted with the pull request open and nobody told; meanwhile something else is asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_interrupted_attempt_has_left_shows_the_newest_content_in_the_end() -> Result<()> {
    for step in [2, 3] {
        let mut stage = stage().await?;
        stage.proxy.add(ProxyFault::HoldAfter(step));
        let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
        stage.proxy.reached().await?;
        stage.bed.hub.kill()?;
        eu().await.ask_anew(&name, other_change()).await?;
        stage.proxy.release();
        stage.bed.hub.start_again().await?;
        updated_once(&stage, &name, &uid).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_wins_over_an_update_that_is_under_way() -> Result<()> {
    let route = format!("{UPDATES}      closeOnCancel: true\n      deleteBranchAfterClose: true\n");
    let mut stage = ForgeBed::start_with(&route, &UNFOLLOWED).await?;
    stage.proxy.add(ProxyFault::HoldAfter(9));
    let (name, uid) = stage.bed.ask(eu().await, small_change()).await?;
    eu().await.finished(&name, LIMIT).await?;
    eu().await.ask_anew(&name, other_change()).await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    eu().await.delete_event_response(&name).await?;
    stage.proxy.release();
    stage.bed.hub.start_again().await?;
    let history = |answer: &Value| {
        let history = answer["history"].as_array().cloned().unwrap_or_default();
        history
            .iter()
            .any(|entry| entry["action"] == "PullRequestClosed")
    };
    stage
        .bed
        .explained("prod-eu", &name, "is closed", history)
        .await?;
    let pull = stage.repository.pull_request(1).await?;
    assert_eq!(pull["state"], "closed");
    let branch = format!("nabu/prod-eu/{uid}");
    assert!(
        !stage.repository.branches().await?.contains(&branch),
        "the commit is ours"
    );
    Ok(())
}

/// A bed whose route goes to this forge and updates.
async fn bed_on(kind: &str, url: &str, repository: &str, token: &str) -> Result<Bed> {
    let documents = [
        ("config.yaml", forge_config(kind, url, repository) + UPDATES),
        ("secret.yaml", token_secret("bot", token)),
    ];
    Bed::start_with(&documents, &UNFOLLOWED).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_on_github_is_updated_once_though_the_hub_dies() -> Result<()> {
    let name = "ninsun-labs/gitops";
    for effect in [None, Some(Effect::HoldBefore), Some(Effect::HoldAfter)] {
        let github = TestGithub::start().await?;
        let repository = github.create_repository(name).await?;
        let mut bed = bed_on("github-token", github.url(), name, github.token()).await?;
        let (name, uid) = bed.ask(eu().await, small_change()).await?;
        eu().await.finished(&name, LIMIT).await?;
        let kills = effect.is_some();
        if let Some(effect) = effect {
            github.fault(Fault::new(effect).operation("updatePullRequest"));
        }
        eu().await.ask_anew(&name, other_change()).await?;
        if kills {
            github.faults().reached().await;
            bed.hub.kill()?;
            github.faults().release();
            bed.hub.start_again().await?;
        }
        says(&name, "updated for generation 2").await?;
        let branch = format!("nabu/prod-eu/{uid}");
        assert_eq!(
            repository.log(&branch)?.len(),
            repository.log("main")?.len() + 2
        );
        assert_eq!(
            repository.read(&branch, OTHER)?,
            Some(b"other: true\n".to_vec())
        );
        assert_eq!(repository.read(&branch, "rbac/evil-binding.yaml")?, None);
        assert_eq!(repository.pulls()?.len(), 1);
        assert_eq!(github.violations(), Vec::<String>::new());
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_request_on_gitlab_is_updated_once_though_the_hub_dies() -> Result<()> {
    let name = "ninsun-labs/fleet/gitops";
    let commit = |effect| {
        Fault::new(effect)
            .method("POST")
            .path("/repository/commits")
    };
    let text = Fault::new(Effect::HoldBefore)
        .method("PUT")
        .path("/merge_requests/1");
    let faults = [
        None,
        Some(commit(Effect::HoldBefore)),
        Some(commit(Effect::HoldAfter)),
        Some(text),
    ];
    for fault in faults {
        let gitlab = TestGitlab::start().await?;
        let project = gitlab.create_project(name)?;
        let mut bed = bed_on("gitlab-token", &gitlab.url(), name, gitlab.token()).await?;
        let (name, uid) = bed.ask(eu().await, small_change()).await?;
        eu().await.finished(&name, LIMIT).await?;
        let branch = format!("nabu/prod-eu/{uid}");
        let first = project.commit(&branch)?.oid;
        let kills = fault.is_some();
        if let Some(fault) = fault {
            gitlab.fail(fault);
        }
        eu().await.ask_anew(&name, other_change()).await?;
        if kills {
            gitlab.faults().reached().await;
            bed.hub.kill()?;
            gitlab.faults().release();
            bed.hub.start_again().await?;
        }
        says(&name, "updated for generation 2").await?;
        assert_eq!(project.commit(&branch)?.parents, [first]);
        assert_eq!(
            project.file(&branch, OTHER)?.as_deref(),
            Some("other: true\n")
        );
        assert_eq!(project.file(&branch, "rbac/evil-binding.yaml")?, None);
        assert_eq!(project.merge_requests()?.len(), 1);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_route_that_says_so_updates() -> Result<()> {
    let routes = config(
        "  routes:\n    - match: { actionRef: updates }\n      updateExisting: true\n      \
        provider: { kind: noop, repository: o/r }\n    - provider: { kind: noop, repository: o/r }\n",
    );
    let bed = Bed::start(&[("config.yaml", routes)]).await?;
    let mut names = Vec::new();
    for action in ["keeps", "updates"] {
        let (name, _) = bed
            .ask(eu().await, write_file(action, "a.yaml", "x: 1\n"))
            .await?;
        eu().await.finished(&name, LIMIT).await?;
        names.push((action, name));
    }
    for (action, name) in &names {
        let other = write_file(action, "a.yaml", "x: 2\n");
        eu().await.ask_anew(name, other).await?;
    }
    says(&names[1].1, "updated for generation 2").await?;
    let kept = eu().await.status(&names[0].1).await?;
    assert!(!said(&kept).contains("generation"), "{kept:#}");
    Ok(())
}
