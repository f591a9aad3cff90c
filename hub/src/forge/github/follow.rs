//! What became of pull requests: up to fifty in one query.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::metrics::Operation;
use super::super::{ForgeError, Job, ObservedPull, PullRequestState};
use super::Github;

/// Pull requests in one query.
const MOST_PULLS: usize = 50;

const FIELDS: &str = "number state mergedAt closedAt mergeCommit { oid }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    number: u64,
    state: String,
    merged_at: Option<Timestamp>,
    closed_at: Option<Timestamp>,
    merge_commit: Option<Oid>,
}

#[derive(Deserialize)]
struct Oid {
    oid: String,
}

impl From<Node> for ObservedPull {
    fn from(node: Node) -> Self {
        Self {
            number: node.number,
            state: match node.state.as_str() {
                "MERGED" => PullRequestState::Merged,
                "CLOSED" => PullRequestState::Closed,
                _ => PullRequestState::Open,
            },
            merge_commit: node.merge_commit.map(|commit| commit.oid),
            ended_at: node.merged_at.or(node.closed_at),
        }
    }
}

impl Github {
    pub(super) async fn observe_pulls(
        &self,
        job: &Job<'_>,
        numbers: &[u64],
    ) -> Result<Vec<ObservedPull>, ForgeError> {
        let mut observed = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(MOST_PULLS) {
            let mut fields = String::new();
            for number in numbers {
                let _ = write!(
                    fields,
                    "p{number}: pullRequest(number: {number}) {{ {FIELDS} }} "
                );
            }
            let repository = self.ask_repository(job, &fields).await?;
            // One that was deleted is null; so is the repository if we may not see it any more.
            let nodes = repository.as_object().into_iter().flatten();
            observed.extend(
                nodes
                    .filter_map(|(_, node)| Node::deserialize(node).ok())
                    .map(ObservedPull::from),
            );
        }
        Ok(observed)
    }

    pub(super) async fn remove_merged_branch(
        &self,
        job: &Job<'_>,
        number: u64,
    ) -> Result<(), ForgeError> {
        let fields = format!(
            "pull: pullRequest(number: {number}) {{ state headRefOid headRef {{ id target {{ oid }} }} }}"
        );
        let repository = self.ask_repository(job, &fields).await?;
        let text = |pointer: &str| repository.pointer(pointer).and_then(Value::as_str);
        let merged = text("/pull/state") == Some("MERGED");
        let untouched = text("/pull/headRef/target/oid") == text("/pull/headRefOid");
        if let (true, true, Some(id)) = (merged, untouched, text("/pull/headRef/id")) {
            self.account.delete_branch(job, id).await;
        }
        Ok(())
    }

    /// Fields of the repository; null if there is none.
    pub(super) async fn ask_repository(
        &self,
        job: &Job<'_>,
        fields: &str,
    ) -> Result<Value, ForgeError> {
        let document = format!(
            "query Follow($owner: String! $name: String!) {{ repository(owner: $owner, name: $name) {{ {fields} }} }}"
        );
        let variables = json!({ "owner": self.owner, "name": self.name });
        let mut answer = self
            .account
            .graphql(job, Operation::Observe, &document, variables)
            .await?;
        Ok(answer.take("repository").unwrap_or_default())
    }
}
