//! What GitLab means when it refuses: its own words where they help, else what the project looks like.

use super::super::ForgeError;
use super::super::http::{Reply, failed};
use super::super::ours::not_a_file;
use super::api::Api;
use super::errors::known_words;
use super::plan::NoFile;
use super::{Gitlab, ROUNDS};
use crate::response::ErrorType;

/// What GitLab says when it cannot take an action for a file: the API since 8.13, Gitaly since it checks this.
const ABOUT_A_FILE: [&str; 3] = ["file with this name", "File to be ", "a file with the name"];

/// Whether a commit was refused for one of its actions. GitLab checks branches before files, so that no branch of our
/// name was there.
pub(super) fn is_about_a_file(reply: &Reply) -> bool {
    ABOUT_A_FILE.iter().any(|words| reply.says(words))
}

impl Gitlab {
    /// A commit or merge request was refused for reasons that lie in neither branch nor files.
    pub(super) async fn explain_refusal(
        &self,
        api: &Api<'_>,
        base: &str,
        reply: &Reply,
    ) -> Result<ForgeError, ForgeError> {
        let place = self.http.place();
        if let Some(error) = known_words(reply, place) {
            return Ok(error);
        }
        match reply.status.as_u16() {
            403 => self.explain_denial(api, reply).await,
            404 => {
                self.explain_missing(api, base).await?;
                Ok(reply.error())
            }
            _ => Ok(reply.error()),
        }
    }

    /// Nobody may push to an archived project, and to a protected branch only some may; GitLab says the same of both.
    async fn explain_denial(&self, api: &Api<'_>, reply: &Reply) -> Result<ForgeError, ForgeError> {
        let (place, said) = (self.http.place(), reply.said());
        let project = api
            .project()
            .await?
            .ok_or_else(|| self.project_not_found())?;
        if project.archived {
            return Ok(self.archived(&said));
        }
        let branch = &api.job.intent.branch;
        let detail = format!(
            "the token may not do this in {place}{said}; give it the role Developer, and see that no protected branch covers {branch}"
        );
        Ok(failed(ErrorType::Unauthorized, "PermissionDenied", detail))
    }

    /// An error if project or base branch are missing.
    pub(super) async fn explain_missing(
        &self,
        api: &Api<'_>,
        base: &str,
    ) -> Result<(), ForgeError> {
        if api.branch(base).await?.is_some() {
            return Ok(());
        }
        self.memory().default_branch = None;
        let project = api
            .project()
            .await?
            .ok_or_else(|| self.project_not_found())?;
        let Some(default) = project.default_branch.filter(|_| !project.empty_repo) else {
            return Err(self.repository_empty());
        };
        let detail = format!(
            "{} has no branch {base:?}; correct provider.baseBranch of the route (the default branch is {default:?})",
            self.http.place(),
        );
        Err(failed(ErrorType::Permanent, "BaseBranchNotFound", detail))
    }

    pub(super) fn archived(&self, said: &str) -> ForgeError {
        let place = self.http.place();
        let detail = format!("{place} is archived{said}; unarchive it or change the route");
        ForgeError::parked(ErrorType::Permanent, "RepositoryArchived", detail)
    }

    pub(super) fn merge_requests_off(&self) -> ForgeError {
        let detail = format!(
            "merge requests are switched off in {}, or for the token; switch them on and give it the role Developer",
            self.http.place()
        );
        failed(ErrorType::Unauthorized, "PermissionDenied", detail)
    }

    pub(super) fn base_busy(&self, base: &str) -> ForgeError {
        let detail = format!(
            "{base} of {} changed {ROUNDS} times between reading its files and patching them",
            self.http.place()
        );
        failed(ErrorType::Transient, "BaseBusy", detail)
    }

    pub(super) fn project_not_found(&self) -> ForgeError {
        let detail = format!(
            "there is no project {}, or the token of the Secret {}/{} has no access to it (the forge says the same of both)",
            self.http.place(),
            self.credential.namespace,
            self.credential.name
        );
        failed(ErrorType::Permanent, "RepositoryNotFound", detail)
    }

    pub(super) fn repository_empty(&self) -> ForgeError {
        let detail = format!(
            "{} has no commit yet; make a first one on its base branch",
            self.http.place()
        );
        failed(ErrorType::Permanent, "RepositoryEmpty", detail)
    }

    pub(super) fn no_file(&self, NoFile { path, what }: &NoFile) -> ForgeError {
        not_a_file(path, what, self.http.place())
    }

    /// The name of a branch that git keeps in a folder of this name, or in whose folder git would have to keep this one.
    pub(super) async fn branch_in_the_way(
        &self,
        api: &Api<'_>,
    ) -> Result<Option<String>, ForgeError> {
        let branch = &api.job.intent.branch;
        for (end, _) in branch.match_indices('/') {
            if api.branch(&branch[..end]).await?.is_some() {
                return Ok(Some(branch[..end].to_owned()));
            }
        }
        api.branch_below(branch).await
    }

    pub(super) fn branch_taken(&self, api: &Api<'_>, why: &str) -> ForgeError {
        let detail = format!(
            "the branch {} of {} holds somebody else's work: {why}; remove or rename the branch, then retry",
            api.job.intent.branch, self.project
        );
        failed(ErrorType::Conflicting, "BranchTaken", detail)
    }
}
