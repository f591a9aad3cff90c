//! Each client is a script; a client that is not installed is a failure, as for every other part of the test bed.

use nabu_tests::process::{npm_path, python_packages, repository_root};
use nabu_tests::test_forge::github::{Options, TestGithub, TestRepository};
use tokio::net::{TcpStream, UnixListener};
use tokio::process::Command;

async fn forge() -> (TestGithub, TestRepository) {
    forge_with(Options::default()).await
}

async fn forge_with(options: Options) -> (TestGithub, TestRepository) {
    let github = TestGithub::start_with(options).await.expect("a forge");
    let repository = github
        .create_repository("ninsun-labs/gitops")
        .await
        .expect("a repository");
    (github, repository)
}

async fn run(github: &TestGithub, program: &str, script: &str, place: (&str, &std::path::Path)) {
    let app = github.app();
    let nowhere = tempfile::tempdir().expect("a folder");
    let output = Command::new(program)
        .current_dir(nowhere.path())
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

/// GitHub's own client speaks TLS to every host that has a port, and plain HTTP through a Unix socket to one host that
/// it knows as a developer's GitHub.
#[tokio::test]
async fn the_command_line_of_github_opens_reviews_and_merges_a_pull_request() {
    let (github, repository) = forge_with(Options {
        public_paths: true,
        ..Options::default()
    })
    .await;
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("forge.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let address = github.url().trim_start_matches("http://").to_owned();
    let bridge = tokio::spawn(async move {
        while let Ok((mut ours, _)) = listener.accept().await {
            let mut theirs = TcpStream::connect(&address).await.expect("the forge");
            tokio::spawn(async move {
                // Either side may just go.
                let _ = tokio::io::copy_bidirectional(&mut ours, &mut theirs).await;
            });
        }
    });
    let config = format!("http_unix_socket: {}\n", socket.display());
    std::fs::write(folder.path().join("config.yml"), config).expect("a configuration");
    run(&github, "bash", "gh.sh", ("GH_CONFIG_DIR", folder.path())).await;
    bridge.abort();
    let pull = &repository.pulls().expect("pull requests")[0];
    assert_eq!((pull.state, &*pull.title), ("merged", "Add a file, once"));
    assert_eq!(pull.comments, ["Seen."]);
    assert_eq!(pull.labels, ["nabu"]);
    assert_eq!(repository.branches().expect("branches"), ["main"]);
    repository.check().expect("git and the forge agree");
    assert_eq!(github.violations(), [""; 0]);
}
