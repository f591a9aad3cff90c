//! Closes a merge request in three requests: a look, a note that says why, the close; one or two more for its branch.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::super::http::Reply;
use super::super::metrics::Operation;
use super::super::rest::{Comments, Requests, Tip, remove_branch, say_why};
use super::super::{ClosedPull, Closing, ForgeError, Job, PullRequestState};
use super::adopt::state;
use super::api::{Api, PAGE};
use super::follow::observed_pull;
use super::{Gitlab, wire};

#[derive(Deserialize)]
struct Note {
    #[serde(default)]
    body: String,
}

impl Gitlab {
    pub(super) async fn close_request(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        let api = self.api(job)?;
        let found = match closing.number {
            Some(number) => api.merge_request(number).await?,
            None => self.look_for_ours(&api).await?,
        };
        let Some(mut request) = found else {
            return Ok(None);
        };
        let closing = &closing.seeing(request.description.as_deref().unwrap_or_default());
        let mut notes = Vec::new();
        if state(&request) == PullRequestState::Open {
            notes.extend(say_why(&api, request.iid, closing).await?);
            if closing.stays_open {
                return Ok(Some(ClosedPull {
                    url: self.address(&request),
                    pull: observed_pull(&request),
                    notes,
                }));
            }
            let reply = api.close(request.iid).await?;
            if !reply.status.is_success() {
                let base = job.intent.base_branch.as_deref().unwrap_or_default();
                return Err(self.explain_refusal(&api, base, &reply).await?);
            }
            request = reply.json()?;
        }
        if closing.remove_branch && state(&request) == PullRequestState::Closed {
            notes.extend(remove_branch(&api, closing).await?);
        }
        Ok(Some(ClosedPull {
            url: self.address(&request),
            pull: observed_pull(&request),
            notes,
        }))
    }

    async fn look_for_ours(&self, api: &Api<'_>) -> Result<Option<wire::MergeRequest>, ForgeError> {
        let found = self.look_up(api).await?;
        if found.is_empty() {
            return Ok(None);
        }
        let ours = self.choose(api, found).await?;
        Ok(Some(ours))
    }
}

impl Requests for Api<'_> {
    fn job(&self) -> &Job<'_> {
        self.job
    }

    /// The newest first.
    async fn comments(&self, number: u64, page: u32) -> Result<Comments, ForgeError> {
        let segments = ["merge_requests", &number.to_string(), "notes"];
        let page = page.to_string();
        let size = PAGE.to_string();
        let query = [("sort", "desc"), ("per_page", &size), ("page", &page)];
        let reply = self.get(Operation::Read, &segments, &query).await?;
        let notes: Vec<Note> = reply.found()?.unwrap_or_default();
        Ok(Comments {
            is_last: notes.len() < PAGE,
            texts: notes.into_iter().map(|note| note.body).collect(),
        })
    }

    async fn add_comment(&self, number: u64, text: &str) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &number.to_string(), "notes"], &[]);
        let body = json!({ "body": text });
        self.send(Operation::Comment, Method::POST, url, Some(body))
            .await
    }

    async fn tip(&self, branch: &str) -> Result<Option<Tip>, ForgeError> {
        let tip = self.branch(branch).await?;
        Ok(tip.map(|tip| Tip {
            id: tip.id,
            message: tip.message,
        }))
    }

    async fn remove(&self, branch: &str) -> Result<Reply, ForgeError> {
        self.delete_branch(branch).await
    }
}

impl Api<'_> {
    async fn close(&self, iid: u64) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &iid.to_string()], &[]);
        let body = json!({ "state_event": "close" });
        self.send(Operation::Close, Method::PUT, url, Some(body))
            .await
    }
}
