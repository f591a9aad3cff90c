//! What exists of a change already: ours is taken up where it was left.

use futures::StreamExt as _;
use nabu_hub::forge::{ForgeError, Made, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::fault_proxy::{Fault, FaultProxy};
use nabu_tests::intents::{BINDINGS, HubForges, OBSOLETE, REVOKE};

use crate::bed::{Bed, plain};
use crate::forges::{EmptyCommit, Labels, LeftBehind, Server};

pub(crate) async fn a_branch_without_a_commit_is_gone_on_with(bed: Bed<impl Server>) {
    for (uid, files) in [
        ("u-1", &REVOKE[..]),
        ("u-2", &[(OBSOLETE, None), ("gone.yaml", None)][..]),
    ] {
        let intent = bed.intent(uid, files);
        bed.add_branch(&intent.branch, "main").await;
        let (pull, _) = bed.pull(&intent).await;
        assert!(!pull.adopted);
        assert_eq!(pull.commit, Some(bed.tip(&intent.branch).oid));
        assert_eq!(bed.tip(&intent.branch).parents, [bed.tip("main").oid]);
        assert_eq!(bed.file(&intent.branch, files[0].0).as_deref(), files[0].1);
    }
    assert_eq!(bed.server.pulls().await.len(), 2);
}

pub(crate) async fn a_branch_without_a_commit_goes_if_there_is_nothing_to_do(
    bed: Bed<impl Server>,
) {
    for (uid, path, contents) in [
        ("u-1", "gone.yaml", None),
        ("u-2", BINDINGS, Some("bindings: [ops-admin]\n")),
    ] {
        let intent = bed.intent(uid, &[(path, contents)]);
        bed.add_branch(&intent.branch, "main").await;
        bed.nothing(&intent).await;
    }
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn a_branch_that_its_base_has_left_behind_loses_nothing(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    bed.add_branch(&intent.branch, "main").await;
    let before = bed.tip(&intent.branch);
    let after = bed.add_file("main", "later.txt", "later\n").await;
    match bed.differs().left_behind {
        LeftBehind::Follows => {
            bed.pull(&intent).await;
            assert_eq!(bed.tip(&intent.branch).parents, [after]);
            assert!(bed.file(&intent.branch, "later.txt").is_some());
        }
        LeftBehind::IsTaken => {
            bed.is_taken(&intent).await;
            assert_eq!(bed.tip(&intent.branch), before);
            assert!(bed.server.pulls().await.is_empty());
        }
    }
}

pub(crate) async fn our_commit_without_a_pull_request_gets_one(mut bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let file = plain(BINDINGS, "bindings: []\n");
    let commit = bed.commit_of(&intent, &[file]).await;

    let (pull, _) = bed.pull(&intent).await;
    bed.forget();
    let (again, requests) = bed.pull(&intent).await;

    assert_eq!(pull.commit.as_ref(), Some(&commit));
    assert_eq!((again.url, requests), (pull.url, 1));
    assert_eq!(bed.tip(&intent.branch).oid, commit);
    assert_eq!(bed.only_pull().await.head, intent.branch);
}

pub(crate) async fn our_commit_with_other_contents_is_not_passed_off_as_the_change(
    bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    let file = plain(BINDINGS, "bindings: [somebody]\n");
    let commit = bed.commit_of(&intent, &[file]).await;
    let detail = bed.is_taken(&intent).await;
    assert!(detail.contains(BINDINGS), "{detail}");
    assert_eq!(bed.tip(&intent.branch).oid, commit);

    let deletes = bed.intent("u-2", &[(OBSOLETE, None)]);
    bed.commit_of(&deletes, &[plain(OBSOLETE, "kind: Secret\n")])
        .await;
    bed.is_taken(&deletes).await;
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn our_commit_that_changes_nothing_is_taken_back_or_never_made(
    bed: Bed<impl Server>,
) {
    let same = "bindings: [ops-admin]\n";
    let intent = bed.intent("u-1", &[(BINDINGS, Some(same))]);
    match bed.differs().empty_commit {
        EmptyCommit::IsTakenBack => {
            bed.commit_of(&intent, &[plain(BINDINGS, same)]).await;
            bed.nothing(&intent).await;
        }
        EmptyCommit::IsNeverMade => {
            let (made, requests) = bed.make(&intent).await;
            assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
            assert_eq!(requests, 1, "a look");
        }
    }
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_pull_request_without_labels_gets_them_where_an_interruption_may_have_cost_them(
    mut bed: Bed<impl Server>,
) {
    // The label is there already.
    bed.pull(&labelled(&bed, "u-0")).await;
    let intent = labelled(&bed, "u-1");
    let (first, _) = bed.pull(&bed.intent("u-1", &REVOKE)).await;
    bed.forget();
    let (pull, _) = bed.pull(&intent).await;
    assert_eq!((pull.url, pull.adopted), (first.url, true));
    let expected: &[&str] = match bed.differs().labels {
        Labels::AtOnce => &[],
        Labels::Afterwards => &["security"],
    };
    assert_eq!(bed.server.pulls().await[1].labels, expected);
}

pub(crate) async fn a_body_that_people_rewrote_makes_a_pull_request_no_less_ours(
    bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    let (first, _) = bed.pull(&intent).await;
    bed.server.describe(1, "Looks good").await;
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, bed.differs().adopt_rewritten);
    assert_eq!((pull.url, pull.adopted), (first.url, true));
    let seen = bed.only_pull().await;
    assert_eq!(seen.body, "Looks good", "what people wrote stays");
}

/// Each request of a whole change fails once in each way; each case has a branch, a proxy and a hub of its own, and the
/// attempt after it another hub.
pub(crate) async fn whatever_fails_the_next_attempt_ends_with_one_pull_request(
    bed: Bed<impl Server>,
) {
    let kinds = [
        ("cut", Fault::CutBefore as fn(u32) -> Fault),
        ("lost", Fault::CutAfter),
        ("down", |number| Fault::Answer(number, 503)),
        ("broken", |number| Fault::AnswerAfter(number, 500)),
        ("empty", |number| Fault::AnswerAfter(number, 200)),
    ];
    // The label is made once; then a change costs every hub as much as the next one.
    bed.pull(&labelled(&bed, "label")).await;
    let (_, requests) = bed.other_hub().pull(&labelled(&bed, "whole")).await;
    let cases = (1..=requests).flat_map(|number| kinds.map(|kind| (number, kind)));
    let bed = &bed;
    let cases = cases.map(async |(number, (kind, fault))| {
        let uid = format!("{kind}-{number}");
        let mut intent = labelled(bed, &uid);
        let proxy = FaultProxy::start(&bed.server.url()).await.unwrap();
        intent.target = bed.target_through(&proxy);
        proxy.add(fault(number));
        let (first, _) = bed.other_hub().make(&intent).await;
        if let Err(ForgeError::Failed(error)) = &first {
            assert_eq!(error.kind, ErrorType::Transient, "{uid}: {error:?}");
        }
        assert!(proxy.requests() >= number, "{uid}: nothing has failed");
        let (made, _) = bed.other_hub().make(&intent).await;
        let Ok(Made::PullRequest(pull)) = made else {
            panic!("{uid}: {made:?}");
        };
        assert_eq!(pull.state, PullRequestState::Open, "{uid}");
        let file = bed.file(&intent.branch, BINDINGS);
        assert_eq!(file.as_deref(), Some("bindings: []\n"), "{uid}");
        assert_eq!(bed.tip(&intent.branch).parents, [bed.tip("main").oid]);
        intent.branch
    });
    // All at once would keep a server on a busy machine from answering in time.
    let branches: Vec<_> = futures::stream::iter(cases)
        .buffer_unordered(4)
        .collect()
        .await;
    let pulls = bed.server.pulls().await;
    for branch in branches {
        let ours: Vec<_> = pulls.iter().filter(|pull| pull.head == branch).collect();
        assert_eq!(ours.len(), 1, "{branch}: {ours:?}");
        assert_eq!(ours[0].labels, ["security"], "{branch}");
    }
}

fn labelled(bed: &Bed<impl Server>, uid: &str) -> nabu_hub::change::Intent {
    let mut intent = bed.intent(uid, &REVOKE);
    intent.labels = vec!["security".to_owned()];
    intent
}

pub(crate) async fn attempts_at_the_same_time_make_one_pull_request(bed: Bed<impl Server>) {
    let one = bed.intent("u-1", &REVOKE);
    let other = bed.intent("u-2", &[(OBSOLETE, None)]);
    let elsewhere = bed.other_hub();
    let hubs: [&HubForges; 4] = [&bed.hub, &elsewhere, &bed.hub, &elsewhere];
    let attempts = hubs
        .into_iter()
        .flat_map(|hub| [hub.make(&one), hub.make(&other)]);
    for (made, _) in futures::future::join_all(attempts).await {
        match made {
            Ok(Made::PullRequest(_)) => {}
            Err(ForgeError::Failed(error)) if error.kind == ErrorType::Transient => {}
            other => panic!("{other:?}"),
        }
    }
    let main = bed.tip("main").oid;
    for intent in [&one, &other] {
        let (pull, requests) = bed.pull(intent).await;
        assert_eq!((pull.adopted, requests), (true, 1));
        assert_eq!(bed.tip(&intent.branch).parents, [main.as_str()]);
    }
    assert_eq!(bed.server.pulls().await.len(), 2);
}
