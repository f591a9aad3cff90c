//! The server's state with its older pictures, and one request's view of it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use jiff::Timestamp;

use super::auth::{Caller, Credentials};
use super::error::ApiResult;
use super::model::State;
use crate::test_forge::faults::Faults;
use crate::test_forge::log::Log;

/// Older pictures that are kept.
const HISTORY: usize = 64;

/// The forge.
#[derive(Debug)]
pub(super) struct Server {
    /// Where its repositories are.
    pub dir: PathBuf,
    /// Base URL for people.
    pub url: String,
    /// What was asked.
    pub log: Log,
    /// What fails on purpose.
    pub faults: Arc<Faults>,
    /// Who may come in.
    pub credentials: Credentials,
    /// Requests that count against the hourly budget.
    pub used: AtomicU32,
    /// When the hourly budget is filled again, if not at the next full hour.
    pub resets_at: Mutex<Option<Timestamp>>,
    /// Whether nobody gets an answer.
    pub stopped: AtomicBool,
    /// Whether a commit that the forge makes keeps the mode of a file that may be run.
    pub keeps_modes: AtomicBool,
    /// Whether the paths of the public GitHub are served as well.
    pub public_paths: bool,
    /// Whether tokens of installations have the long form.
    pub long_tokens: AtomicBool,
    state: Mutex<Arc<State>>,
    history: Mutex<VecDeque<Arc<State>>>,
    frozen: Mutex<Option<Arc<State>>>,
}

impl Server {
    /// An empty forge.
    pub(super) fn new(
        dir: PathBuf,
        url: String,
        credentials: Credentials,
        state: State,
        public_paths: bool,
    ) -> Self {
        Self {
            dir,
            url,
            log: Log::default(),
            faults: Arc::default(),
            credentials,
            used: AtomicU32::new(0),
            resets_at: Mutex::default(),
            stopped: AtomicBool::new(false),
            keeps_modes: AtomicBool::new(false),
            public_paths,
            long_tokens: AtomicBool::new(false),
            state: Mutex::new(Arc::new(state)),
            history: Mutex::default(),
            frozen: Mutex::default(),
        }
    }

    /// What is there now.
    pub(super) fn now(&self) -> Arc<State> {
        Arc::clone(&lock(&self.state))
    }

    /// What was there before the last so many changes.
    pub(super) fn before(&self, changes: usize) -> Arc<State> {
        let history = lock(&self.history);
        let index = history.len().checked_sub(changes);
        index
            .and_then(|index| history.get(index))
            .or_else(|| history.front().filter(|_| changes > 0))
            .map_or_else(|| self.now(), Arc::clone)
    }

    /// Keeps the picture of now.
    pub(super) fn freeze(&self) {
        *lock(&self.frozen) = Some(self.now());
    }

    /// The picture that was kept, or that of now.
    pub(super) fn frozen(&self) -> Arc<State> {
        lock(&self.frozen).clone().unwrap_or_else(|| self.now())
    }

    /// Changes the state; nothing else changes it meanwhile. What fails changes nothing here, so an operation looks at
    /// everything before it touches git.
    pub(super) fn change<T>(
        &self,
        operation: impl FnOnce(&mut State) -> ApiResult<T>,
    ) -> ApiResult<T> {
        let mut state = lock(&self.state);
        let mut next = State::clone(&state);
        let result = operation(&mut next)?;
        let mut history = lock(&self.history);
        history.push_back(Arc::clone(&state));
        if history.len() > HISTORY {
            history.pop_front();
        }
        *state = Arc::new(next);
        Ok(result)
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Context {
    /// The forge.
    pub server: Arc<Server>,
    /// Who asks.
    pub caller: Caller,
    /// An older picture, if reads are to lag.
    pub view: Option<Arc<State>>,
    /// How many fields of a mutation are done.
    pub only_first: Option<usize>,
}

impl Context {
    /// What this request sees.
    pub(super) fn state(&self) -> Arc<State> {
        self.view.clone().unwrap_or_else(|| self.server.now())
    }
}

/// Runs what blocks, as git does, where it holds up nobody.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await?
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
