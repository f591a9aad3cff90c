//! Owns how long to wait before the next try to reach the hub.

use std::time::Duration;

/// Exponential backoff with full jitter: a uniform choice between nothing and a bound that doubles.
///
/// Full jitter spreads a fleet that lost its hub at one moment best; see "Exponential Backoff And Jitter" of the AWS
/// Architecture Blog.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
}

impl Backoff {
    /// Doubles from `base` to `cap`.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self {
            base,
            cap,
            failures: 0,
        }
    }

    /// The next wait, at least `floor`; `chance` is a random number from 0 to 1.
    pub fn next(&mut self, floor: Duration, chance: f64) -> Duration {
        let bound = self
            .base
            .saturating_mul(1 << self.failures.min(16))
            .min(self.cap);
        self.failures = self.failures.saturating_add(1);
        floor + bound.mul_f64(chance.clamp(0.0, 1.0))
    }

    /// It went well: starts over.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_doubles_up_to_the_cap_and_starts_over_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let bounds: Vec<_> = (0..8)
            .map(|_| backoff.next(Duration::ZERO, 1.0).as_millis())
            .collect();
        assert_eq!(bounds, [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000]);
        backoff.reset();
        assert_eq!(
            backoff.next(Duration::ZERO, 0.5),
            Duration::from_millis(250)
        );
    }

    #[test]
    fn the_hubs_own_wish_is_a_floor_with_jitter_on_top() {
        let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        assert_eq!(
            backoff.next(Duration::from_secs(7), 0.0),
            Duration::from_secs(7)
        );
        assert_eq!(
            backoff.next(Duration::from_secs(7), 1.0),
            Duration::from_secs(8)
        );
    }
}
