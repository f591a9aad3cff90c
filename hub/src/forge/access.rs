//! What every forge over HTTP needs of its route: the address of the API, the token as it is now, addresses for people.

use url::Url;

use super::ForgeError;
use super::http::{Authorization, failed};
use crate::change::CredentialRef;
use crate::credentials::{Credentials, TOKEN_KEYS};
use crate::response::ErrorType;

/// The address of the API below the forge's base URL.
pub(super) fn api_root(
    base_url: &str,
    repository: &str,
    segments: [&str; 2],
) -> Result<Url, ForgeError> {
    Url::parse(base_url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.username().is_empty())
        .and_then(|mut url| {
            url.set_query(None);
            url.set_fragment(None);
            url.path_segments_mut()
                .ok()?
                .pop_if_empty()
                .extend(segments);
            Some(url)
        })
        .ok_or_else(|| {
            let detail = format!(
                "provider.baseURL of the route to {repository} is no http(s) address without a user"
            );
            failed(ErrorType::Permanent, "InvalidRoute", detail)
        })
}

/// The token as it is now, as the header of a request.
pub(super) fn authorization(
    credentials: &Credentials,
    credential: &CredentialRef,
    scheme: &str,
    place: &str,
) -> Result<Authorization, ForgeError> {
    let CredentialRef { namespace, name } = credential;
    let secret = credentials.get(credential);
    let token = secret
        .as_ref()
        .and_then(|secret| secret.token())
        .ok_or_else(|| {
            let what = if secret.is_some() {
                "holds no token"
            } else {
                "does not exist or cannot be read"
            };
            let detail = format!(
                "the Secret {namespace}/{name} {what}; it needs one of the keys {} for {place}",
                TOKEN_KEYS.join(", "),
            );
            failed(ErrorType::Unauthorized, "CredentialMissing", detail)
        })?;
    Authorization::new(scheme, token).ok_or_else(|| {
        let detail = format!(
            "the token in the Secret {namespace}/{name} holds characters that no token has"
        );
        failed(ErrorType::Unauthorized, "CredentialRejected", detail)
    })
}

/// What a forge gives as an address for people, as far as it is a web address.
pub(super) fn web_address(text: &str) -> Option<String> {
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.username().is_empty())
        .map(String::from)
}
