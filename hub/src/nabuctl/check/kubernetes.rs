//! What a Kubernetes cluster has: its version, the CRDs, and the rights of the agent's service account.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};

use super::evaluate::{self, Found, Level};

/// The group of the custom resources.
const GROUP: &str = "security.ugallu.io";
/// What an agent does: verb, group, resource, subresource.
const RIGHTS: [(&str, &str, &str, &str); 7] = [
    ("list", GROUP, "eventresponses", ""),
    ("watch", GROUP, "eventresponses", ""),
    ("get", GROUP, "eventresponses", ""),
    ("patch", GROUP, "eventresponses", "status"),
    ("get", GROUP, "securityevents", ""),
    ("create", "events.k8s.io", "events", ""),
    ("patch", "events.k8s.io", "events", ""),
];

/// Looks at the cluster of a context of kubectl.
pub(super) async fn look(context: Option<&str>, account: Option<&str>) -> Vec<Found> {
    let client = match connect(context).await {
        Ok(client) => client,
        Err(error) => {
            let remedy = "kubectl config get-contexts; choose one with --kube-context";
            return vec![Found::bad(
                "kubernetes",
                Level::Error,
                format!("{error:#}"),
                remedy,
            )];
        }
    };
    let mut found = Vec::new();
    match client.apiserver_version().await {
        Ok(version) => found.push(Found::ok(
            "kubernetes",
            format!("the API server is {}", version.git_version),
        )),
        Err(error) => {
            let message = format!("the API server does not answer: {error}");
            let remedy = "kubectl version";
            found.push(Found::bad("kubernetes", Level::Error, message, remedy));
            return found;
        }
    }
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for plural in ["eventresponses", "securityevents"] {
        let name = format!("{plural}.{GROUP}");
        match crds.get_opt(&name).await {
            Ok(crd) => found.push(evaluate::crd(&name, crd.is_some())),
            Err(error) => found.push(unknown("crd", &name, &error)),
        }
    }
    match account.map(|account| account.split_once('/')) {
        None => {}
        Some(None) => found.push(Found::bad(
            "rbac",
            Level::Error,
            "--agent-account is not of the form NAMESPACE/NAME",
            "kubectl get serviceaccounts -A",
        )),
        Some(Some((namespace, name))) => {
            found.extend(rights(&client, namespace, name).await);
        }
    }
    found
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

async fn rights(client: &Client, namespace: &str, name: &str) -> Vec<Found> {
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let account = format!("system:serviceaccount:{namespace}:{name}");
    let mut found = Vec::new();
    for (verb, group, resource, subresource) in RIGHTS {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(account.clone()),
                groups: Some(vec!["system:serviceaccounts".to_owned()]),
                resource_attributes: Some(ResourceAttributes {
                    verb: some(verb),
                    group: some(group),
                    resource: some(resource),
                    subresource: some(subresource),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let shown = match subresource {
            "" => format!("{resource}.{group}"),
            subresource => format!("{resource}.{group}/{subresource}"),
        };
        match reviews.create(&PostParams::default(), &review).await {
            Ok(answer) => {
                let allowed = answer.status.is_some_and(|status| status.allowed);
                found.push(evaluate::right(&account, verb, &shown, allowed));
            }
            Err(error) => {
                found.push(unknown("rbac", &shown, &error));
                break;
            }
        }
    }
    found
}

fn unknown(check: &'static str, name: &str, error: &kube::Error) -> Found {
    Found::bad(
        check,
        Level::Warning,
        format!("cannot find out about {name}: {error}"),
        "use an administrator's context of kubectl",
    )
}
