//! Makes a [`change::Intent`](crate::change::Intent) out of a matched route and hostile objects. Pure.
//!
//! [`intent`] reads what is asked for ([`request`]), checks paths ([`paths`]) and the branch ([`mod@branch`]), renders the
//! route's templates ([`template`]) with values that cannot act ([`markdown`]), and puts body and commit message together
//! (`body`, `trailers`). What patches change is added to the body later ([`diff`]), when the files are known. Which route matches, and what becomes of the intent, is decided elsewhere.

mod body;
pub mod branch;
mod check;
pub mod diff;
pub mod group;
mod helpers;
mod lookup;
pub mod markdown;
pub mod paths;
pub mod request;
mod rewrite;
pub mod template;
#[cfg(test)]
mod tests;
mod text;
mod trailers;

use std::collections::{BTreeMap, BTreeSet};

use handlebars::Context;
use nabu_common::ids::ResponseKey;
use serde_json::{Value, json};

use crate::change::{
    Author, FileAction, FileChange, ForgeTarget, Intent, PullRequestOptions, content_digest,
};
use crate::group::GroupRule;
use crate::response::{ErrorType, ResponseError};
pub use template::{TemplateError, TemplateSources, Templates};

const MAX_TITLE: usize = 250;

/// All that an intent is made of.
#[derive(Clone, Copy, Debug)]
pub struct RenderInput<'a> {
    /// Whose change it is.
    pub key: &'a ResponseKey,
    /// `metadata.name` of the EventResponse.
    pub name: &'a str,
    /// The EventResponse as its cluster has it.
    pub event_response: &'a Value,
    /// The SecurityEvent as its cluster has it, if there is one.
    pub security_event: Option<&'a Value>,
    /// The cluster.
    pub cluster: ClusterContext<'a>,
    /// The route that matched.
    pub route: RouteContext<'a>,
    /// The route's templates.
    pub templates: &'a Templates,
    /// The paths that the route allows.
    pub paths: &'a paths::PathRules,
}

/// What templates see of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterContext<'a> {
    /// The cluster id.
    pub id: &'a str,
    /// What people call it.
    pub name: &'a str,
    /// Labels that administrators gave it.
    pub labels: &'a BTreeMap<String, String>,
}

/// The route that matched.
#[derive(Clone, Copy, Debug)]
pub struct RouteContext<'a> {
    /// `<namespace>/<config>/<route>`.
    pub id: &'a str,
    /// Where the change goes.
    pub target: &'a ForgeTarget,
    /// The branch that the pull request is against; `None` is the repository's default.
    pub base_branch: Option<&'a str>,
    /// What every branch begins with.
    pub branch_prefix: &'a str,
    /// Whether an EventResponse may name a branch outside of the prefix.
    pub branch_override_allowed: bool,
    /// Labels of the pull request.
    pub labels: &'a [String],
    /// Reviewers by user name.
    pub reviewers: &'a [String],
    /// Whether the pull request is a draft.
    pub draft: bool,
    /// What else the route wants of the pull request.
    pub options: &'a PullRequestOptions,
    /// Author of the commit.
    pub author: Option<&'a Author>,
    /// Which of its responses share one pull request.
    pub group: Option<GroupRule>,
}

/// Decides the whole pull request.
pub fn intent(input: &RenderInput<'_>) -> Result<Intent, ResponseError> {
    let parameters = parameters(input);
    let files = files(input, parameters)?;
    let mut context = Context::from(context(input));
    let branch = branch(input, parameters, &context)?;
    if let Some(root) = context.data_mut().as_object_mut() {
        root.insert("Change".to_owned(), change_context(&branch, &files));
    }
    let group = group::of(input, parameters, &mut context)?;
    let title = title(input, parameters, &context)?;
    let commit_message = commit_message(input, parameters, &context, &title)?;
    let digest = content_digest(
        &input.route.target.repository,
        input.route.base_branch,
        &branch,
        &files,
    );
    let body = body(
        input,
        parameters,
        &context,
        &Intent::marker(input.key, &digest),
    )?;
    Ok(Intent {
        route: input.route.id.to_owned(),
        target: input.route.target.clone(),
        branch,
        base_branch: input.route.base_branch.map(ToOwned::to_owned),
        files,
        commit_message,
        author: input.route.author.cloned(),
        title,
        body,
        labels: input.route.labels.to_vec(),
        reviewers: input.route.reviewers.to_vec(),
        draft: input.route.draft,
        options: input.route.options.clone(),
        group,
        digest,
    })
}

fn parameters<'a>(input: &RenderInput<'a>) -> &'a Value {
    input
        .event_response
        .pointer("/spec/action/parameters")
        .unwrap_or(&Value::Null)
}

/// A parameter with some text in it.
fn text_parameter<'a>(parameters: &'a Value, name: &str) -> Option<&'a str> {
    parameters
        .get(name)?
        .as_str()
        .filter(|text| !text.trim().is_empty())
}

/// The files that are asked for, by path, each where it may be.
fn files(input: &RenderInput<'_>, parameters: &Value) -> Result<Vec<FileChange>, ResponseError> {
    let mut files = request::Request::parse(parameters)?.files;
    for file in &mut files {
        file.path = input.paths.check(&file.path)?;
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    let conflict =
        |detail: String| ResponseError::new(ErrorType::Permanent, "InvalidEventResponse", detail);
    if let Some(pair) = files.windows(2).find(|pair| pair[0].path == pair[1].path) {
        return Err(conflict(format!(
            "spec.action.parameters names the path {:?} twice; create a new EventResponse that names it once",
            pair[0].path
        )));
    }
    let written: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.action != FileAction::Delete)
        .map(|file| file.path.as_str())
        .collect();
    let folder_of = |path: &str, at: usize| written.get(&path[..at]).copied();
    for path in &written {
        if let Some(file) = path
            .match_indices('/')
            .find_map(|(at, _)| folder_of(path, at))
        {
            return Err(conflict(format!(
                "spec.action.parameters makes {file:?} both a file and the folder of {path:?}; create a new \
                 EventResponse with other paths"
            )));
        }
    }
    Ok(files)
}

/// What templates see, all but the change itself.
fn context(input: &RenderInput<'_>) -> Value {
    let route = &input.route;
    json!({
        "Source": {"SE": input.security_event, "ER": input.event_response},
        "Cluster": {"id": input.cluster.id, "name": input.cluster.name, "labels": input.cluster.labels},
        "Route": {
            "id": route.id,
            "name": route.id.rsplit('/').next(),
            "repository": route.target.repository,
            "provider": route.target.kind.as_str(),
            "baseURL": route.target.base_url,
            "baseBranch": route.base_branch,
            "branchPrefix": route.branch_prefix,
            "labels": route.labels,
            "reviewers": route.reviewers,
            "teamReviewers": route.options.team_reviewers,
            "assignees": route.options.assignees,
            "draft": route.draft,
        },
    })
}

fn change_context(branch: &str, files: &[FileChange]) -> Value {
    let files: Vec<Value> = files
        .iter()
        .map(|file| json!({"path": file.path, "delete": file.action == FileAction::Delete}))
        .collect();
    json!({"branch": branch, "files": files})
}

fn branch(
    input: &RenderInput<'_>,
    parameters: &Value,
    context: &Context,
) -> Result<String, ResponseError> {
    let template = input.templates.branch.as_ref();
    let rendered = template
        .map(|template| template.render(context))
        .transpose()?;
    branch::decide(branch::Wanted {
        key: input.key,
        prefix: input.route.branch_prefix,
        base: input.route.base_branch,
        requested: text_parameter(parameters, "branch"),
        rendered: rendered.as_ref().map(|output| output.text.as_str()),
        override_allowed: input.route.branch_override_allowed,
    })
}

fn title(
    input: &RenderInput<'_>,
    parameters: &Value,
    context: &Context,
) -> Result<String, ResponseError> {
    let template = &input.templates.title;
    let text = match text_parameter(parameters, "prTitle") {
        Some(asked) if !template.custom => markdown::neutralise(asked),
        _ => template.render(context)?.text,
    };
    let line = text::squeeze(&text);
    let visible = line.chars().any(|c| !text::is_hidden(c));
    let line = if visible {
        line
    } else {
        markdown::neutralise(&format!("Change for {}", input.name))
    };
    Ok(text::clip(&line, MAX_TITLE))
}

fn commit_message(
    input: &RenderInput<'_>,
    parameters: &Value,
    context: &Context,
    title: &str,
) -> Result<String, ResponseError> {
    let rendered = input.templates.commit.render(context)?.text;
    let (subject, body) = if input.templates.commit.custom {
        let whole = rendered.trim();
        let (subject, body) = whole.split_once('\n').unwrap_or((whole, ""));
        (subject.to_owned(), body.to_owned())
    } else {
        let asked = |name| text_parameter(parameters, name);
        let subject = asked("commitTitle").map(markdown::neutralise);
        let body = asked("commitBody").map(|body| markdown::neutralise_lines(body, ""));
        (subject.unwrap_or_default(), body.unwrap_or(rendered))
    };
    let subject = if subject.trim().is_empty() {
        title
    } else {
        &subject
    };
    let security_event = input
        .security_event
        .and_then(|event| event.pointer("/metadata/name"))
        .or_else(|| input.event_response.pointer("/spec/securityEventRef/name"))
        .and_then(Value::as_str);
    Ok(trailers::message(subject, &body, input.key, security_event))
}

fn body(
    input: &RenderInput<'_>,
    parameters: &Value,
    context: &Context,
    marker: &str,
) -> Result<String, ResponseError> {
    let template = &input.templates.body;
    let mut output = template.render(context)?;
    if let Some(asked) = text_parameter(parameters, "prBody").filter(|_| !template.custom) {
        output.text.truncate(output.text.trim_end().len());
        output.text.push_str("\n\n");
        output.text.push_str(&markdown::quote(asked));
    }
    Ok(body::assemble(&output.text, output.cut, marker))
}
