//! A repository on the server that all tests share, and the hub's way to it.

use std::sync::Arc;

use nabu_hub::change::{ForgeTarget, Intent, ProviderKind};
use nabu_hub::credentials::Credentials;
use nabu_hub::forge::{ForgeError, Made, PullRequest};
use nabu_hub::response::ResponseError;
use nabu_tests::forge::TestForge;
pub(crate) use nabu_tests::intents::{BINDINGS, REVOKE, failure, intent, make};
use nabu_tests::intents::{HubForges, set_secret};
use nabu_tests::repository::TestRepository;

pub(crate) struct Bed {
    pub(crate) forge: Arc<TestForge>,
    pub(crate) repository: TestRepository,
    pub(crate) hub: HubForges,
}

impl Bed {
    pub(crate) async fn new(name: &str) -> Self {
        let forge = TestForge::shared().await.unwrap();
        let repository = forge.create_repository(name).await.unwrap();
        let hub = HubForges::new(&[("token", forge.token())]);
        Self {
            forge,
            repository,
            hub,
        }
    }

    pub(crate) fn intent(&self, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
        intent(
            target(&self.forge.url(), &self.repository.full_name),
            uid,
            files,
        )
    }

    pub(crate) async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        self.hub.make(intent).await
    }

    /// The pull request that comes of an intent, and how many requests it cost.
    pub(crate) async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        self.hub.pull(intent).await
    }

    pub(crate) async fn failure(&self, intent: &Intent) -> ResponseError {
        failure(self.make(intent).await.0)
    }

    /// What a crash between commit and pull request leaves behind, if the file is written so.
    pub(crate) async fn commit_only(&self, intent: &Intent, contents: &str) {
        let files = [(BINDINGS, contents)];
        let (branch, message) = (&intent.branch, &intent.commit_message);
        self.repository
            .add_commit_on_new_branch("main", branch, message, &files)
            .await
            .unwrap();
    }
}

pub(crate) fn set_token(credentials: &Credentials, token: &str) {
    set_secret(credentials, &[("token", token)]);
}

pub(crate) fn target(base_url: &str, repository: &str) -> ForgeTarget {
    nabu_tests::intents::target(ProviderKind::ForgejoToken, base_url, repository)
}
