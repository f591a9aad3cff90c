//! Route tests, and what the hub tells of itself.

use anyhow::{Context as _, Result};
use nabu_common::build;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::test_route_request::Source;
use nabu_proto::admin_v1::{
    GetConfigStatusRequest, GetLogLevelRequest, GetVersionRequest, ListAuditEventsRequest,
    ListForgesRequest, SetLogLevelRequest, StoredResponse, TestRouteRequest,
};
use nabu_tests::objects::{config, event_response, forge_config, noop_config, write_file};
use nabu_tests::wait::eventually;
use serde_json::json;
use tonic::Code;

use crate::bed::{Agent, LIMIT, hub};

#[tokio::test(flavor = "multi_thread")]
async fn a_route_test_tells_of_the_configuration_in_force_and_of_a_proposed_one() -> Result<()> {
    let hub = hub(
        noop_config("o/in-force"),
        &["--cluster-label", "prod-eu:env=prod"],
    )
    .await?;
    let mut client = ResponseServiceClient::new(hub.admin_channel().await?);
    let spec = event_response(
        "se",
        "ugallu-gitops-responder",
        write_file("x", "a.yaml", "a: 1"),
    );
    let object = json!({"kind": "EventResponse", "metadata": {"name": "er"}, "spec": spec});
    let proposed = config(
        "  routes:\n    - match: { clusterLabels: { env: test } }\n      provider: { kind: noop, repository: o/test }\n    \
        - provider: { kind: noop, repository: o/proposed }\n      allowedPaths: [rbac/]\n",
    );
    let request = TestRouteRequest {
        source: Some(Source::Objects(object.to_string())),
        cluster_id: "prod-eu".to_owned(),
        ..TestRouteRequest::default()
    };
    let answer = client.test_route(request.clone()).await?.into_inner();
    assert_eq!(answer.repository, "o/in-force");
    assert_eq!(answer.change.context("no change")?.files[0].path, "a.yaml");

    let with = |text: &str| TestRouteRequest {
        proposed_config: text.to_owned(),
        ..request.clone()
    };
    let answer = client.test_route(with(&proposed)).await?.into_inner();
    assert_eq!(answer.error_reason, "PathNotAllowed");
    let why = &answer.routing.context("no routing")?.candidates[0];
    assert_eq!((&*why.field, &*why.found), ("clusterLabels", "env=prod"));
    let broken = proposed.replace("o/test", "nonsense");
    let answer = client.test_route(with(&broken)).await?.into_inner();
    assert_eq!(answer.findings[0].severity, "error");
    assert_eq!(answer.repository, "o/in-force", "as if it were applied");
    let refused = client.test_route(with("a: [")).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);

    // What was stored, against the same proposal.
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent
        .observe(1, write_file("x", "rbac/a.yaml", "a: 1"))
        .await?;
    agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    let stored = StoredResponse {
        cluster_id: "prod-eu".to_owned(),
        uid_or_name: "er-1".to_owned(),
    };
    let request = TestRouteRequest {
        source: Some(Source::Stored(stored)),
        proposed_config: proposed,
        ..TestRouteRequest::default()
    };
    let answer = client.test_route(request).await?.into_inner();
    assert_eq!(answer.repository, "o/proposed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_tells_what_runs_and_what_is_in_force() -> Result<()> {
    let port = nabu_tests::process::free_port()?;
    let nowhere = forge_config("forgejo-token", &format!("http://127.0.0.1:{port}"), "o/r");
    let hub = hub(nowhere, &[]).await?;
    hub.write_config(
        "bad.yaml",
        &noop_config("nonsense").replace("name: default", "name: bad"),
    )?;
    let mut client = OperationsServiceClient::new(hub.admin_channel().await?);
    let version = client.get_version(GetVersionRequest {}).await?.into_inner();
    assert_eq!(version.version, build::VERSION);
    assert_eq!(
        (&*version.commit, &*version.rustc),
        (build::COMMIT, build::RUSTC)
    );
    assert_eq!(
        (&*version.caller, &*version.caller_role),
        ("admin/tester", "admin")
    );

    let status = eventually("the bad document is told of", LIMIT, || {
        let mut client = client.clone();
        async move {
            let answer = client.get_config_status(GetConfigStatusRequest {}).await;
            let answer = answer.ok()?.into_inner();
            (answer.documents.len() == 2).then_some(answer)
        }
    })
    .await?;
    let [bad, good] = status.documents.as_slice() else {
        anyhow::bail!("{status:?}")
    };
    assert!(
        !bad.in_force && bad.findings[0].path.contains("repository"),
        "{bad:?}"
    );
    assert!(good.in_force && good.routes == 1, "{good:?}");
    assert!(!status.complete);

    let forges = client.list_forges(ListForgesRequest {}).await?.into_inner();
    let forge = forges.forges.first().context("no forge")?;
    assert_eq!(
        (&*forge.credential, &*forge.state, forge.routes),
        ("ugallu-system/bot", "CredentialMissing", 1)
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_level_of_the_log_is_set_while_the_hub_runs_and_that_is_audited() -> Result<()> {
    let hub = hub(noop_config("o/r"), &["--log-level", "error"]).await?;
    let mut client = OperationsServiceClient::new(hub.admin_channel().await?);
    let set = |level: &str, validate_only| SetLogLevelRequest {
        level: level.to_owned(),
        validate_only,
    };
    let refused = client.set_log_level(set("a=b=c", false)).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    client.set_log_level(set("debug", true)).await?;
    let level = client
        .get_log_level(GetLogLevelRequest {})
        .await?
        .into_inner();
    assert_eq!(level.level, "error", "it was only checked");
    assert_eq!(hub.log(), "");
    let answer = client
        .set_log_level(set("warn,nabu_hub=debug", false))
        .await?
        .into_inner();
    assert_eq!(answer.previous_level, "error");
    eventually("the new level is in force", LIMIT, || async {
        hub.log()
            .contains("the level of the log was set")
            .then_some(())
    })
    .await?;
    let request = ListAuditEventsRequest {
        action: "SetLogLevel".to_owned(),
        outcome: "Ok".to_owned(),
        ..ListAuditEventsRequest::default()
    };
    let lines = client.list_audit_events(request).await?.into_inner().events;
    assert_eq!(lines[0].target, "warn,nabu_hub=debug");
    assert_eq!(lines[0].actor, "admin/tester");
    Ok(())
}
