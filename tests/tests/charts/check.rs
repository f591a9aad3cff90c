//! `nabuctl check` against a real API server: with the rights that the charts give all is well, and without any one of them
//! that line alone is wrong. So what it asks for is neither more nor less than what the charts give.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use nabu_tests::charts::release::{apply, create_namespace, hub_values, render};
use nabu_tests::cluster::TestCluster;
use nabu_tests::process::workspace_binary;
use nabu_tests::wait::eventually;
use serde_json::Value;

use crate::bed::shared;
use crate::rights::{Missing, apply_account, rights, take_away};

/// How long the API server may take to see that a role has changed.
const STEP: Duration = Duration::from_mins(2);

/// One line about rights: how well it is, and all of it.
#[derive(Debug)]
struct Line {
    level: String,
    message: String,
    remedy: String,
}

/// What a check says of these things.
fn check(cluster: &TestCluster, arguments: &[&str], about: &str) -> Result<Vec<Line>> {
    let output = Command::new(workspace_binary("nabuctl")?)
        .args(["check", "--without-hub", "-o", "json"])
        .args(arguments)
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("NABU_CONTEXTS", "/nowhere/contexts.yaml")
        .output()?;
    let found: Vec<Value> = serde_json::from_slice(&output.stdout)
        .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let wrong = found.iter().any(|one| one["level"] == "error");
    let code = i32::from(wrong);
    ensure!(output.status.code() == Some(code), "{output:?}");
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let about = found.iter().filter(|one| one["check"] == about);
    Ok(about
        .map(|one| Line {
            level: text(one, "level"),
            message: text(one, "message"),
            remedy: text(one, "remedy"),
        })
        .collect())
}

async fn every_right_has_its_line(objects: &[Value], arguments: &[&str]) -> Result<()> {
    let cluster = shared().await;
    apply_account(cluster, objects)?;
    let all = rights(objects);
    eventually("all is well", STEP, || async {
        let lines = check(cluster, arguments, "rbac").ok()?;
        let well = lines.iter().all(|line| line.level == "ok");
        (well && lines.len() == all.len()).then_some(())
    })
    .await?;
    for missing in &all {
        let mut fewer = objects.to_vec();
        take_away(&mut fewer, missing);
        apply_account(cluster, &fewer)?;
        // Some are given in two namespaces.
        let same = |one: &&Missing| one.resource == missing.resource && one.verb == missing.verb;
        let gone = all.iter().filter(same).count();
        let what = format!("only {missing:?} is missed");
        let wrong = eventually(&what, STEP, || async {
            let mut lines = check(cluster, arguments, "rbac").ok()?;
            lines.retain(|line| line.level != "ok");
            let resource = missing.resource.split('/').next()?;
            let words = format!("may not {} {resource}", missing.verb);
            let fits = |line: &Line| line.level == "error" && line.message.contains(&words);
            (lines.len() == gone && lines.iter().all(fits)).then_some(lines)
        })
        .await?;
        for Line { remedy, .. } in wrong {
            ensure!(remedy.starts_with("helm upgrade nabu-"), "{remedy}");
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_the_agents_rights_asks_for_what_its_chart_gives_and_for_nothing_else()
-> Result<()> {
    let cluster = shared().await;
    create_namespace(cluster, "check-agent")?;
    let account = ["--agent-account", "check-agent/nabu-agent"];
    let before = check(cluster, &account, "rbac")?;
    ensure!(
        before.len() == 1 && before[0].level == "skipped",
        "nothing is installed: {before:?}"
    );
    let pin = format!("hub.caPin=sha256:{}", "ab".repeat(32));
    let values = [
        "clusterId=check".to_owned(),
        "hub.url=https://127.0.0.1:1".to_owned(),
        pin,
        "joinToken=t".to_owned(),
    ];
    let objects = render("nabu-agent", "nabu-agent", "check-agent", &values)?;
    let own = |object: &&Value| object["metadata"]["name"] == "nabu-agent-identity";
    let secret = objects.iter().find(own).context("no Secret")?;
    apply(cluster, std::slice::from_ref(secret), &[])?;
    every_right_has_its_line(&objects, &account).await?;
    let kinds = check(cluster, &account, "crd")?;
    ensure!(
        kinds.len() == 2 && kinds.iter().all(|kind| kind.level == "ok"),
        "{kinds:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_of_the_hubs_rights_asks_for_what_its_chart_gives_and_for_nothing_else()
-> Result<()> {
    let cluster = shared().await;
    create_namespace(cluster, "check-hub")?;
    create_namespace(cluster, "check-documents")?;
    let (mut values, _) = hub_values()?;
    values.push("config.namespace=check-documents".to_owned());
    let objects = render("nabu-hub", "nabu-hub", "check-hub", &values)?;
    let account = [
        "--hub-account",
        "check-hub/nabu-hub",
        "--config-namespace",
        "check-documents",
    ];
    every_right_has_its_line(&objects, &account).await?;
    let kinds = check(cluster, &account, "crd")?;
    ensure!(
        kinds.len() == 1 && kinds[0].level == "ok" && kinds[0].message.contains("v1alpha1"),
        "{kinds:?}"
    );
    Ok(())
}
