//! One project on a [`super::TestGitlab`], as a test sees and changes it: past the API, straight in git and in the
//! server's memory.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::http::Server;
use super::model::{MergeRequestState, Pipeline, Project, Protection, Role, State};
use super::request::ApiRequest;
use super::{BOT, PERSON, entities, merge_requests, merging};
use crate::test_forge::git::{Change, Commit, GitRepository, PLAIN};

/// A project.
#[derive(Clone, Debug)]
pub struct TestProject {
    /// `group/sub-group/name`.
    pub full_name: String,
    server: Arc<Server>,
    id: u64,
}

impl TestProject {
    pub(super) fn new(server: Arc<Server>, id: u64, path: &str) -> Self {
        Self {
            full_name: path.to_owned(),
            server,
            id,
        }
    }

    /// Its repository.
    pub fn git(&self) -> Result<GitRepository> {
        self.read(|_, project| Ok(project.git.clone()))
    }

    fn read<T>(&self, look: impl FnOnce(&State, &Project) -> Result<T>) -> Result<T> {
        let state = self.server.state();
        look(&state, state.project(self.id)?)
    }

    fn change<T>(&self, change: impl FnOnce(&mut Project) -> T) -> Result<T> {
        let mut state = self.server.state();
        state.project_mut(self.id).map(change)
    }

    fn user(&self, username: &str) -> Result<u64> {
        let state = self.server.state();
        let mut users = state.users.iter();
        let found = users.find(|user| user.username == username);
        found.map(|user| user.id).context("no such user")
    }

    /// The bytes of a file, or `None` if it is not there.
    pub fn bytes(&self, branch: &str, path: &str) -> Result<Option<Vec<u8>>> {
        let git = self.git()?;
        let entry = git.entry(&format!("refs/heads/{branch}"), path)?;
        entry.map(|entry| git.blob(&entry.oid)).transpose()
    }

    /// The text of a file, or `None` if it is not there.
    pub fn file(&self, branch: &str, path: &str) -> Result<Option<String>> {
        let bytes = self.bytes(branch, path)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The mode of a file.
    pub fn mode(&self, branch: &str, path: &str) -> Result<Option<String>> {
        let entry = self.git()?.entry(&format!("refs/heads/{branch}"), path)?;
        Ok(entry.map(|entry| entry.mode))
    }

    /// All files of a branch, with their modes.
    pub fn files(&self, branch: &str) -> Result<Vec<(String, String)>> {
        let entries = self.git()?.tree(&format!("refs/heads/{branch}"), true)?;
        let files = entries.into_iter().filter(|entry| entry.kind != "tree");
        Ok(files.map(|entry| (entry.mode, entry.path)).collect())
    }

    /// The commit at the tip of a branch.
    pub fn commit(&self, branch: &str) -> Result<Commit> {
        self.git()?.commit(&format!("refs/heads/{branch}"))
    }

    /// The names of all branches.
    pub fn branches(&self) -> Result<Vec<String>> {
        self.read(|_, project| Ok(project.branches()?.into_keys().collect()))
    }

    /// Commits files to a branch, as the person; the branch is made if there is none.
    pub fn add_files(&self, branch: &str, files: &[(&str, &str)]) -> Result<()> {
        let all: Vec<(&str, &str, &[u8])> = (files.iter())
            .map(|(path, contents)| (PLAIN, *path, contents.as_bytes()))
            .collect();
        self.add_entries(branch, branch, PERSON, "Add files", &all)
    }

    /// Commits one entry with its mode to a branch, as the person.
    pub fn add_entry(&self, branch: &str, mode: &str, path: &str, contents: &[u8]) -> Result<()> {
        let entries = [(mode, path, contents)];
        self.add_entries(branch, branch, PERSON, "Add an entry", &entries)
    }

    /// Commits files to a new branch with this message, as the bot.
    pub fn add_commit_on_new_branch(
        &self,
        from: &str,
        branch: &str,
        message: &str,
        files: &[(&str, &str)],
    ) -> Result<()> {
        let all: Vec<(&str, &str, &[u8])> = (files.iter())
            .map(|(path, contents)| (PLAIN, *path, contents.as_bytes()))
            .collect();
        self.add_entries(from, branch, BOT, message, &all)
    }

    /// The person commits a file to a new branch.
    pub fn add_file_as_person(
        &self,
        from: &str,
        branch: &str,
        path: &str,
        contents: &str,
    ) -> Result<()> {
        let entries = [(PLAIN, path, contents.as_bytes())];
        self.add_entries(from, branch, PERSON, "Mine", &entries)
    }

    fn add_entries(
        &self,
        from: &str,
        branch: &str,
        who: &str,
        message: &str,
        entries: &[(&str, &str, &[u8])],
    ) -> Result<()> {
        let id = self.user(who)?;
        self.read(|state, project| {
            let git = &project.git;
            let start = project.branch(from)?;
            let mut changes = Vec::new();
            for (mode, path, contents) in entries {
                changes.push(Change::Put {
                    path: (*path).to_owned(),
                    mode: (*mode).to_owned(),
                    oid: git.write_blob(contents)?,
                });
            }
            let tree = git.write_tree(start.as_deref(), &changes)?;
            let person = state.user(id)?.signature();
            let parents: Vec<String> = start.into_iter().collect();
            let oid = git.write_commit(&tree, &parents, message, &person, &person)?;
            project.set_branch(branch, &oid, project.branch(branch)?.as_deref())
        })
    }

    /// The person removes a file from a branch.
    pub fn delete_file(&self, branch: &str, path: &str) -> Result<()> {
        let id = self.user(PERSON)?;
        self.read(|state, project| {
            let tip = project.branch(branch)?.context("no such branch")?;
            let path = path.to_owned();
            let tree = project
                .git
                .write_tree(Some(&tip), &[Change::Delete { path }])?;
            let person = state.user(id)?.signature();
            let oid = project.git.write_commit(
                &tree,
                std::slice::from_ref(&tip),
                "Remove a file",
                &person,
                &person,
            )?;
            project.set_branch(branch, &oid, Some(&tip))
        })
    }

    /// Makes a branch that starts at another.
    pub fn add_branch(&self, name: &str, from: &str) -> Result<()> {
        self.read(|_, project| {
            let tip = project.branch(from)?.context("no such branch")?;
            project.set_branch(name, &tip, None)
        })
    }

    /// Removes a branch.
    pub fn delete_branch(&self, name: &str) -> Result<()> {
        self.git()?.delete_ref(&format!("refs/heads/{name}"))
    }

    /// All merge requests, oldest first, as the API shows them.
    pub fn merge_requests(&self) -> Result<Vec<Value>> {
        self.server.state().follow_branches()?;
        self.read(|state, project| {
            let all = project.merge_requests.iter();
            all.map(|one| entities::merge_request(state, project, one))
                .collect()
        })
    }

    /// The texts of a merge request's notes, oldest first.
    pub fn notes(&self, iid: u64) -> Result<Vec<String>> {
        self.read(|_, project| {
            let mut all = project.merge_requests.iter();
            let found = all.find(|one| one.iid == iid);
            let notes = found.context("no such merge request")?.notes.iter();
            Ok(notes.map(|(_, text)| text.clone()).collect())
        })
    }

    /// Merges a merge request, whatever the rules say, as the person.
    pub fn merge(&self, iid: u64) -> Result<()> {
        let person = self.user(PERSON)?;
        let mut state = self.server.state();
        merging::accept(&mut state, self.id, person, &iid.to_string())
    }

    /// Closes a merge request without merging it.
    pub fn close(&self, iid: u64) -> Result<()> {
        self.edit(iid, |one| {
            one.state = MergeRequestState::Closed;
            one.ended_at = Some(Timestamp::now());
        })
    }

    /// Writes another description.
    pub fn describe(&self, iid: u64, text: &str) -> Result<()> {
        self.edit(iid, |one| one.description = Some(text.to_owned()))
    }

    /// Writes another title.
    pub fn retitle(&self, iid: u64, text: &str) -> Result<()> {
        self.edit(iid, |one| text.clone_into(&mut one.title))
    }

    fn edit(&self, iid: u64, edit: impl FnOnce(&mut super::model::MergeRequest)) -> Result<()> {
        self.change(|project| {
            let found = merge_requests::find_mut(project, &iid.to_string()).ok();
            found.map(edit)
        })?
        .context("no such merge request")
    }

    /// The person opens a merge request for a branch of this project.
    pub fn add_merge_request(&self, branch: &str, title: &str, description: &str) -> Result<u64> {
        self.open(self.id, branch, title, description)
    }

    /// The person forks the project, makes a branch of this name there, and opens a merge request for it here.
    pub fn add_merge_request_from_fork(&self, branch: &str, description: &str) -> Result<u64> {
        let person = self.user(PERSON)?;
        let fork = {
            let mut state = self.server.state();
            let id = state.next_id();
            let dir = state.dir.join(format!("{id}.git"));
            let origin = state.project(self.id)?;
            let git = GitRepository::init(&dir)?;
            git.take_objects_of(&origin.git)?;
            let tip = origin.branch("main")?.context("no branch main")?;
            git.update_ref("refs/heads/main", &tip, super::super::git::NO_OBJECT)?;
            let name = self.full_name.rsplit('/').next().unwrap_or_default();
            let project = Project {
                id,
                path: format!("{PERSON}/{name}"),
                git,
                default_branch: Some("main".to_owned()),
                archived: false,
                public: origin.public,
                merge_requests_enabled: true,
                forked_from: Some(self.id),
                members: [(person, Role::Maintainer)].into(),
                protections: Vec::new(),
                labels: std::collections::BTreeSet::new(),
                merge_requests: Vec::new(),
                pipeline: Pipeline::None,
                approvals_missing: false,
                checking: 0,
                several_people: true,
            };
            let path = project.path.clone();
            state.projects.push(project);
            Self::new(Arc::clone(&self.server), id, &path)
        };
        fork.add_file_as_person("main", branch, "fork.txt", "fork\n")?;
        self.open(fork.id, branch, "From afar", description)
    }

    fn open(&self, source: u64, branch: &str, title: &str, description: &str) -> Result<u64> {
        let person = self.user(PERSON)?;
        let request = ApiRequest {
            method: "POST".to_owned(),
            path: Vec::new(),
            query: Vec::new(),
            body: json!({
                "source_branch": branch, "target_branch": "main", "title": title, "description": description,
                "target_project_id": self.id,
            }),
            token: None,
            address: String::new(),
        };
        let mut state = self.server.state();
        let answer = merge_requests::create(&mut state, source, person, &request);
        let answer = answer.map_err(|refusal| anyhow::anyhow!("{refusal:?}"))?;
        answer.body["iid"].as_u64().context("no number")
    }

    /// Gives an account a role; `None` takes it out.
    pub fn set_role(&self, username: &str, role: Option<Role>) -> Result<()> {
        let user = self.user(username)?;
        self.change(|project| match role {
            Some(role) => drop(project.members.insert(user, role)),
            None => drop(project.members.remove(&user)),
        })
    }

    /// Protects the branches of a name, in which `*` may stand for anything.
    pub fn protect(&self, pattern: &str, push: Role, merge: Role) -> Result<()> {
        let rule = Protection {
            pattern: pattern.to_owned(),
            push,
            merge,
        };
        self.change(|project| project.protections.push(rule))
    }

    /// Makes the project read-only for everyone.
    pub fn archive(&self) -> Result<()> {
        self.change(|project| project.archived = true)
    }

    /// Whether the project has merge requests.
    pub fn set_merge_requests_enabled(&self, enabled: bool) -> Result<()> {
        self.change(|project| project.merge_requests_enabled = enabled)
    }

    /// Moves the project to another path.
    pub fn rename(&self, path: &str) -> Result<()> {
        let mut state = self.server.state();
        let project = state.project_mut(self.id)?;
        let before = std::mem::replace(&mut project.path, path.to_owned());
        state.moved.insert(before, self.id);
        Ok(())
    }

    /// What the pipelines do.
    pub fn set_pipeline(&self, pipeline: Pipeline) -> Result<()> {
        self.change(|project| project.pipeline = pipeline)
    }

    /// Whether approvals are missing.
    pub fn set_approvals_missing(&self, missing: bool) -> Result<()> {
        self.change(|project| project.approvals_missing = missing)
    }

    /// How many asks to merge find the merge request still being looked at.
    pub fn set_checking(&self, asks: u32) -> Result<()> {
        self.change(|project| project.checking = asks)
    }

    /// Whether a merge request may have several assignees and reviewers.
    pub fn set_several_people(&self, several: bool) -> Result<()> {
        self.change(|project| project.several_people = several)
    }
}
