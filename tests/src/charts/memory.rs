//! A limit on the memory of a program: a cgroup as a container runtime makes one, else a limit of the kernel on its data.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

/// A limit on memory that processes can be put under.
#[derive(Debug)]
pub enum MemoryLimit {
    /// The folder of a cgroup of this test's own.
    Cgroup(PathBuf),
    /// Bytes of private memory that may be written to (`RLIMIT_DATA`): stricter, as memory counts that was never touched.
    Data(u64),
}

impl MemoryLimit {
    /// Limits memory to this many bytes; nothing where neither can be had.
    pub fn create(bytes: u64) -> Option<Self> {
        let prlimit = || Command::new("prlimit").arg("--version").output();
        Self::cgroup(bytes).or_else(|| prlimit().is_ok().then_some(Self::Data(bytes)))
    }

    fn cgroup(bytes: u64) -> Option<Self> {
        let name = format!("nabu-test-{}", std::process::id());
        for (parent, file) in [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            ("/sys/fs/cgroup", "memory.max"),
        ] {
            let folder = Path::new(parent).join(&name);
            if std::fs::create_dir(&folder).is_ok() {
                let limit = Self::Cgroup(folder.clone());
                if std::fs::write(folder.join(file), bytes.to_string()).is_ok() {
                    return Some(limit);
                }
            }
        }
        None
    }

    /// Whether this process is under the limit.
    pub fn holds(&self, process: u32) -> Result<bool> {
        let (file, wanted) = match self {
            Self::Cgroup(folder) => ("cgroup", folder.file_name().context("no name")?),
            Self::Data(_) => ("limits", "Max data size".as_ref()),
        };
        let text = std::fs::read_to_string(format!("/proc/{process}/{file}"))?;
        let wanted = wanted.to_str().context("no text")?;
        let data = self.data();
        Ok(text
            .lines()
            .any(|line| line.contains(wanted) && line.contains(&data)))
    }

    /// The folder of the cgroup; empty without one.
    pub(super) fn folder(&self) -> &Path {
        match self {
            Self::Cgroup(folder) => folder,
            Self::Data(_) => Path::new(""),
        }
    }

    /// The bytes for `prlimit`; empty with a cgroup.
    pub(super) fn data(&self) -> String {
        match self {
            Self::Cgroup(_) => String::new(),
            Self::Data(bytes) => bytes.to_string(),
        }
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if let Self::Cgroup(folder) = self {
            let _ = std::fs::remove_dir(folder);
        }
    }
}
