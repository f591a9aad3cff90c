//! Changes as the hub decides them, and a hub's forges to make them with: for tests of forges, without a hub around.

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
use nabu_hub::forge::{Amended, Amending, ClosedPull, Closing, ForgeError, Job, Made, PullRequest};
use nabu_hub::response::ResponseError;
use prometheus_client::registry::Registry;

/// A file that every seeded repository has.
pub const BINDINGS: &str = "clusters/prod-eu/bindings.yaml";

/// Another one.
pub const OBSOLETE: &str = "clusters/prod-eu/obsolete.yaml";

/// The usual change: one file with another content.
pub const REVOKE: [(&str, Option<&str>); 1] = [(BINDINGS, Some("bindings: []\n"))];

/// The Secret that every target names.
pub fn credential() -> CredentialRef {
    CredentialRef {
        namespace: "ugallu-system".to_owned(),
        name: "forge-token".to_owned(),
    }
}

/// Puts these values into the Secret.
pub fn set_secret(credentials: &Credentials, values: &[(&str, &str)]) {
    let values = values
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let secret = Arc::new(Secret::new(values));
    credentials.replace(HashMap::from([(credential(), secret)]));
}

/// A repository of a forge at this address.
pub fn target(kind: ProviderKind, base_url: &str, repository: &str) -> ForgeTarget {
    ForgeTarget {
        kind,
        base_url: Some(base_url.to_owned()),
        repository: repository.to_owned(),
        credential: Some(credential()),
        installation_id: None,
        ca_bundle: None,
    }
}

/// The key of a response of the cluster `prod-eu`.
///
/// # Panics
/// If that is no UID.
pub fn key(uid: &str) -> ResponseKey {
    ResponseKey {
        cluster: "prod-eu".parse().expect("a cluster id"),
        uid: uid.parse().expect("a UID"),
    }
}

/// A change of these files against `main`; `None` deletes one.
pub fn intent(target: ForgeTarget, uid: &str, files: &[(&str, Option<&str>)]) -> Intent {
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
        group: None,
        branch,
        digest,
    }
}

/// A wish to close the pull request of this number, for the first time.
pub fn closing(number: Option<u64>) -> Closing<'static> {
    Closing {
        number,
        commit: None,
        comment: "Closed by Nabu: the EventResponse was deleted.",
        again: false,
        remove_branch: false,
        stays_open: false,
        group: None,
    }
}

/// The forges of a hub, with nothing else of a hub around them.
pub struct HubForges {
    /// What they authenticate with.
    pub credentials: Credentials,
    /// The forges.
    pub forges: Forges,
    /// Where their metrics are.
    pub registry: Registry,
}

impl HubForges {
    /// Forges whose Secret holds these values, with as much time as a busy machine needs.
    pub fn new(secret: &[(&str, &str)]) -> Self {
        nabu_common::tls::install_crypto_provider();
        let credentials = Credentials::default();
        set_secret(&credentials, secret);
        let mut registry = Registry::default();
        let timeouts = Timeouts {
            connect: Duration::from_secs(30),
            total: Duration::from_mins(2),
        };
        let metrics = ForgeMetrics::register(&mut registry);
        let forges = Forges::with_timeouts(credentials.clone(), metrics, timeouts);
        Self {
            credentials,
            forges,
            registry,
        }
    }

    /// Makes a change; with the number of requests that it cost.
    pub async fn make(&self, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
        make(&self.forges, intent).await
    }

    /// The pull request that comes of a change, and how many requests it cost.
    ///
    /// # Panics
    /// If there is none.
    pub async fn pull(&self, intent: &Intent) -> (PullRequest, u32) {
        let (made, requests) = self.make(intent).await;
        match made {
            Ok(Made::PullRequest(pull)) => (pull, requests),
            other => panic!("no pull request: {other:?}"),
        }
    }

    /// Closes the pull request of a change as the hub does; with the number of requests that it cost.
    pub async fn close(
        &self,
        intent: &Intent,
        closing: &Closing<'_>,
    ) -> (Result<Option<ClosedPull>, ForgeError>, u32) {
        let key = key(intent.branch.rsplit('/').next().unwrap_or_default());
        let job = Job::new(&key, intent);
        let result = match self.forges.get(&intent.target) {
            Ok(forge) => forge.close(&job, closing).await,
            Err(error) => Err(error),
        };
        (result, job.requests.load(Ordering::Relaxed))
    }

    /// Makes the pull request of a change show this one, as the hub does; with the number of requests that it cost.
    pub async fn amend(
        &self,
        intent: &Intent,
        amending: &Amending<'_>,
    ) -> (Result<Option<Amended>, ForgeError>, u32) {
        let key = key(intent.branch.rsplit('/').next().unwrap_or_default());
        let job = Job::new(&key, intent);
        let result = match self.forges.get(&intent.target) {
            Ok(forge) => forge.amend(&job, amending).await,
            Err(error) => Err(error),
        };
        (result, job.requests.load(Ordering::Relaxed))
    }

    /// The failure that comes of a change.
    ///
    /// # Panics
    /// If there is none.
    pub async fn failure(&self, intent: &Intent) -> ResponseError {
        failure(self.make(intent).await.0)
    }
}

/// Makes a change as the hub does after an attempt that was interrupted; with the number of requests that it cost.
pub async fn make_again(forges: &Forges, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
    let key = key(intent.branch.rsplit('/').next().unwrap_or_default());
    let job = Job::new(&key, intent).after_others(true);
    let result = match forges.get(&intent.target) {
        Ok(forge) => forge.make(&job).await,
        Err(error) => Err(error),
    };
    (result, job.requests.load(Ordering::Relaxed))
}

/// Makes a change as the hub does; with the number of requests that it cost.
pub async fn make(forges: &Forges, intent: &Intent) -> (Result<Made, ForgeError>, u32) {
    let uid = intent.branch.rsplit('/').next().unwrap_or_default();
    make_for(forges, uid, intent).await
}

/// The same for a branch whose name does not end with the UID.
pub async fn make_for(
    forges: &Forges,
    uid: &str,
    intent: &Intent,
) -> (Result<Made, ForgeError>, u32) {
    let key = key(uid);
    let job = Job::new(&key, intent);
    let result = match forges.get(&intent.target) {
        Ok(forge) => forge.make(&job).await,
        Err(error) => Err(error),
    };
    (result, job.requests.load(Ordering::Relaxed))
}

/// The typed failure of an attempt.
///
/// # Panics
/// If it did not fail, or only waits.
pub fn failure(made: Result<Made, ForgeError>) -> ResponseError {
    match made {
        Err(ForgeError::Failed(error)) => error,
        other => panic!("no failure: {other:?}"),
    }
}
