//! A commit over the Git Data API, for what `createCommitOnBranch` cannot do: executable files keep their mode.
//!
//! Tree and commit hang in the air until a branch gets them; what an interrupted attempt leaves is collected by git.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::http::Reply;
use super::super::metrics::Operation;
use super::super::{ForgeError, Job};
use super::account::Account;
use super::decide::Changes;
use super::lookup::Commit;

#[derive(Deserialize)]
struct Object {
    sha: String,
}

impl Account {
    /// Makes the commit on top of another one of `owner/name`; gives back its id.
    pub(super) async fn make_commit(
        &self,
        job: &Job<'_>,
        repository: &str,
        on: &Commit,
        changes: &Changes,
    ) -> Result<String, ForgeError> {
        let writes = changes.writes.iter().map(|write| {
            let mode = format!("{:06o}", write.mode);
            json!({ "path": write.path, "mode": mode, "type": "blob", "content": write.contents })
        });
        // https://docs.github.com/en/rest/git/trees: an entry whose sha is null is removed.
        let deletions = changes.deletions.iter().map(
            |path| json!({ "path": path, "mode": "100644", "type": "blob", "sha": Value::Null }),
        );
        let tree: Vec<Value> = writes.chain(deletions).collect();
        let body = json!({ "base_tree": on.tree().unwrap_or(&on.oid), "tree": tree });
        let tree = self.make(job, repository, "trees", body).await?;
        let body = json!({
            "message": job.intent.commit_message, "tree": tree.sha, "parents": [on.oid],
        });
        Ok(self.make(job, repository, "commits", body).await?.sha)
    }

    async fn make(
        &self,
        job: &Job<'_>,
        repository: &str,
        what: &str,
        body: Value,
    ) -> Result<Object, ForgeError> {
        let path = ["repos", repository, "git", what];
        let reply: Reply = self
            .rest(job, Operation::Commit, Method::POST, &path, Some(body))
            .await?;
        if reply.status.is_success() {
            reply.json()
        } else {
            Err(self.explain_reply(&reply))
        }
    }
}
