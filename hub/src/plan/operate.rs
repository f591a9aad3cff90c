//! What an operator's wish means for a record. Pure, like [`super::progress`], whose rules hold: a terminal phase never
//! changes.

use jiff::Timestamp;

use super::Conclusion;
use super::progress::{self, Cancellation, Moment};
use crate::response::{Phase, Progress};

/// What came of a wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It was done; a sentence says what happens next.
    Granted(String),
    /// It cannot be done.
    Refused {
        /// An `UPPER_SNAKE_CASE` word for programs.
        reason: &'static str,
        /// A sentence for people, with the remedy.
        message: String,
    },
}

impl Wish {
    fn refused(reason: &'static str, message: impl Into<String>) -> Self {
        Self::Refused {
            reason,
            message: message.into(),
        }
    }
}

/// The next attempt is to be made now instead of when its time has come. What a forge limits is not for the operator to
/// skip: that is asked when the attempt enters its lane.
pub fn retry(progress: &mut Progress, now: Timestamp) -> Wish {
    if progress.phase.is_terminal() {
        let phase = progress.phase.as_str();
        return Wish::refused(
            "RESPONSE_ENDED",
            format!(
                "the response has ended as {phase}, and that never changes; correct the cause and create a new EventResponse"
            ),
        );
    }
    if progress.cancel_requested.is_some() {
        return Wish::refused("CANCEL_REQUESTED", "the response is being cancelled");
    }
    if progress.phase == Phase::Running {
        return Wish::refused(
            "ATTEMPT_RUNS",
            "an attempt runs now; there is nothing to wait for",
        );
    }
    match progress.next_attempt_at.filter(|at| *at > now) {
        None => Wish::Granted("the next attempt is due already".to_owned()),
        Some(at) => {
            progress.next_attempt_at = None;
            progress.revision = progress.revision.next();
            Wish::Granted(format!(
                "the next attempt is made now instead of at {at:.0}, unless the forge limits its credential"
            ))
        }
    }
}

/// The response is not wanted any more. One whose attempt runs is concluded after it, because nobody can call back what
/// is on its way to a forge; of one that has ended, the pull request is closed if its route says so.
pub fn cancel(progress: &mut Progress, reason: &str, moment: Moment) -> Wish {
    match progress::cancel(progress, reason) {
        Cancellation::Requested => {
            let reason = progress.cancel_requested.clone().unwrap_or_default();
            progress::conclude(progress, &Conclusion::Cancelled { reason }, moment);
            Wish::Granted("the response is cancelled".to_owned())
        }
        Cancellation::AfterAttempt => Wish::Granted(
            "an attempt runs; the response is cancelled after it, unless the attempt succeeds"
                .to_owned(),
        ),
        Cancellation::Closing if progress.shared => Wish::Granted(
            "the response has ended; its group's pull request is closed once no response of the group is wanted in it"
                .to_owned(),
        ),
        Cancellation::Closing => {
            Wish::Granted("the response has ended; its pull request is closed".to_owned())
        }
        Cancellation::Ended(Phase::Cancelled) => {
            Wish::Granted("the response is cancelled already".to_owned())
        }
        Cancellation::Ended(phase) => Wish::refused(
            "RESPONSE_ENDED",
            format!(
                "the response has ended as {}, and that never changes; close its pull request on the forge if it is not \
                wanted",
                phase.as_str()
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fixtures;
    use crate::plan::Attempt;
    use crate::plan::retry::RetryPolicy;

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

    fn fresh() -> Progress {
        let seen = fixtures::observation(fixtures::key(1), fixtures::event_response(json!({})));
        progress::accept(&seen, at(0))
    }

    fn running() -> Progress {
        let mut progress = fresh();
        let object = fixtures::event_response(json!({}));
        let typed = nabu_common::crd::parse_event_response(&object).unwrap();
        let attempt = Attempt {
            intent: fixtures::intent(),
            retry: RetryPolicy::of(&typed, 0, None).unwrap(),
            passed_over: String::new(),
        };
        progress::begin(&mut progress, &attempt, moment(1));
        progress
    }

    fn reason(wish: &Wish) -> Option<&'static str> {
        match wish {
            Wish::Granted(_) => None,
            Wish::Refused { reason, .. } => Some(reason),
        }
    }

    #[test]
    fn a_response_that_waits_is_due_at_once_when_it_is_retried() {
        let mut progress = fresh();
        progress.next_attempt_at = Some(at(3600));
        let before = progress.revision;
        assert_eq!(reason(&retry(&mut progress, at(1))), None);
        assert_eq!(progress.next_attempt_at, None);
        assert!(progress.revision > before, "the status shows it");
        let again = progress.clone();
        assert_eq!(reason(&retry(&mut progress, at(1))), None);
        assert_eq!(progress, again, "what is due already is left alone");
    }

    #[test]
    fn a_terminal_phase_is_neither_retried_nor_cancelled() {
        for phase in [Phase::Failed, Phase::Succeeded] {
            let mut progress = fresh();
            progress.phase = phase;
            let before = progress.clone();
            assert_eq!(reason(&retry(&mut progress, at(1))), Some("RESPONSE_ENDED"));
            assert_eq!(
                reason(&cancel(&mut progress, "no", moment(1))),
                Some("RESPONSE_ENDED")
            );
            assert_eq!(progress, before);
        }
    }

    #[test]
    fn what_waits_is_cancelled_at_once_and_only_once() {
        let mut progress = fresh();
        assert_eq!(
            reason(&cancel(&mut progress, "not wanted", moment(5))),
            None
        );
        assert_eq!(progress.phase, Phase::Cancelled);
        assert_eq!(progress.cancel_reason.as_deref(), Some("not wanted"));
        assert_eq!(progress.completed_at, Some(at(5)));
        let once = progress.clone();
        assert_eq!(reason(&cancel(&mut progress, "again", moment(6))), None);
        assert_eq!(progress, once);
    }

    #[test]
    fn an_attempt_that_runs_is_not_called_back() {
        let mut progress = running();
        assert_eq!(reason(&retry(&mut progress, at(2))), Some("ATTEMPT_RUNS"));
        assert_eq!(
            reason(&cancel(&mut progress, "not wanted", moment(2))),
            None
        );
        assert_eq!(progress.phase, Phase::Running);
        assert_eq!(progress.cancel_requested.as_deref(), Some("not wanted"));
        assert_eq!(
            reason(&retry(&mut progress, at(3))),
            Some("CANCEL_REQUESTED")
        );
    }
}
