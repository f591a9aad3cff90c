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

/// Something happens to the n-th request. Whatever comes of that, nothing is written twice in the attempt, and after the next
/// one there is one merge request with the change.
async fn survives(effect: Effect, number: u32) -> Result<Made, ForgeError> {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.fail(Fault::new(effect.clone()).at(number));
    let (made, requests) = bed.make(&intent).await;
    let sent = bed.gitlab.requests();
    assert_eq!(sent.len(), requests as usize);
    for write in ["/repository/commits", "/merge_requests"] {
        let posts = sent.iter().filter(|one| one.method == "POST");
        let times = posts.filter(|one| one.path.ends_with(write)).count();
        assert!(times <= 1, "{effect:?} at {number}: {write} {times} times");
    }

    let (pull, _) = bed.pull(&intent).await;

    assert_eq!(pull.state, PullRequestState::Open, "{effect:?} at {number}");
    let all = bed.project.merge_requests().unwrap();
    assert_eq!(all.len(), 1, "{effect:?} at {number}");
    let file = bed.project.file(&intent.branch, NEW).unwrap();
    assert_eq!(file.as_deref(), DENY[0].1);
    assert_eq!(bed.project.commit(&intent.branch).unwrap().parents.len(), 1);
    made
}

/// The attempt ends with the merge request all the same.
async fn makes_up_for(effect: Effect, number: u32) {
    let made = survives(effect.clone(), number).await;
    let is_there = matches!(made, Ok(Made::PullRequest(_)));
    assert!(is_there, "{effect:?} at {number}: {made:?}");
}

/// The question comes first, then the commit, then the merge request.
const QUESTION: u32 = 1;
const WRITES: [u32; 2] = [2, 3];

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_connection_ends_in_one_merge_request() {
    let fails = async |effect: Effect, number| {
        let error = failure(survives(effect, number).await);
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorType::Transient, "ConnectionLost")
        );
    };
    for effect in [Effect::CutBefore, Effect::CutAfter, Effect::Truncate(1)] {
        fails(effect, QUESTION).await;
    }
    for write in WRITES {
        fails(Effect::CutBefore, write).await;
        makes_up_for(Effect::CutAfter, write).await;
        makes_up_for(Effect::Truncate(1), write).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_ends_in_one_merge_request() {
    for status in [502, 503, 504] {
        let answer = Reply::html(status);
        for number in [QUESTION, 2, 3] {
            let made = survives(Effect::Answer(answer.clone()), number).await;
            let waits = matches!(made, Err(ForgeError::Unavailable { .. }));
            assert!(waits, "{status} at {number}: {made:?}");
        }
        for write in WRITES {
            makes_up_for(Effect::AnswerAfter(answer.clone()), write).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_of_the_server_itself_ends_in_one_merge_request() {
    let internal = Reply::json(500, &json!({ "message": "500 Internal Server Error" }));
    // Over the REST API, there may be nothing wrong.
    makes_up_for(Effect::Answer(internal.clone()), QUESTION).await;
    for write in WRITES {
        let error = failure(survives(Effect::Answer(internal.clone()), write).await);
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Transient, "ForgeError"));
        makes_up_for(Effect::AnswerAfter(internal.clone()), write).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_for_people_with_a_success_is_no_success() {
    let page = Reply::html(200);
    makes_up_for(Effect::Answer(page.clone()), QUESTION).await;
    for write in WRITES {
        let error = failure(survives(Effect::Answer(page.clone()), write).await);
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Transient, "ForgeError"));
        makes_up_for(Effect::AnswerAfter(page.clone()), write).await;
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
            let made = survives(Effect::Limit(limit), number).await;
            let Err(ForgeError::RateLimited { retry_after, .. }) = made else {
                panic!("{made:?}")
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
async fn no_answer_in_time_is_looked_for_and_else_transient() {
    let timeouts = Timeouts {
        connect: Duration::from_secs(2),
        total: Duration::from_secs(4),
    };
    for (effect, number, done) in [
        (Effect::HoldBefore, 1, false),
        (Effect::HoldBefore, 2, false),
        (Effect::HoldAfter, 2, true),
        (Effect::HoldBefore, 3, false),
        (Effect::HoldAfter, 3, true),
    ] {
        let bed = Bed::new().await;
        let metrics = ForgeMetrics::register(&mut Registry::default());
        let forges = Forges::with_timeouts(bed.hub.credentials.clone(), metrics, timeouts);
        bed.gitlab.fail(Fault::new(effect).at(number));
        let (made, _) = make(&forges, &bed.intent("u-1", &DENY)).await;
        if done {
            assert!(
                matches!(made, Ok(Made::PullRequest(_))),
                "{number}: {made:?}"
            );
            assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
        } else {
            let error = failure(made);
            let said = (error.kind, error.reason.as_str());
            assert_eq!(said, (ErrorType::Transient, "Timeout"), "{number}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_that_lag_behind_make_no_second_merge_request() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.freeze();
    let (first, _) = bed.pull(&intent).await;
    let lag = || Fault::new(Effect::Frozen).always();

    // While nothing shows it, nothing is made.
    bed.gitlab.fail(lag());
    let posts = bed.count("POST");
    let error = bed.failure(&intent).await;
    let said = (error.kind, error.reason.as_str());
    assert_eq!(said, (ErrorType::Transient, "Behind"), "{}", error.detail);
    assert_eq!(bed.count("POST"), posts + 1, "only the question");

    // It is enough that one read shows it.
    bed.gitlab.faults().clear();
    bed.gitlab.fail(lag().path("/api/graphql"));
    let (again, requests) = bed.pull(&intent).await;
    assert_eq!((&again.url, again.adopted, requests), (&first.url, true, 2));

    // A hub that remembers nothing finds the branch, and then the merge request when it wants to open it.
    bed.gitlab.faults().clear();
    bed.gitlab.fail(lag());
    let metrics = ForgeMetrics::register(&mut Registry::default());
    let forges = Forges::new(bed.hub.credentials.clone(), metrics);
    let (made, _) = make(&forges, &intent).await;
    assert!(made.is_err(), "{made:?}");
    bed.gitlab.faults().clear();
    bed.gitlab.fail(lag().method("POST"));
    bed.gitlab.fail(lag().path("state=all"));
    let (made, _) = make(&forges, &intent).await;
    let Ok(Made::PullRequest(again)) = made else {
        panic!("{made:?}")
    };
    assert_eq!((again.url, again.adopted), (first.url, true));
    assert_eq!(bed.project.merge_requests().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_goes_before_its_merge_request_is_open_is_made_anew() {
    let bed = Bed::new().await;
    let intent = bed.intent("u-1", &DENY);
    bed.gitlab.fail(
        Fault::new(Effect::HoldBefore)
            .method("POST")
            .path("merge_requests"),
    );
    let ((made, _), ()) = tokio::join!(bed.make(&intent), async {
        bed.gitlab.faults().reached().await;
        bed.project.delete_branch(&intent.branch).unwrap();
        bed.gitlab.faults().release();
    });
    let error = failure(made);
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Transient, "BranchGone")
    );
    assert_eq!(bed.pull(&intent).await.1, 3);
}
