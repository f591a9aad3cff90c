//! What GitHub keeps beside git: accounts, repositories, pull requests, labels. Plain values that can be copied, so
//! that an answer can be given from an older picture.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;

use crate::test_forge::git::{GitRepository, Signature};

/// What an account is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccountKind {
    /// A person, or a bot with an account of a person.
    User,
    /// An organisation.
    Organization,
    /// The account that a GitHub App acts with.
    Bot,
}

/// An account.
#[derive(Clone, Debug)]
pub(super) struct Account {
    /// Number of the account.
    pub id: u64,
    /// `nabu-bot`; an App's ends with `[bot]`.
    pub login: String,
    /// What it is.
    pub kind: AccountKind,
    /// Slugs of its teams, for an organisation.
    pub teams: Vec<String>,
}

impl Account {
    /// How the account writes commits.
    pub(super) fn signature(&self) -> Signature {
        Signature {
            name: self.login.clone(),
            email: format!("{}+{}@users.noreply.github.com", self.id, self.login),
        }
    }

    /// The global id.
    pub(super) fn node_id(&self) -> String {
        let prefix = match self.kind {
            AccountKind::User => "U",
            AccountKind::Organization => "O",
            AccountKind::Bot => "BOT",
        };
        node_id(prefix, &[&self.login])
    }
}

/// What an account may do with a repository.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Permission {
    /// Look.
    Read,
    /// Change files and pull requests.
    Write,
    /// Everything.
    Admin,
}

/// How a branch is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// The older branch protection rules.
    Branch,
    /// A ruleset.
    Ruleset,
}

/// A rule that refuses direct changes of branches.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name of a branch, or its beginning with a `*` at the end.
    pub branches: String,
    /// Which of the two mechanisms.
    pub protection: Protection,
    /// What it says, such as `Changes must be made through a pull request.`
    pub message: String,
}

impl Rule {
    /// Whether the rule is about this branch.
    pub fn covers(&self, branch: &str) -> bool {
        match self.branches.strip_suffix('*') {
            Some(start) => branch.starts_with(start),
            None => self.branches == branch,
        }
    }
}

/// A label of a repository.
#[derive(Clone, Debug)]
pub(super) struct Label {
    /// Number of the label.
    pub id: u64,
    /// Its name; unique without regard to case.
    pub name: String,
    /// Six hexadecimal digits.
    pub color: String,
    /// What it is for.
    pub description: Option<String>,
}

/// Whether a pull request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullState {
    /// It waits.
    Open,
    /// It was closed without a merge.
    Closed,
    /// It was merged.
    Merged,
}

impl PullState {
    /// As GraphQL writes it.
    pub(super) fn as_graphql(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Closed => "CLOSED",
            Self::Merged => "MERGED",
        }
    }
}

/// A comment on a pull request.
#[derive(Clone, Debug)]
pub(super) struct Comment {
    /// Number of the comment.
    pub id: u64,
    /// Who wrote it.
    pub author: String,
    /// Its text.
    pub body: String,
    /// When.
    pub created_at: Timestamp,
}

/// A pull request.
#[derive(Clone, Debug)]
pub(super) struct PullRequest {
    /// Number among all of the forge.
    pub id: u64,
    /// Number in its repository.
    pub number: u64,
    /// Title.
    pub title: String,
    /// Text.
    pub body: String,
    /// State.
    pub state: PullState,
    /// Whether it is a draft.
    pub draft: bool,
    /// Branch that it goes to.
    pub base: String,
    /// Tip of the base when it was opened.
    pub base_oid: String,
    /// Branch that it comes from.
    pub head: String,
    /// Repository of that branch.
    pub head_repository: u64,
    /// Last tip of that branch.
    pub head_oid: String,
    /// Commit of the merge.
    pub merge_commit: Option<String>,
    /// Who opened it.
    pub author: String,
    /// When.
    pub created_at: Timestamp,
    /// When something changed last.
    pub updated_at: Timestamp,
    /// When it was closed or merged.
    pub closed_at: Option<Timestamp>,
    /// Who merged it.
    pub merged_by: Option<String>,
    /// Numbers of its labels.
    pub labels: Vec<u64>,
    /// Logins.
    pub assignees: Vec<String>,
    /// Logins of those who were asked for a review.
    pub reviewers: Vec<String>,
    /// Slugs of teams that were asked for a review.
    pub team_reviewers: Vec<String>,
    /// Comments.
    pub comments: Vec<Comment>,
    /// Who asked for a merge as soon as it is possible.
    pub auto_merge: Option<String>,
    /// Whether people of the base may push to the head of a fork.
    pub maintainer_can_modify: bool,
}

/// A repository.
#[derive(Clone, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "GitHub has them side by side"
)]
pub(super) struct Repository {
    /// Number of the repository.
    pub id: u64,
    /// Login of the owner.
    pub owner: String,
    /// Name without the owner.
    pub name: String,
    /// Names that it had before, as `owner/name`.
    pub former_names: Vec<String>,
    /// Its objects and refs.
    pub git: GitRepository,
    /// Its refs; git has the same.
    pub refs: BTreeMap<String, String>,
    /// Branch that pull requests go to by default.
    pub default_branch: String,
    /// Read-only.
    pub archived: bool,
    /// Locked by the forge, as while it moves.
    pub locked: bool,
    /// Disabled by the forge.
    pub disabled: bool,
    /// Whether everyone may look.
    pub public: bool,
    /// Whether a pull request may be merged as soon as it is possible.
    pub auto_merge_allowed: bool,
    /// Repository that it was forked from.
    pub parent: Option<u64>,
    /// What accounts may do.
    pub permissions: BTreeMap<String, Permission>,
    /// Rules.
    pub rules: Vec<Rule>,
    /// Labels.
    pub labels: Vec<Label>,
    /// Pull requests by number.
    pub pulls: BTreeMap<u64, PullRequest>,
    /// Number of the next pull request.
    pub next_number: u64,
}

impl Repository {
    /// `owner/name`.
    pub(super) fn full_name(&self) -> String {
        format!("{}/{}", self.owner, self.name)
    }

    /// The global id.
    pub(super) fn node_id(&self) -> String {
        node_id("R", &[&self.id.to_string()])
    }

    /// Tip of a branch.
    pub(super) fn branch(&self, name: &str) -> Option<&String> {
        self.refs.get(&format!("refs/heads/{name}"))
    }

    /// A label by its name.
    pub(super) fn label(&self, name: &str) -> Option<&Label> {
        let same = |label: &&Label| label.name.eq_ignore_ascii_case(name);
        self.labels.iter().find(same)
    }
}

/// Everything.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Accounts.
    pub accounts: Vec<Account>,
    /// Repositories by number.
    pub repositories: BTreeMap<u64, Repository>,
    last_id: u64,
}

impl State {
    /// A number that was not given before.
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        1000 + self.last_id
    }

    /// An account by its login.
    pub(super) fn account(&self, login: &str) -> Option<&Account> {
        let same = |account: &&Account| account.login.eq_ignore_ascii_case(login);
        self.accounts.iter().find(same)
    }

    /// A repository by its name, in any case, or by one that it had before.
    pub(super) fn repository(&self, owner: &str, name: &str, follow: bool) -> Option<&Repository> {
        let wanted = format!("{owner}/{name}");
        let mut all = self.repositories.values();
        let named = |repository: &&Repository| repository.full_name().eq_ignore_ascii_case(&wanted);
        all.clone().find(named).or_else(|| {
            let had = |repository: &&Repository| {
                let mut former = repository.former_names.iter();
                former.any(|one| one.eq_ignore_ascii_case(&wanted))
            };
            all.find(had).filter(|_| follow)
        })
    }
}

/// A global id: what it is of, and what finds it again. GitHub's are as opaque.
pub(super) fn node_id(prefix: &str, parts: &[&str]) -> String {
    format!("{prefix}_{}", URL_SAFE_NO_PAD.encode(parts.join("\0")))
}

/// The prefix and the parts of a global id.
pub(super) fn parse_node_id(id: &str) -> Option<(String, Vec<String>)> {
    let (prefix, rest) = id.split_once('_')?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(rest).ok()?).ok()?;
    let parts = text.split('\0').map(str::to_owned).collect();
    Some((prefix.to_owned(), parts))
}
