//! Lists that come in pages: every line once, in one order, also while new ones are written.

use anyhow::{Result, ensure};
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient;
use nabu_proto::admin_v1::cluster_service_client::ClusterServiceClient;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::{
    ListAdministratorsRequest, ListAuditEventsRequest, ListClustersRequest, ListTokensRequest,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;

use crate::bed::{Agent, hub};

#[tokio::test(flavor = "multi_thread")]
async fn clusters_come_in_pages_each_once_and_by_name() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    // Not in the order in which they come.
    for cluster in ["c-4", "c-1", "c-0", "c-3", "c-2"] {
        Agent::connect(&hub, cluster).await?;
    }
    let mut client = AdminServiceClient::new(hub.admin_channel().await?);
    let (mut seen, mut sizes, mut page_token) = (Vec::new(), Vec::new(), String::new());
    loop {
        let request = ListClustersRequest {
            page_size: 2,
            page_token,
            ..ListClustersRequest::default()
        };
        let page = client.list_clusters(request).await?.into_inner();
        sizes.push(page.clusters.len());
        seen.extend(page.clusters.into_iter().map(|one| one.cluster_id));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        ensure!(sizes.len() < 10, "no last page");
    }
    ensure!(seen == ["c-0", "c-1", "c-2", "c-3", "c-4"], "{seen:?}");
    ensure!(sizes == [2, 2, 1], "{sizes:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_log_comes_in_pages_each_line_once_while_it_grows() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    // Each is a line, and so is every answer below.
    for name in ["ada", "grace", "joan"] {
        hub.nabuctl(&["admin", "revoke", name])?;
        hub.nabuctl(&["admin", "restore", name])?;
    }
    let mut client = OperationsServiceClient::new(hub.admin_channel().await?);
    let all = ListAuditEventsRequest::default();
    let all = client.list_audit_events(all).await?.into_inner().events;
    ensure!(all.len() >= 6, "{all:?}");
    let (mut seen, mut pages, mut page_token) = (Vec::new(), 0, String::new());
    loop {
        let request = ListAuditEventsRequest {
            page_size: 2,
            page_token,
            ..ListAuditEventsRequest::default()
        };
        let page = client.list_audit_events(request).await?.into_inner();
        ensure!(page.events.len() <= 2, "{page:?}");
        seen.extend(page.events.into_iter().map(|one| one.id));
        pages += 1;
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
        ensure!(pages < 100, "no last page");
        hub.nabuctl(&["admin", "revoke", "ada"])?;
        hub.nabuctl(&["admin", "restore", "ada"])?;
    }
    ensure!(seen.is_sorted_by(|a, b| a > b), "{seen:?}");
    for event in &all {
        ensure!(seen.contains(&event.id), "{event:?} is missing: {seen:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_and_administrators_come_in_pages_each_once_and_newest_first() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let folder = hub.dir().join("more").display().to_string();
    for name in ["ada", "grace", "joan"] {
        hub.nabuctl(&["cluster", "add", name])?;
        hub.nabuctl(&["admin", "add", name, "--out", &folder])?;
        std::fs::remove_dir_all(&folder)?;
    }
    hub.nabuctl(&["admin", "revoke", "nobody"])?;

    let mut clusters = ClusterServiceClient::new(hub.admin_channel().await?);
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    for size in [2, 1] {
        let request = ListTokensRequest {
            page_size: 2,
            page_token,
            ..ListTokensRequest::default()
        };
        let page = clusters.list_tokens(request).await?.into_inner();
        ensure!(page.tokens.len() == size, "{page:?}");
        seen.extend(page.tokens.into_iter().map(|one| one.cluster_id));
        page_token = page.next_page_token;
        ensure!(page_token.is_empty() == (size == 1), "{page_token}");
    }
    ensure!(seen == ["joan", "grace", "ada"], "{seen:?}");

    let mut administrators = AdministratorServiceClient::new(hub.admin_channel().await?);
    let all = ListAdministratorsRequest::default();
    let all = administrators.list_administrators(all).await?.into_inner();
    ensure!(all.next_page_token.is_empty() && all.certificates.len() > 3);
    let (mut seen, mut page_token) = (Vec::new(), String::new());
    loop {
        let request = ListAdministratorsRequest {
            page_size: 1,
            page_token,
        };
        let page = administrators.list_administrators(request).await?;
        let page = page.into_inner();
        ensure!(page.certificates.len() == 1, "{page:?}");
        ensure!(page.revocations.len() == usize::from(seen.is_empty()));
        seen.extend(page.certificates);
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    ensure!(seen == all.certificates, "{seen:?}");
    for wrong in ["x", "1", "x.1", "."] {
        let request = ListTokensRequest {
            page_token: wrong.to_owned(),
            ..ListTokensRequest::default()
        };
        ensure!(clusters.list_tokens(request).await.is_err(), "{wrong}");
    }
    Ok(())
}
