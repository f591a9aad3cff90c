//! Bills of materials: as the standard wants them, and of what the programs are really made of.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use nabu_tests::process::{python_packages, repository_root};
use serde_json::Value;

/// Checks files against the schema of `CycloneDX` 1.5, strictly.
const VALIDATOR: &str = "
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
for path in sys.argv[1:]:
    wrong = JsonStrictValidator(SchemaVersion.V1_5).validate_str(open(path).read())
    if wrong:
        sys.exit(f'{path}: {str(wrong)[:300]}')
";

fn validate(path: &Path) -> Result<bool> {
    let status = Command::new("python3")
        .args(["-c", VALIDATOR])
        .arg(path)
        .env("PYTHONPATH", python_packages()?)
        .status()?;
    Ok(status.success())
}

/// Name and version of every crate that cargo links into a program of this crate, itself left out.
fn linked(package: &str) -> Result<BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .current_dir(repository_root())
        .args(["tree", "--locked", "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}", "--package", package])
        .output()?;
    ensure!(output.status.success(), "cargo tree failed");
    let text = String::from_utf8(output.stdout)?;
    let mut crates = BTreeSet::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (name, version) = (words.next(), words.next());
        let version = version.and_then(|version| version.strip_prefix('v'));
        crates.insert(format!(
            "{} {}",
            name.context(line.to_owned())?,
            version.context(line.to_owned())?
        ));
    }
    crates.retain(|one| !one.starts_with(&format!("{package} ")));
    Ok(crates)
}

#[test]
fn a_bill_of_materials_is_valid_and_names_every_crate_that_is_linked() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = repository_root().join("scripts/sbom.sh");
    ensure!(Command::new(script).arg(folder.path()).status()?.success());
    for (program, package) in [
        ("nabu-hub", "nabu-hub"),
        ("nabuctl", "nabu-hub"),
        ("nabu-agent", "nabu-agent"),
    ] {
        let path = folder.path().join(format!("{program}.cdx.json"));
        assert!(validate(&path)?, "{program}");
        let text = std::fs::read_to_string(&path)?;
        let bill: Value = serde_json::from_str(&text)?;
        assert_eq!(bill["metadata"]["component"]["name"], program);
        let components = bill["components"].as_array().context("no components")?;
        let word = |component: &Value, key: &str| component[key].as_str().unwrap_or("?").to_owned();
        let named: BTreeSet<_> = components
            .iter()
            .map(|one| format!("{} {}", word(one, "name"), word(one, "version")))
            .collect();
        let missing: Vec<_> = linked(package)?.difference(&named).cloned().collect();
        assert_eq!(missing, [""; 0], "{program}");
        assert!(!named.iter().any(|one| one.starts_with("nabu-tests ")));
        let root = repository_root().display().to_string();
        assert!(
            !text.contains(&root) && !text.contains("/tmp/"),
            "{program}"
        );

        let spoiled = folder.path().join("spoiled.json");
        std::fs::write(&spoiled, text.replacen("\"library\"", "\"libary\"", 1))?;
        assert!(!validate(&spoiled)?, "the validator sees nothing");
    }
    Ok(())
}
