//! What only GitLab is asked and told, and what large changes cost there.

use nabu_hub::change::Author;
use nabu_hub::forge::Made;
use nabu_tests::test_forge::faults::{Effect, Fault};
use nabu_tests::test_forge::gitlab::TestGitlab;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::bed::{Bed, DENY, NEW, OBSOLETE};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_has_the_author_of_its_route_and_its_requests_are_counted() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &DENY);
    intent.author = Some(Author {
        name: "Nabu".to_owned(),
        email: "nabu@ninsun.invalid".to_owned(),
    });
    let (pull, _) = bed.pull(&intent).await;
    let address = format!(
        "{}/{}/-/merge_requests/1",
        bed.gitlab.url(),
        bed.project.full_name
    );
    assert_eq!(pull.url, address);
    let commit = bed.project.commit(&intent.branch).unwrap();
    assert_eq!(commit.author.email, "nabu@ninsun.invalid");
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all[0]["force_remove_source_branch"], false);
    assert_counted(&bed.hub.registry);
    let methods: Vec<_> = (bed.gitlab.requests().into_iter())
        .map(|request| request.method)
        .collect();
    assert_eq!(
        methods,
        ["POST", "POST", "POST"],
        "nobody is asked who they are"
    );
    let asked = &bed.gitlab.requests()[0];
    assert!(asked.path.ends_with("/api/graphql"), "{}", asked.path);
}

fn assert_counted(registry: &Registry) {
    let mut metrics = String::new();
    encode(&mut metrics, registry).unwrap();
    for (operation, result) in [("lookup", "ok"), ("commit", "ok"), ("open", "ok")] {
        let labels =
            format!(r#"provider="gitlab-token",operation="{operation}",result="{result}""#);
        let line = format!("nabu_hub_forge_requests_total{{{labels}}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_change_after_they_were_looked_at_are_looked_at_again() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &[(OBSOLETE, None), (NEW, Some("deny: all\n"))]);
    bed.gitlab
        .fail(Fault::new(Effect::HoldBefore).path("repository/commits"));
    let ((made, requests), ()) = tokio::join!(bed.make(&intent), async {
        bed.gitlab.faults().reached().await;
        let delete = bed.project.delete_file("main", OBSOLETE);
        delete.unwrap();
        bed.project
            .add_files("main", &[(NEW, "deny: some\n")])
            .unwrap();
        bed.gitlab.faults().release();
    });
    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    // The question, a commit that is refused, two folders, the commit, the merge request.
    assert_eq!(requests, 6);
    let file = bed.project.file(&intent.branch, NEW).unwrap();
    assert_eq!(file.as_deref(), Some("deny: all\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_files_cost_three_requests() {
    let bed = Bed::new().await;
    let names: Vec<String> = (0..100)
        .map(|n| format!("policies/{}/{n}.yaml", n % 7))
        .collect();
    let there: Vec<_> = (names.iter().step_by(2))
        .map(|name| (name.as_str(), "deny: none\n"))
        .collect();
    bed.project.add_files("main", &there).unwrap();
    let files: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), Some("deny: all\n")))
        .collect();
    let intent = bed.intent("u-1", &files);
    assert_eq!(bed.pull(&intent).await.1, 3);
    assert_eq!(bed.project.files(&intent.branch).unwrap().len(), 103);
    let file = bed.project.file(&intent.branch, &names[98]).unwrap();
    assert_eq!(file.as_deref(), Some("deny: all\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_found_in_a_folder_of_many() {
    let bed = Bed::new().await;
    let names: Vec<String> = (0..250).map(|n| format!("many/{n:04}.yaml")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "x\n")).collect();
    bed.project.add_files("main", &files).unwrap();
    let intent = bed.intent(
        "u-1",
        &[("many/0249.yaml", Some("y\n")), ("many/0000.yaml", None)],
    );
    assert_eq!(bed.pull(&intent).await.1, 3);
    let file = bed.project.file(&intent.branch, "many/0249.yaml").unwrap();
    assert_eq!(file.as_deref(), Some("y\n"));
    let file = bed.project.file(&intent.branch, "many/0000.yaml").unwrap();
    assert_eq!(file, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_a_path_is_served_too() {
    let bed = Bed::on(TestGitlab::start_below("/tools/gitlab").await.unwrap());
    let intent = bed.intent("u-1", &DENY);
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 3);
    assert!(
        pull.url.contains("/tools/gitlab/ninsun-labs/"),
        "{}",
        pull.url
    );
    assert_eq!(bed.pull(&intent).await.1, 1);
}
