//! Puts the change on its branch in one commit, or finds out that there is nothing to put.

use std::sync::atomic::Ordering;

use tracing::warn;

use super::super::ForgeError;
use super::super::http::Reply;
use super::super::ours::{LINK, not_a_file};
use super::super::resolve::{Resolved, WholeFile};
use super::api::{Api, AtPath, FileOperation};
use super::{Forgejo, NO, UNKNOWN, YES, wire};

/// What came of the attempt to commit.
pub(super) enum Committed {
    /// The branch holds the change and nothing else.
    Done {
        /// The commit.
        sha: String,
        /// The body that shows it.
        body: String,
    },
    /// A patched file of the base is another than it was when it was read.
    Stale,
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
            let files = uploads(&api.change);
            if files.is_empty() {
                return self.unchanged(api, base, branch).await;
            }
            let reply = api.change_files(base, Some(branch), &files).await?;
            if reply.status.is_success() {
                self.knows_upload.store(YES, Ordering::Relaxed);
                return self.committed(api, &reply, &files).await;
            }
            if is_stale(api, &reply) {
                return Ok(Committed::Stale);
            }
            match reply.status.as_u16() {
                403 | 409 | 422 => return self.adopt_branch(api, base, &reply).await,
                _ if has_lost_branch(&reply) => return self.adopt_branch(api, base, &reply).await,
                // Without the repository or the base branch all else is vain; else it is a file to be deleted that
                // is not there.
                404 => self.explain_missing(api, base).await?,
                // A server that does not know `upload` says just that something went wrong.
                400 | 500 if self.knows_upload.load(Ordering::Relaxed) == UNKNOWN => {}
                _ => return Err(self.explain(&reply)),
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
        for file in &api.change.files {
            let now = api.at_path(&file.path, base).await?;
            if file.version.is_some() && file.version.as_deref() != now.sha() {
                return Ok(Committed::Stale);
            }
            if now == AtPath::Link && file.contents.is_some() {
                return Err(not_a_file(&file.path, LINK, self.http.place()));
            }
            files.extend(exact_operation(file, &now));
        }
        if files.is_empty() {
            self.explain_missing(api, base).await?;
            return match new_branch {
                Some(branch) => self.unchanged(api, base, branch).await,
                None => Ok(Committed::Unchanged),
            };
        }
        let reply = api.change_files(base, new_branch, &files).await?;
        if is_stale(api, &reply) {
            return Ok(Committed::Stale);
        }
        match reply.status.as_u16() {
            200..=299 => {
                // It failed before, and with the very same files but for the word `upload` it works.
                if files.len() == uploads(&api.change).len() {
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
            _ if new_branch.is_some() && has_lost_branch(&reply) => {
                self.adopt_branch(api, base, &reply).await
            }
            404 => {
                self.explain_missing(api, base).await?;
                Err(self.explain(&reply))
            }
            _ => Err(self.explain(&reply)),
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
            return Ok(done(api, sha));
        }
        if self.is_empty(api, &sha).await? {
            self.take_back(api).await?;
            return Ok(Committed::Unchanged);
        }
        Ok(done(api, sha))
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

/// Whether git knows a branch that the server has forgotten: it was interrupted between the push of an earlier request
/// and the note of it in its database, takes the name as free since then, and fails at git's refusal.
fn has_lost_branch(reply: &Reply) -> bool {
    reply.says("non-fast-forward") || reply.says("PushOutOfDate")
}

/// Whether the forge refused the commit because a patched file has changed since it was read.
pub(super) fn is_stale(api: &Api<'_>, reply: &Reply) -> bool {
    let patches = api.change.files.iter().any(|file| file.version.is_some());
    patches && !reply.status.is_success() && reply.says("sha does not match")
}

fn done(api: &Api<'_>, sha: String) -> Committed {
    Committed::Done {
        sha,
        body: api.change.body.clone(),
    }
}

/// The operations that need no look at the files. Deleting what is not there fails as a whole.
pub(super) fn uploads(change: &Resolved) -> Vec<FileOperation> {
    let needed = change.files.iter().filter(|file| !file.as_before);
    needed
        .map(|file| {
            let operation = match (&file.contents, &file.version) {
                (Some(_), None) => "upload",
                (Some(_), Some(_)) => "update",
                (None, _) => "delete",
            };
            operation_on(operation, file)
        })
        .collect()
}

fn operation_on(operation: &'static str, file: &WholeFile) -> FileOperation {
    FileOperation {
        operation,
        path: file.path.clone(),
        contents: file.contents.clone().unwrap_or_default(),
        sha: file.version.clone(),
    }
}

/// What is to be done to a file that is in this state; nothing if it is as wanted.
pub(super) fn exact_operation(file: &WholeFile, now: &AtPath) -> Option<FileOperation> {
    if is_as_wanted(file, now) {
        return None;
    }
    let operation = match (&file.contents, now) {
        (Some(_), AtPath::Absent) => "create",
        (Some(_), _) => "update",
        (None, _) => "delete",
    };
    Some(operation_on(operation, file))
}

/// Whether a file is as the change wants it.
pub(super) fn is_as_wanted(file: &WholeFile, now: &AtPath) -> bool {
    match (&file.contents, now) {
        (
            Some(wanted),
            AtPath::File {
                contents: Some(bytes),
                ..
            },
        ) => wanted.as_bytes() == bytes.as_slice(),
        (None, AtPath::Absent) => true,
        _ => false,
    }
}
