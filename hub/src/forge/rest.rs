//! What goes the same way on the forges whose API does one thing for each request (Forgejo and Gitea, GitLab): saying why a
//! pull request is closed, and removing its branch.

use super::http::Reply;
use super::ours::{closing_comment, closing_marker, is_our_tip};
use super::{Closing, ForgeError, Job};

/// More pages of comments are not read.
const MOST_PAGES: u32 = 20;

/// The commit at the tip of a branch.
pub(super) struct Tip {
    pub(super) id: String,
    pub(super) message: String,
}

/// A page of comments.
pub(super) struct Comments {
    pub(super) texts: Vec<String>,
    pub(super) is_last: bool,
}

/// The requests of a forge for one job, one each.
pub(super) trait Requests {
    fn job(&self) -> &Job<'_>;

    /// A page of the comments on a pull request, from page 1 on.
    async fn comments(&self, number: u64, page: u32) -> Result<Comments, ForgeError>;

    async fn add_comment(&self, number: u64, text: &str) -> Result<Reply, ForgeError>;

    async fn tip(&self, branch: &str) -> Result<Option<Tip>, ForgeError>;

    async fn remove(&self, branch: &str) -> Result<Reply, ForgeError>;
}

/// Says why a pull request is closed, unless that was said before. Gives back what stood in the way, for people.
pub(super) async fn say_why<R: Requests>(
    requests: &R,
    number: u64,
    closing: &Closing<'_>,
) -> Result<Option<String>, ForgeError> {
    if closing.again && has_been_said(requests, number).await? {
        return Ok(None);
    }
    let text = closing_comment(requests.job().key, closing);
    let reply = requests.add_comment(number, &text).await?;
    if reply.status.is_server_error() {
        return Err(reply.error());
    }
    Ok(refusal(&reply, "the comment"))
}

async fn has_been_said<R: Requests>(requests: &R, number: u64) -> Result<bool, ForgeError> {
    let marker = closing_marker(requests.job().key);
    for page in 1..=MOST_PAGES {
        let comments = requests.comments(number, page).await?;
        if comments.texts.iter().any(|text| text.contains(&marker)) {
            return Ok(true);
        }
        if comments.is_last {
            break;
        }
    }
    Ok(false)
}

/// Removes the branch of a closed pull request, unless somebody has put something on it. Gives back what stood in the way,
/// for people.
pub(super) async fn remove_branch<R: Requests>(
    requests: &R,
    closing: &Closing<'_>,
) -> Result<Option<String>, ForgeError> {
    let job = requests.job();
    let name = &job.intent.branch;
    let Some(tip) = requests.tip(name).await? else {
        return Ok(None);
    };
    if !is_our_tip(&tip.id, &tip.message, job, closing) {
        return Ok(None);
    }
    let reply = requests.remove(name).await?;
    if reply.status.as_u16() == 404 {
        return Ok(None);
    }
    Ok(refusal(&reply, "removing the branch"))
}

fn refusal(reply: &Reply, what: &str) -> Option<String> {
    let said = || format!("{what}: refused with {}{}", reply.status, reply.said());
    (!reply.status.is_success()).then(said)
}
