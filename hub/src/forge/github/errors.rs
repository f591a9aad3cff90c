//! What GitHub's words mean: one table, for GraphQL errors and for REST answers alike.
//!
//! Sources: GitHub's REST and GraphQL documentation of limits, rulesets and protected branches, and the texts that clients
//! quote in public issue threads. Texts change without notice; what no row knows is judged by its type or status.

use super::super::ForgeError;
use super::super::http::{Reply, failed};
use super::account::Account;
use super::graphql::GraphqlError;
use crate::response::ErrorType;

/// What a row makes of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The attempt failed.
    Failed(ErrorType),
    /// The response waits for people.
    Parked(ErrorType),
}

struct Row {
    /// Words of the message, in lower case.
    words: &'static str,
    outcome: Outcome,
    reason: &'static str,
    remedy: &'static str,
}

const fn row(
    words: &'static str,
    outcome: Outcome,
    reason: &'static str,
    remedy: &'static str,
) -> Row {
    Row {
        words,
        outcome,
        reason,
        remedy,
    }
}

use ErrorType::{Conflicting, Permanent, Transient, Unauthorized};
use Outcome::{Failed, Parked};

/// The first row whose words an error has says what it means.
const TABLE: &[Row] = &[
    row(
        "suspended",
        Parked(Unauthorized),
        "InstallationSuspended",
        "unsuspend the App's installation",
    ),
    row(
        "archived",
        Parked(Permanent),
        "RepositoryArchived",
        "unarchive the repository or change the route",
    ),
    row(
        "read-only",
        Parked(Permanent),
        "RepositoryArchived",
        "make the repository writable or change the route",
    ),
    row(
        "without `workflow`",
        Failed(Unauthorized),
        "WorkflowPermission",
        "give the App (or token) write access to workflows",
    ),
    row(
        "without `workflows` permission",
        Failed(Unauthorized),
        "WorkflowPermission",
        "give the App (or token) write access to workflows",
    ),
    row(
        "creations being restricted",
        Failed(Permanent),
        "RulesetForbids",
        "let the App bypass the ruleset, or exclude branches under branchPrefix from it",
    ),
    row(
        "repository rule violations",
        Failed(Permanent),
        "RulesetForbids",
        "let the App bypass the ruleset, or exclude branches under branchPrefix from it",
    ),
    row(
        "changes must be made through a pull request",
        Failed(Permanent),
        "RulesetForbids",
        "exclude branches under branchPrefix from the rule",
    ),
    row(
        "protected branch",
        Failed(Permanent),
        "RulesetForbids",
        "exclude branches under branchPrefix from the protection",
    ),
    row(
        "saml",
        Failed(Unauthorized),
        "PermissionDenied",
        "authorize the token for the organisation's single sign-on",
    ),
    row(
        "resource not accessible",
        Failed(Unauthorized),
        "PermissionDenied",
        "give the App (or token) write access to contents and pull requests of the repository",
    ),
    row(
        "must have push access",
        Failed(Unauthorized),
        "PermissionDenied",
        "give the token's owner write access to the repository",
    ),
    row(
        "could not resolve to a repository",
        Failed(Permanent),
        "RepositoryNotFound",
        "correct the route, or give the credential access",
    ),
    row(
        "is not a valid ref name",
        Failed(Permanent),
        "Rejected",
        "correct branchPrefix or branchTemplate of the route",
    ),
    row(
        "name already exists as a directory",
        Failed(Conflicting),
        "BranchTaken",
        "another branch uses this name as a folder; change branchPrefix or remove it",
    ),
    row(
        "cannot lock ref",
        Failed(Conflicting),
        "BranchTaken",
        "another branch has a name that this one would be a folder of, or the reverse; change branchPrefix or remove it",
    ),
    row(
        "something went wrong",
        Failed(Transient),
        "ForgeError",
        "it is tried again by itself; if it stays, see the forge's status page",
    ),
    row(
        "timeout",
        Failed(Transient),
        "ForgeError",
        "it is tried again by itself; if it stays, see the forge's status page",
    ),
];

impl Account {
    /// What an error of a document means.
    pub(super) fn explain(&self, error: &GraphqlError) -> ForgeError {
        let said = error.said();
        if let Some(row) = known(&said) {
            return self.meaning(row, &said);
        }
        let (kind, reason, remedy) = match error.kind.as_deref() {
            Some("NOT_FOUND") => (
                Permanent,
                "NotFound",
                "does the repository exist, and may the credential see it?",
            ),
            Some("FORBIDDEN" | "INSUFFICIENT_SCOPES") => (
                Unauthorized,
                "PermissionDenied",
                "give the App (or token) write access to contents and pull requests of the repository",
            ),
            Some("SERVICE_UNAVAILABLE" | "INTERNAL" | "LOADING") | None => (
                Transient,
                "ForgeError",
                "it is tried again by itself; if it stays, see the forge's status page",
            ),
            Some("STALE_DATA") => (Transient, "Behind", "the next attempt looks again"),
            Some(_) => (Permanent, "Rejected", "correct the route or the change"),
        };
        failed(kind, reason, self.detail(&said, remedy))
    }

    /// Something was there before us, and cannot be seen yet.
    pub(super) fn behind(&self, error: &GraphqlError) -> ForgeError {
        let detail = self.detail(&error.said(), "the next attempt looks again");
        failed(Transient, "Behind", detail)
    }

    /// What a REST answer that is no success means.
    pub(super) fn explain_reply(&self, reply: &Reply) -> ForgeError {
        match known(&reply.said()) {
            Some(row) => self.meaning(row, &reply.said()),
            None => reply.error(),
        }
    }

    fn meaning(&self, row: &Row, said: &str) -> ForgeError {
        let detail = self.detail(said, row.remedy);
        match row.outcome {
            Failed(kind) => failed(kind, row.reason, detail),
            Parked(kind) => ForgeError::parked(kind, row.reason, detail),
        }
    }

    fn detail(&self, said: &str, remedy: &str) -> String {
        format!("{} says {said:?}; {remedy}", self.place())
    }
}

fn known(said: &str) -> Option<&'static Row> {
    let said = said.to_ascii_lowercase();
    TABLE.iter().find(|row| said.contains(row.words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words_have_their_meaning() {
        for (said, outcome, reason) in [
            (
                "This installation has been suspended",
                Parked(Unauthorized),
                "InstallationSuspended",
            ),
            (
                "Repository was archived so is read-only.",
                Parked(Permanent),
                "RepositoryArchived",
            ),
            (
                "refusing to allow a GitHub App to create or update workflow `.github/workflows/a.yml` without `workflows` permission",
                Failed(Unauthorized),
                "WorkflowPermission",
            ),
            (
                "Repository rule violations found\n\nCannot create ref due to creations being restricted.",
                Failed(Permanent),
                "RulesetForbids",
            ),
            (
                "Changes must be made through a pull request.",
                Failed(Permanent),
                "RulesetForbids",
            ),
            (
                "Resource not accessible by integration",
                Failed(Unauthorized),
                "PermissionDenied",
            ),
            (
                "Something went wrong while executing your query.",
                Failed(Transient),
                "ForgeError",
            ),
        ] {
            let row = known(said).unwrap();
            assert_eq!((row.outcome, row.reason), (outcome, reason), "{said}");
        }
        assert!(known("Base ref must be a branch").is_none());
    }
}
