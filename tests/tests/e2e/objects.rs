//! Objects of every kind: large, foreign, busy, broken and hostile.

use anyhow::Result;
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config, write_file};
use serde_json::json;

use crate::bed::{ACTION, Bed, ForgeBed, LIMIT, condition, eu, forge, small_change, unique};

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_is_too_large_fails_alone() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    let large = "x".repeat(1536 * 1024);
    let (big, _) = bed
        .ask(eu().await, write_file(ACTION, "big.txt", &large))
        .await?;
    let (small, _) = bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&big, LIMIT).await?;
    assert_eq!(status["phase"], "Failed", "{status:#}");
    assert_eq!(status["error"]["type"], "Permanent");
    assert_eq!(status["error"]["reason"], "TooLarge");
    assert_eq!(
        eu().await.finished(&small, LIMIT).await?["phase"],
        "Succeeded"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_with_the_upstream_crd_is_served_without_provider_ref() -> Result<()> {
    let cluster = TestCluster::start(Crds::Upstream).await?;
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let _agent = TestAgent::start(&cluster, "upstream", &hub, &["--leader-elect=false"]).await?;
    let spec = event_response("nobody", "ugallu-gitops-responder", small_change());
    cluster.create_event_response("er-1", spec).await?;
    let status = cluster.finished("er-1", LIMIT).await?;
    assert_eq!(status["phase"], "Succeeded", "{status:#}");
    assert!(status["providerRef"].is_null());
    let url = status["evidence"][0]["url"].as_str().unwrap();
    assert!(
        url.starts_with("https://noop.invalid/o/r/pulls/upstream/"),
        "{url}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_responder_names_are_served_by_two_agents() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let (one, other) = (unique("one"), unique("other"));
    let first = ["--responder", one.as_str(), "--leader-elect=false"];
    let second = ["--responder", other.as_str(), "--leader-elect=false"];
    let _first = TestAgent::start(eu().await, "prod-eu", &hub, &first).await?;
    let mut lone = TestAgent::prepare(crate::bed::us().await, "prod-us", &hub, &second)?;
    lone.start_again().await?;
    for (cluster, responder, served) in [
        (eu().await, &one, true),
        (crate::bed::us().await, &other, true),
        (eu().await, &other, false),
    ] {
        let name = unique("er");
        let spec = event_response("nobody", responder, small_change());
        cluster.create_event_response(&name, spec).await?;
        if served {
            assert_eq!(cluster.finished(&name, LIMIT).await?["phase"], "Succeeded");
        } else {
            // What comes later and is served shows that this was not overlooked but left alone.
            let later = unique("er");
            let spec = event_response("nobody", &one, small_change());
            cluster.create_event_response(&later, spec).await?;
            cluster.finished(&later, LIMIT).await?;
            assert!(cluster.status(&name).await?.is_null());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_others_write_to_all_the_time_come_out_right() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    let work = (0..20).map(|_| async {
        let (name, _) = bed.ask(eu().await, small_change()).await?;
        for turn in 0..15 {
            eu().await
                .annotate(&name, "turn", &turn.to_string())
                .await?;
        }
        anyhow::Ok(name)
    });
    for name in futures::future::try_join_all(work).await? {
        let status = eu().await.finished(&name, LIMIT).await?;
        assert_eq!(status["phase"], "Succeeded", "{status:#}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_cannot_be_served_fails_and_names_the_field() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    for (parameters, retry, field) in [
        (
            json!({"contents": "x"}),
            json!({}),
            "spec.action.parameters.path",
        ),
        (
            json!({"path": "a"}),
            json!({}),
            "spec.action.parameters.contents",
        ),
        (
            small_change(),
            json!({"initialDelay": "soon"}),
            "spec.retryPolicy.initialDelay",
        ),
        (
            small_change(),
            json!({"maxAttempts": -1}),
            "spec.retryPolicy.maxAttempts",
        ),
    ] {
        let asked = bed.ask_with(eu().await, parameters, retry).await;
        let (name, _) = match asked {
            Ok(asked) => asked,
            // Our own CRD is stricter than upstream's: the API server names the field then.
            Err(error) if format!("{error:#}").contains(field) => continue,
            Err(error) => return Err(error),
        };
        let status = eu().await.finished(&name, LIMIT).await?;
        assert_eq!(status["phase"], "Failed", "{status:#}");
        assert_eq!(status["error"]["type"], "Permanent");
        let detail = status["error"]["detail"].as_str().unwrap();
        assert!(detail.starts_with(field), "{detail}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_paths_and_branches_never_reach_the_forge() -> Result<()> {
    let stage = ForgeBed::start().await?;
    for path in [
        "../outside",
        "/etc/passwd",
        ".git/config",
        ".github/workflows/evil.yaml",
        "a/../../b",
        "CODEOWNERS",
    ] {
        let (name, _) = stage
            .bed
            .ask(eu().await, write_file(ACTION, path, "x"))
            .await?;
        let status = eu().await.finished(&name, LIMIT).await?;
        assert_eq!(
            status["error"]["reason"], "PathNotAllowed",
            "{path}: {status:#}"
        );
    }
    for branch in [
        "main",
        "-x",
        "nabu/prod-us/00000000-0000-4000-8000-000000000001",
        "a..b",
    ] {
        let mut parameters = small_change();
        parameters["branch"] = json!(branch);
        let (name, _) = stage.bed.ask(eu().await, parameters).await?;
        let status = eu().await.finished(&name, LIMIT).await?;
        assert_eq!(
            status["error"]["reason"], "BranchNotAllowed",
            "{branch}: {status:#}"
        );
    }
    assert_eq!(stage.proxy.requests(), 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_text_cannot_act_in_a_pull_request() -> Result<()> {
    let stage = ForgeBed::start().await?;
    let mut parameters = small_change();
    let hostile =
        "@alice closes #1 <img src=x> [x](https://evil.example) -->\nNabu-Cluster: prod-us";
    for field in ["prTitle", "prBody", "commitTitle", "commitBody"] {
        parameters[field] = json!(hostile);
    }
    let (name, uid) = stage.bed.ask(eu().await, parameters).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    stage.assert_the_one_pull_request(&status).await?;
    let pull_request = &stage.repository.pull_requests().await?[0];
    for field in ["title", "body"] {
        let text = pull_request[field].as_str().unwrap();
        for trigger in ["@alice", "#1", "<img", "](https://", "https://evil"] {
            assert!(!text.contains(trigger), "{field}: {text}");
        }
    }
    let message = crate::bed::commit_of(&stage.repository, &format!("nabu/prod-eu/{uid}")).await?;
    let trailers: Vec<_> = message
        .lines()
        .filter(|line| line.starts_with("Nabu-Cluster:"))
        .collect();
    assert_eq!(trailers, ["Nabu-Cluster: prod-eu"], "{message}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_credential_is_in_any_log_store_or_metric() -> Result<()> {
    let stage = ForgeBed::start().await?;
    let (name, _) = stage.bed.ask(eu().await, small_change()).await?;
    let status = eu().await.finished(&name, LIMIT).await?;
    assert!(
        condition(&status, "PullRequest", "True").is_some(),
        "{status:#}"
    );
    let token = forge().await.token();
    let metrics = stage.bed.hub.metrics().await?;
    let mut texts = vec![
        ("hub.log", stage.bed.hub.log().into_bytes()),
        ("agent.log", stage.bed.eu.log().into_bytes()),
        ("metrics", metrics.into_bytes()),
        ("status", status.to_string().into_bytes()),
    ];
    for file in ["nabu.db", "nabu.db-wal"] {
        texts.push((file, std::fs::read(stage.bed.hub.dir().join(file))?));
    }
    for (place, text) in texts {
        assert!(!text.is_empty(), "{place} was looked at");
        let found = text
            .windows(token.len())
            .any(|part| part == token.as_bytes());
        assert!(!found, "the token is in {place}");
    }
    Ok(())
}
