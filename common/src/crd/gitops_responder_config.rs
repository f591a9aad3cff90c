//! GitOpsResponderConfig: routing rules, in our form and in ugallu's; both compile to one route table.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::GoDuration;

/// Where changes go and how their pull requests look. `routes` come first, then `routing`, then `defaultRepo`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "security.ugallu.io",
    version = "v1alpha1",
    kind = "GitOpsResponderConfig",
    plural = "gitopsresponderconfigs",
    shortname = "gitopscfg",
    namespaced,
    status = "GitOpsResponderConfigStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Valid","type":"string","jsonPath":".status.conditions[?(@.type=='Valid')].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type=='Valid')].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsResponderConfigSpec {
    /// Rules in order; the first that matches a response is taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteSpec>,
    /// Forges by name, for `routing` and `defaultRepo`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderSpec>,
    /// The provider of repositories that name none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_provider: Option<String>,
    /// Where changes go that no rule matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_repo: Option<RepoSpec>,
    /// Author of commits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bot: Option<BotSpec>,
    /// How pull requests look that `routing` and `defaultRepo` give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_defaults: Option<ChangeDefaultsSpec>,
    /// Names of branches that `routing` and `defaultRepo` give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_strategy: Option<BranchStrategySpec>,
    /// What happens when the branch is not ours any more; `abort` is what is served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_behavior: Option<ConflictBehavior>,
    /// Rules by label and namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routing: Vec<RoutingRuleSpec>,
}

/// One rule: which responses, which repository, which text.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a field of its own in the document"
)]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteSpec {
    /// A name for people; the place in the list if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Which responses; all that are given must hold, and nothing given matches everything.
    #[serde(default, rename = "match")]
    pub matches: MatchSpec,
    /// The forge and the repository.
    pub provider: RouteProviderSpec,
    /// Template of the pull request's body (Handlebars, Markdown).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pr_template: Option<String>,
    /// Template of the pull request's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_template: Option<String>,
    /// Template of the commit message; trailers are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_template: Option<String>,
    /// Template of the branch name after `branchPrefix`; `<cluster-id>/<uid>` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_template: Option<String>,
    /// What every branch begins with; `nabu/` if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_prefix: Option<String>,
    /// Whether an EventResponse may name a branch outside `branchPrefix`.
    #[serde(default)]
    pub allow_branch_override: bool,
    /// Labels of the pull request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Reviewers, by user name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reviewers: Vec<String>,
    /// Teams that are asked for a review, by name inside of the repository's owner; GitHub, Forgejo and Gitea have teams.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub team_reviewers: Vec<String>,
    /// People that the pull request is assigned to, by user name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub assignees: Vec<String>,
    /// Whether the pull request is a draft.
    #[serde(default)]
    pub draft: bool,
    /// How the forge merges the pull request by itself once its own rules allow it; not at all if not given. GitHub's and
    /// GitLab's own means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_merge: Option<AutoMerge>,
    /// Whether the branch goes once the pull request is merged.
    #[serde(default)]
    pub delete_branch_after_merge: bool,
    /// Whether the pull request is closed, with a comment that says why, when its response is cancelled or its
    /// EventResponse is deleted.
    #[serde(default)]
    pub close_on_cancel: bool,
    /// Whether an EventResponse that asks for other content after its pull request was opened gets one more commit on it,
    /// and its text anew, as long as it is open and nobody else has put anything on its branch.
    #[serde(default)]
    pub update_existing: bool,
    /// Whether the branch goes as well when the hub closes the pull request.
    #[serde(default)]
    pub delete_branch_after_close: bool,
    /// Globs that every path of a change must match one of; everything if not given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_paths: Vec<String>,
    /// Globs of protected paths (.github/, CODEOWNERS, …) that a change may touch all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_protected_paths: Vec<String>,
    /// Attempts for responses of this route, instead of what their `EventResponses` ask for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Responses of one cluster within a window of time share one pull request; each has its own if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<GroupSpec>,
}

/// Which responses of a route share one pull request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GroupSpec {
    /// How long a window is, in whole seconds, from `1s` to `24h`. Windows follow each other without a gap from 1970 on;
    /// what counts is the `creationTimestamp` of the EventResponse.
    pub window: GoDuration,
    /// Responses in one pull request, from 2 to 50; 20 if not given. Further ones get their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_responses: Option<u32>,
    /// Template of the shared pull request's title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title_template: Option<String>,
}

/// How a pull request becomes part of its base branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoMerge {
    /// By a merge commit.
    Merge,
    /// As one commit.
    Squash,
    /// By its commits on top of the base branch.
    Rebase,
}

/// Which responses a route takes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MatchSpec {
    /// `spec.action.parameters.actionRef`, or the label `ugallu.io/action-ref`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_ref: Option<String>,
    /// Cluster ids; `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Labels of the cluster.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cluster_labels: BTreeMap<String, String>,
    /// `spec.responder.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub responder: Option<String>,
    /// Severities of the SecurityEvent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub severities: Vec<String>,
    /// Classes of the SecurityEvent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
    /// Types of the SecurityEvent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub event_types: Vec<String>,
    /// Namespaces of the SecurityEvent's subject; `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Labels of the EventResponse.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// The forge and the repository of a route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RouteProviderSpec {
    /// Forge software and authentication.
    pub kind: RouteProviderKind,
    /// `owner/name`; on GitLab also `group/sub-group/name`.
    pub repository: String,
    /// Address of a self-hosted forge.
    #[serde(default, rename = "baseURL", skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// The branch that pull requests are against; the repository's default branch if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_branch: Option<String>,
    /// Secret with the key of a GitHub App.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_credentials_ref: Option<SecretRef>,
    /// Secret with a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_ref: Option<SecretRef>,
    /// Installation of the GitHub App.
    #[serde(
        default,
        rename = "installationID",
        skip_serializing_if = "Option::is_none"
    )]
    pub installation_id: Option<u64>,
    /// Certificates (PEM) to trust beside the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
}

/// Forge software and authentication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteProviderKind {
    /// GitHub with an App.
    GithubApp,
    /// GitHub with a token.
    GithubToken,
    /// GitLab with a token.
    GitlabToken,
    /// Forgejo or Gitea with a token.
    ForgejoToken,
    /// Records the would-be pull request and calls nobody.
    #[default]
    Noop,
}

/// Names a Secret in the namespace of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretRef {
    /// `metadata.name` of the Secret.
    pub name: String,
}

/// A forge, in ugallu's form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProviderSpec {
    /// The name that repositories use.
    pub name: String,
    /// The forge software.
    pub r#type: ProviderType,
    /// Its host name.
    #[serde(default)]
    pub host: String,
    /// How to authenticate.
    pub auth: AuthSpec,
}

/// The forge software, in ugallu's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ProviderType {
    /// GitHub.
    Github,
    /// GitLab.
    Gitlab,
    /// Forgejo or Gitea.
    Forgejo,
}

/// How to authenticate, in ugallu's form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthSpec {
    /// The kind of credential.
    pub mode: AuthMode,
    /// The Secret that holds it.
    pub secret_ref: SecretRef,
}

/// The kind of credential, in ugallu's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AuthMode {
    /// A GitHub App.
    GithubApp,
    /// A GitLab project access token.
    ProjectAccessToken,
    /// An application's token.
    AppToken,
    /// A personal access token.
    Pat,
    /// An SSH deploy key; not served, because it cannot open pull requests.
    SshDeployKey,
}

/// A repository, in ugallu's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RepoSpec {
    /// A name of `providers`; `defaultProvider` if empty.
    #[serde(default)]
    pub provider: String,
    /// Owner or group.
    pub owner: String,
    /// Name.
    pub repo: String,
    /// The branch that pull requests are against.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
}

/// Author of commits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BotSpec {
    /// Name.
    pub name: String,
    /// Mail address.
    pub email: String,
    /// Not served: commits are signed by the forge, or not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_signing_key: Option<String>,
}

/// How pull requests look, in ugallu's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ChangeDefaultsSpec {
    /// Whether they are drafts.
    #[serde(default)]
    pub draft: bool,
    /// Their labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Their reviewers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require_reviewers: Vec<String>,
}

/// Names of branches, in ugallu's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchStrategySpec {
    /// Template of the branch name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub naming_template: Option<String>,
    /// Whether the branch is deleted after the merge.
    #[serde(default)]
    pub delete_after_merge: bool,
}

/// What happens when the branch is not ours any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConflictBehavior {
    /// The response fails and says so.
    #[default]
    Abort,
    /// Not served: nobody's work is overwritten.
    Force,
    /// Not served.
    Merge,
}

/// A rule by label and namespace, in ugallu's form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RoutingRuleSpec {
    /// Labels of the EventResponse.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Namespace of the subject; `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub match_namespace_pattern: Option<String>,
    /// Where changes go.
    pub repo: RepoSpec,
}

/// What the hub says of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitOpsResponderConfigStatus {
    /// The generation that was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Valid`, and `Supported` for what is understood but not served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
}
