//! A project on a server of its own, and the hub's way to it.

use std::sync::atomic::Ordering;

use nabu_hub::change::{ForgeTarget, Intent, ProviderKind};
use nabu_hub::forge::{Forge, ForgeError, Job, Made, ObservedPull, PullRequest};
use nabu_hub::response::{ErrorType, ResponseError};
pub(crate) use nabu_tests::intents::{BINDINGS, OBSOLETE, failure, intent, make};
use nabu_tests::intents::{HubForges, key};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};

pub(crate) const NEW: &str = "clusters/prod-eu/new/policy.yaml";

/// The usual change: a file that is not there yet.
pub(crate) const DENY: [(&str, Option<&str>); 1] = [(NEW, Some("deny: all\n"))];

pub(crate) struct Bed {
    pub(crate) gitlab: TestGitlab,
    pub(crate) project: TestProject,
    pub(crate) hub: HubForges,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::on(TestGitlab::start().await.unwrap())
    }

    pub(crate) fn on(gitlab: TestGitlab) -> Self {
        let project = gitlab.create_project("ninsun-labs/fleet/gitops").unwrap();
        let hub = HubForges::new(&[("token", gitlab.token())]);
        Self {
            gitlab,
            project,
            hub,
        }
    }

    pub(crate) fn intent(&self, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
        intent(
            target(&self.gitlab.url(), &self.project.full_name),
            uid,
            files,
        )
    }

    pub(crate) async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        self.hub.make(intent).await
    }

    /// The merge request that comes of an intent, and how many requests it cost.
    pub(crate) async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        self.hub.pull(intent).await
    }

    /// What became of merge requests, and how many requests it cost.
    pub(crate) async fn observe(&self, numbers: &[u64]) -> (Vec<ObservedPull>, u32) {
        let (key, intent) = (key("u-1"), self.intent("u-1", &DENY));
        let job = Job::new(&key, &intent);
        let observed = self.forge(&intent).observe(&job, numbers).await.unwrap();
        (observed, job.requests.load(Ordering::Relaxed))
    }

    fn forge(&self, intent: &Intent) -> std::sync::Arc<dyn Forge> {
        self.hub.forges.get(&intent.target).unwrap()
    }

    pub(crate) async fn failure(&self, intent: &Intent) -> ResponseError {
        self.hub.failure(intent).await
    }

    pub(crate) async fn expect(&self, intent: &Intent, kind: ErrorType, reason: &str) -> String {
        let error = self.failure(intent).await;
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (kind, reason),
            "{}",
            error.detail
        );
        assert!(
            error.detail.contains("ninsun-labs/") || error.detail.contains("nabu/"),
            "{}",
            error.detail
        );
        error.detail
    }

    /// Requests of these methods so far.
    pub(crate) fn count(&self, method: &str) -> usize {
        let requests = self.gitlab.requests();
        requests.iter().filter(|one| one.method == method).count()
    }
}

impl Drop for Bed {
    /// Whatever a test is about: every document that was sent keeps to GitLab's schema and limits.
    fn drop(&mut self) {
        let violations = self.gitlab.violations();
        assert!(
            std::thread::panicking() || violations.is_empty(),
            "{violations:?}"
        );
    }
}

pub(crate) fn target(base_url: &str, repository: &str) -> ForgeTarget {
    nabu_tests::intents::target(ProviderKind::GitlabToken, base_url, repository)
}
