//! Each forge with a repository, a hub that reaches it through the proxy, and eyes of the test that do not.

use std::any::Any;

use nabu_hub::change::{Intent, ProviderKind};
use nabu_tests::fault_proxy::FaultProxy;
use nabu_tests::forge::TestForge;
use nabu_tests::intents::{self, BINDINGS, HubForges};
use nabu_tests::repository::TestRepository as GiteaRepository;
use nabu_tests::test_forge::github::{TestGithub, TestRepository as GithubRepository};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};

/// A branch that nobody of us has anything to do with.
pub(crate) const BYSTANDER: &str = "bystander";

enum Repository {
    Github(GithubRepository),
    Gitlab(TestProject),
    Gitea(GiteaRepository),
}

pub(crate) struct Bed {
    repository: Repository,
    pub(crate) proxy: FaultProxy,
    kind: ProviderKind,
    name: String,
    token: String,
    /// The server lives as long as this.
    _server: Box<dyn Any>,
}

impl Bed {
    pub(crate) async fn of(kind: ProviderKind) -> Self {
        let (repository, url, name, token, server) = match kind {
            ProviderKind::GithubToken => {
                let github = TestGithub::start().await.unwrap();
                let made = github.create_repository("ninsun-labs/gitops").await;
                let made = made.unwrap();
                made.add_branch(BYSTANDER, "main").unwrap();
                let (url, token) = (github.url().to_owned(), github.token().to_owned());
                let name = made.full_name().unwrap();
                (
                    Repository::Github(made),
                    url,
                    name,
                    token,
                    Box::new(github) as Box<dyn Any>,
                )
            }
            ProviderKind::GitlabToken => {
                let gitlab = TestGitlab::start().await.unwrap();
                let made = gitlab.create_project("ninsun-labs/fleet/gitops").unwrap();
                made.add_branch(BYSTANDER, "main").unwrap();
                let (url, token) = (gitlab.url(), gitlab.token().to_owned());
                let name = made.full_name.clone();
                (
                    Repository::Gitlab(made),
                    url,
                    name,
                    token,
                    Box::new(gitlab) as Box<dyn Any>,
                )
            }
            _ => {
                let gitea = TestForge::start().await.unwrap();
                let made = gitea.create_repository("mangled").await.unwrap();
                made.add_branch(BYSTANDER, "main").await.unwrap();
                let (url, token) = (gitea.url(), gitea.token().to_owned());
                let name = made.full_name.clone();
                (
                    Repository::Gitea(made),
                    url,
                    name,
                    token,
                    Box::new(gitea) as Box<dyn Any>,
                )
            }
        };
        Self {
            repository,
            proxy: FaultProxy::start(&url).await.unwrap(),
            kind,
            name,
            token,
            _server: server,
        }
    }

    /// A hub that remembers nothing.
    pub(crate) fn hub(&self) -> HubForges {
        HubForges::new(&[("token", &self.token)])
    }

    pub(crate) fn intent(&self, uid: &str) -> Intent {
        let target = intents::target(self.kind, &self.proxy.url(), &self.name);
        let contents = format!("bindings: [] # {uid}\n");
        intents::intent(target, uid, &[(BINDINGS, Some(&contents))])
    }

    /// Pull requests of a branch, in every state.
    pub(crate) async fn pulls(&self, branch: &str) -> usize {
        match &self.repository {
            Repository::Github(repository) => {
                let pulls = repository.pulls().unwrap();
                pulls.iter().filter(|pull| pull.head == branch).count()
            }
            Repository::Gitlab(project) => {
                let merge_requests = project.merge_requests().unwrap();
                let ours = |one: &&serde_json::Value| one["source_branch"] == branch;
                merge_requests.iter().filter(ours).count()
            }
            Repository::Gitea(repository) => {
                let pulls = repository.pull_requests().await.unwrap();
                let ours = |one: &&serde_json::Value| one["head"]["ref"] == branch;
                pulls.iter().filter(ours).count()
            }
        }
    }

    /// What the file of a change is on a branch.
    pub(crate) async fn file(&self, branch: &str) -> Option<String> {
        match &self.repository {
            Repository::Github(repository) => {
                let bytes = repository.read(branch, BINDINGS).unwrap();
                bytes.map(|bytes| String::from_utf8(bytes).unwrap())
            }
            Repository::Gitlab(project) => project.file(branch, BINDINGS).unwrap(),
            Repository::Gitea(repository) => repository.file(branch, BINDINGS).await.unwrap(),
        }
    }

    /// Names of all branches, sorted.
    pub(crate) async fn branches(&self) -> Vec<String> {
        let mut names = match &self.repository {
            Repository::Github(repository) => repository.branches().unwrap(),
            Repository::Gitlab(project) => project.branches().unwrap(),
            Repository::Gitea(repository) => repository.branches().await.unwrap(),
        };
        names.sort();
        names
    }

    /// The last commits of the branches that no change may touch.
    pub(crate) async fn foreign_tips(&self) -> Vec<String> {
        let mut tips = Vec::new();
        for branch in ["main", BYSTANDER] {
            tips.push(match &self.repository {
                Repository::Github(repository) => repository.commit(branch).unwrap().oid,
                Repository::Gitlab(project) => project.commit(branch).unwrap().oid,
                Repository::Gitea(repository) => repository.commit(branch).await.unwrap().id,
            });
        }
        tips
    }
}
