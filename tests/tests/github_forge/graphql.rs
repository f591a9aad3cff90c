//! Lookup, branch, commit and pull request in GraphQL.

use nabu_tests::test_forge::github::{File, TestGithub};
use serde_json::json;

use crate::client::{OPEN, graphql, lookup, open_variables};

#[tokio::test]
async fn a_lookup_and_three_mutations_leave_a_branch_a_commit_and_a_pull_request() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let found = lookup(&github, "nabu/a/b").await;
    assert!(found.get("errors").is_none(), "{found:#}");
    let seen = &found["data"]["repository"];
    assert_eq!(found["data"]["viewer"]["login"], "nabu-bot");
    assert_eq!(seen["ref"], json!(null));
    assert_eq!(seen["viewerPermission"], "WRITE");
    assert_eq!(seen["object"]["text"], "bindings: [ops-admin]\n");
    assert_eq!(
        seen["folder"]["entries"][0]["object"]["entries"][0]["mode"],
        33188
    );
    assert_eq!(seen["pullRequests"]["totalCount"], 0);

    let done = graphql(&github, OPEN, open_variables(&found, "nabu/a/b")).await;
    assert!(done.get("errors").is_none(), "{done:#}");
    let commit = repository.commit("nabu/a/b").expect("a commit");
    assert_eq!(
        done["data"]["createCommitOnBranch"]["commit"]["oid"],
        json!(commit.oid)
    );
    assert_eq!(
        commit.message,
        "Isolate a pod\n\nNabu-Cluster: c\nNabu-Response: r"
    );
    assert_eq!(commit.author.name, "nabu-bot");
    assert_eq!(
        commit.parents,
        [repository.commit("main").expect("main").oid]
    );
    let content = repository.read("nabu/a/b", "clusters/prod-eu/deny \"ä\".yaml");
    assert_eq!(
        content.expect("git").as_deref(),
        Some(&b"kind: NetworkPolicy\n"[..])
    );
    assert_eq!(
        repository
            .read("nabu/a/b", "clusters/prod-eu/obsolete.yaml")
            .expect("git"),
        None
    );
    let pulls = repository.pulls().expect("pull requests");
    assert_eq!(
        (pulls.len(), pulls[0].state, &*pulls[0].head_oid),
        (1, "open", &*commit.oid)
    );

    let found = lookup(&github, "nabu/a/b").await;
    let seen = &found["data"]["repository"];
    assert_eq!(seen["ref"]["target"]["author"]["user"]["login"], "nabu-bot");
    assert_eq!(
        seen["pullRequests"]["nodes"][0]["commits"]["nodes"][0]["commit"]["oid"],
        json!(commit.oid)
    );
    repository.check().expect("git and the forge agree");
    assert_eq!(github.violations(), Vec::<String>::new());
    let operations: Vec<_> = github
        .requests()
        .into_iter()
        .map(|request| request.operations)
        .collect();
    assert_eq!(
        operations[1],
        ["createRef", "createCommitOnBranch", "createPullRequest"]
    );
}

#[tokio::test]
async fn a_document_once_more_fails_in_each_part_and_changes_nothing() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let variables = open_variables(&lookup(&github, "b").await, "b");
    graphql(&github, OPEN, variables.clone()).await;
    let before = repository.git().expect("git").refs().expect("refs");
    let again = graphql(&github, OPEN, variables.clone()).await;
    let tip = &variables["ref"]["oid"];
    assert_eq!(again["data"]["createRef"], json!(null));
    assert_eq!(again["data"]["createCommitOnBranch"], json!(null));
    assert_eq!(
        again["data"]["createPullRequest"],
        json!({ "pullRequest": null })
    );
    let errors: Vec<_> = again["errors"]
        .as_array()
        .expect("errors")
        .iter()
        .map(|error| {
            (
                error["type"].clone(),
                error["path"][0].clone(),
                error["message"].clone(),
            )
        })
        .collect();
    assert_eq!(
        errors,
        [
            (
                json!("UNPROCESSABLE"),
                json!("createRef"),
                json!("A ref named \"refs/heads/b\" already exists in the repository.")
            ),
            (
                json!("STALE_DATA"),
                json!("createCommitOnBranch"),
                json!(format!(
                    "Expected branch to point to {tip} but it did not.  Pull and try again."
                ))
            ),
            (
                json!("UNPROCESSABLE"),
                json!("createPullRequest"),
                json!("A pull request already exists for ninsun-labs:b.")
            ),
        ]
    );
    assert_eq!(repository.git().expect("git").refs().expect("refs"), before);
    assert_eq!(repository.pulls().expect("pull requests").len(), 1);
}

#[tokio::test]
async fn a_commit_keeps_modes_and_bytes_of_what_it_does_not_touch() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    repository
        .add_files(
            "main",
            &[
                File::executable("bin/run", "#!/bin/sh\n"),
                File::symlink("link", "bin/run"),
                File::plain("odd\n\t\u{1f980}", [0_u8, 255, 13, 10]),
            ],
        )
        .expect("files");
    let mut before = repository.tree("main").expect("a tree");
    graphql(
        &github,
        OPEN,
        open_variables(&lookup(&github, "b").await, "b"),
    )
    .await;
    let mut after = repository.tree("b").expect("a tree");
    before.retain(|(_, _, path)| path != "clusters/prod-eu/obsolete.yaml");
    after.retain(|(_, _, path)| !path.contains("deny"));
    assert_eq!(before, after);
    let odd = repository.read("b", "odd\n\t\u{1f980}").expect("git");
    assert_eq!(odd.as_deref(), Some(&[0, 255, 13, 10][..]));
}

#[tokio::test]
async fn a_document_that_the_schema_does_not_know_is_refused_and_noted() {
    let github = TestGithub::start().await.expect("a forge");
    let answer = graphql(&github, "{ viewer { loginn } }", json!({})).await;
    assert_eq!(answer.get("data"), None);
    let mut errors = answer["errors"].as_array().into_iter().flatten();
    let named = errors.find(|error| error["message"].to_string().contains("loginn"));
    assert_eq!(named.expect("the field")["locations"][0]["column"], 12);
    assert_eq!(github.violations().len(), 1);
}

#[tokio::test]
async fn a_commit_makes_plain_files_unless_the_forge_keeps_modes() {
    for (keeps, expected) in [(false, "100644"), (true, "100755")] {
        let github = TestGithub::start().await.expect("a forge");
        github.set_keeps_modes(keeps);
        let repository = github
            .create_repository("ninsun-labs/gitops")
            .await
            .expect("a repository");
        let path = "clusters/prod-eu/deny \"ä\".yaml";
        repository
            .add_files("main", &[File::executable(path, "old")])
            .expect("files");
        graphql(
            &github,
            OPEN,
            open_variables(&lookup(&github, "b").await, "b"),
        )
        .await;
        let tree = repository.tree("b").expect("a tree");
        let found = tree.iter().find(|(_, _, name)| name == path);
        assert_eq!(found.map(|(mode, _, _)| mode.as_str()), Some(expected));
    }
}
