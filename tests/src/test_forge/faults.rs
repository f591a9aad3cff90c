//! What fails on purpose: which requests, and how.
//!
//! A [`Fault`] happens to the first request that it matches, then it is used up, unless it says otherwise.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// A failure and the requests that it happens to. Every condition that is set must hold.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    number: Option<u32>,
    method: Option<String>,
    path: Option<String>,
    operation: Option<String>,
    times: Option<u32>,
}

impl Fault {
    /// Happens to the next request, whatever it is.
    pub fn new(effect: Effect) -> Self {
        Self {
            effect,
            number: None,
            method: None,
            path: None,
            operation: None,
            times: Some(1),
        }
    }

    /// Only to the n-th request since the start (or since the log was cleared), counted from 1.
    pub fn at(mut self, number: u32) -> Self {
        self.number = Some(number);
        self
    }

    /// Only to this method.
    pub fn method(mut self, method: &str) -> Self {
        self.method = Some(method.to_owned());
        self
    }

    /// Only to a path with this in it.
    pub fn path(mut self, part: &str) -> Self {
        self.path = Some(part.to_owned());
        self
    }

    /// Only to a GraphQL document with this root field, such as `createRef`.
    pub fn operation(mut self, name: &str) -> Self {
        self.operation = Some(name.to_owned());
        self
    }

    /// To that many requests.
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// To every request that matches, until the faults are cleared.
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    fn matches(&self, request: &Subject<'_>) -> bool {
        self.number.is_none_or(|number| number == request.number)
            && self
                .method
                .as_ref()
                .is_none_or(|method| method == request.method)
            && self
                .path
                .as_ref()
                .is_none_or(|part| request.path.contains(part.as_str()))
            && (self.operation.as_ref()).is_none_or(|name| request.operations.contains(name))
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// This answer; the forge does nothing.
    Answer(Reply),
    /// The forge does it, and gives this answer instead of its own.
    AnswerAfter(Reply),
    /// The forge waits this long before it does anything.
    Delay(Duration),
    /// The connection ends without an answer; the forge does nothing.
    CutBefore,
    /// The forge does it, then the connection ends without an answer.
    CutAfter,
    /// Stops before the forge does anything, until [`Faults::release`].
    HoldBefore,
    /// The forge does it; its answer stops until [`Faults::release`].
    HoldAfter,
    /// The forge does it; of its answer only so many bytes come, then the connection ends.
    Truncate(usize),
    /// Reads see what was there before the last so many writes. Writes are refused nothing.
    StaleBy(usize),
    /// Reads see what was there when the forge was told to freeze its picture.
    Frozen,
    /// Of a GraphQL mutation only the first so many fields are done; the rest is `null` with an error.
    OnlyFirst(usize),
    /// The forge's own way to say that a limit is reached.
    Limit(Limit),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status.
    pub status: u16,
    /// Headers beside the usual ones.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: String,
}

impl Reply {
    /// A status and a JSON body.
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self {
            status,
            headers: vec![(
                "content-type".to_owned(),
                "application/json; charset=utf-8".to_owned(),
            )],
            body: body.to_string(),
        }
    }

    /// A page for people, as a proxy before the forge gives it.
    pub fn html(status: u16) -> Self {
        Self {
            status,
            headers: vec![("content-type".to_owned(), "text/html".to_owned())],
            body: "<!DOCTYPE html>\n<html><body><h1>Unicorn!</h1></body></html>\n".to_owned(),
        }
    }

    /// One more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A limit that a forge may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The hourly budget is used up; it is filled again after this time.
    Primary {
        /// 403 or 429.
        status: u16,
        /// Time until the budget is filled again.
        reset: Duration,
    },
    /// The hourly budget is used up, said in a GraphQL answer with status 200.
    PrimaryInGraphql {
        /// Time until the budget is filled again.
        reset: Duration,
    },
    /// Too much in too short a time.
    Secondary {
        /// 403 or 429.
        status: u16,
        /// In the header `retry-after`, if there is one.
        retry_after: Option<Duration>,
    },
}

/// What a fault may look at.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Number of the request.
    pub number: u32,
    /// Its method.
    pub method: &'a str,
    /// Its path with the query string.
    pub path: &'a str,
    /// Root fields of its GraphQL document.
    pub operations: &'a [String],
}

/// The faults of one forge.
#[derive(Debug)]
pub struct Faults {
    pending: Mutex<Vec<Fault>>,
    held: watch::Sender<u32>,
    released: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            held: watch::Sender::new(0),
            released: watch::Sender::new(0),
        }
    }
}

impl Faults {
    /// Adds a fault.
    pub fn add(&self, fault: Fault) {
        self.lock().push(fault);
    }

    /// No more faults. What is held stays held.
    pub fn clear(&self) {
        self.lock().clear();
    }

    /// What is held goes on.
    pub fn release(&self) {
        self.released.send_modify(|turn| *turn += 1);
        self.held.send_replace(0);
    }

    /// Waits until a request is held.
    pub async fn reached(&self) {
        // The sender lives as long as this value: it cannot be gone.
        let _ = self.held.subscribe().wait_for(|held| *held > 0).await;
    }

    /// The effects on a request, in the order in which they were added.
    pub fn of(&self, request: &Subject<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.lock().retain_mut(|fault| {
            if !fault.matches(request) {
                return true;
            }
            // Of two equal faults the second waits for the next request.
            if effects.contains(&fault.effect) {
                return true;
            }
            effects.push(fault.effect.clone());
            if let Some(times) = &mut fault.times {
                *times = times.saturating_sub(1);
            }
            fault.times != Some(0)
        });
        effects
    }

    /// Waits until what is held is released.
    pub async fn hold(self: Arc<Self>) {
        let mut released = self.released.subscribe();
        let turn = *released.borrow_and_update();
        self.held.send_modify(|held| *held += 1);
        let _ = released.wait_for(|now| *now > turn).await;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Fault>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
