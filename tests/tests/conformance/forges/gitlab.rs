//! The test forge that speaks GitLab's API, a server for each story.

use nabu_hub::change::ProviderKind;
use nabu_hub::forge::PullRequestState;
use nabu_tests::test_forge::git::GitRepository;
use nabu_tests::test_forge::gitlab::{BOT, Role, TestGitlab, TestProject};
use serde_json::Value;

use super::{
    Differences, EmptyCommit, LONGEST_PATH, Labels, LeftBehind, OfTwoPulls, SeenPull, Server,
};

pub(crate) struct Gitlab {
    gitlab: TestGitlab,
    project: TestProject,
}

impl Server for Gitlab {
    const KIND: ProviderKind = ProviderKind::GitlabToken;

    const DIFFERENCES: Differences = Differences {
        open: 3,
        open_on_default_branch: 3,
        open_executable: 3,
        open_patched: 3,
        open_labelled: 3,
        adopt_rewritten: 2,
        close: 3,
        close_by_key: 3,
        longest_path: LONGEST_PATH,
        dash_first: true,
        sees_empty_repository: true,
        left_behind: LeftBehind::IsTaken,
        empty_commit: EmptyCommit::IsTakenBack,
        labels: Labels::AtOnce,
        of_two_pulls: OfTwoPulls::Open,
    };

    async fn start(_story: &str) -> Self {
        let gitlab = TestGitlab::start().await.unwrap();
        let project = gitlab.create_project("ninsun-labs/fleet/gitops").unwrap();
        Self { gitlab, project }
    }

    fn url(&self) -> String {
        self.gitlab.url()
    }

    fn repository(&self) -> String {
        self.project.full_name.clone()
    }

    fn token(&self) -> String {
        self.gitlab.token().to_owned()
    }

    fn git(&self) -> GitRepository {
        self.project.git().unwrap()
    }

    async fn push(&self, branch: &str, commit: &str) {
        self.project.set_branch(branch, commit).unwrap();
    }

    async fn delete_branch(&self, branch: &str) {
        self.project.delete_branch(branch).unwrap();
    }

    async fn set_default_branch(&self, branch: &str) {
        self.project.set_default_branch(branch).unwrap();
    }

    async fn pulls(&self) -> Vec<SeenPull> {
        let requests = self.project.merge_requests().unwrap();
        requests.iter().map(seen).collect()
    }

    async fn comments(&self, number: u64) -> Vec<String> {
        self.project.notes(number).unwrap()
    }

    async fn open_pull(&self, branch: &str, title: &str, body: &str) -> u64 {
        let opened = self.project.add_merge_request(branch, title, body);
        opened.unwrap()
    }

    async fn open_pull_from_fork(&self, branch: &str, message: &str, body: &str) -> u64 {
        let opened = self
            .project
            .add_merge_request_from_fork(branch, message, body);
        opened.unwrap()
    }

    async fn merge(&self, number: u64) {
        self.project.merge(number).unwrap();
    }

    async fn close(&self, number: u64) {
        self.project.close(number).unwrap();
    }

    async fn reopen(&self, number: u64) {
        self.project.reopen(number).unwrap();
    }

    async fn comment(&self, number: u64, text: &str) {
        self.project.add_note(number, text).unwrap();
    }

    async fn describe(&self, number: u64, body: &str) {
        self.project.describe(number, body).unwrap();
    }

    async fn archive(&self) {
        self.project.archive().unwrap();
    }

    async fn reader(&self) -> String {
        self.project.set_role(BOT, Some(Role::Reporter)).unwrap();
        self.token()
    }

    async fn empty_repository(&self) -> (String, GitRepository) {
        let empty = self.gitlab.create_empty_project("ninsun-labs/empty");
        let empty = empty.unwrap();
        (empty.full_name.clone(), empty.git().unwrap())
    }
}

impl Drop for Gitlab {
    /// Whatever a story is about: every document that was sent keeps to GitLab's schema and limits.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.gitlab.violations(), Vec::<String>::new());
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn seen(request: &Value) -> SeenPull {
    let labels = request["labels"].as_array().into_iter().flatten();
    SeenPull {
        number: request["iid"].as_u64().unwrap(),
        state: match request["state"].as_str() {
            Some("opened") => PullRequestState::Open,
            Some("merged") => PullRequestState::Merged,
            _ => PullRequestState::Closed,
        },
        title: text(&request["title"]),
        body: text(&request["description"]),
        base: text(&request["target_branch"]),
        head: text(&request["source_branch"]),
        labels: labels.map(text).collect(),
        draft: request["draft"] == true,
    }
}
