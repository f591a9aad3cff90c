//! What a signed webhook says: the few fields that make a [`Hint`], out of documents that are not trusted.
//!
//! Pull requests from forks are left out: Nabu's branches are in the repository itself.

use std::borrow::Cow;

use http::HeaderMap;
use serde::Deserialize;

use super::{ForgeKind, Hint};

/// Bytes of the longest repository name that is taken.
const LONGEST_REPOSITORY: usize = 512;
/// Bytes of the longest branch name that is taken.
const LONGEST_BRANCH: usize = 1024;

/// What a webhook is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A pull request has changed.
    Changed(Hint),
    /// The forge tries whether anybody is there.
    Ping,
    /// Something that nobody here waits for.
    Other,
}

/// The body is not what the forge sends for its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Reads a body.
pub(super) fn read(forge: ForgeKind, headers: &HeaderMap, body: &[u8]) -> Result<Event, Invalid> {
    let event = |name| {
        let value = headers.get(name)?;
        value.to_str().ok()
    };
    match forge {
        ForgeKind::GitHub => match event("x-github-event") {
            Some("pull_request") => pull_request(forge, body),
            Some("ping") => Ok(Event::Ping),
            _ => Ok(Event::Other),
        },
        ForgeKind::Forgejo => match event("x-forgejo-event").or_else(|| event("x-gitea-event")) {
            Some("pull_request") => pull_request(forge, body),
            _ => Ok(Event::Other),
        },
        ForgeKind::GitLab => match event("x-gitlab-event") {
            // A webhook of the whole instance sends all events under the second name.
            Some("Merge Request Hook" | "System Hook") => merge_request(body),
            _ => Ok(Event::Other),
        },
    }
}

#[derive(Deserialize)]
struct PullRequestEvent<'a> {
    #[serde(borrow)]
    repository: Repository<'a>,
    #[serde(borrow)]
    pull_request: PullRequest<'a>,
}

#[derive(Deserialize)]
struct Repository<'a> {
    #[serde(borrow)]
    full_name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct PullRequest<'a> {
    #[serde(borrow)]
    head: Option<Head<'a>>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "ref")]
    reference: Cow<'a, str>,
    #[serde(borrow, default)]
    label: Cow<'a, str>,
    /// `null` once a fork was deleted.
    #[serde(borrow)]
    repo: Option<Repository<'a>>,
}

fn pull_request(forge: ForgeKind, body: &[u8]) -> Result<Event, Invalid> {
    let event: PullRequestEvent<'_> = serde_json::from_slice(body).map_err(|_| Invalid)?;
    let Some(head) = event.pull_request.head else {
        return Ok(Event::Other);
    };
    let Some(repository) = head.repo else {
        return Ok(Event::Other);
    };
    if repository.full_name != event.repository.full_name {
        return Ok(Event::Other);
    }
    let branch = match forge {
        // Gitea says `refs/pull/<number>/head` in `ref` once the branch is gone, as after a merge; `label` stays
        // (services/convert/pull.go). At GitHub, `label` has the owner in it.
        ForgeKind::Forgejo => head.label,
        ForgeKind::GitHub | ForgeKind::GitLab => head.reference,
    };
    changed(forge, repository.full_name, branch)
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    object_kind: Option<Name<'a>>,
}

/// `Option<Cow<str>>` by itself would always be copied.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct MergeRequestEvent<'a> {
    #[serde(borrow)]
    project: Project<'a>,
    #[serde(borrow)]
    object_attributes: MergeRequest<'a>,
}

#[derive(Deserialize)]
struct Project<'a> {
    #[serde(borrow)]
    path_with_namespace: Cow<'a, str>,
}

#[derive(Deserialize)]
struct MergeRequest<'a> {
    #[serde(borrow)]
    source_branch: Cow<'a, str>,
    /// `null` once a fork was deleted.
    source_project_id: Option<u64>,
    target_project_id: u64,
}

fn merge_request(body: &[u8]) -> Result<Event, Invalid> {
    let kind: Kind<'_> = serde_json::from_slice(body).map_err(|_| Invalid)?;
    if kind
        .object_kind
        .is_none_or(|kind| kind.0 != "merge_request")
    {
        return Ok(Event::Other);
    }
    let event: MergeRequestEvent<'_> = serde_json::from_slice(body).map_err(|_| Invalid)?;
    let merge_request = event.object_attributes;
    if merge_request.source_project_id != Some(merge_request.target_project_id) {
        return Ok(Event::Other);
    }
    changed(
        ForgeKind::GitLab,
        event.project.path_with_namespace,
        merge_request.source_branch,
    )
}

fn changed(
    forge: ForgeKind,
    repository: Cow<'_, str>,
    branch: Cow<'_, str>,
) -> Result<Event, Invalid> {
    Ok(Event::Changed(Hint {
        forge,
        repository: name(repository, LONGEST_REPOSITORY)?,
        branch: name(branch, LONGEST_BRANCH)?,
    }))
}

fn name(text: Cow<'_, str>, longest: usize) -> Result<String, Invalid> {
    let good = (1..=longest).contains(&text.len()) && !text.chars().any(char::is_control);
    good.then(|| text.into_owned()).ok_or(Invalid)
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
