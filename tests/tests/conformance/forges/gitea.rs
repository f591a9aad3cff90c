//! A real Gitea server, which all stories share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nabu_hub::change::ProviderKind;
use nabu_hub::forge::PullRequestState;
use nabu_tests::forge::TestForge;
use nabu_tests::repository::TestRepository;
use nabu_tests::test_forge::git::GitRepository;
use nabu_tests::wait::eventually;
use reqwest::Method;
use serde_json::{Value, json};

use super::{Differences, EmptyCommit, Labels, LeftBehind, OfTwoPulls, SeenPull, Server};

/// The server takes names of repositories up to 100 characters; a number makes them its own.
const LONGEST_NAME: usize = 90;

/// How long the server may be busy with itself.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Gitea {
    forge: Arc<TestForge>,
    repository: TestRepository,
}

impl Gitea {
    async fn call(&self, method: Method, path: &str, body: Value) -> Value {
        let body = (!body.is_null()).then_some(body);
        let answer = self.repository.call_as_person(method, path, body).await;
        answer.unwrap()
    }
}

impl Server for Gitea {
    const KIND: ProviderKind = ProviderKind::ForgejoToken;

    const DIFFERENCES: Differences = Differences {
        open: 3,
        open_on_default_branch: 4,
        open_executable: 3,
        open_patched: 4,
        open_labelled: 7,
        adopt_rewritten: 2,
        close: 3,
        close_by_key: 3,
        longest_path: 500,
        dash_first: false,
        sees_empty_repository: false,
        left_behind: LeftBehind::IsTaken,
        empty_commit: EmptyCommit::IsTakenBack,
        labels: Labels::AtOnce,
        of_two_pulls: OfTwoPulls::First,
    };

    async fn start(story: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let forge = TestForge::shared().await.unwrap();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let story = story.get(..LONGEST_NAME).unwrap_or(story);
        let name = format!("{story}-{number}");
        let repository = forge.create_repository(&name).await.unwrap();
        repository.add_collaborator("write").await.unwrap();
        Self { forge, repository }
    }

    fn url(&self) -> String {
        self.forge.url()
    }

    fn repository(&self) -> String {
        self.repository.full_name.clone()
    }

    fn token(&self) -> String {
        self.forge.token().to_owned()
    }

    fn git(&self) -> GitRepository {
        self.repository.git().unwrap()
    }

    async fn push(&self, branch: &str, commit: &str) {
        let pushed = self.repository.push_as_person(branch, commit).await;
        pushed.unwrap();
    }

    async fn delete_branch(&self, branch: &str) {
        let path = format!("/branches/{branch}");
        self.call(Method::DELETE, &path, Value::Null).await;
    }

    async fn set_default_branch(&self, branch: &str) {
        // The server fails with "already in queue" while it still counts the languages of an earlier push.
        let set = eventually("the default branch is set", PATIENCE, || async {
            let body = json!({ "default_branch": branch });
            let answer = self.repository.call(Method::PATCH, "", Some(body)).await;
            answer.ok()
        });
        set.await.unwrap();
    }

    async fn pulls(&self) -> Vec<SeenPull> {
        let pulls = self.repository.pull_requests().await.unwrap();
        pulls.iter().map(seen).collect()
    }

    async fn comments(&self, number: u64) -> Vec<String> {
        let path = format!("/issues/{number}/comments");
        let all = self.call(Method::GET, &path, Value::Null).await;
        let texts = all.as_array().unwrap().iter();
        texts.map(|one| text(&one["body"])).collect()
    }

    async fn open_pull(&self, branch: &str, title: &str, body: &str) -> u64 {
        let pull = json!({ "base": "main", "head": branch, "title": title, "body": body });
        let pull = self.call(Method::POST, "/pulls", pull).await;
        pull["number"].as_u64().unwrap()
    }

    async fn open_pull_from_fork(&self, branch: &str, message: &str, body: &str) -> u64 {
        let pull = self
            .repository
            .add_pull_request_from_fork(branch, message, body);
        pull.await.unwrap()
    }

    async fn merge(&self, number: u64) {
        self.repository.merge(number, false).await.unwrap();
    }

    async fn close(&self, number: u64) {
        self.repository.close_pull_request(number).await.unwrap();
    }

    async fn reopen(&self, number: u64) {
        let path = format!("/pulls/{number}");
        self.call(Method::PATCH, &path, json!({ "state": "open" }))
            .await;
    }

    async fn comment(&self, number: u64, text: &str) {
        let path = format!("/issues/{number}/comments");
        self.call(Method::POST, &path, json!({ "body": text }))
            .await;
    }

    async fn describe(&self, number: u64, body: &str) {
        let path = format!("/pulls/{number}");
        self.call(Method::PATCH, &path, json!({ "body": body }))
            .await;
    }

    async fn archive(&self) {
        self.repository.archive().await.unwrap();
    }

    async fn reader(&self) -> String {
        let name = self.repository.full_name.replace('/', "-");
        let token = self.forge.scoped_token(&name, "read:repository");
        token.unwrap()
    }

    async fn empty_repository(&self) -> (String, GitRepository) {
        let name = format!("{}-empty", self.repository.full_name);
        let (_, short) = name.split_once('/').unwrap();
        let empty = self.forge.create_empty_repository(short).await.unwrap();
        (name, empty.git().unwrap())
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn seen(pull: &Value) -> SeenPull {
    let labels = pull["labels"].as_array().into_iter().flatten();
    // `alice:branch` if it is from a fork.
    let head = text(&pull["head"]["label"]);
    SeenPull {
        number: pull["number"].as_u64().unwrap(),
        state: match pull["state"].as_str() {
            Some("open") => PullRequestState::Open,
            _ if pull["merged"] == true => PullRequestState::Merged,
            _ => PullRequestState::Closed,
        },
        title: text(&pull["title"]),
        body: text(&pull["body"]),
        base: text(&pull["base"]["ref"]),
        head: head.rsplit(':').next().unwrap_or_default().to_owned(),
        labels: labels.map(|label| text(&label["name"])).collect(),
        draft: pull["draft"] == true,
    }
}
