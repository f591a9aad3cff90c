//! One repository, as a test looks at it and as people change it behind the hub's back.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, ensure};

use super::auth::Caller;
use super::error::ApiResult;
use super::model::{Label, Permission, PullState, Repository, Rule, State};
use super::operations::people;
use super::operations::pulls::{self, MergeMethod, NewPull, Update};
use super::operations::refs;
use super::server::Server;
use super::{ORGANISATION, PERSON};
use crate::test_forge::git::{
    Change, Commit, EXECUTABLE, GitRepository, NO_OBJECT, PLAIN, SYMLINK,
};

/// A file for [`TestRepository::add_files`].
#[derive(Clone, Debug)]
pub struct File {
    path: String,
    mode: &'static str,
    content: Vec<u8>,
}

impl File {
    /// A plain file.
    pub fn plain(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.to_owned(),
            mode: PLAIN,
            content: content.into(),
        }
    }

    /// A file that may be run.
    pub fn executable(path: &str, content: impl Into<Vec<u8>>) -> Self {
        Self {
            mode: EXECUTABLE,
            ..Self::plain(path, content)
        }
    }

    /// A symbolic link.
    pub fn symlink(path: &str, target: &str) -> Self {
        Self {
            mode: SYMLINK,
            ..Self::plain(path, target)
        }
    }
}

/// A pull request, as a test wants to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Number.
    pub number: u64,
    /// `open`, `closed` or `merged`.
    pub state: &'static str,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// Branch that it comes from.
    pub head: String,
    /// Last tip of that branch.
    pub head_oid: String,
    /// Repository of that branch.
    pub head_repository: String,
    /// Branch that it goes to.
    pub base: String,
    /// Who opened it.
    pub author: String,
    /// Whether it is a draft.
    pub draft: bool,
    /// Names of its labels.
    pub labels: Vec<String>,
    /// Logins.
    pub assignees: Vec<String>,
    /// Logins, and teams as `organisation/slug`.
    pub reviewers: Vec<String>,
    /// Texts of the comments.
    pub comments: Vec<String>,
    /// Commit of the merge.
    pub merge_commit: Option<String>,
    /// Whether it waits to be merged by itself.
    pub auto_merge: bool,
}

/// A repository of [`super::TestGithub`].
#[derive(Clone, Debug)]
pub struct TestRepository {
    pub(super) server: Arc<Server>,
    pub(super) id: u64,
}

impl TestRepository {
    /// `owner/name`.
    pub fn full_name(&self) -> Result<String> {
        self.with(|repository| Ok(repository.full_name()))
    }

    /// The bare repository, to look at it with git's own eyes.
    pub fn git(&self) -> Result<GitRepository> {
        self.with(|repository| Ok(repository.git.clone()))
    }

    /// Names of all branches.
    pub fn branches(&self) -> Result<Vec<String>> {
        let refs = self.git()?.refs()?.into_keys();
        Ok(refs
            .filter_map(|name| Some(name.strip_prefix("refs/heads/")?.to_owned()))
            .collect())
    }

    /// Bytes of a file, or `None` if it is not there.
    pub fn read(&self, branch: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let git = self.git()?;
        let entry = git.entry(&format!("refs/heads/{branch}"), path)?;
        entry.map(|entry| git.blob(&entry.oid)).transpose()
    }

    /// All files of a branch, as mode, object id and path.
    pub fn tree(&self, branch: &str) -> Result<Vec<(String, String, String)>> {
        let entries = self
            .git()?
            .tree(&format!("refs/heads/{branch}"), true)?
            .into_iter();
        let files = entries.filter(|entry| entry.kind != "tree");
        Ok(files
            .map(|entry| (entry.mode, entry.oid, entry.path))
            .collect())
    }

    /// The commit at the tip of a branch.
    pub fn commit(&self, branch: &str) -> Result<Commit> {
        self.git()?.commit(&format!("refs/heads/{branch}"))
    }

    /// The commits of a branch, newest first.
    pub fn log(&self, branch: &str) -> Result<Vec<Commit>> {
        let git = self.git()?;
        let ids = git.history(&format!("refs/heads/{branch}"), None)?;
        ids.iter().map(|oid| git.commit(oid)).collect()
    }

    /// All pull requests, oldest first.
    pub fn pulls(&self) -> Result<Vec<Pull>> {
        let state = self.server.now();
        let repository = state
            .repositories
            .get(&self.id)
            .context("no such repository")?;
        let pulls = repository.pulls.values();
        Ok(pulls.map(|pull| seen(&state, repository, pull)).collect())
    }

    /// The person commits files to a branch, which is made if it is not there (from the default branch).
    pub fn add_files(&self, branch: &str, files: &[File]) -> Result<String> {
        self.add_commit(branch, "Add files", files)
    }

    /// The person commits files to a branch with this message.
    pub fn add_commit(&self, branch: &str, message: &str, files: &[File]) -> Result<String> {
        self.change(|state| {
            let signature = state.account(PERSON).context("no person")?.signature();
            let repository = state
                .repositories
                .get(&self.id)
                .context("no such repository")?;
            let tip = repository
                .branch(branch)
                .or_else(|| repository.branch(&repository.default_branch));
            let (tip, git) = (tip.cloned(), repository.git.clone());
            let mut changes = Vec::new();
            for file in files {
                let oid = git.write_blob(&file.content)?;
                let (path, mode) = (file.path.clone(), file.mode.to_owned());
                changes.push(Change::Put { path, mode, oid });
            }
            let tree = git.write_tree(tip.as_deref(), &changes)?;
            let parents: Vec<String> = tip.into_iter().collect();
            let commit = git.write_commit(&tree, &parents, message, &signature, &signature)?;
            refs::set(state, self.id, &format!("refs/heads/{branch}"), &commit)?;
            Ok(commit)
        })
    }

    /// The person removes a file.
    pub fn remove_file(&self, branch: &str, path: &str) -> Result<()> {
        self.change(|state| {
            let signature = state.account(PERSON).context("no person")?.signature();
            let repository = state
                .repositories
                .get(&self.id)
                .context("no such repository")?;
            let tip = repository.branch(branch).context("no such branch")?.clone();
            let git = repository.git.clone();
            let tree = git.write_tree(
                Some(&tip),
                &[Change::Delete {
                    path: path.to_owned(),
                }],
            )?;
            let commit =
                git.write_commit(&tree, &[tip], "Remove a file", &signature, &signature)?;
            refs::set(state, self.id, &format!("refs/heads/{branch}"), &commit)
        })
    }

    /// Makes a branch that starts at another.
    pub fn add_branch(&self, name: &str, from: &str) -> Result<()> {
        let tip = self.commit(from)?.oid;
        self.change(|state| refs::set(state, self.id, &format!("refs/heads/{name}"), &tip))
    }

    /// A branch, new or not, gets a commit that is in the repository for its tip.
    pub fn set_branch(&self, name: &str, commit: &str) -> Result<()> {
        self.change(|state| refs::set(state, self.id, &format!("refs/heads/{name}"), commit))
    }

    /// Removes a branch; its pull requests are closed.
    pub fn delete_branch(&self, name: &str) -> Result<()> {
        self.change(|state| refs::remove(state, self.id, &format!("refs/heads/{name}")))
    }

    /// Another branch becomes the default.
    pub fn set_default_branch(&self, name: &str) -> Result<()> {
        self.edit(|repository| name.clone_into(&mut repository.default_branch))
    }

    /// The person opens a pull request.
    pub fn add_pull(&self, head: &str, base: &str, title: &str, body: &str) -> Result<u64> {
        let new = NewPull {
            base: base.to_owned(),
            head: head.to_owned(),
            title: title.to_owned(),
            body: body.to_owned(),
            ..NewPull::default()
        };
        self.change(|state| pulls::create(state, &person(), self.id, &new))
    }

    /// The person merges a pull request with a merge commit.
    pub fn merge(&self, number: u64) -> Result<String> {
        self.change(|state| {
            pulls::merge(state, &person(), self.id, number, MergeMethod::Merge, None)
        })
    }

    /// The person closes a pull request.
    pub fn close(&self, number: u64) -> Result<()> {
        self.set_open(number, false)
    }

    /// The person opens a pull request again.
    pub fn reopen(&self, number: u64) -> Result<()> {
        self.set_open(number, true)
    }

    /// The person comments on a pull request.
    pub fn comment(&self, number: u64, text: &str) -> Result<()> {
        self.change(|state| people::add_comment(state, &person(), self.id, number, text))
            .map(drop)
    }

    /// The person writes another text.
    pub fn describe(&self, number: u64, text: &str) -> Result<()> {
        let update = Update {
            body: Some(text.to_owned()),
            ..Update::default()
        };
        self.update(number, &update)
    }

    fn set_open(&self, number: u64, open: bool) -> Result<()> {
        let update = Update {
            open: Some(open),
            ..Update::default()
        };
        self.update(number, &update)
    }

    fn update(&self, number: u64, update: &Update) -> Result<()> {
        self.change(|state| pulls::update(state, &person(), self.id, number, update))
    }

    /// Read-only for everyone, or not any more.
    pub fn archive(&self, archived: bool) -> Result<()> {
        self.edit(|repository| repository.archived = archived)
    }

    /// Whether everyone may look.
    pub fn set_public(&self, public: bool) -> Result<()> {
        self.edit(|repository| repository.public = public)
    }

    /// Whether pull requests may be merged by themselves.
    pub fn allow_auto_merge(&self, allowed: bool) -> Result<()> {
        self.edit(|repository| repository.auto_merge_allowed = allowed)
    }

    /// Adds a rule against direct changes of branches.
    pub fn protect(&self, rule: Rule) -> Result<()> {
        self.edit(|repository| repository.rules.push(rule))
    }

    /// What an account may do: `read`, `write`, `admin`, or `None` for nothing at all.
    pub fn set_permission(&self, login: &str, permission: Option<&str>) -> Result<()> {
        let right = match permission {
            None => None,
            Some("read") => Some(Permission::Read),
            Some("write") => Some(Permission::Write),
            Some("admin") => Some(Permission::Admin),
            Some(other) => return Err(anyhow!("no such permission: {other}")),
        };
        self.edit(|repository| {
            match right {
                Some(right) => repository.permissions.insert(login.to_owned(), right),
                None => repository.permissions.remove(login),
            };
        })
    }

    /// Makes a label.
    pub fn add_label(&self, name: &str) -> Result<()> {
        self.change(|state| {
            let id = state.next_id();
            let repository = state
                .repositories
                .get_mut(&self.id)
                .context("no such repository")?;
            repository.labels.push(Label {
                id,
                name: name.to_owned(),
                color: "ededed".to_owned(),
                description: None,
            });
            Ok(())
        })
    }

    /// Another name; the old one still leads here.
    pub fn rename(&self, name: &str) -> Result<()> {
        self.edit(|repository| {
            repository.former_names.push(repository.full_name());
            name.clone_into(&mut repository.name);
        })
    }

    /// Nobody finds the repository any more.
    pub fn delete(&self) -> Result<()> {
        self.change(|state| {
            state.repositories.remove(&self.id);
            Ok(())
        })
    }

    /// Fails if git and what the forge tells of it differ.
    pub fn check(&self) -> Result<()> {
        let (refs, git) =
            self.with(|repository| Ok((repository.refs.clone(), repository.git.clone())))?;
        let real = git.refs()?;
        ensure!(refs == real, "the forge says {refs:?}, git says {real:?}");
        ensure!(
            !real.values().any(|oid| oid == NO_OBJECT),
            "a ref points to nothing"
        );
        Ok(())
    }

    fn with<T>(&self, look: impl FnOnce(&Repository) -> Result<T>) -> Result<T> {
        let state = self.server.now();
        look(
            state
                .repositories
                .get(&self.id)
                .context("no such repository")?,
        )
    }

    fn edit(&self, edit: impl FnOnce(&mut Repository)) -> Result<()> {
        self.change(|state| {
            edit(
                state
                    .repositories
                    .get_mut(&self.id)
                    .context("no such repository")?,
            );
            Ok(())
        })
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> ApiResult<T>) -> Result<T> {
        self.server
            .change(change)
            .map_err(|error| anyhow!("{error}"))
    }
}

fn person() -> Caller {
    Caller::User {
        login: PERSON.to_owned(),
    }
}

fn seen(state: &State, repository: &Repository, pull: &super::model::PullRequest) -> Pull {
    let head = state.repositories.get(&pull.head_repository);
    let label = |id: &u64| {
        let mut labels = repository.labels.iter();
        labels
            .find(|label| label.id == *id)
            .map(|label| label.name.clone())
    };
    let teams = pull
        .team_reviewers
        .iter()
        .map(|slug| format!("{ORGANISATION}/{slug}"));
    Pull {
        number: pull.number,
        state: match pull.state {
            PullState::Open => "open",
            PullState::Closed => "closed",
            PullState::Merged => "merged",
        },
        title: pull.title.clone(),
        body: pull.body.clone(),
        head: pull.head.clone(),
        head_oid: pull.head_oid.clone(),
        head_repository: head.map(Repository::full_name).unwrap_or_default(),
        base: pull.base.clone(),
        author: pull.author.clone(),
        draft: pull.draft,
        labels: pull.labels.iter().filter_map(label).collect(),
        assignees: pull.assignees.clone(),
        reviewers: pull.reviewers.iter().cloned().chain(teams).collect(),
        comments: pull
            .comments
            .iter()
            .map(|comment| comment.body.clone())
            .collect(),
        merge_commit: pull.merge_commit.clone(),
        auto_merge: pull.auto_merge.is_some(),
    }
}
