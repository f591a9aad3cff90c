//! Closes a pull request in two requests: a look, and a document that comments, closes and removes the branch.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::metrics::Operation;
use super::super::ours::{closing_comment, closing_marker, is_our_tip};
use super::super::{ClosedPull, Closing, ForgeError, Job, ObservedPull, PullRequestState};
use super::write::Document;
use super::{Github, decide};

/// The newest comments, which are looked through for ours.
const COMMENTS: &str = "comments(last: 100) { ";

/// What is asked of comments.
const OF_COMMENTS: &str = "pageInfo { hasPreviousPage startCursor } nodes { body } }";

/// More pages of comments are not read.
const MOST_PAGES: u32 = 20;

const FIELDS: &str = "id number url body state mergedAt closedAt mergeCommit { oid } \
    headRef { id target { oid ... on Commit { message } } }";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: String,
    number: u64,
    url: String,
    #[serde(default)]
    body: String,
    state: String,
    merged_at: Option<Timestamp>,
    closed_at: Option<Timestamp>,
    merge_commit: Option<Oid>,
    head_ref: Option<Head>,
    #[serde(default)]
    comments: Option<Comments>,
}

#[derive(Deserialize)]
struct Oid {
    oid: String,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    target: Tip,
}

#[derive(Deserialize)]
struct Tip {
    oid: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Comments {
    page_info: PageInfo,
    nodes: Vec<Comment>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageInfo {
    has_previous_page: bool,
    start_cursor: Option<String>,
}

impl Comments {
    fn has_ours(&self, job: &Job<'_>) -> bool {
        let marker = closing_marker(job.key);
        self.nodes.iter().any(|node| node.body.contains(&marker))
    }

    /// Where the older ones end, if there are any.
    fn older(&self) -> Option<&str> {
        let cursor = self.page_info.start_cursor.as_deref();
        cursor.filter(|_| self.page_info.has_previous_page)
    }
}

#[derive(Deserialize)]
struct Comment {
    body: String,
}

impl Node {
    /// The branch, if it may go.
    fn removable(&self, job: &Job<'_>, closing: &Closing<'_>) -> Option<&str> {
        let head = self.head_ref.as_ref().filter(|_| closing.remove_branch)?;
        is_our_tip(&head.target.oid, &head.target.message, job, closing).then_some(&head.id)
    }
}

impl Github {
    pub(super) async fn close_pull(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        let number = match closing.number {
            Some(number) => number,
            None => match self.number_of_ours(job).await? {
                Some(number) => number,
                None => return Ok(None),
            },
        };
        let comments = if closing.again {
            format!("{COMMENTS}{OF_COMMENTS}")
        } else {
            String::new()
        };
        let fields = format!("pull: pullRequest(number: {number}) {{ {FIELDS} {comments} }}");
        let repository = self.ask_repository(job, &fields).await?;
        let pull = repository.get("pull").map(Node::deserialize);
        let Some(Ok(pull)) = pull else {
            return Ok(None);
        };
        match pull.state.as_str() {
            "MERGED" => Ok(Some(self.ended(
                &pull,
                PullRequestState::Merged,
                pull.merged_at,
                Vec::new(),
            ))),
            "CLOSED" => {
                if let Some(branch) = pull.removable(job, closing) {
                    self.account.delete_branch(job, branch).await;
                }
                let at = pull.closed_at;
                Ok(Some(self.ended(
                    &pull,
                    PullRequestState::Closed,
                    at,
                    Vec::new(),
                )))
            }
            _ => self.close_open(job, closing, &pull).await.map(Some),
        }
    }

    async fn number_of_ours(&self, job: &Job<'_>) -> Result<Option<u64>, ForgeError> {
        let found = self.look(job).await?;
        let Some(repository) = &found.repository else {
            return Ok(None);
        };
        let pull = decide::our_pull(job, repository, &self.place)?;
        Ok(pull.map(|pull| pull.number))
    }

    /// Whether our comment is there, as far as comments were asked for.
    async fn has_been_said(&self, job: &Job<'_>, pull: &Node) -> Result<bool, ForgeError> {
        let Some(newest) = &pull.comments else {
            return Ok(false);
        };
        if newest.has_ours(job) {
            return Ok(true);
        }
        let mut before = newest.older().map(str::to_owned);
        for _ in 1..MOST_PAGES {
            let Some(cursor) = before else {
                break;
            };
            // A cursor is the forge's own word: it goes back as a literal of JSON, which GraphQL's are.
            let fields = format!(
                "pull: pullRequest(number: {}) {{ comments(last: 100, before: {}) {{ {OF_COMMENTS} }}",
                pull.number,
                json!(cursor)
            );
            let repository = self.ask_repository(job, &fields).await?;
            let comments = repository
                .pointer("/pull/comments")
                .map(Comments::deserialize);
            let Some(Ok(comments)) = comments else {
                break;
            };
            if comments.has_ours(job) {
                return Ok(true);
            }
            before = comments.older().map(str::to_owned);
        }
        Ok(false)
    }

    async fn close_open(
        &self,
        job: &Job<'_>,
        closing: &Closing<'_>,
        pull: &Node,
    ) -> Result<ClosedPull, ForgeError> {
        let closing = &closing.seeing(&pull.body);
        let mut document = Document::default();
        let is_said = self.has_been_said(job, pull).await?;
        if !is_said {
            let input = json!({ "subjectId": pull.id, "body": closing_comment(job.key, closing) });
            let selection = "clientMutationId";
            document.add("comment", "addComment", "AddCommentInput", input, selection);
        }
        if closing.stays_open {
            let said = self.ended(pull, PullRequestState::Open, None, Vec::new());
            if !is_said {
                self.say_only(job, document).await?;
            }
            return Ok(said);
        }
        let input = json!({ "pullRequestId": pull.id });
        let kind = "ClosePullRequestInput";
        let selection = "pullRequest { state closedAt }";
        document.add("close", "closePullRequest", kind, input, selection);
        if let Some(branch) = pull.removable(job, closing) {
            let input = json!({ "refId": branch });
            let selection = "clientMutationId";
            document.add("branch", "deleteRef", "DeleteRefInput", input, selection);
        }
        let (text, variables) = document.finish("Close");
        let mut answer = self
            .account
            .graphql(job, Operation::Close, &text, variables)
            .await?;
        let Some(closed) = answer.take("close") else {
            let error = answer
                .errors_of("close")
                .next()
                .or(answer.general_error())
                .cloned();
            return Err(self.account.explain(&error.unwrap_or_default()));
        };
        let at = closed.pointer("/pullRequest/closedAt");
        let at = at.and_then(Value::as_str).and_then(|at| at.parse().ok());
        let mut notes = Vec::new();
        for (alias, about) in [
            ("comment", "the comment"),
            ("branch", "removing the branch"),
        ] {
            if let Some(error) = answer.errors_of(alias).next() {
                notes.push(format!("{about}: {}", error.said()));
            }
        }
        Ok(self.ended(pull, PullRequestState::Closed, at, notes))
    }

    /// Others of the group are in it.
    async fn say_only(&self, job: &Job<'_>, document: Document) -> Result<(), ForgeError> {
        let (text, variables) = document.finish("Say");
        let answer = self
            .account
            .graphql(job, Operation::Comment, &text, variables)
            .await?;
        match answer.errors.first() {
            Some(error) => Err(self.account.explain(error)),
            None => Ok(()),
        }
    }

    fn ended(
        &self,
        pull: &Node,
        state: PullRequestState,
        ended_at: Option<Timestamp>,
        notes: Vec<String>,
    ) -> ClosedPull {
        let commit = pull.merge_commit.as_ref();
        ClosedPull {
            url: self.address(&pull.url, pull.number),
            pull: ObservedPull {
                number: pull.number,
                state,
                merge_commit: commit.map(|commit| commit.oid.clone()),
                ended_at,
            },
            notes,
        }
    }
}
