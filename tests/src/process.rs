//! Child processes of a test: found by their path, ended by their id, and never left behind.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A process that ends with the value that owns it.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a command; its output goes to `log`, appended, so that a restart keeps the story.
    pub fn start(name: &str, command: &mut Command, log: &Path) -> Result<Self> {
        let file = File::options()
            .create(true)
            .append(true)
            .open(log)
            .with_context(|| format!("cannot open {}", log.display()))?;
        let child = command
            .stdin(Stdio::piped())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}: {}", command.get_program().display()))?;
        Ok(Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
        })
    }

    /// The id of the process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the process has written so far.
    pub fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Fails, with the end of its output, if the process has ended.
    pub fn assert_running(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!(
                "{} ended with {status}:\n{}",
                self.name,
                tail(&self.output(), 40)
            );
        }
        Ok(())
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// `kill -9`, and waits for the end.
    pub fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// SIGTERM, and waits; a process that does not end within `limit` is an error (and is killed).
    pub fn terminate(&mut self, limit: Duration) -> Result<ExitStatus> {
        let pid = i32::try_from(self.child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("no process id")?;
        if self.child.try_wait()?.is_none() {
            kill_process(pid, Signal::TERM)?;
        }
        self.wait(limit)
    }

    /// Waits for the end of the process by itself.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                self.kill()?;
                bail!(
                    "{} did not end within {limit:?}:\n{}",
                    self.name,
                    tail(&self.output(), 40)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Resident memory in KiB: now, and at its peak.
    pub fn memory_kib(&self) -> Result<(u64, u64)> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .and_then(|rest| rest.split_whitespace().next())
                .and_then(|number| number.parse().ok())
                .with_context(|| format!("no {name} in /proc"))
        };
        Ok((field("VmRSS:")?, field("VmHWM:")?))
    }

    /// Processor time used so far.
    pub fn cpu_time(&self) -> Result<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()))?;
        // Fields 14 and 15, counted from 1; the name before them may hold spaces and ends with ')'.
        let rest = stat.rsplit_once(')').context("no name in /proc stat")?.1;
        let ticks: u64 = rest
            .split_whitespace()
            .skip(11)
            .take(2)
            .filter_map(|n| n.parse::<u64>().ok())
            .sum();
        Ok(Duration::from_millis(
            ticks * 1000 / rustix::param::clock_ticks_per_second(),
        ))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The last lines of a text.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// A binary of this workspace, built beside the running test.
pub fn workspace_binary(name: &str) -> Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let folder = exe
        .ancestors()
        .skip(1)
        .find(|folder| folder.join(name).is_file())
        .with_context(|| format!("{name} is not built; run `make build` first"))?;
    Ok(folder.join(name))
}

/// A program that `scripts/prerequisites.sh --install` has built, in the version that it names.
pub fn go_tool(name: &str) -> Result<PathBuf> {
    let script = std::fs::read_to_string(repository_root().join("scripts/prerequisites.sh"))?;
    let line = format!("{name}_version=");
    let version = script.lines().find_map(|text| text.strip_prefix(&line));
    let version = version.with_context(|| format!("the script names no version of {name}"))?;
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = cache.unwrap_or_else(home);
    let path = cache.join(format!("nabu/bin/{name}-v{version}"));
    anyhow::ensure!(
        path.is_file(),
        "{} is missing; run `make prerequisites` first",
        path.display()
    );
    Ok(path)
}

/// The root of the repository.
pub fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .unwrap_or_default()
}

/// Where `scripts/testbed.sh` keeps a server that it has built.
pub fn testbed_path(what: &str) -> Result<PathBuf> {
    let script = repository_root().join("scripts/testbed.sh");
    let output = Command::new(&script)
        .args(["path", what])
        .output()
        .context("cannot run scripts/testbed.sh")?;
    let path = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if !output.status.success() || !path.exists() {
        bail!("the test bed's {what} is not built; run `make testbed` first");
    }
    Ok(path)
}

/// A file of an npm package that `scripts/prerequisites.sh --install` keeps in the cache.
pub fn npm_path(file: &str) -> Result<PathBuf> {
    cached(&Path::new("npm/node_modules").join(file))
}

/// The folder of the Python packages that `scripts/prerequisites.sh --install` keeps in the cache.
pub fn python_packages() -> Result<PathBuf> {
    cached(Path::new("python"))
}

/// Something that `scripts/prerequisites.sh --install` keeps in the cache.
pub fn cached(what: &Path) -> Result<PathBuf> {
    let cache = match std::env::var_os("XDG_CACHE_HOME") {
        Some(cache) if !cache.is_empty() => PathBuf::from(cache),
        _ => PathBuf::from(std::env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    let path = cache.join("nabu").join(what);
    if !path.exists() {
        bail!(
            "{} is not in the cache; run `make prerequisites` first",
            what.display()
        );
    }
    Ok(path)
}

/// A free port on loopback, below those that the kernel gives to outgoing connections: it is still free when a server
/// that was killed is started again. No two calls of a process give the same.
pub fn free_port() -> Result<u16> {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 10_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run beside each other begin at different places.
    let start = std::process::id().wrapping_mul(631);
    for _ in 0..COUNT {
        let turn = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + turn % COUNT)?;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between {FIRST} and {} is free", FIRST + COUNT)
}
