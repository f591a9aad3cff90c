//! Owns what comes back later: pauses before another look or another read, and the resync interval.

use std::time::{Duration, Instant};

use nabu_common::ids::ResponseUid;

use super::entry::State;
use super::{Effect, Inventory};

/// The first pause before a SecurityEvent that is not there yet is looked for again; it doubles.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// The longest pause between two looks for a SecurityEvent that is not there yet.
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// The first pause before an EventResponse is read again from an API server that fails; it doubles.
const FIRST_READ_BACKOFF: Duration = Duration::from_millis(100);
/// The longest pause between two tries to read an EventResponse from an API server that fails.
const LONGEST_READ_BACKOFF: Duration = Duration::from_secs(5);

impl Inventory {
    /// Looks again soon, and for the last time when the patience ends: that look goes on without the SecurityEvent.
    pub(super) fn wait_for_security_event(
        &mut self,
        now: Instant,
        session: u64,
        uid: &ResponseUid,
    ) {
        if self.came_back(session, false)
            && let Some(entry) = self.entries.get_mut(uid)
        {
            let give_up_at = *entry
                .give_up_at
                .get_or_insert(now + self.settings.security_event_wait);
            let pause = entry.next_pause(FIRST_LOOK, LONGEST_LOOK);
            self.delay(uid, (now + pause).min(give_up_at));
        }
    }

    pub(super) fn read_later(&mut self, now: Instant, session: u64, uid: &ResponseUid) {
        if self.came_back(session, false)
            && let Some(entry) = self.entries.get_mut(uid)
        {
            let pause = entry.next_pause(FIRST_READ_BACKOFF, LONGEST_READ_BACKOFF);
            self.delay(uid, now + pause);
        }
    }

    fn delay(&mut self, uid: &ResponseUid, due: Instant) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.state = State::Delayed(due);
            self.timer_count += 1;
            self.timers.insert((due, self.timer_count), uid.clone());
        }
    }

    pub(super) fn tick(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        while let Some(timer) = self.timers.first_entry()
            && timer.key().0 <= now
        {
            let ((due, _), uid) = timer.remove_entry();
            if self
                .entries
                .get(&uid)
                .is_some_and(|entry| entry.state == State::Delayed(due))
            {
                self.enqueue(uid);
            }
        }
        if self
            .live
            .as_ref()
            .is_some_and(|live| live.next_resync <= now)
        {
            self.begin_snapshot(now, effects);
        }
    }
}
