//! Owns the answers to what the hub asks after an inventory: what it holds as unfinished and the inventory did not name is
//! gone, or there in another state.
//!
//! Only an object that is not there at all is told as gone: the hub may close its pull request for that.

use nabu_common::ids::ResponseUid;

use super::entry::State;
use super::{Gone, Inventory};
use crate::object::End;
use crate::status::Phase;

impl Inventory {
    /// Answers for everything that was asked, unless a list runs: then nobody knows what is there.
    pub(super) fn answer_missing(&mut self) {
        if !self.synced || self.listing.is_some() || self.live.is_none() {
            return;
        }
        for uid in std::mem::take(&mut self.asked) {
            self.answer(uid);
        }
    }

    /// Whether every object is known.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// Whether an object is there and keeps the status that it has from one of this phase: it is finished, or not ours any more,
    /// and nothing but an end of our own is written to it; to a success of ours no other end, which a hub may come to that has
    /// forgotten it.
    pub fn keeps_its_status_from(&self, uid: &ResponseUid, phase: Phase) -> bool {
        let unfinished = self.entries.get(uid).is_some_and(|entry| !entry.finished);
        if unfinished || !self.finished.is_there(uid) {
            return false;
        }
        let own_success = matches!(self.finished.end_of(uid), Some(End::OwnSuccess(_)));
        !phase.is_terminal() || own_success && phase != Phase::Succeeded
    }

    fn answer(&mut self, uid: ResponseUid) {
        let entry = self.entries.get(&uid).filter(|entry| !entry.finished);
        let gone = match entry {
            // It is about to be written that it has ended.
            Some(entry) if entry.state == State::Refused => Gone {
                name: entry.name.clone(),
                still_there: true,
                own_success: false,
                uid,
            },
            Some(entry) => {
                // What is being read, or waits for a time, is sent then.
                if matches!(entry.state, State::Offered | State::Accepted) {
                    self.enqueue(uid);
                }
                return;
            }
            None => Gone {
                name: String::new(),
                still_there: self.finished.is_there(&uid),
                own_success: matches!(self.finished.end_of(&uid), Some(End::OwnSuccess(_))),
                uid,
            },
        };
        self.gone.push_back(gone);
    }
}
