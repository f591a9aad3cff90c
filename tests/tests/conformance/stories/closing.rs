//! A pull request that is closed because nobody wants it any more.

use nabu_hub::forge::{Closing, ForgeError, PullRequestState};
use nabu_tests::fault_proxy::{Fault, FaultProxy};
use nabu_tests::intents::{REVOKE, closing};

use crate::bed::{Bed, plain};
use crate::forges::Server;

const SAID: &str = "Closed by Nabu: the EventResponse was deleted.";

/// A wish that an earlier try may have fulfilled in part.
fn again(number: u64) -> Closing<'static> {
    Closing {
        again: true,
        ..closing(Some(number))
    }
}

pub(crate) async fn it_is_said_why_and_closed_and_the_second_time_nothing(
    mut bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    let (pull, _) = bed.pull(&intent).await;

    let (closed, requests) = bed.hub.close(&intent, &closing(Some(1))).await;

    let closed = closed.unwrap().unwrap();
    assert_eq!(requests, bed.differs().close);
    assert_eq!((&closed.url, closed.pull.number), (&pull.url, 1));
    assert_eq!(closed.pull.state, PullRequestState::Closed);
    assert!(closed.pull.ended_at.is_some() && closed.notes.is_empty());
    assert_eq!(closed.pull.merge_commit, None);
    assert_eq!(bed.only_pull().await.state, PullRequestState::Closed);
    let comments = bed.server.comments(1).await;
    assert_eq!(comments.len(), 1);
    assert!(comments[0].starts_with(SAID), "{comments:?}");
    assert!(
        bed.branches().contains(&intent.branch),
        "the branch stays unless the route says otherwise"
    );
    bed.forget();
    let (closed, requests) = bed.hub.close(&intent, &again(1)).await;
    let state = closed.unwrap().unwrap().pull.state;
    assert_eq!((state, requests), (PullRequestState::Closed, 1));
    assert_eq!(bed.server.comments(1).await.len(), 1);
}

pub(crate) async fn a_cut_anywhere_leaves_one_comment_and_a_closed_pull_request(
    bed: Bed<impl Server>,
) {
    let kinds = [
        ("cut", Fault::CutBefore as fn(u32) -> Fault),
        ("lost", Fault::CutAfter),
    ];
    let cases: Vec<_> = (1..=bed.differs().close)
        .flat_map(|number| kinds.map(|kind| (number, kind)))
        .collect();
    for (index, (number, (kind, fault))) in cases.iter().enumerate() {
        let mut intent = bed.intent(&format!("{kind}-{number}"), &REVOKE);
        bed.pull(&intent).await;
        let pull = u64::try_from(index + 1).unwrap();
        let proxy = FaultProxy::start(&bed.server.url()).await.unwrap();
        intent.target = bed.target_through(&proxy);
        proxy.add(fault(*number));
        let (first, _) = bed.hub.close(&intent, &closing(Some(pull))).await;
        assert!(first.is_err(), "{kind} at {number}: {first:?}");
        let (closed, _) = bed.other_hub().close(&intent, &again(pull)).await;
        let state = closed.unwrap().unwrap().pull.state;
        assert_eq!(state, PullRequestState::Closed, "{kind} at {number}");
        let comments = bed.server.comments(pull).await;
        assert_eq!(comments.len(), 1, "{kind} at {number}: {comments:?}");
    }
    let pulls = bed.server.pulls().await;
    assert_eq!(pulls.len(), cases.len());
    assert!(
        pulls
            .iter()
            .all(|pull| pull.state == PullRequestState::Closed)
    );
}

pub(crate) async fn a_reason_that_was_said_is_found_behind_many_comments(
    mut bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    bed.pull(&intent).await;
    let (closed, _) = bed.hub.close(&intent, &closing(Some(1))).await;
    closed.unwrap();
    bed.server.reopen(1).await;
    // More than forges give on a page.
    for number in 0..101 {
        bed.server.comment(1, &format!("Comment {number}")).await;
    }
    bed.forget();
    let (closed, _) = bed.hub.close(&intent, &again(1)).await;
    let state = closed.unwrap().unwrap().pull.state;
    assert_eq!(state, PullRequestState::Closed);
    let comments = bed.server.comments(1).await;
    let ours = comments.iter().filter(|text| text.starts_with(SAID));
    assert_eq!((ours.count(), comments.len()), (1, 102));
}

pub(crate) async fn one_that_people_have_ended_is_given_back_as_it_is(bed: Bed<impl Server>) {
    for uid in ["u-1", "u-2"] {
        bed.pull(&bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]))
            .await;
    }
    bed.server.merge(1).await;
    bed.server.close(2).await;
    for (number, state) in [(1, PullRequestState::Merged), (2, PullRequestState::Closed)] {
        let intent = bed.intent(&format!("u-{number}"), &REVOKE);
        for wish in [closing(Some(number)), again(number)] {
            let (closed, requests) = bed.hub.close(&intent, &wish).await;
            assert_eq!((closed.unwrap().unwrap().pull.state, requests), (state, 1));
        }
        assert!(bed.server.comments(number).await.is_empty());
    }
    let intent = bed.intent("u-1", &REVOKE);
    let (gone, _) = bed.hub.close(&intent, &closing(Some(99))).await;
    assert_eq!(gone.unwrap(), None);
}

pub(crate) async fn without_a_number_only_ours_is_closed(bed: Bed<impl Server>) {
    let intent = bed.intent("u-1", &REVOKE);
    let (nothing, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!((nothing.unwrap(), requests), (None, 1));
    bed.pull(&intent).await;
    let (closed, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!(closed.unwrap().unwrap().pull.number, 1);
    assert_eq!(requests, bed.differs().close_by_key);

    let other = bed.intent("u-2", &REVOKE);
    let mine = [plain("mine.txt", "mine\n")];
    bed.commit("main", &other.branch, "Mine", &mine).await;
    bed.server.open_pull(&other.branch, "Mine", "").await;
    let (refused, _) = bed.hub.close(&other, &closing(None)).await;
    assert!(
        matches!(&refused, Err(ForgeError::Failed(error)) if error.reason == "BranchTaken"),
        "{refused:?}"
    );
    let pulls = bed.server.pulls().await;
    assert_eq!(pulls[1].state, PullRequestState::Open);
    assert!(bed.server.comments(2).await.is_empty());
}

pub(crate) async fn the_branch_goes_if_that_is_wanted_and_nobody_has_put_something_on_it(
    bed: Bed<impl Server>,
) {
    for (uid, touched, known) in [
        ("u-1", false, true),
        ("u-2", true, true),
        ("u-3", true, false),
    ] {
        let intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        let (pull, _) = bed.pull(&intent).await;
        if touched {
            bed.add_file(&intent.branch, "mine.txt", "mine\n").await;
        }
        let wish = Closing {
            remove_branch: true,
            commit: pull.commit.as_deref().filter(|_| known),
            ..closing(None)
        };
        let (closed, _) = bed.hub.close(&intent, &wish).await;
        let closed = closed.unwrap().unwrap();
        assert_eq!(closed.pull.state, PullRequestState::Closed);
        assert_eq!(closed.notes, Vec::<String>::new());
        assert_eq!(bed.branches().contains(&intent.branch), touched, "{uid}");
    }
}
