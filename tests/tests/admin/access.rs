//! Who may call what, and what the audit log says of it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nabu_proto::admin_v1::ListClustersRequest;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_tests::hub::TestHub;
use nabu_tests::objects::noop_config;
use nabu_tests::wait::eventually;
use tonic::Code;
use tonic::transport::Endpoint;

use crate::bed::{LIMIT, channel, hub};

/// What a statement finds in the hub's database, as an administrator would look with SQLite's own shell.
fn sqlite(hub: &TestHub, statement: &str) -> Result<String> {
    let output = Command::new("sqlite3")
        .args(["-cmd", ".timeout 5000"])
        .arg(hub.store_path())
        .arg(statement)
        .output()
        .context("sqlite3 cannot be run")?;
    let failure = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{statement}: {failure}");
    Ok(String::from_utf8(output.stdout)?)
}

async fn audited(hub: &TestHub, wanted: &str) -> Result<String> {
    let statement = "SELECT actor, action, outcome, method FROM audit WHERE method IS NOT NULL";
    eventually(&format!("the audit log has {wanted}"), LIMIT, || async {
        sqlite(hub, statement)
            .ok()
            .filter(|lines| lines.contains(wanted))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_without_a_role_is_refused_with_details_and_audited() -> Result<()> {
    let hub = hub(noop_config("o/r"), &["--admin-role", "viewer:tester"]).await?;
    let stranger = hub.issue_admin("stranger")?;
    let refused = AdminServiceClient::new(channel(hub.admin_url(), &stranger).await?)
        .list_clusters(ListClustersRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("--admin-role"), "{refused}");
    assert!(!refused.details().is_empty(), "google.rpc.ErrorInfo");
    audited(&hub, "admin/stranger|ListClusters|PermissionDenied").await?;

    hub.nabuctl(&["cluster", "list"])?;
    let lines = audited(&hub, "admin/tester|ListClusters|Ok").await?;
    assert!(lines.contains("nabu.admin.v1.AdminService/ListClusters"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agents_certificate_is_refused_and_audited_as_the_cluster_that_it_is() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let agent = hub.issue_agent("prod-eu")?;
    let refused = AdminServiceClient::new(channel(hub.admin_url(), &agent).await?)
        .list_clusters(ListClustersRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    audited(&hub, "cluster/prod-eu|ListClusters|PermissionDenied").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_machines_own_operator_needs_no_certificate_at_the_socket() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("admin.sock");
    let path = socket.to_str().context("a path that is no text")?;
    // Whoever comes with a certificate may nothing here.
    let mut hub = hub(
        noop_config("o/r"),
        &["--admin-socket", path, "--admin-role", "viewer:nobody"],
    )
    .await?;
    let channel = Endpoint::from_shared(format!("unix:{path}"))?
        .connect()
        .await?;
    AdminServiceClient::new(channel)
        .list_clusters(ListClustersRequest::default())
        .await?;
    let user = rustix::process::getuid().as_raw();
    audited(&hub, &format!("local/{user}|ListClusters|Ok")).await?;
    assert!(hub.nabuctl(&["cluster", "list"]).is_err());
    let listed = hub.nabuctl_at(&format!("unix:{path}"), &["cluster", "list"])?;
    assert!(listed.contains("no cluster"), "{listed}");
    assert!(hub.stop()?.success());
    assert!(!socket.exists(), "the socket goes with the hub");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_audited_survives_the_end_of_the_hub() -> Result<()> {
    let mut hub = hub(noop_config("o/r"), &[]).await?;
    for _ in 0..3 {
        hub.nabuctl(&["cluster", "list"])?;
    }
    assert!(hub.stop()?.success());
    let lines = sqlite(
        &hub,
        "SELECT detail FROM audit WHERE action = 'ListClusters'",
    )?;
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.contains("2 times more since"), "{lines}");
    Ok(())
}
