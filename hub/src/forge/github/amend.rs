//! Amends a pull request in two requests: a look, and a document that commits on top of our branch and sets the text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::amend::{HISTORY, Link, cannot_restore, ends, whole, with_leftovers};
use super::super::http::failed;
use super::super::metrics::Operation;
use super::super::resolve::{BaseFile, Resolved, no_file};
use super::super::{
    Amended, Amending, ClosedPull, ForgeError, Job, ObservedPull, PullRequestState,
};
use super::Github;
use super::account::Account;
use super::decide::{Changes, changes, refuse_file_for_folder};
use super::lookup::{Commit, Entry};
use super::write::{Document, commit_input};
use crate::change::{FileAction, FileChange, Intent};
use crate::response::ErrorType;

const PULL: &str = "id number url state title body mergedAt closedAt mergeCommit { oid } \
    headRefName isCrossRepository";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Repository {
    name_with_owner: String,
    pull: Option<Pull>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pull {
    id: String,
    number: u64,
    url: String,
    state: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    body: String,
    merged_at: Option<Timestamp>,
    closed_at: Option<Timestamp>,
    merge_commit: Option<Oid>,
    #[serde(default)]
    head_ref_name: String,
    #[serde(default)]
    is_cross_repository: bool,
    head_ref: Option<Head>,
    commits: Nodes<Own>,
}

#[derive(Deserialize)]
struct Oid {
    oid: String,
}

#[derive(Deserialize)]
struct Nodes<T> {
    nodes: Vec<T>,
}

#[derive(Deserialize)]
struct Head {
    id: String,
    target: Tip,
}

#[derive(Deserialize)]
struct Tip {
    history: Nodes<PastCommit>,
    #[serde(flatten)]
    commit: Commit,
}

#[derive(Deserialize)]
struct PastCommit {
    oid: String,
    #[serde(default)]
    message: String,
}

/// The first commit of the pull request.
#[derive(Deserialize)]
struct Own {
    commit: OwnCommit,
}

#[derive(Deserialize)]
struct OwnCommit {
    parents: Nodes<Commit>,
}

impl Pull {
    /// The commit that the first one of the pull request was made on top of.
    fn below(&self) -> Option<&Commit> {
        self.commits.nodes.first()?.commit.parents.nodes.first()
    }
}

/// The tip of a branch that something is put on top of.
pub(super) struct OnTop<'a> {
    /// `owner/name`.
    pub(super) repository: &'a str,
    /// The node id of the branch.
    pub(super) branch: &'a str,
    /// Its tip as it was looked at.
    pub(super) tip: &'a Commit,
}

/// The text of a pull request.
pub(super) struct Text<'a> {
    /// The node id of the pull request.
    pub(super) pull: &'a str,
    pub(super) title: &'a str,
    pub(super) body: &'a str,
}

impl Account {
    /// Commits these changes on top of the job's branch, as long as its tip is this one, and sets the text of its pull
    /// request, in one document. Gives back the commit that is at the tip afterwards.
    ///
    /// # Errors
    /// `Behind` if the branch has moved: look again. The text may have been set all the same.
    pub(super) async fn put(
        &self,
        job: &Job<'_>,
        on: &OnTop<'_>,
        changes: &Changes,
        text: Option<&Text<'_>>,
    ) -> Result<Put, ForgeError> {
        let mut document = Document::default();
        let mut made = None;
        if changes.is_empty() {
            made = Some(on.tip.oid.clone());
        } else if changes.fit_one_mutation() {
            let input = commit_input(job, on.repository, &on.tip.oid, changes);
            let kind = "CreateCommitOnBranchInput";
            let selection = "commit { oid }";
            document.add("commit", "createCommitOnBranch", kind, input, selection);
        } else {
            let oid = self
                .make_commit(job, on.repository, on.tip, changes)
                .await?;
            let input = json!({ "refId": on.branch, "oid": oid, "force": false });
            let selection = "ref { id }";
            document.add("commit", "updateRef", "UpdateRefInput", input, selection);
            made = Some(oid);
        }
        if let Some(text) = text {
            set_text(&mut document, text);
        }
        let operation = if changes.is_empty() {
            Operation::Edit
        } else {
            Operation::Commit
        };
        let (document, variables) = document.finish("Amend");
        let mut answer = self.graphql(job, operation, &document, variables).await?;
        for alias in ["commit", "text"] {
            if let Some(error) = answer.errors_of(alias).next() {
                let moved = error.is("STALE_DATA")
                    || error.says("expected branch to point to")
                    || error.says("is not a fast forward");
                return Err(if alias == "commit" && moved {
                    self.behind(error)
                } else {
                    self.explain(error)
                });
            }
        }
        if let Some(error) = answer.general_error() {
            return Err(self.explain(error));
        }
        let commit = answer.take("commit");
        let commit = commit
            .as_ref()
            .and_then(|one| one.pointer("/commit/oid")?.as_str());
        let commit = made.or(commit.map(str::to_owned)).ok_or_else(|| {
            let detail = format!("{} does not say what it has committed", self.place());
            failed(ErrorType::Transient, "ForgeError", detail)
        })?;
        let text = answer.take("text");
        let pull = text.as_ref().and_then(|text| text.get("pullRequest"));
        let ended_without = pull.is_some_and(|pull| {
            pull["state"].as_str().is_some_and(|state| state != "OPEN")
                && pull["headRefOid"].as_str() != Some(&commit)
        });
        Ok(Put {
            commit,
            ended_without,
        })
    }

    /// Sets the text of a pull request.
    pub(super) async fn set_text(&self, job: &Job<'_>, text: &Text<'_>) -> Result<(), ForgeError> {
        let mut document = Document::default();
        set_text(&mut document, text);
        let (document, variables) = document.finish("Edit");
        let answer = self
            .graphql(job, Operation::Edit, &document, variables)
            .await?;
        let error = answer.errors.first();
        error.map_or(Ok(()), |error| Err(self.explain(error)))
    }
}

fn set_text(document: &mut Document, text: &Text<'_>) {
    let input = json!({ "pullRequestId": text.pull, "title": text.title, "body": text.body });
    let kind = "UpdatePullRequestInput";
    let selection = "pullRequest { state headRefOid }";
    document.add("text", "updatePullRequest", kind, input, selection);
}

/// What was put on a branch.
#[derive(Debug)]
pub(super) struct Put {
    /// The commit.
    pub(super) commit: String,
    /// The pull request has ended meanwhile, without this commit.
    pub(super) ended_without: bool,
}

impl Github {
    pub(super) async fn amend_pull(
        &self,
        job: &Job<'_>,
        amending: &Amending<'_>,
    ) -> Result<Option<Amended>, ForgeError> {
        let wide = with_leftovers(job.intent, amending.leftovers);
        let Some(repository) = self.look_at_amended(job, &wide, amending.number).await? else {
            return Ok(None);
        };
        let Some(pull) = repository.pull else {
            return Ok(None);
        };
        if let Some(ended) = self.has_ended(&pull) {
            return Ok(Some(ended));
        }
        let Some((head, below)) = pull.head_ref.as_ref().zip(pull.below()) else {
            return Err(self.behind());
        };
        let nodes = head.target.history.nodes.iter();
        let history: Vec<Link> = nodes
            .map(|one| Link {
                oid: one.oid.clone(),
                message: one.message.clone(),
            })
            .collect();
        let ends = ends(job, amending, &history, &self.place)?;
        let is_ours = !pull.is_cross_repository && pull.head_ref_name == job.intent.branch;
        if !is_ours || ends.tip != head.target.commit.oid || ends.below != below.oid {
            return Err(self.behind());
        }
        let name = &repository.name_with_owner;
        let (changes, resolved) = self
            .changes_on(job, &wide, name, &head.target.commit, below)
            .await?;
        let title = &job.intent.title;
        let text = Text {
            pull: &pull.id,
            title,
            body: &resolved.body,
        };
        let text_differs = pull.title != *title || !is_same_text(&pull.body, &resolved.body);
        let mut commit = head.target.commit.oid.clone();
        if text_differs || !changes.is_empty() {
            let on = OnTop {
                repository: name,
                branch: &head.id,
                tip: &head.target.commit,
            };
            let put = self
                .account
                .put(job, &on, &changes, text_differs.then_some(&text));
            let put = match put.await {
                Err(error) if text_differs && has_moved(&error) => {
                    // The text goes with a commit that is not there.
                    let before = Text {
                        title: &pull.title,
                        body: &pull.body,
                        ..text
                    };
                    self.account.set_text(job, &before).await?;
                    return Err(error);
                }
                put => put?,
            };
            if put.ended_without {
                // People were faster; the next look tells how it has ended.
                return Err(self.behind());
            }
            commit = put.commit;
        }
        Ok(Some(Amended::Updated {
            url: self.address(&pull.url, pull.number),
            commit: Some(commit),
            notes: Vec::new(),
        }))
    }

    /// What is to be changed on our branch.
    async fn changes_on(
        &self,
        job: &Job<'_>,
        wide: &Intent,
        repository: &str,
        tip: &Commit,
        below: &Commit,
    ) -> Result<(Changes, Resolved), ForgeError> {
        let mut files = BTreeMap::new();
        let mut leftovers = Vec::new();
        for (number, file) in wide.files.iter().enumerate() {
            let is_patched = matches!(file.action, FileAction::Patch { .. });
            let is_leftover = number >= job.intent.files.len();
            let there = below.file(number);
            if is_leftover {
                if is_same_entry(there.as_ref(), tip.file(number).as_ref()) {
                    continue;
                }
                leftovers.push(file.path.clone());
            }
            let Some(entry) = there.filter(|_| is_patched || is_leftover) else {
                continue;
            };
            if !entry.is_regular_file() {
                let what = "is a folder, a link or a submodule";
                return Err(if is_leftover {
                    cannot_restore(&file.path, &format!("it {what}"))
                } else {
                    no_file(&file.path, what)
                });
            }
            let bytes = match entry.whole_text() {
                Some(text) => text.into_bytes(),
                None => self.blob(job, repository, &entry).await?,
            };
            let version = entry.oid;
            files.insert(file.path.clone(), BaseFile { bytes, version });
        }
        let mut modes = BTreeMap::new();
        for (number, file) in wide.files.iter().enumerate() {
            if let (None, Some(below)) = (tip.file(number), below.file(number)) {
                modes.insert(file.path.clone(), below.mode);
            }
        }
        refuse_file_for_folder(&wide.files, tip, repository)?;
        let resolved = whole(job.intent, &leftovers, files).await?;
        let wanted: Vec<FileChange> = resolved.files.iter().map(file_change).collect();
        let numbered = wanted.iter().filter_map(|file| {
            let number = wide.files.iter().position(|one| one.path == file.path);
            Some((number?, file))
        });
        let mut changes = changes(numbered, tip, repository)?;
        for write in &mut changes.writes {
            // What an earlier content removed comes back as it was.
            if let Some(mode) = modes.get(&write.path) {
                write.mode = *mode;
            }
        }
        Ok((changes, resolved))
    }

    async fn look_at_amended(
        &self,
        job: &Job<'_>,
        wide: &Intent,
        number: u64,
    ) -> Result<Option<Repository>, ForgeError> {
        let (document, variables) = question(&self.owner, &self.name, job.intent, wide, number);
        let mut answer = self
            .account
            .graphql(job, Operation::Lookup, &document, variables)
            .await?;
        let Some(repository) = answer.take("repository") else {
            return Err(self.repository_not_found());
        };
        Repository::deserialize(&repository)
            .map(Some)
            .or_else(|error| {
                // One that is hidden comes as null with an error.
                if answer.errors.is_empty() {
                    let detail = format!(
                        "{} gave an answer that cannot be read ({error})",
                        self.place
                    );
                    return Err(failed(ErrorType::Transient, "ForgeError", detail));
                }
                Ok(None)
            })
    }

    fn has_ended(&self, pull: &Pull) -> Option<Amended> {
        let (state, ended_at) = match pull.state.as_str() {
            "MERGED" => (PullRequestState::Merged, pull.merged_at),
            "CLOSED" => (PullRequestState::Closed, pull.closed_at),
            _ => return None,
        };
        let commit = pull.merge_commit.as_ref();
        Some(Amended::Ended(ClosedPull {
            url: self.address(&pull.url, pull.number),
            pull: ObservedPull {
                number: pull.number,
                state,
                merge_commit: commit.map(|commit| commit.oid.clone()),
                ended_at,
            },
            notes: Vec::new(),
        }))
    }
}

/// GitHub gives line breaks as it got them from whoever wrote last.
fn is_same_text(one: &str, other: &str) -> bool {
    let plain = |text: &str| text.replace("\r\n", "\n").trim_end().to_owned();
    plain(one) == plain(other)
}

fn has_moved(error: &ForgeError) -> bool {
    matches!(error, ForgeError::Failed(error) if error.reason == "Behind")
}

fn is_same_entry(one: Option<&Entry>, other: Option<&Entry>) -> bool {
    let key = |entry: &Entry| (entry.kind.clone(), entry.mode, entry.oid.clone());
    one.map(key) == other.map(key)
}

fn file_change(file: &super::super::resolve::WholeFile) -> FileChange {
    FileChange {
        path: file.path.clone(),
        action: match &file.contents {
            Some(contents) => FileAction::Write {
                contents: contents.clone(),
            },
            None => FileAction::Delete,
        },
    }
}

/// Everything that is to be known of a pull request that is amended.
fn question(
    owner: &str,
    name: &str,
    intent: &Intent,
    wide: &Intent,
    number: u64,
) -> (String, Value) {
    let mut declarations = "$owner: String! $name: String! ".to_owned();
    let mut variables = Map::from_iter([
        ("owner".to_owned(), json!(owner)),
        ("name".to_owned(), json!(name)),
    ]);
    let (mut at_tip, mut below) = (String::new(), String::new());
    for (file, change) in wide.files.iter().enumerate() {
        let _ = write!(declarations, "$p{file}: String! ");
        variables.insert(format!("p{file}"), json!(change.path));
        let _ = write!(at_tip, "f{file}: file(path: $p{file}) {{ mode type oid }} ");
        let needs_text =
            matches!(change.action, FileAction::Patch { .. }) || file >= intent.files.len();
        let text = if needs_text {
            "object { ... on Blob { text } } "
        } else {
            ""
        };
        let _ = write!(
            below,
            "f{file}: file(path: $p{file}) {{ mode type oid {text}}} "
        );
    }
    let text = format!(
        "query Amended({declarations}) {{ repository(owner: $owner, name: $name) {{ nameWithOwner \
        pull: pullRequest(number: {number}) {{ {PULL} \
        headRef {{ id target {{ oid ... on Commit {{ tree {{ oid }} \
        history(first: {HISTORY}) {{ nodes {{ oid message }} }} {at_tip}}} }} }} \
        commits(first: 1) {{ nodes {{ commit {{ parents(first: 1) {{ nodes {{ oid {below}}} }} }} }} }} }} }} }}"
    );
    (text, Value::Object(variables))
}

#[cfg(test)]
mod tests {
    use super::super::super::amend::leftovers_of;
    use super::*;
    use crate::fixtures;

    #[test]
    fn only_what_is_patched_or_left_over_is_read_whole_below_our_commits() {
        let intent = fixtures::intent();
        let leftovers = ["old.yaml".to_owned()];
        assert_eq!(leftovers_of(&intent, &leftovers).count(), 1);
        let wide = with_leftovers(&intent, &leftovers);
        let (text, variables) = question("o", "n", &intent, &wide, 7);
        assert!(text.contains("pullRequest(number: 7)"), "{text}");
        assert_eq!(text.matches("f0: file").count(), 2, "{text}");
        assert_eq!(text.matches("{ text }").count(), 1, "{text}");
        assert!(
            text.contains("f1: file(path: $p1) { mode type oid object"),
            "{text}"
        );
        assert_eq!(variables["p1"], "old.yaml");
    }
}
