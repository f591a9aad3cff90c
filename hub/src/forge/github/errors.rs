//! What GitHub's words mean: one table, for GraphQL errors and for REST answers alike.
//!
//! Sources: GitHub's REST and GraphQL documentation of limits, rulesets and protected branches, and the texts that clients
//! quote in public issue threads. Texts change without notice; what no row knows is judged by its type or status.

use super::super::ForgeError;
use super::super::error_table::Outcome::{Failed, Parked};
use super::super::error_table::{Row, detail, known, row};
use super::super::http::{Reply, failed};
use super::account::Account;
use super::graphql::GraphqlError;
use crate::response::ErrorType::{Conflicting, Permanent, Transient, Unauthorized};

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
        if let Some(row) = known(TABLE, &said) {
            return row.meaning(self.place(), &said);
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
        failed(kind, reason, detail(self.place(), &said, remedy))
    }

    /// Something was there before us, and cannot be seen yet.
    pub(super) fn behind(&self, error: &GraphqlError) -> ForgeError {
        let detail = detail(self.place(), &error.said(), "the next attempt looks again");
        failed(Transient, "Behind", detail)
    }

    /// What a REST answer that is no success means.
    pub(super) fn explain_reply(&self, reply: &Reply) -> ForgeError {
        match known(TABLE, reply.message()) {
            Some(row) => row.meaning(self.place(), reply.message()),
            None => reply.error(),
        }
    }
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
            let row = known(TABLE, said).unwrap();
            assert_eq!((row.outcome, row.reason), (outcome, reason), "{said}");
        }
        assert!(known(TABLE, "Base ref must be a branch").is_none());
    }
}
