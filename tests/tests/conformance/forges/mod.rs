//! What a story needs of a forge: a server with one repository that people can look at and change past the hub, and where
//! that forge differs from the others.

pub(crate) mod gitea;
pub(crate) mod github;
pub(crate) mod gitlab;

use nabu_hub::change::ProviderKind;
use nabu_hub::forge::PullRequestState;
use nabu_tests::test_forge::git::GitRepository;

/// The longest path that the stories have: the hub takes 1,024 bytes, and 255 between two slashes.
pub(crate) const LONGEST_PATH: usize = 1023;

/// A server with a repository on it. The files at its beginning are those that `nabu_tests::intents` names. What people do
/// there is done by somebody who is not the hub. Anything that does not work ends the test.
pub(crate) trait Server: Sized {
    const KIND: ProviderKind;

    const DIFFERENCES: Differences;

    /// A repository of its own for each story.
    async fn start(story: &str) -> Self;

    /// Where the hub would reach it, without a proxy between.
    fn url(&self) -> String;

    /// `owner/name`.
    fn repository(&self) -> String;

    /// What the hub authenticates with.
    fn token(&self) -> String;

    /// The repository itself. Objects may be added to it; refs are changed with [`Server::push`].
    fn git(&self) -> GitRepository;

    /// A branch, new or not, gets a commit that is in the repository for its tip.
    async fn push(&self, branch: &str, commit: &str);

    async fn delete_branch(&self, branch: &str);

    async fn set_default_branch(&self, branch: &str);

    /// All pull requests in all states, oldest first.
    async fn pulls(&self) -> Vec<SeenPull>;

    /// Texts of the comments on one, oldest first.
    async fn comments(&self, number: u64) -> Vec<String>;

    /// Opens one for a branch of the repository against `main`.
    async fn open_pull(&self, branch: &str, title: &str, body: &str) -> u64;

    /// Opens one for a branch of that name in a fork, with a commit of this message.
    async fn open_pull_from_fork(&self, branch: &str, message: &str, body: &str) -> u64;

    /// Merges one. Its branch goes only if the forge was told so when it was opened.
    async fn merge(&self, number: u64);

    async fn close(&self, number: u64);

    async fn reopen(&self, number: u64);

    /// Comments on one.
    async fn comment(&self, number: u64, text: &str);

    /// Writes another body.
    async fn describe(&self, number: u64, body: &str);

    /// Makes the repository read-only for everyone.
    async fn archive(&self);

    /// A token that may look at the repository and change nothing.
    async fn reader(&self) -> String;

    /// The name of another repository, without any commit, and that repository.
    async fn empty_repository(&self) -> (String, GitRepository);
}

/// A pull request, as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeenPull {
    pub(crate) number: u64,
    pub(crate) state: PullRequestState,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) base: String,
    /// The name of its branch, in whatever repository.
    pub(crate) head: String,
    pub(crate) labels: Vec<String>,
    pub(crate) draft: bool,
}

/// Where forges differ; everything else is the same on each. Numbers are requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Differences {
    /// A new pull request, whatever its number of files.
    pub(crate) open: u32,
    /// The first one of a hub that has to find out the default branch.
    pub(crate) open_on_default_branch: u32,
    /// A new pull request with a file that may be run.
    pub(crate) open_executable: u32,
    /// A new pull request with a file that is patched.
    pub(crate) open_patched: u32,
    /// A new pull request with two labels that are not known yet.
    pub(crate) open_labelled: u32,
    /// Adopting one whose body people have rewritten: whether the head commit comes with the lookup.
    pub(crate) adopt_rewritten: u32,
    /// Closing a pull request whose number is known.
    pub(crate) close: u32,
    /// Closing one that is looked for by its branch.
    pub(crate) close_by_key: u32,
    /// Bytes of the longest path.
    pub(crate) longest_path: usize,
    /// Whether a path may begin with a dash.
    pub(crate) dash_first: bool,
    /// Whether a change to a repository without a commit is seen to be one before it is written.
    pub(crate) sees_empty_repository: bool,
    /// What becomes of a branch of ours without a commit after its base has moved on.
    pub(crate) left_behind: LeftBehind,
    /// What becomes of a commit of ours that changes nothing.
    pub(crate) empty_commit: EmptyCommit,
    /// What becomes of a pull request that has not got its labels.
    pub(crate) labels: Labels,
    /// Which pull request the forge names, if there are two of a branch.
    pub(crate) of_two_pulls: OfTwoPulls,
}

/// A branch of ours without a commit, whose base has moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftBehind {
    /// It follows its base: branch and commit are two writes, and we may have been interrupted between.
    Follows,
    /// It is somebody's: branch and commit are one write, so an interruption of ours does not leave it.
    IsTaken,
}

/// A commit of ours that changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmptyCommit {
    /// The client may make one before it knows, and takes it back with its branch.
    IsTakenBack,
    /// The client knows what is there before it writes anything.
    IsNeverMade,
}

/// When a pull request gets its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Labels {
    /// With its opening: one without labels was left so by people.
    AtOnce,
    /// In a request of their own: one without labels may be what an interruption left, and gets them.
    Afterwards,
}

/// The pull request that a forge names if people have closed ours and opened another by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfTwoPulls {
    /// It names both, and the open one counts.
    Open,
    /// It names the first one only.
    First,
}
