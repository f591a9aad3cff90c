//! Amends a pull request: looks at it, at the commits of our branch and at the files, commits on top, and sets the text.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;

use super::super::amend::{HISTORY, Link, cannot_restore, ends, leftovers_of, whole};
use super::super::http::{Reply, failed};
use super::super::metrics::Operation;
use super::super::ours::{LINK, not_a_file};
use super::super::resolve::{BaseFile, Resolved, no_file, patched_paths};
use super::super::{Amended, Amending, ClosedPull, ForgeError, Job, PullRequestState};
use super::api::{Api, AtPath, FileOperation, with_mark};
use super::commit::exact_operation;
use super::follow::observed_pull;
use super::{Forgejo, wire};
use crate::response::ErrorType;

impl Forgejo {
    pub(super) async fn amend_pull(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        let api = self.api(job)?;
        let Some(pull) = api.pull_by_number(amending.number).await? else {
            return Ok(None);
        };
        if pull.state() != PullRequestState::Open {
            return Ok(Some(Amended::Ended(ClosedPull {
                url: self.address(&pull),
                pull: observed_pull(&pull),
                notes: Vec::new(),
            })));
        }
        let branch = &job.intent.branch;
        if pull.head.repo_id != pull.base.repo_id || pull.head.label != *branch {
            let why = format!("{} is of another branch", self.address(&pull));
            return Err(self.branch_taken(&api, &why));
        }
        let history = api.history(branch).await?;
        let ends = ends(job, amending, &history, self.http.place())?;
        let (wanted, operations) = self
            .operations_on(&api, amending, ends.tip, ends.below)
            .await?;
        let mut commit = ends.tip.to_owned();
        if !operations.is_empty() {
            commit = self
                .commit_on_top(&api, branch, ends.tip, &operations)
                .await?;
        }
        let title = with_mark(is_draft(&pull.title), &job.intent.title);
        let body = pull.body.as_deref().unwrap_or_default();
        if pull.title != title || body.trim_end() != wanted.body.trim_end() {
            let reply = api.set_text(pull.number, &title, &wanted.body).await?;
            if !reply.status.is_success() {
                return Err(self.explain(&reply));
            }
            let now: wire::Pull = reply.json()?;
            if now.state() != PullRequestState::Open {
                // People were faster.
                return Ok(Some(Amended::Ended(ClosedPull {
                    url: self.address(&now),
                    pull: observed_pull(&now),
                    notes: Vec::new(),
                })));
            }
        }
        Ok(Some(Amended::Updated {
            url: self.address(&pull),
            commit: Some(commit),
            notes: Vec::new(),
        }))
    }

    /// How every file is to read, and what is to be done for it. Costs a request for each file, and one more for each that
    /// is patched or was named before.
    async fn operations_on(
        &self,
        api: &Api<'_>,
        amending: &Amending<'_>,
        tip: &str,
        below: &str,
    ) -> Result<(Resolved, Vec<FileOperation>), ForgeError> {
        let intent = api.job.intent;
        let mut now = BTreeMap::new();
        for file in &intent.files {
            now.insert(file.path.clone(), api.at_path(&file.path, tip).await?);
        }
        let mut files = BTreeMap::new();
        for path in patched_paths(intent) {
            match api.at_path(path, below).await? {
                AtPath::Absent => {}
                AtPath::File {
                    contents: Some(bytes),
                    sha: version,
                } => {
                    files.insert(path.to_owned(), BaseFile { bytes, version });
                }
                AtPath::File { contents: None, .. } => return Err(no_file(path, "is too large")),
                AtPath::Link | AtPath::Other => {
                    return Err(no_file(path, "is a folder, a link or a submodule"));
                }
            }
        }
        let mut leftovers = Vec::new();
        for path in leftovers_of(intent, amending.leftovers) {
            let (at_tip, there) = (
                api.at_path(path, tip).await?,
                api.at_path(path, below).await?,
            );
            if at_tip == there {
                continue;
            }
            match there {
                AtPath::Absent => {}
                AtPath::File {
                    contents: Some(bytes),
                    sha: version,
                } => {
                    files.insert(path.to_owned(), BaseFile { bytes, version });
                }
                AtPath::File { contents: None, .. } => {
                    return Err(cannot_restore(path, "it is too large"));
                }
                AtPath::Link | AtPath::Other => {
                    return Err(cannot_restore(
                        path,
                        "it is a folder, a link or a submodule",
                    ));
                }
            }
            leftovers.push(path.to_owned());
            now.insert(path.to_owned(), at_tip);
        }
        let wanted = whole(intent, &leftovers, files).await?;
        let mut operations = Vec::new();
        for file in &wanted.files {
            let now = now.get(&file.path).unwrap_or(&AtPath::Absent);
            if *now == AtPath::Link && file.contents.is_some() {
                return Err(not_a_file(&file.path, LINK, self.http.place()));
            }
            let operation = exact_operation(file, now);
            // Another blob than the one that was looked at is not replaced.
            operations.extend(operation.map(|operation| FileOperation {
                sha: now.sha().map(str::to_owned),
                ..operation
            }));
        }
        Ok((wanted, operations))
    }

    /// Commits to a branch whose tip is this commit; gives back the new one. All files or none.
    ///
    /// The forge cannot be told which tip is meant. A file that has changed is refused; should somebody commit to other
    /// files just before, that shows in the answer, and is an error as well.
    pub(super) async fn commit_on_top(
        &self,
        api: &Api<'_>,
        branch: &str,
        tip: &str,
        files: &[FileOperation],
    ) -> Result<String, ForgeError> {
        let reply = api.change_files(branch, None, files).await?;
        if !reply.status.is_success() && reply.says("sha does not match") {
            let detail = format!(
                "{} changed between reading and committing; the next attempt looks again",
                self.http.place()
            );
            return Err(failed(ErrorType::Transient, "Behind", detail));
        }
        if !reply.status.is_success() {
            return Err(self.explain(&reply));
        }
        let commit = reply.json::<wire::FilesChanged>()?.commit;
        let parents = commit.parents.unwrap_or_default();
        let is_other = |parent: &wire::Parent| parent.sha.as_deref().is_some_and(|sha| sha != tip);
        if parents.iter().any(is_other) {
            let why = format!("somebody committed to it just before {}", commit.sha);
            return Err(self.branch_taken(api, &why));
        }
        Ok(commit.sha)
    }
}

impl Api<'_> {
    /// The newest commits of a branch; none if there is no such branch.
    pub(super) async fn history(&self, branch: &str) -> Result<Vec<Link>, ForgeError> {
        let mut url = self.repository_url("commits", "");
        url.query_pairs_mut()
            .append_pair("sha", branch)
            .append_pair("limit", &HISTORY.to_string())
            .append_pair("stat", "false")
            .append_pair("verification", "false")
            .append_pair("files", "false");
        let found: Option<Vec<wire::Past>> = self.get(Operation::Read, url).await?.found()?;
        let link = |past: wire::Past| Link {
            oid: past.sha,
            message: past.commit.message,
        };
        Ok(found.into_iter().flatten().map(link).collect())
    }

    /// Sets title and body of a pull request.
    pub(super) async fn set_text(
        &self,
        number: u64,
        title: &str,
        text: &str,
    ) -> Result<Reply, ForgeError> {
        let url = self.repository_url("pulls", &number.to_string());
        let body = json!({ "title": title, "body": text });
        self.send(Operation::Edit, Method::PATCH, url, Some(body))
            .await
    }
}

/// Whether people see it as a draft: the prefixes of `WORK_IN_PROGRESS_PREFIXES`, as they come with the server.
fn is_draft(title: &str) -> bool {
    let title = title.to_ascii_uppercase();
    title.starts_with("WIP:") || title.starts_with("[WIP]")
}
