//! How often and when a response is tried again, as its EventResponse asks and the hub allows.

use std::time::Duration;

use nabu_common::crd::{self, BackoffStrategy};

use crate::response::{ErrorType, ResponseError};

/// Attempts when nobody says anything else.
const DEFAULT_MAX_ATTEMPTS: u32 = 3;
/// Attempts that an EventResponse can ask for; each costs requests that others have to share.
const MOST_ASKED_ATTEMPTS: u32 = 20;
/// `spec.retryPolicy.initialDelay` when it is not given.
const DEFAULT_INITIAL_DELAY: Duration = Duration::from_secs(10);
/// `spec.retryPolicy.maxDelay` when it is not given.
const DEFAULT_MAX_DELAY: Duration = Duration::from_mins(5);
/// A delay that an EventResponse may ask for at most; a larger one is taken as this.
const LONGEST_DELAY: Duration = Duration::from_hours(24);
/// The share of a delay that jitter may add, so that a storm does not come back as one.
const JITTER_SHARE: f64 = 0.2;
/// The first wait for a forge that is down for everyone.
const FIRST_OUTAGE_WAIT: Duration = Duration::from_secs(1);
/// The longest wait for a forge that is down for everyone.
const LONGEST_OUTAGE_WAIT: Duration = Duration::from_secs(30);
/// The first wait for people who have to mend something.
const FIRST_PARKED_WAIT: Duration = Duration::from_secs(30);
/// The longest wait for people who have to mend something.
const LONGEST_PARKED_WAIT: Duration = Duration::from_mins(10);

/// The attempts that a response may have, and the delays between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all, at least 1.
    pub max_attempts: u32,
    /// How delays grow.
    pub strategy: BackoffStrategy,
    /// The delay after the first failure.
    pub initial_delay: Duration,
    /// No delay is longer.
    pub max_delay: Duration,
}

impl RetryPolicy {
    /// What holds for a response: the hub's limit if it is not 0, else the route's, else the object's, else 3.
    ///
    /// # Errors
    /// `Permanent`, if the object asks for a number or a delay that cannot be meant; the text names the field.
    pub fn of(
        event_response: &crd::EventResponse,
        hub_limit: u32,
        route_limit: Option<u32>,
    ) -> Result<Self, ResponseError> {
        let asked = event_response.spec.retry_policy.as_ref();
        let asked_attempts = match asked.and_then(|policy| policy.max_attempts) {
            None | Some(0) => None,
            Some(attempts) => Some(u32::try_from(attempts).map_err(|_| {
                ResponseError::new(
                    ErrorType::Permanent,
                    "InvalidEventResponse",
                    format!("spec.retryPolicy.maxAttempts: {attempts} is not a number of attempts; ask for 1 or more"),
                )
            })?),
        };
        let hub_limit = (hub_limit != 0).then_some(hub_limit);
        let delay = |given: Option<Duration>, default: Duration| {
            given.unwrap_or(default).min(LONGEST_DELAY)
        };
        Ok(Self {
            max_attempts: hub_limit
                .or(route_limit.filter(|limit| *limit != 0))
                .or(asked_attempts.map(|asked| asked.min(MOST_ASKED_ATTEMPTS)))
                .unwrap_or(DEFAULT_MAX_ATTEMPTS),
            strategy: asked
                .and_then(|policy| policy.backoff_strategy)
                .unwrap_or(BackoffStrategy::Exponential),
            initial_delay: delay(
                asked.and_then(|policy| policy.initial_delay.map(Into::into)),
                DEFAULT_INITIAL_DELAY,
            ),
            max_delay: delay(
                asked.and_then(|policy| policy.max_delay.map(Into::into)),
                DEFAULT_MAX_DELAY,
            ),
        })
    }

    /// The delay after the `failures`-th failure in a row (from 1). `jitter` is in `0.0..1.0` and adds up to a fifth;
    /// the delay is never shorter than what was asked for.
    pub fn delay_after(&self, failures: u32, jitter: f64) -> Duration {
        let plain = match self.strategy {
            BackoffStrategy::None => return Duration::ZERO,
            BackoffStrategy::Fixed => self.initial_delay,
            BackoffStrategy::Exponential => {
                let doublings = failures.saturating_sub(1).min(31);
                self.initial_delay.saturating_mul(1 << doublings)
            }
        };
        let capped = plain.min(self.max_delay);
        capped + capped.mul_f64(JITTER_SHARE * jitter.clamp(0.0, 1.0))
    }
}

/// The wait before a forge that is down for everyone is asked again, after `waits` waits in a row. `jitter` is in
/// `0.0..1.0` and spreads the second half of it.
pub fn outage_wait(waits: u32, jitter: f64) -> Duration {
    let plain = FIRST_OUTAGE_WAIT
        .saturating_mul(1 << waits.min(16))
        .min(LONGEST_OUTAGE_WAIT);
    plain.mul_f64(0.5 + 0.5 * jitter.clamp(0.0, 1.0))
}

/// The wait before a credential or repository that people have to mend is looked at again, after `waits` waits in a row.
pub fn parked_wait(waits: u32, jitter: f64) -> Duration {
    let plain = FIRST_PARKED_WAIT
        .saturating_mul(1 << waits.min(16))
        .min(LONGEST_PARKED_WAIT);
    plain + plain.mul_f64(JITTER_SHARE * jitter.clamp(0.0, 1.0))
}
