//! One GraphQL document that writes: branch, commit, pull request, and labels that are missing. Its mutations run in order
//! and not atomically, so each may have happened already or fail alone.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::metrics::Operation;
use super::super::{ForgeError, Job};
use super::account::Account;
use super::decide::Changes;
use super::graphql::{Answer, GraphqlError};
use super::lookup::{Branch, Repository};

/// What GitHub says if moving a branch would take commits off it.
const NOT_FORWARD: &str = "is not a fast forward";

/// What the pull request is opened for, and what comes before it.
pub(super) struct Plan<'a> {
    pub(super) repository: &'a Repository,
    /// The branch that the pull request is against.
    pub(super) base: &'a str,
    pub(super) draft: bool,
    pub(super) commit: CommitPlan<'a>,
}

/// How the commit comes about.
pub(super) enum CommitPlan<'a> {
    /// It is there.
    There(&'a str),
    /// By a mutation, on top of a commit that the branch is made at or has as its tip.
    Mutation {
        /// The commit below.
        on: &'a str,
        branch: Option<&'a Branch>,
        changes: &'a Changes,
    },
    /// It was made over the Git Data API, and no branch has it yet.
    Made {
        oid: &'a str,
        branch: Option<&'a Branch>,
    },
}

/// What came of a document.
#[derive(Debug)]
pub(super) enum Written {
    /// The pull request is open.
    Opened(Box<Opened>),
    /// Some part was there before us, or is gone: look again.
    LookAgain(ForgeError),
    /// A pull request was opened, though the branch or its commit was not made by us: it is to be looked at.
    Doubtful {
        /// The node id of the pull request.
        pull: String,
    },
    /// The base branch has the commit already.
    NoDifference,
    /// The repository takes no drafts.
    NoDrafts,
    /// It cannot be done. Holds the id of a branch that was made for it.
    Refused {
        error: ForgeError,
        made_branch: Option<String>,
    },
}

/// A pull request that was opened.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) id: String,
    pub(super) number: u64,
    pub(super) url: String,
    pub(super) commit: Option<String>,
    /// Ids of the labels that were made, by name.
    pub(super) labels: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct PullNode {
    id: String,
    number: u64,
    url: String,
}

/// A document of mutations under construction.
#[derive(Default)]
pub(super) struct Document {
    declarations: String,
    fields: String,
    variables: Map<String, Value>,
}

impl Document {
    pub(super) fn add(
        &mut self,
        alias: &str,
        mutation: &str,
        kind: &str,
        input: Value,
        selection: &str,
    ) {
        let _ = write!(self.declarations, "${alias}: {kind}! ");
        let _ = write!(
            self.fields,
            "{alias}: {mutation}(input: ${alias}) {{ {selection} }} "
        );
        self.variables.insert(alias.to_owned(), input);
    }

    pub(super) fn finish(self, name: &str) -> (String, Value) {
        let Self {
            declarations,
            fields,
            variables,
        } = self;
        let text = format!("mutation {name}({declarations}) {{ {fields}}}");
        (text, Value::Object(variables))
    }
}

impl Account {
    /// Sends the document once and says what came of it.
    pub(super) async fn write(
        &self,
        job: &Job<'_>,
        plan: &Plan<'_>,
    ) -> Result<Written, ForgeError> {
        let (document, variables) = document(job, plan);
        let operation = match plan.commit {
            CommitPlan::There(_) => Operation::Open,
            _ => Operation::Commit,
        };
        let answer = self.graphql(job, operation, &document, variables).await?;
        Ok(self.judge(job, plan, answer))
    }

    /// Takes back a branch that was made for nothing; whether that worked shows at the next attempt.
    pub(super) async fn delete_branch(&self, job: &Job<'_>, id: &str) {
        let input = json!({ "refId": id });
        let mutation = ("deleteRef", "DeleteRefInput");
        let result = self
            .mutate(job, Operation::DeleteBranch, mutation, input)
            .await;
        if let Err(error) = result {
            tracing::warn!(%error, "an empty branch was left behind");
        }
    }

    /// Moves a branch forward; `false` if that would take commits off it.
    pub(super) async fn move_branch(
        &self,
        job: &Job<'_>,
        id: &str,
        to: &str,
    ) -> Result<bool, ForgeError> {
        let input = json!({ "refId": id, "oid": to, "force": false });
        let mutation = ("updateRef", "UpdateRefInput");
        let answer = self.mutate(job, Operation::Commit, mutation, input).await?;
        match answer.errors.first() {
            None => Ok(true),
            Some(error) if error.says(NOT_FORWARD) => Ok(false),
            Some(error) => Err(self.explain(error)),
        }
    }

    /// Closes a pull request.
    pub(super) async fn close(&self, job: &Job<'_>, id: &str) -> Result<(), ForgeError> {
        let input = json!({ "pullRequestId": id });
        let mutation = ("closePullRequest", "ClosePullRequestInput");
        let answer = self.mutate(job, Operation::Close, mutation, input).await?;
        answer
            .errors
            .first()
            .map_or(Ok(()), |error| Err(self.explain(error)))
    }

    async fn mutate(
        &self,
        job: &Job<'_>,
        operation: Operation,
        (mutation, kind): (&str, &str),
        input: Value,
    ) -> Result<Answer, ForgeError> {
        let mut document = Document::default();
        document.add("only", mutation, kind, input, "clientMutationId");
        let (text, variables) = document.finish("Mend");
        self.graphql(job, operation, &text, variables).await
    }

    fn judge(&self, job: &Job<'_>, plan: &Plan<'_>, mut answer: Answer) -> Written {
        let pull = answer.take("pull").and_then(|mut value| {
            serde_json::from_value(value.get_mut("pullRequest")?.take()).ok()
        });
        let made_commit = answer
            .take("commit")
            .and_then(|value| Some(value.pointer("/commit/oid")?.as_str()?.to_owned()));
        if let Some(PullNode { id, number, url }) = pull {
            let unmade = ["branch", "commit"]
                .iter()
                .any(|alias| answer.errors_of(alias).next().is_some());
            if unmade {
                return Written::Doubtful { pull: id };
            }
            let commit = match &plan.commit {
                CommitPlan::There(oid) | CommitPlan::Made { oid, .. } => Some((*oid).to_owned()),
                CommitPlan::Mutation { .. } => made_commit,
            };
            let labels = made_labels(job, plan.repository, &mut answer);
            return Written::Opened(Box::new(Opened {
                id,
                number,
                url,
                commit,
                labels,
            }));
        }
        let made_branch = answer
            .take("branch")
            .and_then(|value| Some(value.pointer("/ref/id")?.as_str()?.to_owned()))
            .filter(|_| made_commit.is_none() && plan.makes_an_empty_branch());
        self.judge_failure(plan, &answer, made_branch)
    }

    fn judge_failure(
        &self,
        plan: &Plan<'_>,
        answer: &Answer,
        made_branch: Option<String>,
    ) -> Written {
        let first = ["branch", "commit", "pull"]
            .into_iter()
            .find_map(|alias| Some((alias, answer.errors_of(alias).next()?)));
        let Some((alias, error)) = first else {
            let error = answer.general_error().or(answer.errors.first());
            let error = error.map_or_else(
                || self.explain(&GraphqlError::default()),
                |error| self.explain(error),
            );
            return Written::LookAgain(error);
        };
        let drafts = "draft pull requests are not supported";
        if alias == "pull" && error.says(drafts) {
            return Written::NoDrafts;
        }
        if alias == "pull" && error.says("no commits between") {
            // What was committed a moment ago does differ; it cannot be seen yet.
            return match plan.commit {
                CommitPlan::There(_) => Written::NoDifference,
                _ => Written::LookAgain(self.behind(error)),
            };
        }
        if is_there_already(alias, error) {
            return Written::LookAgain(self.behind(error));
        }
        Written::Refused {
            error: self.explain(error),
            made_branch,
        }
    }
}

/// Whether an error says that somebody, perhaps an earlier attempt of ours, was here in the meantime.
fn is_there_already(alias: &str, error: &GraphqlError) -> bool {
    match alias {
        "branch" => {
            error.says("already exists") && !error.says("directory")
                || error.says(NOT_FORWARD)
                || error.says("reference does not exist")
        }
        "commit" => error.is("STALE_DATA") || error.says("expected branch to point to"),
        _ => {
            error.says("pull request already exists")
                || error.says("head sha can't be blank")
                || error.says("head ref must be a branch")
        }
    }
}

fn made_labels(
    job: &Job<'_>,
    repository: &Repository,
    answer: &mut Answer,
) -> Vec<(String, String)> {
    let missing = missing_labels(job, repository).enumerate();
    missing
        .filter_map(|(number, name)| {
            let made = answer.take(&format!("label{number}"))?;
            let id = made.pointer("/label/id")?.as_str()?;
            Some((name.clone(), id.to_owned()))
        })
        .collect()
}

fn missing_labels<'a>(
    job: &Job<'a>,
    repository: &'a Repository,
) -> impl Iterator<Item = &'a String> {
    let labels = job.intent.labels.iter();
    labels.filter(|name| !repository.labels.contains_key(*name))
}

impl Plan<'_> {
    /// Whether a branch that the document makes has nothing on it until the commit is made.
    fn makes_an_empty_branch(&self) -> bool {
        matches!(self.commit, CommitPlan::Mutation { branch: None, .. })
    }
}

fn document(job: &Job<'_>, plan: &Plan<'_>) -> (String, Value) {
    let mut document = Document::default();
    match &plan.commit {
        CommitPlan::There(_) => {}
        CommitPlan::Made { oid, branch } => {
            place_branch(&mut document, job, plan.repository, *branch, oid);
        }
        CommitPlan::Mutation {
            on,
            branch,
            changes,
        } => {
            place_branch(&mut document, job, plan.repository, *branch, on);
            let input = commit_input(job, &plan.repository.name_with_owner, on, changes);
            let kind = "CreateCommitOnBranchInput";
            document.add(
                "commit",
                "createCommitOnBranch",
                kind,
                input,
                "commit { oid }",
            );
        }
    }
    let intent = job.intent;
    let input = json!({
        "repositoryId": plan.repository.id, "baseRefName": plan.base, "headRefName": intent.branch,
        "title": intent.title, "body": intent.body, "draft": plan.draft,
    });
    let kind = "CreatePullRequestInput";
    let selection = "pullRequest { id number url }";
    document.add("pull", "createPullRequest", kind, input, selection);
    for (number, name) in missing_labels(job, plan.repository).enumerate() {
        let input = json!({ "repositoryId": plan.repository.id, "name": name, "color": "ededed" });
        let alias = format!("label{number}");
        document.add(
            &alias,
            "createLabel",
            "CreateLabelInput",
            input,
            "label { id }",
        );
    }
    document.finish("Open")
}

/// The branch at this commit: made, or moved forward if it is elsewhere.
fn place_branch(
    document: &mut Document,
    job: &Job<'_>,
    repository: &Repository,
    branch: Option<&Branch>,
    at: &str,
) {
    match branch {
        None => {
            let name = format!("refs/heads/{}", job.intent.branch);
            let input = json!({ "repositoryId": repository.id, "name": name, "oid": at });
            document.add("branch", "createRef", "CreateRefInput", input, "ref { id }");
        }
        Some(branch) if branch.target.oid != at => {
            let input = json!({ "refId": branch.id, "oid": at, "force": false });
            document.add("branch", "updateRef", "UpdateRefInput", input, "ref { id }");
        }
        Some(_) => {}
    }
}

/// What `createCommitOnBranch` takes for a commit on top of `on`, which must be the tip of the change's branch.
pub(super) fn commit_input(job: &Job<'_>, repository: &str, on: &str, changes: &Changes) -> Value {
    let (headline, body) = job
        .intent
        .commit_message
        .split_once('\n')
        .unwrap_or((&job.intent.commit_message, ""));
    let additions: Vec<Value> = changes
        .writes
        .iter()
        .map(|write| json!({ "path": write.path, "contents": STANDARD.encode(&write.contents) }))
        .collect();
    let deletions: Vec<Value> = changes
        .deletions
        .iter()
        .map(|path| json!({ "path": path }))
        .collect();
    json!({
        "branch": { "repositoryNameWithOwner": repository, "branchName": job.intent.branch },
        "message": { "headline": headline.trim(), "body": body.trim() },
        "fileChanges": { "additions": additions, "deletions": deletions },
        "expectedHeadOid": on,
    })
}
