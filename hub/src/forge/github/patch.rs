//! Patched files: read as the commit has them that the change goes on top of, then made whole.
//!
//! The text comes with the lookup, so that it belongs to the very commit that the mutation expects as the head. A text that
//! is not the file byte for byte (cut off, or no UTF-8) is read over the Git Data API instead.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde::Deserialize;

use super::super::http::failed;
use super::super::metrics::Operation;
use super::super::ours::has_trailers;
use super::super::resolve::{BaseFile, in_background, no_file, patched_paths};
use super::super::{ForgeError, Job};
use super::lookup::{Commit, Entry, Repository};
use super::{Github, decide};
use crate::change::{FileAction, FileChange, Intent};
use crate::response::ErrorType;

#[derive(Deserialize)]
struct Blob {
    content: String,
}

impl Github {
    /// The change without patches: against our commit's parent if our commit is there, else against the base.
    pub(super) async fn whole<'a>(
        &self,
        job: &Job<'a>,
        repository: &Repository,
    ) -> Result<Cow<'a, Intent>, ForgeError> {
        if patched_paths(job.intent).next().is_none() {
            return Ok(Cow::Borrowed(job.intent));
        }
        let base = decide::base(job, repository, &self.place)?;
        let ours = repository
            .branch
            .as_ref()
            .filter(|branch| has_trailers(&branch.target.message, job.key));
        let below = ours
            .and_then(|branch| branch.target.parent())
            .unwrap_or(&base.target);
        let files = self.base_files(job, repository, below).await?;
        let resolved = in_background(job.intent, files).await?;
        let files = resolved.files.into_iter().map(|file| FileChange {
            path: file.path,
            action: match file.contents {
                Some(contents) => FileAction::Write { contents },
                None => FileAction::Delete,
            },
        });
        Ok(Cow::Owned(Intent {
            files: files.collect(),
            body: resolved.body,
            ..job.intent.clone()
        }))
    }

    pub(super) async fn base_files(
        &self,
        job: &Job<'_>,
        repository: &Repository,
        commit: &Commit,
    ) -> Result<BTreeMap<String, BaseFile>, ForgeError> {
        let mut files = BTreeMap::new();
        for (number, file) in job.intent.files.iter().enumerate() {
            if !matches!(file.action, FileAction::Patch { .. }) {
                continue;
            }
            let Some(entry) = commit.file(number) else {
                continue;
            };
            if !entry.is_regular_file() {
                return Err(no_file(&file.path, "is a folder, a link or a submodule"));
            }
            let bytes = match entry.whole_text() {
                Some(text) => text.into_bytes(),
                None => self.blob(job, &repository.name_with_owner, &entry).await?,
            };
            let version = entry.oid;
            files.insert(file.path.clone(), BaseFile { bytes, version });
        }
        Ok(files)
    }

    /// The bytes of a file of `owner/name`.
    pub(super) async fn blob(
        &self,
        job: &Job<'_>,
        repository: &str,
        entry: &Entry,
    ) -> Result<Vec<u8>, ForgeError> {
        let path = ["repos", repository, "git", "blobs", &entry.oid];
        let reply = self
            .account
            .rest(job, Operation::Read, Method::GET, &path, None)
            .await?;
        if !reply.status.is_success() {
            return Err(self.account.explain_reply(&reply));
        }
        let Blob { content } = reply.json()?;
        let packed: String = content.split_whitespace().collect();
        STANDARD.decode(packed).map_err(|_| {
            let detail = format!("{} gave a file that is no base64", self.place);
            failed(ErrorType::Transient, "ForgeError", detail)
        })
    }
}
