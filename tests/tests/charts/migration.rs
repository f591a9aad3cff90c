//! A cluster that ugallu's own responder has served: no pull request twice, and no response forgotten.

use anyhow::Result;
use kube::api::{Patch, PatchParams};
use nabu_tests::agent::TestAgent;
use nabu_tests::charts::kubectl_on;
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::forge::TestForge;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, forgejo_config, token_secret, write_file};
use nabu_tests::process::repository_root;
use serde_json::{Value, json};

use crate::bed::LIMIT;

const RESPONDER: &str = "ugallu-gitops-responder";

/// What the old responder has written.
async fn old_status(cluster: &TestCluster, name: &str, status: Value) -> Result<()> {
    let params = PatchParams {
        field_manager: Some(RESPONDER.to_owned()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    cluster
        .api("EventResponse")
        .patch_status(name, &params, &patch)
        .await?;
    Ok(())
}

/// A patch of the book's page (the first is number 0), for one object.
fn patch_of_the_book(cluster: &TestCluster, number: usize, name: &str) -> Result<()> {
    let page = repository_root().join("docs/src/installation/from-ugallu.md");
    let page = std::fs::read_to_string(page)?;
    let patch = page.split("-p '").nth(number + 1);
    let patch = patch.and_then(|rest| rest.split('\'').next()).unwrap();
    let arguments = [
        "patch",
        "eventresponse",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        patch,
    ];
    kubectl_on(&cluster.kubeconfig(), &arguments).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_old_responder_left_is_finished_once() -> Result<()> {
    let (cluster, forge) =
        tokio::try_join!(TestCluster::start(Crds::Upstream), TestForge::start())?;
    let repository = forge.create_repository("gitops").await?;
    let evidence = json!([{"mediaType": "application/vnd.ugallu.gitops-change+json", "url": "https://git.example.com/o/r/pulls/1"}]);
    for name in [
        "succeeded",
        "failed",
        "waiting",
        "tried",
        "running",
        "running-with-pull-request",
    ] {
        let change = write_file(
            "revoke-clusterrolebinding",
            &format!("{name}.yaml"),
            "a: 1\n",
        );
        cluster
            .create_event_response(name, event_response("nobody", RESPONDER, change))
            .await?;
    }
    let ended = json!({"phase": "Succeeded", "attempts": 1, "outcome": {"type": "ActionTaken"}, "evidence": evidence});
    old_status(&cluster, "succeeded", ended).await?;
    let ended = json!({"phase": "Failed", "attempts": 3, "outcome": {"type": "Errored"}, "error": {"type": "Permanent"}});
    old_status(&cluster, "failed", ended).await?;
    let waits = json!({"phase": "Pending", "attempts": 2, "nextAttemptAt": "2026-11-21T09:00:00Z", "error": {"type": "Transient"}});
    old_status(&cluster, "tried", waits).await?;
    for name in ["running", "running-with-pull-request"] {
        let running =
            json!({"phase": "Running", "attempts": 1, "startedAt": "2026-11-21T09:00:00Z"});
        old_status(&cluster, name, running).await?;
    }
    patch_of_the_book(&cluster, 0, "running-with-pull-request")?;
    patch_of_the_book(&cluster, 1, "tried")?;
    let left_alone = ["succeeded", "failed", "running-with-pull-request"];
    let mut before = Vec::new();
    for name in left_alone {
        before.push(cluster.status(name).await?);
    }

    let documents = [
        (
            "config.yaml",
            forgejo_config(&forge.url(), &repository.full_name),
        ),
        ("secret.yaml", token_secret("bot", forge.token())),
    ];
    let hub = TestHub::start(&documents, HubOptions::default()).await?;
    let _agent = TestAgent::start(&cluster, "prod-eu", &hub, &["--leader-elect=false"]).await?;
    for name in ["waiting", "tried", "running"] {
        let status = cluster.finished(name, LIMIT).await?;
        assert_eq!(status["phase"], "Succeeded", "{name}: {status:#}");
        assert!(
            status["evidence"][0]["url"].is_string(),
            "{name}: {status:#}"
        );
        assert!(status["error"].is_null(), "{name}: {status:#}");
    }
    assert_eq!(repository.pull_requests().await?.len(), 3);
    for (name, before) in left_alone.into_iter().zip(before) {
        assert_eq!(cluster.status(name).await?, before, "{name}");
    }
    Ok(())
}
