//! Administrators who are shut out: at once, on every connection, and until somebody lets them in again.

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::uri::PathAndQuery;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::{
    ListClustersRequest, RestoreAdministratorRequest, WatchResponsesRequest,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::raw::RawCodec;
use prost::Message as _;
use serde_json::Value;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;
use tonic::client::Grpc;

use crate::bed::{LIMIT, channel, hub};

fn listed(hub: &TestHub) -> Result<Value> {
    let printed = hub.nabuctl(&["-o", "json", "admin", "list"])?;
    Ok(serde_json::from_str(&printed)?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_administrator_is_out_at_once_on_open_connections_and_after_a_restart()
-> Result<()> {
    let mut hub = hub(noop_config("o/r"), &[]).await?;
    let grace = hub.issue_admin("grace")?;
    let open = channel(hub.admin_url(), &grace).await?;
    let mut admin = AdminServiceClient::new(open.clone());
    admin.list_clusters(ListClustersRequest::default()).await?;
    let watch = ResponseServiceClient::new(open)
        .watch_responses(WatchResponsesRequest::default())
        .await?;
    let mut watch = watch.into_inner();

    hub.nabuctl(&["admin", "revoke", "grace", "--reason", "lost a laptop"])?;
    let refused = admin.list_clusters(ListClustersRequest::default()).await;
    let refused = refused.err().context("she was let in")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    ensure!(refused.message().contains("revoked"), "{refused}");
    let ended = async {
        loop {
            match watch.message().await {
                Ok(Some(_)) => {}
                ended => return ended,
            }
        }
    };
    let ended = tokio::time::timeout(LIMIT, ended).await?;
    let ended = ended.err().context("the watch ended as if all was well")?;
    ensure!(ended.code() == Code::PermissionDenied, "{ended}");

    hub.stop()?;
    hub.start_again().await?;
    let mut again = AdminServiceClient::new(channel(hub.admin_url(), &grace).await?);
    let refused = again.list_clusters(ListClustersRequest::default()).await;
    ensure!(refused.is_err(), "a restart forgot it");
    let revocations = &listed(&hub)?["revocations"];
    ensure!(revocations[0]["name"] == "grace", "{revocations:#}");
    ensure!(
        revocations[0]["revokedBy"] == "admin/tester",
        "{revocations:#}"
    );
    ensure!(
        revocations[0]["reason"] == "lost a laptop",
        "{revocations:#}"
    );
    let audited = hub.nabuctl(&["audit", "list", "--action", "AdministratorRevoked"])?;
    ensure!(audited.contains("lost a laptop"), "{audited}");

    hub.nabuctl(&["admin", "restore", "grace"])?;
    again.list_clusters(ListClustersRequest::default()).await?;
    ensure!(hub.nabuctl(&["admin", "restore", "grace"]).is_err());
    Ok(())
}

/// A call has begun when its headers have come; what is asked may come much later.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_was_begun_before_does_nothing_for_a_revoked_administrator() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let grace = hub.issue_admin("grace")?;
    let open = channel(hub.admin_url(), &grace).await?;
    let (message, messages) = tokio::sync::mpsc::channel(1);
    let mut client = Grpc::new(open.clone());
    client.ready().await?;
    let begun = tokio::spawn(async move {
        let path =
            PathAndQuery::from_static("/nabu.admin.v1.AdministratorService/RestoreAdministrator");
        let request = tonic::Request::new(ReceiverStream::new(messages));
        let mut answers = client
            .streaming(request, path, RawCodec)
            .await?
            .into_inner();
        answers.message().await
    });
    // Headers come in order on a connection, so those of the call before this one are there.
    let mut admin = AdminServiceClient::new(open);
    for _ in 0..3 {
        admin.list_clusters(ListClustersRequest::default()).await?;
    }
    hub.nabuctl(&["admin", "revoke", "grace", "--reason", "lost a laptop"])?;
    let restore = RestoreAdministratorRequest {
        name: "grace".to_owned(),
        ..RestoreAdministratorRequest::default()
    };
    message.send(Bytes::from(restore.encode_to_vec())).await?;
    drop(message);
    let refused = begun.await?.err().context("it was done")?;
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");
    ensure!(listed(&hub)?["revocations"][0]["name"] == "grace");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn one_certificate_of_an_administrator_is_revoked_and_the_other_one_goes_on() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let (lost, kept) = (hub.dir().join("lost"), hub.dir().join("kept"));
    hub.init_admin("grace", &lost)?;
    let certificates = listed(&hub)?["certificates"].clone();
    ensure!(certificates[0]["name"] == "grace", "{certificates:#}");
    ensure!(certificates[0]["role"] == "admin", "{certificates:#}");
    let fingerprint = certificates[0]["fingerprint"].as_str().context("none")?;
    hub.init_admin("grace", &kept)?;
    hub.nabuctl(&["admin", "revoke", "--fingerprint", fingerprint])?;
    for (folder, in_force) in [(&lost, false), (&kept, true)] {
        let mut admin = AdminServiceClient::new(channel(hub.admin_url(), folder).await?);
        let answer = admin.list_clusters(ListClustersRequest::default()).await;
        ensure!(answer.is_ok() == in_force, "{answer:?}");
    }
    let states: Vec<_> = listed(&hub)?["certificates"]
        .as_array()
        .context("no list")?
        .iter()
        .map(|one| (one["name"].to_string(), one["revoked"].to_string()))
        .collect();
    let wanted = [("grace", false), ("grace", true), ("tester", false)];
    let wanted = wanted.map(|(name, revoked)| (format!("\"{name}\""), revoked.to_string()));
    ensure!(states == wanted, "{states:?}");
    // Nobody gives a revoked name a new certificate.
    hub.nabuctl(&["admin", "revoke", "grace"])?;
    let out = hub.dir().join("new").display().to_string();
    let refused = hub.nabuctl(&["admin", "add", "grace", "--out", &out]);
    ensure!(refused.unwrap_err().to_string().contains("revoked"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_administrator_is_revoked_only_at_the_socket() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("admin.sock").display().to_string();
    let roles = [
        "--admin-role",
        "admin:tester",
        "--admin-role",
        "operator:grace",
    ];
    let arguments = [&["--admin-socket", &socket][..], &roles].concat();
    let hub = hub(noop_config("o/r"), &arguments).await?;
    let refused = hub.nabuctl(&["admin", "revoke", "tester"]).unwrap_err();
    ensure!(
        refused.to_string().contains("revoke themselves"),
        "{refused}"
    );
    hub.nabuctl(&["cluster", "list"])?;

    let grace = hub.issue_admin("grace")?;
    let mut operator =
        nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient::new(
            channel(hub.admin_url(), &grace).await?,
        );
    let request = nabu_proto::admin_v1::RevokeAdministratorRequest {
        name: "tester".to_owned(),
        ..Default::default()
    };
    let refused = operator.revoke_administrator(request).await.unwrap_err();
    ensure!(refused.code() == Code::PermissionDenied, "{refused}");

    let at_socket = |arguments: &[&str]| hub.nabuctl_at(&format!("unix:{socket}"), arguments);
    at_socket(&["admin", "revoke", "tester"])?;
    ensure!(hub.nabuctl(&["cluster", "list"]).is_err());
    at_socket(&["admin", "restore", "tester"])?;
    hub.nabuctl(&["cluster", "list"])?;
    Ok(())
}
