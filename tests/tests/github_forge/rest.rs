//! The same changes in REST.

use nabu_tests::test_forge::github::{File, TestGithub};
use reqwest::Method;
use serde_json::json;

use crate::client::rest;

const REPOSITORY: &str = "/repos/ninsun-labs/gitops";

#[tokio::test]
async fn a_tree_a_commit_a_ref_and_a_pull_request() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    repository
        .add_files("main", &[File::executable("bin/run", "#!/bin/sh\n")])
        .expect("files");
    let call = async |method: Method, path: &str, body| {
        rest(&github, method, &format!("{REPOSITORY}{path}"), body).await
    };
    let (_, tip) = call(Method::GET, "/git/ref/heads/main", None).await;
    let tip = &tip["object"]["sha"];
    let (status, blob) = call(
        Method::POST,
        "/git/blobs",
        Some(json!({ "content": "AP8NCg==", "encoding": "base64" })),
    )
    .await;
    assert_eq!(status, 201);
    let (status, tree) = call(Method::POST, "/git/trees", Some(json!({
        "base_tree": tip,
        "tree": [
            { "path": "odd \"ä\"/x", "mode": "100644", "type": "blob", "sha": blob["sha"] },
            { "path": "bin/new", "mode": "100755", "type": "blob", "content": "#!/bin/sh\n" },
            { "path": "clusters/prod-eu/obsolete.yaml", "mode": "100644", "type": "blob", "sha": null },
        ],
    }))).await;
    assert_eq!(status, 201, "{tree}");
    let (status, commit) = call(
        Method::POST,
        "/git/commits",
        Some(json!({ "message": "Change", "tree": tree["sha"], "parents": [tip] })),
    )
    .await;
    assert_eq!(
        (status, &commit["author"]["name"]),
        (201, &json!("nabu-bot"))
    );
    let new_ref = Some(json!({ "ref": "refs/heads/nabu/a/b", "sha": commit["sha"] }));
    assert_eq!(
        call(Method::POST, "/git/refs", new_ref.clone()).await.0,
        201
    );
    let (status, again) = call(Method::POST, "/git/refs", new_ref).await;
    assert_eq!(
        (status, &again["message"]),
        (422, &json!("Reference already exists"))
    );
    let odd = repository.read("nabu/a/b", "odd \"ä\"/x").expect("git");
    assert_eq!(odd.as_deref(), Some(&[0, 255, 13, 10][..]));
    let modes: Vec<_> = repository
        .tree("nabu/a/b")
        .expect("a tree")
        .into_iter()
        .filter(|(_, _, path)| path.starts_with("bin/"))
        .map(|(mode, _, _)| mode)
        .collect();
    assert_eq!(modes, ["100755", "100755"]);
    let (_, listed) = call(Method::GET, "/git/trees/nabu%2Fa%2Fb?recursive=1", None).await;
    let paths: Vec<_> = listed["tree"]
        .as_array()
        .expect("entries")
        .iter()
        .filter_map(|entry| entry["path"].as_str())
        .collect();
    assert!(paths.contains(&"odd \"ä\"/x") && !paths.contains(&"clusters/prod-eu/obsolete.yaml"));

    repository.check().expect("git and the forge agree");
    assert_eq!(github.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_pull_request_from_its_opening_to_its_merge() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let tip = repository
        .add_files("nabu/a/b", &[File::plain("new", "new\n")])
        .expect("files");
    let call = async |method: Method, path: &str, body| {
        rest(&github, method, &format!("{REPOSITORY}{path}"), body).await
    };
    let new_pull = Some(json!({ "title": "t", "body": "b", "head": "nabu/a/b", "base": "main" }));
    let (status, pull) = call(Method::POST, "/pulls", new_pull.clone()).await;
    assert_eq!((status, &pull["number"]), (201, &json!(1)));
    let (status, again) = call(Method::POST, "/pulls", new_pull).await;
    assert_eq!(
        (status, &again["errors"][0]["message"]),
        (
            422,
            &json!("A pull request already exists for ninsun-labs:nabu/a/b.")
        )
    );
    let (_, found) = call(
        Method::GET,
        "/pulls?head=ninsun-labs:nabu/a/b&state=all",
        None,
    )
    .await;
    assert_eq!(found.as_array().map(Vec::len), Some(1));
    assert_eq!(
        call(
            Method::POST,
            "/issues/1/labels",
            Some(json!({ "labels": ["security"] }))
        )
        .await
        .0,
        200
    );
    assert_eq!(
        call(
            Method::POST,
            "/issues/1/assignees",
            Some(json!({ "assignees": ["alice"] }))
        )
        .await
        .0,
        201
    );
    assert_eq!(
        call(
            Method::POST,
            "/issues/1/comments",
            Some(json!({ "body": "Seen." }))
        )
        .await
        .0,
        201
    );
    assert_eq!(
        call(
            Method::POST,
            "/pulls/1/requested_reviewers",
            Some(json!({ "reviewers": ["alice"] }))
        )
        .await
        .0,
        201
    );
    assert_eq!(
        call(Method::PATCH, "/pulls/1", Some(json!({ "title": "new" })))
            .await
            .1["title"],
        "new"
    );
    let (status, merged) = call(
        Method::PUT,
        "/pulls/1/merge",
        Some(json!({ "merge_method": "squash", "sha": tip })),
    )
    .await;
    assert_eq!((status, &merged["merged"]), (200, &json!(true)));
    assert_eq!(repository.commit("main").expect("main").message, "new (#1)");
    assert_eq!(
        call(Method::DELETE, "/git/refs/heads/nabu/a/b", None)
            .await
            .0,
        204
    );
    repository.check().expect("git and the forge agree");
    assert_eq!(github.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_is_read_and_written_and_a_renamed_repository_is_found() {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    let (status, file) = rest(
        &github,
        Method::GET,
        &format!("{REPOSITORY}/contents/README.md"),
        None,
    )
    .await;
    assert_eq!((status, &file["content"]), (200, &json!("IyBnaXRvcHMK\n")));
    let body = json!({ "message": "Change", "content": "bmV3Cg==", "sha": file["sha"] });
    let path = format!("{REPOSITORY}/contents/README.md");
    assert_eq!(
        rest(&github, Method::PUT, &path, Some(body.clone()))
            .await
            .0,
        200
    );
    assert_eq!(rest(&github, Method::PUT, &path, Some(body)).await.0, 409);
    assert_eq!(
        repository
            .read("main", "README.md")
            .expect("git")
            .as_deref(),
        Some(&b"new\n"[..])
    );
    repository.rename("manifests").expect("a name");
    let (status, found) = rest(&github, Method::GET, REPOSITORY, None).await;
    assert_eq!(
        (status, &found["full_name"]),
        (200, &json!("ninsun-labs/manifests"))
    );
    assert_eq!(
        rest(&github, Method::GET, "/nothing/here", None).await.0,
        404
    );
    assert_eq!(
        github.violations(),
        ["the test forge does not know GET /nothing/here"]
    );
}
