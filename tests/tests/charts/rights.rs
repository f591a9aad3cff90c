//! Least rights: with all of the charts' rights the whole circle works, and without any one verb something breaks.
//!
//! Each variant of the roles has a release, a service account, a hub and an agent of its own; all run beside each other on one
//! API server. A variant breaks at a step that is known before, so that a slow machine is not taken for a missing right.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use nabu_tests::charts::deployed::{Deployed, client_as};
use nabu_tests::charts::release::{
    Pki, agent_values, apply, create_namespace, deployment, hub_values, render, tls_secret,
};
use nabu_tests::cluster::TestCluster;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{
    config, event_response, noop_config, security_event, token_secret, write_file,
};
use nabu_tests::wait::eventually;
use serde_json::{Value, json};

use crate::bed::shared;

/// How long a step may take with all rights. All variants that break wait for so long beside each other.
const STEP: Duration = Duration::from_mins(2);

/// A rule without one of its verbs.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    pub(crate) resource: String,
    pub(crate) verb: String,
}

/// Every verb of every rule of the roles among these objects.
pub(crate) fn rights(objects: &[Value]) -> Vec<Missing> {
    let mut found = Vec::new();
    let roles = objects.iter().filter(|object| object["rules"].is_array());
    for rule in roles.flat_map(|role| role["rules"].as_array().into_iter().flatten()) {
        for verb in rule["verbs"].as_array().into_iter().flatten() {
            assert_eq!(rule["resources"].as_array().unwrap().len(), 1, "{rule}");
            found.push(Missing {
                resource: rule["resources"][0].as_str().unwrap().to_owned(),
                verb: verb.as_str().unwrap().to_owned(),
            });
        }
    }
    found
}

/// Takes a verb away.
pub(crate) fn take_away(objects: &mut [Value], missing: &Missing) {
    for role in objects
        .iter_mut()
        .filter(|object| object["rules"].is_array())
    {
        let rules = role["rules"].as_array_mut().unwrap();
        for rule in rules.iter_mut() {
            if rule["resources"][0] == missing.resource.as_str() {
                let verbs = rule["verbs"].as_array_mut().unwrap();
                verbs.retain(|verb| *verb != missing.verb.as_str());
            }
        }
        rules.retain(|rule| !rule["verbs"].as_array().unwrap().is_empty());
    }
}

/// Applies what a variant needs for its service account.
pub(crate) fn apply_account(cluster: &TestCluster, objects: &[Value]) -> Result<()> {
    let kinds = [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
    ];
    let wanted = |object: &&Value| kinds.iter().any(|kind| object["kind"] == *kind);
    let objects: Vec<_> = objects.iter().filter(wanted).cloned().collect();
    apply(cluster, &objects, &[]).map(drop)
}

/// Runs all variants, and compares where each breaks with where it has to (one of several steps, if that is a race).
async fn assert_breaks<F>(
    all: Vec<Missing>,
    expected: &[(&str, &str, &str)],
    run: impl Fn(usize, Option<Missing>) -> F,
) -> Result<()>
where
    F: Future<Output = Result<(), (&'static str, String)>> + Send + 'static,
{
    let known: Vec<_> = expected
        .iter()
        .map(|(resource, verb, _)| (*resource, *verb))
        .collect();
    let found: Vec<_> = all
        .iter()
        .map(|one| (one.resource.as_str(), one.verb.as_str()))
        .collect();
    assert_eq!(found, known, "say for each right what breaks without it");
    let variants = std::iter::once(None).chain(all.into_iter().map(Some));
    let running: Vec<_> = variants
        .enumerate()
        .map(|(number, missing)| (missing.clone(), tokio::spawn(run(number, missing))))
        .collect();
    let mut wrong = Vec::new();
    for (missing, running) in running {
        let broke = running.await?;
        match (&missing, &broke) {
            (None, Ok(())) => {}
            (Some(missing), Err((step, _)))
                if expected.iter().any(|(resource, verb, steps)| {
                    missing.resource == *resource
                        && missing.verb == *verb
                        && steps.split(", ").any(|known| known == *step)
                }) => {}
            _ => wrong.push(format!("without {missing:?}: {broke:?}")),
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Names the step that failed.
trait Step<T> {
    fn step(self, name: &'static str) -> Result<T, (&'static str, String)>;
}

impl<T> Step<T> for Result<T> {
    fn step(self, name: &'static str) -> Result<T, (&'static str, String)> {
        self.map_err(|error| (name, format!("{error:#}")))
    }
}

async fn served(cluster: &TestCluster, name: &str, responder: &str, action: &str) -> Result<()> {
    let event = format!("se-{name}");
    cluster
        .create_security_event(&event, security_event("ClusterAdminGranted", "evil"))
        .await?;
    let change = write_file(action, "a.yaml", "a: 1\n");
    cluster
        .create_event_response(name, event_response(&event, responder, change))
        .await?;
    Ok(())
}

/// A route to nowhere for one action, else to `noop`.
fn down_config() -> String {
    config(
        "  routes:\n    - match: { actionRef: down }\n      provider: { kind: forgejo-token, baseURL: 'http://127.0.0.1:9', \
        repository: o/r, baseBranch: main, credentialsRef: { name: bot } }\n    \
        - provider: { kind: noop, repository: o/r, baseBranch: main }\n",
    )
}

async fn agent_circle(
    number: usize,
    missing: Option<Missing>,
) -> Result<(), (&'static str, String)> {
    let cluster = shared().await;
    let (namespace, id) = ("rights-agent", format!("agent-{number}"));
    let documents = [
        ("config.yaml", down_config()),
        ("secret.yaml", token_secret("bot", "t")),
    ];
    let mut hub = TestHub::start(&documents, HubOptions::default())
        .await
        .step("hub")?;
    let port = hub
        .agents_url()
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .parse()
        .unwrap();
    let mut agent = async {
        let values = agent_values(&id, &id, port)?;
        let mut objects = render("nabu-agent", &format!("nabu-{id}"), namespace, &values)?;
        if let Some(missing) = &missing {
            take_away(&mut objects, missing);
        }
        apply_account(cluster, &objects)?;
        let secret = tls_secret(&hub.issue_agent(&id)?, namespace, &format!("{id}-tls"))?;
        apply(cluster, &[secret], &[])?;
        let agent = Deployed::prepare(cluster, deployment(&objects)?).await?;
        anyhow::Ok(agent)
    }
    .await
    .step("install")?;
    agent.launch().step("install")?;
    agent.ready(STEP).await.step("ready")?;

    let (first, second) = (format!("{id}-first"), format!("{id}-second"));
    served(cluster, &first, &id, "any").await.step("ask")?;
    cluster.finished(&first, STEP).await.step("served")?;
    let explained = ["-o", "json", "response", "get", &id, &first];
    let explained = hub.nabuctl(&explained).step("security event")?;
    if !explained.contains("ClusterAdminGranted") {
        return Err(("security event", explained));
    }
    let listed = hub
        .nabuctl(&["-o", "json", "cluster", "list"])
        .step("bound")?;
    let uid = |listed: &str| listed.contains("\"kubeSystemUid\": \"\"");
    if uid(&listed) {
        return Err(("bound", listed));
    }
    let events: Api<Event> = Api::namespaced(cluster.client(), "default");
    eventually("the Event is there", STEP, || async {
        let fields = format!("regarding.name={first}");
        let events = events
            .list(&ListParams::default().fields(&fields))
            .await
            .ok()?;
        (!events.items.is_empty()).then_some(())
    })
    .await
    .step("event")?;

    // A hub that has lost everything is told again.
    served(cluster, &second, &id, "down").await.step("ask")?;
    let waits = |status: &Value| status["phase"].is_string();
    cluster
        .status_where(&second, "waits for its forge", STEP, waits)
        .await
        .step("served")?;
    hub.kill().step("hub")?;
    for ending in ["", "-wal", "-shm"] {
        let file = format!("{}{ending}", hub.store_path().display());
        let _ = std::fs::remove_file(file);
    }
    hub.write_config("config.yaml", &noop_config("o/r"))
        .step("hub")?;
    hub.start_again().await.step("hub")?;
    cluster.finished(&second, STEP).await.step("told again")?;

    let secrets = client_as(cluster, namespace, &format!("nabu-{id}"))
        .await
        .step("secrets")?;
    let own: Api<Secret> = Api::namespaced(secrets.clone(), namespace);
    let everywhere: Api<Secret> = Api::all(secrets);
    assert!(forbidden(own.get(&format!("{id}-tls")).await));
    assert!(forbidden(everywhere.list(&ListParams::default()).await));
    Ok(())
}

/// Whether the API server has refused it for want of a right.
pub(crate) fn forbidden<T>(answer: kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_needs_every_right_that_it_has() -> Result<()> {
    let cluster = shared().await;
    create_namespace(cluster, "rights-agent")?;
    let values = agent_values("any", "any", 1)?;
    let all = rights(&render("nabu-agent", "nabu-any", "rights-agent", &values)?);
    let expected = [
        ("eventresponses", "get", "told again"),
        ("eventresponses", "list", "ready"),
        ("eventresponses", "watch", "ready, served"),
        ("eventresponses/status", "patch", "served"),
        ("securityevents", "get", "security event"),
        ("namespaces", "get", "bound"),
        ("leases", "get", "ready"),
        ("leases", "patch", "ready"),
        ("leases", "create", "ready"),
        ("events", "create", "event"),
    ];
    assert_breaks(all, &expected, agent_circle).await
}

async fn hub_circle(number: usize, missing: Option<Missing>) -> Result<(), (&'static str, String)> {
    let cluster = shared().await;
    let id = format!("hub-{number}");
    let namespace = format!("rights-{id}");
    let (mut hub, mut agent) = prepare_hub(cluster, &id, &namespace, missing.as_ref())
        .await
        .step("install")?;
    hub.launch().step("install")?;
    hub.ready(STEP).await.step("ready")?;
    agent.launch().step("install")?;
    agent.ready(STEP).await.step("session")?;

    let configs = cluster.namespaced("GitOpsResponderConfig", &namespace);
    let is = async |wanted: &str| {
        eventually(&format!("the document is {wanted}"), STEP, || async {
            let config = configs.get("default").await.ok()?;
            let conditions = config.data["status"]["conditions"].as_array()?.clone();
            let valid = conditions.into_iter().find(|one| one["type"] == "Valid")?;
            let seen = config.data["status"]["observedGeneration"].as_i64();
            (valid["status"] == wanted && seen == config.metadata.generation).then_some(())
        })
        .await
    };
    is("True").await.step("conditions")?;
    let events: Api<Event> = Api::namespaced(cluster.client(), &namespace);
    let published = async |what: &'static str, wanted: fn(&Event) -> bool| {
        eventually(what, STEP, || async {
            let events = events.list(&ListParams::default()).await.ok()?;
            events.items.iter().any(wanted).then_some(())
        })
        .await
    };
    published("the Event is there", |_| true)
        .await
        .step("event")?;

    let edit = async |path: &'static str| {
        let patch =
            json!([{"op": "replace", "path": "/spec/routes/0/provider/repository", "value": path}]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
        configs
            .patch("default", &PatchParams::default(), &patch)
            .await?;
        anyhow::Ok(())
    };
    edit("no-repository").await.step("ask")?;
    is("False").await.step("edits are seen")?;
    edit("o/r").await.step("ask")?;
    is("True").await.step("edits are seen")?;
    let repeated = |event: &Event| event.series.as_ref().is_some_and(|series| series.count > 1);
    published("the Event is counted", repeated)
        .await
        .step("event again")?;

    // Nothing but the new Secret makes the difference.
    let attempt = async |round: u32| {
        let name = format!("{id}-{round}");
        served(cluster, &name, &id, "any").await.ok()?;
        let tried = |status: &Value| status["error"]["reason"].is_string();
        let status = cluster
            .status_where(&name, "was tried", STEP, tried)
            .await
            .ok()?;
        status["error"]["reason"].as_str().map(str::to_owned)
    };
    let reason = attempt(0).await.context("not tried").step("served")?;
    if reason != "CredentialMissing" {
        return Err(("served", reason));
    }
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bot", "namespace": namespace},
        "stringData": {"token": "t"},
    });
    apply(cluster, &[secret], &[]).step("ask")?;
    let mut round = 0;
    let deadline = tokio::time::Instant::now() + STEP;
    while attempt({
        round += 1;
        round
    })
    .await
    .as_deref()
        != Some("ForgeUnavailable")
    {
        if tokio::time::Instant::now() > deadline {
            return Err(("Secrets are seen", "the new Secret is not".to_owned()));
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    let client = client_as(cluster, &namespace, "nabu-hub")
        .await
        .step("secrets")?;
    let own: Api<Secret> = Api::namespaced(client.clone(), &namespace);
    let others: Api<Secret> = Api::namespaced(client, "kube-system");
    assert!(own.list(&ListParams::default()).await.is_ok());
    assert!(forbidden(others.list(&ListParams::default()).await));
    Ok(())
}

/// A hub with fewer rights, and an agent with all of its own.
async fn prepare_hub(
    cluster: &TestCluster,
    id: &str,
    namespace: &str,
    missing: Option<&Missing>,
) -> Result<(Deployed, Deployed)> {
    create_namespace(cluster, namespace)?;
    let pki = Pki::create()?;
    pki.hub_secret(cluster, namespace)?;
    pki.agent_secret(cluster, namespace, id)?;
    let (values, port) = hub_values()?;
    let mut objects = render("nabu-hub", "nabu-hub", namespace, &values)?;
    if let Some(missing) = missing {
        take_away(&mut objects, missing);
    }
    apply_account(cluster, &objects)?;
    let route = json!({"provider": {
        "kind": "forgejo-token", "baseURL": "http://127.0.0.1:9", "repository": "o/r", "baseBranch": "main",
        "credentialsRef": {"name": "bot"},
    }});
    let document = json!({
        "apiVersion": "security.ugallu.io/v1alpha1", "kind": "GitOpsResponderConfig",
        "metadata": {"name": "default", "namespace": namespace}, "spec": {"routes": [route]},
    });
    apply(cluster, &[document], &[])?;
    let hub = Deployed::prepare(cluster, deployment(&objects)?).await?;
    let objects = render(
        "nabu-agent",
        "nabu-agent",
        namespace,
        &agent_values(id, id, port)?,
    )?;
    apply_account(cluster, &objects)?;
    let agent = Deployed::prepare(cluster, deployment(&objects)?).await?;
    Ok((hub, agent))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_needs_every_right_that_it_has() -> Result<()> {
    let (values, _) = hub_values()?;
    let all = rights(&render("nabu-hub", "nabu-hub", "any", &values)?);
    let expected = [
        ("gitopsresponderconfigs", "list", "ready"),
        ("gitopsresponderconfigs", "watch", "edits are seen"),
        ("gitopsresponderconfigs/status", "patch", "conditions"),
        ("secrets", "list", "ready"),
        ("secrets", "watch", "Secrets are seen"),
        ("events", "create", "event"),
        ("events", "patch", "event again"),
    ];
    assert_breaks(all, &expected, hub_circle).await
}
