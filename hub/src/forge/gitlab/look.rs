//! Looks at a change: in one request where the server answers our question, over the REST API where it does not.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::time::Instant;
use tracing::info;

use super::super::ForgeError;
use super::super::http::failed;
use super::super::resolve::{BaseFile, Resolved, in_background, no_file, patched_paths};
use super::Gitlab;
use super::adopt::is_from_here;
use super::api::Api;
use super::plan::AtPath;
use super::question::{self, Base, Found, Obstacle, Reading, Text};
use super::wire;
use crate::response::ErrorType;

/// How long a server that does not know our question is not asked again.
const UNASKED: Duration = Duration::from_hours(1);

/// What GitLab says of a field or argument that it does not have.
const UNKNOWN_TO_SERVER: [&str; 3] = [
    "doesn't exist on type",
    "doesn't accept argument",
    "isn't a defined input type",
];

/// What a look has found.
pub(super) struct Look {
    /// The merge requests of our branch of this project (never of a fork), in whatever state.
    pub(super) requests: Vec<wire::MergeRequest>,
    /// The name of the base branch; nothing in a repository without a commit.
    pub(super) base: Option<String>,
    /// Why nothing can be made here.
    pub(super) obstacle: Option<ForgeError>,
    /// The base as it is, as far as it was looked at.
    pub(super) now: Option<Base>,
}

impl Gitlab {
    /// Looks for the merge request of a change, and at what the change is to be made on.
    pub(super) async fn look_at_change(&self, api: &Api<'_>) -> Result<Look, ForgeError> {
        let mut look = match self.ask(api).await? {
            Some(found) => self.looked(api, found).await?,
            None => self.look_over_rest(api).await?,
        };
        if look.requests.is_empty()
            && let Some(iid) = self.opened_lately(&api.job.intent.branch)
        {
            // Reads may lag behind our own writes.
            let request = api.merge_request(iid).await?.ok_or_else(|| {
                let detail = format!(
                    "{} does not show yet the merge request !{iid} that was opened a moment ago",
                    self.http.place()
                );
                failed(ErrorType::Transient, "Behind", detail)
            })?;
            look.requests.push(request);
        }
        Ok(look)
    }

    async fn look_over_rest(&self, api: &Api<'_>) -> Result<Look, ForgeError> {
        let base = self.base(api).await?;
        let requests = self.look_up(api).await?;
        let mut now = None;
        if requests.is_empty() && patched_paths(api.job.intent).next().is_some() {
            let Some(tip) = api.branch(&base).await? else {
                self.explain_missing(api, &base).await?;
                return Err(self.base_busy(&base));
            };
            now = Some(Base {
                tree: self.look(api, &tip.id).await?,
                tip: Some(tip.id),
                texts: BTreeMap::new(),
            });
        }
        Ok(Look {
            requests,
            base: Some(base),
            obstacle: None,
            now,
        })
    }

    /// Everything in one request; nothing if the server does not answer that, or not to us: then the REST API says why.
    async fn ask(&self, api: &Api<'_>) -> Result<Option<Found>, ForgeError> {
        let unasked = self.memory().unasked;
        if unasked.is_some_and(|since| since.elapsed() < UNASKED) {
            return Ok(None);
        }
        let (text, variables) = question::document(&self.project, api.job.intent);
        let reply = match api.ask(&text, &variables).await {
            Err(ForgeError::Failed(error)) if error.reason == "CredentialRejected" => {
                // It says the same of a token that is revoked and of one that lacks a scope; the REST API tells them apart.
                api.project().await?;
                return Err(ForgeError::Failed(error));
            }
            reply => reply?,
        };
        if reply.status.as_u16() == 404 {
            self.do_not_ask("it has no GraphQL");
        }
        // An answer that is no answer to the question may come from a proxy that keeps GraphQL out.
        let Ok(answer) = reply.json() else {
            return Ok(None);
        };
        match question::read(answer, &self.project) {
            Reading::Found(found) => Ok(Some(*found)),
            Reading::Hidden => Ok(None),
            Reading::Refused(why) => {
                if UNKNOWN_TO_SERVER.iter().any(|words| why.contains(words)) {
                    self.do_not_ask(&reply.without_token(&why));
                }
                Ok(None)
            }
        }
    }

    fn do_not_ask(&self, why: &str) {
        info!(
            project = self.project,
            why, "the server is asked over its REST API for an hour"
        );
        self.memory().unasked = Some(Instant::now());
    }

    async fn looked(&self, api: &Api<'_>, found: Found) -> Result<Look, ForgeError> {
        let branch = &api.job.intent.branch;
        let mut requests = found.requests;
        requests.retain(|request| is_from_here(request, branch));
        if requests.is_empty() && found.has_more_requests {
            requests = self.look_up(api).await?;
        }
        let obstacle = found.obstacle.map(|obstacle| match obstacle {
            Obstacle::Archived => self.archived(""),
            Obstacle::Empty => self.repository_empty(),
            Obstacle::NoMergeRequests => self.merge_requests_off(),
        });
        let base = api.job.intent.base_branch.clone();
        Ok(Look {
            requests,
            base: base.or(found.default_branch),
            obstacle,
            now: found.base,
        })
    }

    /// The change with its patches applied to the files of a commit. A file that did not come with the look costs a request.
    pub(super) async fn resolve(
        &self,
        api: &Api<'_>,
        base: &Base,
        commit: &str,
    ) -> Result<Resolved, ForgeError> {
        let mut files = BTreeMap::new();
        for path in patched_paths(api.job.intent) {
            let version = match base.tree.get(path) {
                None => continue,
                Some(AtPath::File(id)) => id.clone(),
                Some(AtPath::Link | AtPath::Other(_)) => {
                    return Err(no_file(path, "is a folder, a link or a submodule"));
                }
            };
            let bytes = match base.texts.get(path) {
                Some(Text::Whole(text)) => text.clone().into_bytes(),
                Some(Text::Elsewhere) => return Err(no_file(path, "is kept in Git LFS")),
                None => self.bytes(api, path, commit).await?,
            };
            files.insert(path.to_owned(), BaseFile { bytes, version });
        }
        in_background(api.job.intent, files).await
    }

    async fn bytes(&self, api: &Api<'_>, path: &str, commit: &str) -> Result<Vec<u8>, ForgeError> {
        let file = api.file(path, commit).await?;
        let bytes = file.and_then(|file| STANDARD.decode(file.content).ok());
        bytes.ok_or_else(|| {
            let place = self.http.place();
            let detail = format!("{place} gave no content of {path} at the commit {commit}");
            failed(ErrorType::Transient, "ForgeError", detail)
        })
    }
}
