//! Which responses are to be advanced now, later, or again: keys only, each at most once.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use tokio_util::time::{DelayQueue, delay_queue};

use super::advance::{Advanced, Start};
use super::lanes::Ticket;
use crate::response::Response;

/// Records that are kept at hand for responses that wait to be started; the others are read again.
const RECORDS_AT_HAND: usize = 256;

#[derive(Debug)]
enum State {
    /// It waits in `ready`; holds the record if that is cheap.
    Ready(Option<Arc<Response>>),
    /// A step runs. `again`: something new was observed meanwhile. `ticket`: it went into line and was called from
    /// there before its step was seen to end.
    Running { again: bool, ticket: Option<Ticket> },
    /// It stands in line for a lane and is called from there.
    InLine,
    /// It waits for a time.
    Delayed(delay_queue::Key),
}

/// The executor's memory of what to do when.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    states: HashMap<ResponseKey, State>,
    ready: VecDeque<(ResponseKey, Option<Ticket>)>,
    timers: DelayQueue<ResponseKey>,
    at_hand: usize,
}

impl Schedule {
    /// Responses that wait to be started.
    pub(super) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// Responses that wait for a time.
    pub(super) fn delayed(&self) -> usize {
        self.timers.len()
    }

    /// The next timer that runs out; pending for ever while there is none.
    pub(super) async fn due(&mut self) -> Option<delay_queue::Expired<ResponseKey>> {
        if self.timers.is_empty() {
            return std::future::pending().await;
        }
        let due = futures::StreamExt::next(&mut self.timers).await;
        if let Some(due) = &due {
            self.states.remove(due.get_ref());
        }
        due
    }

    /// A response is to be advanced as soon as possible.
    pub(super) fn add(&mut self, key: ResponseKey, record: Option<Arc<Response>>) {
        match self.states.get_mut(&key) {
            Some(State::Running { again, .. }) => {
                *again = true;
                return;
            }
            // A newer record replaces the one at hand; without one it is read from the store.
            Some(State::Ready(at_hand)) => {
                if at_hand.take().is_some() {
                    self.at_hand -= 1;
                }
                return;
            }
            Some(State::InLine) => return,
            Some(State::Delayed(timer)) => {
                self.timers.try_remove(timer);
            }
            None => {}
        }
        let record = record.filter(|_| self.at_hand < RECORDS_AT_HAND);
        self.at_hand += usize::from(record.is_some());
        self.states.insert(key.clone(), State::Ready(record));
        self.ready.push_back((key, None));
    }

    /// Whether a response stands in line.
    pub(super) fn is_in_line(&self, key: &ResponseKey) -> bool {
        matches!(self.states.get(key), Some(State::InLine))
    }

    /// A response was taken out of its line, and is to be advanced.
    pub(super) fn withdrawn(&mut self, key: ResponseKey) {
        self.states.remove(&key);
        self.add(key, None);
    }

    /// A response that stood in line has its ticket.
    pub(super) fn call(&mut self, key: ResponseKey, ticket: Ticket) {
        if let Some(State::Running { ticket: early, .. }) = self.states.get_mut(&key) {
            *early = Some(ticket);
            return;
        }
        self.states.insert(key.clone(), State::Ready(None));
        self.ready.push_front((key, Some(ticket)));
    }

    /// The next response to start.
    pub(super) fn next(&mut self) -> Option<Start> {
        let (key, ticket) = self.ready.pop_front()?;
        let state = self.states.insert(
            key.clone(),
            State::Running {
                again: false,
                ticket: None,
            },
        );
        let response = match state {
            Some(State::Ready(record)) => record,
            _ => None,
        };
        self.at_hand -= usize::from(response.is_some());
        Some(Start {
            key,
            response,
            ticket,
        })
    }

    /// A step ended. Gives back whether something new was observed of a response that stands in line now.
    pub(super) fn ended(&mut self, key: &ResponseKey, advanced: Advanced) -> bool {
        let (again, called) = match self.states.remove(key) {
            Some(State::Running { again, ticket }) => (again, ticket),
            _ => (false, None),
        };
        match (advanced, called) {
            (Advanced::InLine, Some(ticket)) => self.call(key.clone(), ticket),
            (Advanced::InLine, None) => {
                self.states.insert(key.clone(), State::InLine);
                return again;
            }
            _ if again => self.add(key.clone(), None),
            (Advanced::Settled, _) => {}
            (Advanced::WaitUntil(at), _) => {
                let wait =
                    Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                let timer = self.timers.insert(key.clone(), wait);
                self.states.insert(key.clone(), State::Delayed(timer));
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{ForgeTarget, ProviderKind};

    fn key() -> ResponseKey {
        ResponseKey {
            cluster: "c".parse().unwrap(),
            uid: "00000000-0000-4000-8000-000000000001".parse().unwrap(),
        }
    }

    fn ticket() -> Ticket {
        Ticket::for_target(&ForgeTarget {
            kind: ProviderKind::Noop,
            base_url: None,
            repository: "o/r".into(),
            credential: None,
            installation_id: None,
            ca_bundle: None,
        })
    }

    #[test]
    fn a_response_is_never_started_twice_at_a_time() {
        let mut schedule = Schedule::default();
        schedule.add(key(), None);
        schedule.add(key(), None);
        assert!(schedule.next().is_some());
        schedule.add(key(), None);
        assert!(schedule.next().is_none(), "it runs");
        schedule.ended(&key(), Advanced::Settled);
        assert!(
            schedule.next().is_some(),
            "what was observed meanwhile is looked at"
        );
        schedule.ended(&key(), Advanced::Settled);
        assert!(schedule.next().is_none());
        assert!(
            schedule.states.is_empty(),
            "a settled response leaves nothing behind"
        );
    }

    #[test]
    fn a_response_called_from_its_line_before_its_step_ended_starts_once_with_its_ticket() {
        let mut schedule = Schedule::default();
        schedule.add(key(), None);
        schedule.next();
        schedule.call(key(), ticket());
        assert!(schedule.next().is_none(), "its first step has not ended");
        schedule.ended(&key(), Advanced::InLine);
        assert_eq!(
            schedule.next().and_then(|start| start.ticket),
            Some(ticket())
        );
    }

    #[test]
    fn a_response_in_line_is_left_alone_until_it_is_called() {
        let mut schedule = Schedule::default();
        schedule.add(key(), None);
        schedule.next();
        schedule.ended(&key(), Advanced::InLine);
        schedule.add(key(), None);
        assert!(schedule.next().is_none());
        schedule.call(key(), ticket());
        assert!(schedule.next().is_some());
    }

    #[test]
    fn a_response_that_left_its_line_starts_at_once_without_a_ticket() {
        let mut schedule = Schedule::default();
        schedule.add(key(), None);
        schedule.next();
        schedule.add(key(), None);
        assert!(
            schedule.ended(&key(), Advanced::InLine),
            "what was observed meanwhile is told"
        );
        assert!(schedule.is_in_line(&key()));
        schedule.withdrawn(key());
        assert!(schedule.next().is_some_and(|start| start.ticket.is_none()));
        assert!(!schedule.ended(&key(), Advanced::InLine));
    }

    #[tokio::test]
    async fn a_delayed_response_comes_back_when_its_time_has_come() {
        let mut schedule = Schedule::default();
        schedule.add(key(), None);
        schedule.next();
        schedule.ended(&key(), Advanced::WaitUntil(Timestamp::now()));
        assert_eq!(schedule.delayed(), 1);
        let due = schedule.due().await.unwrap();
        schedule.add(due.into_inner(), None);
        assert!(schedule.next().is_some());
    }
}
