//! One request to a forge over HTTP, and what its failure means.
//!
//! A credential goes to the configured host only (no redirects), an answer is bounded in time and size, and nothing is
//! ever sent twice. Answers that mean the same on every forge become a [`ForgeError`] here; the rest is a [`Reply`] for
//! the forge that asked.

mod limit;
mod reply;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION};
use http::{Method, StatusCode};
use jiff::Timestamp;
use reqwest::redirect::Policy;
use secrecy::SecretString;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

pub(super) use self::limit::speaks_of_limit;
use self::limit::{is_limit, retry_after};
use self::reply::said;
pub(super) use self::reply::{Reply, failed};
use super::metrics::{ForgeMetrics, Operation};
use super::text::{error_message, one_line};
use super::witness::Witness;
use super::{ForgeError, Job};
use crate::change::ProviderKind;
use crate::response::ErrorType;

/// Longer answers are not read.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For the connection with its TLS handshake.
    pub connect: Duration,
    /// For everything, to the last byte of the answer.
    pub total: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            total: Duration::from_secs(20),
        }
    }
}

/// One client for each forge, by base URL and trusted certificates, so that routes share connections.
#[derive(Debug)]
pub(super) struct HttpClients {
    timeouts: Timeouts,
    clients: Mutex<HashMap<(String, Option<String>), reqwest::Client>>,
}

impl HttpClients {
    pub(super) fn new(timeouts: Timeouts) -> Self {
        Self {
            timeouts,
            clients: Mutex::default(),
        }
    }

    /// The client of a forge; an error if the certificates are unusable.
    pub(super) fn get(
        &self,
        base_url: &str,
        ca_bundle: Option<&str>,
    ) -> Result<reqwest::Client, ForgeError> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (base_url.to_owned(), ca_bundle.map(str::to_owned));
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = self.build(ca_bundle)?;
        clients.insert(key, client.clone());
        Ok(client)
    }

    fn build(&self, ca_bundle: Option<&str>) -> Result<reqwest::Client, ForgeError> {
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("nabu-hub/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.timeouts.connect)
            .timeout(self.timeouts.total)
            .redirect(Policy::none())
            .referer(false)
            .retry(reqwest::retry::never());
        if let Some(pem) = ca_bundle {
            let unusable = |detail: String| {
                failed(
                    ErrorType::Permanent,
                    "InvalidRoute",
                    format!("provider.caBundle is unusable: {detail}; give certificates in PEM"),
                )
            };
            let roots = reqwest::Certificate::from_pem_bundle(pem.as_bytes())
                .map_err(|e| unusable(cause(&e)))?;
            if roots.is_empty() {
                return Err(unusable("it holds no certificate".to_owned()));
            }
            builder = builder.tls_certs_merge(roots);
        }
        builder.build().map_err(|error| {
            let detail = format!(
                "no HTTP client can be made for the route: {}",
                cause(&error)
            );
            failed(ErrorType::Permanent, "InvalidRoute", detail)
        })
    }
}

/// How a request proves who sends it.
pub(super) struct Authorization {
    header: HeaderValue,
    token: SecretString,
}

impl Authorization {
    /// `Authorization: <scheme> <token>`; `None` if the token cannot stand in a header.
    pub(super) fn new(scheme: &str, token: &SecretString) -> Option<Self> {
        use secrecy::ExposeSecret as _;

        let mut header =
            HeaderValue::from_str(&format!("{scheme} {}", token.expose_secret())).ok()?;
        header.set_sensitive(true);
        Some(Self {
            header,
            token: token.clone(),
        })
    }

    /// Whether it is made of this token.
    pub(super) fn is_of(&self, token: &SecretString) -> bool {
        use secrecy::ExposeSecret as _;

        self.token.expose_secret() == token.expose_secret()
    }
}

/// A request without its credential.
pub(super) struct Call {
    /// What it is for.
    pub(super) operation: Operation,
    /// GET, POST, ….
    pub(super) method: Method,
    /// Where it goes.
    pub(super) url: Url,
    /// The JSON that it carries.
    pub(super) body: Option<Value>,
}

/// The way to one repository of a forge.
#[derive(Debug)]
pub(super) struct Http {
    client: reqwest::Client,
    kind: ProviderKind,
    place: String,
    metrics: ForgeMetrics,
    headers: &'static [(&'static str, &'static str)],
    witness: Option<Witness>,
}

impl Http {
    pub(super) fn new(
        client: reqwest::Client,
        kind: ProviderKind,
        repository: &str,
        base_url: &str,
        metrics: ForgeMetrics,
    ) -> Self {
        Self {
            client,
            kind,
            place: format!("{repository} at {base_url}"),
            metrics,
            headers: &[],
            witness: None,
        }
    }

    /// The same way, with somebody who notes what answers say of the credential.
    pub(super) fn witnessed(self, witness: Witness) -> Self {
        Self {
            witness: Some(witness),
            ..self
        }
    }

    /// The same way, with headers that every request carries.
    pub(super) fn with_headers(self, headers: &'static [(&'static str, &'static str)]) -> Self {
        Self { headers, ..self }
    }

    /// The repository and its forge, for texts.
    pub(super) fn place(&self) -> &str {
        &self.place
    }

    /// Sends a request once. An answer that says nothing about the forge as a whole, the credential as a whole or a
    /// limit is a [`Reply`], whatever its status.
    pub(super) async fn send(
        &self,
        job: &Job<'_>,
        auth: &Authorization,
        call: Call,
    ) -> Result<Reply, ForgeError> {
        job.count_request();
        let operation = call.operation;
        if operation.writes() {
            job.wrote.store(true, Ordering::Relaxed);
        }
        let begun = Instant::now();
        let answer = self.exchange(auth, call).await;
        let (result, answer) = match answer {
            Ok(answer) => {
                let label = status_label(answer.status);
                self.note(label, Some(&answer.headers));
                let reply = self.judge(answer);
                (label, reply.map(|reply| reply.to(auth.token.clone())))
            }
            Err(error) => {
                self.note(transport_label(&error), None);
                (transport_label(&error), Err(error))
            }
        };
        self.metrics
            .record(self.kind, operation, result, begun.elapsed());
        answer
    }

    fn note(&self, result: &'static str, headers: Option<&HeaderMap>) {
        if let Some(witness) = &self.witness {
            witness.note(result, headers, Timestamp::now());
        }
    }

    async fn exchange(&self, auth: &Authorization, call: Call) -> Result<Answer, ForgeError> {
        let mut request = self
            .client
            .request(call.method, call.url)
            .header(AUTHORIZATION, auth.header.clone());
        for (name, value) in self.headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = &call.body {
            request = request.json(body);
        }
        let mut response = request
            .send()
            .await
            .map_err(|error| self.transport(&error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| self.transport(&error))?
        {
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                let detail = format!(
                    "{} answered with more than {MAX_BODY_BYTES} bytes",
                    self.place
                );
                return Err(failed(ErrorType::Transient, "ForgeError", detail));
            }
            body.extend_from_slice(&chunk);
        }
        let message = if status.is_success() {
            String::new()
        } else {
            error_message(&body, &auth.token)
        };
        Ok(Answer {
            status,
            headers,
            body,
            message,
        })
    }

    /// What a request that got no answer means.
    fn transport(&self, error: &reqwest::Error) -> ForgeError {
        let (place, cause) = (&self.place, cause(error));
        if error.is_connect() {
            ForgeError::Unavailable {
                detail: format!("cannot connect to the forge of {place}: {cause}"),
            }
        } else if error.is_timeout() {
            let detail = format!(
                "no answer in time from the forge of {place}; whatever it did is looked up first"
            );
            failed(ErrorType::Transient, "Timeout", detail)
        } else if error.is_builder() {
            failed(
                ErrorType::Permanent,
                "InvalidRoute",
                format!("no request can be made for {place}: {cause}"),
            )
        } else {
            let detail = format!("the connection to the forge of {place} broke: {cause}");
            failed(ErrorType::Transient, "ConnectionLost", detail)
        }
    }

    fn judge(&self, answer: Answer) -> Result<Reply, ForgeError> {
        let Answer {
            status,
            headers,
            body,
            message,
        } = answer;
        let place = &self.place;
        let said = said(&message);
        if is_limit(status, &headers, &message) {
            let detail = format!("the forge of {place} limits our requests{said}");
            return Err(ForgeError::RateLimited {
                retry_after: retry_after(&headers),
                detail,
            });
        }
        match status.as_u16() {
            401 => {
                let detail = format!(
                    "the forge of {place} rejects the token{said}; is it expired or revoked?"
                );
                Err(failed(
                    ErrorType::Unauthorized,
                    "CredentialRejected",
                    detail,
                ))
            }
            502..=504 => Err(ForgeError::Unavailable {
                detail: format!("the forge of {place} answers {status}{said}"),
            }),
            300..=399 => {
                let to = headers
                    .get(LOCATION)
                    .and_then(|to| to.to_str().ok())
                    .map(one_line)
                    .unwrap_or_default();
                let detail = format!(
                    "{place} has moved to {to:?}; correct baseURL or repository in the route"
                );
                Err(failed(ErrorType::Permanent, "Moved", detail))
            }
            _ => Ok(Reply::new(status, body, message, place.clone()).timed(&headers)),
        }
    }
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    message: String,
}

/// The innermost cause, which is the one that helps; the outer ones only retell the address.
fn cause(error: &reqwest::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    one_line(&innermost.to_string())
}

const fn status_label(status: StatusCode) -> &'static str {
    match status.as_u16() {
        200..=299 => "ok",
        401 => "unauthorized",
        403 => "denied",
        404 => "not_found",
        409 => "conflict",
        429 => "rate_limited",
        502..=504 => "unavailable",
        500..=599 => "forge_error",
        _ => "rejected",
    }
}

fn transport_label(error: &ForgeError) -> &'static str {
    match error {
        ForgeError::Failed(error) if error.reason == "Timeout" => "timeout",
        ForgeError::Failed(_) => "broken",
        ForgeError::Unavailable { .. } | ForgeError::RateLimited { .. } | ForgeError::Parked(_) => {
            "unavailable"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_does_not_show_in_debug_output() {
        let token = SecretString::from("s3cret");
        let auth = Authorization::new("token", &token).unwrap();
        assert!(!format!("{:?}", auth.header).contains("s3cret"));
        assert!(Authorization::new("token", &SecretString::from("a\nb")).is_none());
    }
}
