//! Closes a merge request in three requests: a look, a note that says why, the close; one or two more for its branch.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::super::http::Reply;
use super::super::metrics::Operation;
use super::super::ours::{closing_comment, closing_marker, is_our_tip};
use super::super::{ClosedPull, Closing, ForgeError, Job, PullRequestState};
use super::adopt::state;
use super::api::Api;
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
        let mut notes = Vec::new();
        if state(&request) == PullRequestState::Open {
            notes.extend(say_why(&api, &request, closing).await?);
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

/// Says why, unless that was said before. Gives back what stood in the way, for people.
async fn say_why(
    api: &Api<'_>,
    request: &wire::MergeRequest,
    closing: &Closing<'_>,
) -> Result<Option<String>, ForgeError> {
    if closing.again
        && api
            .has_note(request.iid, &closing_marker(api.job.key))
            .await?
    {
        return Ok(None);
    }
    let text = closing_comment(api.job.key, closing);
    let reply = api.add_note(request.iid, &text).await?;
    if reply.status.is_server_error() {
        return Err(reply.error());
    }
    let said = || format!("the comment: refused with {}{}", reply.status, reply.said());
    Ok((!reply.status.is_success()).then(said))
}

async fn remove_branch(api: &Api<'_>, closing: &Closing<'_>) -> Result<Option<String>, ForgeError> {
    let name = &api.job.intent.branch;
    let Some(tip) = api.branch(name).await? else {
        return Ok(None);
    };
    if !is_our_tip(&tip.id, &tip.message, api.job, closing) {
        return Ok(None);
    }
    let reply = api.delete_branch(name).await?;
    if reply.status.is_success() || reply.status.as_u16() == 404 {
        return Ok(None);
    }
    Ok(Some(format!(
        "removing the branch: refused with {}{}",
        reply.status,
        reply.said()
    )))
}

impl Api<'_> {
    /// Whether one of the newest notes has this in it.
    async fn has_note(&self, iid: u64, text: &str) -> Result<bool, ForgeError> {
        let segments = ["merge_requests", &iid.to_string(), "notes"];
        let query = [("sort", "desc"), ("per_page", "100")];
        let reply = self.get(Operation::Read, &segments, &query).await?;
        let notes: Vec<Note> = reply.found()?.unwrap_or_default();
        Ok(notes.iter().any(|note| note.body.contains(text)))
    }

    async fn add_note(&self, iid: u64, text: &str) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &iid.to_string(), "notes"], &[]);
        let body = json!({ "body": text });
        self.send(Operation::Comment, Method::POST, url, Some(body))
            .await
    }

    async fn close(&self, iid: u64) -> Result<Reply, ForgeError> {
        let url = self.url(&["merge_requests", &iid.to_string()], &[]);
        let body = json!({ "state_event": "close" });
        self.send(Operation::Close, Method::PUT, url, Some(body))
            .await
    }
}
