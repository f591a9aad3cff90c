//! The demo: two clusters, a hub and a forge at work, ended by a `kill -9` in the middle of it all.
//!
//! Run it with `make demo`; it builds what is missing. `KEEP=1` leaves everything running until Ctrl-C; `FORGE=github`
//! or `FORGE=gitlab` shows the same on the test forge that speaks that API; `CHARTS=1` installs the Helm charts and runs what
//! their Deployments say.

#![expect(clippy::print_stdout, reason = "a demo speaks to people")]

mod forge;
mod hub;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::objects::{event_response, security_event, token_secret, write_file};
use nabu_tests::process::workspace_binary;
use serde_json::{Value, json};

use forge::Forge;
use hub::{Agent, Hub};

const RESPONDER: &str = "ugallu-gitops-responder";
const ACTION: &str = "revoke-clusterrolebinding";
/// How long anything may take on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// One EventResponse of the demo.
struct Wish {
    cluster: &'static str,
    name: &'static str,
    event: &'static str,
    subject: &'static str,
    parameters: Value,
}

struct Stage {
    eu: TestCluster,
    us: TestCluster,
    forge: Forge,
    hub: Hub,
    // They end with the stage.
    _agents: [Agent; 2],
}

impl Stage {
    fn cluster(&self, id: &str) -> &TestCluster {
        if id == "prod-eu" { &self.eu } else { &self.us }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    nabu_common::tls::install_crypto_provider();
    let interrupted = nabu_common::shutdown::signal_token()?;
    let played = tokio::select! {
        played = Box::pin(play()) => played,
        // What is on the stage ends with it, whenever that is.
        () = interrupted.cancelled() => Ok(()),
    };
    println!("\nCleaned up.");
    played
}

async fn play() -> Result<()> {
    let keep = is_set("KEEP");
    let started = Instant::now();
    let mut stage = Box::pin(set_up()).await?;
    let (first, later) = wishes();

    say("Three EventResponses, two clusters; one name is used in both.");
    create(&stage, &first).await?;
    show(&stage, &first).await?;

    say("Two more, and a kill -9 of the hub while it works on them.");
    create(&stage, &later).await?;
    stage.hub.kill()?;
    println!("   the hub is dead; the EventResponses wait in their clusters");
    stage.hub.start_again().await?;
    println!("   the hub is back");
    show(&stage, &later).await?;

    let pull_requests = stage.forge.pull_requests().await?;
    let wanted = first.len() + later.len() - 1;
    say(&format!(
        "The forge has {} pull requests for {} responses: exactly one each, and none for the one whose change was there already.",
        pull_requests,
        wanted + 1
    ));
    ensure!(
        pull_requests == wanted,
        "there should be {wanted} pull requests, and there are {pull_requests}"
    );

    say("One of them explained: nabuctl response get prod-eu er-revoke-evil");
    let explained = stage
        .hub
        .nabuctl(&["response", "get", "prod-eu", "er-revoke-evil"])?;
    for line in explained.lines() {
        println!("   {line}");
    }
    say(&format!("Done in {} s.", started.elapsed().as_secs()));
    if keep {
        invite(&stage)?;
        std::future::pending::<()>().await;
    }
    Ok(())
}

fn is_set(variable: &str) -> bool {
    std::env::var(variable).is_ok_and(|value| !value.is_empty() && value != "0")
}

fn say(text: &str) {
    println!("\n== {text}");
}

async fn set_up() -> Result<Stage> {
    let name = std::env::var("FORGE").unwrap_or_default();
    let title = Forge::title(&name);
    say(&format!(
        "Starting two Kubernetes API servers (prod-eu, prod-us) and {title}."
    ));
    let (eu, us, forge) = tokio::try_join!(
        TestCluster::start(Crds::Nabu),
        TestCluster::start(Crds::Nabu),
        Forge::start(&name)
    )?;
    let charts = is_set("CHARTS");
    say(if charts {
        "Installing the charts: a hub in prod-eu, an agent in each cluster. What their Deployments say runs here."
    } else {
        "Starting a hub, and an agent for each cluster that joins with a token of `nabuctl cluster add`."
    });
    let documents = [
        ("config.yaml", config(&forge)?),
        ("secret.yaml", token_secret("gitops-bot", forge.token())),
    ];
    let hub = Hub::start(charts, &eu, &documents).await?;
    let agents = [
        hub.start_agent(&eu, "prod-eu").await?,
        hub.start_agent(&us, "prod-us").await?,
    ];
    Ok(Stage {
        eu,
        us,
        forge,
        hub,
        _agents: agents,
    })
}

/// Like the example in the book, with the forge of the demo.
fn config(forge: &Forge) -> Result<String> {
    Ok(format!(
        r"apiVersion: security.ugallu.io/v1alpha1
kind: GitOpsResponderConfig
metadata: {{ name: default, namespace: ugallu-system }}
spec:
  routes:
    - match:
        actionRef: {ACTION}
      provider:
        kind: {kind}
        baseURL: {url}
        repository: {repository}
        credentialsRef: {{ name: gitops-bot }}
        baseBranch: main
      prTemplate: |
        ## Auto-generated by ugallu-gitops-responder
        Triggered by `{{{{ .Source.SE.Type }}}}` on `{{{{ .Source.SE.Subject.Name }}}}`.
",
        kind = forge.kind(),
        url = forge.url(),
        repository = forge.repository()?,
    ))
}

fn wishes() -> (Vec<Wish>, Vec<Wish>) {
    let delete = json!({"actionRef": ACTION, "path": "README.md", "delete": "true"});
    let wish = |cluster, name, event, subject, parameters| Wish {
        cluster,
        name,
        event,
        subject,
        parameters,
    };
    let first = vec![
        wish(
            "prod-eu",
            "er-revoke-evil",
            "se-admin-granted",
            "evil-binding",
            delete,
        ),
        wish(
            "prod-us",
            "er-revoke-evil",
            "se-admin-granted",
            "another-binding",
            write_file(
                ACTION,
                "rbac/revoked.yaml",
                "revoked:\n  - another-binding\n",
            ),
        ),
        wish(
            "prod-us",
            "er-block-image",
            "se-miner-found",
            "docker.io/evil/miner",
            write_file(
                ACTION,
                "policies/images.yaml",
                "blocked:\n  - docker.io/evil/miner\n",
            ),
        ),
    ];
    let later = vec![
        wish(
            "prod-eu",
            "er-freeze-sa",
            "se-token-stolen",
            "builder",
            write_file(
                ACTION,
                "serviceaccounts/builder.yaml",
                "automountServiceAccountToken: false\n",
            ),
        ),
        wish(
            "prod-us",
            "er-deny-egress",
            "se-egress-seen",
            "payments",
            write_file(ACTION, "network/payments.yaml", "policyTypes: [Egress]\n"),
        ),
    ];
    (first, later)
}

async fn create(stage: &Stage, wishes: &[Wish]) -> Result<()> {
    for wish in wishes {
        let cluster = stage.cluster(wish.cluster);
        cluster
            .create_security_event(wish.event, security_event("PolicyViolated", wish.subject))
            .await?;
        let spec = event_response(wish.event, RESPONDER, wish.parameters.clone());
        cluster.create_event_response(wish.name, spec).await?;
    }
    Ok(())
}

async fn show(stage: &Stage, wishes: &[Wish]) -> Result<()> {
    println!(
        "   {:<9} {:<16} {:<11} PULL REQUEST",
        "CLUSTER", "EVENTRESPONSE", "PHASE"
    );
    for wish in wishes {
        let status = stage
            .cluster(wish.cluster)
            .finished(wish.name, PATIENCE)
            .await?;
        let phase = status["phase"].as_str().unwrap_or_default();
        let shown = status["providerRef"]
            .as_str()
            .or_else(|| status["outcome"]["message"].as_str());
        println!(
            "   {:<9} {:<16} {phase:<11} {}",
            wish.cluster,
            wish.name,
            shown.unwrap_or_default()
        );
        ensure!(
            phase == "Succeeded",
            "{} did not succeed: {status:#}",
            wish.name
        );
    }
    Ok(())
}

fn invite(stage: &Stage) -> Result<()> {
    let kubeconfig = stage.eu.kubeconfig();
    let nabuctl = workspace_binary("nabuctl")?;
    let context = "cannot show a path";
    println!("\nEverything keeps running until Ctrl-C. To try:");
    println!(
        "   kubectl --kubeconfig {} get eventresponses",
        kubeconfig.to_str().context(context)?
    );
    println!(
        "   kubectl --kubeconfig {} get eventresponses",
        stage.us.kubeconfig().to_str().context(context)?
    );
    println!(
        "   export NABU_HUB={} NABU_TLS_DIR={}",
        stage.hub.admin_url()?,
        stage.hub.admin_tls().display()
    );
    println!("   {} response list", nabuctl.display());
    println!("   {} cluster list -o wide", nabuctl.display());
    println!(
        "   the hub's configuration, read again when you edit it: {}",
        stage.hub.configuration()
    );
    println!("   the forge: {}", stage.forge.entrance());
    Ok(())
}
