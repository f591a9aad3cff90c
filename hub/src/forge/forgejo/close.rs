//! Closes a pull request in three requests: a look, a comment that says why, the close; one or two more for its branch.

use http::Method;
use serde::Deserialize;
use serde_json::json;

use super::super::http::Reply;
use super::super::metrics::Operation;
use super::super::ours::{closing_comment, closing_marker, is_our_tip};
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
        let mut notes = Vec::new();
        if pull.state() == PullRequestState::Open {
            notes.extend(say_why(&api, &pull, closing).await?);
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

/// Says why, unless that was said before. Gives back what stood in the way, for people.
async fn say_why(
    api: &Api<'_>,
    pull: &wire::Pull,
    closing: &Closing<'_>,
) -> Result<Option<String>, ForgeError> {
    if closing.again
        && api
            .has_comment(pull.number, &closing_marker(api.job.key))
            .await?
    {
        return Ok(None);
    }
    let text = closing_comment(api.job.key, closing);
    let reply = api.add_comment(pull.number, &text).await?;
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
    /// Whether a comment has this in it.
    async fn has_comment(&self, number: u64, text: &str) -> Result<bool, ForgeError> {
        let url = self.repository_url("issues", &format!("{number}/comments"));
        let reply = self.get(Operation::Read, url).await?;
        let comments: Vec<Comment> = reply.found()?.unwrap_or_default();
        Ok(comments.iter().any(|comment| comment.body.contains(text)))
    }

    async fn add_comment(&self, number: u64, text: &str) -> Result<Reply, ForgeError> {
        let url = self.repository_url("issues", &format!("{number}/comments"));
        let body = json!({ "body": text });
        self.send(Operation::Comment, Method::POST, url, Some(body))
            .await
    }

    async fn close(&self, number: u64) -> Result<Reply, ForgeError> {
        let url = self.repository_url("pulls", &number.to_string());
        let body = json!({ "state": "closed" });
        self.send(Operation::Close, Method::PATCH, url, Some(body))
            .await
    }
}
