//! Git as bytes: paths that are no text, modes, and pushes, for tests that compare what is in a repository with nothing
//! between. No forge knows of it.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::git::{GitRepository, NO_OBJECT, Signature};

/// An entry of a tree: its mode and the id of its object.
pub type ModeAndId = (String, String);

/// A file of a new commit; the path and the content are bytes of any kind.
#[derive(Clone, Copy, Debug)]
pub struct NewFile<'a> {
    /// Path from the root.
    pub path: &'a [u8],
    /// `100644`, `100755` or `120000`.
    pub mode: &'a str,
    /// What the file becomes; without it, the file goes.
    pub content: Option<&'a [u8]>,
}

impl GitRepository {
    /// A repository that somebody else has made in this folder.
    pub fn open(dir: &Path) -> Result<Self> {
        ensure!(
            dir.join("objects").is_dir(),
            "no bare repository: {}",
            dir.display()
        );
        Ok(Self::at(dir))
    }

    /// Every file of a tree or commit by the bytes of its path.
    pub fn files(&self, treeish: &str) -> Result<BTreeMap<Vec<u8>, ModeAndId>> {
        let arguments = ["ls-tree", "-r", "-z", "--full-tree", treeish];
        let output = self.run(&arguments, b"", &[])?;
        let lines = output.split(|byte| *byte == 0);
        lines.filter(|line| !line.is_empty()).map(file).collect()
    }

    /// Makes a commit of files on top of another, or of none; no ref points to it yet.
    pub fn write_files(
        &self,
        parent: Option<&str>,
        message: &str,
        who: &Signature,
        files: &[NewFile<'_>],
    ) -> Result<String> {
        let mut input = Vec::new();
        for NewFile {
            path,
            mode,
            content,
        } in files
        {
            let (mode, oid) = match content {
                Some(content) => (*mode, self.write_blob(content)?),
                None => ("0", NO_OBJECT.to_owned()),
            };
            input.extend_from_slice(format!("{mode} {oid}\t").as_bytes());
            input.extend_from_slice(path);
            input.push(0);
        }
        let tree = self.write_index(parent, &input)?;
        let parents: Vec<String> = parent.map(str::to_owned).into_iter().collect();
        self.write_commit(&tree, &parents, message, who, who)
    }

    /// Pushes a commit of this repository to a branch of the one at an address, whatever is there.
    pub fn push(&self, url: &str, commit: &str, branch: &str) -> Result<()> {
        let what = format!("+{commit}:refs/heads/{branch}");
        self.run(&["push", "--quiet", url, &what], b"", &[])
            .map(drop)
    }
}

/// One line of `git ls-tree -z`.
fn file(line: &[u8]) -> Result<(Vec<u8>, ModeAndId)> {
    let tab = line.iter().position(|byte| *byte == b'\t');
    let (meta, path) = line.split_at(tab.context("no tab in git ls-tree")?);
    let meta = str::from_utf8(meta)?;
    let mut parts = meta.split_whitespace();
    let mode = parts.next().context("no mode in git ls-tree")?;
    let oid = parts.nth(1).context("no object in git ls-tree")?;
    Ok((path[1..].to_vec(), (mode.to_owned(), oid.to_owned())))
}
