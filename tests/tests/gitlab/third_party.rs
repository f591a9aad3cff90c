//! A client that is not ours gets along with the test forge: what it holds for GitLab's API is a second opinion on ours.

use nabu_tests::process::{python_packages, repository_root};
use nabu_tests::test_forge::gitlab::{BOT, Role};

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn python_gitlab_does_its_round_and_is_refused_where_gitlab_refuses() {
    let bed = Bed::new().await;
    bed.project.set_role(BOT, Some(Role::Maintainer)).unwrap();
    let mut client = tokio::process::Command::new("python3");
    client
        .env("PYTHONPATH", python_packages().unwrap())
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(repository_root().join("tests/tests/gitlab/python_gitlab.py"))
        .args([
            &bed.gitlab.url(),
            bed.gitlab.token(),
            &bed.project.full_name,
        ])
        .kill_on_drop(true);
    let output = client.output().await.unwrap();
    let (said, failed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{failed}");
    assert_eq!(said.trim(), "done");
}
