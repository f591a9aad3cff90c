//! What is generated from the charts is not stale. `make charts` writes it again.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use nabu_tests::charts::tables::{replace, rights_table, values_table};
use nabu_tests::charts::{CHARTS, Case, folder};
use nabu_tests::process::repository_root;

use crate::bed::shared;

/// Compares a file with what it should be, or writes it if `UPDATE` is set.
pub(crate) fn check(path: &Path, wanted: &str) -> Result<()> {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        return Ok(std::fs::write(path, wanted)?);
    }
    if std::fs::read_to_string(path).unwrap_or_default() != wanted {
        bail!(
            "{} is stale; look at what `make charts` makes of it",
            path.display()
        );
    }
    Ok(())
}

#[test]
fn what_was_rendered_is_kept_for_every_case() -> Result<()> {
    let mut kept = Vec::new();
    for case in Case::all()? {
        check(&case.snapshot(), &case.render()?)?;
        kept.push(case.snapshot());
    }
    for chart in CHARTS {
        let folder = repository_root().join("tests/snapshots/charts").join(chart);
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            assert!(kept.contains(&path), "{} is of no case", path.display());
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_helm_says_is_kept_for_every_case() -> Result<()> {
    let cluster = shared().await;
    let folder = repository_root().join("tests/snapshots/notes");
    let mut kept = Vec::new();
    for case in Case::all()? {
        let path = folder.join(&case.chart).join(format!("{}.txt", case.name));
        check(&path, &case.notes(&cluster.kubeconfig())?)?;
        kept.push(path);
    }
    for chart in CHARTS {
        for entry in std::fs::read_dir(folder.join(chart))? {
            let path = entry?.path();
            assert!(kept.contains(&path), "{} is of no case", path.display());
        }
    }
    Ok(())
}

#[test]
fn the_readmes_have_every_value_with_its_comment() -> Result<()> {
    for chart in CHARTS {
        let table = values_table(&std::fs::read_to_string(folder(chart).join("values.yaml"))?)?;
        let path = folder(chart).join("README.md");
        check(
            &path,
            &replace(&std::fs::read_to_string(&path)?, 0, &table)?,
        )?;
    }
    Ok(())
}

#[test]
fn the_book_has_the_rights_of_the_templates() -> Result<()> {
    let path = repository_root().join("docs/src/installation/rights.md");
    let mut book = std::fs::read_to_string(&path)?;
    for (index, chart) in ["nabu-agent", "nabu-hub"].into_iter().enumerate() {
        let cases = Case::all()?.into_iter();
        let case = cases.filter(|case| case.chart == chart);
        let wanted = |case: &Case| case.name == "default";
        let case = case.into_iter().find(wanted).context("no default case")?;
        book = replace(&book, index, &rights_table(&case.render()?)?)?;
    }
    check(&path, &book)
}
