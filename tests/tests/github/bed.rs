//! A forge and a repository for each test, and the hub's way to it.

use nabu_hub::change::{ForgeTarget, Intent, ProviderKind};
use nabu_hub::forge::{ForgeError, Made, PullRequest};
use nabu_hub::response::ResponseError;
use nabu_tests::intents::{self, HubForges};
pub(crate) use nabu_tests::intents::{BINDINGS, REVOKE};
use nabu_tests::test_forge::github::{TestGithub, TestRepository};

pub(crate) const REPOSITORY: &str = "ninsun-labs/gitops";

pub(crate) struct Bed {
    pub(crate) github: TestGithub,
    pub(crate) repository: TestRepository,
    pub(crate) hub: HubForges,
    kind: ProviderKind,
}

impl Bed {
    /// A repository, and a hub with a personal access token.
    pub(crate) async fn new() -> Self {
        let github = TestGithub::start().await.unwrap();
        let hub = HubForges::new(&[("token", github.token())]);
        Self::with(github, hub, ProviderKind::GithubToken).await
    }

    /// A repository, and a hub that is the App.
    pub(crate) async fn of_app() -> Self {
        let github = TestGithub::start().await.unwrap();
        let app = github.app();
        let hub = HubForges::new(&[
            ("app-id", &app.id.to_string()),
            ("installation-id", &app.installation_id.to_string()),
            ("private-key.pem", &app.private_key),
        ]);
        Self::with(github, hub, ProviderKind::GithubApp).await
    }

    async fn with(github: TestGithub, hub: HubForges, kind: ProviderKind) -> Self {
        let repository = github.create_repository(REPOSITORY).await.unwrap();
        Self {
            github,
            repository,
            hub,
            kind,
        }
    }

    pub(crate) fn target(&self) -> ForgeTarget {
        intents::target(self.kind, self.github.url(), REPOSITORY)
    }

    pub(crate) fn intent(&self, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
        intents::intent(self.target(), uid, files)
    }

    pub(crate) async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        self.hub.make(intent).await
    }

    pub(crate) async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        self.hub.pull(intent).await
    }

    pub(crate) async fn failure(&self, intent: &Intent) -> ResponseError {
        self.hub.failure(intent).await
    }

    /// A hub that remembers nothing: another process after a crash.
    pub(crate) fn forget(&mut self) {
        self.hub = HubForges::new(&[("token", self.github.token())]);
    }

    /// The content of a file as text.
    pub(crate) fn file(&self, branch: &str, path: &str) -> Option<String> {
        let bytes = self.repository.read(branch, path).unwrap()?;
        Some(String::from_utf8(bytes).unwrap())
    }
}

impl Drop for Bed {
    /// Whatever a test is about: no request broke the published schema.
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.github.violations(), Vec::<String>::new());
        }
    }
}
