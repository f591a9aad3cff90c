//! What ends up in git, and what it costs.

use nabu_hub::change::Author;
use nabu_hub::forge::{Made, PullRequest, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault};
use nabu_tests::test_forge::git::{EXECUTABLE, SYMLINK};
use nabu_tests::test_forge::gitlab::TestGitlab;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::bed::{BINDINGS, Bed, DENY, NEW, OBSOLETE};

#[tokio::test(flavor = "multi_thread")]
async fn files_are_created_and_deleted_in_one_commit_with_three_requests() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &[(NEW, Some("ä: \u{1f512}\n")), (OBSOLETE, None)]);
    intent.author = Some(Author {
        name: "Nabu".to_owned(),
        email: "nabu@ninsun.invalid".to_owned(),
    });
    let before = bed.project.commit("main").unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(requests, 3);
    assert_eq!((pull.state, pull.adopted), (PullRequestState::Open, false));
    let address = format!(
        "{}/{}/-/merge_requests/1",
        bed.gitlab.url(),
        bed.project.full_name
    );
    assert_eq!(pull.url, address);
    let commit = bed.project.commit(&intent.branch).unwrap();
    assert_eq!(pull.commit.as_deref(), Some(commit.oid.as_str()));
    assert_eq!(commit.parents, [before.oid]);
    assert_eq!(commit.message.trim(), intent.commit_message.trim());
    assert_eq!(commit.author.email, "nabu@ninsun.invalid");
    let file = |path| bed.project.file(&intent.branch, path).unwrap();
    assert_eq!(file(NEW).as_deref(), Some("ä: \u{1f512}\n"));
    assert_eq!(file(OBSOLETE), None);
    assert_eq!(file(BINDINGS).as_deref(), Some("bindings: [ops-admin]\n"));
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0]["title"], "Revoke ops-admin");
    assert_eq!(all[0]["description"], intent.body.as_str());
    assert_eq!(all[0]["target_branch"], "main");
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
async fn doing_it_again_costs_one_request_and_changes_nothing() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (first, _) = bed.pull(&intent).await;
    let tip = bed.project.commit(&intent.branch).unwrap();

    let (second, requests) = bed.pull(&intent).await;

    assert_eq!(requests, 1);
    let adopted = PullRequest {
        adopted: true,
        ..first
    };
    assert_eq!(second, adopted);
    assert_eq!(bed.project.commit(&intent.branch).unwrap(), tip);
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_exist_cost_three_requests_too() {
    let bed = Bed::new().await;
    let first = bed.intent("u-1", &[(BINDINGS, Some("bindings: []\n"))]);
    assert_eq!(bed.pull(&first).await.1, 3);
    let file = bed.project.file(&first.branch, BINDINGS).unwrap();
    assert_eq!(file.as_deref(), Some("bindings: []\n"));

    let mixed = [
        (BINDINGS, Some("bindings: [a]\n")),
        (NEW, Some("deny: all\n")),
        (OBSOLETE, Some("kind: Secret\n")),
        ("clusters/prod-eu/nowhere.yaml", None),
    ];
    let second = bed.intent("u-2", &mixed);
    assert_eq!(bed.pull(&second).await.1, 3);
    let files = bed.project.files(&second.branch).unwrap();
    assert_eq!(files.len(), 4, "{files:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_was_there_and_is_gone_is_made_anew() {
    let bed = Bed::new().await;
    let change = [(BINDINGS, Some("bindings: []\n"))];
    bed.pull(&bed.intent("u-1", &change)).await;
    let delete = bed.intent("u-2", &[(BINDINGS, None)]);
    bed.pull(&delete).await;
    bed.project.merge(2).unwrap();
    assert_eq!(bed.pull(&bed.intent("u-3", &change)).await.1, 3);
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
async fn names_and_contents_arrive_byte_for_byte() {
    let bed = Bed::new().await;
    let contents = "\u{0}\u{1}\u{7f}\r\nno line end: {{ }} ${x} \u{feff}\u{1f9ff}";
    let paths = [
        "clusters/prod eu/späti ✓.yaml",
        "a+b&c=d#e?f%20g.yaml",
        "-dash.yaml",
        "dots..and...more",
        "quo\"te'.yaml",
        "UPPER/Lower/.hidden",
        "empty.txt",
    ];
    let files: Vec<_> = paths
        .iter()
        .map(|path| {
            (
                *path,
                Some(if *path == "empty.txt" { "" } else { contents }),
            )
        })
        .collect();
    let intent = bed.intent("u-1", &files);
    assert_eq!(bed.pull(&intent).await.1, 3);
    for (path, wanted) in &files {
        let bytes = bed.project.bytes(&intent.branch, path).unwrap();
        assert_eq!(bytes.as_deref(), wanted.map(str::as_bytes), "{path}");
    }
    // And the same over files that exist.
    bed.project.merge(1).unwrap();
    let files: Vec<_> = paths
        .iter()
        .map(|path| (*path, Some("changed\n")))
        .collect();
    let intent = bed.intent("u-2", &files);
    bed.pull(&intent).await;
    for path in paths {
        let file = bed.project.file(&intent.branch, path).unwrap();
        assert_eq!(file.as_deref(), Some("changed\n"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_may_be_run_stays_so_and_a_link_is_never_written_through() {
    let bed = Bed::new().await;
    bed.project
        .add_entry("main", EXECUTABLE, "bin/run.sh", b"#!/bin/sh\n")
        .unwrap();
    bed.project
        .add_entry("main", SYMLINK, "bin/link", b"run.sh")
        .unwrap();
    let intent = bed.intent("u-1", &[("bin/run.sh", Some("#!/bin/sh\nexit 0\n"))]);
    bed.pull(&intent).await;
    let mode = bed.project.mode(&intent.branch, "bin/run.sh").unwrap();
    assert_eq!(mode.as_deref(), Some(EXECUTABLE));

    let through = bed.intent("u-2", &[("bin/link", Some("/etc/passwd"))]);
    let detail = bed.expect(&through, ErrorType::Permanent, "NotAFile").await;
    let words = "is a symbolic link, no file; create a new EventResponse that names a file";
    assert!(detail.contains(words), "{detail}");
    let away = bed.intent("u-3", &[("bin/link", None)]);
    bed.pull(&away).await;
    assert_eq!(bed.project.mode(&away.branch, "bin/link").unwrap(), None);
    let onto = bed.intent("u-4", &[("bin", Some("x"))]);
    let detail = bed.expect(&onto, ErrorType::Permanent, "NotAFile").await;
    assert!(detail.contains("a folder"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_branch_comes_with_the_question_and_a_base_may_have_slashes() {
    let bed = Bed::new().await;
    let mut first = bed.intent("u-1", &DENY);
    first.base_branch = None;
    let mut second = bed.intent("u-2", &DENY);
    second.base_branch = None;
    assert_eq!(bed.pull(&first).await.1, 3);
    assert_eq!(bed.pull(&second).await.1, 3);
    assert_eq!(bed.pull(&second).await.1, 1);

    bed.project.add_branch("release/1.0", "main").unwrap();
    let mut third = bed.intent("u-3", &DENY);
    third.base_branch = Some("release/1.0".to_owned());
    assert_eq!(bed.pull(&third).await.1, 3);
    assert_eq!(bed.pull(&third).await.1, 1);
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(
        (all.len(), &all[2]["target_branch"]),
        (3, &"release/1.0".into())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_there_already_leaves_nothing_behind() {
    let bed = Bed::new().await;
    let unchanged = [
        (BINDINGS, Some("bindings: [ops-admin]\n")),
        ("gone.yaml", None),
    ];
    for files in [&unchanged[..], &unchanged[..1], &unchanged[1..], &[]] {
        let (made, _) = bed.make(&bed.intent("u-1", files)).await;
        assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    }
    let (made, requests) = bed.make(&bed.intent("u-3", &unchanged[..1])).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(requests, 2, "the question, and our branch");
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
    assert!(bed.project.merge_requests().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_what_is_not_there_does_not_stop_the_rest() {
    let bed = Bed::new().await;
    let files = [
        ("gone.yaml", None),
        (OBSOLETE, None),
        (NEW, Some("deny: all\n")),
    ];
    let intent = bed.intent("u-1", &files);
    bed.pull(&intent).await;
    assert_eq!(bed.project.file(&intent.branch, OBSOLETE).unwrap(), None);
    let new = bed.project.file(&intent.branch, NEW).unwrap();
    assert_eq!(new.as_deref(), Some("deny: all\n"));
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
