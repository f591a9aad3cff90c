//! Decides the one next step of a response. Pure and synchronous: no clock, no network, no database.
//!
//! [`plan`] reads the durable record, the policy in force and the time, and names the step; [`crate::execute`] makes
//! it happen and leaves itself no choices. What a step's result means for the record is decided here as well
//! ([`progress`]), and how long to wait ([`retry`]). Planning again after success yields [`Step::Settled`].

pub mod follow_up;
#[cfg(test)]
mod follow_up_tests;
#[cfg(test)]
mod group_tests;
pub mod operate;
pub mod progress;
pub mod retry;
#[cfg(test)]
mod tests;
pub mod update;
#[cfg(test)]
mod update_tests;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::crd;
use serde_json::Value;

use crate::change::Intent;
use crate::render;
use crate::response::{Content, ErrorType, Response, ResponseError, SpecVersion};
use crate::routes::{Facts, Route, RouteTable};
use retry::RetryPolicy;

/// How long a response that no route takes waits for a configuration that cannot be read.
const CONFIG_WAIT: Duration = Duration::from_secs(10);

/// What the hub's operators have laid down, as it is in force now.
#[derive(Clone, Copy, Debug)]
pub struct Policy<'a> {
    /// The compiled routes.
    pub routes: &'a RouteTable,
    /// `--max-attempts` of the hub; 0 leaves it to the route and to the EventResponse.
    pub max_attempts: u32,
    /// What people call the response's cluster.
    pub cluster_name: &'a str,
    /// Labels that administrators gave the response's cluster.
    pub cluster_labels: &'a BTreeMap<String, String>,
}

/// The one next step of a response.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing is to be done until something new is observed.
    Settled,
    /// Nothing is to be done before this time.
    WaitUntil(Timestamp),
    /// The response ends here, without a call to a forge.
    Conclude(Conclusion),
    /// Store the intent, then make it true on its forge.
    Attempt(Box<Attempt>),
    /// Note that it begins, then close the pull request.
    Close(Box<Close>),
    /// Store its intent, then make the pull request show it.
    Update(Box<Update>),
    /// What is asked for by now cannot be shown: the pull request stays as it is.
    Keep(Box<Keep>),
}

/// A pull request that is to show another content, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The spec that asks for it.
    pub asked: SpecVersion,
    /// The change that it is to show.
    pub intent: Intent,
    /// Its number.
    pub number: u64,
    /// The last commit that the hub made for it, if it is known.
    pub commit: Option<String>,
    /// Paths that earlier contents wrote.
    pub leftovers: Vec<String>,
    /// Whether an earlier try may have done a part of it.
    pub again: bool,
}

/// A spec that comes to no change of the pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// The spec.
    pub asked: SpecVersion,
    /// Why.
    pub error: ResponseError,
}

/// A pull request that is to be closed, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Close {
    /// The change that it shows.
    pub intent: Intent,
    /// Its number, unless nobody knows whether there is one.
    pub number: Option<u64>,
    /// The commit that the hub made for it, if it is known.
    pub commit: Option<String>,
    /// What is said on it, in Markdown.
    pub comment: String,
    /// What is said instead if it is that of a group and others of the group are in it: then it stays open.
    pub comment_if_others_stay: String,
    /// Whether an earlier try may have done a part of it.
    pub again: bool,
    /// Whether it was said before that it is not wanted any more: others were left then.
    pub withdrawn: bool,
}

/// One attempt, decided.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The change; the stored one if there is one, so that no later edit of a route moves it.
    pub intent: Intent,
    /// How the attempt's failure is to be taken.
    pub retry: RetryPolicy,
    /// Why other routes did not take the response, if a route was looked for; see [`Decision::passed_over`].
    ///
    /// [`Decision::passed_over`]: crate::routes::decision::Decision::passed_over
    pub passed_over: String,
}

/// How a response ends without a forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// It cannot be served.
    Failed {
        /// Why.
        error: ResponseError,
        /// The route that matched, if one did.
        route: Option<String>,
        /// Whether the reason is that no route matched.
        routing_miss: bool,
    },
    /// It is not wanted any more.
    Cancelled {
        /// Why.
        reason: String,
    },
}

/// Names the next step of a response.
pub fn plan(response: &Response, policy: &Policy<'_>, now: Timestamp) -> Step {
    let progress = &response.progress;
    if progress.phase.is_terminal() {
        return follow_up::step(response, policy, now);
    }
    if let Some(reason) = &progress.cancel_requested {
        return Step::Conclude(Conclusion::Cancelled {
            reason: reason.clone(),
        });
    }
    if let Some(at) = progress.next_attempt_at.filter(|at| *at > now) {
        return Step::WaitUntil(at);
    }
    match decide(response, policy) {
        Ok(attempt) => Step::Attempt(Box::new(attempt)),
        Err(Hindrance::Conclusion(conclusion)) => Step::Conclude(conclusion),
        Err(Hindrance::ConfigIncomplete) => Step::WaitUntil(config_wait(now)),
    }
}

fn config_wait(now: Timestamp) -> Timestamp {
    now.saturating_add(CONFIG_WAIT).unwrap_or(Timestamp::MAX)
}

/// Why there is no attempt to make.
enum Hindrance {
    /// The response ends.
    Conclusion(Conclusion),
    /// No route takes it, but not every configuration could be read: it would be wrong to fail it for that.
    ConfigIncomplete,
}

impl From<Conclusion> for Hindrance {
    fn from(conclusion: Conclusion) -> Self {
        Self::Conclusion(conclusion)
    }
}

/// The attempt to make, or how the response ends instead.
fn decide(response: &Response, policy: &Policy<'_>) -> Result<Attempt, Hindrance> {
    let (event_response, security_event) = objects(response)?;
    let typed = crd::parse_event_response(event_response).map_err(|error| {
        unserveable(ResponseError::new(
            ErrorType::Permanent,
            "InvalidEventResponse",
            format!(
                "{}: {}; create a new EventResponse with a valid value",
                error.path, error.message
            ),
        ))
    })?;
    if let Some(intent) = &response.progress.intent {
        let route_limit = policy
            .routes
            .by_id(&intent.route)
            .and_then(|route| route.max_attempts);
        let retry =
            RetryPolicy::of(&typed, policy.max_attempts, route_limit).map_err(unserveable)?;
        return Ok(Attempt {
            intent: intent.clone(),
            retry,
            passed_over: String::new(),
        });
    }
    let route = find_route(response, policy, event_response, security_event)?;
    let routed = |error| Conclusion::Failed {
        error,
        route: Some(route.id.clone()),
        routing_miss: false,
    };
    let retry = RetryPolicy::of(&typed, policy.max_attempts, route.max_attempts).map_err(routed)?;
    let intent = render::intent(&render_input(
        response,
        policy,
        route,
        event_response,
        security_event,
    ))
    .map_err(routed)?;
    let facts = facts(response, policy, event_response, security_event);
    Ok(Attempt {
        intent,
        retry,
        passed_over: policy.routes.decide(&facts).passed_over(),
    })
}

fn unserveable(error: ResponseError) -> Conclusion {
    Conclusion::Failed {
        error,
        route: None,
        routing_miss: false,
    }
}

fn objects(response: &Response) -> Result<(&Value, Option<&Value>), Conclusion> {
    match &response.observation.content {
        Content::Objects {
            event_response,
            security_event,
        } => Ok((event_response, security_event.as_ref().ok())),
        Content::Unserveable { reason, message } => Err(unserveable(ResponseError::new(
            ErrorType::Permanent,
            reason,
            message,
        ))),
    }
}

fn facts<'f>(
    response: &'f Response,
    policy: &Policy<'f>,
    event_response: &'f Value,
    security_event: Option<&'f Value>,
) -> Facts<'f> {
    Facts {
        cluster: &response.key().cluster,
        cluster_labels: policy.cluster_labels,
        event_response,
        security_event,
    }
}

fn find_route<'p>(
    response: &Response,
    policy: &Policy<'p>,
    event_response: &Value,
    security_event: Option<&Value>,
) -> Result<&'p Route, Hindrance> {
    let facts = facts(response, policy, event_response, security_event);
    policy
        .routes
        .find(&facts)
        .map(AsRef::as_ref)
        .map_err(|miss| {
            if !miss.conclusive {
                return Hindrance::ConfigIncomplete;
            }
            Hindrance::Conclusion(Conclusion::Failed {
                error: ResponseError::new(
                    ErrorType::Permanent,
                    "NoMatchingRoute",
                    miss.to_string(),
                ),
                route: None,
                routing_miss: true,
            })
        })
}

fn render_input<'a>(
    response: &'a Response,
    policy: &Policy<'a>,
    route: &'a Route,
    event_response: &'a Value,
    security_event: Option<&'a Value>,
) -> render::RenderInput<'a> {
    let key = response.key();
    render::RenderInput {
        key,
        name: &response.observation.name,
        event_response,
        security_event,
        cluster: render::ClusterContext {
            id: key.cluster.as_ref(),
            name: policy.cluster_name,
            labels: policy.cluster_labels,
        },
        route: render::RouteContext {
            id: &route.id,
            target: &route.target,
            base_branch: route.base_branch.as_deref(),
            branch_prefix: &route.branch_prefix,
            branch_override_allowed: route.branch_override_allowed,
            labels: &route.labels,
            reviewers: &route.reviewers,
            draft: route.draft,
            options: &route.options,
            author: route.author.as_ref(),
            group: route.group,
        },
        templates: &route.templates,
        paths: &route.paths,
    }
}
