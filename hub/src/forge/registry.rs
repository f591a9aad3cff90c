//! The forge of a target: made once, then shared, so that connections and what is known of a repository are kept.
//!
//! No credential is kept here: a forge reads its token from [`Credentials`] at each attempt.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::forgejo::Forgejo;
use super::github::{self, Github, account::Account};
use super::gitlab::{self, Gitlab};
use super::http::{Http, HttpClients, Timeouts};
use super::metrics::ForgeMetrics;
use super::noop::Noop;
use super::witness::Sightings;
use super::{Forge, ForgeError};
use crate::change::{CredentialRef, ForgeTarget, ProviderKind};
use crate::credentials::Credentials;
use crate::execute::lanes::LaneId;
use crate::response::{ErrorType, ResponseError};

/// All forges of a hub; clones share them.
#[derive(Clone)]
pub struct Forges {
    inner: Arc<Inner>,
}

struct Inner {
    credentials: Credentials,
    metrics: ForgeMetrics,
    clients: HttpClients,
    sightings: Sightings,
    forges: Mutex<HashMap<ForgeTarget, Arc<dyn Forge>>>,
    /// By target without its repository.
    github_accounts: Mutex<HashMap<ForgeTarget, Arc<Account>>>,
}

impl std::fmt::Debug for Forges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forges").finish_non_exhaustive()
    }
}

impl Forges {
    /// Forges with the usual timeouts.
    pub fn new(credentials: Credentials, metrics: ForgeMetrics) -> Self {
        Self::with_timeouts(credentials, metrics, Timeouts::default())
    }

    /// Forges with timeouts of the caller's.
    pub fn with_timeouts(
        credentials: Credentials,
        metrics: ForgeMetrics,
        timeouts: Timeouts,
    ) -> Self {
        let clients = HttpClients::new(timeouts);
        Self {
            inner: Arc::new(Inner {
                credentials,
                metrics,
                clients,
                sightings: Sightings::default(),
                forges: Mutex::default(),
                github_accounts: Mutex::default(),
            }),
        }
    }

    /// What forges last said of each credential.
    pub fn sightings(&self) -> &Sightings {
        &self.inner.sightings
    }

    /// The forge of a target. Fails if no forge can serve it; whether it works shows only when it is asked.
    pub fn get(&self, target: &ForgeTarget) -> Result<Arc<dyn Forge>, ForgeError> {
        let mut forges = self
            .inner
            .forges
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(forge) = forges.get(target) {
            return Ok(Arc::clone(forge));
        }
        let forge = self.inner.make(target)?;
        forges.insert(target.clone(), Arc::clone(&forge));
        Ok(forge)
    }
}

impl Inner {
    fn make(&self, target: &ForgeTarget) -> Result<Arc<dyn Forge>, ForgeError> {
        match target.kind {
            ProviderKind::Noop => Ok(Arc::new(Noop)),
            ProviderKind::ForgejoToken => self.forgejo(target),
            ProviderKind::GithubApp | ProviderKind::GithubToken => self.github(target),
            ProviderKind::GitlabToken => self.gitlab(target),
        }
    }
    fn github(&self, target: &ForgeTarget) -> Result<Arc<dyn Forge>, ForgeError> {
        let mut accounts = self
            .github_accounts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let shared = ForgeTarget {
            repository: String::new(),
            ..target.clone()
        };
        let account = if let Some(account) = accounts.get(&shared) {
            Arc::clone(account)
        } else {
            let account = Arc::new(self.github_account(target)?);
            accounts.insert(shared, Arc::clone(&account));
            account
        };
        Ok(Arc::new(Github::new(account, &target.repository)?))
    }

    fn github_account(&self, target: &ForgeTarget) -> Result<Account, ForgeError> {
        let credential = credential(target)?;
        let place = target.base_url.as_deref().unwrap_or("https://github.com");
        let client = self.clients.get(place, target.ca_bundle.as_deref())?;
        let http = Http::new(client, target.kind, "GitHub", place, self.metrics.clone())
            .witnessed(self.sightings.witness(LaneId::of(target)));
        github::account(target, http, credential, self.credentials.clone())
    }

    fn forgejo(&self, target: &ForgeTarget) -> Result<Arc<dyn Forge>, ForgeError> {
        let Some(base_url) = target.base_url.as_deref() else {
            return Err(permanent(
                "InvalidRoute",
                format!(
                    "the route to {} has no provider.baseURL; forgejo-token needs the address of the forge",
                    target.repository
                ),
            ));
        };
        let (http, credential) = self.way(target, base_url)?;
        let forge = Forgejo::new(
            http,
            base_url,
            &target.repository,
            credential,
            self.credentials.clone(),
        )?;
        Ok(Arc::new(forge))
    }

    fn gitlab(&self, target: &ForgeTarget) -> Result<Arc<dyn Forge>, ForgeError> {
        let base_url = target.base_url.as_deref().unwrap_or(gitlab::PUBLIC);
        let (http, credential) = self.way(target, base_url)?;
        let forge = Gitlab::new(
            http,
            base_url,
            &target.repository,
            credential,
            self.credentials.clone(),
        )?;
        Ok(Arc::new(forge))
    }

    /// The way to a repository, and the name of the credential for it.
    fn way(
        &self,
        target: &ForgeTarget,
        base_url: &str,
    ) -> Result<(Http, CredentialRef), ForgeError> {
        let credential = credential(target)?;
        let client = self.clients.get(base_url, target.ca_bundle.as_deref())?;
        let http = Http::new(
            client,
            target.kind,
            &target.repository,
            base_url,
            self.metrics.clone(),
        )
        .witnessed(self.sightings.witness(LaneId::of(target)));
        Ok((http, credential))
    }
}

fn credential(target: &ForgeTarget) -> Result<CredentialRef, ForgeError> {
    target.credential.clone().ok_or_else(|| {
        let detail = format!(
            "the route to {} names no Secret; set provider.credentialsRef",
            target.repository
        );
        permanent("InvalidRoute", detail)
    })
}

fn permanent(reason: &str, detail: String) -> ForgeError {
    ForgeError::Failed(ResponseError::new(ErrorType::Permanent, reason, detail))
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    fn forges() -> Forges {
        nabu_common::tls::install_crypto_provider();
        Forges::new(
            Credentials::default(),
            ForgeMetrics::register(&mut Registry::default()),
        )
    }

    fn target(kind: ProviderKind) -> ForgeTarget {
        ForgeTarget {
            kind,
            base_url: None,
            repository: "o/r".to_owned(),
            credential: None,
            installation_id: None,
            ca_bundle: None,
        }
    }

    fn reason(result: Result<Arc<dyn Forge>, ForgeError>) -> String {
        match result {
            Err(ForgeError::Failed(error)) => error.reason,
            Err(other) => other.to_string(),
            Ok(_) => "a forge".to_owned(),
        }
    }

    #[test]
    fn a_target_always_gets_the_same_forge() {
        let forges = forges();
        let first = forges.get(&target(ProviderKind::Noop)).unwrap();
        assert!(Arc::ptr_eq(
            &first,
            &forges.get(&target(ProviderKind::Noop)).unwrap()
        ));
        let other = ForgeTarget {
            repository: "o/other".to_owned(),
            ..target(ProviderKind::Noop)
        };
        assert!(!Arc::ptr_eq(&first, &forges.get(&other).unwrap()));
    }

    #[test]
    fn a_github_route_needs_a_secret_and_a_repository() {
        for kind in [ProviderKind::GithubApp, ProviderKind::GithubToken] {
            let mut target = target(kind);
            assert_eq!(reason(forges().get(&target)), "InvalidRoute");
            target.credential = Some(CredentialRef {
                namespace: "n".to_owned(),
                name: "s".to_owned(),
            });
            assert_eq!(reason(forges().get(&target)), "a forge");
            for (base_url, repository) in [
                (None, "r"),
                (None, "o/r/x"),
                (None, "o/.."),
                (Some("ftp://git.example"), "o/r"),
                (Some("https://user@git.example"), "o/r"),
            ] {
                let target = ForgeTarget {
                    base_url: base_url.map(str::to_owned),
                    repository: repository.to_owned(),
                    ..target.clone()
                };
                assert_eq!(
                    reason(forges().get(&target)),
                    "InvalidRoute",
                    "{base_url:?} {repository}"
                );
            }
        }
    }

    #[test]
    fn a_gitlab_route_needs_a_secret_and_a_project_in_a_group_and_no_address() {
        let forges = forges();
        let mut target = target(ProviderKind::GitlabToken);
        assert_eq!(reason(forges.get(&target)), "InvalidRoute");
        target.credential = Some(CredentialRef {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
        });
        for (repository, expected) in [
            ("group/name", "a forge"),
            ("group/sub/group/name", "a forge"),
            ("name", "InvalidRoute"),
            ("group/../name", "InvalidRoute"),
            ("group//name", "InvalidRoute"),
        ] {
            target.repository = repository.to_owned();
            assert_eq!(reason(forges.get(&target)), expected, "{repository}");
        }
        target.repository = "group/name".to_owned();
        target.base_url = Some("https://git.example.org/gitlab".to_owned());
        assert_eq!(reason(forges.get(&target)), "a forge");
        target.base_url = Some("git.example.org".to_owned());
        assert_eq!(reason(forges.get(&target)), "InvalidRoute");
    }

    #[test]
    fn a_forgejo_route_needs_an_address_a_secret_and_a_repository() {
        let forges = forges();
        let mut target = target(ProviderKind::ForgejoToken);
        assert_eq!(reason(forges.get(&target)), "InvalidRoute");
        target.base_url = Some("https://forge.example".to_owned());
        assert_eq!(reason(forges.get(&target)), "InvalidRoute");
        target.credential = Some(CredentialRef {
            namespace: "n".to_owned(),
            name: "s".to_owned(),
        });
        assert_eq!(reason(forges.get(&target)), "a forge");
        for (base_url, repository, ca) in [
            ("ftp://forge.example", "o/r", None),
            ("forge.example", "o/r", None),
            ("https://forge.example", "r", None),
            ("https://forge.example", "o/r/x", None),
            ("https://forge.example", "o/..", None),
            ("https://user:word@forge.example", "o/r", None),
            ("https://forge.example", "o/r", Some("no PEM")),
        ] {
            target.base_url = Some(base_url.to_owned());
            target.repository = repository.to_owned();
            target.ca_bundle = ca.map(str::to_owned);
            assert_eq!(
                reason(forges.get(&target)),
                "InvalidRoute",
                "{base_url} {repository}"
            );
        }
    }
}
