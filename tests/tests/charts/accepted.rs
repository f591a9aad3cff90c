//! Every row of the matrix is taken by a real API server that enforces the Pod Security Standard `restricted`.

use anyhow::Result;
use nabu_tests::charts::release::{apply, create_namespace};
use nabu_tests::charts::{Case, objects};
use serde_json::{Value, json};

use crate::bed::shared;

/// The pod that a Deployment makes: only pods are refused, of Deployments a violation is only told.
fn pods(objects: &[Value]) -> Vec<Value> {
    let deployments = objects
        .iter()
        .filter(|object| object["kind"] == "Deployment");
    let pod = |deployment: &Value| {
        let mut pod = deployment["spec"]["template"].clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = deployment["metadata"]["name"].clone();
        pod["metadata"]["namespace"] = deployment["metadata"]["namespace"].clone();
        pod
    };
    deployments.map(pod).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_server_takes_every_case_and_its_restricted_pods() -> Result<()> {
    let cluster = shared().await;
    for namespace in ["nabu-system", "ugallu-system", "ugallu-system-privileged"] {
        create_namespace(cluster, namespace)?;
    }
    let cases = Case::all()?;
    assert!(cases.len() >= 12, "{}", cases.len());
    for case in cases {
        let mut objects = objects(&case.render()?)?;
        let pods = pods(&objects);
        assert_eq!(pods.len(), 1, "{}", case.name);
        objects.extend(pods);
        let said = apply(
            cluster,
            &objects,
            &["--dry-run=server", "--validate=strict"],
        )?;
        assert!(
            !said.contains("Warning"),
            "{} {}: {said}",
            case.chart,
            case.name
        );
        assert_eq!(
            said.matches("(server dry run)").count(),
            objects.len(),
            "{said}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_asks_for_more_than_restricted_is_refused_here() -> Result<()> {
    let cluster = shared().await;
    create_namespace(cluster, "restricted")?;
    let cases = Case::all()?;
    let case = cases.iter().find(|case| case.name == "default").unwrap();
    let mut pod = pods(&objects(&case.render()?)?).remove(0);
    pod["metadata"]["namespace"] = json!("restricted");
    apply(cluster, &[pod.clone()], &["--dry-run=server"])?;
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
    let refused = apply(cluster, &[pod], &["--dry-run=server"]).unwrap_err();
    assert!(
        refused.to_string().contains("violates PodSecurity"),
        "{refused}"
    );
    Ok(())
}
