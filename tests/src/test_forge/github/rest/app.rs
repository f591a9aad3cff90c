//! The App and its installation.

use std::sync::atomic::Ordering;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Answer, Request, created, ok};
use crate::test_forge::github::ORGANISATION;
use crate::test_forge::github::auth::Caller;
use crate::test_forge::github::error::{ApiError, ApiResult, Kind};
use crate::test_forge::github::server::Context;

/// What the App may do where it is installed.
fn permissions() -> Value {
    json!({ "contents": "write", "metadata": "read", "pull_requests": "write" })
}

/// Below `/app`.
pub(super) fn route(context: &Context, request: &Request, path: &[&str]) -> Answer {
    only_the_app(context)?;
    let app = &context.server.credentials.app;
    let of_installation = |id: &str| {
        if id.parse() == Ok(app.installation_id) {
            Ok(())
        } else {
            Err(ApiError::not_found("Not Found"))
        }
    };
    match (request.method.as_str(), path) {
        ("GET", []) => ok(json!({
            "id": app.id,
            "slug": app.slug,
            "client_id": app.client_id,
            "node_id": "A_kwDOAAAAAA",
            "name": app.slug,
            "owner": owner(context),
            "description": null,
            "external_url": "https://example.com",
            "html_url": format!("{}/apps/{}", context.server.url, app.slug),
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "permissions": permissions(),
            "events": [],
            "installations_count": 1,
        })),
        ("GET", ["installations"]) => ok(json!([installation(context)])),
        ("GET", ["installations", id]) => {
            of_installation(id)?;
            ok(installation(context))
        }
        ("POST", ["installations", id, "access_tokens"]) => {
            of_installation(id)?;
            let long = context.server.long_tokens.load(Ordering::Relaxed);
            let token = context.server.credentials.mint(long)?;
            created(json!({
                "token": token.token,
                "expires_at": token.expires_at.to_string(),
                "permissions": permissions(),
                "repository_selection": "all",
            }))
        }
        _ => Ok(None),
    }
}

/// The installation that a repository has.
pub(super) fn installation_of(context: &Context, name: &[&str]) -> Answer {
    only_the_app(context)?;
    let state = context.state();
    let bot = context.server.credentials.app.bot();
    let [owner, name] = name else {
        return Ok(None);
    };
    let found = state.repository(owner, name, true);
    if found.is_none_or(|repository| !repository.permissions.contains_key(&bot)) {
        return Err(ApiError::not_found("Not Found"));
    }
    ok(installation(context))
}

fn only_the_app(context: &Context) -> ApiResult<()> {
    match context.caller {
        Caller::App => Ok(()),
        _ => Err(ApiError::new(
            Kind::Unauthorized,
            "A JSON web token could not be decoded",
        )),
    }
}

fn owner(context: &Context) -> Value {
    let state = context.state();
    let account = state.account(ORGANISATION);
    account.map_or(Value::Null, |account| {
        super::shapes::account(context, account)
    })
}

fn installation(context: &Context) -> Value {
    let (url, app) = (&context.server.url, &context.server.credentials.app);
    let id = app.installation_id;
    let now = Timestamp::UNIX_EPOCH.to_string();
    json!({
        "id": id,
        "account": owner(context),
        "access_tokens_url": format!("{url}/api/v3/app/installations/{id}/access_tokens"),
        "repositories_url": format!("{url}/api/v3/installation/repositories"),
        "html_url": format!("{url}/organizations/{ORGANISATION}/settings/installations/{id}"),
        "app_id": app.id,
        "client_id": app.client_id,
        "target_id": 1001,
        "target_type": "Organization",
        "permissions": permissions(),
        "events": [],
        "created_at": now,
        "updated_at": now,
        "single_file_name": null,
        "repository_selection": "all",
        "app_slug": app.slug,
        "suspended_at": null,
        "suspended_by": null,
    })
}
