//! `nabuctl check` against real hubs and a real API server. The rights of the charts are in `tests/charts/check.rs`.

use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, PostParams};
use nabu_hub::pki::{Authority, Subject};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{forge_config, noop_config};
use nabu_tests::process::{free_port, workspace_binary};
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::{Agent, LIMIT, hub};
use crate::nabuctl::{text, with_a_response};

/// What a check has found, and the exit code.
struct Checked {
    code: Option<i32>,
    lines: Vec<Value>,
}

impl Checked {
    fn read(output: &Output) -> Result<Self> {
        Ok(Self {
            code: output.status.code(),
            lines: serde_json::from_slice(&output.stdout)
                .with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?,
        })
    }

    /// The levels of all lines about something.
    fn levels(&self, check: &str) -> Vec<&str> {
        let about = self.lines.iter().filter(|line| line["check"] == check);
        about
            .map(|line| line["level"].as_str().unwrap_or_default())
            .collect()
    }

    /// The remedies of all lines about something that are of a level.
    fn remedies(&self, check: &str, level: &str) -> Vec<&str> {
        let fits = |line: &&Value| line["check"] == check && line["level"] == level;
        let about = self.lines.iter().filter(fits);
        about
            .map(|line| line["remedy"].as_str().unwrap_or_default())
            .collect()
    }

    fn of_level(&self, level: &str) -> usize {
        self.lines
            .iter()
            .filter(|line| line["level"] == level)
            .count()
    }
}

fn command(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(workspace_binary("nabuctl")?);
    command
        .args(["-o", "json", "check"])
        .args(arguments)
        .env("NABU_CONTEXTS", "/nowhere/contexts.yaml")
        .env_remove("NABU_HUB")
        .env_remove("NABU_TLS_DIR");
    Ok(command)
}

fn check_with(hub: &TestHub, tls: &std::path::Path, arguments: &[&str]) -> Result<Checked> {
    let output = command(arguments)?
        .args(["--hub", &hub.admin_url(), "--tls-dir"])
        .arg(tls)
        .output()?;
    Checked::read(&output)
}

fn check(hub: &TestHub, arguments: &[&str]) -> Result<Checked> {
    check_with(hub, &hub.admin_tls(), arguments)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_finds_nothing_where_all_is_well_and_else_says_what_mends_it() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let checked = text(
        &Command::new(workspace_binary("nabuctl")?)
            .args(["check", "--agents-url", &hub.agents_url()])
            .env("NABU_CONTEXTS", hub.dir().join("contexts.yaml"))
            .output()?,
    );
    for part in [
        "certificate",
        "clock",
        "admin/tester has the role admin",
        "prod-eu is connected",
        &format!("{} answers", hub.agents_url()),
    ] {
        assert!(checked.contains(part), "{part}: {checked}");
    }
    assert!(!checked.contains("to mend it"), "{checked}");

    hub.write_config(
        "config.yaml",
        &forge_config("gitlab-token", "https://127.0.0.1:1", "o/r"),
    )?;
    let wrong = eventually("the check finds it", LIMIT, || async {
        let checked = check(&hub, &[]).ok()?;
        (checked.code == Some(1)).then_some(checked)
    })
    .await?;
    assert_eq!(wrong.of_level("error"), 1, "{:?}", wrong.lines);
    let remedy = wrong.remedies("forge", "error")[0];
    assert!(
        remedy.contains("kubectl -n ugallu-system create secret generic bot"),
        "{remedy}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_hub_certifies_its_authority_and_the_door_of_the_agents_are_looked_at()
-> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    hub.add_cluster("prod-eu", &[])?;
    let checked = check(&hub, &[])?;
    assert_eq!(checked.code, Some(0), "{:?}", checked.lines);
    // That of the hub, and that of our ca.crt.
    assert_eq!(checked.levels("authority"), ["ok", "ok"]);
    assert_eq!(
        checked.levels("agents"),
        ["ok"],
        "the hub tells its address"
    );
    // Our own, and what the hub shows at both doors.
    assert_eq!(checked.levels("certificate"), ["ok", "ok", "ok"]);
    assert_eq!(checked.levels("cluster"), ["warning"]);
    let pending = checked.remedies("cluster", "warning")[0];
    assert!(pending.contains("nabuctl cluster add prod-eu"), "{pending}");

    hub.nabuctl(&["cluster", "revoke", "prod-eu"])?;
    let revoked = check(&hub, &[])?;
    let remedy = revoked.remedies("cluster", "warning")[0];
    assert!(
        remedy.contains("nabuctl cluster restore prod-eu"),
        "{remedy}"
    );

    hub.nabuctl(&["ca", "rotate", "start"])?;
    let rotating = check(&hub, &[])?;
    assert_eq!(rotating.remedies("authority", "warning").len(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agents_address_is_judged_by_pin_before_anything_is_installed() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let pin = added["caPins"][0].as_str().context("no pin")?.to_owned();
    let url = hub.agents_url();
    let before = |more: &[&str]| -> Result<Checked> {
        let fixed = ["--without-hub", "--tls-dir", "/nowhere", "--agents-url"];
        Checked::read(&command(&[&fixed, more].concat())?.output()?)
    };
    let pinned = before(&[&url, "--agents-ca-pin", &pin])?;
    assert_eq!(pinned.levels("agents"), ["ok"]);
    assert_eq!(pinned.levels("hub"), ["skipped"]);
    let unproven = before(&[&url])?;
    assert_eq!(unproven.levels("agents"), ["skipped"], "never ok");
    let wrong = format!("sha256:{}", "00".repeat(32));
    let wrong = before(&[&url, "--agents-ca-pin", &wrong])?;
    assert_eq!(
        (wrong.code, wrong.levels("agents")),
        (Some(1), vec!["error"])
    );
    let named = before(&[
        &url,
        "--agents-ca-pin",
        &pin,
        "--agents-server-name",
        "other.example",
    ])?;
    let remedy = named.remedies("agents", "error")[0];
    assert!(remedy.contains("nabu-hub with --server-name"), "{remedy}");
    let nobody = format!("https://127.0.0.1:{}", free_port()?);
    let nobody = before(&[&nobody])?;
    let remedy = nobody.remedies("agents", "error")[0];
    assert!(
        remedy.contains("kubectl -n nabu-system get pods"),
        "{remedy}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_cannot_be_asked_is_one_error_and_what_it_would_say_is_skipped() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let folder = tempfile::tempdir()?;
    let stranger = Authority::create(&folder.path().join("ca"), "nabu")?;
    let tls = folder.path().join("tls");
    stranger.issue_into(&Subject::admin("tester"), &tls)?;
    let checked = check_with(&hub, &tls, &[])?;
    assert_eq!(checked.code, Some(1));
    assert_eq!(checked.levels("hub"), ["error", "skipped"]);
    let remedy = checked.remedies("hub", "error")[0];
    assert!(remedy.contains("openssl s_client"), "{remedy}");

    // The authority is right, and the hub does not know the name.
    let mut hub = self::hub(noop_config("o/r"), &["--admin-role", "viewer:somebody"]).await?;
    let checked = check(&hub, &[])?;
    assert_eq!(
        (checked.code, checked.levels("role")),
        (Some(1), vec!["error"])
    );
    let remedy = checked.remedies("role", "error")[0];
    assert!(remedy.contains("nabu-hub --admin-role"), "{remedy}");

    hub.kill()?;
    let gone = check(&hub, &[])?;
    assert_eq!(gone.levels("hub"), ["error", "skipped"]);
    let remedy = gone.remedies("hub", "error")[0];
    assert!(
        remedy.contains("kubectl -n nabu-system get pods"),
        "{remedy}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_away_has_the_last_error_and_where_to_look() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let agent = Agent::connect(&hub, "prod-eu").await?;
    drop(agent);
    let away = eventually("the session has ended", LIMIT, || async {
        let checked = check(&hub, &[]).ok()?;
        (checked.levels("cluster") == ["error"]).then_some(checked)
    })
    .await?;
    let remedy = away.remedies("cluster", "error")[0];
    assert!(remedy.starts_with("in prod-eu: kubectl"), "{remedy}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_check_looks_at_a_cluster_before_anything_is_installed() -> Result<()> {
    let cluster = TestCluster::start(Crds::None).await?;
    let before = |more: &[&str]| -> Result<Checked> {
        let fixed = ["--without-hub", "--kubernetes"];
        let output = command(&[&fixed, more].concat())?
            .env("KUBECONFIG", cluster.kubeconfig())
            .output()?;
        Checked::read(&output)
    };
    let empty = before(&["--agent-account", "nabu/nobody"])?;
    assert_eq!(empty.code, Some(0), "{:?}", empty.lines);
    assert_eq!(empty.levels("kubernetes"), ["ok"]);
    assert_eq!(empty.levels("crd"), ["skipped", "skipped"]);
    assert_eq!(empty.levels("rbac"), ["skipped"]);
    assert_eq!(before(&[])?.levels("crd"), ["skipped"; 3], "the hub's too");

    // What has its account is installed, and what is missing is wrong.
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "nabu-agent"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let half = before(&["--agent-account", "default/nabu-agent"])?;
    assert_eq!((half.code, half.levels("crd")), (Some(1), vec!["error"; 2]));

    // So it is with a hub.
    let hub = hub(noop_config("o/r"), &[]).await?;
    let output = command(&["--hub-account", "nabu/nobody"])?
        .args(["--hub", &hub.admin_url(), "--tls-dir"])
        .arg(hub.admin_tls())
        .env("KUBECONFIG", cluster.kubeconfig())
        .output()?;
    let after = Checked::read(&output)?;
    assert_eq!(after.levels("crd"), ["error"]);
    let remedy = after.remedies("crd", "error")[0];
    let command = "kubectl apply --server-side -f charts/crds/gitopsresponderconfigs.yaml";
    assert!(remedy.starts_with(command), "{remedy}");
    assert_eq!(after.levels("rbac"), ["error"]);
    Ok(())
}
