//! Everything that may fail on purpose.

use std::time::{Duration, Instant};

use nabu_tests::test_forge::faults::{Effect, Fault, Limit, Reply};
use nabu_tests::test_forge::github::{File, TestGithub, TestRepository};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::client::{OPEN, graphql, lookup, open_variables, rest, send};

async fn forge() -> (TestGithub, TestRepository) {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    (github, repository)
}

async fn get(github: &TestGithub) -> reqwest::Result<Response> {
    send(
        github,
        github.token(),
        Method::GET,
        "/api/v3/repos/ninsun-labs/gitops",
        None,
    )
    .await
}

async fn open(github: &TestGithub, variables: &Value) -> reqwest::Result<Response> {
    let body = json!({ "query": OPEN, "variables": variables });
    send(
        github,
        github.token(),
        Method::POST,
        "/api/graphql",
        Some(body),
    )
    .await
}

#[tokio::test]
async fn a_fault_happens_to_the_request_that_it_is_for_and_only_once() {
    let (github, _) = forge().await;
    let reply = Reply::html(502);
    github.fault(
        Fault::new(Effect::Answer(reply))
            .method("GET")
            .path("/gitops")
            .at(2),
    );
    assert_eq!(get(&github).await.expect("an answer").status(), 200);
    let second = get(&github).await.expect("an answer");
    assert_eq!(second.status(), 502);
    assert!(second.text().await.expect("a body").contains("<html>"));
    assert_eq!(get(&github).await.expect("an answer").status(), 200);
    let statuses: Vec<_> = github
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses, [Some(200), Some(502), Some(200)]);
}

#[tokio::test]
async fn a_cut_before_does_nothing_and_a_cut_after_has_done_everything() {
    let (github, repository) = forge().await;
    let variables = open_variables(&lookup(&github, "b").await, "b");
    github.fault(Fault::new(Effect::CutBefore).operation("createRef"));
    let error = open(&github, &variables).await.expect_err("no answer");
    assert!(error.is_request(), "{error:?}");
    assert_eq!(repository.branches().expect("git"), ["main"]);
    github.fault(Fault::new(Effect::CutAfter).operation("createRef"));
    open(&github, &variables).await.expect_err("no answer");
    assert_eq!(repository.branches().expect("git"), ["b", "main"]);
    assert_eq!(repository.pulls().expect("pull requests").len(), 1);
}

#[tokio::test]
async fn what_is_held_goes_on_when_it_is_released() {
    let (github, repository) = forge().await;
    let variables = open_variables(&lookup(&github, "b").await, "b");
    github.fault(Fault::new(Effect::HoldBefore).operation("createRef"));
    let held = async {
        github.faults().reached().await;
        assert_eq!(repository.branches().expect("git"), ["main"]);
        github.faults().release();
    };
    let (answer, ()) = tokio::join!(open(&github, &variables), held);
    assert_eq!(answer.expect("an answer").status(), 200);
    github.fault(Fault::new(Effect::HoldAfter).method("GET"));
    let held = async {
        github.faults().reached().await;
        github.faults().release();
    };
    let (answer, ()) = tokio::join!(get(&github), held);
    assert_eq!(answer.expect("an answer").status(), 200);
}

#[tokio::test]
async fn a_body_ends_too_early_and_an_answer_comes_late() {
    let (github, _) = forge().await;
    github.fault(Fault::new(Effect::Truncate(20)));
    let answer = get(&github).await.expect("a head");
    assert!(answer.content_length().expect("a length") > 20);
    answer.bytes().await.expect_err("half a body");
    github.fault(Fault::new(Effect::Delay(Duration::from_millis(300))));
    let start = Instant::now();
    get(&github).await.expect("an answer");
    assert!(start.elapsed() >= Duration::from_millis(300));
}

#[tokio::test]
async fn reads_lag_behind_writes() {
    let (github, repository) = forge().await;
    github.freeze();
    let variables = open_variables(&lookup(&github, "b").await, "b");
    open(&github, &variables).await.expect("an answer");
    // Three changes: the branch, the commit, the pull request.
    github.fault(Fault::new(Effect::StaleBy(1)));
    let seen = lookup(&github, "b").await;
    assert_eq!(seen["data"]["repository"]["pullRequests"]["totalCount"], 0);
    assert_ne!(
        seen["data"]["repository"]["ref"]["target"]["oid"],
        variables["ref"]["oid"]
    );
    github.fault(Fault::new(Effect::StaleBy(2)));
    let seen = lookup(&github, "b").await;
    assert_eq!(
        seen["data"]["repository"]["ref"]["target"]["oid"],
        variables["ref"]["oid"]
    );
    repository
        .add_files(
            "main",
            &[File::plain("clusters/prod-eu/bindings.yaml", "new")],
        )
        .expect("files");
    github.fault(Fault::new(Effect::Frozen).times(2));
    let seen = lookup(&github, "b").await;
    assert_eq!(seen["data"]["repository"]["ref"], json!(null));
    assert_eq!(
        seen["data"]["repository"]["object"]["text"],
        "bindings: [ops-admin]\n"
    );
    let (status, _) = rest(
        &github,
        Method::GET,
        "/repos/ninsun-labs/gitops/git/ref/heads/b",
        None,
    )
    .await;
    assert_eq!(status, 404);
    let seen = lookup(&github, "b").await;
    assert_eq!(seen["data"]["repository"]["pullRequests"]["totalCount"], 1);
}

#[tokio::test]
async fn a_mutation_may_stop_in_the_middle() {
    for done in 0..3 {
        let (github, repository) = forge().await;
        let variables = open_variables(&lookup(&github, "b").await, "b");
        github.fault(Fault::new(Effect::OnlyFirst(done)).operation("createRef"));
        let answer = graphql(&github, OPEN, variables).await;
        let keys = ["createRef", "createCommitOnBranch", "createPullRequest"];
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(answer["data"][key].is_null(), index >= done, "{answer:#}");
        }
        assert_eq!(answer["errors"].as_array().map(Vec::len), Some(3 - done));
        assert_eq!(
            repository.branches().expect("git").len(),
            1 + usize::from(done > 0)
        );
        assert_eq!(repository.pulls().expect("pull requests").len(), 0);
        repository.check().expect("git and the forge agree");
    }
}

#[tokio::test]
async fn limits_are_said_in_each_way_that_github_has() {
    let (github, _) = forge().await;
    let header = |answer: &Response, name: &str| {
        answer
            .headers()
            .get(name)
            .map(|value| value.to_str().expect("a text").to_owned())
    };
    let reset = Duration::from_mins(1);
    github.fault(Fault::new(Effect::Limit(Limit::Primary {
        status: 403,
        reset,
    })));
    let answer = get(&github).await.expect("an answer");
    assert_eq!(answer.status(), 403);
    assert_eq!(
        header(&answer, "x-ratelimit-remaining").as_deref(),
        Some("0")
    );
    assert!(header(&answer, "x-ratelimit-reset").is_some());
    for retry_after in [None, Some(Duration::from_secs(7))] {
        github.fault(Fault::new(Effect::Limit(Limit::Secondary {
            status: 429,
            retry_after,
        })));
        let answer = get(&github).await.expect("an answer");
        assert_eq!(answer.status(), 429);
        assert_eq!(
            header(&answer, "retry-after"),
            retry_after.map(|wait| wait.as_secs().to_string())
        );
        assert_ne!(
            header(&answer, "x-ratelimit-remaining").as_deref(),
            Some("0")
        );
    }
    github.fault(Fault::new(Effect::Limit(Limit::PrimaryInGraphql { reset })));
    let answer = graphql(&github, "{ viewer { login } }", json!({})).await;
    assert_eq!(answer["errors"][0]["type"], "RATE_LIMITED");
}

#[tokio::test]
async fn a_fault_may_happen_always_until_it_is_cleared() {
    let (github, _) = forge().await;
    github.fault(Fault::new(Effect::Answer(Reply::json(503, &json!({})))).always());
    for _ in 0..3 {
        assert_eq!(get(&github).await.expect("an answer").status(), 503);
    }
    github.faults().clear();
    assert_eq!(get(&github).await.expect("an answer").status(), 200);
}
