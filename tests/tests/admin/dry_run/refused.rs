//! What the hub refuses is refused in a dry run too: with the same words, details and exit code.

use anyhow::{Context as _, Result, ensure};
use nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient;
use nabu_proto::admin_v1::cluster_service_client::ClusterServiceClient;
use nabu_proto::admin_v1::{AddClusterRequest, RestoreAdministratorRequest};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use tonic::Status;

use super::{nabuctl, rehearsed, said, stored};
use crate::bed::hub;

/// Sees that an order is refused with this code and these words, and its rehearsal in the same way.
fn refused(hub: &TestHub, order: &[&str], code: i32, words: &str) -> Result<()> {
    let before = stored(hub)?;
    let would = nabuctl(hub, &rehearsed(order))?;
    ensure!(stored(hub)? == before, "{order:?} changed something");
    let is = nabuctl(hub, order)?;
    let error = String::from_utf8_lossy(&is.stderr);
    ensure!(is.status.code() == Some(code), "{order:?}: {error}");
    ensure!(error.contains(words), "{order:?}: {error}");
    let would_be = String::from_utf8_lossy(&would.stderr);
    ensure!(would_be == error, "{order:?}: {would_be} {error}");
    ensure!(would.status.code() == Some(code), "{order:?}: {would_be}");
    ensure!(would.stdout.is_empty(), "{order:?}: {would:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_in_earnest_is_refused_in_a_rehearsal_in_the_same_words() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let give = |order: &[&str]| said(&nabuctl(&hub, order)?);
    let out = hub.dir().join("grace").display().to_string();
    let file = hub.dir().join("sealing.key/below").display().to_string();
    let pki = hub.dir().join("pki").display().to_string();
    for (order, code, words) in [
        (
            &["cluster", "revoke", "nowhere"][..],
            4,
            "there is no cluster",
        ),
        (&["cluster", "restore", "nowhere"], 4, "there is no cluster"),
        (&["cluster", "remove", "nowhere"], 4, "there is no cluster"),
        (&["cluster", "rebind", "nowhere"], 4, "there is no cluster"),
        (
            &["cluster", "rebind", "x", "--to", "a b"],
            1,
            "kube_system_uid",
        ),
        (
            &["cluster", "token", "revoke", "none"],
            4,
            "there is no token",
        ),
        (
            &["cluster", "add", "x", "--ttl", "25h"],
            1,
            "from 1s to 24h",
        ),
        (&["cluster", "add", "x", "--label", "=x"], 2, "KEY=VALUE"),
        (&["cluster", "add", "X_"], 2, "X_"),
        (&["admin", "add", "a/b", "--out", &out], 1, "use letters"),
        (
            &["admin", "add", "grace", "--out", &file],
            1,
            "cannot make the folder",
        ),
        (&["admin", "revoke", "tester"], 5, "revoke themselves"),
        (&["admin", "revoke", "a/b"], 1, "use letters"),
        (&["admin", "restore", "grace"], 4, "no revocation of"),
        (&["ca", "rotate", "finish"], 5, "no rotation is under way"),
        (&["ca", "rotate", "rollback"], 5, "no rotation is under way"),
        (&["response", "retry", "nowhere", "er-1"], 4, "no response"),
        (&["response", "cancel", "nowhere", "er-1"], 4, "no response"),
        (&["log-level", "a=b=c"], 1, "level"),
        (&["context", "use", "nothing"], 1, "no context"),
        (&["context", "delete", "nothing"], 1, "no context"),
        (
            &["context", "set", "x", "--certificate", &pki],
            1,
            "cannot read",
        ),
        (&["pki", "init", "--dir", &pki], 1, "never overwritten"),
    ] {
        refused(&hub, order, code, words)?;
    }

    give(&["admin", "revoke", "grace"])?;
    refused(
        &hub,
        &["admin", "add", "grace", "--out", &out],
        5,
        "is revoked",
    )?;
    give(&["admin", "restore", "grace"])?;
    for _ in 0..16 {
        give(&["cluster", "add", "many"])?;
    }
    refused(&hub, &["cluster", "add", "many"], 1, "16 tokens")?;
    give(&["cluster", "revoke", "many"])?;
    refused(&hub, &["cluster", "add", "many"], 5, "is revoked")?;

    give(&["admin", "add", "grace", "--out", &out])?;
    give(&["ca", "rotate", "start"])?;
    refused(&hub, &["ca", "rotate", "start"], 5, "under way")?;
    refused(&hub, &["ca", "rotate", "finish"], 5, "admin/grace")?;
    give(&["ca", "rotate", "rollback"])?;
    refused(
        &hub,
        &["ca", "rotate", "rollback"],
        5,
        "rolled back already",
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_does_not_certify_refuses_a_rehearsal_as_it_does_the_order() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    refused(&hub, &["cluster", "add", "x"], 5, "does not certify")
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_rehearses_what_their_role_does_not_let_them_do() -> Result<()> {
    let arguments = ["--admin-role", "viewer:tester"];
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&arguments)).await?;
    let out = hub.dir().join("grace").display().to_string();
    for order in [
        &["cluster", "add", "prod-eu"][..],
        &["cluster", "revoke", "prod-eu"],
        &["cluster", "restore", "prod-eu"],
        &["cluster", "remove", "prod-eu"],
        &["cluster", "rebind", "prod-eu"],
        &["cluster", "token", "revoke", "none"],
        &["admin", "add", "grace", "--out", &out],
        &["admin", "renew"],
        &["admin", "revoke", "grace"],
        &["admin", "restore", "grace"],
        &["ca", "rotate", "start"],
        &["ca", "rotate", "finish"],
        &["ca", "rotate", "rollback"],
        &["response", "retry", "prod-eu", "er-1"],
        &["response", "cancel", "prod-eu", "er-1"],
        &["log-level", "debug"],
    ] {
        refused(&hub, order, 3, "needs the role")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_get_the_same_details_of_a_refusal() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let channel = hub.admin_channel().await?;
    let mut refusals: Vec<Status> = Vec::new();
    for validate_only in [false, true] {
        let request = RestoreAdministratorRequest {
            name: "grace".to_owned(),
            validate_only,
            ..RestoreAdministratorRequest::default()
        };
        let mut client = AdministratorServiceClient::new(channel.clone());
        let answer = client.restore_administrator(request).await;
        refusals.push(answer.err().context("there is one to restore")?);
        let request = AddClusterRequest {
            cluster_id: "No_id".to_owned(),
            validate_only,
            ..AddClusterRequest::default()
        };
        let mut client = ClusterServiceClient::new(channel.clone());
        refusals.push(client.add_cluster(request).await.err().context("added")?);
    }
    let [missing, invalid, missing_too, invalid_too] = refusals.as_slice() else {
        anyhow::bail!("{refusals:?}")
    };
    for (is, would_be) in [(missing, missing_too), (invalid, invalid_too)] {
        ensure!(is.code() == would_be.code() && is.message() == would_be.message());
        ensure!(is.details() == would_be.details());
    }
    ensure!(!missing.details().is_empty());
    Ok(())
}
