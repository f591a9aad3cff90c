//! One repository on one of the forges, the hub's way to it, and what people do there.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use nabu_hub::change::{Intent, ProviderKind};
use nabu_hub::forge::{ClosedPull, Closing, Forge, ForgeError, Job, Made, PullRequest, Shared};
use nabu_hub::group::Group;
use nabu_tests::fault_proxy::FaultProxy;
use nabu_tests::forge::TestForge;
use nabu_tests::intents::{HubForges, intent, key, target};
use nabu_tests::test_forge::github::{File, TestGithub};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};
use nabu_tests::{repository, test_forge};
use reqwest::Method;
use serde_json::Value;
use tokio::sync::Mutex;

/// The branch of the group of all tests.
pub(crate) const BRANCH: &str = "nabu/prod-eu/group-0a1b2c3d-20261121T183000Z";

/// The server of all tests that run at the moment; the last one ends it.
async fn shared_forge() -> Arc<TestForge> {
    static FORGE: Mutex<Weak<TestForge>> = Mutex::const_new(Weak::new());
    let mut shared = FORGE.lock().await;
    if let Some(forge) = shared.upgrade() {
        return forge;
    }
    let forge = Arc::new(TestForge::start().await.unwrap());
    *shared = Arc::downgrade(&forge);
    forge
}

enum Place {
    Forgejo {
        forge: Arc<TestForge>,
        repository: repository::TestRepository,
    },
    Github {
        github: TestGithub,
        repository: test_forge::github::TestRepository,
    },
    Gitlab {
        gitlab: TestGitlab,
        project: TestProject,
    },
}

/// A pull request, on whatever forge.
#[derive(Clone, Debug)]
pub(crate) struct Pull {
    pub(crate) number: u64,
    /// `open`, `closed` or `merged`.
    pub(crate) state: String,
    pub(crate) title: String,
    pub(crate) body: String,
    pub(crate) head: String,
}

/// A repository and a hub.
pub(crate) struct Stage {
    place: Place,
    kind: ProviderKind,
    /// Requests go through it.
    pub(crate) proxy: FaultProxy,
    hub: HubForges,
    token: String,
    full_name: String,
    branch: String,
    /// Requests for a pull request alone, and for each member but the first.
    pub(crate) first: u32,
    pub(crate) later: u32,
}

impl Stage {
    pub(crate) async fn forgejo(name: &str) -> Self {
        let forge = shared_forge().await;
        let repository = forge.create_repository(name).await.unwrap();
        let (url, token) = (forge.url(), forge.token().to_owned());
        let full_name = repository.full_name.clone();
        let place = Place::Forgejo { forge, repository };
        Self::on(
            place,
            ProviderKind::ForgejoToken,
            &url,
            token,
            full_name,
            (3, 3),
        )
        .await
    }

    pub(crate) async fn github() -> Self {
        let github = TestGithub::start().await.unwrap();
        let full_name = "ninsun-labs/gitops".to_owned();
        let repository = github.create_repository(&full_name).await.unwrap();
        let (url, token) = (github.url().to_owned(), github.token().to_owned());
        let place = Place::Github { github, repository };
        Self::on(
            place,
            ProviderKind::GithubToken,
            &url,
            token,
            full_name,
            (2, 2),
        )
        .await
    }

    pub(crate) async fn gitlab() -> Self {
        let gitlab = TestGitlab::start().await.unwrap();
        let full_name = "ninsun-labs/fleet/gitops".to_owned();
        let project = gitlab.create_project(&full_name).unwrap();
        let (url, token) = (gitlab.url(), gitlab.token().to_owned());
        let place = Place::Gitlab { gitlab, project };
        Self::on(
            place,
            ProviderKind::GitlabToken,
            &url,
            token,
            full_name,
            (3, 3),
        )
        .await
    }

    async fn on(
        place: Place,
        kind: ProviderKind,
        url: &str,
        token: String,
        full_name: String,
        (first, later): (u32, u32),
    ) -> Self {
        let proxy = FaultProxy::start(url).await.unwrap();
        Self {
            place,
            kind,
            proxy,
            hub: HubForges::new(&[("token", &token)]),
            token,
            full_name,
            branch: BRANCH.to_owned(),
            first,
            later,
        }
    }

    /// A hub that remembers nothing: another process after a crash.
    pub(crate) fn forget(&mut self) {
        self.hub = HubForges::new(&[("token", &self.token)]);
    }

    /// From here on, members belong to the group of this branch.
    pub(crate) fn use_branch(&mut self, branch: &str) {
        branch.clone_into(&mut self.branch);
    }

    /// A second hub beside the first.
    pub(crate) fn another_hub(&self) -> HubForges {
        HubForges::new(&[("token", &self.token)])
    }

    /// A change of a response that belongs to the group.
    pub(crate) fn member(&self, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
        let target = target(self.kind, &self.proxy.url(), &self.full_name);
        let group = Group {
            branch: self.branch.clone(),
            title: "Changes in prod-eu".to_owned(),
            introduction: "Each commit is the change of one EventResponse.".to_owned(),
            max_responses: 20,
        };
        Intent {
            title: format!("Change {uid}"),
            group: Some(group),
            ..intent(target, uid, files)
        }
    }

    /// A member that writes a file of its own.
    pub(crate) fn writer(&self, uid: &str) -> Intent {
        self.member(uid, &[(&format!("new/{uid}.yaml"), Some("x: 1\n"))])
    }

    /// Makes a change as the hub does; with the number of requests that it cost.
    pub(crate) async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        make(&self.hub, intent, false).await
    }

    /// The same after an attempt that was interrupted.
    pub(crate) async fn make_again(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        make(&self.hub, intent, true).await
    }

    /// The pull request that a member shares, and how many requests it cost.
    pub(crate) async fn share(&self, intent: &Intent) -> (PullRequest, u32) {
        let (made, requests) = self.make(intent).await;
        match made {
            Ok(Made::Shared(Shared {
                pull,
                done_before: false,
            })) => (pull, requests),
            other => panic!("not shared: {other:?}"),
        }
    }

    /// The pull request that a response gets for itself.
    pub(crate) async fn alone(&self, intent: &Intent) -> PullRequest {
        match self.make(intent).await.0 {
            Ok(Made::PullRequest(pull)) => pull,
            other => panic!("not alone: {other:?}"),
        }
    }

    pub(crate) async fn close(
        &self,
        intent: &Intent,
        closing: &Closing<'_>,
    ) -> Result<Option<ClosedPull>, ForgeError> {
        let key = key(uid_of(intent));
        let shared = intent.in_group().unwrap();
        let forge = self.hub.forges.get(&intent.target).unwrap();
        forge.close(&Job::new(&key, &shared), closing).await
    }

    /// The messages of the commits of a branch that `main` does not have, the newest first.
    pub(crate) async fn commits(&self, branch: &str) -> Vec<String> {
        match &self.place {
            Place::Forgejo { repository, .. } => {
                let path = format!("/compare/main...{branch}");
                let answer = repository.call(Method::GET, &path, None).await.unwrap();
                let all = answer["commits"].as_array().cloned().unwrap_or_default();
                let text = |one: &Value| one["commit"]["message"].as_str().unwrap().to_owned();
                all.iter().map(text).collect()
            }
            Place::Github { repository, .. } => messages(&repository.git().unwrap(), branch),
            Place::Gitlab { project, .. } => messages(&project.git().unwrap(), branch),
        }
    }

    /// The UIDs that the commits of the group's branch name, in order of the names.
    pub(crate) async fn members(&self) -> Vec<String> {
        let commits = self.commits(BRANCH).await;
        let uid = |message: &String| {
            let mut lines = message.lines();
            lines
                .find_map(|line| line.strip_prefix("Nabu-Response: "))
                .map_or_else(|| "somebody else".to_owned(), str::to_owned)
        };
        let mut uids: Vec<String> = commits.iter().map(uid).collect();
        uids.sort();
        uids
    }

    /// All pull requests, oldest first.
    pub(crate) async fn pulls(&self) -> Vec<Pull> {
        let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
        match &self.place {
            Place::Forgejo { repository, .. } => {
                let pulls = repository.pull_requests().await.unwrap();
                let seen = |one: &Value| Pull {
                    number: one["number"].as_u64().unwrap(),
                    state: if one["merged"] == true {
                        "merged".to_owned()
                    } else {
                        text(one, "state")
                    },
                    title: text(one, "title"),
                    body: text(one, "body"),
                    head: text(&one["head"], "label"),
                };
                pulls.iter().map(seen).collect()
            }
            Place::Github { repository, .. } => {
                let pulls = repository.pulls().unwrap().into_iter();
                pulls
                    .map(|one| Pull {
                        number: one.number,
                        state: one.state.to_owned(),
                        title: one.title,
                        body: one.body,
                        head: one.head,
                    })
                    .collect()
            }
            Place::Gitlab { project, .. } => {
                let requests = project.merge_requests().unwrap();
                let seen = |one: &Value| Pull {
                    number: one["iid"].as_u64().unwrap(),
                    state: text(one, "state").replace("opened", "open"),
                    title: text(one, "title"),
                    body: text(one, "description"),
                    head: text(one, "source_branch"),
                };
                requests.iter().map(seen).collect()
            }
        }
    }

    /// The only pull request.
    pub(crate) async fn the_pull(&self) -> Pull {
        let mut pulls = self.pulls().await;
        assert_eq!(pulls.len(), 1, "{pulls:#?}");
        pulls.remove(0)
    }

    pub(crate) async fn comments(&self, number: u64) -> Vec<String> {
        match &self.place {
            Place::Forgejo { repository, .. } => {
                let path = format!("/issues/{number}/comments");
                let all = repository.call(Method::GET, &path, None).await.unwrap();
                let all = all.as_array().cloned().unwrap_or_default();
                let text = |one: &Value| one["body"].as_str().unwrap().to_owned();
                all.iter().map(text).collect()
            }
            Place::Github { repository, .. } => {
                let pulls = repository.pulls().unwrap().into_iter();
                let mut found = pulls.filter(|pull| pull.number == number);
                found.next().unwrap().comments
            }
            Place::Gitlab { project, .. } => project.notes(number).unwrap(),
        }
    }

    pub(crate) async fn merge(&self, number: u64) {
        match &self.place {
            Place::Forgejo { repository, .. } => {
                repository.merge_pull_request(number).await.unwrap();
            }
            Place::Github { repository, .. } => {
                repository.merge(number).unwrap();
            }
            Place::Gitlab { project, .. } => project.merge(number).unwrap(),
        }
    }

    pub(crate) async fn close_as_person(&self, number: u64) {
        match &self.place {
            Place::Forgejo { repository, .. } => {
                repository.close_pull_request(number).await.unwrap();
            }
            Place::Github { repository, .. } => repository.close(number).unwrap(),
            Place::Gitlab { project, .. } => project.close(number).unwrap(),
        }
    }

    /// Somebody else commits a file to a branch.
    pub(crate) async fn commit_as_person(&self, branch: &str, path: &str, contents: &str) {
        match &self.place {
            Place::Forgejo { repository, .. } => {
                repository.add_collaborator("write").await.unwrap();
                let added = repository.add_file_as_person(branch, branch, path, contents);
                added.await.unwrap();
            }
            Place::Github { repository, .. } => {
                let files = [File::plain(path, contents)];
                repository.add_files(branch, &files).unwrap();
            }
            Place::Gitlab { project, .. } => project
                .add_file_as_person(branch, branch, path, contents)
                .unwrap(),
        }
    }

    pub(crate) async fn file(&self, branch: &str, path: &str) -> Option<String> {
        match &self.place {
            Place::Forgejo { repository, .. } => repository.file(branch, path).await.unwrap(),
            Place::Github { repository, .. } => {
                let bytes = repository.read(branch, path).unwrap()?;
                Some(String::from_utf8(bytes).unwrap())
            }
            Place::Gitlab { project, .. } => project.file(branch, path).unwrap(),
        }
    }

    pub(crate) async fn branches(&self) -> Vec<String> {
        match &self.place {
            Place::Forgejo { repository, .. } => repository.branches().await.unwrap(),
            Place::Github { repository, .. } => repository.branches().unwrap(),
            Place::Gitlab { project, .. } => project.branches().unwrap(),
        }
    }

    /// Whether the forge does not say that a commit would change nothing before it is made.
    pub(crate) fn finds_out_late(&self) -> bool {
        matches!(self.place, Place::Forgejo { .. })
    }
}

impl Drop for Stage {
    /// Whatever a test is about: every document that was sent keeps to the forge's schema.
    fn drop(&mut self) {
        let violations = match &self.place {
            Place::Forgejo { forge, .. } => {
                let _ = forge;
                Vec::new()
            }
            Place::Github { github, .. } => github.violations(),
            Place::Gitlab { gitlab, .. } => gitlab.violations(),
        };
        assert!(
            std::thread::panicking() || violations.is_empty(),
            "{violations:?}"
        );
    }
}

/// Makes a change as a hub does; with the number of requests that it cost.
pub(crate) async fn make(
    hub: &HubForges,
    intent: &Intent,
    again: bool,
) -> (Result<Made, ForgeError>, u32) {
    let key = key(uid_of(intent));
    let job = Job::new(&key, intent).after_others(again);
    let forge: Arc<dyn Forge> = hub.forges.get(&intent.target).unwrap();
    let made = forge.make(&job).await;
    (made, job.requests.load(Ordering::Relaxed))
}

fn uid_of(intent: &Intent) -> &str {
    intent.branch.rsplit('/').next().unwrap_or_default()
}

fn messages(git: &test_forge::git::GitRepository, branch: &str) -> Vec<String> {
    let main = git.resolve("refs/heads/main").unwrap();
    let tip = format!("refs/heads/{branch}");
    if git.resolve(&tip).unwrap().is_none() {
        return Vec::new();
    }
    let ids = git.history(&tip, main.as_deref()).unwrap();
    ids.iter()
        .map(|oid| git.commit(oid).unwrap().message)
        .collect()
}
