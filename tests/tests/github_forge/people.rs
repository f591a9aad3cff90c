//! What people do with a pull request behind the hub's back, and forks.

use nabu_tests::test_forge::github::{File, PERSON, TEAM, TestGithub};
use serde_json::json;

use crate::client::{OPEN, graphql, lookup, open_variables};

#[tokio::test]
async fn a_fork_with_the_same_branch_name_is_another_repository() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let fork = github.fork(&repository).await.expect("a fork");
    fork.add_files("nabu/b", &[File::plain("fork.txt", "fork\n")])
        .expect("files");
    repository
        .add_pull("alice:nabu/b", "main", "From afar", "")
        .expect("a pull request");
    let found = lookup(&github, "nabu/b").await;
    let pull = &found["data"]["repository"]["pullRequests"]["nodes"][0];
    assert_eq!(found["data"]["repository"]["ref"], json!(null));
    assert_eq!(pull["isCrossRepository"], true);
    assert_eq!(pull["headRepository"]["nameWithOwner"], "alice/gitops");
    assert_eq!(pull["author"]["login"], PERSON);
    let done = graphql(&github, OPEN, open_variables(&found, "nabu/b")).await;
    assert_eq!(done.get("errors"), None, "{done:#}");
    assert_eq!(repository.pulls().expect("pull requests").len(), 2);
    fork.check().expect("git and the forge agree");
}

#[tokio::test]
async fn a_pull_request_follows_its_branch_until_it_ends() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    graphql(
        &github,
        OPEN,
        open_variables(&lookup(&github, "b").await, "b"),
    )
    .await;
    let tip = repository
        .add_files("b", &[File::plain("mine", "mine\n")])
        .expect("files");
    assert_eq!(repository.pulls().expect("pull requests")[0].head_oid, tip);
    let found = lookup(&github, "b").await;
    assert_eq!(
        found["data"]["repository"]["ref"]["target"]["author"]["user"]["login"],
        PERSON
    );

    repository.close(1).expect("a close");
    assert_eq!(
        repository.pulls().expect("pull requests")[0].state,
        "closed"
    );
    repository.reopen(1).expect("open again");
    let merge = repository.merge(1).expect("a merge");
    assert_eq!(repository.commit("main").expect("main").oid, merge);
    repository.delete_branch("b").expect("no branch");
    let found = lookup(&github, "b").await;
    let pull = &found["data"]["repository"]["pullRequests"]["nodes"][0];
    assert_eq!(
        (&pull["state"], &pull["merged"]),
        (&json!("MERGED"), &json!(true))
    );
    assert_eq!(pull["mergeCommit"]["oid"], json!(merge));

    repository
        .add_files("c", &[File::plain("c", "c\n")])
        .expect("files");
    repository
        .add_pull("c", "main", "Mine", "")
        .expect("a pull request");
    repository.delete_branch("c").expect("no branch");
    assert_eq!(
        repository
            .pulls()
            .expect("pull requests")
            .pop()
            .expect("one")
            .state,
        "closed"
    );
    repository.check().expect("git and the forge agree");
}

#[tokio::test]
async fn labels_reviewers_assignees_comments_and_the_rest_of_the_mutations() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    repository.add_label("security").expect("a label");
    graphql(
        &github,
        OPEN,
        open_variables(&lookup(&github, "b").await, "b"),
    )
    .await;
    let question = "query($person: String!, $team: String!) {
        repository(owner: \"ninsun-labs\", name: \"gitops\") {
            id
            label(name: \"Security\") { id name }
            labels(first: 5, query: \"sec\") { totalCount nodes { name } }
            assignableUsers(first: 5) { nodes { login } }
            pullRequest(number: 1) { id }
            ref(qualifiedName: \"b\") { id }
        }
        user(login: $person) { id }
        organization(login: \"ninsun-labs\") { team(slug: $team) { id } }
    }";
    let found = graphql(&github, question, json!({ "person": PERSON, "team": TEAM })).await;
    assert_eq!(found.get("errors"), None, "{found:#}");
    let data = &found["data"];
    let pull = &data["repository"]["pullRequest"]["id"];
    let done = graphql(&github, "mutation($pull: ID!, $label: ID!, $person: ID!, $team: ID!, $repository: ID!) {
        createLabel(input: {repositoryId: $repository, name: \"nabu\", color: \"ff0000\"}) { label { id name } }
        addLabelsToLabelable(input: {labelableId: $pull, labelIds: [$label]}) { clientMutationId }
        requestReviews(input: {pullRequestId: $pull, userIds: [$person], teamIds: [$team]}) { pullRequest { number reviewRequests(first: 5) { nodes { requestedReviewer { __typename ... on User { login } ... on Team { slug } } } } } }
        addAssigneesToAssignable(input: {assignableId: $pull, assigneeIds: [$person]}) { clientMutationId }
        addComment(input: {subjectId: $pull, body: \"Seen.\"}) { commentEdge { node { id } } }
        updatePullRequest(input: {pullRequestId: $pull, title: \"New\", body: \"Text\"}) { pullRequest { title } }
        convertPullRequestToDraft(input: {pullRequestId: $pull}) { pullRequest { isDraft } }
        enablePullRequestAutoMerge(input: {pullRequestId: $pull}) { clientMutationId }
        mergePullRequest(input: {pullRequestId: $pull}) { clientMutationId }
    }", json!({
        "pull": pull, "label": data["repository"]["label"]["id"], "person": data["user"]["id"],
        "team": data["organization"]["team"]["id"], "repository": data["repository"]["id"],
    })).await;
    let paths: Vec<_> = done["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|error| error["path"][0].clone())
        .collect();
    assert_eq!(
        paths,
        ["enablePullRequestAutoMerge", "mergePullRequest"],
        "{done:#}"
    );
    let seen = repository.pulls().expect("pull requests").remove(0);
    assert_eq!(
        (&*seen.title, &*seen.body, seen.draft),
        ("New", "Text", true)
    );
    assert_eq!(seen.labels, ["security"]);
    assert_eq!(seen.assignees, [PERSON]);
    assert_eq!(seen.reviewers, ["alice", "ninsun-labs/platform"]);
    assert_eq!(seen.comments, ["Seen."]);

    let done = graphql(
        &github,
        "mutation($pull: ID!, $ref: ID!) {
        closePullRequest(input: {pullRequestId: $pull}) { pullRequest { state closedAt } }
        reopenPullRequest(input: {pullRequestId: $pull}) { pullRequest { state } }
        deleteRef(input: {refId: $ref}) { clientMutationId }
    }",
        json!({ "pull": pull, "ref": data["repository"]["ref"]["id"] }),
    )
    .await;
    assert_eq!(done.get("errors"), None, "{done:#}");
    let found = graphql(
        &github,
        "query($ids: [ID!]!) { nodes(ids: $ids) { __typename ... on PullRequest { state } } }",
        json!({ "ids": [pull] }),
    )
    .await;
    assert_eq!(
        found["data"]["nodes"],
        json!([{ "__typename": "PullRequest", "state": "CLOSED" }])
    );
    assert_eq!(github.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pull_request_needs_two_branches_that_differ() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    repository.add_branch("same", "main").expect("a branch");
    let id = lookup(&github, "x").await["data"]["repository"]["id"].clone();
    let document = "mutation($id: ID!, $head: String!) {
        createPullRequest(input: {repositoryId: $id, baseRefName: \"main\", headRefName: $head, title: \"t\"}) { pullRequest { id } }
    }";
    let same = graphql(&github, document, json!({ "id": id, "head": "same" })).await;
    assert_eq!(
        same["errors"][0]["message"],
        "No commits between main and same"
    );
    let gone = graphql(&github, document, json!({ "id": id, "head": "gone" })).await;
    assert_eq!(
        gone["errors"][0]["message"],
        "Head sha can't be blank, No commits between main and gone, Head ref must be a branch"
    );
}
