//! What becomes of a change whose EventResponse asks for something else, as sentences.

use serde_json::json;

use super::progress::{Moment, accept};
use super::*;
use crate::credentials::Credentials;
use crate::fixtures::{event_response, key, observation, security_event};
use crate::forge::{Amended, ClosedPull, Made, ObservedPull, PullRequest, PullRequestState};
use crate::plan::progress::{ACCEPTED, PULL_REQUEST};
use crate::response::{
    Condition, FollowUpKind, Observation, Phase, Progress, SecurityEventAbsence,
};
use crate::routes::ConfigHandle;
use crate::routes::handle::{ConfigMetrics, Document, Snapshot};

const URL: &str = "https://git.example/o/r/pulls/7";

fn moment(second: i64) -> Moment {
    Moment {
        now: Timestamp::from_second(1_800_000_000 + second).unwrap(),
        generation: 1,
        jitter: 0.0,
    }
}

/// One response and the routes, as time goes on.
struct Rig {
    response: Response,
    routes: std::sync::Arc<RouteTable>,
    second: i64,
}

fn routes(repository: &str, update: bool, close: bool) -> std::sync::Arc<RouteTable> {
    let handle = ConfigHandle::new(Credentials::default(), ConfigMetrics::default());
    let route = json!({
        "name": "all", "updateExisting": update, "closeOnCancel": close, "allowedPaths": ["*.yaml"],
        "provider": {"kind": "noop", "repository": repository},
    });
    handle.apply(Snapshot {
        documents: vec![Document {
            origin: "test".into(),
            namespace: "ns".into(),
            name: "config".into(),
            object: json!({ "spec": {"routes": [route]} }),
        }],
        unreadable: Vec::new(),
    });
    handle.table()
}

/// An EventResponse that asks for this file; the generation tells specs apart.
fn asks(path: &str, generation: i64) -> Observation {
    let mut object = event_response(json!({}));
    object["spec"]["action"]["parameters"] = json!({ "path": path, "contents": "x\n" });
    let hash = u8::try_from(generation).unwrap();
    Observation {
        generation,
        spec_hash: [hash; 32],
        ..observation(key(1), object)
    }
}

impl Rig {
    fn new(update: bool) -> Self {
        let observation = asks("a.yaml", 1);
        let progress = accept(&observation, moment(0).now);
        Self {
            response: Response {
                observation,
                observed_at: moment(0).now,
                progress,
            },
            routes: routes("o/r", update, false),
            second: 0,
        }
    }

    fn now(&mut self) -> Moment {
        self.second += 1;
        moment(self.second)
    }

    fn progress(&mut self) -> &mut Progress {
        &mut self.response.progress
    }

    fn step(&self) -> Step {
        let policy = Policy {
            routes: &self.routes,
            max_attempts: 0,
            cluster_name: "Prod EU",
            cluster_labels: &BTreeMap::new(),
        };
        plan(&self.response, &policy, moment(self.second).now)
    }

    fn attempt(&self) -> Attempt {
        match self.step() {
            Step::Attempt(attempt) => *attempt,
            other => panic!("{other:?}"),
        }
    }

    fn update(&self) -> Update {
        match self.step() {
            Step::Update(update) => *update,
            other => panic!("{other:?}"),
        }
    }

    fn begin(&mut self) -> Attempt {
        let (attempt, moment) = (self.attempt(), self.now());
        progress::begin(self.progress(), &attempt, moment);
        attempt
    }

    fn succeed(&mut self, state: PullRequestState) {
        let moment = self.now();
        let made = Made::PullRequest(PullRequest {
            url: URL.into(),
            commit: Some("c1".into()),
            state,
            adopted: false,
            notes: Vec::new(),
        });
        progress::succeed(self.progress(), &made, moment);
    }

    /// A response that has ended with an open pull request.
    fn succeeded(update: bool) -> Self {
        let mut rig = Self::new(update);
        rig.begin();
        rig.succeed(PullRequestState::Open);
        rig
    }

    /// As the store does it.
    fn see(&mut self, seen: &Observation) {
        let now = self.now().now;
        let known = self.response.observation.clone();
        progress::observe_again(&mut self.response.progress, seen, now);
        if let Some(taken) = update::observe(&mut self.response.progress, &known, seen, now) {
            self.response.observation = taken;
        }
    }

    fn fail(&mut self, kind: ErrorType, wrote: bool) {
        let attempt = self.response.progress.intent.clone().unwrap();
        let typed = crd::parse_event_response(&event_response(json!({}))).unwrap();
        let retry = RetryPolicy::of(&typed, 0, None).unwrap();
        assert!(!attempt.branch.is_empty());
        let error = ForgeError::Failed(ResponseError::new(kind, "ForgeError", "no"));
        let moment = self.now();
        progress::fail(self.progress(), &error, &retry, moment);
        update::after_failure(self.progress(), wrote);
        self.second += 600;
    }

    fn done(&mut self, update: &Update, commit: &str) {
        let moment = self.now();
        let amended = Amended::Updated {
            url: URL.into(),
            commit: Some(commit.into()),
            notes: Vec::new(),
        };
        update::done(self.progress(), update, &amended, moment);
    }

    fn condition(&self, kind: &str) -> &Condition {
        let mut all = self.response.progress.conditions.iter();
        all.find(|one| one.kind == kind).unwrap()
    }

    fn said(&self) -> (&str, &str) {
        let said = self.condition(PULL_REQUEST);
        (&said.reason, &said.message)
    }
}

use crate::forge::ForgeError;

fn paths(intent: &Intent) -> Vec<&str> {
    intent.files.iter().map(|file| file.path.as_str()).collect()
}

#[test]
fn one_more_spec_makes_one_update_and_planning_again_yields_nothing() {
    let mut rig = Rig::succeeded(true);
    assert!(rig.response.progress.watched && rig.response.progress.spec_watched);
    assert_eq!(rig.step(), Step::Settled);
    let before = rig.response.progress.revision;
    rig.see(&asks("b.yaml", 2));
    let update = rig.update();
    assert_eq!(paths(&update.intent), ["b.yaml"]);
    assert_eq!(update.leftovers, ["a.yaml"]);
    assert_eq!(
        (update.number, update.commit.as_deref(), update.again),
        (7, Some("c1"), false)
    );
    let shown = rig.response.progress.intent.clone().unwrap();
    assert_eq!(
        (&update.intent.branch, &update.intent.target),
        (&shown.branch, &shown.target)
    );
    assert_eq!(
        shown.files[0].path, "a.yaml",
        "the old one stands until it is done"
    );

    assert!(update::begin(rig.progress(), &update));
    let again = rig.update();
    assert!(again.again, "a part of it may be there");
    assert_eq!(again.intent, update.intent, "the stored intent counts");
    rig.done(&update, "c2");
    assert_eq!(rig.step(), Step::Settled);
    let expected = format!("pull request updated for generation 2 as c2: {URL}");
    assert_eq!(rig.said(), ("Open", expected.as_str()));
    assert_eq!(rig.condition(PULL_REQUEST).observed_generation, 2);
    let progress = &rig.response.progress;
    assert_eq!(
        (progress.phase, progress.commit.as_deref()),
        (Phase::Succeeded, Some("c2"))
    );
    assert_eq!(progress.intent.as_ref(), Some(&update.intent));
    assert!(progress.revision > before && !progress.unrecorded);
    let settled = rig.response.clone();
    rig.see(&asks("b.yaml", 2));
    assert_eq!(rig.response, settled, "seeing it again is no news");
}

#[test]
fn without_the_routes_word_the_hub_keeps_to_what_it_decided() {
    let mut rig = Rig::succeeded(false);
    assert!(!rig.response.progress.watched);
    rig.see(&asks("b.yaml", 2));
    assert_eq!(rig.step(), Step::Settled);
    assert_eq!(rig.condition(ACCEPTED).reason, "SpecChanged");
    assert_eq!(rig.response.observation.generation, 1);
    let mut rig = Rig::new(false);
    rig.begin();
    rig.fail(ErrorType::Transient, false);
    rig.see(&asks("b.yaml", 2));
    assert_eq!(paths(&rig.attempt().intent), ["a.yaml"]);
}

#[test]
fn as_long_as_nothing_can_be_on_the_forge_the_change_is_decided_anew() {
    let mut rig = Rig::new(true);
    rig.see(&asks("b.yaml", 2));
    assert_eq!(
        paths(&rig.attempt().intent),
        ["b.yaml"],
        "nothing was decided"
    );
    rig.begin();
    rig.fail(ErrorType::Transient, false);
    rig.see(&asks("c.yaml", 3));
    assert_eq!(rig.response.progress.intent, None);
    assert_eq!(paths(&rig.attempt().intent), ["c.yaml"]);
    assert_eq!(rig.condition(ACCEPTED).reason, "Stored");
    assert_eq!(rig.condition(ACCEPTED).observed_generation, 3);
    rig.begin();
    // While an attempt runs it is let to its end.
    rig.see(&asks("d.yaml", 4));
    assert_eq!(
        paths(rig.response.progress.intent.as_ref().unwrap()),
        ["c.yaml"]
    );
    rig.fail(ErrorType::Transient, false);
    assert_eq!(paths(&rig.attempt().intent), ["d.yaml"]);
}

#[test]
fn what_may_be_on_the_forge_is_made_first_and_then_updated() {
    let mut rig = Rig::new(true);
    rig.begin();
    rig.fail(ErrorType::Transient, true);
    rig.see(&asks("b.yaml", 2));
    assert_eq!(paths(&rig.attempt().intent), ["a.yaml"], "the stored one");
    rig.begin();
    rig.see(&asks("c.yaml", 3));
    rig.succeed(PullRequestState::Open);
    let update = rig.update();
    assert_eq!(
        (paths(&update.intent), update.again),
        (vec!["c.yaml"], false)
    );
    assert_eq!(update.leftovers, ["a.yaml"]);
}

#[test]
fn a_spec_that_comes_back_before_anything_was_written_leaves_everything_as_it_is() {
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    let mut back = asks("a.yaml", 1);
    back.generation = 3;
    rig.see(&back);
    assert_eq!(rig.step(), Step::Settled);
    assert_eq!(rig.response.progress.renewal, None);
    // After something may have been written, it has to be put back.
    rig.see(&asks("b.yaml", 2));
    let update = rig.update();
    update::begin(rig.progress(), &update);
    rig.see(&back);
    let update = rig.update();
    assert_eq!(paths(&update.intent), ["a.yaml"]);
    assert_eq!(
        (update.leftovers, update.again),
        (vec!["a.yaml".to_owned(), "b.yaml".to_owned()], true)
    );
}

#[test]
fn a_further_spec_while_an_update_is_under_way_ends_in_the_newest() {
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    let first = rig.update();
    update::begin(rig.progress(), &first);
    rig.see(&asks("c.yaml", 3));
    assert!(
        !update::begin(rig.progress(), &first),
        "it is not wanted any more"
    );
    let meanwhile = rig.update();
    assert_eq!(meanwhile.leftovers, ["a.yaml", "b.yaml"]);
    assert!(meanwhile.again);
    rig.done(&first, "c2");
    let second = rig.update();
    assert_eq!(paths(&second.intent), ["c.yaml"]);
    assert_eq!(second.leftovers, ["b.yaml"], "what it shows now");
    assert_eq!(
        (second.commit.as_deref(), second.again),
        (Some("c2"), false)
    );
    update::begin(rig.progress(), &second);
    rig.done(&second, "c3");
    assert_eq!(rig.step(), Step::Settled);
    assert_eq!(rig.response.progress.renewal, None);
}

#[test]
fn what_cannot_be_rendered_or_routed_or_is_not_allowed_leaves_the_pull_request_and_says_why() {
    let elsewhere = routes("o/elsewhere", true, false);
    let nowhere = std::sync::Arc::new(RouteTable::new(Vec::new(), true));
    let mut branch = asks("b.yaml", 2);
    if let Content::Objects { event_response, .. } = &mut branch.content {
        event_response["spec"]["action"]["parameters"]["branch"] = json!("nabu/prod-eu/other");
    }
    for (seen, table, reason) in [
        (asks(".github/x.yaml", 2), None, "PathNotAllowed"),
        (branch, None, "BranchChanged"),
        (asks("b.yaml", 2), Some(elsewhere), "RouteChanged"),
        (asks("b.yaml", 2), Some(nowhere), "NoMatchingRoute"),
    ] {
        let mut rig = Rig::succeeded(true);
        rig.see(&seen);
        rig.routes = table.unwrap_or(rig.routes);
        let Step::Keep(keep) = rig.step() else {
            panic!("{:?}", rig.step())
        };
        assert_eq!(keep.error.reason, reason);
        let moment = rig.now();
        update::kept(rig.progress(), &keep, moment);
        assert_eq!(rig.step(), Step::Settled);
        let (word, message) = rig.said();
        assert_eq!(word, "Open");
        assert!(
            message.contains("not updated for generation 2") && message.contains(reason),
            "{message}"
        );
        assert_eq!(rig.condition(ACCEPTED).reason, "SpecChanged");
        assert_eq!(rig.response.progress.phase, Phase::Succeeded);
        // The next spec is tried again.
        rig.routes = routes("o/r", true, false);
        rig.see(&asks("c.yaml", 3));
        let update = rig.update();
        assert_eq!(update.leftovers, ["a.yaml"]);
        assert_eq!(rig.condition(ACCEPTED).reason, "Stored");
    }
}

#[test]
fn no_configuration_that_cannot_be_read_refuses_an_update() {
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    rig.routes = std::sync::Arc::new(RouteTable::new(Vec::new(), false));
    assert!(matches!(rig.step(), Step::WaitUntil(_)));
}

#[test]
fn failures_that_may_pass_are_tried_again_and_others_are_told() {
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    let update = rig.update();
    let failed = |kind, reason: &str| ForgeError::Failed(ResponseError::new(kind, reason, "words"));
    let mut tries = 0;
    while let Step::Update(update) = rig.step() {
        tries += 1;
        update::begin(rig.progress(), &update);
        let moment = rig.now();
        let error = failed(ErrorType::Transient, "ConnectionLost");
        update::failed(rig.progress(), &update, &error, false, moment);
        assert!(!rig.response.progress.unrecorded);
        rig.second += 3600;
    }
    assert_eq!(tries, 10);
    assert!(
        rig.said()
            .1
            .contains("not updated for generation 2: ConnectionLost: words")
    );

    rig.see(&asks("c.yaml", 3));
    let update = Update {
        asked: rig.update().asked,
        ..update
    };
    update::begin(rig.progress(), &update);
    let moment = rig.now();
    let taken = failed(ErrorType::Conflicting, "BranchTaken");
    update::failed(rig.progress(), &update, &taken, true, moment);
    assert_eq!(rig.step(), Step::Settled);
    assert!(rig.said().1.contains("BranchTaken"));
    assert_eq!(
        rig.response.progress.leftovers,
        ["b.yaml"],
        "it may be there"
    );
    rig.see(&asks("d.yaml", 4));
    assert!(rig.update().again);
    assert_eq!(rig.update().leftovers, ["a.yaml", "b.yaml"]);
}

#[test]
fn a_pull_request_that_has_ended_is_never_touched() {
    for (state, word, status) in [
        (PullRequestState::Merged, "Merged", true),
        (PullRequestState::Closed, "Closed", false),
    ] {
        let pull = ObservedPull {
            number: 7,
            state,
            merge_commit: None,
            ended_at: None,
        };
        // Seen by the update itself, and by the look that follows pull requests.
        for by_look in [false, true] {
            let mut rig = Rig::succeeded(true);
            rig.progress().intent.as_mut().unwrap().target.kind =
                crate::change::ProviderKind::ForgejoToken;
            rig.see(&asks("b.yaml", 2));
            let update = rig.update();
            let moment = rig.now();
            if by_look {
                progress::observe_pull_request(rig.progress(), &pull, moment);
            } else {
                update::begin(rig.progress(), &update);
                let ended = Amended::Ended(ClosedPull {
                    url: URL.into(),
                    pull: pull.clone(),
                    notes: Vec::new(),
                });
                update::done(rig.progress(), &update, &ended, moment);
            }
            assert_eq!(rig.step(), Step::Settled);
            let said = rig.condition(PULL_REQUEST);
            assert_eq!((said.reason.as_str(), said.status), (word, Some(status)));
            assert!(
                said.message.contains("too late (generation 2)"),
                "{}",
                said.message
            );
            assert_eq!(rig.condition(ACCEPTED).reason, "SpecChanged");
            assert!(!rig.response.progress.watched && !rig.response.progress.spec_watched);
            rig.see(&asks("c.yaml", 3));
            assert_eq!(rig.step(), Step::Settled);
        }
    }
    let mut rig = Rig::new(true);
    rig.begin();
    rig.see(&asks("b.yaml", 2));
    rig.succeed(PullRequestState::Merged);
    assert_eq!(rig.step(), Step::Settled);
    assert_eq!(rig.condition(ACCEPTED).reason, "SpecChanged");
}

#[test]
fn closing_wins_over_an_update_whatever_that_has_done() {
    for begun in [false, true] {
        let mut rig = Rig::new(true);
        rig.routes = routes("o/r", true, true);
        rig.begin();
        rig.succeed(PullRequestState::Open);
        rig.see(&asks("b.yaml", 2));
        let update = rig.update();
        if begun {
            update::begin(rig.progress(), &update);
        }
        progress::mark_deleted(rig.progress());
        let Step::Close(close) = rig.step() else {
            panic!("{:?}", rig.step())
        };
        // Nobody knows which commit is the last one.
        assert_eq!(close.commit.is_none(), begun);
        if begun {
            rig.done(&update, "c2");
            assert!(
                matches!(rig.step(), Step::Close(close) if close.commit.as_deref() == Some("c2"))
            );
            assert!(matches!(
                rig.response.progress.follow_up.as_ref().unwrap().kind,
                FollowUpKind::Close { .. }
            ));
        }
    }
}

#[test]
fn an_event_response_that_goes_wants_no_update_that_has_not_begun() {
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    progress::mark_deleted(rig.progress());
    assert_eq!(rig.step(), Step::Settled);
    let mut rig = Rig::succeeded(true);
    rig.see(&asks("b.yaml", 2));
    let update = rig.update();
    update::begin(rig.progress(), &update);
    progress::mark_deleted(rig.progress());
    assert!(rig.update().again, "what has begun is brought to its end");
}

#[test]
fn a_security_event_that_has_gone_is_taken_as_it_was() {
    let mut rig = Rig::succeeded(true);
    let mut seen = asks("b.yaml", 2);
    let Content::Objects {
        security_event: event,
        ..
    } = &mut seen.content
    else {
        panic!()
    };
    *event = Err(SecurityEventAbsence::NotFound);
    rig.see(&seen);
    let Content::Objects {
        security_event: event,
        ..
    } = &rig.response.observation.content
    else {
        panic!()
    };
    assert_eq!(event, &Ok(security_event()));
}
