//! What Forgejo and Gitea do with people, labels and authors; and the forge that does nothing.

use nabu_hub::change::{Author, ForgeTarget, ProviderKind};
use nabu_hub::credentials::Credentials;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{Made, PullRequest, PullRequestState};
use nabu_tests::forge::{BOT, PERSON};
use nabu_tests::intents::make_again;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};

use crate::bed::{Bed, REVOKE, intent, make, target};

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_has_the_author_of_its_route_and_its_requests_are_counted() {
    let bed = Bed::new("author").await;
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.author = Some(Author {
        name: "Nabu".to_owned(),
        email: "nabu@ninsun.invalid".to_owned(),
    });
    let (pull, _) = bed.pull(&intent).await;
    let address = format!("{}/{}/pulls/1", bed.forge.url(), bed.repository.full_name);
    assert_eq!(pull.url, address);
    let commit = bed.repository.commit(&intent.branch).await.unwrap();
    assert_eq!(commit.author, "Nabu <nabu@ninsun.invalid>");
    assert_eq!(commit.committer, "Nabu <nabu@ninsun.invalid>");
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

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_attempt_is_made_up_for_with_people() {
    let bed = Bed::new("people-again").await;
    bed.repository.add_collaborator("write").await.unwrap();
    let bare = bed.intent("u-1", &REVOKE);
    bed.pull(&bare).await;
    let mut intent = bare.clone();
    intent.reviewers = vec![PERSON.to_owned()];
    intent.options.assignees = vec![PERSON.to_owned()];
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 1, "what was opened long ago is left to people");
    for expected in [3, 1] {
        let (made, requests) = make_again(&bed.hub.forges, &intent).await;
        assert!(matches!(made, Ok(Made::PullRequest(pull)) if pull.adopted));
        assert_eq!(requests, expected);
        let pull = bed.repository.pull_request(1).await.unwrap();
        assert_eq!(pull["requested_reviewers"][0]["login"], PERSON, "{pull:#}");
        assert_eq!(pull["assignees"][0]["login"], PERSON, "{pull:#}");
    }
}
