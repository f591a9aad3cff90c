//! What the admin API refuses has `google.rpc` details, as the book says.

use anyhow::Result;
use nabu_proto::admin_v1::authority_service_client::AuthorityServiceClient;
use nabu_proto::admin_v1::cluster_service_client::ClusterServiceClient;
use nabu_proto::admin_v1::{
    AddClusterRequest, FinishRotationRequest, IssueAdminCertificateRequest, RebindClusterRequest,
    RemoveClusterRequest, RevokeClusterRequest, RevokeTokenRequest,
};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::bed::hub;

fn field(status: &Status) -> String {
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let request = status.get_details_bad_request();
    request.map_or_else(String::new, |request| {
        request.field_violations[0].field.clone()
    })
}

fn resource(status: &Status) -> String {
    assert_eq!(status.code(), Code::NotFound, "{status}");
    let resource = status.get_details_resource_info();
    resource.map_or_else(String::new, |resource| {
        format!("{} {}", resource.resource_type, resource.resource_name)
    })
}

fn reason(status: &Status) -> String {
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let info = status.get_details_error_info();
    info.map_or_else(String::new, |info| {
        assert_eq!(info.domain, "nabu.admin");
        info.reason
    })
}

fn adding(cluster: &str) -> AddClusterRequest {
    AddClusterRequest {
        cluster_id: cluster.to_owned(),
        ..AddClusterRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_refused_about_identities_says_so_to_programs_too() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let certifying = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let channel = certifying.admin_channel().await?;
    let mut clusters = ClusterServiceClient::new(channel.clone());
    let mut authority = AuthorityServiceClient::new(channel);

    let forever = prost_types::Duration {
        seconds: 999_999,
        nanos: 0,
    };
    let too_long = AddClusterRequest {
        ttl: Some(forever),
        ..adding("prod-eu")
    };
    assert_eq!(
        field(&clusters.add_cluster(too_long).await.unwrap_err()),
        "ttl"
    );
    let labelled = AddClusterRequest {
        labels: [(String::new(), String::new())].into(),
        ..adding("prod-eu")
    };
    assert_eq!(
        field(&clusters.add_cluster(labelled).await.unwrap_err()),
        "labels"
    );
    let moved = RebindClusterRequest {
        cluster_id: "prod-eu".to_owned(),
        kube_system_uid: "a b".to_owned(),
        ..RebindClusterRequest::default()
    };
    let moved = clusters.rebind_cluster(moved).await.unwrap_err();
    assert_eq!(field(&moved), "kube_system_uid");
    let issued = IssueAdminCertificateRequest {
        name: "ada".to_owned(),
        ..IssueAdminCertificateRequest::default()
    };
    let issued = authority.issue_admin_certificate(issued).await.unwrap_err();
    assert_eq!(field(&issued), "csr_der");

    let revoked = RevokeClusterRequest {
        cluster_id: "nowhere".to_owned(),
        ..RevokeClusterRequest::default()
    };
    let revoked = clusters.revoke_cluster(revoked).await.unwrap_err();
    assert_eq!(resource(&revoked), "cluster nowhere");
    let removed = RemoveClusterRequest {
        cluster_id: "nowhere".to_owned(),
        ..RemoveClusterRequest::default()
    };
    let removed = clusters.remove_cluster(removed).await.unwrap_err();
    assert_eq!(resource(&removed), "cluster nowhere");
    let token = RevokeTokenRequest {
        token_id: "t".to_owned(),
        ..RevokeTokenRequest::default()
    };
    let token = clusters.revoke_token(token).await.unwrap_err();
    assert_eq!(resource(&token), "token \"t\"");

    let finished = FinishRotationRequest::default();
    let finished = authority.finish_rotation(finished).await.unwrap_err();
    assert_eq!(reason(&finished), "ROTATION_STATE");
    let add = clusters.add_cluster(adding("prod-eu")).await?;
    assert!(!add.into_inner().token.is_empty());
    let revoke = RevokeClusterRequest {
        cluster_id: "prod-eu".to_owned(),
        ..RevokeClusterRequest::default()
    };
    clusters.revoke_cluster(revoke).await?;
    let again = clusters.add_cluster(adding("prod-eu")).await.unwrap_err();
    assert_eq!(reason(&again), "CLUSTER_REVOKED");

    let plain = hub(noop_config("o/r"), &[]).await?;
    let mut clusters = ClusterServiceClient::new(plain.admin_channel().await?);
    let uncertified = clusters.add_cluster(adding("prod-eu")).await.unwrap_err();
    assert_eq!(reason(&uncertified), "NO_AUTHORITY");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_a_cluster_have_an_end_that_programs_can_read() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let mut clusters = ClusterServiceClient::new(hub.admin_channel().await?);
    let mut refused = None;
    for _ in 0..100 {
        if let Err(status) = clusters.add_cluster(adding("prod-eu")).await {
            refused = Some(status);
            break;
        }
    }
    let status = refused.unwrap();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].subject, "tokens of cluster prod-eu");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn values_are_a_form_of_output_of_the_one_command_that_has_them() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let (url, tls) = (hub.admin_url(), hub.admin_tls().display().to_string());
    let ask = |order: &[&str]| {
        let at = ["--hub", &url, "--tls-dir", &tls];
        crate::nabuctl::run(&hub, &[&at, order].concat())
    };
    let values = ask(&["cluster", "add", "prod-eu", "-o", "values"])?;
    let values: serde_json::Value = serde_saphyr::from_str(&crate::nabuctl::text(&values))?;
    assert_eq!(values["clusterId"], "prod-eu");
    assert!(!values["joinToken"].as_str().unwrap().is_empty());
    let refused = ask(&["cluster", "list", "-o", "values"])?;
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("cluster add"), "{said}");
    Ok(())
}
