//! The form of ugallu: providers by name, routing rules by label and namespace, one default repository.

use std::collections::HashMap;

use nabu_common::crd::{
    AuthMode, ConflictBehavior, GitOpsResponderConfigSpec, MatchSpec, ProviderSpec, ProviderType,
    RepoSpec,
};

use super::fields::{base_url, branch, one_line_names, repository};
use super::{DEFAULT_BRANCH_PREFIX, Problem, Route, Scope, templates};
use crate::change::{ForgeTarget, ProviderKind, PullRequestOptions};
use crate::render::TemplateSources;
use crate::render::paths::PathRules;
use crate::routes::matcher::Matcher;

/// Appends the routes of this form; gives back what it asks for and is not served.
pub(super) fn compile(
    scope: &Scope<'_>,
    spec: &GitOpsResponderConfigSpec,
    routes: &mut Vec<Route>,
    problems: &mut Vec<Problem>,
) -> Vec<Problem> {
    let mut unsupported = not_served(spec);
    let form = Form {
        scope,
        spec,
        providers: providers(spec, problems),
    };
    for (index, rule) in spec.routing.iter().enumerate() {
        let matches = MatchSpec {
            labels: rule.match_labels.clone(),
            namespaces: rule.match_namespace_pattern.iter().cloned().collect(),
            ..MatchSpec::default()
        };
        let path = format!("spec.routing[{index}].repo");
        let name = format!("routing-{index}");
        routes.extend(form.route(
            &path,
            &name,
            &matches,
            &rule.repo,
            problems,
            &mut unsupported,
        ));
    }
    if let Some(repo) = &spec.default_repo {
        let everything = MatchSpec::default();
        routes.extend(form.route(
            "spec.defaultRepo",
            "default-repo",
            &everything,
            repo,
            problems,
            &mut unsupported,
        ));
    }
    unsupported
}

fn not_served(spec: &GitOpsResponderConfigSpec) -> Vec<Problem> {
    let mut unsupported = Vec::new();
    let mut note = |path: &str, message: &str| unsupported.push(Problem::new(path, message));
    match spec.conflict_behavior {
        None | Some(ConflictBehavior::Abort) => {}
        Some(ConflictBehavior::Force) => {
            note(
                "spec.conflictBehavior",
                "force is not served: nobody's work is overwritten; taken as abort",
            );
        }
        Some(ConflictBehavior::Merge) => note(
            "spec.conflictBehavior",
            "merge is not served; taken as abort",
        ),
    }
    if spec
        .bot
        .as_ref()
        .is_some_and(|bot| bot.ssh_signing_key.is_some())
    {
        note(
            "spec.bot.sshSigningKey",
            "is not served; commits are signed by the forge, or not at all",
        );
    }
    unsupported
}

fn providers<'a>(
    spec: &'a GitOpsResponderConfigSpec,
    problems: &mut Vec<Problem>,
) -> HashMap<&'a str, (usize, &'a ProviderSpec)> {
    let mut by_name = HashMap::new();
    for (index, provider) in spec.providers.iter().enumerate() {
        if by_name
            .insert(provider.name.as_str(), (index, provider))
            .is_some()
        {
            let message = format!(
                "{:?} is the name of an earlier provider; choose another",
                provider.name
            );
            problems.push(Problem::new(
                format!("spec.providers[{index}].name"),
                message,
            ));
        }
    }
    if let Some(name) = &spec.default_provider
        && !by_name.contains_key(name.as_str())
    {
        problems.push(Problem::new(
            "spec.defaultProvider",
            format!("{name:?} is no name in spec.providers"),
        ));
    }
    by_name
}

struct Form<'a> {
    scope: &'a Scope<'a>,
    spec: &'a GitOpsResponderConfigSpec,
    providers: HashMap<&'a str, (usize, &'a ProviderSpec)>,
}

impl Form<'_> {
    fn deletes_branches(&self) -> bool {
        let strategy = self.spec.branch_strategy.as_ref();
        strategy.is_some_and(|strategy| strategy.delete_after_merge)
    }

    fn route(
        &self,
        path: &str,
        name: &str,
        matches: &MatchSpec,
        repo: &RepoSpec,
        problems: &mut Vec<Problem>,
        unsupported: &mut Vec<Problem>,
    ) -> Option<Route> {
        let before = problems.len();
        let target = self.target(path, repo, problems, unsupported);
        let base_branch = repo.branch.clone().filter(|branch| !branch.is_empty());
        if let Some(name) = &base_branch {
            branch(&format!("{path}.branch"), name, problems);
        }
        let naming = self
            .spec
            .branch_strategy
            .as_ref()
            .and_then(|strategy| strategy.naming_template.as_deref());
        let (branch_prefix, branch_template) = split_naming(naming);
        branch(
            "spec.branchStrategy.namingTemplate",
            &format!("{branch_prefix}x"),
            problems,
        );
        let sources = TemplateSources {
            branch: branch_template,
            ..TemplateSources::default()
        };
        let templates = templates(
            |_| "spec.branchStrategy.namingTemplate".to_owned(),
            &sources,
            problems,
        );
        let look = self.spec.change_defaults.clone().unwrap_or_default();
        one_line_names("spec.changeDefaults.labels", &look.labels, problems);
        one_line_names(
            "spec.changeDefaults.requireReviewers",
            &look.require_reviewers,
            problems,
        );
        let paths = PathRules::new(&[], &[]).ok()?;
        if problems.len() > before {
            return None;
        }
        Some(Route {
            id: self.scope.id(name),
            matcher: Matcher::new(matches),
            target: target?,
            base_branch,
            templates: templates?,
            paths,
            branch_prefix,
            branch_override_allowed: false,
            labels: look.labels,
            reviewers: look.require_reviewers,
            draft: look.draft,
            options: PullRequestOptions {
                delete_branch_after_merge: self.deletes_branches(),
                ..PullRequestOptions::default()
            },
            author: self.scope.author.clone(),
            max_attempts: None,
            group: None,
        })
    }

    fn target(
        &self,
        path: &str,
        repo: &RepoSpec,
        problems: &mut Vec<Problem>,
        unsupported: &mut Vec<Problem>,
    ) -> Option<ForgeTarget> {
        let named = Some(repo.provider.as_str()).filter(|name| !name.is_empty());
        let Some(name) = named.or(self.spec.default_provider.as_deref()) else {
            problems.push(Problem::new(
                format!("{path}.provider"),
                "is missing, and there is no spec.defaultProvider",
            ));
            return None;
        };
        let Some((index, provider)) = self.providers.get(name) else {
            let message = format!("{name:?} is no name in spec.providers");
            problems.push(Problem::new(format!("{path}.provider"), message));
            return None;
        };
        let auth = format!("spec.providers[{index}].auth.mode");
        let kind = match (provider.r#type, provider.auth.mode) {
            (_, AuthMode::SshDeployKey) => {
                let message = format!(
                    "ssh-deploy-key is not served (it cannot open pull requests); {path} is left out"
                );
                unsupported.push(Problem::new(auth, message));
                return None;
            }
            (ProviderType::Github, AuthMode::GithubApp) => ProviderKind::GithubApp,
            (ProviderType::Github, AuthMode::Pat | AuthMode::AppToken) => ProviderKind::GithubToken,
            (
                ProviderType::Gitlab,
                AuthMode::ProjectAccessToken | AuthMode::Pat | AuthMode::AppToken,
            ) => ProviderKind::GitlabToken,
            (ProviderType::Forgejo, AuthMode::AppToken | AuthMode::Pat) => {
                ProviderKind::ForgejoToken
            }
            (forge, mode) => {
                problems.push(Problem::new(
                    auth,
                    format!("{forge:?} has no {mode:?}; use a token of that forge"),
                ));
                return None;
            }
        };
        let full_name = format!("{}/{}", repo.owner, repo.repo);
        repository(path, &full_name, kind, problems);
        let host = host_url(&provider.host, provider.r#type);
        let host_path = format!("spec.providers[{index}].host");
        Some(ForgeTarget {
            kind,
            base_url: base_url(&host_path, host.as_deref(), kind, problems),
            repository: full_name,
            credential: Some(self.scope.secret(&provider.auth.secret_ref)),
            installation_id: None,
            ca_bundle: None,
        })
    }
}

/// The base URL of a host; `None` for the public service.
fn host_url(host: &str, forge: ProviderType) -> Option<String> {
    let public = match forge {
        ProviderType::Github => "github.com",
        ProviderType::Gitlab => "gitlab.com",
        ProviderType::Forgejo => "",
    };
    if host.is_empty() || host == public {
        return None;
    }
    Some(if host.contains("://") {
        host.to_owned()
    } else {
        format!("https://{host}")
    })
}

/// The fixed part of a branch name, which becomes the prefix that no response leaves, and the template of the rest.
fn split_naming(template: Option<&str>) -> (String, Option<String>) {
    let Some(template) = template.filter(|template| !template.is_empty()) else {
        return (DEFAULT_BRANCH_PREFIX.to_owned(), None);
    };
    let fixed = &template[..template.find("{{").unwrap_or(template.len())];
    match fixed.rfind('/') {
        Some(at) => (
            template[..=at].to_owned(),
            Some(template[at + 1..].to_owned()),
        ),
        None => (DEFAULT_BRANCH_PREFIX.to_owned(), Some(template.to_owned())),
    }
}
