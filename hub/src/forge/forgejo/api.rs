//! The REST calls of Forgejo and Gitea, one function each. What the answers mean for a change is decided in [`super`].

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Map, Value, json};
use url::Url;

use super::super::doubt::{LastWrite, Write};
use super::super::http::{Authorization, Call, Http, Reply};
use super::super::metrics::Operation;
use super::super::resolve::Resolved;
use super::super::{ForgeError, Job};
use super::wire;
use crate::change::{Author, Intent};

/// What one request does to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FileOperation {
    /// `upload` (create or update; Gitea from 1.24 on), `create`, `update` or `delete`.
    pub(super) operation: &'static str,
    /// The file.
    pub(super) path: String,
    /// Its new content; empty for `delete`.
    pub(super) contents: String,
    /// The hash of the blob that is replaced, so that the forge refuses to replace another.
    pub(super) sha: Option<String>,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AtPath {
    /// Nothing.
    Absent,
    /// A file. Very large ones come without content.
    File {
        contents: Option<Vec<u8>>,
        /// The hash of the blob.
        sha: String,
    },
    /// A symbolic link.
    Link,
    /// A folder or a submodule.
    Other,
}

impl AtPath {
    /// The hash of a file's blob.
    pub(super) fn sha(&self) -> Option<&str> {
        match self {
            Self::File { sha, .. } => Some(sha),
            Self::Absent | Self::Link | Self::Other => None,
        }
    }
}

/// One repository of a forge, as one job asks it.
pub(super) struct Api<'a> {
    pub(super) http: &'a Http,
    /// `<base URL>/api/v1/`.
    pub(super) root: &'a Url,
    pub(super) repository: &'a str,
    pub(super) job: &'a Job<'a>,
    pub(super) auth: Authorization,
    /// The change without patches, once the patched files are known.
    pub(super) change: Resolved,
    /// The last write that was sent.
    pub(super) last_write: LastWrite,
}

/// The title as the forge takes it, which has no other mark of a draft than a prefix.
pub(super) fn with_mark(draft: bool, title: &str) -> String {
    let mark = if draft { "WIP: " } else { "" };
    format!("{mark}{title}")
}

impl Api<'_> {
    /// An address below the repository. Each part is one or more segments; a part given with `whole` set is one
    /// segment, slashes and all.
    fn url(&self, prefix: &str, parts: &[&str], whole: Option<&str>, rest: &str) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(prefix);
            for part in parts {
                segments.extend(part.split('/'));
            }
            segments.extend(whole);
            segments.extend(rest.split('/').filter(|segment| !segment.is_empty()));
        }
        url
    }

    pub(super) fn repository_url(&self, part: &str, rest: &str) -> Url {
        self.url("repos", &[self.repository, part], None, rest)
    }

    pub(super) async fn send(
        &self,
        operation: Operation,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Reply, ForgeError> {
        self.http
            .send(
                self.job,
                &self.auth,
                Call {
                    operation,
                    method,
                    url,
                    body,
                },
            )
            .await
    }

    pub(super) async fn get(&self, operation: Operation, url: Url) -> Result<Reply, ForgeError> {
        self.send(operation, Method::GET, url, None).await
    }

    /// The pull request of a branch of this repository (never of a fork), in whatever state.
    pub(super) async fn pull(
        &self,
        base: &str,
        head: &str,
    ) -> Result<Option<wire::Pull>, ForgeError> {
        let url = self.url("repos", &[self.repository, "pulls"], Some(base), head);
        self.get(Operation::Lookup, url).await?.found()
    }

    /// A pull request, unless it is gone.
    pub(super) async fn pull_by_number(
        &self,
        number: u64,
    ) -> Result<Option<wire::Pull>, ForgeError> {
        let url = self.repository_url("pulls", &number.to_string());
        self.get(Operation::Observe, url).await?.found()
    }

    /// A page of the open pull requests; empty behind the last one.
    pub(super) async fn open_pulls(&self, page: u32) -> Result<Vec<wire::Listed>, ForgeError> {
        let mut url = self.url("repos", &[self.repository, "pulls"], None, "");
        url.set_query(Some(&format!("state=open&limit=50&page={page}")));
        self.get(Operation::Observe, url).await?.json()
    }

    /// The repository, unless it does not exist for us.
    pub(super) async fn repository(&self) -> Result<Option<wire::Repository>, ForgeError> {
        let url = self.url("repos", &[self.repository], None, "");
        self.get(Operation::Read, url).await?.found()
    }

    /// The tip of a branch.
    pub(super) async fn branch(
        &self,
        name: &str,
    ) -> Result<Option<wire::BranchCommit>, ForgeError> {
        let branch: Option<wire::Branch> = self
            .get(Operation::Read, self.repository_url("branches", name))
            .await?
            .found()?;
        Ok(branch.map(|branch| branch.commit))
    }

    /// The tip of a branch as git has it, whatever the server's database says.
    pub(super) async fn branch_in_git(
        &self,
        name: &str,
    ) -> Result<Option<wire::BranchCommit>, ForgeError> {
        let url = self.repository_url("git/refs/heads", name);
        let found: Option<wire::References> = self.get(Operation::Read, url).await?.found()?;
        let full_name = format!("refs/heads/{name}");
        let references = found.map(wire::References::into_list).unwrap_or_default();
        let Some(reference) = references.into_iter().find(|one| one.name == full_name) else {
            return Ok(None);
        };
        let id = reference.object.sha;
        let commit = self.commit(&id).await?;
        Ok(commit.map(|commit| wire::BranchCommit {
            id,
            message: commit.text.message,
        }))
    }

    /// A commit with the files that it changes.
    pub(super) async fn commit(&self, sha: &str) -> Result<Option<wire::Commit>, ForgeError> {
        let mut url = self.repository_url("git/commits", sha);
        url.set_query(Some("stat=false&verification=false&files=true"));
        self.get(Operation::Read, url).await?.found()
    }

    /// What is at a path of a branch or commit.
    pub(super) async fn at_path(&self, path: &str, git_ref: &str) -> Result<AtPath, ForgeError> {
        let mut url = self.repository_url("contents", path);
        url.query_pairs_mut().append_pair("ref", git_ref);
        let found: Option<Value> = self.get(Operation::Read, url).await?.found()?;
        let text =
            |entry: &Value, field| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        Ok(match found {
            None => AtPath::Absent,
            Some(entry) if text(&entry, "type").as_deref() == Some("file") => AtPath::File {
                contents: text(&entry, "content").and_then(|content| STANDARD.decode(content).ok()),
                sha: text(&entry, "sha").unwrap_or_default(),
            },
            Some(entry) if text(&entry, "type").as_deref() == Some("symlink") => AtPath::Link,
            Some(_) => AtPath::Other,
        })
    }

    /// Commits to `branch`, or to a new branch that starts there. All files or none.
    pub(super) async fn change_files(
        &self,
        branch: &str,
        new_branch: Option<&str>,
        files: &[FileOperation],
    ) -> Result<Reply, ForgeError> {
        let intent = self.job.intent;
        let files: Vec<Value> = files
            .iter()
            .map(|file| {
                let content = STANDARD.encode(&file.contents);
                let mut operation =
                    json!({ "operation": file.operation, "path": file.path, "content": content });
                if let Some(sha) = &file.sha {
                    operation["sha"] = json!(sha);
                }
                operation
            })
            .collect();
        let mut body = Map::from_iter([
            ("branch".to_owned(), json!(branch)),
            ("message".to_owned(), json!(intent.commit_message)),
            ("files".to_owned(), json!(files)),
        ]);
        if let Some(new_branch) = new_branch {
            body.insert("new_branch".to_owned(), json!(new_branch));
        }
        if let Some(Author { name, email }) = &intent.author {
            let person = json!({ "name": name, "email": email });
            body.insert("author".to_owned(), person.clone());
            body.insert("committer".to_owned(), person);
        }
        let url = self.url("repos", &[self.repository, "contents"], None, "");
        self.last_write.begin(Write::Commit);
        self.send(
            Operation::Commit,
            Method::POST,
            url,
            Some(Value::Object(body)),
        )
        .await
    }

    /// Opens the pull request.
    pub(super) async fn open(
        &self,
        base: &str,
        labels: &[u64],
        with_people: bool,
        body: &str,
    ) -> Result<Reply, ForgeError> {
        let Intent {
            branch,
            title,
            draft,
            reviewers,
            options,
            ..
        } = self.job.intent;
        let title = with_mark(*draft, title);
        let mut body = json!({
            "base": base, "head": branch, "title": title, "body": body, "labels": labels,
        });
        if with_people {
            body["reviewers"] = json!(reviewers);
            body["team_reviewers"] = json!(options.team_reviewers);
            body["assignees"] = json!(options.assignees);
        }
        let url = self.url("repos", &[self.repository, "pulls"], None, "");
        self.last_write.begin(Write::Open);
        self.send(Operation::Open, Method::POST, url, Some(body))
            .await
    }

    /// Removes a branch.
    pub(super) async fn delete_branch(&self, name: &str) -> Result<Reply, ForgeError> {
        let url = self.repository_url("branches", name);
        self.send(Operation::DeleteBranch, Method::DELETE, url, None)
            .await
    }

    /// One page of the labels of the repository or, with an owner, of the organisation; none if there is none.
    pub(super) async fn labels(
        &self,
        organisation: Option<&str>,
        page: u32,
    ) -> Result<Vec<wire::Label>, ForgeError> {
        let mut url = match organisation {
            Some(owner) => self.url("orgs", &[owner, "labels"], None, ""),
            None => self.url("repos", &[self.repository, "labels"], None, ""),
        };
        url.set_query(Some(&format!("limit=50&page={page}")));
        let reply = self.get(Operation::Label, url).await?;
        // Labels are an ornament: whoever may not see those of the organisation goes on without.
        if reply.status.is_client_error() {
            Ok(Vec::new())
        } else {
            reply.json()
        }
    }

    /// Makes a label in a quiet colour.
    pub(super) async fn create_label(&self, name: &str) -> Result<Reply, ForgeError> {
        let url = self.url("repos", &[self.repository, "labels"], None, "");
        let body = json!({ "name": name, "color": "#ededed" });
        self.send(Operation::Label, Method::POST, url, Some(body))
            .await
    }

    /// Assigns a pull request to exactly these people.
    pub(super) async fn assign(
        &self,
        number: u64,
        assignees: &[String],
    ) -> Result<Reply, ForgeError> {
        let url = self.repository_url("issues", &number.to_string());
        let body = json!({ "assignees": assignees });
        self.send(Operation::Assign, Method::PATCH, url, Some(body))
            .await
    }

    /// Asks people and teams for a review; the forge takes all of them or none.
    pub(super) async fn request_reviews(
        &self,
        number: u64,
        reviewers: &[String],
        teams: &[String],
    ) -> Result<Reply, ForgeError> {
        let url = self.repository_url("pulls", &format!("{number}/requested_reviewers"));
        self.send(
            Operation::Review,
            Method::POST,
            url,
            Some(json!({ "reviewers": reviewers, "team_reviewers": teams })),
        )
        .await
    }
}
