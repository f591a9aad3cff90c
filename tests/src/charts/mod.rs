//! The Helm charts for tests and the demo: the pinned helm and kubectl, the matrix of values, and what is rendered.
//!
//! [`release`] installs them, [`deployed`] runs what a rendered Deployment says, and [`tables`] makes the generated parts of
//! READMEs and of the book.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::process::{repository_root, testbed_path};

pub mod deployed;
pub mod memory;
pub mod release;
pub mod tables;
mod volumes;

/// The charts.
pub const CHARTS: [&str; 2] = ["nabu-hub", "nabu-agent"];
/// Where releases are unless a case says otherwise.
const NAMESPACE: &str = "nabu-system";

/// The folder of a chart.
pub fn folder(chart: &str) -> PathBuf {
    repository_root().join("charts").join(chart)
}

/// Values of one row of the matrix.
#[derive(Clone, Debug)]
pub struct Case {
    /// The chart that they are for.
    pub chart: String,
    /// The name of the file, without its ending.
    pub name: String,
    /// The namespace of the release.
    pub namespace: String,
    /// The file.
    pub values: PathBuf,
}

impl Case {
    /// All cases, in the order of their names.
    pub fn all() -> Result<Vec<Self>> {
        let mut cases = Vec::new();
        for chart in CHARTS {
            let folder = repository_root().join("tests/fixtures/charts").join(chart);
            for entry in std::fs::read_dir(folder)? {
                cases.push(Self::read(chart, entry?.path())?);
            }
        }
        cases.sort_by_key(|case| (case.chart.clone(), case.name.clone()));
        Ok(cases)
    }

    fn read(chart: &str, values: PathBuf) -> Result<Self> {
        let text = std::fs::read_to_string(&values)?;
        let namespace = text
            .lines()
            .find_map(|line| line.strip_prefix("# namespace: "));
        let name = values.file_stem().and_then(|name| name.to_str());
        Ok(Self {
            chart: chart.to_owned(),
            name: name.context("a file without a name")?.to_owned(),
            namespace: namespace.unwrap_or(NAMESPACE).to_owned(),
            values,
        })
    }

    /// What helm renders, as text.
    pub fn render(&self) -> Result<String> {
        helm(&[
            "template",
            &self.chart,
            path(&folder(&self.chart))?,
            "--namespace",
            &self.namespace,
            "--values",
            path(&self.values)?,
        ])
    }

    /// Where what was rendered is kept.
    pub fn snapshot(&self) -> PathBuf {
        let folder = repository_root().join("tests/snapshots/charts");
        folder.join(&self.chart).join(format!("{}.yaml", self.name))
    }

    /// What helm says after an installation; it renders that for a cluster only.
    pub fn notes(&self, kubeconfig: &Path) -> Result<String> {
        let said = helm_on(
            kubeconfig,
            &[
                "install",
                &self.chart,
                path(&folder(&self.chart))?,
                "--namespace",
                &self.namespace,
                "--dry-run=client",
                "--values",
                path(&self.values)?,
            ],
        )?;
        let (_, notes) = said.split_once("\nNOTES:\n").context("no notes")?;
        Ok(notes.to_owned())
    }
}

/// Runs helm; its standard output, or an error with its standard error.
pub fn helm(arguments: &[&str]) -> Result<String> {
    Ok(run(Command::new(testbed_path("helm")?).args(arguments))?.0)
}

/// Runs helm against a cluster; nothing is kept in the user's home.
pub fn helm_on(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new(testbed_path("helm")?);
    Ok(run(command.args(arguments).env("KUBECONFIG", kubeconfig))?.0)
}

/// Runs kubectl against a cluster; its standard output and standard error.
pub fn kubectl_on(kubeconfig: &Path, arguments: &[&str]) -> Result<(String, String)> {
    let mut command = Command::new(testbed_path("kubectl")?);
    // No file of the user's, and no cache of another cluster's answers.
    let cache = kubeconfig.with_extension("cache");
    command.arg("--cache-dir").arg(cache).args(arguments);
    run(command
        .env("KUBECONFIG", kubeconfig)
        .env("KUBECTL_KUBERC", "false"))
}

fn run(command: &mut Command) -> Result<(String, String)> {
    let output = command.output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().collect();
        bail!(
            "{} {arguments:?} failed: {errors}",
            command.get_program().display()
        );
    }
    Ok((String::from_utf8(output.stdout)?, errors))
}

/// The objects in a text of several YAML documents.
pub fn objects(rendered: &str) -> Result<Vec<Value>> {
    let documents = rendered.split("\n---\n").map(|document| {
        let document = document.trim_start_matches("---\n");
        serde_saphyr::from_str::<Value>(document).with_context(|| document.to_owned())
    });
    documents
        .filter(|read| !matches!(read, Ok(Value::Null)))
        .collect()
}

/// The one object of a kind.
pub fn object<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    match (found.next(), found.next()) {
        (Some(object), None) => Ok(object),
        (None, _) => bail!("no {kind}"),
        _ => bail!("several {kind}s"),
    }
}

/// A path as an argument.
pub fn path(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}
