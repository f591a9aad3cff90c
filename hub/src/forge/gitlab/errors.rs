//! What GitLab's words mean where they tell more than the status: one table, for commits and merge requests alike.
//!
//! Sources: `lib/gitlab/git_access.rb`, `lib/gitlab/middleware/read_only/controller.rb`, `lib/api/api_guard.rb`,
//! `lib/api/helpers.rb`, `app/services/commits`, `ee/lib/ee/gitlab/checks` (push rules, locks of paths) and Gitaly. Texts
//! change without notice.

use super::super::ForgeError;
use super::super::error_table::Outcome::{Failed, Parked, Waits};
use super::super::error_table::{Row, known, row};
use super::super::http::Reply;
use crate::response::ErrorType::{Conflicting, Permanent, Transient, Unauthorized};

/// What a push rule asks for.
const RULES: &str =
    "correct the change or the template that it speaks of, or the project's push rules";

/// The first row whose words an error has says what it means.
const TABLE: &[Row] = &[
    row(
        "read-only",
        Waits,
        "ForgeUnavailable",
        "it is tried again by itself",
    ),
    row(
        "archived",
        Parked(Permanent),
        "RepositoryArchived",
        "unarchive the project or change the route",
    ),
    row(
        "moved projects",
        Failed(Permanent),
        "Moved",
        "it was renamed or moved; correct repository in the route",
    ),
    row(
        "higher privileges",
        Failed(Unauthorized),
        "PermissionDenied",
        "the token lacks the scope api; give it that",
    ),
    row(
        "protected branch",
        Failed(Permanent),
        "RulesetForbids",
        "exclude branches under branchPrefix from the protection",
    ),
    row(
        "does not follow the pattern",
        Failed(Permanent),
        "RulesetForbids",
        RULES,
    ),
    row(
        "prohibited by the pattern",
        Failed(Permanent),
        "RulesetForbids",
        RULES,
    ),
    row(
        "larger than the allowed size",
        Failed(Permanent),
        "RulesetForbids",
        RULES,
    ),
    row(
        "push blocked",
        Failed(Permanent),
        "RulesetForbids",
        "take what looks like a secret out of the change",
    ),
    row(
        "pre-receive",
        Failed(Permanent),
        "RulesetForbids",
        "a hook of the server refuses it; ask its administrators",
    ),
    row(
        "is locked by",
        Failed(Conflicting),
        "Conflict",
        "have the lock of the path taken away",
    ),
    row(
        "branch name is invalid",
        Failed(Permanent),
        "Rejected",
        "correct branchPrefix or branchTemplate of the route",
    ),
    row(
        "exists; cannot create",
        Failed(Conflicting),
        "BranchTaken",
        "another branch has a name that this one would be a folder of, or the reverse; change branchPrefix or remove it",
    ),
    row(
        "cannot lock ref",
        Failed(Transient),
        "BranchBusy",
        "the branch is being made at this moment; the next attempt looks again",
    ),
    row(
        "please refresh and try again",
        Failed(Transient),
        "BranchBusy",
        "the branch is being made at this moment; the next attempt looks again",
    ),
    row(
        "timed out",
        Failed(Transient),
        "ForgeError",
        "it is tried again by itself",
    ),
];

/// What an answer means, if its words tell.
pub(super) fn known_words(reply: &Reply, place: &str) -> Option<ForgeError> {
    let said = reply.message();
    known(TABLE, said).map(|row| row.meaning(place, said))
}
