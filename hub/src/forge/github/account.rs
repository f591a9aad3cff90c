//! What all repositories share that one credential serves: the addresses, the authorization, the lookups that wait.

use http::Method;
use serde_json::Value;
use url::Url;

use super::super::http::{Authorization, Call, Http, Reply, failed};
use super::super::metrics::Operation;
use super::super::{ForgeError, Job};
use super::auth::Authority;
use super::queue::LookupQueue;
use crate::response::ErrorType;

/// What every request to GitHub carries: the media type and the version of the REST API that was read about.
const HEADERS: &[(&str, &str)] = &[
    ("accept", "application/vnd.github+json"),
    ("x-github-api-version", "2022-11-28"),
];

/// Where one GitHub is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    /// Of the REST API, with a slash at the end.
    pub(super) rest: Url,
    /// Of the GraphQL API.
    pub(super) graphql: Url,
    /// For people, without a slash at the end.
    pub(super) web: String,
}

impl Addresses {
    /// github.com, a host of GitHub Enterprise Cloud with data residency (`….ghe.com`), or GitHub Enterprise Server.
    ///
    /// # Errors
    /// If the base URL is no web address.
    pub(super) fn new(base_url: Option<&str>) -> Result<Self, ForgeError> {
        let base = base_url
            .unwrap_or("https://github.com")
            .trim_end_matches('/');
        let invalid = || {
            let detail = format!("provider.baseURL {base:?} is no http(s) address without a user");
            failed(ErrorType::Permanent, "InvalidRoute", detail)
        };
        let url = Url::parse(base)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https") && url.username().is_empty())
            .ok_or_else(invalid)?;
        let host = url.host_str().ok_or_else(invalid)?;
        let (rest, graphql) = if host == "github.com" || host.ends_with(".ghe.com") {
            let api = format!("{}://api.{host}", url.scheme());
            (format!("{api}/"), format!("{api}/graphql"))
        } else {
            // https://docs.github.com/en/enterprise-server/rest: both lie below /api of the instance.
            let instance = base.trim_end_matches("/api/v3");
            (
                format!("{instance}/api/v3/"),
                format!("{instance}/api/graphql"),
            )
        };
        Ok(Self {
            rest: Url::parse(&rest).map_err(|_| invalid())?,
            graphql: Url::parse(&graphql).map_err(|_| invalid())?,
            web: base.trim_end_matches("/api/v3").to_owned(),
        })
    }
}

/// One credential of one GitHub.
#[derive(Debug)]
pub(in super::super) struct Account {
    addresses: Addresses,
    http: Http,
    authority: Authority,
    lookups: LookupQueue,
}

impl Account {
    pub(super) fn new(addresses: Addresses, http: Http, authority: Authority) -> Self {
        Self {
            addresses,
            http: http.with_headers(HEADERS),
            authority,
            lookups: LookupQueue::default(),
        }
    }

    pub(super) fn graphql_url(&self) -> &Url {
        &self.addresses.graphql
    }

    pub(super) fn web(&self) -> &str {
        &self.addresses.web
    }

    /// GitHub and the credential, for texts.
    pub(super) fn place(&self) -> &str {
        self.http.place()
    }

    /// Namespace and name of the Secret, for texts.
    pub(super) fn secret_name(&self) -> String {
        self.authority.name()
    }

    pub(super) fn lookups(&self) -> &LookupQueue {
        &self.lookups
    }

    /// A request to the REST API.
    pub(super) async fn rest(
        &self,
        job: &Job<'_>,
        operation: Operation,
        method: Method,
        segments: &[&str],
        body: Option<Value>,
    ) -> Result<Reply, ForgeError> {
        let mut url = self.addresses.rest.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty()
                .extend(segments.iter().flat_map(|part| part.split('/')));
        }
        let call = || Call {
            operation,
            method: method.clone(),
            url: url.clone(),
            body: body.clone(),
        };
        self.send(job, call).await
    }

    /// Sends a request. A token that GitHub does not take any more is replaced, once; a request that was refused for
    /// that has done nothing, so it may be sent again.
    pub(super) async fn send(
        &self,
        job: &Job<'_>,
        call: impl Fn() -> Call,
    ) -> Result<Reply, ForgeError> {
        let auth = self.authorization(job).await?;
        match self.http.send(job, &auth, call()).await {
            Err(ForgeError::Failed(error))
                if error.reason == "CredentialRejected" && self.authority.reject(&auth) =>
            {
                let auth = self.authorization(job).await?;
                self.http.send(job, &auth, call()).await
            }
            other => other,
        }
    }

    async fn authorization(&self, job: &Job<'_>) -> Result<Authorization, ForgeError> {
        self.authority
            .authorization(&self.http, &self.addresses.rest, job)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_github_has_its_addresses() {
        for (base_url, rest, graphql) in [
            (
                None,
                "https://api.github.com/",
                "https://api.github.com/graphql",
            ),
            (
                Some("https://github.com/"),
                "https://api.github.com/",
                "https://api.github.com/graphql",
            ),
            (
                Some("https://octocorp.ghe.com"),
                "https://api.octocorp.ghe.com/",
                "https://api.octocorp.ghe.com/graphql",
            ),
            (
                Some("https://git.example/"),
                "https://git.example/api/v3/",
                "https://git.example/api/graphql",
            ),
            (
                Some("https://git.example/api/v3"),
                "https://git.example/api/v3/",
                "https://git.example/api/graphql",
            ),
        ] {
            let addresses = Addresses::new(base_url).unwrap();
            assert_eq!(
                (addresses.rest.as_str(), addresses.graphql.as_str()),
                (rest, graphql)
            );
        }
        for base_url in ["git.example", "ftp://git.example", "https://me@git.example"] {
            assert!(Addresses::new(Some(base_url)).is_err(), "{base_url}");
        }
    }
}
