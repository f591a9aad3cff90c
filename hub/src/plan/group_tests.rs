//! What a pull request that is shared means for each member's record, as sentences.

use serde_json::json;

use super::follow_up::{
    close_after_all, keeps_group_open, leaves_group_to_others, waits_for_others,
};
use super::progress::Moment;
use super::*;
use crate::fixtures::{event_response, intent, key, observation};
use crate::forge::{
    ClosedPull, ForgeError, Made, ObservedPull, PullRequest, PullRequestState, Shared,
};
use crate::group::Group;
use crate::plan::retry::RetryPolicy;
use crate::response::{ErrorType, Phase, Progress, ResponseError};

const URL: &str = "https://git.example/o/r/pulls/7";

fn moment(second: i64) -> Moment {
    Moment {
        now: Timestamp::from_second(1_800_000_000 + second).unwrap(),
        generation: 1,
        jitter: 0.0,
    }
}

/// A member whose first attempt runs.
fn running() -> Response {
    let observation = observation(key(1), event_response(json!({})));
    let mut progress = progress::accept(&observation, moment(0).now);
    let mut intent = intent();
    intent.target.kind = crate::change::ProviderKind::ForgejoToken;
    intent.options.close_on_cancel = true;
    intent.group = Some(Group {
        branch: "nabu/prod-eu/group-0-1".to_owned(),
        title: "Changes".to_owned(),
        introduction: String::new(),
        max_responses: 20,
    });
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

fn made(adopted: bool, done_before: bool) -> Made {
    let pull = PullRequest {
        url: URL.into(),
        commit: (!done_before).then(|| "c0ffee".into()),
        state: PullRequestState::Open,
        adopted,
        notes: Vec::new(),
    };
    Made::Shared(Shared { pull, done_before })
}

fn ended(made: &Made) -> Response {
    let mut response = running();
    progress::succeed(&mut response.progress, made, moment(2));
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

fn said(progress: &Progress) -> (&str, &str) {
    let mut conditions = progress.conditions.iter();
    let found = conditions.find(|one| one.kind == progress::PULL_REQUEST);
    let found = found.unwrap();
    (&found.reason, &found.message)
}

fn closed(state: PullRequestState) -> ClosedPull {
    ClosedPull {
        url: URL.into(),
        pull: ObservedPull {
            number: 7,
            state,
            merge_commit: None,
            ended_at: None,
        },
        notes: Vec::new(),
    }
}

#[test]
fn each_member_has_the_address_and_is_told_how_it_came_about() {
    for (made, words, commit) in [
        (made(false, false), "opened for the group", true),
        (made(true, false), "of the group joined", true),
        (made(true, true), "made the same change", false),
    ] {
        let response = ended(&made);
        let progress = &response.progress;
        assert_eq!(progress.phase, Phase::Succeeded);
        assert_eq!(progress.url.as_deref(), Some(URL));
        assert_eq!(progress.commit.is_some(), commit);
        let (reason, message) = said(progress);
        assert!(reason == "Open" && message.contains(words), "{message}");
        assert!(progress.shared);
        assert_eq!(step(&response, 3), Step::Settled);
    }
}

#[test]
fn a_member_that_is_not_wanted_any_more_is_closed_on_the_branch_of_its_group() {
    let mut response = ended(&made(true, false));
    progress::mark_deleted(&mut response.progress);
    let Step::Close(close) = step(&response, 3) else {
        panic!("nothing is closed")
    };
    assert_eq!(close.intent.branch, "nabu/prod-eu/group-0-1");
    assert!(
        close
            .comment
            .starts_with("Closed by Nabu: the EventResponse was deleted")
    );
    let stays = &close.comment_if_others_stay;
    assert!(
        stays.starts_with("Not wanted any more: the EventResponse was deleted")
            && stays.contains("c0ffee")
            && stays.contains("stays open"),
        "{stays}"
    );
}

#[test]
fn one_that_only_said_so_is_withdrawn_once_and_still_hears_of_the_end() {
    let mut response = ended(&made(true, false));
    progress::mark_deleted(&mut response.progress);
    let progress = &mut response.progress;
    follow_up::begin(progress);
    follow_up::closed(progress, Some(&closed(PullRequestState::Open)), moment(4));
    assert!(progress.withdrawn && progress.follow_up.is_none());
    assert_eq!(progress.phase, Phase::Succeeded);
    let (reason, message) = said(progress);
    assert!(
        reason == "Open" && message.contains("stays open"),
        "{message}"
    );
    let once = progress.clone();
    progress::mark_deleted(progress);
    assert_eq!(*progress, once, "it is said once");
    progress::observe_pull_request(progress, &closed(PullRequestState::Merged).pull, moment(5));
    assert_eq!(said(progress).0, "Merged");
}

#[test]
fn one_that_was_withdrawn_for_the_sake_of_others_closes_it_once_they_are_gone() {
    let mut response = ended(&made(true, false));
    progress::mark_deleted(&mut response.progress);
    follow_up::begin(&mut response.progress);
    let open = closed(PullRequestState::Open);
    follow_up::closed(&mut response.progress, Some(&open), moment(4));
    assert_eq!(step(&response, 5), Step::Settled);
    assert!(waits_for_others(&response.progress));

    assert!(close_after_all(&mut response.progress));
    assert!(!close_after_all(&mut response.progress), "it will be");
    let Step::Close(close) = step(&response, 5) else {
        panic!("nothing is closed")
    };
    assert!(close.withdrawn && !close.again && close.number == Some(7));
    assert!(close.comment.contains("the EventResponse was deleted"));

    // Another has come meanwhile, and goes as well.
    let mut again = response.clone();
    follow_up::closed(&mut again.progress, Some(&open), moment(6));
    assert!(waits_for_others(&again.progress));
    // Or it cannot be closed: then it is up to people.
    let mut failed = response.clone();
    let forbidden = ResponseError::new(ErrorType::Unauthorized, "Forbidden", "no right");
    follow_up::failed(
        &mut failed.progress,
        &ForgeError::Failed(forbidden),
        moment(6),
    );
    assert!(!waits_for_others(&failed.progress) && !close_after_all(&mut failed.progress));
    let shut = closed(PullRequestState::Closed);
    follow_up::closed(&mut response.progress, Some(&shut), moment(6));
    assert_eq!(said(&response.progress).0, "Closed");
    assert!(!waits_for_others(&response.progress));
}

#[test]
fn one_that_stays_for_somebody_who_is_not_known_is_not_tried_again_and_again() {
    let mut response = ended(&made(true, false));
    progress::mark_deleted(&mut response.progress);
    follow_up::begin(&mut response.progress);
    let open = closed(PullRequestState::Open);
    follow_up::closed(&mut response.progress, Some(&open), moment(4));
    follow_up::leave_to_people(&mut response.progress);
    assert!(response.progress.withdrawn);
    assert!(!waits_for_others(&response.progress) && !close_after_all(&mut response.progress));
    assert_eq!(step(&response, 5), Step::Settled);
}

#[test]
fn whoever_ends_outside_of_the_group_or_is_withdrawn_leaves_it_to_others() {
    assert!(!leaves_group_to_others(&running().progress), "on the way");
    let joined = ended(&made(true, false)).progress;
    assert!(!leaves_group_to_others(&joined), "it is in there");
    let mut alone = joined.clone();
    alone.shared = false;
    assert!(leaves_group_to_others(&alone));
    alone.intent.as_mut().unwrap().group = None;
    assert!(!leaves_group_to_others(&alone), "there is no group");
    let mut closing = joined.clone();
    progress::mark_deleted(&mut closing);
    assert!(!leaves_group_to_others(&closing), "it is about to close it");
    let mut withdrawn = joined;
    withdrawn.withdrawn = true;
    assert!(leaves_group_to_others(&withdrawn));
}

#[test]
fn a_group_is_kept_open_by_whoever_is_in_it_or_on_the_way_and_wanted() {
    assert!(keeps_group_open(&running().progress), "on the way");
    let joined = ended(&made(true, false)).progress;
    assert!(keeps_group_open(&joined));
    let mut alone = joined.clone();
    alone.shared = false;
    assert!(!keeps_group_open(&alone), "it has its own");
    let mut gone = joined.clone();
    progress::mark_deleted(&mut gone);
    assert!(!keeps_group_open(&gone));
    gone.follow_up = None;
    assert!(!keeps_group_open(&gone));
    let intent = gone.intent.as_mut().unwrap();
    intent.options.close_on_cancel = false;
    assert!(keeps_group_open(&gone), "its own route would leave it open");
    let mut withdrawn = joined;
    withdrawn.withdrawn = true;
    assert!(!keeps_group_open(&withdrawn));
    let mut leaving = running().progress;
    progress::request_cancel(&mut leaving, "not wanted");
    assert!(!keeps_group_open(&leaving));
}
