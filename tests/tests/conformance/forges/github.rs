//! The test forge that speaks GitHub's API, a server for each story.

use nabu_hub::change::ProviderKind;
use nabu_hub::forge::PullRequestState;
use nabu_tests::test_forge::git::GitRepository;
use nabu_tests::test_forge::github::{BOT, File, Pull, TestGithub, TestRepository};

use super::{
    Differences, EmptyCommit, LONGEST_PATH, Labels, LeftBehind, OfTwoPulls, SeenPull, Server,
};

pub(crate) struct Github {
    github: TestGithub,
    repository: TestRepository,
}

impl Server for Github {
    const KIND: ProviderKind = ProviderKind::GithubToken;

    const DIFFERENCES: Differences = Differences {
        open: 2,
        open_on_default_branch: 2,
        open_executable: 4,
        open_patched: 2,
        open_labelled: 3,
        adopt_rewritten: 1,
        close: 2,
        close_by_key: 3,
        longest_path: LONGEST_PATH,
        dash_first: true,
        sees_empty_repository: true,
        left_behind: LeftBehind::Follows,
        empty_commit: EmptyCommit::IsNeverMade,
        labels: Labels::Afterwards,
        of_two_pulls: OfTwoPulls::Open,
    };

    async fn start(_story: &str) -> Self {
        let github = TestGithub::start().await.unwrap();
        let repository = github.create_repository("ninsun-labs/gitops").await;
        Self {
            repository: repository.unwrap(),
            github,
        }
    }

    fn url(&self) -> String {
        self.github.url().to_owned()
    }

    fn repository(&self) -> String {
        self.repository.full_name().unwrap()
    }

    fn token(&self) -> String {
        self.github.token().to_owned()
    }

    fn git(&self) -> GitRepository {
        self.repository.git().unwrap()
    }

    async fn push(&self, branch: &str, commit: &str) {
        self.repository.set_branch(branch, commit).unwrap();
    }

    async fn delete_branch(&self, branch: &str) {
        self.repository.delete_branch(branch).unwrap();
    }

    async fn set_default_branch(&self, branch: &str) {
        self.repository.set_default_branch(branch).unwrap();
    }

    async fn pulls(&self) -> Vec<SeenPull> {
        let pulls = self.repository.pulls().unwrap();
        pulls.into_iter().map(seen).collect()
    }

    async fn comments(&self, number: u64) -> Vec<String> {
        let pulls = self.repository.pulls().unwrap();
        let mut of_number = pulls.into_iter().filter(|pull| pull.number == number);
        of_number.next().unwrap().comments
    }

    async fn open_pull(&self, branch: &str, title: &str, body: &str) -> u64 {
        let opened = self.repository.add_pull(branch, "main", title, body);
        opened.unwrap()
    }

    async fn open_pull_from_fork(&self, branch: &str, message: &str, body: &str) -> u64 {
        self.repository.set_public(true).unwrap();
        let fork = self.github.fork(&self.repository).await.unwrap();
        let file = File::plain("fork.txt", "fork\n");
        fork.add_commit(branch, message, &[file]).unwrap();
        let name = fork.full_name().unwrap();
        let (owner, _) = name.split_once('/').unwrap();
        self.open_pull(&format!("{owner}:{branch}"), "From afar", body)
            .await
    }

    async fn merge(&self, number: u64) {
        self.repository.merge(number).unwrap();
    }

    async fn close(&self, number: u64) {
        self.repository.close(number).unwrap();
    }

    async fn reopen(&self, number: u64) {
        self.repository.reopen(number).unwrap();
    }

    async fn comment(&self, number: u64, text: &str) {
        self.repository.comment(number, text).unwrap();
    }

    async fn describe(&self, number: u64, body: &str) {
        self.repository.describe(number, body).unwrap();
    }

    async fn archive(&self) {
        self.repository.archive(true).unwrap();
    }

    async fn reader(&self) -> String {
        let given = self.repository.set_permission(BOT, Some("read"));
        given.unwrap();
        self.token()
    }

    async fn empty_repository(&self) -> (String, GitRepository) {
        let empty = self.github.empty_repository("ninsun-labs/empty").await;
        let empty = empty.unwrap();
        (empty.full_name().unwrap(), empty.git().unwrap())
    }
}

impl Drop for Github {
    /// Whatever a story is about: no request broke the published schema.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.github.violations(), Vec::<String>::new());
        }
    }
}

fn seen(pull: Pull) -> SeenPull {
    SeenPull {
        number: pull.number,
        state: match pull.state {
            "open" => PullRequestState::Open,
            "merged" => PullRequestState::Merged,
            _ => PullRequestState::Closed,
        },
        title: pull.title,
        body: pull.body,
        base: pull.base,
        head: pull.head,
        labels: pull.labels,
        draft: pull.draft,
    }
}
