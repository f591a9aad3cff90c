//! A project on a server of its own, and the hub's way to it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nabu_common::ids::ResponseKey;
use nabu_hub::change::{
    CredentialRef, FileAction, FileChange, ForgeTarget, Intent, ProviderKind, PullRequestOptions,
    content_digest,
};
use nabu_hub::credentials::{Credentials, Secret};
use nabu_hub::forge::http::Timeouts;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{ForgeError, Job, Made, PullRequest};
use nabu_hub::response::{ErrorType, ResponseError};
use nabu_tests::test_forge::gitlab::{TestGitlab, TestProject};
use prometheus_client::registry::Registry;

pub(crate) const BINDINGS: &str = "clusters/prod-eu/bindings.yaml";
pub(crate) const OBSOLETE: &str = "clusters/prod-eu/obsolete.yaml";
pub(crate) const NEW: &str = "clusters/prod-eu/new/policy.yaml";

/// The usual change: a file that is not there yet.
pub(crate) const DENY: [(&str, Option<&str>); 1] = [(NEW, Some("deny: all\n"))];

pub(crate) struct Bed {
    pub(crate) gitlab: TestGitlab,
    pub(crate) project: TestProject,
    pub(crate) credentials: Credentials,
    pub(crate) forges: Forges,
    pub(crate) registry: Registry,
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::on(TestGitlab::start().await.unwrap())
    }

    pub(crate) fn on(gitlab: TestGitlab) -> Self {
        nabu_common::tls::install_crypto_provider();
        let project = gitlab.create_project("ninsun-labs/fleet/gitops").unwrap();
        let credentials = Credentials::default();
        set_token(&credentials, gitlab.token());
        let mut registry = Registry::default();
        let timeouts = Timeouts {
            connect: Duration::from_secs(2),
            total: Duration::from_secs(20),
        };
        let metrics = ForgeMetrics::register(&mut registry);
        let forges = Forges::with_timeouts(credentials.clone(), metrics, timeouts);
        Self {
            gitlab,
            project,
            credentials,
            forges,
            registry,
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
        make(&self.forges, intent).await
    }

    /// The merge request that comes of an intent, and how many requests it cost.
    pub(crate) async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        let (made, requests) = self.make(intent).await;
        match made.unwrap() {
            Made::PullRequest(pull) => (pull, requests),
            Made::NoActionNeeded { detail } => panic!("no merge request: {detail}"),
        }
    }

    pub(crate) async fn failure(&self, intent: &Intent) -> ResponseError {
        failure(self.make(intent).await.0)
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

    /// What a crash between commit and merge request leaves behind, if the file is written so.
    pub(crate) fn commit_only(&self, intent: &Intent, path: &str, contents: &str) {
        let (branch, message) = (&intent.branch, &intent.commit_message);
        self.project
            .add_commit_on_new_branch("main", branch, message, &[(path, contents)])
            .unwrap();
    }

    /// Requests of these methods so far.
    pub(crate) fn count(&self, method: &str) -> usize {
        let requests = self.gitlab.requests();
        requests.iter().filter(|one| one.method == method).count()
    }
}

fn credential() -> CredentialRef {
    CredentialRef {
        namespace: "ugallu-system".to_owned(),
        name: "forge-token".to_owned(),
    }
}

pub(crate) fn set_token(credentials: &Credentials, token: &str) {
    let secret = Secret::new([("token".to_owned(), token.to_owned())]);
    credentials.replace(HashMap::from([(credential(), Arc::new(secret))]));
}

pub(crate) fn target(base_url: &str, repository: &str) -> ForgeTarget {
    ForgeTarget {
        kind: ProviderKind::GitlabToken,
        base_url: Some(base_url.to_owned()),
        repository: repository.to_owned(),
        credential: Some(credential()),
        installation_id: None,
        ca_bundle: None,
    }
}

fn key(uid: &str) -> ResponseKey {
    ResponseKey {
        cluster: "prod-eu".parse().unwrap(),
        uid: uid.parse().unwrap(),
    }
}

pub(crate) fn intent(target: ForgeTarget, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
    let branch = format!("nabu/prod-eu/{uid}");
    let action = |contents: Option<&str>| match contents {
        Some(text) => FileAction::Write {
            contents: text.to_owned(),
        },
        None => FileAction::Delete,
    };
    let files: Vec<FileChange> = files
        .iter()
        .map(|(path, contents)| FileChange {
            path: (*path).to_owned(),
            action: action(*contents),
        })
        .collect();
    let digest = content_digest(&target.repository, Some("main"), &branch, &files);
    let trailers =
        format!("Nabu-Cluster: prod-eu\nNabu-Response: {uid}\nNabu-Security-Event: team-a/se-1");
    Intent {
        route: "ugallu-system/default/0".to_owned(),
        target,
        base_branch: Some("main".to_owned()),
        files,
        commit_message: format!("Revoke ops-admin\n\nIt was bound to a pod.\n\n{trailers}\n"),
        author: None,
        title: "Revoke ops-admin".to_owned(),
        body: format!("## Revoke\n\n{}", Intent::marker(&key(uid), &digest)),
        labels: Vec::new(),
        reviewers: Vec::new(),
        options: PullRequestOptions::default(),
        draft: false,
        branch,
        digest,
    }
}

/// Makes a change as the hub does; with the number of requests that it cost.
pub(crate) async fn make(forges: &Forges, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
    let key = key(intent.branch.rsplit('/').next().unwrap());
    let job = Job::new(&key, intent);
    let result = match forges.get(&intent.target) {
        Ok(forge) => forge.make(&job).await,
        Err(error) => Err(error),
    };
    (result, job.requests.load(Ordering::Relaxed))
}

pub(crate) fn failure(made: Result<Made, ForgeError>) -> ResponseError {
    match made {
        Err(ForgeError::Failed(error)) => error,
        other => panic!("no failure: {other:?}"),
    }
}
