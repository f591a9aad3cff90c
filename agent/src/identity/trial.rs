//! Which of two certificates the next session is opened with, and when neither will do: plain values, no I/O.
//!
//! A new certificate is tried first and the old one is kept beside it. Neither is given up before a session was opened with
//! the other: the hub may have counted the first use of the new one though its answer was lost.

use jiff::Timestamp;

use super::kept::Kept;

/// So many sessions may fail with one certificate before the other one is tried.
const TRIES: u32 = 3;

/// What came of the sessions that were tried since the last one that was open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Trial {
    /// Those with the certificate that is tried now.
    failures: u32,
    /// The old certificate is tried instead of the new one.
    with_old: bool,
    /// Why the hub took neither certificate, or not the only one.
    turned_away: Option<String>,
}

impl Trial {
    /// Whether the old certificate is to be used next, if there are two.
    pub(super) fn with_old(&self) -> bool {
        self.with_old
    }

    /// Why the hub takes no certificate that we have, if it said so.
    pub(super) fn turned_away(&self) -> Option<&str> {
        self.turned_away.as_deref()
    }

    /// Whether to ask for a certificate with a join token: there is none, it ran out by the hub's clock, or the hub takes
    /// none of them.
    pub(super) fn needs_token(&self, kept: &Kept, hub_now: Timestamp) -> bool {
        let newest = kept.newest();
        newest.is_none_or(|used| used.not_after <= hub_now || self.turned_away.is_some())
    }

    /// A session is open; `true` if the other certificate is forgotten now.
    pub(super) fn opened(&mut self, kept: &mut Kept) -> bool {
        let tried = std::mem::take(self);
        if tried.with_old {
            kept.give_up_candidate()
        } else {
            kept.confirm()
        }
    }

    /// A session could not be opened; `refused` is why, if the hub turned the certificate away. `true` if the other
    /// certificate is tried from now on.
    pub(super) fn failed(&mut self, kept: &Kept, refused: Option<String>) -> bool {
        if kept.candidate.is_none() {
            if refused.is_some() {
                self.turned_away = refused;
            }
            return false;
        }
        self.failures += 1;
        if refused.is_none() && self.failures < TRIES {
            return false;
        }
        if self.with_old && refused.is_some() {
            self.turned_away = refused;
        }
        self.with_old = !self.with_old;
        self.failures = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::kept::{Bytes, Certified};
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn certified(mark: u8) -> Certified {
        Certified {
            key: Bytes(vec![mark]),
            chain: vec![Bytes(vec![mark])],
            not_after: at(100 * i64::from(mark)),
            renew_after: Timestamp::UNIX_EPOCH,
            authority: None,
        }
    }

    fn only_old() -> Kept {
        Kept {
            current: Some(certified(1)),
            ..Kept::default()
        }
    }

    fn both() -> Kept {
        Kept {
            candidate: Some(certified(2)),
            ..only_old()
        }
    }

    fn shown(kept: &Kept, trial: &Trial) -> u8 {
        let credentials = kept.credentials(trial.with_old()).unwrap();
        credentials.chain[0][0]
    }

    /// The hub turns the certificate that is tried away.
    fn refuse(trial: &mut Trial, kept: &Kept) -> bool {
        trial.failed(kept, Some("revoked".to_owned()))
    }

    #[test]
    fn the_new_certificate_is_tried_first_and_the_old_one_forgotten_when_it_works() {
        let (mut kept, mut trial) = (both(), Trial::default());
        assert_eq!(shown(&kept, &trial), 2);
        assert!(trial.opened(&mut kept));
        assert_eq!(kept.current, Some(certified(2)));
        assert_eq!(kept.candidate, None);
        assert!(!trial.opened(&mut kept), "there is nothing left to forget");
        assert_eq!(kept.current, Some(certified(2)));
    }

    #[test]
    fn a_new_certificate_that_the_hub_refuses_gives_way_at_once_and_goes_when_the_old_one_works() {
        let (mut kept, mut trial) = (both(), Trial::default());
        assert!(refuse(&mut trial, &kept));
        assert_eq!(shown(&kept, &trial), 1);
        assert_eq!(kept, both(), "nothing is given up yet");
        assert_eq!(trial.turned_away(), None, "the old one may be good");
        assert!(trial.opened(&mut kept));
        assert_eq!(kept, only_old());
        assert_eq!(trial, Trial::default());
    }

    #[test]
    fn failures_that_say_nothing_of_the_certificate_change_it_after_three_in_a_row() {
        let (kept, mut trial) = (both(), Trial::default());
        let mut order = Vec::new();
        for _ in 0..9 {
            order.push(shown(&kept, &trial));
            trial.failed(&kept, None);
        }
        assert_eq!(order, [2, 2, 2, 1, 1, 1, 2, 2, 2]);
        assert_eq!(trial.turned_away(), None, "an outage asks for no token");
    }

    #[test]
    fn a_session_in_between_begins_the_count_anew() {
        let (mut kept, mut trial) = (both(), Trial::default());
        trial.failed(&kept, None);
        trial.failed(&kept, None);
        trial.opened(&mut kept);
        kept.candidate = Some(certified(3));
        assert!(!trial.failed(&kept, None));
        assert!(!trial.failed(&kept, None));
        assert_eq!(shown(&kept, &trial), 3);
        assert!(trial.failed(&kept, None));
    }

    #[test]
    fn a_token_is_asked_for_only_when_both_certificates_are_refused_and_both_are_tried_on() {
        let (mut kept, mut trial) = (both(), Trial::default());
        refuse(&mut trial, &kept);
        assert_eq!(trial.turned_away(), None);
        refuse(&mut trial, &kept);
        assert_eq!(trial.turned_away(), Some("revoked"));
        assert!(trial.needs_token(&kept, at(0)));
        assert_eq!(shown(&kept, &trial), 2);
        refuse(&mut trial, &kept);
        assert_eq!(shown(&kept, &trial), 1);
        // The cluster was restored.
        trial.opened(&mut kept);
        assert_eq!(trial.turned_away(), None);
        assert_eq!(kept, only_old());
    }

    #[test]
    fn with_one_certificate_a_refusal_asks_for_a_token_and_an_outage_does_not() {
        let (kept, mut trial) = (only_old(), Trial::default());
        for _ in 0..10 {
            assert!(!trial.failed(&kept, None));
        }
        assert_eq!(trial.turned_away(), None);
        assert!(!refuse(&mut trial, &kept));
        assert_eq!(trial.turned_away(), Some("revoked"));
        assert!(!trial.failed(&kept, None));
        assert_eq!(
            trial.turned_away(),
            Some("revoked"),
            "an outage takes nothing back"
        );
        assert_eq!(shown(&kept, &trial), 1);
    }

    #[test]
    fn a_token_is_needed_without_a_certificate_and_when_the_newest_one_has_run_out() {
        let trial = Trial::default();
        assert!(trial.needs_token(&Kept::default(), at(0)));
        assert!(!trial.needs_token(&only_old(), at(99)));
        assert!(trial.needs_token(&only_old(), at(100)));
        assert!(!trial.needs_token(&both(), at(100)), "the new one is good");
        assert!(trial.needs_token(&both(), at(200)));
    }
}
