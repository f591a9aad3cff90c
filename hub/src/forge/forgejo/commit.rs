//! Puts the change on its branch in one commit, or finds out that there is nothing to put.

use std::sync::atomic::Ordering;

use tracing::warn;

use super::super::ForgeError;
use super::super::http::Reply;
use super::api::{Api, AtPath, FileOperation};
use super::{Forgejo, NO, UNKNOWN, YES, wire};
use crate::change::{FileAction, Intent};

/// What came of the attempt to commit.
pub(super) enum Committed {
    /// The branch holds the change and nothing else, at this commit.
    Done(String),
    /// There was nothing to change.
    Unchanged,
    /// Meanwhile, there is a pull request.
    Opened(Box<wire::Pull>),
}

impl Forgejo {
    pub(super) fn has_upload(&self) -> bool {
        self.knows_upload.load(Ordering::Relaxed) != NO
    }

    /// Commits the change to a new branch, or finds out what is on the branch already.
    pub(super) async fn commit(&self, api: &Api<'_>, base: &str) -> Result<Committed, ForgeError> {
        let branch = &api.job.intent.branch;
        if self.has_upload() {
            let files = uploads(api.job.intent);
            let reply = api.change_files(base, Some(branch), &files).await?;
            if reply.status.is_success() {
                self.knows_upload.store(YES, Ordering::Relaxed);
                return self.committed(api, &reply, &files).await;
            }
            match reply.status.as_u16() {
                403 | 409 | 422 => return self.adopt_branch(api, base, &reply).await,
                // Without the repository or the base branch all else is vain; else it is a file to be deleted that
                // is not there.
                404 => self.explain_missing(api, base).await?,
                // A server that does not know `upload` says just that something went wrong.
                400 | 500 if self.knows_upload.load(Ordering::Relaxed) == UNKNOWN => {}
                _ => return Err(reply.error()),
            }
        }
        self.commit_exactly(api, base, Some(branch)).await
    }

    /// Commits after a look at each file: costs a request for each, and works on every version.
    pub(super) async fn commit_exactly(
        &self,
        api: &Api<'_>,
        base: &str,
        new_branch: Option<&str>,
    ) -> Result<Committed, ForgeError> {
        let mut files = Vec::new();
        for file in &api.job.intent.files {
            let now = api.at_path(&file.path, base).await?;
            files.extend(exact_operation(&file.path, &file.action, &now));
        }
        if files.is_empty() {
            self.explain_missing(api, base).await?;
            return match new_branch {
                Some(branch) => self.unchanged(api, base, branch).await,
                None => Ok(Committed::Unchanged),
            };
        }
        let reply = api.change_files(base, new_branch, &files).await?;
        match reply.status.as_u16() {
            200..=299 => {
                // It failed before, and with the very same files but for the word `upload` it works.
                if files.len() == api.job.intent.files.len() {
                    let _ = self.knows_upload.compare_exchange(
                        UNKNOWN,
                        NO,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                }
                self.committed(api, &reply, &files).await
            }
            403 | 409 | 422 if new_branch.is_some() => self.adopt_branch(api, base, &reply).await,
            404 => {
                self.explain_missing(api, base).await?;
                Err(reply.error())
            }
            _ => Err(reply.error()),
        }
    }

    /// Nothing is to be written. A branch of ours may still be there, made by an attempt when things were different.
    async fn unchanged(
        &self,
        api: &Api<'_>,
        base: &str,
        branch: &str,
    ) -> Result<Committed, ForgeError> {
        match api.branch(branch).await? {
            Some(tip) => self.adopt_tip(api, base, tip).await,
            None => Ok(Committed::Unchanged),
        }
    }

    /// Looks whether a commit that was made changes anything, and takes it back if not.
    pub(super) async fn committed(
        &self,
        api: &Api<'_>,
        reply: &Reply,
        sent: &[FileOperation],
    ) -> Result<Committed, ForgeError> {
        let made: wire::FilesChanged = reply.json()?;
        let sha = made.commit.sha;
        if made
            .commit
            .parents
            .is_some_and(|parents| parents.is_empty())
        {
            return Err(self.repository_empty());
        }
        let files = made.files.unwrap_or_default();
        let touched =
            |file: &wire::ChangedFile| file.last_commit_sha.as_deref() == Some(sha.as_str());
        if sent.iter().any(|file| file.operation == "delete") || files.iter().flatten().any(touched)
        {
            return Ok(Committed::Done(sha));
        }
        if self.is_empty(api, &sha).await? {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        Ok(Committed::Done(sha))
    }

    /// Whether a commit changes no file.
    pub(super) async fn is_empty(&self, api: &Api<'_>, sha: &str) -> Result<bool, ForgeError> {
        Ok(api
            .commit(sha)
            .await?
            .is_some_and(|commit| commit.files.is_none_or(|files| files.is_empty())))
    }

    /// Removes our branch, on which there is nothing but an empty commit of ours.
    pub(super) async fn take_back(&self, api: &Api<'_>) -> Result<(), ForgeError> {
        let reply = api.delete_branch(&api.job.intent.branch).await?;
        if !reply.status.is_success() {
            warn!(
                key = %api.job.key, repository = self.repository, branch = api.job.intent.branch,
                status = reply.status.as_u16(), "the branch without a change cannot be removed{}", reply.said(),
            );
        }
        Ok(())
    }
}

/// The operations that need no look at the files. Deleting what is not there fails as a whole.
pub(super) fn uploads(intent: &Intent) -> Vec<FileOperation> {
    let operation = |action: &FileAction| match action {
        FileAction::Write { contents } => ("upload", contents.clone()),
        FileAction::Delete => ("delete", String::new()),
    };
    let files = intent.files.iter();
    files
        .map(|file| {
            let (operation, contents) = operation(&file.action);
            FileOperation {
                operation,
                path: file.path.clone(),
                contents,
            }
        })
        .collect()
}

/// What is to be done to a file that is in this state; nothing if it is as wanted.
fn exact_operation(path: &str, action: &FileAction, now: &AtPath) -> Option<FileOperation> {
    if is_as_wanted(action, now) {
        return None;
    }
    let (operation, contents) = match (action, now) {
        (FileAction::Write { contents }, AtPath::Absent) => ("create", contents.clone()),
        (FileAction::Write { contents }, _) => ("update", contents.clone()),
        (FileAction::Delete, _) => ("delete", String::new()),
    };
    Some(FileOperation {
        operation,
        path: path.to_owned(),
        contents,
    })
}

/// Whether a file is as the change wants it.
pub(super) fn is_as_wanted(action: &FileAction, now: &AtPath) -> bool {
    match (action, now) {
        (FileAction::Write { contents }, AtPath::File(Some(bytes))) => {
            contents.as_bytes() == bytes.as_slice()
        }
        (FileAction::Delete, AtPath::Absent) => true,
        _ => false,
    }
}
