//! What exists already and is not ours, or was ended by people: it stays as it is.

use nabu_hub::forge::{PullRequestState, number_of};
use nabu_hub::response::ErrorType;
use nabu_tests::intents::{BINDINGS, REVOKE, failure, make_for};

use crate::bed::{Bed, plain};
use crate::forges::{OfTwoPulls, Server};

pub(crate) async fn a_closed_pull_request_is_never_opened_again(mut bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let (first, _) = bed.pull(&intent).await;
    bed.server.close(1).await;
    for branch_goes in [false, true] {
        if branch_goes {
            bed.server.delete_branch(&intent.branch).await;
        }
        bed.forget();
        let (pull, requests) = bed.pull(&intent).await;
        assert_eq!((&pull.url, requests), (&first.url, 1));
        assert_eq!((pull.state, pull.adopted), (PullRequestState::Closed, true));
    }
    assert_eq!(bed.only_pull().await.state, PullRequestState::Closed);
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_merged_pull_request_is_given_back_though_its_branch_is_gone(
    mut bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    let (first, _) = bed.pull(&intent).await;
    bed.server.merge(1).await;
    for branch_goes in [false, true] {
        if branch_goes {
            bed.server.delete_branch(&intent.branch).await;
        }
        bed.forget();
        let (pull, requests) = bed.pull(&intent).await;
        assert_eq!((&pull.url, requests), (&first.url, 1));
        assert_eq!((pull.state, pull.adopted), (PullRequestState::Merged, true));
    }
    assert_eq!(bed.only_pull().await.state, PullRequestState::Merged);
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn one_that_people_opened_by_hand_goes_before_the_closed_one_where_it_is_seen(
    mut bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    bed.pull(&intent).await;
    bed.server.close(1).await;
    let again = bed.server.open_pull(&intent.branch, "Again", &intent.body);
    assert_eq!(again.await, 2);
    bed.forget();
    let (pull, requests) = bed.pull(&intent).await;
    let (number, state) = match bed.differs().of_two_pulls {
        OfTwoPulls::Open => (2, PullRequestState::Open),
        OfTwoPulls::First => (1, PullRequestState::Closed),
    };
    assert_eq!((pull.state, requests), (state, 1));
    assert_eq!(number_of(&pull.url), Some(number), "{}", pull.url);
    assert_eq!(bed.server.pulls().await.len(), 2);
}

pub(crate) async fn a_pull_request_from_a_fork_is_never_adopted(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    // Whoever knows how ours look can make one that looks the same.
    let foreign =
        bed.server
            .open_pull_from_fork(&intent.branch, &intent.commit_message, &intent.body);
    let foreign = foreign.await;

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!((requests, pull.adopted), (bed.differs().open, false));
    assert!(!pull.url.ends_with(&format!("/{foreign}")), "{}", pull.url);
    assert_eq!(bed.server.pulls().await.len(), 2);
    let file = bed.file(&intent.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));
    assert_eq!(bed.file(&intent.branch, "fork.txt"), None);
    let (again, requests) = bed.pull(&intent).await;
    assert_eq!((again.url, requests), (pull.url, 1));
}

pub(crate) async fn somebody_elses_commit_on_our_branch_is_left_alone(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let mine = [plain("mine.txt", "mine\n")];
    let tip = bed.commit("main", &intent.branch, "Mine", &mine).await;
    bed.is_taken(&intent).await;
    assert_eq!(bed.tip(&intent.branch).oid, tip);
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn somebody_elses_pull_request_of_our_branch_is_left_alone(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let mine = [plain("mine.txt", "mine\n")];
    let tip = bed.commit("main", &intent.branch, "Mine", &mine).await;
    bed.server.open_pull(&intent.branch, "Mine", "Mine").await;
    bed.is_taken(&intent).await;
    bed.server.close(1).await;
    bed.is_taken(&intent).await;
    assert_eq!(bed.tip(&intent.branch).oid, tip);
    let seen = bed.only_pull().await;
    assert_eq!((seen.title.as_str(), seen.body.as_str()), ("Mine", "Mine"));
}

pub(crate) async fn somebody_elses_commit_on_top_of_ours_is_not_passed_off_as_the_change(
    bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    bed.commit_of(&intent, &[plain(BINDINGS, "bindings: []\n")])
        .await;
    let tip = bed.add_file(&intent.branch, "mine.txt", "mine\n").await;
    bed.is_taken(&intent).await;
    assert_eq!(bed.tip(&intent.branch).oid, tip);
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn a_commit_of_another_response_is_somebody_elses(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let other = bed.intent("u-11", &REVOKE);
    let file = [plain(BINDINGS, "bindings: []\n")];
    let message = &other.commit_message;
    let tip = bed.commit("main", &intent.branch, message, &file).await;
    bed.is_taken(&intent).await;
    assert_eq!(bed.tip(&intent.branch).oid, tip);
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn a_change_never_goes_to_the_base_branch(bed: Bed<impl Server>) {
    bed.add_branch("develop", "main").await;
    bed.server.set_default_branch("develop").await;
    let before = bed.tip("develop");
    for base in [None, Some("develop".to_owned())] {
        let mut intent = bed.intent("u-1", &REVOKE);
        intent.base_branch = base;
        "develop".clone_into(&mut intent.branch);
        let (made, _) = make_for(&bed.hub.forges, "u-1", &intent).await;
        let error = failure(made);
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Permanent, "BranchNotAllowed"));
    }
    assert_eq!(bed.tip("develop"), before);
}

pub(crate) async fn a_branch_of_a_name_that_others_may_use_is_never_taken_for_an_empty_one_of_ours(
    bed: Bed<impl Server>,
) {
    bed.add_branch("staging", "main").await;
    let before = bed.tip("staging");
    for behind in [false, true] {
        if behind {
            bed.add_file("main", "later.txt", "later\n").await;
        }
        let mut intent = bed.intent("u-1", &REVOKE);
        "staging".clone_into(&mut intent.branch);
        let (made, _) = make_for(&bed.hub.forges, "u-1", &intent).await;
        let error = failure(made);
        assert_eq!(error.reason, "BranchTaken", "{}", error.detail);
        assert_eq!(bed.tip("staging"), before);
    }
    assert!(bed.server.pulls().await.is_empty());
}
