//! Groups: twenty responses at once end in one pull request, whoever dies on the way, and each keeps its own status.
//!
//! Windows last about a day here, and none ends while a test runs.

use std::sync::LazyLock;

use anyhow::{Context as _, Result};
use nabu_tests::fault_proxy::Fault;
use nabu_tests::objects::{config, forge_config, token_secret, write_file};
use nabu_tests::test_forge::github::TestGithub;
use nabu_tests::test_forge::gitlab::TestGitlab;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use crate::bed::{ACTION, Bed, ForgeBed, LIMIT, condition, eu, us};

/// The length of a window that goes on for an hour and more. Windows of one length end at midnight UTC, those of others
/// seldom at the same time.
fn window() -> &'static str {
    static LENGTH: LazyLock<String> = LazyLock::new(|| {
        let now = jiff::Timestamp::now().as_second();
        let left = |hours: i64| hours * 3600 - now.rem_euclid(hours * 3600);
        let lasting = [24, 23, 19].into_iter().find(|hours| left(*hours) > 3600);
        format!("{}h", lasting.unwrap_or(17))
    });
    &LENGTH
}

fn grouped() -> String {
    format!("      group: {{ window: {} }}\n", window())
}

fn closes() -> String {
    let grouped = grouped();
    format!("{grouped}      closeOnCancel: true\n      deleteBranchAfterClose: true\n")
}

/// Nobody but the test looks at pull requests.
const UNFOLLOWED: [&str; 2] = ["--follow-seconds", "0"];

async fn ask_for(bed: &Bed, path: &str) -> Result<String> {
    let parameters = write_file(ACTION, path, "revoked: true\n");
    Ok(bed.ask(eu().await, parameters).await?.0)
}

/// Creates twenty at once, and one more when they are done; gives the addresses of their pull requests.
async fn twenty_and_one(bed: &Bed) -> Result<Vec<String>> {
    let paths: Vec<String> = (0..20)
        .map(|number| format!("rbac/{number}.yaml"))
        .collect();
    let asked = paths.iter().map(|path| ask_for(bed, path));
    let mut names = futures::future::try_join_all(asked).await?;
    for name in &names {
        eu().await.finished(name, LIMIT).await?;
    }
    names.push(ask_for(bed, "rbac/late.yaml").await?);
    let mut urls = Vec::new();
    for name in &names {
        let status = eu().await.finished(name, LIMIT).await?;
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
        assert_eq!(status["attempts"], 1, "{status:#}");
        urls.push(
            status["providerRef"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
    }
    Ok(urls)
}

/// Fails unless the first twenty share an address and the last has another.
fn assert_shared(urls: &[String]) {
    let (last, shared) = urls.split_last().unwrap();
    assert!(shared.iter().all(|url| *url == shared[0]), "{urls:#?}");
    assert!(!last.is_empty() && *last != shared[0], "{urls:#?}");
}

/// Waits until the first pull request has so many commits: what was pushed, the forge looks at a moment later.
async fn has_commits(stage: &ForgeBed, wanted: usize) -> Result<()> {
    let what = format!("the pull request has {wanted} commits");
    eventually(&what, LIMIT, || async {
        let path = "/pulls/1/commits?limit=50";
        let commits = stage.repository.call(Method::GET, path, None);
        let count = commits.await.ok()?.as_array().map_or(0, Vec::len);
        (count == wanted).then_some(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_share_one_pull_request_on_gitea() -> Result<()> {
    let stage = ForgeBed::start_with(&grouped(), &[]).await?;
    assert_shared(&twenty_and_one(&stage.bed).await?);
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls.len(), 2);
    let body = pulls[0]["body"].as_str().unwrap_or_default();
    assert_eq!(body.matches("<!-- nabu: cluster=prod-eu uid=").count(), 20);
    let title = pulls[0]["title"].as_str().unwrap_or_default();
    assert!(title.contains(&format!("{} from", window())), "{title}");
    has_commits(&stage, 20).await
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_share_one_pull_request_on_github() -> Result<()> {
    let github = TestGithub::start().await?;
    let name = "ninsun-labs/gitops";
    let repository = github.create_repository(name).await?;
    let route = forge_config("github-token", github.url(), name) + &grouped();
    let secret = token_secret("bot", github.token());
    let bed = Bed::start(&[("config.yaml", route), ("secret.yaml", secret)]).await?;
    assert_shared(&twenty_and_one(&bed).await?);
    let pulls = repository.pulls()?;
    assert_eq!(pulls.len(), 2);
    assert_eq!(pulls[0].body.matches("\n### ").count(), 20);
    let base = repository.log("main")?.len();
    assert_eq!(repository.log(&pulls[0].head)?.len() - base, 20);
    assert_eq!(github.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_at_once_share_one_merge_request_on_gitlab() -> Result<()> {
    let gitlab = TestGitlab::start().await?;
    let name = "ninsun-labs/fleet/gitops";
    let project = gitlab.create_project(name)?;
    let route = forge_config("gitlab-token", &gitlab.url(), name) + &grouped();
    let secret = token_secret("bot", gitlab.token());
    let bed = Bed::start(&[("config.yaml", route), ("secret.yaml", secret)]).await?;
    assert_shared(&twenty_and_one(&bed).await?);
    let requests = project.merge_requests()?;
    assert_eq!(requests.len(), 2);
    let body = requests[0]["description"].as_str().unwrap_or_default();
    assert_eq!(body.matches("\n### ").count(), 20);
    let branch = requests[0]["source_branch"].as_str().unwrap_or_default();
    let git = project.git()?;
    let main = git.resolve("refs/heads/main")?;
    let above = git.history(&format!("refs/heads/{branch}"), main.as_deref())?;
    assert_eq!(above.len(), 20);
    assert_eq!(gitlab.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_of_another_cluster_or_with_a_branch_of_their_own_are_not_grouped_with_them()
-> Result<()> {
    let route = config(
        &("  routes:\n    - provider: { kind: noop, repository: o/r }\n".to_owned() + &grouped()),
    );
    let bed = Bed::start(&[("config.yaml", route)]).await?;
    let mut own = write_file(ACTION, "c.yaml", "x: 1\n");
    own["branch"] = "nabu/prod-eu/mine".into();
    let asked = [
        (eu().await, write_file(ACTION, "a.yaml", "x: 1\n")),
        (eu().await, write_file(ACTION, "b.yaml", "x: 1\n")),
        (us().await, write_file(ACTION, "b.yaml", "x: 1\n")),
        (eu().await, own),
    ];
    let mut urls = Vec::new();
    for (cluster, parameters) in asked {
        let (name, _) = bed.ask(cluster, parameters).await?;
        let status = cluster.finished(&name, LIMIT).await?;
        urls.push(status["providerRef"].clone());
    }
    assert_eq!(urls[0], urls[1]);
    urls.remove(0);
    urls.sort_by_key(ToString::to_string);
    urls.dedup();
    assert_eq!(urls.len(), 3, "{urls:?}");
    Ok(())
}

/// Kills the hub while the n-th answer of the second member is outstanding; with its store, if that is lost as well.
async fn kill_second_at(fault: fn(u32) -> Fault, number: u32, loses_store: bool) -> Result<()> {
    let mut stage = ForgeBed::start_with(&grouped(), &UNFOLLOWED).await?;
    let first = ask_for(&stage.bed, "rbac/1.yaml").await?;
    eu().await.finished(&first, LIMIT).await?;
    let fault = fault(stage.proxy.requests() + number);
    stage.proxy.add(fault);
    let second = ask_for(&stage.bed, "rbac/2.yaml").await?;
    stage.proxy.reached().await?;
    stage.bed.hub.kill()?;
    stage.proxy.release();
    if loses_store {
        let path = stage.bed.hub.store_path();
        for ending in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{ending}", path.display()));
        }
    }
    stage.bed.hub.start_again().await?;
    let status = eu().await.finished(&second, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    has_commits(&stage, 2).await?;
    let pulls = stage.repository.pull_requests().await?;
    let body = pulls[0]["body"].as_str().unwrap_or_default();
    assert_eq!(body.matches("\n### ").count(), 2, "{body}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_look_of_a_second_member() -> Result<()> {
    kill_second_at(Fault::HoldBefore, 1, false).await?;
    kill_second_at(Fault::HoldAfter, 1, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_commit_of_a_second_member() -> Result<()> {
    kill_second_at(Fault::HoldBefore, 2, false).await?;
    kill_second_at(Fault::HoldAfter, 2, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_dies_around_the_text_of_a_second_member() -> Result<()> {
    kill_second_at(Fault::HoldBefore, 3, false).await?;
    kill_second_at(Fault::HoldAfter, 3, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_loses_its_store_after_the_commit_and_after_the_text_of_a_second_member()
-> Result<()> {
    kill_second_at(Fault::HoldAfter, 2, true).await?;
    kill_second_at(Fault::HoldAfter, 3, true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_merge_is_told_to_every_member_and_a_late_one_gets_its_own() -> Result<()> {
    let route = format!("{}      deleteBranchAfterMerge: true\n", grouped());
    let stage = ForgeBed::start_with(&route, &["--follow-seconds", "1"]).await?;
    let mut names = Vec::new();
    for path in ["rbac/1.yaml", "rbac/2.yaml", "rbac/3.yaml"] {
        names.push(ask_for(&stage.bed, path).await?);
    }
    for name in &names {
        eu().await.finished(name, LIMIT).await?;
    }
    let merge = serde_json::json!({ "Do": "squash" });
    eventually("it can be merged", LIMIT, || async {
        let body = Some(merge.clone());
        let merged = stage.repository.call(Method::POST, "/pulls/1/merge", body);
        merged.await.ok()
    })
    .await?;
    for name in &names {
        eventually(&format!("{name} is told of the merge"), LIMIT, || async {
            let status = eu().await.status(name).await.ok()?;
            let told = condition(&status, "PullRequest", "True")?;
            (told["reason"] == "Merged").then_some(())
        })
        .await?;
    }
    let branches = stage.repository.branches().await?;
    assert!(
        !branches.iter().any(|name| name.contains("/group-")),
        "{branches:?}"
    );
    let late = ask_for(&stage.bed, "rbac/4.yaml").await?;
    let status = eu().await.finished(&late, LIMIT).await?;
    let url = status["providerRef"].as_str().unwrap_or_default();
    assert!(url.ends_with("/2"), "{url}");
    Ok(())
}

/// What the audit log says of an action.
fn happened(answer: &Value, action: &str) -> Option<String> {
    let mut history = answer["history"].as_array()?.iter();
    let found = history.find(|entry| entry["action"] == action)?;
    Some(found["detail"].to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_member_says_so_and_only_the_last_one_closes() -> Result<()> {
    let stage = ForgeBed::start_with(&closes(), &UNFOLLOWED).await?;
    let first = ask_for(&stage.bed, "rbac/1.yaml").await?;
    let second = ask_for(&stage.bed, "rbac/2.yaml").await?;
    for name in [&first, &second] {
        eu().await.finished(name, LIMIT).await?;
    }
    eu().await.delete_event_response(&first).await?;
    let explained = stage
        .bed
        .explained("prod-eu", &first, "is withdrawn", |answer| {
            happened(answer, "Withdrawn").is_some()
        });
    let said = happened(&explained.await?, "Withdrawn").unwrap_or_default();
    assert!(said.contains("stays open"), "{said}");
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls[0]["state"], "open");
    let comments = stage
        .repository
        .call(Method::GET, "/issues/1/comments", None);
    let comments = comments.await?;
    let text = comments[0]["body"].as_str().unwrap_or_default();
    assert!(
        text.contains(&first) && text.contains("stays open"),
        "{text}"
    );

    eu().await.delete_event_response(&second).await?;
    stage
        .bed
        .explained("prod-eu", &second, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls[0]["state"], "closed");
    let branches = stage.repository.branches().await?;
    assert!(
        !branches.iter().any(|name| name.contains("/group-")),
        "{branches:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_only_the_pull_request_knows_keeps_it_open_and_nobody_asks_again_and_again()
-> Result<()> {
    let stage = ForgeBed::start_with(&closes(), &UNFOLLOWED).await?;
    let first = ask_for(&stage.bed, "rbac/1.yaml").await?;
    eu().await.finished(&first, LIMIT).await?;
    // As a lost store leaves it: the body names one more.
    let pulls = stage.repository.pull_requests().await?;
    let body = pulls[0]["body"].as_str().unwrap_or_default();
    let marker = body.lines().find(|line| line.contains("uid="));
    let marker = marker.context("no marker")?;
    let (before, rest) = marker.split_once("uid=").context("no uid")?;
    let forgotten = format!(
        "{before}uid=00000000-0000-4000-8000-000000000009{}",
        &rest[36..]
    );
    let body = Some(json!({ "body": format!("{body}\n{forgotten}\n") }));
    let edited = stage.repository.call(Method::PATCH, "/pulls/1", body);
    edited.await?;

    eu().await.delete_event_response(&first).await?;
    let withdrawn = |answer: &Value| {
        let history = answer["history"].as_array().into_iter().flatten();
        history
            .filter(|entry| entry["action"] == "Withdrawn")
            .count()
    };
    stage
        .bed
        .explained("prod-eu", &first, "is withdrawn", |answer| {
            withdrawn(answer) > 0
        })
        .await?;
    // Meanwhile the hub would have asked again.
    let second = ask_for(&stage.bed, "rbac/2.yaml").await?;
    eu().await.finished(&second, LIMIT).await?;
    stage
        .bed
        .explained("prod-eu", &first, "was withdrawn once", |answer| {
            withdrawn(answer) == 1
        })
        .await?;
    let comments = stage
        .repository
        .call(Method::GET, "/issues/1/comments", None);
    let comments = comments.await?;
    assert_eq!(comments.as_array().map(Vec::len), Some(1), "{comments:#}");
    let pulls = stage.repository.pull_requests().await?;
    assert_eq!(pulls[0]["state"], "open");
    Ok(())
}

/// A group with a member in it that was withdrawn, and that stays open for another that waits for its next attempt.
async fn kept_open_for_one(stage: &ForgeBed) -> Result<(String, String)> {
    let first = ask_for(&stage.bed, "rbac/1.yaml").await?;
    eu().await.finished(&first, LIMIT).await?;
    let next = stage.proxy.requests() + 1;
    stage.proxy.add(Fault::Answer(next, 500));
    let slowly = json!({ "backoffStrategy": "Fixed", "initialDelay": "1h", "maxDelay": "1h" });
    let change = write_file(ACTION, "rbac/2.yaml", "revoked: true\n");
    let (second, _) = stage.bed.ask_with(eu().await, change, slowly).await?;
    stage
        .bed
        .explained("prod-eu", &second, "has failed once", |answer| {
            happened(answer, "AttemptFailed").is_some()
        })
        .await?;
    eu().await.delete_event_response(&first).await?;
    stage
        .bed
        .explained("prod-eu", &first, "is withdrawn", |answer| {
            happened(answer, "Withdrawn").is_some()
        })
        .await?;
    assert_eq!(stage.repository.pull_request(1).await?["state"], "open");
    Ok((first, second))
}

async fn closed_after_all(stage: &ForgeBed, first: &str) -> Result<()> {
    stage
        .bed
        .explained("prod-eu", first, "is closed", |answer| {
            happened(answer, "PullRequestClosed").is_some()
        })
        .await?;
    assert_eq!(stage.repository.pull_request(1).await?["state"], "closed");
    let path = "/issues/1/comments";
    let comments = stage.repository.call(Method::GET, path, None).await?;
    let comments = comments.as_array().cloned().unwrap_or_default();
    let says_closed = |one: &Value| {
        let text = one["body"].as_str().unwrap_or_default();
        text.contains("Closed by Nabu")
    };
    let said: Vec<bool> = comments.iter().map(says_closed).collect();
    assert_eq!(said, [false, true], "{comments:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_closed_after_all_if_the_one_that_it_stayed_open_for_goes_its_own_way()
-> Result<()> {
    let stage = ForgeBed::start_with(&closes(), &UNFOLLOWED).await?;
    let (first, second) = kept_open_for_one(&stage).await?;
    let pull = stage.repository.pull_request(1).await?;
    let branch = pull["head"]["ref"].as_str().unwrap_or_default();
    stage.repository.add_collaborator("write").await?;
    let added = stage
        .repository
        .add_file_as_person(branch, branch, "mine.txt", "mine\n");
    added.await?;
    let nabuctl = ["response", "retry", "prod-eu", &second];
    stage.bed.hub.nabuctl(&nabuctl)?;
    let status = eu().await.finished(&second, LIMIT).await?;
    let url = status["providerRef"].as_str().unwrap_or_default();
    assert!(url.ends_with("/2"), "{status:#}");
    closed_after_all(&stage, &first).await?;
    assert_eq!(stage.repository.pull_request(2).await?["state"], "open");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_is_closed_after_all_if_the_one_that_it_stayed_open_for_is_cancelled() -> Result<()>
{
    let stage = ForgeBed::start_with(&closes(), &UNFOLLOWED).await?;
    let (first, second) = kept_open_for_one(&stage).await?;
    let nabuctl = ["response", "cancel", "prod-eu", &second];
    stage.bed.hub.nabuctl(&nabuctl)?;
    closed_after_all(&stage, &first).await
}
