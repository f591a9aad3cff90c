//! The images: put together without a container daemon, unpacked into an empty root, and run there as the charts say.
//!
//! Made from the debug binaries here, stripped; `make image` makes them from release builds.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use nabu_tests::charts::deployed::Deployed;
use nabu_tests::charts::memory::MemoryLimit;
use nabu_tests::charts::release::{
    agent_values, apply, create_namespace, deployment, release, render, tls_secret,
};
use nabu_tests::cluster::{Crds, TestCluster};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{event_response, noop_config, write_file};
use nabu_tests::process::{repository_root, tail, workspace_binary};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::bed::LIMIT;

/// An unpacked image.
pub(crate) struct Image {
    dir: TempDir,
    archive: PathBuf,
    config: Value,
}

impl Image {
    /// Makes an image and unpacks it as a runtime would, checking every digest.
    pub(crate) fn make(name: &str) -> Result<Self> {
        let dir = TempDir::with_prefix("nabu-image-")?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        let archive = dir.path().join("image.tar");
        let binaries = workspace_binary(&format!("nabu-{name}"))?;
        let made = Command::new(repository_root().join("scripts/image.sh"))
            .arg(name)
            .arg(binaries.parent().context("no folder")?)
            .arg(&archive)
            .status()?;
        ensure!(made.success(), "scripts/image.sh failed");
        let mut image = Self {
            dir,
            archive,
            config: Value::Null,
        };
        tar(
            &["-xf".as_ref(), image.archive.as_ref()],
            &image.folder("layout")?,
        )?;
        let index: Value =
            serde_json::from_slice(&std::fs::read(image.folder("layout")?.join("index.json"))?)?;
        let manifest: Value =
            serde_json::from_slice(&std::fs::read(image.blob(&index["manifests"][0])?)?)?;
        image.config = serde_json::from_slice(&std::fs::read(image.blob(&manifest["config"])?)?)?;
        let layer = image.blob(&manifest["layers"][0])?;
        tar(&["-xzf".as_ref(), layer.as_ref()], &image.root()?)?;
        Ok(image)
    }

    /// The file of a descriptor, if its size and digest are right.
    fn blob(&self, descriptor: &Value) -> Result<PathBuf> {
        let digest = descriptor["digest"].as_str().context("no digest")?;
        let hex = digest.trim_start_matches("sha256:");
        let path = self.folder("layout")?.join("blobs/sha256").join(hex);
        let content = std::fs::read(&path)?;
        ensure!(descriptor["size"] == content.len(), "{descriptor}");
        ensure!(hex::encode(Sha256::digest(&content)) == hex, "{descriptor}");
        Ok(path)
    }

    fn folder(&self, name: &str) -> Result<PathBuf> {
        let folder = self.dir.path().join(name);
        std::fs::create_dir_all(&folder)?;
        Ok(folder)
    }

    /// The root file system.
    pub(crate) fn root(&self) -> Result<PathBuf> {
        self.folder("root")
    }
}

fn tar(arguments: &[&std::ffi::OsStr], folder: &Path) -> Result<()> {
    let status = Command::new("tar")
        .args(arguments)
        .arg("-C")
        .arg(folder)
        .status()?;
    ensure!(status.success(), "tar {arguments:?} failed");
    Ok(())
}

#[test]
fn an_image_has_the_program_and_what_it_links_and_nobody_is_root_in_it() -> Result<()> {
    for (name, limit_mib) in [("agent", 15), ("hub", 40)] {
        let image = Image::make(name)?;
        let config = &image.config["config"];
        assert_eq!(config["User"], "65532:65532");
        assert_eq!(config["Entrypoint"], json!([format!("/nabu-{name}")]));
        let root = image.root()?;
        for shell in ["bin/sh", "usr/bin/sh", "bin/bash"] {
            assert!(!root.join(shell).exists(), "{shell}");
        }
        assert_eq!(
            root.join("etc/ssl/certs/ca-certificates.crt").exists(),
            name == "hub"
        );
        let said = Command::new("unshare")
            .args(["--map-root-user", "--root"])
            .arg(&root)
            .args([&format!("/nabu-{name}"), "--version"])
            .output()?;
        let said = String::from_utf8(said.stdout)? + &String::from_utf8(said.stderr)?;
        assert!(said.starts_with(&format!("nabu-{name} ")), "{said}");
        let size = std::fs::metadata(&image.archive)?.len();
        assert!(size <= limit_mib << 20, "{name}: {size} bytes");
    }
    Ok(())
}

#[test]
fn the_same_binaries_give_the_same_image() -> Result<()> {
    let [first, second] = [Image::make("agent")?, Image::make("agent")?];
    assert_eq!(
        std::fs::read(first.archive)?,
        std::fs::read(second.archive)?
    );
    Ok(())
}

/// EventResponses that a cluster has.
const MANY: usize = 10_000;
/// The memory limit of the chart.
const MEMORY: u64 = 64 << 20;
/// A uid that nobody has, as a cluster hands out.
pub(crate) const UID: u32 = 1_000_650_000;

async fn fill(cluster: &TestCluster) -> Result<()> {
    let made = futures::stream::iter(0..MANY).map(|number| {
        let change = write_file("any", "a.yaml", &"a: 1\n".repeat(50));
        let spec = event_response("nobody", "somebody-else", change);
        async move {
            cluster
                .create_event_response(&format!("er-{number}"), spec)
                .await
        }
    });
    let made = made.buffer_unordered(32).collect::<Vec<_>>().await;
    made.into_iter().collect::<Result<Vec<_>>>().map(drop)
}

fn field(process: u32, name: &str) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    Ok(line.context("no such field")?.trim().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_serves_beside_ten_thousand_objects_within_what_its_container_allows()
-> Result<()> {
    const NAMESPACE: &str = "nabu-system";
    if !rustix::process::geteuid().is_root() {
        eprintln!("left out: only root can be somebody else in a root of their own");
        return Ok(());
    }
    let cluster = TestCluster::start(Crds::Nabu).await?;
    create_namespace(&cluster, NAMESPACE)?;
    fill(&cluster).await?;
    let hub = TestHub::start(&[("config.yaml", noop_config("o/r"))], HubOptions::quiet()).await?;
    let secret = tls_secret(&hub.issue_agent("prod-eu")?, NAMESPACE, "prod-eu-tls")?;
    apply(&cluster, &[secret], &[])?;
    let port = hub
        .agents_url()
        .rsplit(':')
        .next()
        .unwrap_or_default()
        .parse()?;
    let values = agent_values("prod-eu", "ours", port)?;
    release(&cluster, "install", ("nabu-agent", NAMESPACE), &values)?;
    let rendered = render("nabu-agent", "nabu-agent", NAMESPACE, &values)?;
    let limits = &deployment(&rendered)?["spec"]["template"]["spec"]["containers"][0]["resources"];
    assert_eq!(limits["limits"]["memory"], "64Mi", "the limit of this test");

    let image = Image::make("agent")?;
    let limit = MemoryLimit::create(MEMORY);
    assert!(
        limit.is_some() || std::env::var_os("CI").is_none(),
        "neither a cgroup nor prlimit can limit memory here, so this test would show nothing of it"
    );
    let mut agent = Deployed::prepare(&cluster, deployment(&rendered)?).await?;
    agent.launch_in(&cluster, &image.root()?, (UID, limit.as_ref()))?;
    agent.ready(LIMIT).await?;
    let change = write_file("any", "a.yaml", "a: 1\n");
    cluster
        .create_event_response("ours", event_response("nobody", "ours", change))
        .await?;
    assert_eq!(cluster.finished("ours", LIMIT).await?["phase"], "Succeeded");

    let process = agent.process()?;
    let id = process.id();
    if let Some(limit) = &limit {
        assert!(limit.holds(id)?, "{limit:?}");
    }
    assert_eq!(field(id, "CapEff:")?, "0000000000000000");
    assert_eq!(field(id, "CapPrm:")?, "0000000000000000");
    assert!(field(id, "Uid:")?.starts_with(&UID.to_string()));
    let mounts = std::fs::read_to_string(format!("/proc/{id}/mounts"))?;
    let root = mounts
        .lines()
        .find(|line| line.split(' ').nth(1) == Some("/"))
        .context("no root")?;
    assert!(root.split(' ').nth(3).unwrap().starts_with("ro"), "{root}");
    let (_, peak) = process.memory_kib()?;
    assert!(peak * 1024 < MEMORY, "{peak} KiB");
    let ended = process.terminate(LIMIT)?;
    assert!(ended.success(), "{ended}: {}", tail(&agent.log(), 5));
    Ok(())
}
