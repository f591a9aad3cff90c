//! A client of the test forge with nothing of the hub in it.

use nabu_tests::test_forge::github::TestGithub;
use reqwest::{Client, Method, Response};
use serde_json::{Value, json};

/// Asks in GraphQL, as the bot.
pub(crate) async fn graphql(github: &TestGithub, query: &str, variables: Value) -> Value {
    let body = json!({ "query": query, "variables": variables });
    let answer = send(
        github,
        github.token(),
        Method::POST,
        "/api/graphql",
        Some(body),
    )
    .await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.json().await.expect("JSON")
}

/// Asks in REST, as the bot; gives status and body.
pub(crate) async fn rest(
    github: &TestGithub,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    rest_as(github, github.token(), method, path, body).await
}

/// Asks in REST with a token.
pub(crate) async fn rest_as(
    github: &TestGithub,
    token: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> (u16, Value) {
    let answer = send(github, token, method, &format!("/api/v3{path}"), body).await;
    let answer = answer.expect("an answer");
    let status = answer.status().as_u16();
    let text = answer.text().await.expect("a body");
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// One request.
pub(crate) async fn send(
    github: &TestGithub,
    token: &str,
    method: Method,
    path: &str,
    body: Option<Value>,
) -> reqwest::Result<Response> {
    nabu_common::tls::install_crypto_provider();
    let client = Client::builder()
        .no_proxy()
        .user_agent("nabu-tests")
        .build()?;
    let mut request = client
        .request(method, format!("{}{path}", github.url()))
        .bearer_auth(token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    request.send().await
}

/// What the hub asks before it changes anything.
pub(crate) const LOOKUP: &str = "
    query($owner: String!, $name: String!, $branch: String!, $ref: String!) {
        rateLimit { cost limit remaining resetAt }
        viewer { login }
        repository(owner: $owner, name: $name, followRenames: false) {
            ...Settings
            defaultBranchRef { name target { oid } }
            ref(qualifiedName: $ref) {
                name
                target { oid ... on Commit { message author { name email user { login } } parents(first: 2) { nodes { oid } } tree { oid } } }
            }
            object(expression: \"main:clusters/prod-eu/bindings.yaml\") { ... on Blob { oid byteSize isBinary isTruncated text } }
            folder: object(expression: \"main:clusters\") { __typename ... on Tree { entries { name mode type oid object { ... on Tree { entries { name path mode } } } } } }
            pullRequests(headRefName: $branch, first: 10, orderBy: {field: CREATED_AT, direction: DESC}) {
                totalCount
                nodes { id number url state merged isDraft body title headRefName headRefOid baseRefName isCrossRepository mergeCommit { oid } headRepository { id nameWithOwner } author { login } labels(first: 10) { nodes { name } } commits(last: 1) { nodes { commit { oid message } } } }
            }
        }
    }
    fragment Settings on Repository { id databaseId nameWithOwner isArchived isEmpty isLocked isDisabled isFork viewerPermission autoMergeAllowed url }
";

/// The three changes in one document.
pub(crate) const OPEN: &str = "
    mutation($ref: CreateRefInput!, $commit: CreateCommitOnBranchInput!, $pull: CreatePullRequestInput!) {
        createRef(input: $ref) { ref { name target { oid } } }
        createCommitOnBranch(input: $commit) { commit { oid url } }
        createPullRequest(input: $pull) { pullRequest { id number url headRefOid state } }
    }
";

/// Asks for a lookup of a branch.
pub(crate) async fn lookup(github: &TestGithub, branch: &str) -> Value {
    let variables = json!({
        "owner": "ninsun-labs", "name": "gitops", "branch": branch, "ref": format!("refs/heads/{branch}"),
    });
    graphql(github, LOOKUP, variables).await
}

/// Variables of [`OPEN`]: one new file and one that goes away.
pub(crate) fn open_variables(found: &Value, branch: &str) -> Value {
    let repository = &found["data"]["repository"];
    let tip = &repository["defaultBranchRef"]["target"]["oid"];
    json!({
        "ref": { "repositoryId": repository["id"], "name": format!("refs/heads/{branch}"), "oid": tip },
        "commit": {
            "branch": { "repositoryNameWithOwner": repository["nameWithOwner"], "branchName": branch },
            "message": { "headline": "Isolate a pod", "body": "Nabu-Cluster: c\nNabu-Response: r" },
            "fileChanges": {
                "additions": [{ "path": "clusters/prod-eu/deny \"ä\".yaml", "contents": "a2luZDogTmV0d29ya1BvbGljeQo=" }],
                "deletions": [{ "path": "clusters/prod-eu/obsolete.yaml" }],
            },
            "expectedHeadOid": tip,
        },
        "pull": {
            "repositoryId": repository["id"], "baseRefName": "main", "headRefName": branch,
            "title": "Isolate a pod", "body": "Because.",
        },
    })
}
