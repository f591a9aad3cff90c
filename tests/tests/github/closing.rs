//! A pull request that is closed because nobody wants it any more.

use nabu_hub::forge::{Closing, PullRequestState};
use nabu_tests::intents::closing;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};

use crate::bed::{Bed, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_or_a_half_done_document_leaves_one_comment_and_a_closed_pull_request() {
    for number in 1..=2 {
        for effect in [
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::AnswerAfter(Reply::html(502)),
            Effect::OnlyFirst(1),
        ] {
            if number == 1 && effect == Effect::OnlyFirst(1) {
                continue;
            }
            let bed = Bed::new().await;
            let intent = bed.intent("u-1", &REVOKE);
            bed.pull(&intent).await;
            let before = u32::try_from(bed.github.requests().len()).unwrap();
            bed.github
                .fault(Fault::new(effect.clone()).at(before + number));
            let (first, _) = bed.hub.close(&intent, &closing(Some(1))).await;
            assert!(first.is_err(), "{effect:?} at {number}: {first:?}");
            let again = Closing {
                again: true,
                ..closing(Some(1))
            };
            let (closed, _) = bed.hub.close(&intent, &again).await;
            let state = closed.unwrap().unwrap().pull.state;
            let seen = bed.repository.pulls().unwrap().remove(0);
            assert_eq!(
                (state, seen.state, seen.comments.len()),
                (PullRequestState::Closed, "closed", 1),
                "{effect:?} at {number}"
            );
        }
    }
}
