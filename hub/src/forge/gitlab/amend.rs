//! Amends a merge request: looks at it, at the commits of our branch and at the files, commits on top, and sets the text.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::json;

use super::super::amend::{
    HISTORY, Link, cannot_restore, ends, leftovers_of, paths_below, whole, with_leftovers,
};
use super::super::http::{Reply, failed};
use super::super::metrics::Operation;
use super::super::resolve::{BaseFile, Resolved, no_file, patched_paths};
use super::super::{Amended, Amending, ClosedPull, ForgeError, Job, PullRequestState};
use super::adopt::{is_from_here, state};
use super::api::{Api, with_mark};
use super::follow::observed_pull;
use super::plan::{self, Action, AtPath, Tree};
use super::{Gitlab, wire};
use crate::response::ErrorType;

impl Gitlab {
    pub(super) async fn amend_request(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        let wide = with_leftovers(job.intent, amending.leftovers);
        let wide_job = job.with(&wide);
        let api = self.api(&wide_job)?;
        let Some(request) = api.merge_request(amending.number).await? else {
            return Ok(None);
        };
        if state(&request) != PullRequestState::Open {
            return Ok(Some(Amended::Ended(ClosedPull {
                url: self.address(&request),
                pull: observed_pull(&request),
                notes: Vec::new(),
            })));
        }
        let branch = &job.intent.branch;
        if !is_from_here(&request, branch) {
            let why = format!("{} is of another branch", self.address(&request));
            return Err(self.branch_taken(&api, &why));
        }
        let history = api.history(branch).await?;
        let ends = ends(job, amending, &history, self.http.place())?;
        let now = self.look(&api, ends.tip).await?;
        let wanted = self.wanted(&api, job, amending, &now, ends.below).await?;
        let actions = plan::exact(&wanted.files, &now).map_err(|no_file| self.no_file(&no_file))?;
        let mut commit = ends.tip.to_owned();
        if !actions.is_empty() {
            commit = self.commit_on_top(&api, branch, ends.tip, &actions).await?;
        }
        let title = with_mark(is_draft(&request.title), &job.intent.title);
        let body = request.description.as_deref().unwrap_or_default();
        if request.title != title || body.trim_end() != wanted.body.trim_end() {
            let reply = api.set_text(request.iid, &title, &wanted.body).await?;
            if !reply.status.is_success() {
                return Err(self.explain_amend(&api, &reply).await?);
            }
            let now: wire::MergeRequest = reply.json()?;
            if state(&now) != PullRequestState::Open && now.sha.as_ref() != Some(&commit) {
                // People were faster.
                return Ok(Some(Amended::Ended(ClosedPull {
                    url: self.address(&now),
                    pull: observed_pull(&now),
                    notes: Vec::new(),
                })));
            }
        }
        let mut notes = Vec::new();
        if !actions.is_empty() {
            // GitLab forgets the wish with each new commit.
            let merging = self.merge_when_allowed(&api, &request, Some(&commit));
            notes.extend(merging.await.1);
        }
        Ok(Some(Amended::Updated {
            url: self.address(&request),
            commit: Some(commit),
            notes,
        }))
    }

    /// How every file is to read.
    async fn wanted(
        &self,
        api: &Api<'_>,
        job: &Job<'_>,
        amending: &Amending<'_>,
        now: &Tree,
        below: &str,
    ) -> Result<Resolved, ForgeError> {
        let mut files = BTreeMap::new();
        let mut leftovers = Vec::new();
        if paths_below(job.intent, amending.leftovers).next().is_none() {
            return whole(job.intent, &leftovers, files).await;
        }
        let there = self.look(api, below).await?;
        for path in leftovers_of(job.intent, amending.leftovers) {
            if now.get(path) == there.get(path) {
                continue;
            }
            if matches!(there.get(path), Some(AtPath::Link | AtPath::Other(_))) {
                return Err(cannot_restore(
                    path,
                    "it is a folder, a link or a submodule",
                ));
            }
            leftovers.push(path.to_owned());
        }
        let patched = patched_paths(job.intent);
        for path in patched.chain(leftovers.iter().map(String::as_str)) {
            match there.get(path) {
                None => {}
                Some(AtPath::File(id)) => {
                    let (bytes, version) = (self.read(api, path, below).await?, id.clone());
                    files.insert(path.to_owned(), BaseFile { bytes, version });
                }
                Some(AtPath::Link | AtPath::Other(_)) => {
                    return Err(no_file(path, "is a folder, a link or a submodule"));
                }
            }
        }
        whole(job.intent, &leftovers, files).await
    }

    async fn read(&self, api: &Api<'_>, path: &str, commit: &str) -> Result<Vec<u8>, ForgeError> {
        let file = api.file(path, commit).await?;
        let bytes = file.and_then(|file| STANDARD.decode(file.content).ok());
        bytes.ok_or_else(|| {
            let place = self.http.place();
            let detail = format!("{place} gave no content of {path} at the commit {commit}");
            failed(ErrorType::Transient, "ForgeError", detail)
        })
    }

    /// Commits to a branch whose tip is this commit; gives back the new one. All actions or none.
    ///
    /// GitLab cannot be told which tip is meant. An action that does not fit its file is refused; should somebody commit to
    /// other files just before, that shows in the answer, and is an error as well.
    pub(super) async fn commit_on_top(
        &self,
        api: &Api<'_>,
        branch: &str,
        tip: &str,
        actions: &[Action<'_>],
    ) -> Result<String, ForgeError> {
        let reply = api.create_commit(branch, None, actions).await?;
        if !reply.status.is_success() {
            return Err(self.explain_amend(api, &reply).await?);
        }
        let commit: wire::Commit = reply.json()?;
        if commit.parent_ids.is_some_and(|parents| parents != [tip]) {
            let why = format!("somebody committed to it just before {}", commit.id);
            return Err(self.branch_taken(api, &why));
        }
        Ok(commit.id)
    }

    async fn explain_amend(&self, api: &Api<'_>, reply: &Reply) -> Result<ForgeError, ForgeError> {
        let base = api.job.intent.base_branch.as_deref().unwrap_or_default();
        self.explain_refusal(api, base, reply).await
    }
}

impl Api<'_> {
    /// The newest commits of a branch; none if there is no such branch.
    pub(super) async fn history(&self, branch: &str) -> Result<Vec<Link>, ForgeError> {
        let page = HISTORY.to_string();
        let query = [("ref_name", branch), ("per_page", page.as_str())];
        let reply = self.get(Operation::Read, &["repository", "commits"], &query);
        let found: Option<Vec<wire::Commit>> = reply.await?.found()?;
        let link = |commit: wire::Commit| Link {
            oid: commit.id,
            message: commit.message,
        };
        Ok(found.into_iter().flatten().map(link).collect())
    }

    /// Sets title and description of a merge request.
    pub(super) async fn set_text(
        &self,
        iid: u64,
        title: &str,
        description: &str,
    ) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &iid.to_string()], &[]);
        let body = json!({ "title": title, "description": description });
        self.send(Operation::Edit, Method::PUT, url, Some(body))
            .await
    }
}

/// Whether people see it as a draft; `app/models/merge_request.rb` of GitLab has more forms, which it does not write itself.
fn is_draft(title: &str) -> bool {
    title
        .get(..6)
        .is_some_and(|start| start.eq_ignore_ascii_case("draft:"))
}
