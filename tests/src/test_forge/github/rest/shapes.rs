//! How things look in REST.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::test_forge::git::{Commit, Signature};
use crate::test_forge::github::ORGANISATION;
use crate::test_forge::github::error::ApiResult;
use crate::test_forge::github::model::{
    Account, AccountKind, Label, Permission, PullRequest, PullState, Repository, State, node_id,
};
use crate::test_forge::github::operations;
use crate::test_forge::github::server::Context;

/// A moment as GitHub writes it, to the second.
pub(super) fn time(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second())
        .unwrap_or(time)
        .to_string()
}

/// An account.
pub(super) fn account(context: &Context, account: &Account) -> Value {
    let (url, login) = (&context.server.url, &account.login);
    let api = format!("{url}/api/v3/users/{login}");
    json!({
        "login": login,
        "id": account.id,
        "node_id": account.node_id(),
        "avatar_url": format!("{url}/avatars/{login}"),
        "gravatar_id": "",
        "url": api,
        "html_url": format!("{url}/{login}"),
        "followers_url": format!("{api}/followers"),
        "following_url": format!("{api}/following{{/other_user}}"),
        "gists_url": format!("{api}/gists{{/gist_id}}"),
        "starred_url": format!("{api}/starred{{/owner}}{{/repo}}"),
        "subscriptions_url": format!("{api}/subscriptions"),
        "organizations_url": format!("{api}/orgs"),
        "repos_url": format!("{api}/repos"),
        "events_url": format!("{api}/events{{/privacy}}"),
        "received_events_url": format!("{api}/received_events"),
        "type": match account.kind {
            AccountKind::User => "User",
            AccountKind::Organization => "Organization",
            AccountKind::Bot => "Bot",
        },
        "site_admin": false,
    })
}

/// An account by its login.
pub(super) fn login(context: &Context, state: &State, login: &str) -> Value {
    let found = state.account(login);
    found.map_or(Value::Null, |found| account(context, found))
}

/// Addresses that a repository tells, below its own.
const LINKS: [(&str, &str); 36] = [
    ("archive", "{archive_format}{/ref}"),
    ("assignees", "assignees{/user}"),
    ("blobs", "git/blobs{/sha}"),
    ("branches", "branches{/branch}"),
    ("collaborators", "collaborators{/collaborator}"),
    ("comments", "comments{/number}"),
    ("commits", "commits{/sha}"),
    ("compare", "compare/{base}...{head}"),
    ("contents", "contents/{+path}"),
    ("contributors", "contributors"),
    ("deployments", "deployments"),
    ("downloads", "downloads"),
    ("events", "events"),
    ("forks", "forks"),
    ("git_commits", "git/commits{/sha}"),
    ("git_refs", "git/refs{/sha}"),
    ("git_tags", "git/tags{/sha}"),
    ("hooks", "hooks"),
    ("issue_comment", "issues/comments{/number}"),
    ("issue_events", "issues/events{/number}"),
    ("issues", "issues{/number}"),
    ("keys", "keys{/key_id}"),
    ("labels", "labels{/name}"),
    ("languages", "languages"),
    ("merges", "merges"),
    ("milestones", "milestones{/number}"),
    ("notifications", "notifications{?since,all,participating}"),
    ("pulls", "pulls{/number}"),
    ("releases", "releases{/id}"),
    ("stargazers", "stargazers"),
    ("statuses", "statuses/{sha}"),
    ("subscribers", "subscribers"),
    ("subscription", "subscription"),
    ("tags", "tags"),
    ("teams", "teams"),
    ("trees", "git/trees{/sha}"),
];

/// A repository.
pub(super) fn repository(context: &Context, state: &State, repository: &Repository) -> Value {
    let (url, name) = (&context.server.url, repository.full_name());
    let api = format!("{url}/api/v3/repos/{name}");
    let right = operations::permission(&context.caller, repository);
    let mut shape = json!({
        "id": repository.id,
        "node_id": repository.node_id(),
        "name": repository.name,
        "full_name": name,
        "private": !repository.public,
        "visibility": if repository.public { "public" } else { "private" },
        "owner": login(context, state, &repository.owner),
        "html_url": format!("{url}/{name}"),
        "description": null,
        "fork": repository.parent.is_some(),
        "url": api,
        "clone_url": format!("{url}/{name}.git"),
        "git_url": format!("{url}/{name}.git"),
        "ssh_url": format!("{url}/{name}.git"),
        "svn_url": format!("{url}/{name}"),
        "mirror_url": null,
        "homepage": null,
        "language": null,
        "license": null,
        "size": 0,
        "default_branch": repository.default_branch,
        "archived": repository.archived,
        "disabled": repository.disabled,
        "is_template": false,
        "has_issues": true,
        "allow_merge_commit": true,
        "allow_squash_merge": true,
        "allow_rebase_merge": true,
        "allow_auto_merge": repository.auto_merge_allowed,
        "delete_branch_on_merge": false,
        "created_at": "2026-01-01T00:00:00Z",
        "updated_at": "2026-01-01T00:00:00Z",
        "pushed_at": "2026-01-01T00:00:00Z",
        "permissions": {
            "admin": right == Some(Permission::Admin),
            "maintain": right == Some(Permission::Admin),
            "push": right >= Some(Permission::Write),
            "triage": right >= Some(Permission::Write),
            "pull": right.is_some(),
        },
    });
    for (name, path) in LINKS {
        shape[format!("{name}_url")] = format!("{api}/{path}").into();
    }
    let open = |pull: &&PullRequest| pull.state == PullState::Open;
    let open = repository.pulls.values().filter(open).count();
    for name in ["open_issues", "open_issues_count"] {
        shape[name] = open.into();
    }
    for name in [
        "forks",
        "forks_count",
        "watchers",
        "watchers_count",
        "stargazers_count",
        "network_count",
        "subscribers_count",
    ] {
        shape[name] = 0.into();
    }
    for name in [
        "has_downloads",
        "has_projects",
        "has_wiki",
        "has_pages",
        "has_discussions",
    ] {
        shape[name] = false.into();
    }
    shape
}

/// A label.
pub(super) fn label(context: &Context, repository: &Repository, label: &Label) -> Value {
    let (url, of) = (&context.server.url, repository.full_name());
    json!({
        "id": label.id,
        "node_id": node_id("LA", &[&repository.id.to_string(), &label.id.to_string()]),
        "url": format!("{url}/api/v3/repos/{of}/labels/{}", label.name),
        "name": label.name,
        "color": label.color,
        "default": false,
        "description": label.description,
    })
}

/// A commit as the git database has it.
pub(super) fn commit(api: &str, commit: &Commit) -> Value {
    let person = |signature: &Signature, seconds: i64| {
        let date = Timestamp::from_second(seconds)
            .map(time)
            .unwrap_or_default();
        json!({ "name": signature.name, "email": signature.email, "date": date })
    };
    let link =
        |oid: &str, what: &str| json!({ "sha": oid, "url": format!("{api}/git/{what}/{oid}") });
    let parents: Vec<Value> = commit
        .parents
        .iter()
        .map(|oid| {
            let mut parent = link(oid, "commits");
            parent["html_url"] = parent["url"].clone();
            parent
        })
        .collect();
    json!({
        "sha": commit.oid,
        "node_id": node_id("C", &["", &commit.oid]),
        "url": format!("{api}/git/commits/{}", commit.oid),
        "html_url": format!("{api}/git/commits/{}", commit.oid),
        "author": person(&commit.author, commit.authored_at),
        "committer": person(&commit.committer, commit.committed_at),
        "message": commit.message,
        "tree": link(&commit.tree, "trees"),
        "parents": parents,
        "verification": {
            "verified": false, "reason": "unsigned", "signature": null, "payload": null, "verified_at": null,
        },
    })
}

/// One side of a pull request.
fn side(context: &Context, state: &State, id: u64, branch: &str, oid: &str) -> Value {
    let of = state.repositories.get(&id);
    let owner = of.map(|of| of.owner.clone()).unwrap_or_default();
    json!({
        "label": format!("{owner}:{branch}"),
        "ref": branch,
        "sha": oid,
        "user": login(context, state, &owner),
        "repo": of.map(|of| repository(context, state, of)),
    })
}

/// A pull request.
pub(super) fn pull(context: &Context, state: &State, of: &Repository, pull: &PullRequest) -> Value {
    let (url, name, number) = (&context.server.url, of.full_name(), pull.number);
    let api = format!("{url}/api/v3/repos/{name}");
    let html = format!("{url}/{name}/pull/{number}");
    let merged = pull.state == PullState::Merged;
    let people = |logins: &[String]| -> Vec<Value> {
        logins
            .iter()
            .map(|one| login(context, state, one))
            .collect()
    };
    let labels = pull
        .labels
        .iter()
        .filter_map(|id| of.labels.iter().find(|label| label.id == *id));
    let teams = pull.team_reviewers.iter().map(|slug| team(context, slug));
    let mut shape = json!({
        "id": pull.id,
        "node_id": node_id("PR", &[&of.id.to_string(), &number.to_string()]),
        "number": number,
        "diff_url": format!("{html}.diff"),
        "patch_url": format!("{html}.patch"),
        "state": if pull.state == PullState::Open { "open" } else { "closed" },
        "locked": false,
        "title": pull.title,
        "body": pull.body,
        "user": login(context, state, &pull.author),
        "labels": labels.map(|one| label(context, of, one)).collect::<Vec<_>>(),
        "assignees": people(&pull.assignees),
        "assignee": pull.assignees.first().map(|one| login(context, state, one)),
        "milestone": null,
        "requested_reviewers": people(&pull.reviewers),
        "requested_teams": teams.collect::<Vec<_>>(),
        "draft": pull.draft,
        "created_at": time(pull.created_at),
        "updated_at": time(pull.updated_at),
        "closed_at": pull.closed_at.map(time),
        "merged_at": pull.closed_at.filter(|_| merged).map(time),
        "merge_commit_sha": pull.merge_commit,
        "merged": merged,
        "mergeable": (pull.state == PullState::Open).then_some(true),
        "mergeable_state": "clean",
        "merged_by": pull.merged_by.as_ref().map(|one| login(context, state, one)),
        "comments": pull.comments.len(),
        "maintainer_can_modify": pull.maintainer_can_modify,
        "author_association": "MEMBER",
        "auto_merge": pull.auto_merge.as_ref().map(|one| json!({
            "enabled_by": login(context, state, one), "merge_method": "merge",
            "commit_title": null, "commit_message": null,
        })),
        "head": side(context, state, pull.head_repository, &pull.head, &pull.head_oid),
        "base": side(context, state, of.id, &pull.base, &pull.base_oid),
        "_links": {},
    });
    let links = [
        ("self", "url", format!("{api}/pulls/{number}")),
        ("html", "html_url", html),
        ("issue", "issue_url", format!("{api}/issues/{number}")),
        (
            "comments",
            "comments_url",
            format!("{api}/issues/{number}/comments"),
        ),
        (
            "commits",
            "commits_url",
            format!("{api}/pulls/{number}/commits"),
        ),
        (
            "statuses",
            "statuses_url",
            format!("{api}/statuses/{}", pull.head_oid),
        ),
        (
            "review_comments",
            "review_comments_url",
            format!("{api}/pulls/{number}/comments"),
        ),
        (
            "review_comment",
            "review_comment_url",
            format!("{api}/pulls/comments{{/number}}"),
        ),
    ];
    for (link, name, address) in links {
        shape["_links"][link] = json!({ "href": address });
        shape[name] = address.into();
    }
    shape
}

/// What only the answer about one pull request has.
pub(super) fn add_figures(shape: &mut Value, of: &Repository, pull: &PullRequest) -> ApiResult<()> {
    let base = of.git.merge_base(&pull.base_oid, &pull.head_oid)?;
    let base = base.as_deref().unwrap_or(&pull.base_oid);
    let (files, added, removed) = of.git.diff_stat(base, &pull.head_oid)?;
    let commits = of.git.history(&pull.head_oid, Some(base))?.len();
    shape["changed_files"] = files.into();
    shape["additions"] = added.into();
    shape["deletions"] = removed.into();
    shape["commits"] = commits.into();
    shape["review_comments"] = 0.into();
    Ok(())
}

/// A pull request as the issue that it is as well.
pub(super) fn issue(
    context: &Context,
    state: &State,
    of: &Repository,
    pull: &PullRequest,
) -> Value {
    let mut shape = self::pull(context, state, of, pull);
    let api = format!("{}/api/v3/repos/{}", context.server.url, of.full_name());
    let own = format!("{api}/issues/{}", pull.number);
    shape["pull_request"] = json!({
        "url": shape["url"], "html_url": shape["html_url"],
        "diff_url": shape["diff_url"], "patch_url": shape["patch_url"],
    });
    shape["events_url"] = format!("{own}/events").into();
    shape["labels_url"] = format!("{own}/labels{{/name}}").into();
    shape["repository_url"] = api.into();
    shape["url"] = own.into();
    shape
}

fn team(context: &Context, slug: &str) -> Value {
    let url = format!(
        "{}/api/v3/organizations/{ORGANISATION}/team/{slug}",
        context.server.url
    );
    json!({
        "id": 1,
        "node_id": node_id("T", &[ORGANISATION, slug]),
        "name": slug,
        "slug": slug,
        "description": null,
        "privacy": "closed",
        "notification_setting": "notifications_enabled",
        "permission": "pull",
        "type": "organization",
        "url": url,
        "html_url": url,
        "members_url": format!("{url}/members{{/member}}"),
        "repositories_url": format!("{url}/repos"),
        "parent": null,
    })
}
