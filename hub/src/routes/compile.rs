//! Checks one GitOpsResponderConfig and turns it into routes. Pure: a document gives the same routes everywhere.

mod fields;
mod group;
mod upstream;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use nabu_common::crd::{
    self, AutoMerge, GitOpsResponderConfigSpec, RouteProviderKind, RouteProviderSpec, RouteSpec,
};
use serde_json::Value;

use super::Route;
use super::matcher::Matcher;
use crate::change::{
    Author, CredentialRef, ForgeTarget, MergeMethod, ProviderKind, PullRequestOptions,
};
use crate::render::paths::PathRules;
use crate::render::{TemplateSources, Templates};
use fields::{base_url, branch, one_line_names, repository};

/// What every branch begins with, where a route says nothing.
pub const DEFAULT_BRANCH_PREFIX: &str = "nabu/";

/// A field of a document that cannot be used, or is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, for example `spec.routes[0].provider.repository`.
    pub path: String,
    /// What is wrong, and what to do.
    pub message: String,
}

impl Problem {
    fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// The routes of a document.
#[derive(Debug)]
pub struct Compiled {
    /// In order: `routes`, then `routing`, then `defaultRepo`.
    pub routes: Vec<Arc<Route>>,
    /// What is understood and not served.
    pub unsupported: Vec<Problem>,
}

/// The document that a route belongs to.
struct Scope<'a> {
    namespace: &'a str,
    name: &'a str,
    author: Option<Author>,
}

impl Scope<'_> {
    fn id(&self, route: &str) -> String {
        format!("{}/{}/{route}", self.namespace, self.name)
    }

    fn secret(&self, reference: &crd::SecretRef) -> CredentialRef {
        CredentialRef {
            namespace: self.namespace.to_owned(),
            name: reference.name.clone(),
        }
    }
}

/// Checks a document and compiles it.
///
/// # Errors
/// Every problem that was found, each with the path of its field.
pub fn compile(namespace: &str, name: &str, object: &Value) -> Result<Compiled, Vec<Problem>> {
    let config = crd::parse_config(object).map_err(|errors| {
        errors
            .into_iter()
            .map(|error| Problem::new(error.path, error.message))
            .collect::<Vec<_>>()
    })?;
    let spec = config.spec;
    let mut problems = Vec::new();
    let scope = Scope {
        namespace,
        name,
        author: author(&spec, &mut problems),
    };
    let mut routes = Vec::new();
    for (index, route) in spec.routes.iter().enumerate() {
        let path = format!("spec.routes[{index}]");
        let own_name = route.name.clone().unwrap_or_else(|| index.to_string());
        routes.extend(own_route(&scope, &path, &own_name, route, &mut problems));
    }
    let mut unsupported = upstream::compile(&scope, &spec, &mut routes, &mut problems);
    unsupported.extend(routes.iter().filter_map(not_served));
    unsupported.dedup();
    let mut seen = HashSet::new();
    for route in &routes {
        if !seen.insert(route.id.clone()) {
            problems.push(Problem::new(
                "spec.routes",
                format!("two routes have the id {}; name them apart", route.id),
            ));
        }
    }
    if problems.is_empty() {
        Ok(Compiled {
            routes: routes.into_iter().map(Arc::new).collect(),
            unsupported,
        })
    } else {
        Err(problems)
    }
}

/// What a route wants and its forge does not do.
fn not_served(route: &Route) -> Option<Problem> {
    let problem = |path: String, message: &str| Some(Problem::new(path, message));
    match route.target.kind {
        ProviderKind::ForgejoToken => {
            route.options.auto_merge?;
            let message = "autoMerge is not served on Forgejo and Gitea; people merge";
            problem(format!("route {}", route.id), message)
        }
        ProviderKind::GithubApp | ProviderKind::GithubToken => {
            route.author.as_ref()?;
            let message = "is not used on GitHub, whose commits are made and signed in the name of the App or of the token's owner";
            problem("spec.bot".to_owned(), message)
        }
        ProviderKind::GitlabToken => {
            if route.options.team_reviewers.is_empty() {
                return None;
            }
            let message = "teamReviewers are not served on GitLab, which asks people only; name them in reviewers";
            problem(format!("route {}", route.id), message)
        }
        ProviderKind::Noop => None,
    }
}

fn author(spec: &GitOpsResponderConfigSpec, problems: &mut Vec<Problem>) -> Option<Author> {
    let bot = spec.bot.as_ref()?;
    let clean = |text: &str| {
        !text.trim().is_empty() && !text.contains(|c: char| c.is_control() || "<>".contains(c))
    };
    for (field, text) in [("name", &bot.name), ("email", &bot.email)] {
        if !clean(text) {
            problems.push(Problem::new(
                format!("spec.bot.{field}"),
                "is empty or holds '<', '>' or a line break; git cannot take it as an author",
            ));
        }
    }
    Some(Author {
        name: bot.name.clone(),
        email: bot.email.clone(),
    })
}

fn own_route(
    scope: &Scope<'_>,
    path: &str,
    name: &str,
    spec: &RouteSpec,
    problems: &mut Vec<Problem>,
) -> Option<Route> {
    let before = problems.len();
    if name.is_empty() || name.contains(|c: char| c == '/' || c.is_control() || c.is_whitespace()) {
        problems.push(Problem::new(
            format!("{path}.name"),
            "is empty or holds '/' or white space; choose another name",
        ));
    }
    let target = target(scope, &format!("{path}.provider"), &spec.provider, problems);
    let base_branch = spec
        .provider
        .base_branch
        .clone()
        .filter(|branch| !branch.is_empty());
    if let Some(name) = &base_branch {
        branch(&format!("{path}.provider.baseBranch"), name, problems);
    }
    let branch_prefix = spec
        .branch_prefix
        .clone()
        .unwrap_or_else(|| DEFAULT_BRANCH_PREFIX.to_owned());
    if branch_prefix.is_empty() {
        problems.push(Problem::new(
            format!("{path}.branchPrefix"),
            "is empty; leave it out for nabu/",
        ));
    } else {
        branch(
            &format!("{path}.branchPrefix"),
            &format!("{branch_prefix}x"),
            problems,
        );
    }
    one_line_names(&format!("{path}.labels"), &spec.labels, problems);
    for (field, names) in [
        ("reviewers", &spec.reviewers),
        ("teamReviewers", &spec.team_reviewers),
        ("assignees", &spec.assignees),
    ] {
        one_line_names(&format!("{path}.{field}"), names, problems);
    }
    let sources = TemplateSources {
        title: spec.title_template.clone(),
        body: spec.pr_template.clone(),
        commit: spec.commit_template.clone(),
        branch: spec.branch_template.clone(),
        group_title: spec
            .group
            .as_ref()
            .and_then(|group| group.title_template.clone()),
    };
    let group = group::compile(path, spec, problems);
    let templates = templates(|field| format!("{path}.{field}"), &sources, problems);
    let paths = PathRules::new(&spec.allowed_paths, &spec.allow_protected_paths)
        .map_err(|reason| problems.push(Problem::new(format!("{path}.allowedPaths"), reason)));
    if problems.len() > before {
        return None;
    }
    Some(Route {
        id: scope.id(name),
        matcher: Matcher::new(&spec.matches),
        target,
        base_branch,
        templates: templates?,
        paths: paths.ok()?,
        branch_prefix,
        branch_override_allowed: spec.allow_branch_override,
        labels: spec.labels.clone(),
        reviewers: spec.reviewers.clone(),
        options: PullRequestOptions {
            team_reviewers: spec.team_reviewers.clone(),
            assignees: spec.assignees.clone(),
            auto_merge: spec.auto_merge.map(merge_method),
            delete_branch_after_merge: spec.delete_branch_after_merge,
            close_on_cancel: spec.close_on_cancel,
            update_existing: spec.update_existing,
            delete_branch_after_close: spec.delete_branch_after_close,
        },
        draft: spec.draft,
        author: scope.author.clone(),
        max_attempts: spec.max_attempts,
        group,
    })
}

const fn merge_method(auto_merge: AutoMerge) -> MergeMethod {
    match auto_merge {
        AutoMerge::Merge => MergeMethod::Merge,
        AutoMerge::Squash => MergeMethod::Squash,
        AutoMerge::Rebase => MergeMethod::Rebase,
    }
}

/// `path_of` gives the field that a template stands in.
fn templates(
    path_of: impl Fn(&str) -> String,
    sources: &TemplateSources,
    problems: &mut Vec<Problem>,
) -> Option<Templates> {
    Templates::compile(sources)
        .map_err(|error| {
            let place = error
                .line
                .map_or(String::new(), |line| format!("line {line}: "));
            problems.push(Problem::new(
                path_of(error.template),
                format!("{place}{}", error.message),
            ));
        })
        .ok()
}

fn target(
    scope: &Scope<'_>,
    path: &str,
    spec: &RouteProviderSpec,
    problems: &mut Vec<Problem>,
) -> ForgeTarget {
    let kind = match spec.kind {
        RouteProviderKind::GithubApp => ProviderKind::GithubApp,
        RouteProviderKind::GithubToken => ProviderKind::GithubToken,
        RouteProviderKind::GitlabToken => ProviderKind::GitlabToken,
        RouteProviderKind::ForgejoToken => ProviderKind::ForgejoToken,
        RouteProviderKind::Noop => ProviderKind::Noop,
    };
    let reference = match kind {
        ProviderKind::GithubApp => spec
            .app_credentials_ref
            .as_ref()
            .or(spec.credentials_ref.as_ref()),
        _ => spec
            .credentials_ref
            .as_ref()
            .or(spec.app_credentials_ref.as_ref()),
    };
    if reference.is_none() && kind != ProviderKind::Noop {
        let field = if kind == ProviderKind::GithubApp {
            "appCredentialsRef"
        } else {
            "credentialsRef"
        };
        problems.push(Problem::new(
            format!("{path}.{field}"),
            format!(
                "is missing; name a Secret in namespace {} that holds the credential",
                scope.namespace
            ),
        ));
    }
    repository(
        &format!("{path}.repository"),
        &spec.repository,
        kind,
        problems,
    );
    let base_url = base_url(
        &format!("{path}.baseURL"),
        spec.base_url.as_deref(),
        kind,
        problems,
    );
    ForgeTarget {
        kind,
        base_url,
        repository: spec.repository.clone(),
        credential: reference
            .filter(|_| kind != ProviderKind::Noop)
            .map(|reference| scope.secret(reference)),
        installation_id: spec.installation_id,
        ca_bundle: spec.ca_bundle.clone(),
    }
}

#[cfg(test)]
mod tests;
