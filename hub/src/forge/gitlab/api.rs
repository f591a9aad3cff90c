//! The REST calls of GitLab, one function each. What the answers mean for a change is decided in [`super`].
//!
//! The types of the `gitlab` crate cannot be used without its own client, and would send files as form fields.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use url::Url;

use super::super::doubt::{LastWrite, Write};
use super::super::http::{Authorization, Call, Http, Reply};
use super::super::metrics::Operation;
use super::super::resolve::Resolved;
use super::super::{ForgeError, Job};
use super::plan::{Action, Verb};
use super::wire;
use crate::change::{Author, Intent, MergeMethod};

/// The most that GitLab gives at once.
pub(super) const PAGE: usize = 100;

/// Longer titles are refused, in characters.
const LONGEST_TITLE: usize = 255;

/// One project, as one job asks it.
pub(super) struct Api<'a> {
    pub(super) http: &'a Http,
    /// `<base URL>/api/v4/`.
    pub(super) root: &'a Url,
    /// `<base URL>/api/graphql`.
    pub(super) graphql: &'a Url,
    /// `group/sub-group/name`.
    pub(super) project: &'a str,
    pub(super) job: &'a Job<'a>,
    pub(super) auth: Authorization,
    /// The change without patches, once the patched files are known.
    pub(super) change: Resolved,
    /// The commit that the patched files were read at; the change goes on top of it.
    pub(super) start: Option<String>,
    /// The last write that was sent.
    pub(super) last_write: LastWrite,
}

/// Where a new branch starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start<'a> {
    /// At the tip that a branch has by then.
    Branch(&'a str),
    /// At this commit.
    Commit(&'a str),
}

/// People by name and id.
#[derive(Debug, Default)]
pub(super) struct People {
    pub(super) reviewers: Vec<(String, u64)>,
    pub(super) assignees: Vec<(String, u64)>,
}

fn ids(people: &[(String, u64)]) -> Vec<u64> {
    people.iter().map(|(_, id)| *id).collect()
}

/// The title as GitLab takes it, which has no other mark of a draft than a prefix.
pub(super) fn with_mark(draft: bool, title: &str) -> String {
    let mark = if draft { "Draft: " } else { "" };
    let whole = mark.chars().chain(title.chars());
    whole.take(LONGEST_TITLE).collect()
}

impl Api<'_> {
    /// An address below the project. Each segment is escaped as a whole: the slashes of a project, branch or file name
    /// become `%2F`, as GitLab wants them.
    pub(super) fn url(&self, segments: &[&str], query: &[(&str, &str)]) -> Url {
        let mut url = self.root.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("projects").push(self.project);
            path.extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        url
    }

    pub(super) async fn send(
        &self,
        operation: Operation,
        method: Method,
        url: Url,
        body: Option<Value>,
    ) -> Result<Reply, ForgeError> {
        let call = Call {
            operation,
            method,
            url,
            body,
        };
        self.http.send(self.job, &self.auth, call).await
    }

    pub(super) async fn get(
        &self,
        operation: Operation,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Reply, ForgeError> {
        let url = self.url(segments, query);
        self.send(operation, Method::GET, url, None).await
    }

    /// Asks a GraphQL question.
    pub(super) async fn ask(&self, text: &str, variables: &Value) -> Result<Reply, ForgeError> {
        let body = json!({ "query": text, "variables": variables });
        let url = self.graphql.clone();
        self.send(Operation::Lookup, Method::POST, url, Some(body))
            .await
    }

    /// One page of the merge requests of a branch name, from this project and from forks, oldest first; nothing if there
    /// is no project for us.
    pub(super) async fn merge_requests(
        &self,
        branch: &str,
        page: usize,
    ) -> Result<Option<Vec<wire::MergeRequest>>, ForgeError> {
        let query = [
            ("source_branch", branch),
            ("state", "all"),
            ("order_by", "created_at"),
            ("sort", "asc"),
            ("per_page", &PAGE.to_string()),
            ("page", &page.to_string()),
        ];
        self.get(Operation::Lookup, &["merge_requests"], &query)
            .await?
            .found()
    }

    /// Merge requests by their numbers, at most [`PAGE`]; those that are gone are left out.
    pub(super) async fn merge_requests_by_number(
        &self,
        numbers: &[u64],
    ) -> Result<Vec<wire::MergeRequest>, ForgeError> {
        let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
        let page = PAGE.to_string();
        let mut query = vec![("state", "all"), ("per_page", page.as_str())];
        query.extend(numbers.iter().map(|number| ("iids[]", number.as_str())));
        let reply = self.get(Operation::Observe, &["merge_requests"], &query);
        Ok(reply.await?.found()?.unwrap_or_default())
    }

    /// A merge request by its number.
    pub(super) async fn merge_request(
        &self,
        iid: u64,
    ) -> Result<Option<wire::MergeRequest>, ForgeError> {
        let segments = ["merge_requests", &iid.to_string()];
        self.get(Operation::Lookup, &segments, &[]).await?.found()
    }

    /// The project, unless it does not exist for us.
    pub(super) async fn project(&self) -> Result<Option<wire::Project>, ForgeError> {
        self.get(Operation::Read, &[], &[]).await?.found()
    }

    /// The tip of a branch.
    pub(super) async fn branch(&self, name: &str) -> Result<Option<wire::Commit>, ForgeError> {
        let segments = ["repository", "branches", name];
        let reply = self.get(Operation::Read, &segments, &[]).await?;
        let branch: Option<wire::Branch> = reply.found()?;
        Ok(branch.map(|branch| branch.commit))
    }

    /// The name of a branch below this name, if there is one.
    pub(super) async fn branch_below(&self, name: &str) -> Result<Option<String>, ForgeError> {
        let start = format!("{name}/");
        let search = format!("^{start}");
        let segments = ["repository", "branches"];
        let query = [("search", search.as_str())];
        let reply = self.get(Operation::Read, &segments, &query).await?;
        let found: Option<Vec<wire::Branch>> = reply.found()?;
        let names = found.into_iter().flatten().map(|branch| branch.name);
        Ok(names.into_iter().find(|name| name.starts_with(&start)))
    }

    /// A commit.
    pub(super) async fn commit(&self, sha: &str) -> Result<Option<wire::Commit>, ForgeError> {
        let segments = ["repository", "commits", sha];
        let reply = self
            .get(Operation::Read, &segments, &[("stats", "false")])
            .await?;
        reply.found()
    }

    /// Whether a commit changes no file.
    pub(super) async fn is_empty(&self, sha: &str) -> Result<bool, ForgeError> {
        let segments = ["repository", "commits", sha, "diff"];
        let reply = self
            .get(Operation::Read, &segments, &[("per_page", "1")])
            .await?;
        let files: Option<Vec<IgnoredAny>> = reply.found()?;
        Ok(files.is_some_and(|files| files.is_empty()))
    }

    /// One page of what is in a folder at a branch or commit. GitLab before 15 gives nothing for a folder that is not
    /// there, later ones a 404.
    pub(super) async fn tree(
        &self,
        folder: &str,
        git_ref: &str,
        page: usize,
    ) -> Result<Vec<wire::TreeEntry>, ForgeError> {
        let query = [
            ("path", folder),
            ("ref", git_ref),
            ("per_page", &PAGE.to_string()),
            ("page", &page.to_string()),
        ];
        let reply = self
            .get(Operation::Read, &["repository", "tree"], &query)
            .await?;
        Ok(reply.found()?.unwrap_or_default())
    }

    /// A file at a branch or commit.
    pub(super) async fn file(
        &self,
        path: &str,
        git_ref: &str,
    ) -> Result<Option<wire::File>, ForgeError> {
        let segments = ["repository", "files", path];
        let reply = self
            .get(Operation::Read, &segments, &[("ref", git_ref)])
            .await?;
        reply.found()
    }

    /// Commits to a branch, or to a new one that starts there. All actions or none.
    pub(super) async fn create_commit(
        &self,
        branch: &str,
        start: Option<Start<'_>>,
        actions: &[Action<'_>],
    ) -> Result<Reply, ForgeError> {
        let action = |action: &Action<'_>| {
            let mut value = json!({ "action": action.verb.as_str(), "file_path": action.path });
            if action.verb != Verb::Delete {
                value["encoding"] = json!("base64");
                value["content"] = json!(STANDARD.encode(action.contents));
            }
            value
        };
        let intent = self.job.intent;
        let mut body = json!({
            "branch": branch, "commit_message": intent.commit_message,
            "actions": actions.iter().map(action).collect::<Vec<Value>>(),
        });
        match start {
            Some(Start::Branch(name)) => body["start_branch"] = json!(name),
            Some(Start::Commit(sha)) => body["start_sha"] = json!(sha),
            None => {}
        }
        if let Some(Author { name, email }) = &intent.author {
            body["author_name"] = json!(name);
            body["author_email"] = json!(email);
        }
        let url = self.url(&["repository", "commits"], &[]);
        self.last_write.begin(Write::Commit);
        self.send(Operation::Commit, Method::POST, url, Some(body))
            .await
    }

    /// Opens the merge request. Labels that do not exist are made by GitLab itself.
    pub(super) async fn open(
        &self,
        base: &str,
        people: &People,
        description: &str,
    ) -> Result<Reply, ForgeError> {
        let Intent {
            branch,
            title,
            draft,
            labels,
            options,
            ..
        } = self.job.intent;
        let title = with_mark(*draft, title);
        let mut body = json!({
            "source_branch": branch, "target_branch": base, "title": title, "description": description,
            "remove_source_branch": options.delete_branch_after_merge,
        });
        if !labels.is_empty() {
            body["labels"] = json!(labels.join(","));
        }
        if !people.reviewers.is_empty() {
            body["reviewer_ids"] = json!(ids(&people.reviewers));
        }
        if !people.assignees.is_empty() {
            body["assignee_ids"] = json!(ids(&people.assignees));
        }
        if options.auto_merge == Some(MergeMethod::Squash) {
            body["squash"] = json!(true);
        }
        let url = self.url(&["merge_requests"], &[]);
        self.last_write.begin(Write::Open);
        self.send(Operation::Open, Method::POST, url, Some(body))
            .await
    }

    /// Asks GitLab to merge as soon as its rules allow it, if the head of the branch is still this
    /// commit. The second name of the wish to wait is that of GitLab before 17.11.
    pub(super) async fn merge(&self, iid: u64, sha: Option<&str>) -> Result<Reply, ForgeError> {
        let options = &self.job.intent.options;
        let mut body = json!({
            "auto_merge": true, "merge_when_pipeline_succeeds": true,
            "should_remove_source_branch": options.delete_branch_after_merge,
            "squash": options.auto_merge == Some(MergeMethod::Squash),
        });
        if let Some(sha) = sha {
            body["sha"] = json!(sha);
        }
        let url = self.url(&["merge_requests", &iid.to_string(), "merge"], &[]);
        self.send(Operation::AutoMerge, Method::PUT, url, Some(body))
            .await
    }

    /// Removes a branch.
    pub(super) async fn delete_branch(&self, name: &str) -> Result<Reply, ForgeError> {
        let url = self.url(&["repository", "branches", name], &[]);
        self.send(Operation::DeleteBranch, Method::DELETE, url, None)
            .await
    }

    /// The account of this user name, whatever its case.
    pub(super) async fn user(&self, name: &str) -> Result<Option<u64>, ForgeError> {
        let mut url = self.root.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("users");
        }
        url.query_pairs_mut().append_pair("username", name);
        let reply = self.send(Operation::Person, Method::GET, url, None).await?;
        // Whoever may not see accounts goes on without them.
        if reply.status.is_client_error() {
            return Ok(None);
        }
        let users: Vec<wire::User> = reply.json()?;
        let is_meant = |user: &wire::User| user.username.to_lowercase() == name.to_lowercase();
        Ok(users.into_iter().find(is_meant).map(|user| user.id))
    }
}
