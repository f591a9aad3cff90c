//! One repository on a [`crate::forge::TestForge`], as people see and change it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use crate::forge::{PERSON, call};
use crate::test_forge::git::GitRepository;

/// A repository, with the rights of the bot and, where it says so, of the other person.
#[derive(Clone, Debug)]
pub struct TestRepository {
    /// `owner/name`.
    pub full_name: String,
    pub(crate) url: String,
    pub(crate) git_dir: PathBuf,
    pub(crate) bot: String,
    pub(crate) person: String,
    pub(crate) http: reqwest::Client,
}

/// A commit as `git log` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Object id in hex.
    pub id: String,
    /// The whole message.
    pub message: String,
    /// `name <mail>` of the author.
    pub author: String,
    /// `name <mail>` of the committer.
    pub committer: String,
    /// Ids of the commits before it.
    pub parents: Vec<String>,
}

impl TestRepository {
    /// One request of the bot below the repository's address.
    pub async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value> {
        self.call_as(&self.bot, method, path, body).await
    }

    /// One request of the other person below the repository's address.
    pub async fn call_as_person(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value> {
        self.call_as(&self.person, method, path, body).await
    }

    /// The server's own bare repository, to look at it with git's own eyes.
    pub fn git(&self) -> Result<GitRepository> {
        GitRepository::open(&self.git_dir)
    }

    /// The other person, who needs write access, pushes a commit that is in the server's repository to a branch.
    pub async fn push_as_person(&self, branch: &str, commit: &str) -> Result<()> {
        let (_, host) = self.url.split_once("://").context("no scheme")?;
        let url = format!(
            "http://{PERSON}:{}@{host}/{}.git",
            self.person, self.full_name
        );
        let (git, branch, commit) = (self.git()?, branch.to_owned(), commit.to_owned());
        tokio::task::spawn_blocking(move || git.push(&url, &commit, &branch)).await?
    }

    async fn call_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value> {
        let url = format!("{}/api/v1/repos/{}{path}", self.url, self.full_name);
        call(&self.http, token, method, &url, body).await
    }

    /// All pull requests in all states, oldest first.
    pub async fn pull_requests(&self) -> Result<Vec<Value>> {
        let path = "/pulls?state=all&sort=oldest&limit=100";
        let pulls = self.call(Method::GET, path, None).await?;
        Ok(pulls.as_array().cloned().unwrap_or_default())
    }

    /// One pull request, with what the list leaves out (teams).
    pub async fn pull_request(&self, number: u64) -> Result<Value> {
        self.call(Method::GET, &format!("/pulls/{number}"), None)
            .await
    }

    /// The names of all branches.
    pub async fn branches(&self) -> Result<Vec<String>> {
        let branches = self.call(Method::GET, "/branches?limit=100", None).await?;
        let names = branches.as_array().into_iter().flatten();
        Ok(names
            .filter_map(|branch| branch["name"].as_str().map(str::to_owned))
            .collect())
    }

    /// The text of a file, or `None` if it is not there.
    pub async fn file(&self, branch: &str, path: &str) -> Result<Option<String>> {
        let url = format!(
            "{}/api/v1/repos/{}/contents/{path}?ref={branch}",
            self.url, self.full_name
        );
        let request = self
            .http
            .get(&url)
            .header("authorization", format!("token {}", self.bot));
        let answer = request.send().await?;
        if answer.status().as_u16() == 404 {
            return Ok(None);
        }
        ensure!(
            answer.status().is_success(),
            "GET {url}: {}",
            answer.status()
        );
        let entry: Value = answer.json().await?;
        let content = STANDARD.decode(entry["content"].as_str().context("no content")?)?;
        Ok(Some(String::from_utf8(content)?))
    }

    /// The commit at the tip of a branch.
    pub async fn commit(&self, branch: &str) -> Result<Commit> {
        let tip = self
            .call(Method::GET, &format!("/branches/{branch}"), None)
            .await?;
        let id = tip["commit"]["id"].as_str().context("no tip")?.to_owned();
        let commit = self
            .call(Method::GET, &format!("/git/commits/{id}"), None)
            .await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let person =
            |value: &Value| format!("{} <{}>", text(&value["name"]), text(&value["email"]));
        let inner = &commit["commit"];
        let parents = commit["parents"].as_array().into_iter().flatten();
        Ok(Commit {
            id,
            message: text(&inner["message"]),
            author: person(&inner["author"]),
            committer: person(&inner["committer"]),
            parents: parents.map(|parent| text(&parent["sha"])).collect(),
        })
    }

    /// Commits new files to a branch, as the bot.
    pub async fn add_files(&self, branch: &str, files: &[(&str, &str)]) -> Result<()> {
        let body = change(branch, None, "Add files", files);
        self.call(Method::POST, "/contents", Some(body))
            .await
            .map(drop)
    }

    /// Commits one new file to a branch, as the bot.
    pub async fn add_file(&self, branch: &str, path: &str, contents: &str) -> Result<()> {
        self.add_files(branch, &[(path, contents)]).await
    }

    /// Makes a branch that starts at another.
    pub async fn add_branch(&self, name: &str, from: &str) -> Result<()> {
        let body = json!({ "new_branch_name": name, "old_branch_name": from });
        self.call(Method::POST, "/branches", Some(body))
            .await
            .map(drop)
    }

    /// Commits files to a new branch with this message, as the bot.
    pub async fn add_commit_on_new_branch(
        &self,
        from: &str,
        branch: &str,
        message: &str,
        files: &[(&str, &str)],
    ) -> Result<()> {
        let body = change(from, Some(branch), message, files);
        self.call(Method::POST, "/contents", Some(body))
            .await
            .map(drop)
    }

    /// Lets the other person in: `read`, `write` or `admin`.
    pub async fn add_collaborator(&self, permission: &str) -> Result<()> {
        let body = json!({ "permission": permission });
        self.call(Method::PUT, &format!("/collaborators/{PERSON}"), Some(body))
            .await
            .map(drop)
    }

    /// The other person, who needs write access, commits a file to a new branch.
    pub async fn add_file_as_person(
        &self,
        from: &str,
        branch: &str,
        path: &str,
        contents: &str,
    ) -> Result<()> {
        let new_branch = (from != branch).then_some(branch);
        let body = change(from, new_branch, "Mine", &[(path, contents)]);
        self.call_as(&self.person, Method::POST, "/contents", Some(body))
            .await
            .map(drop)
    }

    /// The other person forks the repository, commits with this message to a branch there and opens a pull request for it
    /// here.
    pub async fn add_pull_request_from_fork(
        &self,
        branch: &str,
        message: &str,
        body: &str,
    ) -> Result<u64> {
        self.call_as(&self.person, Method::POST, "/forks", Some(json!({})))
            .await?;
        let name = self.full_name.split('/').next_back().context("no name")?;
        let fork = Self {
            full_name: format!("{PERSON}/{name}"),
            ..self.clone()
        };
        let change = change("main", Some(branch), message, &[("fork.txt", "fork\n")]);
        fork.call_as(&self.person, Method::POST, "/contents", Some(change))
            .await?;
        let pull = json!({ "base": "main", "head": format!("{PERSON}:{branch}"), "title": "From afar", "body": body });
        let pull = self
            .call_as(&self.person, Method::POST, "/pulls", Some(pull))
            .await?;
        pull["number"].as_u64().context("no number")
    }

    /// Closes a pull request without merging it.
    pub async fn close_pull_request(&self, number: u64) -> Result<()> {
        let body = json!({ "state": "closed" });
        self.call(Method::PATCH, &format!("/pulls/{number}"), Some(body))
            .await
            .map(drop)
    }

    /// Merges a pull request and removes its branch.
    pub async fn merge_pull_request(&self, number: u64) -> Result<()> {
        self.merge(number, true).await
    }

    /// Merges a pull request; its branch goes or stays.
    pub async fn merge(&self, number: u64, remove_branch: bool) -> Result<()> {
        let path = format!("/pulls/{number}/merge");
        let body = json!({ "Do": "squash", "delete_branch_after_merge": remove_branch });
        // The forge looks at a new pull request for a moment before it lets anyone merge it.
        let deadline = Instant::now() + Duration::from_mins(2);
        loop {
            let merged = self.call(Method::POST, &path, Some(body.clone())).await;
            if merged.is_ok() || Instant::now() > deadline {
                return merged.map(drop);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Lets nobody push to the branches of a name, in which `**` may stand for anything.
    pub async fn protect(&self, pattern: &str) -> Result<()> {
        let body = json!({ "rule_name": pattern, "enable_push": false });
        self.call(Method::POST, "/branch_protections", Some(body))
            .await
            .map(drop)
    }

    /// Makes the repository read-only for everyone.
    pub async fn archive(&self) -> Result<()> {
        self.call(Method::PATCH, "", Some(json!({ "archived": true })))
            .await
            .map(drop)
    }
}

fn change(branch: &str, new_branch: Option<&str>, message: &str, files: &[(&str, &str)]) -> Value {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, contents)| json!({ "operation": "upload", "path": path, "content": STANDARD.encode(contents) }))
        .collect();
    json!({ "branch": branch, "new_branch": new_branch.unwrap_or(branch), "message": message, "files": files })
}
