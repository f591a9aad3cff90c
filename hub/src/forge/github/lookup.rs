//! One GraphQL question that tells all that is to be known of a change: the repository, the base, our branch, the pull
//! requests of that branch in every state, the files to be changed, the people and labels that are wanted.
//!
//! Several questions make one document; each has its own aliases and variables.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::git::blob_id;
use crate::change::{FileAction, FileChange, Intent};

/// Pull requests of one branch name that are looked at. More can only come from forks.
pub(super) const PULLS_LOOKED_AT: usize = 50;

/// The folders that files are written below, each once. Nothing says what GitHub does with a file in the place of one; git
/// itself would drop the file.
pub(super) fn folders(files: &[FileChange]) -> impl Iterator<Item = &str> {
    let written = files
        .iter()
        .filter(|file| file.action != FileAction::Delete);
    let above = written.flat_map(|file| {
        let slashes = file.path.match_indices('/');
        slashes.map(|(at, _)| &file.path[..at])
    });
    above.collect::<BTreeSet<_>>().into_iter()
}

/// What one change asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    owner: String,
    name: String,
    branch: String,
    base: Option<String>,
    paths: Vec<String>,
    /// Which of the paths are needed with their text.
    patched: Vec<bool>,
    folders: Vec<String>,
    labels: Vec<String>,
    users: Vec<String>,
    teams: Vec<String>,
    /// Whether the branch is shared, so that all of its commits are needed.
    shared: bool,
}

impl Question {
    pub(super) fn new(owner: &str, name: &str, intent: &Intent) -> Self {
        let options = &intent.options;
        let mut users: Vec<String> = [&intent.reviewers[..], &options.assignees[..]].concat();
        users.sort();
        users.dedup();
        Self {
            owner: owner.to_owned(),
            name: name.to_owned(),
            branch: intent.branch.clone(),
            base: intent.base_branch.clone(),
            paths: intent.files.iter().map(|file| file.path.clone()).collect(),
            patched: intent
                .files
                .iter()
                .map(|file| matches!(file.action, FileAction::Patch { .. }))
                .collect(),
            folders: folders(&intent.files).map(str::to_owned).collect(),
            labels: intent.labels.clone(),
            users,
            teams: options.team_reviewers.clone(),
            shared: intent.is_shared(),
        }
    }

    /// How much of a document it takes up.
    pub(super) fn weight(&self) -> usize {
        let patched = self.patched.iter().filter(|patched| **patched).count();
        let commits = if self.shared { 200 } else { 0 };
        10 + commits
            + 2 * self.paths.len()
            + 2 * self.folders.len()
            + 150 * patched
            + self.labels.len()
            + self.users.len()
            + self.teams.len()
    }
}

/// What is there.
#[derive(Clone, Debug)]
pub(super) struct Found {
    /// The repository, unless it does not exist for us.
    pub(super) repository: Option<Repository>,
    /// Who we are, where GitHub says it.
    pub(super) viewer: Option<String>,
    /// Ids of the users that exist, by name.
    pub(super) users: BTreeMap<String, String>,
    /// Ids of the teams that exist and can be seen, by name.
    pub(super) teams: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Repository {
    pub(super) id: String,
    pub(super) name_with_owner: String,
    pub(super) is_archived: bool,
    pub(super) is_disabled: bool,
    pub(super) is_empty: bool,
    /// The base branch.
    pub(super) base: Option<Branch>,
    /// Our branch.
    pub(super) branch: Option<Branch>,
    pulls: Pulls,
    /// Labels by alias.
    #[serde(flatten)]
    rest: Map<String, Value>,
    /// Ids of the labels that exist, by name.
    #[serde(skip)]
    pub(super) labels: BTreeMap<String, String>,
}

impl Repository {
    /// The pull requests of our branch name, forks' among them, the newest first.
    pub(super) fn pulls(&self) -> &[Pull] {
        &self.pulls.nodes
    }

    /// Whether there are more than were looked at.
    pub(super) fn has_more_pulls(&self) -> bool {
        self.pulls.total_count > self.pulls.nodes.len()
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pulls {
    total_count: usize,
    nodes: Vec<Pull>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Branch {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) target: Commit,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Commit {
    pub(super) oid: String,
    #[serde(default)]
    pub(super) message: String,
    #[serde(default)]
    tree: Option<Oid>,
    /// Only where the change has patches.
    #[serde(default)]
    parents: Option<Nodes<Commit>>,
    /// Only of a shared branch.
    #[serde(default)]
    history: Option<Nodes<CommitText>>,
    #[serde(flatten)]
    rest: Map<String, Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Oid {
    oid: String,
}

impl Commit {
    pub(super) fn tree(&self) -> Option<&str> {
        self.tree.as_ref().map(|tree| tree.oid.as_str())
    }

    /// The commit below it.
    pub(super) fn parent(&self) -> Option<&Commit> {
        self.parents.as_ref()?.nodes.first()
    }

    /// What is at the n-th folder that the change writes below; not known of a parent.
    pub(super) fn folder(&self, number: usize) -> Option<Entry> {
        let value = self.rest.get(&format!("d{number}"))?;
        serde_json::from_value(value.clone()).ok()
    }

    /// The commits up to this one, the newest first, as id and message.
    pub(super) fn history(&self) -> impl Iterator<Item = (&str, &str)> {
        let nodes = self.history.iter().flat_map(|history| &history.nodes);
        nodes.map(|commit| (commit.oid.as_str(), commit.message.as_str()))
    }

    /// What is at the n-th path of the question.
    pub(super) fn file(&self, number: usize) -> Option<Entry> {
        let value = self.rest.get(&format!("f{number}"))?;
        serde_json::from_value(value.clone()).ok()
    }
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Entry {
    /// As git has it, for example 33188 (octal 100644).
    pub(super) mode: u32,
    /// `blob`, `tree` or `commit`.
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) oid: String,
    #[serde(default)]
    object: Option<Content>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
struct Content {
    #[serde(default)]
    text: Option<String>,
}

impl Entry {
    /// Whether it is a file, executable or not, and no link.
    pub(super) fn is_regular_file(&self) -> bool {
        self.kind == "blob" && self.mode & 0o170_000 == 0o100_000
    }

    /// Its content, if it came whole: GitHub cuts long texts, and gives none for what is no text.
    pub(super) fn whole_text(&self) -> Option<String> {
        let text = self.object.as_ref()?.text.as_ref()?;
        (blob_id(text, self.oid.len()) == self.oid).then(|| text.clone())
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pull {
    pub(super) id: String,
    pub(super) number: u64,
    pub(super) url: String,
    /// `OPEN`, `CLOSED` or `MERGED`.
    pub(super) state: String,
    #[serde(default)]
    pub(super) title: String,
    #[serde(default)]
    pub(super) body: String,
    #[serde(default)]
    pub(super) is_cross_repository: bool,
    pub(super) head_ref_oid: String,
    #[serde(default)]
    labels: Option<Nodes<Named>>,
    #[serde(default)]
    commits: Option<Nodes<PullCommit>>,
}

impl Pull {
    /// The message of the commit at its head.
    pub(super) fn head_message(&self) -> &str {
        let commits = self.commits.as_ref().map(|commits| &commits.nodes[..]);
        commits
            .and_then(<[_]>::last)
            .map_or("", |node| &node.commit.message)
    }

    /// Its commits that the base does not have, as id and message, oldest first; of a shared branch all, of others the last.
    pub(super) fn commits(&self) -> impl Iterator<Item = (&str, &str)> {
        let nodes = self.commits.iter().flat_map(|commits| &commits.nodes);
        nodes.map(|node| (node.commit.oid.as_str(), node.commit.message.as_str()))
    }

    pub(super) fn has_label(&self, name: &str) -> bool {
        let labels = self.labels.iter().flat_map(|labels| &labels.nodes);
        labels
            .into_iter()
            .any(|label| label.name.eq_ignore_ascii_case(name))
    }
}

#[derive(Clone, Debug, Deserialize)]
struct Nodes<T> {
    nodes: Vec<T>,
}

#[derive(Clone, Debug, Deserialize)]
struct Named {
    name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct PullCommit {
    commit: CommitText,
}

#[derive(Clone, Debug, Deserialize)]
struct CommitText {
    #[serde(default)]
    oid: String,
    message: String,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

const FIXED: &str = "viewer { login }";

/// The content of a patched file.
const TEXT: &str = "object { ... on Blob { text } } ";

const PULL: &str = "id number url state body isCrossRepository headRefOid \
    labels(first: 100) { nodes { name } }";

/// What is asked of the commits of a pull request: whose the one at its head is.
const LAST_COMMIT: &str = "commits(last: 1) { nodes { commit { message } } }";

/// The same for a shared one: whose they all are. A few more than a group may have.
const ALL_COMMITS: &str = "title commits(last: 60) { nodes { commit { oid message } } }";

/// The commits of a shared branch.
const HISTORY: &str = "history(first: 60) { nodes { oid message } } ";

/// A document under construction.
#[derive(Debug, Default)]
pub(super) struct Document {
    declarations: String,
    fields: String,
    variables: Map<String, Value>,
}

impl Document {
    /// One document for all questions, and its variables.
    pub(super) fn of(questions: &[&Question]) -> (String, Value) {
        let mut document = Self::default();
        for (number, question) in questions.iter().enumerate() {
            document.add(number, question);
        }
        let Self {
            declarations,
            fields,
            variables,
        } = document;
        let text = format!("query Lookup({declarations}) {{ {FIXED} {fields}}}");
        (text, Value::Object(variables))
    }

    fn add(&mut self, number: usize, question: &Question) {
        let owner = self.variable(&format!("o{number}"), "String!", &question.owner);
        let name = self.variable(&format!("n{number}"), "String!", &question.name);
        let head = self.variable(&format!("h{number}"), "String!", &question.branch);
        let qualified = format!("refs/heads/{}", question.branch);
        let branch = self.variable(&format!("q{number}"), "String!", &qualified);
        let base = match &question.base {
            None => "defaultBranchRef".to_owned(),
            Some(base) => {
                let qualified = format!("refs/heads/{base}");
                let base = self.variable(&format!("b{number}"), "String!", &qualified);
                format!("ref(qualifiedName: {base})")
            }
        };
        let mut files = String::new();
        for (file, path) in question.paths.iter().enumerate() {
            let path = self.variable(&format!("p{number}_{file}"), "String!", path);
            let text = if question.patched[file] { TEXT } else { "" };
            let _ = write!(
                files,
                "f{file}: file(path: {path}) {{ mode type oid {text}}} "
            );
        }
        let mut folders = String::new();
        for (folder, path) in question.folders.iter().enumerate() {
            let path = self.variable(&format!("d{number}_{folder}"), "String!", path);
            let _ = write!(
                folders,
                "d{folder}: file(path: {path}) {{ mode type oid }} "
            );
        }
        let parents = if question.patched.contains(&true) {
            format!("parents(first: 1) {{ nodes {{ oid {files}}} }} ")
        } else {
            String::new()
        };
        let mut labels = String::new();
        for (label, name) in question.labels.iter().enumerate() {
            let name = self.variable(&format!("l{number}_{label}"), "String!", name);
            let _ = write!(labels, "l{label}: label(name: {name}) {{ id }} ");
        }
        let (commits, history) = if question.shared {
            (ALL_COMMITS, HISTORY)
        } else {
            (LAST_COMMIT, "")
        };
        let commit = format!("oid ... on Commit {{ message tree {{ oid }} {files}}}");
        let _ = write!(
            self.fields,
            "r{number}: repository(owner: {owner}, name: {name}) {{ \
            id nameWithOwner isArchived isDisabled isEmpty {labels}\
            base: {base} {{ id name target {{ {commit} ... on Commit {{ id {folders}}} }} }} \
            branch: ref(qualifiedName: {branch}) {{ id name target {{ {commit} ... on Commit {{ id {folders}{history}{parents}}} }} }} \
            pulls: pullRequests(headRefName: {head}, first: {PULLS_LOOKED_AT}, \
            orderBy: {{ field: CREATED_AT, direction: DESC }}) {{ totalCount nodes {{ {PULL} {commits} }} }} }} ",
        );
        self.add_people(number, question, &owner);
    }

    fn add_people(&mut self, number: usize, question: &Question, owner: &str) {
        for (user, login) in question.users.iter().enumerate() {
            let login = self.variable(&format!("u{number}_{user}"), "String!", login);
            let _ = write!(
                self.fields,
                "u{number}_{user}: user(login: {login}) {{ id }} "
            );
        }
        if question.teams.is_empty() {
            return;
        }
        let _ = write!(self.fields, "g{number}: organization(login: {owner}) {{ ");
        for (team, slug) in question.teams.iter().enumerate() {
            let slug = self.variable(&format!("t{number}_{team}"), "String!", slug);
            let _ = write!(self.fields, "t{team}: team(slug: {slug}) {{ id }} ");
        }
        self.fields.push_str("} ");
    }

    /// Declares a variable; gives back how the document names it.
    fn variable(&mut self, name: &str, kind: &str, value: &str) -> String {
        let _ = write!(self.declarations, "${name}: {kind} ");
        self.variables.insert(name.to_owned(), value.into());
        format!("${name}")
    }
}

/// What the answer says to the n-th question. An error if it is not of the shape that was asked for.
pub(super) fn found(
    data: &Map<String, Value>,
    number: usize,
    question: &Question,
) -> Result<Found, serde_json::Error> {
    let mut repository: Option<Repository> = match data.get(&format!("r{number}")) {
        None | Some(Value::Null) => None,
        Some(value) => Some(serde_json::from_value(value.clone())?),
    };
    if let Some(repository) = &mut repository {
        let ids = |label: usize| id(repository.rest.get(&format!("l{label}")));
        repository.labels = by_name(&question.labels, ids);
    }
    let viewer = data
        .get("viewer")
        .and_then(|viewer| viewer.get("login"))
        .and_then(Value::as_str);
    let users = |user: usize| id(data.get(&format!("u{number}_{user}")));
    let organisation = data.get(&format!("g{number}"));
    let teams = |team: usize| id(organisation?.get(format!("t{team}")));
    Ok(Found {
        repository,
        viewer: viewer.map(str::to_owned),
        users: by_name(&question.users, users),
        teams: by_name(&question.teams, teams),
    })
}

fn id(value: Option<&Value>) -> Option<String> {
    let Id { id } = serde_json::from_value(value?.clone()).ok()?;
    Some(id)
}

fn by_name(names: &[String], id: impl Fn(usize) -> Option<String>) -> BTreeMap<String, String> {
    let found = names.iter().enumerate();
    found
        .filter_map(|(number, name)| Some((name.clone(), id(number)?)))
        .collect()
}
