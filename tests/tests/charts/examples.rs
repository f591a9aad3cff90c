//! The examples for Argo CD and Flux are what those projects' published schemas take, and their values are what the charts take.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};
use nabu_tests::charts::release::{apply, create_namespace};
use nabu_tests::charts::{CHARTS, folder, helm, objects, path};
use nabu_tests::process::{npm_path, repository_root};
use serde_json::Value;

use crate::bed::shared;

fn example(name: &str) -> Result<Vec<Value>> {
    let path = repository_root().join("charts/examples").join(name);
    objects(&std::fs::read_to_string(path)?)
}

/// What the schema of Flux says of a `HelmRelease`; empty if nothing.
fn helm_release(object: &Value) -> Result<String> {
    let package = npm_path("@kubernetes-models/flux-cd/helm.toolkit.fluxcd.io/v2/index.js")?;
    let mut node = Command::new("node")
        .arg(repository_root().join("tests/tests/charts/helm_release.mjs"))
        .arg(package)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = node.stdin.take().context("no standard input")?;
    input.write_all(&serde_json::to_vec(object)?)?;
    drop(input);
    let output = node.wait_with_output()?;
    let said = String::from_utf8(output.stdout)?;
    assert_eq!(output.status.success(), said.is_empty(), "node failed");
    Ok(said)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_examples_fit_the_published_schemas() -> Result<()> {
    let cluster = shared().await;
    for namespace in ["argocd", "nabu-system"] {
        create_namespace(cluster, namespace)?;
    }
    let flags = ["--dry-run=server", "--validate=strict"];
    apply(cluster, &example("argo-cd.yaml")?, &flags)?;
    let (releases, sources): (Vec<_>, Vec<_>) = example("flux.yaml")?
        .into_iter()
        .partition(|object| object["kind"] == "HelmRelease");
    apply(cluster, &sources, &flags)?;
    for mut release in releases {
        assert_eq!(helm_release(&release)?, "");
        release["spec"]["install"]["crds"] = "Overwrite".into();
        assert!(
            helm_release(&release)?.contains("crds"),
            "a wrong one is noticed"
        );
    }
    Ok(())
}

#[test]
fn the_values_of_the_examples_are_values_of_the_charts() -> Result<()> {
    let folder_of_values = tempfile::tempdir()?;
    for chart in CHARTS {
        let mut found = 0;
        for object in example("argo-cd.yaml")?
            .into_iter()
            .chain(example("flux.yaml")?)
        {
            let values = [
                &object["spec"]["source"]["helm"]["valuesObject"],
                &object["spec"]["values"],
            ];
            let Some(values) = values.into_iter().find(|values| values.is_object()) else {
                continue;
            };
            if object["metadata"]["name"] == chart {
                let file = folder_of_values.path().join("values.json");
                std::fs::write(&file, values.to_string())?;
                helm(&[
                    "template",
                    "r",
                    path(&folder(chart))?,
                    "--values",
                    path(&file)?,
                ])?;
                found += 1;
            }
        }
        assert_eq!(found, 2, "{chart}");
    }
    Ok(())
}
