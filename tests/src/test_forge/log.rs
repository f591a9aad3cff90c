//! What a test forge was asked, and what was wrong with it.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One request and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its place, counted from 1.
    pub number: u32,
    /// `GET`, `POST`…
    pub method: String,
    /// Path with the query string.
    pub path: String,
    /// Root fields of a GraphQL document, in order; empty for any other request.
    pub operations: Vec<String>,
    /// Body of the request.
    pub body: String,
    /// Status of the answer; `None` while there is none, and for ever where the connection was cut.
    pub status: Option<u16>,
    /// Body of the answer as it was sent.
    pub answer: String,
    /// Headers of the request; the credential is not among them.
    pub headers: Vec<(String, String)>,
}

/// The story of a forge.
#[derive(Debug, Default)]
pub struct Log {
    requests: Mutex<Vec<LoggedRequest>>,
    violations: Mutex<Vec<String>>,
}

impl Log {
    /// Adds a request that has no answer yet, and gives it its number.
    pub fn begin(&self, mut request: LoggedRequest) -> u32 {
        let mut requests = lock(&self.requests);
        request.number = u32::try_from(requests.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let number = request.number;
        requests.push(request);
        number
    }

    /// Notes the answer of a request.
    pub fn end(&self, number: u32, status: u16, answer: &str) {
        let mut requests = lock(&self.requests);
        if let Some(request) = requests.iter_mut().find(|request| request.number == number) {
            request.status = Some(status);
            answer.clone_into(&mut request.answer);
        }
    }

    /// Notes that something does not keep to the published interface.
    pub fn violation(&self, text: String) {
        lock(&self.violations).push(text);
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<LoggedRequest> {
        lock(&self.requests).clone()
    }

    /// Everything that did not keep to the published interface.
    pub fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    /// Forgets the requests, so that the next is number 1.
    pub fn clear(&self) {
        lock(&self.requests).clear();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
