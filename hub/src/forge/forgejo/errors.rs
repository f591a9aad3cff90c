//! What the words of Forgejo and Gitea mean where they tell more than the status: one table.
//!
//! Sources: Gitea 1.26's `routers/api/v1/api.go`, `routers/api/v1/repo/file.go`, `routers/private/hook_pre_receive.go`,
//! `services/repository/files`, `services/pull` and `models/git/branch.go`; git itself. Texts change without notice.

use super::super::ForgeError;
use super::super::error_table::Outcome::{Failed, Parked};
use super::super::error_table::{Row, known, row};
use super::super::http::Reply;
use super::super::ours::{LINK, not_a_file};
use crate::response::ErrorType::{Conflicting, Permanent, Transient, Unauthorized};

/// What a protection asks for.
const PROTECTION: &str = "exclude branches under branchPrefix from the protection, or let the token's account push there";

/// The first row whose words an error has says what it means.
const TABLE: &[Row] = &[
    row(
        "is archived",
        Parked(Permanent),
        "RepositoryArchived",
        "unarchive the repository or change the route",
    ),
    row(
        "is not allowed to edit",
        Parked(Permanent),
        "RepositoryArchived",
        "it is archived, a mirror or broken; change that or the route",
    ),
    row(
        "required scope",
        Failed(Unauthorized),
        "PermissionDenied",
        "give the token the scopes write:repository and, for reviewers and labels, write:issue and read:organization",
    ),
    row(
        "prohibited from signing in",
        Failed(Unauthorized),
        "PermissionDenied",
        "let the token's account sign in",
    ),
    row(
        "user cannot commit to repo",
        Failed(Permanent),
        "RulesetForbids",
        PROTECTION,
    ),
    row(
        "protected branch",
        Failed(Permanent),
        "RulesetForbids",
        PROTECTION,
    ),
    row(
        "is protected",
        Failed(Permanent),
        "RulesetForbids",
        PROTECTION,
    ),
    row(
        "a symbolic link exists where",
        Failed(Permanent),
        "NotAFile",
        "create a new EventResponse that names a file",
    ),
    row(
        "a directory exists where",
        Failed(Permanent),
        "NotAFile",
        "create a new EventResponse that names a file",
    ),
    row(
        "a file exists where",
        Failed(Permanent),
        "Rejected",
        "a part of the path is a file; create a new EventResponse with another path",
    ),
    row(
        "broken git command argument",
        Failed(Permanent),
        "Rejected",
        "a path that begins with a dash is more than this server can write; create a new EventResponse with another path",
    ),
    row(
        "conflicts with existing branch",
        Failed(Conflicting),
        "BranchTaken",
        "another branch has a name that this one would be a folder of, or the reverse; change branchPrefix or remove it",
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
        "pre-receive",
        Failed(Permanent),
        "RulesetForbids",
        "a hook of the server refuses it; ask its administrators",
    ),
    row(
        "push is rejected",
        Failed(Permanent),
        "RulesetForbids",
        "a hook of the server refuses it; ask its administrators",
    ),
];

/// What an answer means: its words where they tell, else its status.
pub(super) fn explain(reply: &Reply, place: &str) -> ForgeError {
    let said = reply.message();
    let Some(row) = known(TABLE, said) else {
        return reply.error();
    };
    if row.reason != "NotAFile" {
        return row.meaning(place, said);
    }
    let what = if said.contains("link") {
        LINK
    } else {
        "a folder"
    };
    let path = reply.text_between("[path: ", "]").unwrap_or("a path");
    not_a_file(path, what, place)
}
