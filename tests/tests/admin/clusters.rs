//! What the hub tells of a cluster, as its agent said it.

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use nabu_proto::PROTOCOL_VERSION;
use nabu_proto::admin_v1::admin_service_client::AdminServiceClient;
use nabu_proto::admin_v1::response_service_client::ResponseServiceClient;
use nabu_proto::admin_v1::test_route_request::Source;
use nabu_proto::admin_v1::{Cluster, ListClustersRequest, TestRouteRequest};
use nabu_proto::agent_v1::session_request::Frame;
use nabu_proto::agent_v1::{Heartbeat, Hello, StatusRefused};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{
    config, event_response, forge_config, noop_config, token_secret, write_file,
};
use nabu_tests::wait::eventually;
use serde_json::{Value, json};
use tonic::Code;

use crate::bed::{Agent, LIMIT, hub};

async fn cluster(hub: &TestHub, id: &str) -> Result<Cluster> {
    let request = ListClustersRequest {
        cluster_id: id.to_owned(),
        ..ListClustersRequest::default()
    };
    let mut client = AdminServiceClient::new(hub.admin_channel().await?);
    let clusters = client.list_clusters(request).await?.into_inner().clusters;
    clusters.into_iter().next().context("no cluster")
}

/// Waits until the hub tells of a cluster what is wanted.
async fn until(hub: &TestHub, id: &str, wanted: impl Fn(&Cluster) -> bool) -> Result<Cluster> {
    eventually("the hub tells what is wanted", LIMIT, || async {
        cluster(hub, id).await.ok().filter(&wanted)
    })
    .await
}

/// The Hello of a cluster whose clock is wrong by so much.
fn hello(id: &str, skew: SignedDuration) -> Result<Hello> {
    let sent_at = Timestamp::now().checked_add(skew)?;
    Ok(Hello {
        protocol_version: PROTOCOL_VERSION,
        kube_system_uid: format!("kube-system-of-{id}"),
        agent_version: "0.1.0-test".to_owned(),
        kubernetes_version: "v1.35.4".to_owned(),
        sent_at: Some(prost_types::Timestamp {
            seconds: sent_at.as_second(),
            nanos: 0,
        }),
        ..Hello::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_shows_what_its_agent_said_for_as_long_as_its_session_is_open() -> Result<()> {
    let port = nabu_tests::process::free_port()?;
    let nowhere = forge_config("forgejo-token", &format!("http://127.0.0.1:{port}"), "o/r");
    let config = format!("{nowhere}\n---\n{}", token_secret("bot", "t0ken"));
    let hub = hub(config, &[]).await?;
    let slow = SignedDuration::from_hours(-1);
    let mut agent = Agent::connect_with(&hub, "prod-eu", hello("prod-eu", slow)?).await?;
    let seen = cluster(&hub, "prod-eu").await?;
    assert_eq!((&*seen.state, seen.connected), ("Active", true));
    assert_eq!(seen.agent_version, "0.1.0-test");
    assert_eq!(seen.kubernetes_version, "v1.35.4");
    assert!(seen.last_seen_at.is_some());
    assert_eq!(seen.backlog, None, "no heartbeat has come yet");
    assert_eq!((seen.unfinished, seen.oldest_unfinished_at), (0, None));
    assert_eq!((&*seen.last_error, seen.last_error_at), ("", None));
    let skew = seen.clock_skew.context("no skew")?.seconds;
    assert!((-3700..=-3590).contains(&skew), "{skew}");

    agent
        .say(Frame::Heartbeat(Heartbeat {
            backlog: 7,
            ..Heartbeat::default()
        }))
        .await?;
    let uid = agent
        .observe(1, write_file("revoke-clusterrolebinding", "a.yaml", "a: 1"))
        .await?;
    agent
        .status(&uid, |status| status.next_attempt_at.is_some())
        .await?;
    let seen = until(&hub, "prod-eu", |seen| seen.backlog == Some(7)).await?;
    assert_eq!(seen.unfinished, 1);
    assert!(seen.oldest_unfinished_at.is_some());

    drop(agent);
    let seen = until(&hub, "prod-eu", |seen| !seen.connected).await?;
    assert_eq!((seen.backlog, seen.clock_skew), (None, None));
    assert_eq!(seen.agent_version, "0.1.0-test", "as it was last");
    let missing = cluster(&hub, "prod-us").await.unwrap_err();
    let status = missing
        .downcast_ref::<tonic::Status>()
        .context("no status")?;
    assert_eq!(status.code(), Code::NotFound, "{status}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_went_wrong_last_with_an_agent_is_told_and_outlives_the_hub() -> Result<()> {
    let mut hub = hub(noop_config("o/r"), &[]).await?;
    let mut agent = Agent::connect(&hub, "prod-eu").await?;
    let uid = agent.observe(1, write_file("x", "a.yaml", "a: 1")).await?;
    let status = agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    agent
        .say(Frame::StatusRefused(StatusRefused {
            uid,
            revision: status.revision,
            reason: "status.phase: not allowed".to_owned(),
        }))
        .await?;
    let refused = |seen: &Cluster| seen.last_error.starts_with("StatusRefused: ");
    let seen = until(&hub, "prod-eu", refused).await?;
    assert!(seen.last_error.contains("status.phase: not allowed"));
    assert!(seen.last_error_at.is_some());

    let ancient = Hello {
        protocol_version: 99,
        ..hello("prod-us", SignedDuration::ZERO)?
    };
    drop(Agent::connect(&hub, "prod-us").await?);
    until(&hub, "prod-us", |seen| !seen.connected).await?;
    assert!(Agent::connect_with(&hub, "prod-us", ancient).await.is_err());
    assert!(hub.stop()?.success());
    hub.start_again().await?;
    let seen = until(&hub, "prod-us", |seen| !seen.last_error.is_empty()).await?;
    assert!(
        seen.last_error
            .starts_with("SessionRefused: the agent speaks protocol version 99"),
        "{}",
        seen.last_error
    );
    assert!(refused(&cluster(&hub, "prod-eu").await?));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_cluster_add_count_and_the_command_line_goes_before_them() -> Result<()> {
    let arguments = ["--cluster-label", "prod-eu:env=prod"];
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&arguments)).await?;
    hub.add_cluster("prod-eu", &["--label", "env=test", "--label", "region=eu"])?;
    let seen = cluster(&hub, "prod-eu").await?;
    assert_eq!(seen.state, "Pending");
    let labels = [("env", "prod"), ("region", "eu")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(seen.labels, labels.into());
    let spec = event_response(
        "se",
        "ugallu-gitops-responder",
        write_file("x", "a.yaml", "a: 1"),
    );
    let object = json!({"kind": "EventResponse", "metadata": {"name": "er"}, "spec": spec});
    let proposed = config(
        "  routes:\n    - match: { clusterLabels: { env: prod, region: eu } }\n      \
        provider: { kind: noop, repository: o/labelled }\n",
    );
    let request = TestRouteRequest {
        source: Some(Source::Objects(object.to_string())),
        cluster_id: "prod-eu".to_owned(),
        proposed_config: proposed,
        ..TestRouteRequest::default()
    };
    let mut client = ResponseServiceClient::new(hub.admin_channel().await?);
    let answer = client.test_route(request).await?.into_inner();
    assert_eq!(answer.repository, "o/labelled");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nabuctl_shows_a_cluster_in_every_form() -> Result<()> {
    let hub = hub(noop_config("o/r"), &["--cluster-label", "prod-eu:env=prod"]).await?;
    let fast = SignedDuration::from_secs(90);
    let agent = Agent::connect_with(&hub, "prod-eu", hello("prod-eu", fast)?).await?;
    agent
        .say(Frame::Heartbeat(Heartbeat {
            backlog: 7,
            ..Heartbeat::default()
        }))
        .await?;
    until(&hub, "prod-eu", |seen| seen.backlog.is_some()).await?;
    let one: Value =
        serde_json::from_str(&hub.nabuctl(&["cluster", "get", "prod-eu", "-o", "json"])?)?;
    assert_eq!(one["backlog"], 7);
    assert_eq!(one["labels"]["env"], "prod");
    let skew = one["clockSkewSeconds"].as_f64().context("no skew")?;
    assert!((30.0..=91.0).contains(&skew), "{skew}");
    let text = hub.nabuctl(&["cluster", "get", "prod-eu"])?;
    for part in ["Backlog:", "Clock:", "Labels:", "env=prod", "0.1.0-test"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let wide = hub.nabuctl(&["cluster", "list", "-o", "wide"])?;
    for part in [
        "BACKLOG",
        "CLOCK",
        "LAST ERROR",
        "CERTIFICATE UNTIL",
        "env=prod",
    ] {
        assert!(wide.contains(part), "{part}: {wide}");
    }
    let unknown = hub.nabuctl(&["cluster", "get", "nowhere"]).unwrap_err();
    assert!(
        unknown.to_string().contains("nabuctl cluster list"),
        "{unknown}"
    );
    Ok(())
}
