//! Bare git repositories, changed with git's own plumbing, so that a test can compare what is in them byte by byte.
//!
//! Every call runs the `git` program and blocks. Nothing here knows a forge.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// The id that stands for "no object".
pub const NO_OBJECT: &str = "0000000000000000000000000000000000000000";

/// The mode of a plain file.
pub const PLAIN: &str = "100644";
/// The mode of a file that may be run.
pub const EXECUTABLE: &str = "100755";
/// The mode of a symbolic link.
pub const SYMLINK: &str = "120000";

/// Who wrote or committed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Name as in a commit.
    pub name: String,
    /// Mail as in a commit.
    pub email: String,
}

impl Signature {
    /// A signature.
    pub fn new(name: &str, email: &str) -> Self {
        Self {
            name: name.to_owned(),
            email: email.to_owned(),
        }
    }
}

/// One entry of a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// `100644`, `100755`, `120000`, `040000` or `160000`.
    pub mode: String,
    /// `blob`, `tree` or `commit`.
    pub kind: String,
    /// Object id in hex.
    pub oid: String,
    /// Path from the tree that was asked for.
    pub path: String,
}

/// A commit as git has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Object id in hex.
    pub oid: String,
    /// Its tree.
    pub tree: String,
    /// The commits before it.
    pub parents: Vec<String>,
    /// Who wrote it.
    pub author: Signature,
    /// Who committed it.
    pub committer: Signature,
    /// When it was written, in seconds since 1970.
    pub authored_at: i64,
    /// When it was committed, in seconds since 1970.
    pub committed_at: i64,
    /// The whole message.
    pub message: String,
}

/// One change of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The path becomes this object.
    Put {
        /// Path from the root.
        path: String,
        /// Mode of the entry.
        mode: String,
        /// Object id in hex.
        oid: String,
    },
    /// The path goes away.
    Delete {
        /// Path from the root.
        path: String,
    },
}

/// A bare repository in a folder.
#[derive(Clone, Debug)]
pub struct GitRepository {
    dir: PathBuf,
}

impl GitRepository {
    /// Makes an empty one.
    pub fn init(dir: &Path) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let repository = Self::at(dir);
        repository.text(&["init", "--bare", "--quiet", "--initial-branch=main"])?;
        Ok(repository)
    }

    pub(super) fn at(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// Where it is, for a look with other tools.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a blob.
    pub fn write_blob(&self, content: &[u8]) -> Result<String> {
        let output = self.run(
            &["hash-object", "-w", "--no-filters", "--stdin"],
            content,
            &[],
        )?;
        line(output)
    }

    /// The bytes of a blob.
    pub fn blob(&self, oid: &str) -> Result<Vec<u8>> {
        self.run(&["cat-file", "blob", oid], b"", &[])
    }

    /// `blob`, `tree`, `commit` or `tag`; `None` if there is no such object.
    pub fn kind(&self, oid: &str) -> Result<Option<String>> {
        if oid.is_empty() || oid.starts_with('-') {
            return Ok(None);
        }
        let output = self.command(&["cat-file", "-t", oid]).output()?;
        Ok(output
            .status
            .success()
            .then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned()))
    }

    /// The object that an expression such as `main:some/path` stands for.
    pub fn resolve(&self, expression: &str) -> Result<Option<String>> {
        if expression.starts_with('-') {
            return Ok(None);
        }
        let output = self
            .command(&["rev-parse", "--verify", "--quiet", "--end-of-options"])
            .arg(expression)
            .output()?;
        if !output.status.success() {
            return Ok(None);
        }
        let oid = line(output.stdout)?;
        // A whole id is taken for good without a look whether there is such an object.
        Ok(self.kind(&oid)?.map(|_| oid))
    }

    /// The entries of a tree or commit, with everything below it if `recursive`. A path that is no UTF-8 is shown as
    /// forges show it, with a replacement character.
    pub fn tree(&self, treeish: &str, recursive: bool) -> Result<Vec<Entry>> {
        let recursion: &[&str] = if recursive { &["-r", "-t"] } else { &[] };
        let output = self.run(
            &[&["ls-tree", "-z", "--full-tree"], recursion, &[treeish]].concat(),
            b"",
            &[],
        )?;
        let text = String::from_utf8_lossy(&output);
        text.split_terminator('\0').map(entry).collect()
    }

    /// The entry at a path, if there is one.
    pub fn entry(&self, treeish: &str, path: &str) -> Result<Option<Entry>> {
        let mut command = self.command(&["ls-tree", "-z", "--full-tree", treeish, "--"]);
        let output = command.arg(path).output()?;
        ensure!(
            output.status.success(),
            "git ls-tree: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).context("a path that is no UTF-8")?;
        let mut entries = text.split_terminator('\0').map(entry);
        Ok(entries
            .next()
            .transpose()?
            .filter(|found| found.path == path))
    }

    /// The tree that comes of changes to another (or to none).
    pub fn write_tree(&self, base: Option<&str>, changes: &[Change]) -> Result<String> {
        let mut input = Vec::new();
        for change in changes {
            match change {
                Change::Put { path, mode, oid } => {
                    write!(input, "{mode} {oid}\t{path}\0")?;
                }
                Change::Delete { path } => write!(input, "0 {NO_OBJECT}\t{path}\0")?,
            }
        }
        self.write_index(base, &input)
    }

    /// The tree that comes of what `git update-index` is told about another tree (or about none).
    pub(super) fn write_index(&self, base: Option<&str>, input: &[u8]) -> Result<String> {
        let folder = tempfile::tempdir_in(&self.dir)?;
        let index = [(
            "GIT_INDEX_FILE",
            folder.path().join("index").into_os_string(),
        )];
        match base {
            Some(base) => self.run(&["read-tree", base], b"", &index)?,
            None => self.run(&["read-tree", "--empty"], b"", &index)?,
        };
        self.run(&["update-index", "-z", "--index-info"], input, &index)?;
        line(self.run(&["write-tree"], b"", &index)?)
    }

    /// The tree of these entries alone, each a name without a slash.
    pub fn make_tree(&self, entries: &[Entry]) -> Result<String> {
        let mut input = Vec::new();
        for entry in entries {
            let Entry {
                mode,
                kind,
                oid,
                path,
            } = entry;
            write!(input, "{mode} {kind} {oid}\t{path}\0")?;
        }
        line(self.run(&["mktree", "-z"], &input, &[])?)
    }

    /// Makes a commit; no ref points to it yet.
    pub fn write_commit(
        &self,
        tree: &str,
        parents: &[String],
        message: &str,
        author: &Signature,
        committer: &Signature,
    ) -> Result<String> {
        let mut arguments = vec!["commit-tree", tree];
        for parent in parents {
            arguments.extend(["-p", parent]);
        }
        let who = [
            ("GIT_AUTHOR_NAME", OsString::from(&author.name)),
            ("GIT_AUTHOR_EMAIL", OsString::from(&author.email)),
            ("GIT_COMMITTER_NAME", OsString::from(&committer.name)),
            ("GIT_COMMITTER_EMAIL", OsString::from(&committer.email)),
        ];
        line(self.run(&arguments, message.as_bytes(), &who)?)
    }

    /// A commit.
    pub fn commit(&self, oid: &str) -> Result<Commit> {
        let format = "--format=%H%x00%T%x00%P%x00%an%x00%ae%x00%at%x00%cn%x00%ce%x00%ct%x00%B";
        let text = self.text(&["show", "--no-patch", "--no-show-signature", format, oid])?;
        let mut parts = text.splitn(10, '\0');
        let mut next = || parts.next().context("git show says less than it was asked");
        let (oid, tree, parents) = (next()?, next()?, next()?);
        let author = Signature::new(next()?, next()?);
        let authored_at = next()?.parse()?;
        let committer = Signature::new(next()?, next()?);
        let committed_at = next()?.parse()?;
        Ok(Commit {
            oid: oid.to_owned(),
            tree: tree.to_owned(),
            parents: parents.split_whitespace().map(str::to_owned).collect(),
            author,
            committer,
            authored_at,
            committed_at,
            message: next()?.trim_end_matches('\n').to_owned(),
        })
    }

    /// The ids of a commit and of all before it, newest first; without those that `without` has.
    pub fn history(&self, tip: &str, without: Option<&str>) -> Result<Vec<String>> {
        let mut arguments = vec!["rev-list", "--topo-order", tip];
        let excluded = without.map(|oid| format!("^{oid}"));
        arguments.extend(excluded.as_deref());
        Ok(self.text(&arguments)?.lines().map(str::to_owned).collect())
    }

    /// Whether one commit is another or before it.
    pub fn is_ancestor(&self, ancestor: &str, descendant: &str) -> Result<bool> {
        let mut command = self.command(&["merge-base", "--is-ancestor", ancestor, descendant]);
        let output = command.output()?;
        match output.status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => bail!(
                "git merge-base: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }

    /// The commit that two have in common.
    pub fn merge_base(&self, one: &str, other: &str) -> Result<Option<String>> {
        let output = self.command(&["merge-base", one, other]).output()?;
        Ok(match output.status.code() {
            Some(0) => Some(line(output.stdout)?),
            _ => None,
        })
    }

    /// Files, added lines and removed lines from one commit to another.
    pub fn diff_stat(&self, from: &str, to: &str) -> Result<(u64, u64, u64)> {
        let text = self.text(&["diff", "--numstat", "--no-renames", from, to])?;
        let count = |line: &str, column: usize| -> u64 {
            let mut columns = line.split('\t');
            // A binary file has a dash.
            columns
                .nth(column)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        Ok(text
            .lines()
            .fold((0, 0, 0), |(files, added, removed), line| {
                (files + 1, added + count(line, 0), removed + count(line, 1))
            }))
    }

    /// The tree of a merge, or `None` if it conflicts.
    pub fn merge_tree(&self, ours: &str, theirs: &str) -> Result<Option<String>> {
        let mut command = self.command(&["merge-tree", "--write-tree", ours, theirs]);
        let output = command.output()?;
        match output.status.code() {
            Some(0) => Ok(Some(line(output.stdout)?)),
            Some(1) => Ok(None),
            _ => bail!(
                "git merge-tree: {}",
                String::from_utf8_lossy(&output.stderr)
            ),
        }
    }

    /// Lines that are added and taken away from one tree or commit to another; those of binary files are not counted.
    pub fn lines(&self, from: &str, to: &str) -> Result<(u64, u64)> {
        let text = self.text(&["diff-tree", "-r", "--numstat", from, to])?;
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        Ok(text.lines().fold((0, 0), |(added, deleted), line| {
            let mut columns = line.split('\t');
            let more = number(columns.next()).unwrap_or(0);
            let less = number(columns.next()).unwrap_or(0);
            (added + more, deleted + less)
        }))
    }

    /// The paths that differ from one tree or commit to another, each with `A`, `M`, `D` or `T`.
    pub fn changed(&self, from: &str, to: &str) -> Result<Vec<(char, String)>> {
        let text = self.text(&["diff-tree", "-r", "-z", "--name-status", from, to])?;
        let mut parts = text.split_terminator('\0');
        let mut changed = Vec::new();
        while let (Some(kind), Some(path)) = (parts.next(), parts.next()) {
            changed.push((kind.chars().next().unwrap_or('M'), path.to_owned()));
        }
        Ok(changed)
    }

    /// All refs with what they point to.
    pub fn refs(&self) -> Result<BTreeMap<String, String>> {
        let text = self.text(&["for-each-ref", "--format=%(refname)%00%(objectname)"])?;
        Ok(text
            .lines()
            .filter_map(|line| line.split_once('\0'))
            .map(|(name, oid)| (name.to_owned(), oid.to_owned()))
            .collect())
    }

    /// What a ref points to.
    pub fn reference(&self, name: &str) -> Result<Option<String>> {
        Ok(self.refs()?.remove(name))
    }

    /// Whether git takes this as the name of a ref.
    pub fn is_ref_name(&self, name: &str) -> Result<bool> {
        let mut command = self.command(&["check-ref-format", name]);
        Ok(command.output()?.status.success())
    }

    /// Sets a ref, if it still points to `old` ([`NO_OBJECT`]: if there is none).
    pub fn update_ref(&self, name: &str, new: &str, old: &str) -> Result<()> {
        self.text(&["update-ref", "--no-deref", name, new, old])
            .map(drop)
    }

    /// Removes a ref.
    pub fn delete_ref(&self, name: &str) -> Result<()> {
        self.text(&["update-ref", "--no-deref", "-d", name])
            .map(drop)
    }

    /// Copies every object of another repository.
    pub fn take_objects_of(&self, other: &Self) -> Result<()> {
        let source = other.dir.to_string_lossy().into_owned();
        let all = "+refs/*:refs/others/*";
        self.text(&["fetch", "--quiet", "--no-tags", &source, all])?;
        for name in self
            .refs()?
            .keys()
            .filter(|name| name.starts_with("refs/others/"))
        {
            self.delete_ref(name)?;
        }
        Ok(())
    }

    fn text(&self, arguments: &[&str]) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run(arguments, b"", &[])?).into_owned())
    }

    pub(super) fn run(
        &self,
        arguments: &[&str],
        input: &[u8],
        env: &[(&str, OsString)],
    ) -> Result<Vec<u8>> {
        let mut command = self.command(arguments);
        command.envs(env.iter().map(|(name, value)| (*name, value)));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("git cannot be run")?;
        let mut stdin = child.stdin.take().context("no stdin")?;
        let input = input.to_vec();
        // From a thread of its own: git may fill its output before it has read all of its input.
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let output = child.wait_with_output()?;
        let written = writer.join();
        ensure!(
            output.status.success(),
            "git {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
        ensure!(matches!(written, Ok(Ok(()))), "git did not take its input");
        Ok(output.stdout)
    }

    /// The program with the repository's folder, and without anything of the user's configuration.
    fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = Command::new("git");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("GIT_") {
                command.env_remove(name);
            }
        }
        command
            .env("HOME", &self.dir)
            .env("XDG_CONFIG_HOME", &self.dir)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_DIR", &self.dir)
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("LC_ALL", "C")
            .current_dir(&self.dir)
            .args(arguments);
        command
    }
}

fn line(output: Vec<u8>) -> Result<String> {
    Ok(String::from_utf8(output)?.trim_end().to_owned())
}

/// One line of `git ls-tree -z`.
fn entry(line: &str) -> Result<Entry> {
    let (meta, path) = line.split_once('\t').context("no tab in git ls-tree")?;
    let mut meta = meta.split_whitespace();
    let mut next = || {
        meta.next()
            .map(str::to_owned)
            .context("git ls-tree says less than it was asked")
    };
    Ok(Entry {
        mode: next()?,
        kind: next()?,
        oid: next()?,
        path: path.to_owned(),
    })
}
