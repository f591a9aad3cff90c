//! The binaries as people meet them: help, errors, health, signals.

use std::process::{Command, Output};
use std::time::Duration;

use anyhow::Result;
use nabu_tests::agent::TestAgent;
use nabu_tests::cluster::unreachable_kubeconfig;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::process::{Process, workspace_binary};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::bed::{Bed, eu, unique};

fn run(binary: &str, arguments: &[&str]) -> Result<Output> {
    Ok(Command::new(workspace_binary(binary)?)
        .args(arguments)
        .env("NABU_LOG_FORMAT", "text")
        .output()?)
}

#[test]
fn help_names_every_flag_with_its_variable_and_default() -> Result<()> {
    for (binary, prefix) in [("nabu-hub", "NABU_HUB_"), ("nabu-agent", "NABU_AGENT_")] {
        let help = String::from_utf8(run(binary, &["--help"])?.stdout)?;
        let flags = help
            .lines()
            .filter(|line| line.trim_start().starts_with("--"))
            .count();
        assert!(flags > 8, "{help}");
        let variables = help.matches("[env: NABU_").count();
        // --help and --version have none.
        assert!(
            variables + 2 >= flags,
            "{binary}: {variables} of {flags}: {help}"
        );
        assert!(
            help.contains(prefix) && help.contains("[default: "),
            "{help}"
        );
    }
    for binary in ["nabu-hub", "nabu-agent", "nabuctl"] {
        let version = String::from_utf8(run(binary, &["--version"])?.stdout)?;
        assert_eq!(
            version.trim(),
            format!("{binary} {}", nabu_common::build::FACTS)
        );
    }
    Ok(())
}

fn assert_one_line(output: &Output, parts: &[&str]) {
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    let errors: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("error: "))
        .collect();
    assert_eq!(errors.len(), 1, "{text}");
    for part in parts {
        assert!(errors[0].contains(part), "{part}: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_hub_from_starting_is_one_line_with_the_remedy() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let tls = hub.dir().join("tls");
    let path = |name: &str| tls.join(name).display().to_string();
    let (ca, cert, key) = (path("ca.crt"), path("tls.crt"), path("tls.key"));
    let store = hub.dir().join("other.db").display().to_string();
    let config = hub.config_dir().display().to_string();
    let good = [
        ("--listen-agents", "127.0.0.1:0"),
        ("--listen-admin", "127.0.0.1:0"),
        ("--listen-ops", "127.0.0.1:0"),
        ("--tls-ca", ca.as_str()),
        ("--tls-cert", cert.as_str()),
        ("--tls-key", key.as_str()),
        ("--store", store.as_str()),
        ("--config-dir", config.as_str()),
    ];
    let taken = hub.agents_url().trim_start_matches("https://").to_owned();
    let in_use = hub.store_path().display().to_string();
    for (flag, value, parts) in [
        (
            "--listen-agents",
            taken.as_str(),
            vec!["--listen-agents", "in use"],
        ),
        (
            "--tls-key",
            "/does/not/exist",
            vec!["/does/not/exist", "check the path"],
        ),
        ("--tls-cert", key.as_str(), vec!["tls.key", "certificate"]),
        (
            "--store",
            "/does/not/exist/nabu.db",
            vec!["/does/not/exist/nabu.db", "--store"],
        ),
        (
            "--store",
            in_use.as_str(),
            vec!["in use by another nabu-hub"],
        ),
        (
            "--config-dir",
            "/does/not/exist",
            vec!["--config-dir", "/does/not/exist"],
        ),
    ] {
        let arguments: Vec<_> = good
            .iter()
            .flat_map(|(name, usual)| [*name, if *name == flag { value } else { usual }])
            .collect();
        assert_one_line(&run("nabu-hub", &arguments)?, &parts);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_without_its_api_server_says_so_and_ends() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let tls = hub.issue_agent("prod-eu")?;
    let kubeconfig = unreachable_kubeconfig(hub.dir())?;
    let output = Command::new(workspace_binary("nabu-agent")?)
        .args([
            "--cluster-id",
            "prod-eu",
            "--hub",
            &hub.agents_url(),
            "--listen",
            "127.0.0.1:0",
        ])
        .arg("--tls-ca")
        .arg(tls.join("ca.crt"))
        .arg("--tls-cert")
        .arg(tls.join("tls.crt"))
        .arg("--tls-key")
        .arg(tls.join("tls.key"))
        .env("KUBECONFIG", kubeconfig)
        .output()?;
    assert_one_line(&output, &["API server"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_binaries_drain_and_exit_0_when_they_are_told_to() -> Result<()> {
    let mut bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    assert!(bed.eu.stop()?.success());
    assert!(bed.hub.stop()?.success());
    // The agent that has no hub any more ends as well.
    assert!(bed.us.stop()?.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_of_an_agent_take_turns_by_a_lease() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let responder = unique("responder");
    let lease = unique("lease");
    let arguments = [
        "--responder",
        responder.as_str(),
        "--leader-elect=true",
        "--leader-elect-namespace",
        "default",
        "--leader-elect-lease",
        lease.as_str(),
    ];
    let mut first = TestAgent::start(eu().await, "prod-eu", &hub, &arguments).await?;
    let mut second = TestAgent::prepare(eu().await, "prod-eu", &hub, &arguments)?;
    second.launch()?;
    let serve = |name: String| {
        let responder = responder.clone();
        async move {
            let change = crate::bed::small_change();
            let spec = nabu_tests::objects::event_response("nobody", &responder, change);
            eu().await.create_event_response(&name, spec).await?;
            eu().await.finished(&name, crate::bed::LIMIT).await
        }
    };
    assert_eq!(serve(unique("er")).await?["phase"], "Succeeded");
    assert!(first.stop()?.success());
    assert_eq!(serve(unique("er")).await?["phase"], "Succeeded");
    second.process()?.assert_running()
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_metrics_are_there_in_both() -> Result<()> {
    let bed = Bed::start(&[("config.yaml", noop_config("o/r"))]).await?;
    for url in [bed.hub.ops_url(), bed.eu.ops_url()] {
        assert_eq!(reqwest::get(format!("{url}/livez")).await?.status(), 200);
        let ready = reqwest::get(format!("{url}/readyz?verbose")).await?;
        assert_eq!(ready.status(), 200);
        assert!(ready.text().await?.contains("[+]"));
        let metrics = reqwest::get(format!("{url}/metrics")).await?.text().await?;
        for name in ["process_cpu_seconds_total", "_build_info{version="] {
            assert!(metrics.contains(name), "{name}: {metrics}");
        }
    }
    let (name, _) = bed.ask(eu().await, crate::bed::small_change()).await?;
    eu().await.finished(&name, crate::bed::LIMIT).await?;
    let metrics = bed.hub.metrics().await?;
    for name in [
        "ugallu_gitops_responder_dispatches",
        "ugallu_gitops_responder_attempts",
        "ugallu_gitops_responder_routing_misses",
        "nabu_hub_sessions",
        "nabu_hub_config_loads",
    ] {
        assert!(
            metrics.contains(&format!("# HELP {name} ")),
            "{name}: {metrics}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_api_has_health_and_reflection() -> Result<()> {
    let hub = TestHub::start(
        &[("config.yaml", noop_config("o/r"))],
        HubOptions::default(),
    )
    .await?;
    let channel = hub.admin_channel().await?;
    let request = HealthCheckRequest {
        service: "nabu.admin.v1.AdminService".to_owned(),
    };
    let health = HealthClient::new(channel.clone())
        .check(request)
        .await?
        .into_inner();
    assert_eq!(health.status, 1, "SERVING");

    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(futures::stream::iter([request]))
        .await?
        .into_inner();
    let answer = answers
        .message()
        .await?
        .and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(list)) = answer else {
        anyhow::bail!("no list of services: {answer:?}")
    };
    let names: Vec<_> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert!(names.contains(&"nabu.admin.v1.AdminService"), "{names:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_is_not_ready_while_its_configuration_cannot_be_watched() -> Result<()> {
    let cluster = eu().await;
    let options = HubOptions {
        // A user without any right.
        environment: vec![(
            "KUBECONFIG".to_owned(),
            cluster.powerless_kubeconfig()?.display().to_string(),
        )],
        watch_config: true,
        ..HubOptions::default()
    };
    let mut hub = TestHub::prepare(&[], options)?;
    hub.launch()?;
    let url = format!("{}/readyz", hub.ops_url());
    let text = nabu_tests::wait::eventually("it says why", Duration::from_mins(1), || async {
        let answer = reqwest::get(&url).await.ok()?;
        let unready = answer.status() == 503;
        let text = answer.text().await.ok()?;
        (unready && text.contains("cannot watch")).then_some(text)
    })
    .await?;
    assert!(text.contains("[-]config"), "{text}");
    let process: &mut Process = hub.process()?;
    process.assert_running()
}
