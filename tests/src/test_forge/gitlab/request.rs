//! One request, taken apart: who asks, for which project, with what.

use serde_json::Value;

use super::answer::{Answer, Refusal, forbidden, not_found, refused, token_refused, unauthorized};
use super::model::{Project, Role, State, TokenState};

/// GitLab's default page, and its largest.
const PAGE: usize = 20;
const LARGEST_PAGE: usize = 100;

/// A request below `/api/v4`.
#[derive(Clone, Debug)]
pub(super) struct ApiRequest {
    pub(super) method: String,
    /// Segments of the path, unescaped one by one.
    pub(super) path: Vec<String>,
    pub(super) query: Vec<(String, String)>,
    pub(super) body: Value,
    pub(super) token: Option<String>,
    /// The address without the query, for links.
    pub(super) address: String,
}

impl ApiRequest {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.iter();
        pairs
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.body.get(name).and_then(Value::as_str)
    }

    /// GitLab takes words for truth values too.
    pub(super) fn flag(&self, name: &str) -> bool {
        match self.body.get(name) {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(text)) => text == "true",
            _ => false,
        }
    }

    pub(super) fn ids(&self, name: &str) -> Vec<u64> {
        let values = self.body.get(name).and_then(Value::as_array);
        values
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .filter(|id| *id > 0)
            .collect()
    }

    pub(super) fn is_read(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }

    /// The page of a list that was asked for, with GitLab's headers.
    pub(super) fn page(&self, all: Vec<Value>) -> Answer {
        let number = |name: &str| self.query(name).and_then(|text| text.parse::<usize>().ok());
        let size = number("per_page")
            .filter(|size| *size > 0)
            .unwrap_or(PAGE)
            .min(LARGEST_PAGE);
        let page = number("page").filter(|page| *page > 0).unwrap_or(1);
        let (total, pages) = (all.len(), all.len().div_ceil(size).max(1));
        let shown: Vec<Value> = all.into_iter().skip((page - 1) * size).take(size).collect();
        let next = (page < pages).then(|| page + 1);
        let link = |page: usize, relation: &str| {
            let mut query: Vec<String> = (self.query.iter())
                .filter(|(name, _)| name != "page" && name != "per_page")
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            query.push(format!("page={page}&per_page={size}"));
            format!("<{}?{}>; rel=\"{relation}\"", self.address, query.join("&"))
        };
        let mut links = Vec::new();
        links.extend((page > 1).then(|| link(page - 1, "prev")));
        links.extend(next.map(|next| link(next, "next")));
        links.extend([link(1, "first"), link(pages, "last")]);
        let text = |number: Option<usize>| number.map(|n| n.to_string()).unwrap_or_default();
        let mut answer = Answer::ok(Value::Array(shown));
        answer.headers = vec![
            ("x-total", total.to_string()),
            ("x-total-pages", pages.to_string()),
            ("x-page", page.to_string()),
            ("x-per-page", size.to_string()),
            ("x-next-page", text(next)),
            (
                "x-prev-page",
                text(page.checked_sub(1).filter(|page| *page > 0)),
            ),
            ("link", links.join(", ")),
        ];
        answer
    }
}

/// Who asks, after the token guard.
pub(super) fn caller(state: &State, request: &ApiRequest) -> Result<u64, Refusal> {
    let known = request
        .token
        .as_ref()
        .and_then(|token| state.tokens.get(token));
    let token = known.ok_or_else(unauthorized)?;
    match token.state {
        TokenState::Active => {}
        TokenState::Revoked => {
            let text = "Token was revoked. You have to re-authorize from the user.";
            return Err(token_refused(401, "invalid_token", text, ""));
        }
        TokenState::Expired => {
            let text = "Token is expired. You can either do re-authorization or token refresh.";
            return Err(token_refused(401, "invalid_token", text, ""));
        }
    }
    let has = |scope: &str| token.scopes.iter().any(|one| one == scope);
    let reads = request.is_read() && has("read_api");
    if !reads && !has("api") {
        let text = "The request requires higher privileges than provided by the access token.";
        let scope = if request.is_read() {
            "api read_api"
        } else {
            "api"
        };
        return Err(token_refused(403, "insufficient_scope", text, scope));
    }
    if state.read_only && !request.is_read() {
        let text = "You cannot perform write operations on a read-only instance";
        return Err(refused(403, text));
    }
    Ok(token.user)
}

/// The project of a request, if the caller may see it; `find_project!` of `lib/api/helpers.rb`.
pub(super) fn project<'a>(
    state: &'a State,
    request: &ApiRequest,
    caller: u64,
    name: &str,
) -> Result<&'a Project, Refusal> {
    let by_name = |project: &&Project| project.path == name || project.id.to_string() == name;
    let Some(project) = state.projects.iter().find(by_name) else {
        return Err(moved(state, request, name));
    };
    if project.public || project.role(caller).is_some() {
        Ok(project)
    } else {
        Err(not_found("Project"))
    }
}

/// Reading from the path that a project had before is redirected to its id, writing to it refused.
fn moved(state: &State, request: &ApiRequest, name: &str) -> Refusal {
    let Some(id) = state.moved.get(name) else {
        return not_found("Project");
    };
    if !request.is_read() {
        return refused(405, "Non GET methods are not allowed for moved projects");
    }
    let escaped = name.replace('/', "%2F");
    let to = request
        .address
        .replace(&format!("/projects/{escaped}"), &format!("/projects/{id}"));
    let mut answer = Answer::new(
        302,
        Value::String(format!("This resource has been moved temporarily to {to}.")),
    );
    answer.headers = vec![("location", to)];
    Refusal::Said(answer)
}

/// Everything about code is for reporters (and for everyone in a public project).
pub(super) fn may_read_code(project: &Project, caller: u64) -> Result<(), Refusal> {
    if project.public || project.is_at_least(caller, Role::Reporter) {
        Ok(())
    } else {
        Err(forbidden(None))
    }
}
