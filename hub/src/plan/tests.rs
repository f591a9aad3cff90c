use nabu_common::crd::BackoffStrategy;
use serde_json::json;

use super::progress::{Cancellation, Moment};
use super::*;
use crate::credentials::Credentials;
use crate::fixtures::{event_response, key, observation, security_event};
use crate::forge::{ForgeError, Made, PullRequest, PullRequestState};
use crate::response::{Observation, OutcomeType, Phase, SecurityEventAbsence};
use crate::routes::ConfigHandle;
use crate::routes::handle::{ConfigMetrics, Document, Snapshot};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn moment(second: i64) -> Moment {
    Moment {
        now: at(second),
        generation: 1,
        jitter: 0.0,
    }
}

/// A table of one configuration with these routes; complete.
fn table(routes: &Value) -> std::sync::Arc<RouteTable> {
    let handle = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
    let verdicts = handle.apply(Snapshot {
        documents: vec![Document {
            origin: "test".into(),
            namespace: "ns".into(),
            name: "config".into(),
            object: json!({ "spec": {"routes": routes} }),
        }],
        unreadable: Vec::new(),
    });
    assert!(verdicts[0].problems.is_empty(), "{verdicts:?}");
    handle.table()
}

fn everything_to_noop() -> Value {
    json!([{"name": "all", "provider": {"kind": "noop", "repository": "o/r"}}])
}

fn respond(retry_policy: Value) -> Response {
    response_of(observation(key(1), event_response(retry_policy)))
}

fn response_of(observation: Observation) -> Response {
    let progress = progress::accept(&observation, at(0));
    Response {
        observation,
        observed_at: at(0),
        progress,
    }
}

/// The step under the usual policy.
fn step(response: &Response, second: i64) -> Step {
    step_with(response, &table(&everything_to_noop()), 0, second)
}

fn step_with(response: &Response, routes: &RouteTable, max_attempts: u32, second: i64) -> Step {
    let policy = Policy {
        routes,
        max_attempts,
        cluster_name: "Prod EU",
        cluster_labels: &BTreeMap::new(),
    };
    plan(response, &policy, at(second))
}

fn attempt(response: &Response, second: i64) -> Attempt {
    match step(response, second) {
        Step::Attempt(attempt) => *attempt,
        other => panic!("{other:?}"),
    }
}

fn opened() -> Made {
    Made::PullRequest(PullRequest {
        url: "https://git.example.org/o/r/pulls/1".into(),
        commit: None,
        state: PullRequestState::Open,
        adopted: false,
        notes: Vec::new(),
    })
}

fn failure(kind: ErrorType) -> ForgeError {
    ForgeError::Failed(ResponseError::new(kind, "Because", "it did"))
}

/// Plans, begins, and fails the attempt with `error`.
fn fail(response: &mut Response, error: &ForgeError, second: i64) {
    let attempt = attempt(response, second);
    progress::begin(&mut response.progress, &attempt, moment(second));
    progress::fail(
        &mut response.progress,
        error,
        &attempt.retry,
        moment(second),
    );
}

#[test]
fn a_new_response_is_attempted_with_the_intent_of_its_route() {
    let attempt = attempt(&respond(json!({})), 0);
    assert_eq!(attempt.intent.route, "ns/config/all");
    assert_eq!(
        attempt.intent.branch,
        format!("nabu/prod-eu/{}", key(1).uid)
    );
    assert_eq!(attempt.intent.files.len(), 1);
    let marker = Intent::marker(&key(1), &attempt.intent.digest);
    assert!(attempt.intent.body.ends_with(&marker));
}

#[test]
fn planning_again_after_success_yields_nothing() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    progress::begin(&mut response.progress, &attempt, moment(1));
    progress::succeed(&mut response.progress, &opened(), moment(2));
    assert_eq!(response.progress.phase, Phase::Succeeded);
    assert_eq!(step(&response, 3), Step::Settled);
    assert_eq!(step(&response, 1_000_000), Step::Settled);
}

#[test]
fn a_change_that_is_on_the_base_branch_already_is_a_success_without_a_pull_request() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    progress::begin(&mut response.progress, &attempt, moment(1));
    let made = Made::NoActionNeeded {
        detail: "nothing to do".into(),
    };
    progress::succeed(&mut response.progress, &made, moment(2));
    let outcome = response.progress.outcome.as_ref().map(|o| o.kind);
    assert_eq!(
        (response.progress.phase, outcome),
        (Phase::Succeeded, Some(OutcomeType::NoActionNeeded))
    );
    assert_eq!(response.progress.url, None);
}

#[test]
fn a_terminal_phase_never_changes() {
    for phase in [Phase::Succeeded, Phase::Failed, Phase::Cancelled] {
        let mut response = respond(json!({}));
        let attempt = attempt(&response, 0);
        response.progress.phase = phase;
        let before = response.progress.clone();
        let progress = &mut response.progress;
        progress::begin(progress, &attempt, moment(1));
        progress::succeed(progress, &opened(), moment(2));
        progress::fail(
            progress,
            &failure(ErrorType::Transient),
            &attempt.retry,
            moment(3),
        );
        progress::conclude(
            progress,
            &Conclusion::Cancelled {
                reason: "late".into(),
            },
            moment(4),
        );
        progress::request_cancel(progress, "late");
        assert_eq!(response.progress, before);
        assert_eq!(step(&response, 5), Step::Settled);
    }
}

#[test]
fn only_transient_errors_are_retried() {
    for (kind, phase) in [
        (ErrorType::Transient, Phase::Pending),
        (ErrorType::Permanent, Phase::Failed),
        (ErrorType::Conflicting, Phase::Failed),
        (ErrorType::Unauthorized, Phase::Failed),
    ] {
        let mut response = respond(json!({}));
        fail(&mut response, &failure(kind), 1);
        assert_eq!(response.progress.phase, phase, "{kind:?}");
        assert_eq!(response.progress.attempts, 1);
        assert_eq!(response.progress.error.as_ref().map(|e| e.kind), Some(kind));
    }
}

#[test]
fn attempts_are_counted_to_the_limit_of_hub_then_route_then_object_then_three() {
    let routes = |limit: Value| {
        table(&json!([{"provider": {"kind": "noop", "repository": "o/r"}, "maxAttempts": limit}]))
    };
    for (hub, route, object, limit) in [
        (0, json!(null), json!({}), 3),
        (0, json!(null), json!({"maxAttempts": 5}), 5),
        (0, json!(2), json!({"maxAttempts": 5}), 2),
        (4, json!(2), json!({"maxAttempts": 5}), 4),
        (0, json!(0), json!({"maxAttempts": 0}), 3),
    ] {
        let routes = routes(route);
        let mut response = respond(object);
        let mut made = 0;
        for second in 0.. {
            match step_with(&response, &routes, hub, second * 1000) {
                Step::Attempt(attempt) => {
                    made += 1;
                    let now = moment(second * 1000);
                    progress::begin(&mut response.progress, &attempt, now);
                    let error = failure(ErrorType::Transient);
                    progress::fail(&mut response.progress, &error, &attempt.retry, now);
                }
                Step::Settled => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((made, response.progress.attempts), (limit, limit));
        let error = response.progress.error.unwrap();
        assert!(error.detail.contains("given up after"), "{}", error.detail);
    }
}

#[test]
fn delays_grow_as_the_object_asks() {
    for (policy, delays) in [
        (json!({"maxAttempts": 9}), [10, 20, 40]),
        (
            json!({"maxAttempts": 9, "initialDelay": "1s", "maxDelay": "3s"}),
            [1, 2, 3],
        ),
        (
            json!({"maxAttempts": 9, "backoffStrategy": "Fixed", "initialDelay": "7s"}),
            [7, 7, 7],
        ),
        (
            json!({"maxAttempts": 9, "backoffStrategy": "None"}),
            [0, 0, 0],
        ),
    ] {
        let mut response = respond(policy.clone());
        let mut now = 0;
        for delay in delays {
            fail(&mut response, &failure(ErrorType::Transient), now);
            assert_eq!(
                response.progress.next_attempt_at,
                Some(at(now + delay)),
                "{policy}"
            );
            if delay > 0 {
                assert_eq!(
                    step(&response, now + delay - 1),
                    Step::WaitUntil(at(now + delay))
                );
            }
            now += delay;
        }
    }
}

#[test]
fn jitter_only_lengthens_a_delay_and_by_a_fifth_at_most() {
    let policy = RetryPolicy {
        max_attempts: 3,
        strategy: BackoffStrategy::Fixed,
        initial_delay: Duration::from_secs(10),
        max_delay: Duration::from_mins(5),
    };
    assert_eq!(policy.delay_after(1, 0.0), Duration::from_secs(10));
    assert_eq!(policy.delay_after(1, 1.0), Duration::from_secs(12));
    assert_eq!(policy.delay_after(1, 7.0), Duration::from_secs(12));
    let doubled = RetryPolicy {
        strategy: BackoffStrategy::Exponential,
        ..policy
    };
    assert_eq!(
        doubled.delay_after(u32::MAX, 0.0),
        Duration::from_mins(5),
        "no overflow"
    );
}

#[test]
fn a_wait_for_a_limit_or_an_outage_counts_as_no_attempt() {
    let limited = ForgeError::RateLimited {
        retry_after: Duration::from_secs(42),
        detail: "slow down".into(),
    };
    let down = ForgeError::Unavailable {
        detail: "refused".into(),
    };
    let mut response = respond(json!({"maxAttempts": 1}));
    fail(&mut response, &limited, 0);
    assert_eq!(response.progress.next_attempt_at, Some(at(42)));
    let mut now = 42;
    for _ in 0..50 {
        fail(&mut response, &down, now);
        let next = response.progress.next_attempt_at.unwrap();
        assert!(
            next > at(now) - Duration::from_secs(1) && next <= at(now + 30),
            "{next}"
        );
        now += 31;
    }
    assert_eq!(
        (response.progress.phase, response.progress.attempts),
        (Phase::Pending, 0)
    );
    let attempt = attempt(&response, now);
    progress::begin(&mut response.progress, &attempt, moment(now));
    progress::succeed(&mut response.progress, &opened(), moment(now));
    assert_eq!(
        (response.progress.phase, &response.progress.error),
        (Phase::Succeeded, &None)
    );
}

#[test]
fn a_limit_of_a_forge_is_kept_within_reason() {
    for (asked, waited) in [(0, 1), (60, 60), (1_000_000, 7200)] {
        let limited = ForgeError::RateLimited {
            retry_after: Duration::from_secs(asked),
            detail: String::new(),
        };
        let mut response = respond(json!({}));
        fail(&mut response, &limited, 0);
        assert_eq!(response.progress.next_attempt_at, Some(at(waited)));
    }
}

#[test]
fn an_interrupted_attempt_is_made_again_and_not_counted() {
    let mut response = respond(json!({"maxAttempts": 1}));
    let first = attempt(&response, 0);
    progress::begin(&mut response.progress, &first, moment(0));
    // The hub stops here; what it finds at its next start is the record as it is now.
    assert!(response.progress.attempt_open);
    let again = attempt(&response, 60);
    assert_eq!((again, response.progress.attempts), (first, 0));
}

#[test]
fn the_stored_intent_is_made_whatever_becomes_of_routes_and_objects() {
    let mut response = respond(json!({}));
    let first = attempt(&response, 0);
    progress::begin(&mut response.progress, &first, moment(0));
    let moved =
        table(&json!([{"name": "all", "provider": {"kind": "noop", "repository": "o/elsewhere"}}]));
    for routes in [moved, table(&json!([]))] {
        match step_with(&response, &routes, 0, 1) {
            Step::Attempt(attempt) => assert_eq!(attempt.intent, first.intent),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_response_that_no_route_takes_fails_and_says_what_was_looked_for() {
    let routes = table(
        &json!([{"match": {"actionRef": "block-image"}, "provider": {"kind": "noop", "repository": "o/r"}}]),
    );
    let mut response = respond(json!({}));
    let Step::Conclude(conclusion) = step_with(&response, &routes, 0, 0) else {
        panic!("it must end")
    };
    let Conclusion::Failed {
        error,
        routing_miss: true,
        ..
    } = &conclusion
    else {
        panic!("{conclusion:?}")
    };
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Permanent, "NoMatchingRoute")
    );
    for part in ["prod-eu", "revoke-clusterrolebinding", "add a route"] {
        assert!(error.detail.contains(part), "{}", error.detail);
    }
    progress::conclude(&mut response.progress, &conclusion, moment(1));
    let conditions = &response.progress.conditions;
    let said = conditions.iter().find(|c| c.kind == progress::ROUTED);
    assert_eq!(said.and_then(|c| c.status), Some(false));
    assert_eq!(step_with(&response, &routes, 0, 2), Step::Settled);
}

#[test]
fn a_response_waits_while_a_configuration_cannot_be_read() {
    let response = respond(json!({}));
    let unread = RouteTable::default();
    assert!(matches!(
        step_with(&response, &unread, 0, 0),
        Step::WaitUntil(_)
    ));
}

#[test]
fn an_object_that_cannot_be_served_fails_and_names_the_field() {
    let mut without_path = event_response(json!({}));
    without_path["spec"]["action"]["parameters"] = json!({"contents": "x"});
    for (object, field) in [
        (
            event_response(json!({"initialDelay": "soon"})),
            "spec.retryPolicy.initialDelay",
        ),
        (
            event_response(json!({"maxAttempts": -1})),
            "spec.retryPolicy.maxAttempts",
        ),
        (without_path, "spec.action.parameters.path"),
        (json!({"metadata": {}}), "spec"),
    ] {
        let response = response_of(observation(key(1), object));
        let Step::Conclude(Conclusion::Failed { error, .. }) = step(&response, 0) else {
            panic!("{field}")
        };
        assert_eq!(error.kind, ErrorType::Permanent);
        assert!(error.detail.starts_with(field), "{}", error.detail);
    }
}

#[test]
fn an_object_that_could_not_travel_fails_with_the_agents_reason() {
    let content = Content::Unserveable {
        reason: "TooLarge".into(),
        message: "1.5 MiB".into(),
    };
    let seen = Observation {
        content,
        ..observation(key(1), json!({}))
    };
    let Step::Conclude(Conclusion::Failed { error, .. }) = step(&response_of(seen), 0) else {
        panic!("it must end")
    };
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Permanent, "TooLarge")
    );
}

#[test]
fn a_response_without_its_security_event_is_served_and_says_so() {
    let object = event_response(json!({}));
    let content = Content::Objects {
        event_response: object,
        security_event: Err(SecurityEventAbsence::NotFound),
    };
    let mut seen = Observation {
        content,
        ..observation(key(1), json!({}))
    };
    let mut response = response_of(seen.clone());
    assert!(matches!(step(&response, 0), Step::Attempt(_)));
    let said = |response: &Response| {
        let conditions = &response.progress.conditions;
        let said = conditions
            .iter()
            .find(|c| c.kind == progress::SECURITY_EVENT);
        said.map(|c| (c.status, c.last_transition_time))
    };
    assert_eq!(said(&response), Some((Some(false), at(0))));

    progress::observe_again(&mut response.progress, &seen, at(5));
    assert_eq!(
        said(&response),
        Some((Some(false), at(0))),
        "nothing has changed"
    );
    seen.content = Content::Objects {
        event_response: event_response(json!({})),
        security_event: Ok(security_event()),
    };
    progress::observe_again(&mut response.progress, &seen, at(9));
    assert_eq!(said(&response), Some((Some(true), at(9))));
}

#[test]
fn a_spec_that_changes_after_the_decision_is_told_once_and_until_it_is_as_before() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    progress::begin(&mut response.progress, &attempt, moment(0));
    let decided = response.observation.clone();
    let mut said = Vec::new();
    for (spec, generation) in [(7, 1), (9, 2), (9, 2), (8, 3), (7, 4), (7, 5)] {
        let seen = Observation {
            spec_hash: [spec; 32],
            generation,
            ..decided.clone()
        };
        let before = response.progress.revision;
        progress::observe_spec(&mut response.progress, &decided, &seen, at(1));
        let accepted = &response.progress.conditions[0];
        let is_news = response.progress.revision > before;
        said.push((accepted.reason.clone(), is_news));
    }
    let said: Vec<_> = said
        .iter()
        .map(|(reason, news)| (reason.as_str(), *news))
        .collect();
    let expected = [
        ("Stored", false),
        ("SpecChanged", true),
        ("SpecChanged", false),
        ("SpecChanged", true),
        ("Stored", true),
        ("Stored", false),
    ];
    assert_eq!(said, expected);
}

#[test]
fn a_deleted_event_response_is_cancelled_before_its_next_attempt() {
    let mut response = respond(json!({}));
    progress::mark_deleted(&mut response.progress);
    let Step::Conclude(conclusion) = step(&response, 0) else {
        panic!("it must end")
    };
    progress::conclude(&mut response.progress, &conclusion, moment(1));
    assert_eq!(response.progress.phase, Phase::Cancelled);
    let reason = response.progress.cancel_reason.as_deref();
    assert_eq!(reason, Some("the EventResponse was deleted"));
}

#[test]
fn an_event_response_that_somebody_else_ended_is_cancelled_and_says_so() {
    for why in [
        progress::EVENT_RESPONSE_OUT_OF_HANDS,
        progress::EVENT_RESPONSE_LEFT_OUT,
    ] {
        ended_by_somebody_else(why);
    }
}

fn ended_by_somebody_else(why: &str) {
    let mut response = respond(json!({}));
    assert!(progress::mark_out_of_hands(&mut response.progress, why));
    let Step::Conclude(conclusion) = step(&response, 0) else {
        panic!("it must end")
    };
    progress::conclude(&mut response.progress, &conclusion, moment(1));
    assert_eq!(response.progress.phase, Phase::Cancelled);
    let reason = response.progress.cancel_reason.as_deref();
    assert_eq!(reason, Some(why));

    let mut again = respond(json!({}));
    progress::mark_out_of_hands(&mut again.progress, why);
    progress::observe_again(&mut again.progress, &response.observation, at(2));
    assert!(!again.progress.deleted, "it is shown again");
    assert_eq!(again.progress.cancel_requested, None);
}

#[test]
fn a_cancellation_during_an_attempt_waits_for_its_end_and_loses_against_success() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    progress::begin(&mut response.progress, &attempt, moment(0));
    progress::mark_deleted(&mut response.progress);
    assert_eq!(response.progress.phase, Phase::Running);
    let mut failed = response.clone();
    progress::succeed(&mut response.progress, &opened(), moment(1));
    assert_eq!(
        response.progress.phase,
        Phase::Succeeded,
        "the pull request is there"
    );
    progress::fail(
        &mut failed.progress,
        &failure(ErrorType::Transient),
        &attempt.retry,
        moment(1),
    );
    assert!(matches!(
        step(&failed, 100),
        Step::Conclude(Conclusion::Cancelled { .. })
    ));
}

#[test]
fn an_administrators_cancellation_ends_what_waits_and_waits_for_what_runs() {
    let mut waiting = respond(json!({}));
    let mut running = waiting.clone();
    let attempt = attempt(&running, 0);
    progress::begin(&mut running.progress, &attempt, moment(0));
    let cancel = |response: &mut Response| {
        progress::cancel(
            &mut response.progress,
            "cancelled by admin/ada: a false alarm",
        )
    };
    assert_eq!(cancel(&mut waiting), Cancellation::Requested);
    assert_eq!(cancel(&mut running), Cancellation::AfterAttempt);
    let Step::Conclude(conclusion) = step(&waiting, 0) else {
        panic!("it must end")
    };
    progress::conclude(&mut waiting.progress, &conclusion, moment(1));
    assert_eq!(
        waiting.progress.cancel_reason.as_deref(),
        Some("cancelled by admin/ada: a false alarm")
    );
    let ended = waiting.clone();
    assert_eq!(cancel(&mut waiting), Cancellation::Ended(Phase::Cancelled));
    assert_eq!(waiting, ended);
}

#[test]
fn an_administrators_cancellation_survives_an_event_response_that_comes_back() {
    let mut response = respond(json!({}));
    progress::cancel(
        &mut response.progress,
        "cancelled by admin/ada: a false alarm",
    );
    progress::mark_deleted(&mut response.progress);
    let seen = response.observation.clone();
    progress::observe_again(&mut response.progress, &seen, at(2));
    assert!(matches!(step(&response, 3), Step::Conclude(_)));
}

#[test]
fn nothing_begins_after_a_cancellation_was_asked_for() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    progress::request_cancel(&mut response.progress, "not wanted");
    let before = response.progress.clone();
    progress::begin(&mut response.progress, &attempt, moment(1));
    assert_eq!(response.progress, before);
}

#[test]
fn the_revision_grows_with_every_outward_change_and_times_move_only_with_them() {
    let mut response = respond(json!({}));
    let attempt = attempt(&response, 0);
    let first = response.progress.revision;
    progress::begin(&mut response.progress, &attempt, moment(1));
    let second = response.progress.revision;
    progress::fail(
        &mut response.progress,
        &failure(ErrorType::Transient),
        &attempt.retry,
        moment(2),
    );
    let third = response.progress.revision;
    assert!(first < second && second < third);
    assert_eq!(response.progress.started_at, Some(at(1)));
    progress::begin(&mut response.progress, &attempt, moment(30));
    assert_eq!(
        response.progress.started_at,
        Some(at(1)),
        "the first attempt stays the first"
    );
    assert_eq!(response.progress.last_attempt_at, Some(at(30)));
    let routed = response
        .progress
        .conditions
        .iter()
        .find(|c| c.kind == progress::ROUTED)
        .unwrap();
    assert_eq!(
        routed.last_transition_time,
        at(1),
        "its status has not changed since"
    );
}

#[test]
fn a_pull_request_that_people_have_ended_is_reported_as_it_is() {
    for (state, holds, reason) in [
        (PullRequestState::Open, true, "Open"),
        (PullRequestState::Merged, true, "Merged"),
        (PullRequestState::Closed, false, "Closed"),
    ] {
        let mut response = respond(json!({}));
        let attempt = attempt(&response, 0);
        progress::begin(&mut response.progress, &attempt, moment(0));
        let Made::PullRequest(pull_request) = opened() else {
            unreachable!()
        };
        let made = Made::PullRequest(PullRequest {
            state,
            adopted: true,
            notes: Vec::new(),
            ..pull_request
        });
        progress::succeed(&mut response.progress, &made, moment(1));
        let conditions = &response.progress.conditions;
        let said = conditions
            .iter()
            .find(|c| c.kind == progress::PULL_REQUEST)
            .unwrap();
        assert_eq!((said.status, said.reason.as_str()), (Some(holds), reason));
    }
}
