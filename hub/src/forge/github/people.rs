//! Labels, reviewers, assignees and auto-merge, all in one document: welcome on a pull request, never a reason to lose it.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::super::metrics::Operation;
use super::super::{ForgeError, Job};
use super::account::Account;
use super::lookup::{Found, Pull};
use crate::change::MergeMethod;

/// What is put on a pull request, and who.
#[derive(Debug, Default)]
struct Extras {
    declarations: String,
    fields: String,
    variables: Map<String, Value>,
    /// What each alias is about, for people.
    about: Vec<(String, String)>,
    notes: Vec<String>,
}

impl Extras {
    fn add(&mut self, mutation: &str, kind: &str, input: Value, about: &str) {
        let alias = format!("x{}", self.about.len());
        let _ = write!(self.declarations, "${alias}: {kind}! ");
        let _ = write!(
            self.fields,
            "{alias}: {mutation}(input: ${alias}) {{ clientMutationId }} "
        );
        self.variables.insert(alias.clone(), input);
        self.about.push((alias, about.to_owned()));
    }
}

impl Account {
    /// Puts on a new pull request what the route wants. Gives back what could not be done, for people.
    pub(super) async fn adorn(
        &self,
        job: &Job<'_>,
        found: &Found,
        pull_id: &str,
        made_labels: &[(String, String)],
    ) -> Result<Vec<String>, ForgeError> {
        let mut extras = wanted(job, found, pull_id, made_labels);
        if extras.about.is_empty() {
            return Ok(extras.notes);
        }
        let document = format!(
            "mutation Adorn({}) {{ {}}}",
            extras.declarations, extras.fields
        );
        let variables = Value::Object(std::mem::take(&mut extras.variables));
        let answer = self
            .graphql(job, Operation::Adorn, &document, variables)
            .await?;
        for (alias, about) in &extras.about {
            if let Some(error) = answer.errors_of(alias).next() {
                extras.notes.push(format!("{about}: {}", error.said()));
            }
        }
        Ok(extras.notes)
    }
}

/// Whether an adopted pull request lacks a label: an attempt was interrupted before it got all that belongs to it.
pub(super) fn lacks_labels(job: &Job<'_>, pull: &Pull) -> bool {
    pull.state == "OPEN" && job.intent.labels.iter().any(|name| !pull.has_label(name))
}

/// Whether anything but labels belongs on the pull request. What is there already is not asked for twice by GitHub.
pub(super) fn wants_people(job: &Job<'_>, pull: &Pull) -> bool {
    let options = &job.intent.options;
    pull.state == "OPEN"
        && (!job.intent.reviewers.is_empty()
            || !options.team_reviewers.is_empty()
            || !options.assignees.is_empty()
            || options.auto_merge.is_some())
}

fn wanted(job: &Job<'_>, found: &Found, pull_id: &str, made_labels: &[(String, String)]) -> Extras {
    let mut extras = Extras::default();
    add_labels(&mut extras, job, found, pull_id, made_labels);
    add_people(&mut extras, job, found, pull_id);
    if let Some(method) = job.intent.options.auto_merge {
        let method = match method {
            MergeMethod::Merge => "MERGE",
            MergeMethod::Squash => "SQUASH",
            MergeMethod::Rebase => "REBASE",
        };
        let input = json!({ "pullRequestId": pull_id, "mergeMethod": method });
        let kind = "EnablePullRequestAutoMergeInput";
        extras.add("enablePullRequestAutoMerge", kind, input, "auto-merge");
    }
    extras
}

fn add_labels(
    extras: &mut Extras,
    job: &Job<'_>,
    found: &Found,
    pull_id: &str,
    made: &[(String, String)],
) {
    let known = found
        .repository
        .as_ref()
        .map(|repository| &repository.labels);
    let mut ids = Vec::new();
    for name in &job.intent.labels {
        let made = made
            .iter()
            .find(|(label, _)| label == name)
            .map(|(_, id)| id);
        match made.or_else(|| known?.get(name)) {
            Some(id) => ids.push(id),
            None => extras.notes.push(format!("label {name:?}: cannot be made")),
        }
    }
    if !ids.is_empty() {
        let input = json!({ "labelableId": pull_id, "labelIds": ids });
        let kind = "AddLabelsToLabelableInput";
        extras.add("addLabelsToLabelable", kind, input, "labels");
    }
}

/// Each by a mutation of their own, so that one whom GitHub refuses costs the others nothing.
fn add_people(extras: &mut Extras, job: &Job<'_>, found: &Found, pull_id: &str) {
    let options = &job.intent.options;
    let review = "RequestReviewsInput";
    for name in &job.intent.reviewers {
        let about = format!("reviewer {name:?}");
        if found
            .viewer
            .as_ref()
            .is_some_and(|me| me.eq_ignore_ascii_case(name))
        {
            extras.notes.push(format!("{about}: is the author"));
        } else if let Some(id) = found.users.get(name) {
            let input = json!({ "pullRequestId": pull_id, "userIds": [id], "union": true });
            extras.add("requestReviews", review, input, &about);
        } else {
            extras.notes.push(format!("{about}: no such user"));
        }
    }
    for name in &options.team_reviewers {
        let about = format!("team {name:?}");
        if let Some(id) = found.teams.get(name) {
            let input = json!({ "pullRequestId": pull_id, "teamIds": [id], "union": true });
            extras.add("requestReviews", review, input, &about);
        } else {
            let why = "no such team, or the credential may not see the organisation's members";
            extras.notes.push(format!("{about}: {why}"));
        }
    }
    for name in &options.assignees {
        let about = format!("assignee {name:?}");
        if let Some(id) = found.users.get(name) {
            let input = json!({ "assignableId": pull_id, "assigneeIds": [id] });
            let kind = "AddAssigneesToAssignableInput";
            extras.add("addAssigneesToAssignable", kind, input, &about);
        } else {
            extras.notes.push(format!("{about}: no such user"));
        }
    }
}
