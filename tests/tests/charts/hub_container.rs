//! The hub in its image as a runtime starts it: beside its volume nothing can be written to.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nabu_tests::charts::deployed::Deployed;
use nabu_tests::charts::release::{
    Pki, agent_values, create_namespace, deployed, deployment, hub_values, release, render,
};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::objects::{event_response, write_file};
use nabu_tests::process::{repository_root, tail};
use nabu_tests::wait::eventually;
use sha2::{Digest as _, Sha384};

use crate::bed::LIMIT;
use crate::image::{Image, UID};

const NAMESPACE: &str = "nabu-system";
/// The last step of the database that the history is written for.
const EARLY: &str = "0004";
/// Enough for SQLite to write more about one statement than it does in memory by itself.
const MANY: u32 = 2_000;

/// Gives statements to the database, and what it answers.
fn sql(database: &Path, statements: &str) -> Result<String> {
    let mut shell = Command::new("sqlite3")
        .args(["-bail", "-cmd", ".timeout 10000"])
        .arg(database)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = shell.stdin.take().context("no input")?;
    stdin.write_all(statements.as_bytes())?;
    drop(stdin);
    let said = shell.wait_with_output()?;
    ensure!(said.status.success(), "sqlite3: {}", said.status);
    Ok(String::from_utf8(said.stdout)?)
}

/// A database as an early hub left it, with finished responses and old lines of the audit log.
fn early_history(database: &Path) -> Result<()> {
    let steps = repository_root().join("hub/migrations/sqlite");
    let mut steps = std::fs::read_dir(steps)?.collect::<Result<Vec<_>, _>>()?;
    steps.sort_by_key(std::fs::DirEntry::file_name);
    let mut statements = String::from(
        "PRAGMA journal_mode = WAL;
        CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
            installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL,
            execution_time BIGINT NOT NULL);",
    );
    for step in steps {
        let name = step.file_name().into_string().ok().context("a name")?;
        let (number, rest) = name.split_once('_').context("a number")?;
        if number > EARLY {
            break;
        }
        let content = std::fs::read_to_string(step.path())?;
        let checksum = hex::encode(Sha384::digest(&content));
        let description = rest.trim_end_matches(".sql").replace('_', " ");
        statements += &content;
        write!(
            statements,
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                VALUES ({}, '{description}', TRUE, x'{checksum}', 1);",
            number.parse::<u32>()?
        )?;
    }
    write!(
        statements,
        "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})
        INSERT INTO responses (cluster, uid, name, generation, responder, spec_hash, observed_at, phase, revision,
            acknowledged_revision, deleted, progress)
        SELECT 'of-old', 'uid-' || n, 'er-' || n, 1, 'x', x'00', n, 'Failed', 1, 1, 0, '{{}}' FROM numbers;
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})
        INSERT INTO audit (at, actor, action, detail) SELECT n, 'hub', 'Old', printf('%0500d', n) FROM numbers;"
    )?;
    sql(database, &statements).map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hub_serves_upgrades_and_prunes_its_database_where_only_its_volume_can_be_written()
-> Result<()> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can be somebody else in a root of their own");
        return Ok(());
    }
    let cluster = TestCluster::start(Crds::Nabu).await?;
    create_namespace(&cluster, NAMESPACE)?;
    let pki = Pki::create()?;
    pki.hub_secret(&cluster, NAMESPACE)?;
    pki.agent_secret(&cluster, NAMESPACE, "prod-eu")?;
    let (mut values, port) = hub_values()?;
    let provider = "config.documents.default.routes[0].provider";
    values.push(format!(
        "{provider}.kind=noop,{provider}.repository=o/r,{provider}.baseBranch=main"
    ));
    release(&cluster, "install", ("nabu-hub", NAMESPACE), &values)?;
    let rendered = render("nabu-hub", "nabu-hub", NAMESPACE, &values)?;
    let mut hub = Deployed::prepare(&cluster, deployment(&rendered)?).await?;
    let database = hub.inside("/var/lib/nabu/nabu.db");
    early_history(&database)?;

    let image = Image::make("hub")?;
    hub.launch_in(&cluster, &image.root()?, (UID, None))?;
    hub.ready(LIMIT).await?;
    let agent_values = agent_values("prod-eu", "ours", port)?;
    release(
        &cluster,
        "install",
        ("nabu-agent", NAMESPACE),
        &agent_values,
    )?;
    let mut agent = deployed(&cluster, NAMESPACE, "nabu-agent").await?;
    agent.start().await?;
    let change = write_file("any", "a.yaml", "a: 1\n");
    cluster
        .create_event_response("ours", event_response("nobody", "ours", change))
        .await?;
    assert_eq!(cluster.finished("ours", LIMIT).await?["phase"], "Succeeded");
    let old = "SELECT count(*) FROM audit WHERE action = 'Old'";
    eventually("the old lines of the audit log are gone", LIMIT, || async {
        // The newest line stays, whatever it is, and that was an old one when they were removed.
        ["0", "1"]
            .contains(&sql(&database, old).ok()?.trim())
            .then_some(())
    })
    .await
    .with_context(|| tail(&hub.log(), 5))?;

    let mounts = std::fs::read_to_string(format!("/proc/{}/mounts", hub.process()?.id()))?;
    let writable: Vec<_> = mounts
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|fields| fields[3].split(',').any(|option| option == "rw"))
        .map(|fields| fields[1])
        .collect();
    assert_eq!(writable, ["/var/lib/nabu"]);
    let ended = hub.process()?.terminate(LIMIT)?;
    assert!(ended.success(), "{ended}: {}", tail(&hub.log(), 5));
    Ok(())
}
