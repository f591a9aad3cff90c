//! Bounds how many lines of the audit log strangers can make: from so many addresses as they may have, all together.

use std::time::{Duration, Instant};

/// So many refusals are written one by one.
const BURST: u32 = 100;
/// After that, one more each time this has passed.
const REFILL: Duration = Duration::from_secs(6);

/// What was written lately, and what was not.
#[derive(Debug, Default)]
pub struct AuditBudget {
    spent: f64,
    at: Option<Instant>,
    unwritten: u64,
}

impl AuditBudget {
    /// Takes a refusal: how many before it were not written, if this one is to be; `None` if it is not.
    pub fn refusal(&mut self, now: Instant) -> Option<u64> {
        let passed = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        let spent = (self.spent - passed.as_secs_f64() / REFILL.as_secs_f64()).max(0.0);
        if spent + 1.0 > f64::from(BURST) {
            self.spent = spent;
            self.unwritten += 1;
            return None;
        }
        self.spent = spent + 1.0;
        Some(std::mem::take(&mut self.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_refusals_are_written_then_one_now_and_then_with_the_number_of_the_others() {
        let (mut budget, now) = (AuditBudget::default(), Instant::now());
        let written = (0..10_000).filter(|_| budget.refusal(now) == Some(0));
        assert_eq!(written.count(), 100);
        assert_eq!(budget.refusal(now + REFILL / 2), None);
        assert_eq!(budget.refusal(now + REFILL), Some(9901));
        assert_eq!(budget.refusal(now + REFILL), None);
        let later = now + REFILL * 300;
        assert_eq!(budget.refusal(later), Some(1));
        assert_eq!(budget.refusal(later), Some(0));
    }
}
