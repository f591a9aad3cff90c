//! Patches: reads the files that are patched, and commits what comes of them only if they are still the same.

use std::collections::BTreeMap;

use super::super::ForgeError;
use super::super::http::failed;
use super::super::ours::has_trailers;
use super::super::resolve::{
    BaseFile, PATCH_DOES_NOT_APPLY, Resolved, in_background, no_file, patched_paths,
};
use super::Forgejo;
use super::api::{Api, AtPath};
use super::commit::Committed;
use crate::response::ErrorType;

/// How often files are read that change before the commit.
const ROUNDS: usize = 3;

impl Forgejo {
    /// Commits the change, with its patches applied to the base as it is.
    pub(super) async fn resolve_and_commit(
        &self,
        api: &mut Api<'_>,
        base: &str,
    ) -> Result<Committed, ForgeError> {
        let mut committed = Committed::Stale;
        for _ in 0..ROUNDS {
            match self.resolve(api, base).await {
                Ok(change) => api.change = change,
                Err(error) if is_misfit(&error) => {
                    self.explain_missing(api, base).await?;
                    return self.adopt_misfit(api, base, error).await;
                }
                Err(error) => return Err(error),
            }
            committed = self.commit(api, base).await?;
            if !matches!(committed, Committed::Stale) {
                break;
            }
        }
        Ok(committed)
    }

    /// The change with its patches applied to the files of a branch or commit; one request for each patched file.
    pub(super) async fn resolve(
        &self,
        api: &Api<'_>,
        git_ref: &str,
    ) -> Result<Resolved, ForgeError> {
        let mut base = BTreeMap::new();
        for path in patched_paths(api.job.intent) {
            match api.at_path(path, git_ref).await? {
                AtPath::File {
                    contents: Some(bytes),
                    sha,
                } => {
                    base.insert(
                        path.to_owned(),
                        BaseFile {
                            bytes,
                            version: sha,
                        },
                    );
                }
                AtPath::File { contents: None, .. } => return Err(no_file(path, "is too large")),
                AtPath::Link | AtPath::Other => {
                    return Err(no_file(path, "is a folder, a link or a submodule"));
                }
                AtPath::Absent => {}
            }
        }
        in_background(api.job.intent, base).await
    }

    /// The patch does not fit the base any more. If our commit is there already, it was made when it did.
    async fn adopt_misfit(
        &self,
        api: &Api<'_>,
        base: &str,
        error: ForgeError,
    ) -> Result<Committed, ForgeError> {
        match api.branch(&api.job.intent.branch).await? {
            Some(tip) if has_trailers(&tip.message, api.job.key) => {
                self.adopt_tip(api, base, tip).await
            }
            _ => Err(error),
        }
    }

    pub(super) fn base_busy(&self, base: &str) -> ForgeError {
        let detail = format!(
            "files on {base} of {} that are patched changed {ROUNDS} times between reading and committing them",
            self.repository
        );
        failed(ErrorType::Transient, "BaseBusy", detail)
    }
}

/// Whether a patch does not fit its file.
pub(super) fn is_misfit(error: &ForgeError) -> bool {
    matches!(error, ForgeError::Failed(error) if error.reason == PATCH_DOES_NOT_APPLY)
}
