//! The route table: which responses go to which repository, and how their pull requests look.
//!
//! Documents come from a folder ([`folder`]) or from the hub's own cluster ([`watch`]); [`compile`] checks each and
//! turns both forms into [`Route`]s; [`handle`] keeps what is in force, the last good one of each document. Finding
//! the route of a response is pure ([`RouteTable::find`]) and done by `plan`.

pub mod compile;
pub mod decision;
pub mod folder;
pub mod handle;
pub mod matcher;
pub mod watch;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use nabu_common::ids::ClusterId;
use serde_json::Value;

use crate::change::{Author, ForgeTarget, PullRequestOptions};
use crate::group::GroupRule;
use crate::render::Templates;
use crate::render::paths::PathRules;
pub use handle::ConfigHandle;
use matcher::Matcher;

/// The label that names the action where `spec.action.parameters.actionRef` does not.
pub const ACTION_REF_LABEL: &str = "ugallu.io/action-ref";

/// One compiled rule.
#[derive(Debug)]
pub struct Route {
    /// `<namespace>/<config>/<route>`.
    pub id: String,
    /// Which responses it takes.
    pub matcher: Matcher,
    /// Where their changes go.
    pub target: ForgeTarget,
    /// The branch that pull requests are against; `None` is the repository's default branch.
    pub base_branch: Option<String>,
    /// The text of pull requests, commits and branch names.
    pub templates: Templates,
    /// Which paths a change may touch.
    pub paths: PathRules,
    /// What every branch begins with.
    pub branch_prefix: String,
    /// Whether an EventResponse may name a branch outside the prefix.
    pub branch_override_allowed: bool,
    /// Labels of pull requests.
    pub labels: Vec<String>,
    /// Reviewers of pull requests.
    pub reviewers: Vec<String>,
    /// Whether pull requests are drafts.
    pub draft: bool,
    /// What else is wanted of pull requests.
    pub options: PullRequestOptions,
    /// Author of commits.
    pub author: Option<Author>,
    /// Attempts for responses of this route, instead of what their EventResponses ask for.
    pub max_attempts: Option<u32>,
    /// Which of its responses share one pull request; `None` gives each its own.
    pub group: Option<GroupRule>,
}

/// What a matcher looks at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The cluster of the response.
    pub cluster: &'a ClusterId,
    /// The labels that administrators gave the cluster.
    pub cluster_labels: &'a BTreeMap<String, String>,
    /// The EventResponse.
    pub event_response: &'a Value,
    /// The SecurityEvent, if there is one.
    pub security_event: Option<&'a Value>,
}

impl<'a> Facts<'a> {
    /// The action that is asked for, by name.
    pub fn action_ref(&self) -> Option<&'a str> {
        let parameter = text(self.event_response, "/spec/action/parameters/actionRef");
        parameter.or_else(|| self.labels()?.get(ACTION_REF_LABEL)?.as_str())
    }

    /// The labels of the EventResponse.
    pub fn labels(&self) -> Option<&'a serde_json::Map<String, Value>> {
        self.event_response.pointer("/metadata/labels")?.as_object()
    }

    /// A label of the EventResponse.
    pub fn label(&self, key: &str) -> Option<&'a str> {
        self.labels()?.get(key)?.as_str()
    }

    /// A text of the SecurityEvent, by JSON pointer.
    pub fn of_event(&self, pointer: &str) -> Option<&'a str> {
        text(self.security_event?, pointer)
    }
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// The rules in force, in order.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: Vec<Arc<Route>>,
    by_id: HashMap<String, Arc<Route>>,
    complete: bool,
}

impl RouteTable {
    /// A table of rules in order. `complete` says that every document that should be in it is: if not, a miss may
    /// only mean that the right rule could not be read.
    pub fn new(routes: Vec<Arc<Route>>, complete: bool) -> Self {
        let by_id = routes
            .iter()
            .map(|route| (route.id.clone(), Arc::clone(route)))
            .collect();
        Self {
            routes,
            by_id,
            complete,
        }
    }

    /// The first rule that takes a response.
    ///
    /// # Errors
    /// If none does; the text says what was looked for and what to do.
    pub fn find(&self, facts: &Facts<'_>) -> Result<&Arc<Route>, Miss> {
        self.routes
            .iter()
            .find(|route| route.matcher.takes(facts))
            .ok_or_else(|| self.miss(facts))
    }

    /// Whether every document that should be in the table is.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// A rule by its id.
    pub fn by_id(&self, id: &str) -> Option<&Arc<Route>> {
        self.by_id.get(id)
    }

    /// The rules in order.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    fn miss(&self, facts: &Facts<'_>) -> Miss {
        let named = |text: Option<&str>| text.map(|text| text.chars().take(100).collect());
        Miss {
            cluster: facts.cluster.clone(),
            action_ref: named(facts.action_ref()),
            event_type: named(facts.of_event("/spec/type")),
            routes: self.routes.len(),
            conclusive: self.complete,
        }
    }
}

/// No rule takes a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Miss {
    cluster: ClusterId,
    action_ref: Option<String>,
    event_type: Option<String>,
    routes: usize,
    /// Whether every configuration could be read, so that it is certain that no rule takes it.
    pub conclusive: bool,
}

impl fmt::Display for Miss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cluster, routes, ..
        } = self;
        let quoted = |text: &Option<String>| {
            text.as_ref()
                .map_or("none".to_owned(), |text| format!("{text:?}"))
        };
        write!(
            f,
            "none of the hub's {routes} routes takes it (cluster {cluster}, actionRef {}, event type {}); \
            add a route to a GitOpsResponderConfig of the hub and create the EventResponse again",
            quoted(&self.action_ref),
            quoted(&self.event_type),
        )
    }
}
