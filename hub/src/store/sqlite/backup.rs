//! Copies a database as it is at one moment, also while a hub uses it: `nabu-hub backup`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use sqlx::ConnectOptions as _;
use sqlx::sqlite::SqliteConnectOptions;

use super::BUSY_TIMEOUT;

/// A file that goes when this does.
struct Passing(PathBuf);

impl Drop for Passing {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Copies the database to a file that is not there yet, readable by its owner only, or for `-` to standard output. That one
/// needs as much room again beside the database.
///
/// # Errors
/// If there is no database, or the copy cannot be written; the text names the file and the remedy.
pub async fn run(store: &Path, out: &Path) -> anyhow::Result<()> {
    ensure!(
        store.is_file(),
        "there is no database {}; --store says where it is",
        store.display()
    );
    if out != Path::new("-") {
        create(out)?;
        let copied = copy(store, out).await;
        if copied.is_err() {
            drop(Passing(out.to_owned()));
        }
        copied?;
        return Ok(File::open(out)?.sync_all()?);
    }
    let mut beside = store.as_os_str().to_owned();
    beside.push(format!(".backup-{:016x}", rand::random::<u64>()));
    let passing = Passing(PathBuf::from(beside));
    create(&passing.0)?;
    copy(store, &passing.0).await?;
    let (mut copied, mut out) = (File::open(&passing.0)?, io::stdout().lock());
    // Whatever ends this program from here on, the copy goes with it.
    drop(passing);
    io::copy(&mut copied, &mut out).context("cannot write to standard output")?;
    Ok(())
}

fn create(path: &Path) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600).open(path);
    created.with_context(|| {
        format!(
            "cannot make {}; give a file that is not there yet",
            path.display()
        )
    })?;
    Ok(())
}

async fn copy(store: &Path, to: &Path) -> anyhow::Result<()> {
    let path = to
        .to_str()
        .with_context(|| format!("{} is no text", to.display()))?;
    let options = SqliteConnectOptions::new()
        .filename(store)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("temp_store", "memory")
        .disable_statement_logging();
    let mut connection = options
        .connect()
        .await
        .with_context(|| format!("cannot open {}", store.display()))?;
    // Into an empty file this is one read transaction: the hub goes on writing meanwhile.
    sqlx::query("VACUUM INTO ?1")
        .bind(path)
        .execute(&mut connection)
        .await
        .with_context(|| format!("cannot copy {} to {path}", store.display()))?;
    Ok(())
}
