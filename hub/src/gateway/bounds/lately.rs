//! What was written down a moment ago, so that an agent that comes again and again leaves no line each time.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nabu_common::ids::ClusterId;

/// A refused session of a cluster is a line of the audit log, at most so often.
const REFUSED_SESSION: Duration = Duration::from_secs(10);

/// Which clusters were refused a session lately.
#[derive(Debug, Default)]
pub(in crate::gateway) struct RefusedLately(Mutex<HashMap<(ClusterId, String), Instant>>);

impl RefusedLately {
    /// Whether the audit log should have a line of it. Bounded by the certificates that there are.
    pub(in crate::gateway) fn is_news(
        &self,
        cluster: &ClusterId,
        action: &str,
        now: Instant,
    ) -> bool {
        let key = (cluster.clone(), action.to_owned());
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.retain(|_, at| now.saturating_duration_since(*at) < REFUSED_SESSION);
        if told.contains_key(&key) {
            return false;
        }
        told.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_is_refused_again_and_again_is_written_down_now_and_then() {
        let (lately, now) = (RefusedLately::default(), Instant::now());
        let (one, other) = ("prod-eu".parse().unwrap(), "prod-us".parse().unwrap());
        assert!(lately.is_news(&one, "a", now));
        assert!(!lately.is_news(&one, "a", now));
        assert!(lately.is_news(&one, "b", now));
        assert!(lately.is_news(&other, "a", now));
        assert!(lately.is_news(&one, "a", now + REFUSED_SESSION));
    }
}
