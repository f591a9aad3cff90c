//! Connections that break, limits and broken answers, before and after each request has had its effect.

use std::time::Duration;

use nabu_hub::forge::http::Timeouts;
use nabu_hub::forge::metrics::ForgeMetrics;
use nabu_hub::forge::registry::Forges;
use nabu_hub::forge::{ForgeError, Made, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Limit, Reply};
use prometheus_client::registry::Registry;
use serde_json::json;

use crate::bed::{Bed, DENY, NEW, failure, make};

/// Fails at the n-th request, then works; whatever happened, there is one merge request with the change.
async fn survives(effect: Effect, number: u32) -> (ForgeError, Bed) {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.fail(Fault::new(effect.clone()).at(number));
    let (made, requests) = bed.make(&intent).await;
    let error = made.expect_err(&format!("{effect:?} at {number}"));
    assert_eq!(requests, number, "{effect:?}: nothing is sent twice");
    assert_eq!(bed.gitlab.requests().len(), number as usize);

    let (pull, _) = bed.pull(&intent).await;

    assert_eq!(pull.state, PullRequestState::Open, "{effect:?} at {number}");
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all.len(), 1, "{effect:?} at {number}");
    let file = bed.project.file(&intent.branch, NEW).unwrap();
    assert_eq!(file.as_deref(), DENY[0].1);
    assert_eq!(bed.project.commit(&intent.branch).unwrap().parents.len(), 1);
    (error, bed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_request_ends_in_one_merge_request() {
    for number in 1..=3 {
        for effect in [Effect::CutBefore, Effect::CutAfter, Effect::Truncate(1)] {
            let is_cut = effect != Effect::Truncate(1);
            let (error, _) = survives(effect, number).await;
            let error = failure(Err(error));
            assert_eq!(error.kind, ErrorType::Transient, "{}", error.detail);
            assert!(!is_cut || error.reason == "ConnectionLost", "{error:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_before_or_after_any_request_ends_in_one_merge_request() {
    for number in 1..=3 {
        for status in [502, 503, 504] {
            let (error, _) = survives(Effect::AnswerAfter(Reply::html(status)), number).await;
            assert!(matches!(error, ForgeError::Unavailable { .. }), "{error:?}");
        }
        let (error, _) = survives(Effect::Answer(Reply::html(502)), number).await;
        assert!(matches!(error, ForgeError::Unavailable { .. }), "{error:?}");
        let internal = Reply::json(500, &json!({ "message": "500 Internal Server Error" }));
        let (error, _) = survives(Effect::AnswerAfter(internal), number).await;
        let error = failure(Err(error));
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorType::Transient, "ForgeError")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_for_people_with_a_success_is_no_success() {
    for number in 1..=3 {
        let (error, _) = survives(Effect::AnswerAfter(Reply::html(200)), number).await;
        let error = failure(Err(error));
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorType::Transient, "ForgeError")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_says_how_long_to_wait() {
    for number in 1..=3 {
        for (limit, seconds) in [
            (
                Limit::Secondary {
                    status: 429,
                    retry_after: Some(Duration::from_secs(7)),
                },
                7,
            ),
            (
                Limit::Primary {
                    status: 429,
                    reset: Duration::from_secs(30),
                },
                // One more: GitLab counts in whole seconds.
                31,
            ),
        ] {
            let (error, _) = survives(Effect::Limit(limit), number).await;
            let ForgeError::RateLimited { retry_after, .. } = error else {
                panic!("{error:?}")
            };
            assert_eq!(retry_after.as_secs(), seconds);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_is_transient_and_what_was_done_is_found() {
    for number in 1..=3 {
        for effect in [Effect::HoldBefore, Effect::HoldAfter] {
            let bed = Bed::new().await;
            let intent = bed.intent("u-1", &DENY);
            bed.gitlab.fail(Fault::new(effect).at(number));
            // The attempt is given up, as when the hub is killed.
            tokio::select! {
                (made, _) = bed.make(&intent) => panic!("{made:?}"),
                () = bed.gitlab.faults().reached() => {}
            }
            bed.gitlab.faults().release();
            let (made, _) = bed.make(&intent).await;
            match made {
                Ok(Made::PullRequest(_)) => {}
                Err(ForgeError::Failed(error)) => {
                    assert_eq!(error.kind, ErrorType::Transient, "{error:?}");
                }
                other => panic!("{other:?}"),
            }
            bed.pull(&intent).await;
            assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn somebody_who_was_faster_is_found_by_the_number_that_gitlab_says() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.fail(
        Fault::new(Effect::HoldBefore)
            .method("POST")
            .path("/merge_requests"),
    );
    let ((made, requests), ()) = tokio::join!(bed.make(&intent), async {
        bed.gitlab.faults().reached().await;
        let body = &intent.body;
        bed.project
            .add_merge_request(&intent.branch, "Faster", body)
            .unwrap();
        bed.gitlab.faults().release();
    });
    let Ok(Made::PullRequest(pull)) = made else {
        panic!("{made:?}")
    };
    assert!(pull.adopted && pull.url.ends_with("/1"), "{pull:?}");
    assert_eq!(requests, 4, "lookup, commit, merge request, that one");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_answer_in_time_is_transient() {
    let bed = Bed::new().await;
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        total: Duration::from_millis(300),
    };
    let metrics = ForgeMetrics::register(&mut Registry::default());
    let forges = Forges::with_timeouts(bed.hub.credentials.clone(), metrics, timeouts);
    bed.gitlab.fail(Fault::new(Effect::HoldBefore));
    let (made, requests) = make(&forges, &bed.intent("u-1", &DENY)).await;
    let error = failure(made);
    assert_eq!(
        (error.kind, error.reason.as_str(), requests),
        (ErrorType::Transient, "Timeout", 1)
    );
}
