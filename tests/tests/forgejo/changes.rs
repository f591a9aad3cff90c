//! What ends up in Git, and what it costs.

use nabu_hub::change::{Author, ForgeTarget, ProviderKind};
use nabu_hub::credentials::Credentials;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{Made, PullRequest, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::forge::{BOT, PERSON};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::bed::{BINDINGS, Bed, OBSOLETE, REVOKE, intent, make, target};

const NEW: &str = "clusters/prod-eu/new/policy.yaml";

#[tokio::test(flavor = "multi_thread")]
async fn files_are_created_updated_and_deleted_in_one_commit_with_three_requests() {
    let bed = Bed::new("three-requests").await;
    let files = [
        (BINDINGS, Some("bindings: []\n")),
        (NEW, Some("ä: \u{1f512}\n")),
        (OBSOLETE, None),
    ];
    let mut intent = bed.intent("u-1", &files);
    intent.author = Some(Author {
        name: "Nabu".to_owned(),
        email: "nabu@ninsun.invalid".to_owned(),
    });
    let before = bed.repository.commit("main").await.unwrap();

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(requests, 3);
    assert_eq!((pull.state, pull.adopted), (PullRequestState::Open, false));
    assert_eq!(
        pull.url,
        format!("{}/{}/pulls/1", bed.forge.url(), bed.repository.full_name)
    );
    let commit = bed.repository.commit(&intent.branch).await.unwrap();
    assert_eq!(pull.commit.as_deref(), Some(commit.id.as_str()));
    assert_eq!(commit.parents, [before.id]);
    assert_eq!(commit.message.trim(), intent.commit_message.trim());
    assert_eq!(commit.author, "Nabu <nabu@ninsun.invalid>");
    assert_eq!(commit.committer, "Nabu <nabu@ninsun.invalid>");
    let file = |path| bed.repository.file(&intent.branch, path);
    assert_eq!(
        file(BINDINGS).await.unwrap().as_deref(),
        Some("bindings: []\n")
    );
    assert_eq!(file(NEW).await.unwrap().as_deref(), Some("ä: \u{1f512}\n"));
    assert_eq!(file(OBSOLETE).await.unwrap(), None);
    let pulls = bed.repository.pull_requests().await.unwrap();
    assert_eq!(pulls.len(), 1);
    assert_eq!(pulls[0]["title"], "Revoke ops-admin");
    assert_eq!(pulls[0]["body"], intent.body.as_str());
    assert_eq!(pulls[0]["base"]["label"], "main");
    assert_counted(&bed.hub.registry);
}

fn assert_counted(registry: &Registry) {
    let mut metrics = String::new();
    encode(&mut metrics, registry).unwrap();
    for (operation, result) in [("lookup", "not_found"), ("commit", "ok"), ("open", "ok")] {
        let labels =
            format!(r#"provider="forgejo-token",operation="{operation}",result="{result}""#);
        let line = format!("nabu_hub_forge_requests_total{{{labels}}} 1\n");
        assert!(metrics.contains(&line), "{line}{metrics}");
    }
    assert!(
        metrics.contains("nabu_hub_forge_request_duration_seconds_count"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn doing_it_again_costs_one_request_and_changes_nothing() {
    let bed = Bed::new("again").await;
    let intent = bed.intent("u-1", &REVOKE);
    let (first, _) = bed.pull(&intent).await;
    let tip = bed.repository.commit(&intent.branch).await.unwrap();

    let (second, requests) = bed.pull(&intent).await;

    assert_eq!(requests, 1);
    assert_eq!(
        second,
        PullRequest {
            adopted: true,
            notes: Vec::new(),
            ..first
        }
    );
    assert_eq!(bed.repository.commit(&intent.branch).await.unwrap(), tip);
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_branch_is_asked_for_once_and_a_base_may_have_slashes() {
    let bed = Bed::new("bases").await;
    let mut first = bed.intent("u-1", &REVOKE);
    first.base_branch = None;
    let mut second = bed.intent("u-2", &REVOKE);
    second.base_branch = None;
    assert_eq!(bed.pull(&first).await.1, 4);
    assert_eq!(bed.pull(&second).await.1, 3);
    assert_eq!(bed.pull(&second).await.1, 1);

    bed.repository
        .add_branch("release/1.0", "main")
        .await
        .unwrap();
    let mut third = bed.intent("u-3", &REVOKE);
    third.base_branch = Some("release/1.0".to_owned());
    assert_eq!(bed.pull(&third).await.1, 3);
    assert_eq!(bed.pull(&third).await.1, 1);
    let pulls = bed.repository.pull_requests().await.unwrap();
    assert_eq!(pulls.len(), 3);
    assert_eq!(pulls[2]["base"]["label"], "release/1.0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_there_already_leaves_nothing_behind() {
    let bed = Bed::new("no-action").await;
    let unchanged = [
        (BINDINGS, Some("bindings: [ops-admin]\n")),
        ("gone.yaml", None),
    ];
    for files in [&unchanged[..], &unchanged[..1], &unchanged[1..]] {
        let (made, _) = bed.make(&bed.intent("u-1", files)).await;
        assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    }
    assert_eq!(bed.repository.branches().await.unwrap(), ["main"]);
    assert!(bed.repository.pull_requests().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleting_what_is_not_there_does_not_stop_the_rest() {
    let bed = Bed::new("absent").await;
    let files = [
        ("gone.yaml", None),
        (OBSOLETE, None),
        (BINDINGS, Some("bindings: []\n")),
    ];
    let intent = bed.intent("u-1", &files);
    bed.pull(&intent).await;
    assert_eq!(
        bed.repository.file(&intent.branch, OBSOLETE).await.unwrap(),
        None
    );
    let bindings = bed.repository.file(&intent.branch, BINDINGS).await.unwrap();
    assert_eq!(bindings.as_deref(), Some("bindings: []\n"));
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn drafts_labels_and_reviewers_arrive_and_an_unknown_reviewer_costs_nothing() {
    let bed = Bed::new("ornaments").await;
    bed.repository.add_collaborator("write").await.unwrap();
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.draft = true;
    intent.labels = vec!["security".to_owned(), "nabu".to_owned()];
    intent.reviewers = vec![PERSON.to_owned()];
    bed.pull(&intent).await;
    for (uid, reviewers) in [("u-2", ["nobody", PERSON]), ("u-3", [BOT, PERSON])] {
        let mut other = bed.intent(uid, &REVOKE);
        other.labels = vec!["nabu".to_owned()];
        other.reviewers = reviewers.map(str::to_owned).to_vec();
        bed.pull(&other).await;
    }

    let pulls = bed.repository.pull_requests().await.unwrap();
    assert_eq!(pulls.len(), 3);
    assert_eq!(
        (&pulls[0]["draft"], &pulls[1]["draft"]),
        (&Value::Bool(true), &Value::Bool(false))
    );
    let labels = |pull: &Value| {
        let labels = pull["labels"].as_array().unwrap().iter();
        labels
            .map(|label| label["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(labels(&pulls[0]), ["nabu", "security"]);
    assert_eq!(labels(&pulls[1]), ["nabu"]);
    for pull in &pulls {
        assert_eq!(
            pull["requested_reviewers"][0]["login"], PERSON,
            "{}",
            pull["number"]
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn teams_are_asked_people_assigned_and_unknown_ones_cost_the_others_nothing() {
    let bed = Bed::new("people").await;
    bed.repository.add_collaborator("write").await.unwrap();
    bed.forge.create_team("platform").await.unwrap();
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.options.team_reviewers = vec!["platform".to_owned()];
    intent.options.assignees = vec![PERSON.to_owned()];
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 3, "people cost no request of their own");
    let mut other = bed.intent("u-2", &REVOKE);
    other.options.team_reviewers = vec!["no-such-team".to_owned(), "platform".to_owned()];
    other.options.assignees = vec!["nobody".to_owned(), PERSON.to_owned()];
    bed.pull(&other).await;

    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 2);
    for number in [1, 2] {
        let pull = bed.repository.pull_request(number).await.unwrap();
        let team = &pull["requested_reviewers_teams"][0]["name"];
        let assignee = &pull["assignees"][0]["login"];
        assert_eq!((team, assignee), (&json!("platform"), &json!(PERSON)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_and_a_folder_are_never_written_to_and_a_link_can_go() {
    let bed = Bed::new("links").await;
    bed.repository
        .add_link("main", "dir/link", "run.sh")
        .await
        .unwrap();
    let words = "no file; create a new EventResponse that names a file";
    for (uid, path, what) in [
        ("u-1", "dir/link", "dir/link of "),
        ("u-1", "dir/link", " is a symbolic link, "),
        ("u-2", "dir", " is a folder, "),
    ] {
        let error = bed.failure(&bed.intent(uid, &[(path, Some("x"))])).await;
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Permanent, "NotAFile"), "{}", error.detail);
        for part in [what, words] {
            assert!(error.detail.contains(part), "{}", error.detail);
        }
    }
    let away = bed.intent("u-3", &[("dir/link", None)]);
    bed.pull(&away).await;
    let file = bed.repository.file(&away.branch, "dir/link").await;
    assert_eq!(file.unwrap(), None);
}

#[tokio::test]
async fn noop_names_a_pull_request_and_calls_nobody() {
    nabu_common::tls::install_crypto_provider();
    let metrics = ForgeMetrics::register(&mut Registry::default());
    let forges = Forges::new(Credentials::default(), metrics);
    let target = ForgeTarget {
        kind: ProviderKind::Noop,
        base_url: None,
        credential: None,
        ..target("", "ninsun-labs/x")
    };
    let (made, requests) = make(&forges, &intent(target, "u-1", &REVOKE)).await;
    let url = "https://noop.invalid/ninsun-labs/x/pulls/prod-eu/u-1".to_owned();
    let pull = PullRequest {
        url,
        commit: None,
        state: PullRequestState::Open,
        adopted: false,
        notes: Vec::new(),
    };
    assert_eq!((made, requests), (Ok(Made::PullRequest(pull)), 0));
}
