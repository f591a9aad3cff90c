//! Each client is a script; a client that is not installed is a failure, as for every other part of the test bed.

use nabu_tests::process::{npm_path, python_packages, repository_root};
use nabu_tests::test_forge::github::{TestGithub, TestRepository};
use tokio::process::Command;

async fn forge() -> (TestGithub, TestRepository) {
    let github = TestGithub::start().await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    (github, repository)
}

async fn run(github: &TestGithub, program: &str, script: &str, place: (&str, &std::path::Path)) {
    let app = github.app();
    let output = Command::new(program)
        .arg(
            repository_root()
                .join("tests/tests/github_clients")
                .join(script),
        )
        .env(place.0, place.1)
        .env("FORGE_URL", github.url())
        .env("BOT_TOKEN", github.token())
        .env("PERSON_TOKEN", github.person_token())
        .env("APP_ID", app.id.to_string())
        .env("APP_KEY", &app.private_key)
        .env("INSTALLATION_ID", app.installation_id.to_string())
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .await
        .expect("the client");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{script}:\n{text}\n{:#?}",
        github.violations()
    );
}

#[tokio::test]
async fn octokit_opens_reviews_and_merges_a_pull_request_as_a_person_and_as_an_app() {
    let (github, repository) = forge().await;
    let octokit = npm_path("octokit/dist-bundle/index.js").expect("octokit");
    run(&github, "node", "octokit.mjs", ("OCTOKIT", &octokit)).await;
    let pulls = repository.pulls().expect("pull requests");
    assert_eq!(
        pulls.iter().map(|pull| pull.state).collect::<Vec<_>>(),
        ["merged", "merged"]
    );
    assert_eq!(pulls[1].author, "nabu[bot]");
    let modes = repository.tree("main").expect("a tree").into_iter();
    let modes: Vec<_> = modes
        .filter(|(mode, _, _)| mode == "100755")
        .map(|(_, _, path)| path)
        .collect();
    assert_eq!(modes, ["app.sh", "octokit.sh"]);
    repository.check().expect("git and the forge agree");
    let violations = github.violations();
    // The document that must fail, and nothing else.
    assert!(
        violations.iter().all(|one| one.contains("nothing")),
        "{violations:#?}"
    );
}

#[tokio::test]
async fn pygithub_opens_reviews_and_merges_a_pull_request() {
    let (github, repository) = forge().await;
    let packages = python_packages().expect("PyGithub");
    run(&github, "python3", "pygithub.py", ("PYTHONPATH", &packages)).await;
    assert_eq!(
        repository.pulls().expect("pull requests")[0].state,
        "merged"
    );
    assert_eq!(
        repository.pulls().expect("pull requests")[0].comments,
        ["Seen."]
    );
    repository.check().expect("git and the forge agree");
    // It sends labels as a bare list, which GitHub takes and its description does not have.
    let violations = github.violations();
    let labels = |one: &String| one.contains("/issues/1/labels asks");
    assert!(violations.iter().all(labels), "{violations:#?}");
}
