//! What becomes of the pull request of a response that is cancelled or whose EventResponse goes, as sentences.

use serde_json::json;

use super::progress::{Cancellation, Moment};
use super::*;
use crate::fixtures::{event_response, intent, key, observation};
use crate::forge::{ClosedPull, ForgeError, Made, ObservedPull, PullRequest, PullRequestState};
use crate::plan::retry::RetryPolicy;
use crate::response::{Condition, Phase, Progress};

fn moment(second: i64) -> Moment {
    Moment {
        now: Timestamp::from_second(1_800_000_000 + second).unwrap(),
        generation: 1,
        jitter: 0.0,
    }
}

/// A response whose first attempt runs, on a route that says so or not.
fn running(close_on_cancel: bool) -> Response {
    let observation = observation(key(1), event_response(json!({})));
    let mut progress = progress::accept(&observation, moment(0).now);
    let mut intent = intent();
    intent.target.kind = crate::change::ProviderKind::ForgejoToken;
    intent.options.close_on_cancel = close_on_cancel;
    let typed = crd::parse_event_response(&event_response(json!({}))).unwrap();
    let attempt = Attempt {
        intent,
        retry: RetryPolicy::of(&typed, 0, None).unwrap(),
        passed_over: String::new(),
    };
    progress::begin(&mut progress, &attempt, moment(1));
    Response {
        observation,
        observed_at: moment(0).now,
        progress,
    }
}

fn opened(state: PullRequestState) -> Made {
    Made::PullRequest(PullRequest {
        url: "https://git.example/o/r/pulls/7".into(),
        commit: Some("c0ffee".into()),
        state,
        adopted: false,
        notes: Vec::new(),
    })
}

fn succeeded(close_on_cancel: bool) -> Response {
    let mut response = running(close_on_cancel);
    let made = opened(PullRequestState::Open);
    progress::succeed(&mut response.progress, &made, moment(2));
    response
}

fn step(response: &Response, second: i64) -> Step {
    let policy = Policy {
        routes: &RouteTable::default(),
        max_attempts: 0,
        cluster_name: "Prod EU",
        cluster_labels: &BTreeMap::new(),
    };
    plan(response, &policy, moment(second).now)
}

fn close(response: &Response, second: i64) -> Close {
    match step(response, second) {
        Step::Close(close) => *close,
        other => panic!("{other:?}"),
    }
}

fn ended(state: PullRequestState) -> ClosedPull {
    ClosedPull {
        url: "https://git.example/o/r/pulls/7".into(),
        pull: ObservedPull {
            number: 7,
            state,
            merge_commit: None,
            ended_at: None,
        },
        notes: Vec::new(),
    }
}

fn pull_request(progress: &Progress) -> &Condition {
    let mut conditions = progress.conditions.iter();
    conditions
        .find(|one| one.kind == progress::PULL_REQUEST)
        .unwrap()
}

#[test]
fn an_ended_response_whose_event_response_is_finished_keeps_its_pull_request() {
    let mut response = succeeded(true);
    let before = response.progress.clone();
    let why = progress::EVENT_RESPONSE_OUT_OF_HANDS;
    assert!(!progress::mark_out_of_hands(&mut response.progress, why));
    assert_eq!(
        response.progress, before,
        "it is its own status coming back"
    );
    assert_eq!(step(&response, 3), Step::Settled);
}

#[test]
fn what_somebody_else_ended_while_its_pull_request_was_made_is_left_to_them() {
    for why in [
        progress::EVENT_RESPONSE_OUT_OF_HANDS,
        progress::EVENT_RESPONSE_LEFT_OUT,
    ] {
        let mut response = running(true);
        assert!(progress::mark_out_of_hands(&mut response.progress, why));
        let made = opened(PullRequestState::Open);
        progress::succeed(&mut response.progress, &made, moment(2));
        assert_eq!(response.progress.phase, Phase::Cancelled);
        assert_eq!(
            step(&response, 3),
            Step::Settled,
            "nothing is closed: {why}"
        );
    }
}

#[test]
fn a_pull_request_is_closed_when_its_event_response_goes_and_the_route_says_so() {
    let mut response = succeeded(true);
    assert!(response.progress.watched);
    assert_eq!(step(&response, 3), Step::Settled);
    progress::mark_deleted(&mut response.progress);
    let wanted = close(&response, 3);
    assert_eq!(
        (wanted.number, wanted.commit.as_deref(), wanted.again),
        (Some(7), Some("c0ffee"), false)
    );
    assert_eq!(
        wanted.comment,
        "Closed by Nabu: the EventResponse was deleted (EventResponse `er-1` of cluster `prod-eu`)."
    );
    let before = response.progress.revision;
    assert!(follow_up::begin(&mut response.progress));
    assert!(close(&response, 3).again, "it may have been said already");
    let closed = ended(PullRequestState::Closed);
    follow_up::closed(&mut response.progress, Some(&closed), moment(4));
    let said = pull_request(&response.progress);
    assert_eq!((said.status, said.reason.as_str()), (Some(false), "Closed"));
    assert!(
        said.message.contains("the EventResponse was deleted"),
        "{}",
        said.message
    );
    assert_eq!(response.progress.phase, Phase::Succeeded);
    assert!(response.progress.revision > before && !response.progress.watched);
    assert_eq!(
        step(&response, 5),
        Step::Settled,
        "planning again yields nothing"
    );
}

#[test]
fn without_the_routes_word_nothing_is_closed() {
    let mut response = succeeded(false);
    assert!(!response.progress.watched);
    progress::mark_deleted(&mut response.progress);
    assert_eq!(step(&response, 3), Step::Settled);
    let said = progress::cancel(&mut response.progress, "cancelled by admin/ada: no");
    assert_eq!(said, Cancellation::Ended(Phase::Succeeded));
    assert_eq!(step(&response, 3), Step::Settled);

    let mut response = running(false);
    progress::mark_deleted(&mut response.progress);
    let made = opened(PullRequestState::Open);
    progress::succeed(&mut response.progress, &made, moment(2));
    assert_eq!(response.progress.phase, Phase::Succeeded);
    assert_eq!(step(&response, 3), Step::Settled);
}

#[test]
fn an_administrator_can_cancel_what_has_succeeded_where_the_route_says_so() {
    let mut response = succeeded(true);
    for _ in 0..2 {
        let said = progress::cancel(
            &mut response.progress,
            "cancelled by admin/ada: a <b>drill</b> @all",
        );
        assert_eq!(said, Cancellation::Closing);
    }
    let comment = close(&response, 3).comment;
    assert!(comment.contains("cancelled by admin/ada"), "{comment}");
    assert!(
        !comment.contains("<b>") && !comment.contains("@all"),
        "{comment}"
    );
    assert_eq!(response.progress.phase, Phase::Succeeded);
}

#[test]
fn what_people_have_ended_is_not_touched() {
    for state in [PullRequestState::Merged, PullRequestState::Closed] {
        let mut response = running(true);
        progress::succeed(&mut response.progress, &opened(state), moment(2));
        assert!(!response.progress.watched);
        progress::mark_deleted(&mut response.progress);
        assert_eq!(step(&response, 3), Step::Settled, "{state:?}");
    }
    let mut response = succeeded(true);
    progress::mark_deleted(&mut response.progress);
    follow_up::begin(&mut response.progress);
    let merged = ended(PullRequestState::Merged);
    follow_up::closed(&mut response.progress, Some(&merged), moment(4));
    let said = pull_request(&response.progress);
    assert_eq!((said.status, said.reason.as_str()), (Some(true), "Merged"));
    assert_eq!(step(&response, 5), Step::Settled);
}

#[test]
fn a_response_that_is_cancelled_while_its_pull_request_is_made_ends_as_cancelled_and_is_closed() {
    let mut response = running(true);
    let said = progress::cancel(&mut response.progress, "cancelled by admin/ada: a drill");
    assert_eq!(said, Cancellation::AfterAttempt);
    let made = opened(PullRequestState::Open);
    progress::succeed(&mut response.progress, &made, moment(2));
    let progress = &response.progress;
    assert_eq!(
        (progress.phase, progress.url.is_some()),
        (Phase::Cancelled, true)
    );
    assert_eq!(
        progress.cancel_reason.as_deref(),
        Some("cancelled by admin/ada: a drill")
    );
    assert_eq!(close(&response, 3).number, Some(7));
}

#[test]
fn what_an_interrupted_attempt_may_have_left_is_looked_for_until_a_miss_can_be_believed() {
    let mut response = running(true);
    progress::mark_deleted(&mut response.progress);
    let Step::Conclude(conclusion) = step(&response, 3) else {
        panic!("it must end")
    };
    progress::conclude(&mut response.progress, &conclusion, moment(3));
    assert_eq!(response.progress.phase, Phase::Cancelled);
    assert_eq!(close(&response, 3).number, None, "nobody knows");
    follow_up::begin(&mut response.progress);
    follow_up::closed(&mut response.progress, None, moment(4));
    // From its end on: an attempt may have written last long after it began.
    let again = moment(63).now;
    assert_eq!(
        step(&response, 5),
        Step::WaitUntil(again),
        "reads may lag behind writes"
    );
    assert_eq!(close(&response, 63).number, None);
    follow_up::begin(&mut response.progress);
    follow_up::closed(&mut response.progress, None, moment(64));
    assert_eq!(step(&response, 65), Step::Settled);
}

#[test]
fn any_failure_of_an_attempt_ends_a_cancelled_response_as_cancelled() {
    let mut response = running(true);
    progress::mark_deleted(&mut response.progress);
    let error = ForgeError::Failed(ResponseError::new(ErrorType::Permanent, "Rejected", "no"));
    let typed = crd::parse_event_response(&event_response(json!({}))).unwrap();
    let retry = RetryPolicy::of(&typed, 1, None).unwrap();
    progress::fail(&mut response.progress, &error, &retry, moment(2));
    let cancelled = step(&response, 2);
    assert!(
        matches!(cancelled, Step::Conclude(Conclusion::Cancelled { .. })),
        "{cancelled:?}"
    );
}

#[test]
fn closing_is_tried_again_after_what_may_pass_and_then_left_to_people() {
    let mut response = succeeded(true);
    progress::mark_deleted(&mut response.progress);
    let transient = ForgeError::Failed(ResponseError::new(ErrorType::Transient, "Timeout", "late"));
    let mut now = 3;
    let mut failures = 0;
    while let Step::Close(_) = step(&response, now) {
        follow_up::begin(&mut response.progress);
        follow_up::failed(&mut response.progress, &transient, moment(now));
        failures += 1;
        if let Step::WaitUntil(at) = step(&response, now) {
            now = at.as_second() - 1_800_000_000;
        }
    }
    assert_eq!(failures, 10);
    let said = pull_request(&response.progress);
    assert_eq!((said.status, said.reason.as_str()), (Some(true), "Open"));
    assert!(
        said.message.contains("close it by hand: late"),
        "{}",
        said.message
    );

    let mut response = succeeded(true);
    progress::mark_deleted(&mut response.progress);
    let denied = ResponseError::new(ErrorType::Unauthorized, "PermissionDenied", "may not");
    follow_up::begin(&mut response.progress);
    follow_up::failed(
        &mut response.progress,
        &ForgeError::Failed(denied),
        moment(3),
    );
    assert_eq!(step(&response, 4), Step::Settled);
}

#[test]
fn limits_and_outages_are_waited_for_without_end() {
    let mut response = succeeded(true);
    progress::mark_deleted(&mut response.progress);
    let mut now = 3;
    for _ in 0..50 {
        let down = ForgeError::Unavailable {
            detail: "down".into(),
        };
        follow_up::begin(&mut response.progress);
        follow_up::failed(&mut response.progress, &down, moment(now));
        let Step::WaitUntil(at) = step(&response, now) else {
            panic!("it must wait")
        };
        now = at.as_second() + 1 - 1_800_000_000;
    }
    close(&response, now);
}

#[test]
fn an_event_response_that_is_there_after_all_keeps_its_pull_request_unless_closing_has_begun() {
    let mut response = succeeded(true);
    progress::mark_deleted(&mut response.progress);
    let mut begun = response.clone();
    let seen = response.observation.clone();
    progress::observe_again(&mut response.progress, &seen, moment(3).now);
    assert_eq!(step(&response, 4), Step::Settled);
    follow_up::begin(&mut begun.progress);
    progress::observe_again(&mut begun.progress, &seen, moment(3).now);
    close(&begun, 4);
}
