//! What GitHub does with labels, people and auto-merge, and how many requests many changes take together.

use nabu_hub::change::MergeMethod;
use nabu_hub::forge::{Job, Made, PullRequestState};
use nabu_tests::intents::make_again;
use nabu_tests::test_forge::github::{PERSON, Protection, Rule, TEAM};

use crate::bed::{Bed, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn labels_people_and_auto_merge_take_one_request_more() {
    let bed = Bed::new().await;
    bed.repository.add_label("security").unwrap();
    bed.repository.allow_auto_merge(true).unwrap();
    // Something to wait for: else GitHub wants the merge itself.
    bed.repository
        .protect(Rule {
            branches: "main".to_owned(),
            protection: Protection::Branch,
            message: "Changes must be made through a pull request.".to_owned(),
        })
        .unwrap();
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.labels = vec!["security".to_owned(), "new label".to_owned()];
    intent.reviewers = vec![PERSON.to_owned(), "nobody".to_owned()];
    intent.options.team_reviewers = vec![TEAM.to_owned()];
    intent.options.assignees = vec![PERSON.to_owned()];
    intent.options.auto_merge = Some(MergeMethod::Squash);
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 3);
    assert_eq!(pull.notes.len(), 1, "{:?}", pull.notes);
    assert!(pull.notes[0].contains("nobody"), "{:?}", pull.notes);

    let there = &bed.repository.pulls().unwrap()[0];
    let mut labels = there.labels.clone();
    labels.sort();
    assert_eq!(labels, ["new label", "security"]);
    assert_eq!(there.reviewers.len(), 2, "{:?}", there.reviewers);
    assert_eq!(there.assignees, [PERSON]);
    assert!(there.auto_merge);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_merge_that_is_not_allowed_is_told_and_costs_nothing_else() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.options.auto_merge = Some(MergeMethod::Merge);
    let (pull, _) = bed.pull(&intent).await;
    assert!(
        pull.notes[0].starts_with("auto-merge: "),
        "{:?}",
        pull.notes
    );
    assert_eq!(pull.state, PullRequestState::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_responses_that_wait_together_need_fewer_than_two_requests_each() {
    let bed = std::sync::Arc::new(Bed::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let bed = std::sync::Arc::clone(&bed);
        tasks.spawn(async move {
            let path = format!("responses/{number}.yaml");
            let files = [(path.as_str(), Some("kind: X\n"))];
            let intent = bed.intent(&format!("u-{number}"), &files);
            bed.pull(&intent).await.1
        });
    }
    let requests: u32 = tasks.join_all().await.into_iter().sum();
    let served = bed.github.requests().len();
    assert_eq!(
        usize::try_from(requests).unwrap(),
        served,
        "every request is counted once"
    );
    assert!(served < 200, "{served} requests");
    assert_eq!(bed.repository.pulls().unwrap().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_many_pull_requests_takes_one_request() {
    let bed = Bed::new().await;
    let mut intents = Vec::new();
    for number in 0..25 {
        let path = format!("responses/{number}.yaml");
        let intent = bed.intent(
            &format!("u-{number}"),
            &[(path.as_str(), Some("kind: X\n"))],
        );
        bed.pull(&intent).await;
        intents.push(intent);
    }
    let merged = bed.repository.merge(1).unwrap();
    bed.repository.close(2).unwrap();
    bed.github.clear_requests();

    let key = nabu_tests::intents::key("u-0");
    let job = Job::new(&key, &intents[0]);
    let forge = bed.hub.forges.get(&bed.target()).unwrap();
    let numbers: Vec<u64> = (1..=26).collect();
    let observed = forge.observe(&job, &numbers).await.unwrap();
    assert_eq!(bed.github.requests().len(), 1);
    assert_eq!(observed.len(), 25, "one that does not exist is left out");
    let of = |number| observed.iter().find(|pull| pull.number == number).unwrap();
    assert_eq!(of(1).state, PullRequestState::Merged);
    assert_eq!(of(1).merge_commit.as_ref(), Some(&merged));
    assert!(of(1).ended_at.is_some());
    assert_eq!(of(2).state, PullRequestState::Closed);
    assert_eq!(of(3).state, PullRequestState::Open);

    forge.remove_branch(&job, 1).await.unwrap();
    forge.remove_branch(&job, 3).await.unwrap();
    let branches = bed.repository.branches().unwrap();
    assert!(!branches.contains(&intents[0].branch));
    assert!(branches.contains(&intents[2].branch), "it is not merged");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_attempt_is_made_up_for_with_people_and_auto_merge() {
    let mut bed = Bed::new().await;
    bed.repository
        .set_permission(PERSON, Some("write"))
        .unwrap();
    bed.repository.allow_auto_merge(true).unwrap();
    let bare = bed.intent("u-1", &REVOKE);
    bed.pull(&bare).await;
    let mut intent = bare.clone();
    intent.reviewers = vec![PERSON.to_owned()];
    intent.options.assignees = vec![PERSON.to_owned()];
    bed.forget();
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 1, "what was opened long ago is left to people");
    assert!(bed.repository.pulls().unwrap()[0].reviewers.is_empty());
    for _ in 0..2 {
        let (made, requests) = make_again(&bed.hub.forges, &intent).await;
        assert!(matches!(made, Ok(Made::PullRequest(pull)) if pull.adopted));
        assert_eq!(requests, 2);
        let there = bed.repository.pulls().unwrap().remove(0);
        assert_eq!(
            (there.reviewers, there.assignees),
            (vec![PERSON.to_owned()], vec![PERSON.to_owned()])
        );
    }
}
