//! A merge request that is closed because nobody wants it any more.

use nabu_hub::forge::{Closing, ForgeError, PullRequestState};
use nabu_tests::intents::closing;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};

use crate::bed::{Bed, DENY};

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_why_and_closed_in_three_requests_and_one_more_asks_and_changes_nothing() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (pull, _) = bed.pull(&intent).await;
    let (closed, requests) = bed.hub.close(&intent, &closing(Some(1))).await;
    let closed = closed.unwrap().unwrap();
    assert_eq!((requests, &closed.url), (3, &pull.url));
    assert_eq!(closed.pull.state, PullRequestState::Closed);
    assert!(closed.pull.ended_at.is_some() && closed.notes.is_empty());
    let notes = bed.project.notes(1).unwrap();
    assert!(
        notes[0].starts_with("Closed by Nabu: the EventResponse was deleted."),
        "{notes:?}"
    );
    assert!(
        bed.project.branches().unwrap().contains(&intent.branch),
        "the branch stays unless the route says otherwise"
    );
    let again = Closing {
        again: true,
        ..closing(Some(1))
    };
    assert_eq!(bed.hub.close(&intent, &again).await.1, 1);
    assert_eq!(bed.project.notes(1).unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_people_have_ended_is_given_back_as_it_is() {
    let bed = Bed::new().await;
    for uid in ["u-1", "u-2"] {
        bed.pull(&bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]))
            .await;
    }
    bed.project.merge(1).unwrap();
    bed.project.close(2).unwrap();
    for (uid, number, state) in [
        ("u-1", 1, PullRequestState::Merged),
        ("u-2", 2, PullRequestState::Closed),
    ] {
        let intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        let (closed, requests) = bed.hub.close(&intent, &closing(Some(number))).await;
        assert_eq!((closed.unwrap().unwrap().pull.state, requests), (state, 1));
        assert!(bed.project.notes(number).unwrap().is_empty());
    }
    let (gone, _) = bed
        .hub
        .close(&bed.intent("u-1", &DENY), &closing(Some(9)))
        .await;
    assert_eq!(gone.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_number_only_ours_is_closed() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    let (nothing, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!((nothing.unwrap(), requests), (None, 1));
    bed.pull(&intent).await;
    let (closed, requests) = bed.hub.close(&intent, &closing(None)).await;
    assert_eq!((closed.unwrap().unwrap().pull.number, requests), (1, 3));

    let other = bed.intent("u-2", &DENY);
    bed.project.add_branch(&other.branch, "main").unwrap();
    bed.project
        .add_file_as_person(&other.branch, &other.branch, "mine.txt", "mine\n")
        .unwrap();
    let number = bed
        .project
        .add_merge_request(&other.branch, "Mine", "")
        .unwrap();
    let (refused, _) = bed.hub.close(&other, &closing(None)).await;
    assert!(
        matches!(&refused, Err(ForgeError::Failed(error)) if error.reason == "BranchTaken"),
        "{refused:?}"
    );
    assert!(bed.project.notes(number).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branch_goes_if_that_is_wanted_and_nobody_has_put_something_on_it() {
    let bed = Bed::new().await;
    for (uid, touched) in [("u-1", false), ("u-2", true)] {
        let intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        let (pull, _) = bed.pull(&intent).await;
        if touched {
            bed.project
                .add_file_as_person(&intent.branch, &intent.branch, "mine.txt", "mine\n")
                .unwrap();
        }
        let wish = Closing {
            remove_branch: true,
            commit: pull.commit.as_deref(),
            ..closing(None)
        };
        let (closed, _) = bed.hub.close(&intent, &wish).await;
        assert_eq!(
            closed.unwrap().unwrap().pull.state,
            PullRequestState::Closed
        );
        assert_eq!(
            bed.project.branches().unwrap().contains(&intent.branch),
            touched,
            "{uid}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_request_leaves_one_note_and_a_closed_merge_request() {
    for number in 1..=3 {
        for effect in [
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::AnswerAfter(Reply::html(502)),
        ] {
            let bed = Bed::new().await;
            let intent = bed.intent("u-1", &DENY);
            bed.pull(&intent).await;
            let before = u32::try_from(bed.gitlab.requests().len()).unwrap();
            bed.gitlab
                .fail(Fault::new(effect.clone()).at(before + number));
            let (first, _) = bed.hub.close(&intent, &closing(Some(1))).await;
            assert!(first.is_err(), "{effect:?} at {number}: {first:?}");
            let again = Closing {
                again: true,
                ..closing(Some(1))
            };
            let (closed, _) = bed.hub.close(&intent, &again).await;
            let state = closed.unwrap().unwrap().pull.state;
            let notes = bed.project.notes(1).unwrap();
            assert_eq!(
                (state, notes.len()),
                (PullRequestState::Closed, 1),
                "{effect:?} at {number}"
            );
        }
    }
}
