//! `nabu-hub backup` beside a hub that runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::noop_config;
use nabu_tests::process::workspace_binary;

use crate::bed::hub;
use crate::nabuctl::with_a_response;

fn backup(hub: &TestHub, out: &str) -> Result<Output> {
    let store = hub.store_path();
    let store = store.to_str().context("no text")?;
    Ok(Command::new(workspace_binary("nabu-hub")?)
        .args(["backup", "--store", store, "--out", out])
        .output()?)
}

fn asked(database: &Path, question: &str) -> Result<String> {
    let said = Command::new("sqlite3")
        .arg(database)
        .arg(question)
        .output()?;
    ensure!(said.status.success(), "{said:?}");
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_database_in_use_is_whole_and_for_its_owner_only() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let out = hub.dir().join("copy.db");
    let shown = out.to_str().context("no text")?;
    let done = backup(&hub, shown)?;
    ensure!(done.status.success(), "{done:?}");
    assert_eq!(asked(&out, "PRAGMA integrity_check")?, "ok");
    assert_eq!(asked(&out, "SELECT count(*) FROM responses")?, "1");
    assert_eq!(out.metadata()?.permissions().mode() & 0o777, 0o600);

    let again = backup(&hub, shown)?;
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8_lossy(&again.stderr);
    ensure!(said.contains("not there yet"), "{said}");
    assert_eq!(asked(&out, "SELECT count(*) FROM responses")?, "1");

    let piped = backup(&hub, "-")?;
    ensure!(piped.status.success(), "{}", piped.status);
    let other = hub.dir().join("piped.db");
    std::fs::write(&other, &piped.stdout)?;
    assert_eq!(asked(&other, "PRAGMA integrity_check")?, "ok");
    assert_eq!(asked(&other, "SELECT count(*) FROM responses")?, "1");
    let beside = hub.store_path();
    let beside = std::fs::read_dir(beside.parent().context("no folder")?)?;
    for entry in beside {
        let name = entry?.file_name();
        ensure!(!name.to_string_lossy().contains(".backup-"), "{name:?}");
    }
    Ok(())
}
