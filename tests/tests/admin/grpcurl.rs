//! The real grpcurl, with nothing but reflection, against the admin API.

use std::process::{Command, Output};

use anyhow::{Context as _, Result};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::process::go_tool;
use serde_json::Value;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::bed::hub;

fn grpcurl(hub: &TestHub, arguments: &[&str]) -> Result<Output> {
    let tls = hub.admin_tls();
    let address = hub.admin_url().replace("https://", "");
    let (flags, method): (Vec<&str>, Vec<&str>) = arguments
        .iter()
        .copied()
        .partition(|one| one.starts_with('-'));
    Command::new(go_tool("grpcurl")?)
        .arg("-cacert")
        .arg(tls.join("ca.crt"))
        .arg("-cert")
        .arg(tls.join("tls.crt"))
        .arg("-key")
        .arg(tls.join("tls.key"))
        .args(flags)
        .arg(address)
        .args(method)
        .output()
        .context("grpcurl cannot be run")
}

const SERVICES: [&str; 6] = [
    "AdminService",
    "AdministratorService",
    "AuthorityService",
    "ClusterService",
    "OperationsService",
    "ResponseService",
];

fn full_name(service: &str) -> String {
    format!("nabu.admin.v1.{service}")
}

#[tokio::test(flavor = "multi_thread")]
async fn every_service_that_is_there_says_that_it_serves() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let certifying = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let mut client = HealthClient::new(certifying.admin_channel().await?);
    for service in SERVICES.map(full_name) {
        let request = HealthCheckRequest {
            service: service.clone(),
        };
        let answer = client.check(request).await.with_context(|| service.clone());
        assert_eq!(
            answer?.into_inner().status(),
            ServingStatus::Serving,
            "{service}"
        );
    }
    // A hub with certificates from files has no authority to ask.
    let hub = hub(noop_config("o/r"), &[]).await?;
    let mut client = HealthClient::new(hub.admin_channel().await?);
    for (service, there) in SERVICES.map(|one| (one, one != "AuthorityService")) {
        let request = HealthCheckRequest {
            service: full_name(service),
        };
        assert_eq!(client.check(request).await.is_ok(), there, "{service}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_lists_describes_and_calls_by_reflection_alone() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let listed = grpcurl(&hub, &["list"])?;
    let services = String::from_utf8_lossy(&listed.stdout).into_owned();
    for name in SERVICES.map(full_name) {
        assert!(
            services.lines().any(|line| line == name),
            "{name}: {listed:?}"
        );
    }
    let described = grpcurl(&hub, &["describe", "nabu.admin.v1.ResponseService"])?;
    let text = String::from_utf8_lossy(&described.stdout);
    assert!(text.contains("rpc ExplainResponse"), "{described:?}");
    let answer = grpcurl(&hub, &["nabu.admin.v1.OperationsService/GetVersion"])?;
    let version: Value = serde_json::from_slice(&answer.stdout)?;
    assert_eq!(version["caller"], "admin/tester");
    assert_eq!(version["callerRole"], "admin");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn grpcurl_shows_the_details_of_a_refusal() -> Result<()> {
    let hub = hub(noop_config("o/r"), &["--admin-role", "viewer:*"]).await?;
    let method = "nabu.admin.v1.OperationsService/SetLogLevel";
    let refused = grpcurl(&hub, &["-format-error", method])?;
    assert!(!refused.status.success());
    let error: Value = serde_json::from_slice(&refused.stderr)?;
    assert_eq!(error["code"], 7, "PERMISSION_DENIED");
    assert_eq!(error["details"][0]["reason"], "ROLE_TOO_LOW", "{error}");
    assert_eq!(error["details"][0]["metadata"]["leastRole"], "admin");
    Ok(())
}
