//! The charts' defaults: the hub certifies, the agent joins with a token, and its identity outlives an upgrade without one.

use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use nabu_hub::pki::Authority;
use nabu_tests::charts::deployed::{Deployed, client_as};
use nabu_tests::charts::release::{
    agent_values, apply, create_namespace, deployed, deployment, hub_values, release, render,
};
use nabu_tests::charts::{folder, helm_on, path};
use nabu_tests::cluster::TestCluster;
use nabu_tests::objects::{event_response, write_file};
use nabu_tests::process::{free_port, workspace_binary};
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::{LIMIT, shared};
use crate::rights::{Missing, apply_account, forbidden, take_away};

const NAMESPACE: &str = "join";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Runs a program of ours; its standard output.
fn run(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// A hub from its chart, and what helm said of it.
struct Hub {
    deployed: Deployed,
    port: u16,
    notes: String,
}

impl Hub {
    /// The words of helm's notes from one word up to another one, without the ends of lines.
    fn words_of_notes(&self, from: &str, to: &str) -> Result<Vec<&str>> {
        let (_, rest) = self.notes.split_once(from).context("not in the notes")?;
        let (words, _) = rest.split_once(to).context("no end in the notes")?;
        Ok(words
            .split_whitespace()
            .filter(|word| *word != "\\")
            .collect())
    }
}

/// Starts a hub whose authority needs this in a Secret of the name `key`, with more values.
async fn start_hub(
    cluster: &TestCluster,
    namespace: &str,
    key: Value,
    more: &[&str],
) -> Result<Hub> {
    create_namespace(cluster, namespace)?;
    let key = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": namespace},
        "stringData": key,
    });
    apply(cluster, &[key], &[])?;
    let (mut values, port) = hub_values()?;
    values.extend(more.iter().map(|value| (*value).to_owned()));
    values.retain(|value| !value.starts_with("tls.mode") && !value.starts_with("tls.secretName"));
    let provider = "config.documents.default.routes[0].provider";
    values.extend([
        "tls.builtin.serverNames={127.0.0.1}".to_owned(),
        format!("{provider}.kind=noop,{provider}.repository=o/r,{provider}.baseBranch=main"),
    ]);
    let notes = release(cluster, "install", ("nabu-hub", namespace), &values)?;
    let mut deployed = deployed(cluster, namespace, "nabu-hub").await?;
    deployed.start().await?;
    Ok(Hub {
        deployed,
        port,
        notes,
    })
}

/// What `nabuctl cluster add` says to an administrator who was made as helm's notes say.
fn add_cluster(hub: &Hub, id: &str) -> Result<Value> {
    let home = tempfile::tempdir()?;
    let mut words = hub
        .words_of_notes("-- /nabu-hub ", "|")?
        .into_iter()
        .map(|word| word.replace("\"$USER\"", "tester"))
        .map(|word| hub.deployed.here(&word))
        .collect::<Vec<_>>();
    ensure!(words.len() >= 5 && words[1] == "tester", "{words:?}");
    let credentials = run(Command::new(workspace_binary("nabu-hub")?).args(words.drain(..)))?;
    let server_name = hub.words_of_notes("--server-name ", " context")?.join(" ");
    let kept = home.path().join("admin.pem");
    std::fs::write(&kept, credentials)?;
    let nabuctl = || {
        let mut command = Command::new(workspace_binary("nabuctl")?);
        command.env("NABU_CONTEXTS", home.path().join("contexts.yaml"));
        anyhow::Ok(command)
    };
    let url = format!("https://127.0.0.1:{}", hub.deployed.port("admin")?);
    run(nabuctl()?
        .args(["--hub", &url, "--server-name", &server_name])
        .args(["context", "set", "fleet", "--certificate"])
        .arg(&kept))?;
    let text = run(nabuctl()?.args(["-o", "json", "cluster", "add", id]))?;
    Ok(serde_json::from_str(&text)?)
}

/// Values with which an agent joins.
fn join_values(hub: &Hub, id: &str) -> Result<Vec<String>> {
    let joined = add_cluster(hub, id)?;
    let pin = joined["caPins"][0].as_str().context("no pin")?;
    let token = joined["token"].as_str().context("no token")?;
    Ok(vec![
        "listenAddress=127.0.0.1".to_owned(),
        format!("clusterId={id}"),
        format!("responders={{{id}}}"),
        format!("hub.url=https://127.0.0.1:{}", hub.port),
        format!("hub.caPin={pin}"),
        format!("metrics.containerPort={}", free_port()?),
        format!("joinToken={token}"),
    ])
}

/// Without this verb on the Secret with its identity, an agent cannot join, and says so; in a Kubernetes Event too if it may.
async fn assert_not_joined_without(
    cluster: &TestCluster,
    hub: &Hub,
    verb: &str,
    may_tell: bool,
) -> Result<()> {
    let id = format!("join-without-{verb}-{may_tell}");
    let values = join_values(hub, &id)?;
    let mut objects = render("nabu-agent", &format!("nabu-{id}"), NAMESPACE, &values)?;
    let mut take_away = |resource: &str, verb: &str| {
        let missing = Missing {
            resource: resource.to_owned(),
            verb: verb.to_owned(),
        };
        take_away(&mut objects, &missing);
    };
    take_away("secrets", verb);
    if !may_tell {
        take_away("events", "create");
    }
    apply_account(cluster, &objects)?;
    let secrets: Vec<_> = objects
        .iter()
        .filter(|object| object["kind"] == "Secret")
        .cloned()
        .collect();
    apply(cluster, &secrets, &[])?;
    let mut agent = Deployed::prepare(cluster, deployment(&objects)?).await?;
    if may_tell {
        may_create_events(cluster, &objects).await?;
    }
    agent.launch()?;
    eventually("it says what is missing", LIMIT, || async {
        agent
            .log()
            .contains("must allow get and update on it")
            .then_some(())
    })
    .await
    .with_context(|| agent.log())?;
    let events: Api<Event> = Api::namespaced(cluster.client(), NAMESPACE);
    let told = async || {
        let events = events.list(&ListParams::default()).await?;
        let mut events = events.items.into_iter();
        anyhow::Ok(events.any(|event| {
            let of_this = event.note.is_some_and(|note| note.contains(&id));
            of_this && event.reason.as_deref() == Some("NotCertified")
        }))
    };
    if may_tell {
        eventually("it tells in an Event", LIMIT, || async {
            told().await.ok()?.then_some(())
        })
        .await?;
    } else {
        let metrics = format!("{}/metrics", agent.ops_url()?);
        eventually("it was not let", LIMIT, || async {
            let metrics = reqwest::get(&metrics).await.ok()?.text().await.ok()?;
            let mut lines = metrics.lines();
            let dropped =
                lines.find_map(|line| line.strip_prefix("nabu_agent_events_dropped_total "))?;
            (dropped != "0").then_some(())
        })
        .await?;
        ensure!(!told().await?);
    }
    agent.kill()
}

/// Waits until the API server lets the account among these objects create Events: an agent tells each thing once.
async fn may_create_events(cluster: &TestCluster, objects: &[Value]) -> Result<()> {
    let mut accounts = objects.iter().filter(|one| one["kind"] == "ServiceAccount");
    let account = accounts.next().context("no account")?;
    let name = account["metadata"]["name"].as_str().context("no name")?;
    let events: Api<Event> = Api::namespaced(client_as(cluster, NAMESPACE, name).await?, NAMESPACE);
    let rehearsal = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("it may create Events", LIMIT, || async {
        let created = events.create(&rehearsal, &Event::default()).await;
        (!forbidden(created)).then_some(())
    })
    .await
}

async fn served(cluster: &TestCluster, responder: &str, name: &str) -> Result<()> {
    let spec = event_response("nobody", responder, write_file("any", "a.yaml", "a: 1\n"));
    cluster.create_event_response(name, spec).await?;
    assert_eq!(cluster.finished(name, LIMIT).await?["phase"], "Succeeded");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_joins_with_a_token_and_keeps_its_identity_over_an_upgrade_without_one()
-> Result<()> {
    let help = run(Command::new(workspace_binary("nabu-hub")?).arg("--help"))?;
    if !help.contains("--ca-encryption-key-file") {
        eprintln!("left out: these programs are built without enrolment");
        return Ok(());
    }
    let cluster = shared().await;
    let built_in = ["tls.builtin.encryptionKeySecret=key"];
    let hub = start_hub(cluster, NAMESPACE, json!({"key": KEY}), &built_in).await?;
    let [of_its_secret, _] = rules_of_joining()?;
    for verb in of_its_secret["verbs"].as_array().context("no verbs")? {
        let verb = verb.as_str().context("no text")?;
        assert_not_joined_without(cluster, &hub, verb, true).await?;
    }
    assert_not_joined_without(cluster, &hub, "get", false).await?;
    let mut values = join_values(&hub, "join")?;
    release(cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
    let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
    agent.start().await?;
    served(cluster, "join", "join-first").await?;
    agent.kill()?;

    values.pop();
    release(cluster, "upgrade", ("nabu-agent", NAMESPACE), &values)?;
    let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
    assert!(
        !agent
            .arguments()
            .iter()
            .any(|one| one.contains("join-token"))
    );
    agent.start().await?;
    served(cluster, "join", "join-second").await?;

    let client = client_as(cluster, NAMESPACE, "nabu-agent").await?;
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    assert!(secrets.get("nabu-agent-identity").await.is_ok());
    assert!(forbidden(secrets.get("key").await), "of the hub");
    assert!(forbidden(secrets.list(&ListParams::default()).await));
    let elsewhere: Api<Secret> = Api::namespaced(client, "default");
    assert!(forbidden(elsewhere.get("nabu-agent-identity").await));
    assert_eq!(agent.stop()?.code(), Some(0), "{}", agent.log());
    assert_identity_goes(cluster, &values).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_joins_a_hub_that_certifies_by_an_authority_of_ones_own() -> Result<()> {
    const NAMESPACE: &str = "own-authority";
    let cluster = shared().await;
    nabu_common::tls::install_crypto_provider();
    let folder = tempfile::tempdir()?;
    Authority::create(&folder.path().join("ca"), "nabu")?;
    let file = |name: &str| std::fs::read_to_string(folder.path().join("ca").join(name));
    let key = json!({"tls.crt": file("ca.crt")?, "tls.key": file("ca.key")?});
    // Whom helm's notes make an administrator is one here, and nobody else.
    let more = [
        "tls.builtin.authoritySecret=key",
        "tls.builtin.agentCertificateLifetime=8h",
        "admin.roles={admin:test*,viewer:*}",
    ];
    let hub = start_hub(cluster, NAMESPACE, key, &more).await?;
    let values = join_values(&hub, NAMESPACE)?;
    release(cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
    let mut agent = deployed(cluster, NAMESPACE, "nabu-agent").await?;
    agent.start().await?;
    served(cluster, NAMESPACE, "own-authority").await?;

    let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
    let identity = secrets.get("nabu-agent-identity").await?.data;
    let identity = identity.context("no identity")?;
    // A line of the certificate, which is inside of JSON there.
    let authority = file("ca.crt")?;
    let line = authority.lines().nth(2).context("no certificate")?;
    let has_line =
        |value: &k8s_openapi::ByteString| String::from_utf8_lossy(&value.0).contains(line);
    assert!(identity.values().any(has_line), "{:?}", identity.keys());
    Ok(())
}

/// The identity survives no forced upgrade, as the book warns, and is gone with the release, as is the join token.
async fn assert_identity_goes(cluster: &TestCluster, values: &[String]) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), NAMESPACE);
    let size = async || {
        let identity = secrets.get("nabu-agent-identity").await?;
        anyhow::Ok(identity.data.unwrap_or_default().len())
    };
    assert!(size().await? > 0, "the agent's key and certificate");
    let mut values = values.to_vec();
    values.push("joinToken=another".to_owned());
    release(cluster, "upgrade", ("nabu-agent", NAMESPACE), &values)?;
    assert!(size().await? > 0, "an upgrade leaves them");
    let chart = folder("nabu-agent");
    let mut arguments = vec!["upgrade", "nabu-agent", path(&chart)?, "--force"];
    arguments.extend(["--namespace", NAMESPACE]);
    for value in &values {
        arguments.extend(["--set", value]);
    }
    helm_on(&cluster.kubeconfig(), &arguments)?;
    assert_eq!(size().await?, 0, "a forced one does not");

    let ours = async || {
        let all = secrets.list(&ListParams::default()).await?;
        let names = all.items.into_iter().filter_map(|one| one.metadata.name);
        // Those of the agents that could not join are no release's.
        let ours = |name: &String| {
            ["nabu-agent-identity", "nabu-agent-join-token"].contains(&name.as_str())
        };
        let ours = names.filter(ours);
        anyhow::Ok(ours.collect::<Vec<_>>())
    };
    assert_eq!(
        ours().await?,
        ["nabu-agent-identity", "nabu-agent-join-token"]
    );
    let arguments = ["uninstall", "nabu-agent", "--namespace", NAMESPACE];
    helm_on(&cluster.kubeconfig(), &arguments)?;
    assert!(ours().await?.is_empty(), "{:?}", ours().await?);
    Ok(())
}

/// The rules of a rendered release, with where each is.
fn rules(values: &[String]) -> Result<Vec<(Value, Value)>> {
    let mut found = Vec::new();
    for object in render("nabu-agent", "nabu-agent", NAMESPACE, values)? {
        let place = &object["metadata"]["namespace"];
        for rule in object["rules"].as_array().into_iter().flatten() {
            found.push((place.clone(), rule.clone()));
        }
    }
    Ok(found)
}

/// The two rules that an agent has if it joins, and has not with files: of its Secret, and of Events.
fn rules_of_joining() -> Result<[Value; 2]> {
    let files = agent_values("any", "any", 1)?;
    let of_identity = |value: &&String| !value.starts_with("identity.");
    let join: Vec<_> = files.iter().filter(of_identity).cloned().collect();
    let (files, join) = (rules(&files)?, rules(&join)?);
    assert!(files.iter().all(|rule| join.contains(rule)), "{files:?}");
    let more = join.into_iter().filter(|rule| !files.contains(rule));
    let (namespaces, rules): (Vec<_>, Vec<_>) = more.unzip();
    assert_eq!(namespaces, [NAMESPACE, NAMESPACE], "{rules:?}");
    rules.try_into().map_err(|rules| anyhow!("{rules:?}"))
}

#[test]
fn joining_takes_no_right_but_to_read_and_write_its_own_secret_and_to_say_what_it_needs()
-> Result<()> {
    let own = json!({
        "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["nabu-agent-identity"], "verbs": ["get", "update"],
    });
    let events =
        json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]});
    assert_eq!(rules_of_joining()?, [own, events]);
    Ok(())
}
