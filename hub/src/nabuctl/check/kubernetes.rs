//! What a Kubernetes cluster has: its version, the CRDs, and the rights of the service accounts of agent and hub. Asks;
//! what the answers mean is decided in [`crds`] and [`rights`].

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};

use super::CheckArgs;
use super::crds::{self, Kind};
use super::found::Found;
use super::rights::{self, Account, Right, unknown};
use super::versions;

const CHECK: &str = "kubernetes";

/// Looks at the cluster of a context of kubectl.
pub(super) async fn look(arguments: &CheckArgs) -> Vec<Found> {
    let client = match connect(arguments.kube_context.as_deref()).await {
        Ok(client) => client,
        Err(error) => {
            let remedy = "kubectl config get-contexts; choose one with --kube-context";
            return vec![Found::error(CHECK, format!("{error:#}"), remedy)];
        }
    };
    let version = match client.apiserver_version().await {
        Ok(version) => version.git_version,
        Err(error) => {
            let message = format!("the API server does not answer: {error}");
            return vec![Found::error(CHECK, message, "kubectl version")];
        }
    };
    let mut found = vec![
        versions::kubernetes("the cluster", &version)
            .unwrap_or_else(|| Found::ok(CHECK, format!("the API server is {version}"))),
    ];
    let (agent, hub) = match accounts(arguments) {
        Ok(accounts) => accounts,
        Err(wrong) => {
            found.push(wrong);
            return found;
        }
    };
    let before_agent = arguments.without_hub && !is_there(&client, agent.as_ref()).await;
    let before_hub = arguments.without_hub && !is_there(&client, hub.as_ref()).await;
    if agent.is_some() || hub.is_none() {
        for kind in &crds::OF_AGENT {
            let missing = || kind.missing(before_agent);
            found.push(crd(&client, kind, missing).await);
        }
    }
    for kind in &crds::OF_HUB {
        match (&agent, &hub) {
            (_, Some(_)) => found.push(crd(&client, kind, || kind.missing(before_hub)).await),
            (None, None) => found.push(crd(&client, kind, || kind.not_needed()).await),
            (Some(_), None) => {}
        }
    }
    if let Some(account) = agent {
        let name = arguments.agent_name.as_ref().unwrap_or(&account.name);
        found.extend(of_agent(&client, &account, name, before_agent).await);
    }
    if let Some(account) = hub {
        let namespace = arguments.config_namespace.as_ref();
        let needed = rights::hub(namespace.unwrap_or(&account.namespace));
        found.extend(of_account(&client, &account, &needed, before_hub).await);
    }
    found
}

/// The accounts that are to be looked at.
fn accounts(arguments: &CheckArgs) -> Result<(Option<Account>, Option<Account>), Found> {
    let parse = |flag: &str, text: Option<&String>, chart| {
        let Some(text) = text else { return Ok(None) };
        let account = Account::parse(text, chart).ok_or_else(|| {
            let message = format!("{flag} {text:?} is not of the form NAMESPACE/NAME");
            Found::error(
                "rbac",
                message,
                "kubectl get serviceaccounts --all-namespaces",
            )
        });
        account.map(Some)
    };
    let agent = parse(
        "--agent-account",
        arguments.agent_account.as_ref(),
        "nabu-agent",
    )?;
    let hub = parse("--hub-account", arguments.hub_account.as_ref(), "nabu-hub")?;
    Ok((agent, hub))
}

/// Whether something is installed already: it has its account.
async fn is_there(client: &Client, account: Option<&Account>) -> bool {
    let Some(account) = account else { return false };
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    let found = accounts.get_metadata_opt(&account.name).await;
    matches!(found, Ok(Some(_)))
}

async fn connect(context: Option<&str>) -> anyhow::Result<Client> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = match context {
        Some(_) => Config::from_kubeconfig(&options).await?,
        None => Config::infer().await?,
    };
    Ok(Client::try_from(config)?)
}

async fn crd(client: &Client, kind: &Kind, missing: impl FnOnce() -> Found) -> Found {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = kind.name();
    match crds.get_opt(&name).await {
        Ok(Some(crd)) => kind.judge(&crd),
        Ok(None) => missing(),
        Err(error) => unknown("crd", &name, &error.to_string()),
    }
}

async fn of_agent(client: &Client, account: &Account, name: &str, before: bool) -> Vec<Found> {
    let namespace = &account.namespace;
    let mut needed = rights::agent(namespace, name);
    let secret = rights::secret_name(name);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    // Its metadata alone: nothing of what is in it leaves the cluster.
    let missing = match secrets.get_metadata_opt(&secret).await {
        Ok(Some(_)) => {
            needed.extend(rights::agent_secret(namespace, &secret));
            None
        }
        Ok(None) => Some(rights::no_own_secret(namespace, &secret)),
        Err(error) => Some(unknown("rbac", &secret, &error.to_string())),
    };
    let mut found = of_account(client, account, &needed, before).await;
    // Without the account there is no agent that could have joined.
    if found.len() >= needed.len() {
        found.extend(missing);
    }
    found
}

async fn of_account(
    client: &Client,
    account: &Account,
    needed: &[Right],
    before: bool,
) -> Vec<Found> {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &account.namespace);
    match accounts.get_metadata_opt(&account.name).await {
        Ok(Some(_)) => {}
        Ok(None) => return vec![account.missing(before)],
        Err(error) => return vec![unknown("rbac", &account.user(), &error.to_string())],
    }
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let mut found = Vec::new();
    for right in needed {
        let answer = reviews
            .create(&PostParams::default(), &review(account, right))
            .await;
        match answer {
            Ok(answer) => {
                let allowed = answer.status.is_some_and(|status| status.allowed);
                found.push(account.right(right, allowed));
            }
            Err(error) => {
                found.push(unknown("rbac", &right.text(), &error.to_string()));
                break;
            }
        }
    }
    found
}

fn review(account: &Account, right: &Right) -> SubjectAccessReview {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(account.user()),
            groups: Some(account.groups()),
            resource_attributes: Some(ResourceAttributes {
                verb: some(right.verb),
                group: some(right.group),
                resource: some(right.resource),
                subresource: some(right.subresource),
                namespace: some(&right.namespace),
                name: some(&right.name),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}
