//! Closes a pull request in three requests: a look, a comment that says why, the close; one or two more for its branch.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::super::http::Reply;
use super::super::metrics::Operation;
use super::super::rest::{Comments, Requests, Tip, remove_branch, say_why};
use super::super::{ClosedPull, Closing, ForgeError, Job, PullRequestState};
use super::api::Api;
use super::follow::observed_pull;
use super::{Forgejo, wire};

#[derive(Deserialize)]
struct Comment {
    #[serde(default)]
    body: String,
}

impl Forgejo {
    pub(super) async fn close_pull(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        let api = self.api(job)?;
        let found = match closing.number {
            Some(number) => api.pull_by_number(number).await?,
            None => self.look_for_ours(&api).await?,
        };
        let Some(mut pull) = found else {
            return Ok(None);
        };
        let closing = &closing.seeing(pull.body.as_deref().unwrap_or_default());
        let mut notes = Vec::new();
        if pull.state() == PullRequestState::Open {
            notes.extend(say_why(&api, pull.number, closing).await?);
            if closing.stays_open {
                return Ok(Some(ClosedPull {
                    url: self.address(&pull),
                    pull: observed_pull(&pull),
                    notes,
                }));
            }
            pull = api.close(pull.number).await?.json()?;
        }
        if closing.remove_branch && pull.state() == PullRequestState::Closed {
            notes.extend(remove_branch(&api, closing).await?);
        }
        Ok(Some(ClosedPull {
            url: self.address(&pull),
            pull: observed_pull(&pull),
            notes,
        }))
    }

    async fn look_for_ours(&self, api: &Api<'_>) -> Result<Option<wire::Pull>, ForgeError> {
        let base = self.base(api).await?;
        let Some(pull) = api.pull(&base, &api.job.intent.branch).await? else {
            return Ok(None);
        };
        self.must_be_ours(api, &pull).await?;
        Ok(Some(pull))
    }
}

impl Requests for Api<'_> {
    fn job(&self) -> &Job<'_> {
        self.job
    }

    /// They come all at once, on every version.
    async fn comments(&self, number: u64, _page: u32) -> Result<Comments, ForgeError> {
        let url = self.repository_url("issues", &format!("{number}/comments"));
        let reply = self.get(Operation::Read, url).await?;
        let comments: Vec<Comment> = reply.found()?.unwrap_or_default();
        Ok(Comments {
            texts: comments.into_iter().map(|comment| comment.body).collect(),
            is_last: true,
        })
    }

    async fn add_comment(&self, number: u64, text: &str) -> Result<Reply, ForgeError> {
        let url = self.repository_url("issues", &format!("{number}/comments"));
        let body = json!({ "body": text });
        self.send(Operation::Comment, Method::POST, url, Some(body))
            .await
    }

    async fn tip(&self, branch: &str) -> Result<Option<Tip>, ForgeError> {
        let tip = self.branch(branch).await?;
        Ok(tip.map(|wire::BranchCommit { id, message }| Tip { id, message }))
    }

    async fn remove(&self, branch: &str) -> Result<Reply, ForgeError> {
        self.delete_branch(branch).await
    }
}

impl Api<'_> {
    async fn close(&self, number: u64) -> Result<Reply, ForgeError> {
        let url = self.repository_url("pulls", &number.to_string());
        let body = json!({ "state": "closed" });
        self.send(Operation::Close, Method::PATCH, url, Some(body))
            .await
    }
}
