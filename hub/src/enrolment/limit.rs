//! Bounds how often one source may fail: a budget of failures that fills again with time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use nabu_common::tls::network;

/// So many failures are free.
const BURST: u32 = 10;
/// After that, one more each time this has passed.
const REFILL: Duration = Duration::from_secs(6);
/// Sources that are remembered at one time.
const SOURCES: usize = 4096;

/// The failures of each source.
#[derive(Debug, Default)]
pub struct FailureLimit {
    sources: HashMap<IpAddr, Spent>,
}

/// How much of its budget a source has spent, and when that was true.
#[derive(Clone, Copy, Debug)]
struct Spent {
    failures: f64,
    at: Instant,
}

impl Spent {
    fn now(self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.failures - passed / REFILL.as_secs_f64()).max(0.0)
    }
}

impl FailureLimit {
    /// Takes one failure out of the budget of a source, in advance; `false` if nothing is left.
    pub fn take(&mut self, source: IpAddr, now: Instant) -> bool {
        let source = network(source);
        let spent = self
            .sources
            .get(&source)
            .map_or(0.0, |spent| spent.now(now));
        if spent + 1.0 > f64::from(BURST) {
            return false;
        }
        if self.sources.len() >= SOURCES && !self.sources.contains_key(&source) {
            self.make_room(now);
        }
        let failures = spent + 1.0;
        self.sources.insert(source, Spent { failures, at: now });
        true
    }

    /// It was no failure.
    pub fn give_back(&mut self, source: IpAddr) {
        if let Some(spent) = self.sources.get_mut(&network(source)) {
            spent.failures = (spent.failures - 1.0).max(0.0);
        }
    }

    /// Forgets who has its whole budget again, or else who has failed least lately.
    fn make_room(&mut self, now: Instant) {
        self.sources.retain(|_, spent| spent.now(now) > 0.0);
        if self.sources.len() < SOURCES {
            return;
        }
        let least = self
            .sources
            .iter()
            .min_by(|a, b| a.1.now(now).total_cmp(&b.1.now(now)))
            .map(|(source, _)| *source);
        if let Some(least) = least {
            self.sources.remove(&least);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_source_that_fails_too_often_waits_and_others_do_not() {
        let (mut limit, now) = (FailureLimit::default(), Instant::now());
        let evil = source("192.0.2.1");
        assert_eq!((0..10_000).filter(|_| limit.take(evil, now)).count(), 10);
        assert!(limit.take(source("192.0.2.2"), now));
        assert!(!limit.take(evil, now + REFILL / 2));
        assert!(limit.take(evil, now + REFILL));
        assert!(!limit.take(evil, now + REFILL));
    }

    #[test]
    fn success_costs_nothing() {
        let (mut limit, now) = (FailureLimit::default(), Instant::now());
        for _ in 0..100 {
            assert!(limit.take(source("192.0.2.1"), now));
            limit.give_back(source("192.0.2.1"));
        }
    }

    #[test]
    fn a_network_of_ipv6_is_one_source() {
        let (mut limit, now) = (FailureLimit::default(), Instant::now());
        let taken = (0..100).filter(|host| limit.take(source(&format!("2001:db8::{host:x}")), now));
        assert_eq!(taken.count(), 10);
        assert!(limit.take(source("2001:db8:0:1::1"), now));
        // An IPv4 address in IPv6's clothes is the IPv4 address.
        for _ in 0..10 {
            limit.take(source("192.0.2.9"), now);
        }
        assert!(!limit.take(source("::ffff:192.0.2.9"), now));
    }

    #[test]
    fn memory_is_bounded_and_the_worst_are_remembered() {
        let (mut limit, now) = (FailureLimit::default(), Instant::now());
        let evil = source("192.0.2.1");
        while limit.take(evil, now) {}
        for number in 0..20_000_u32 {
            limit.take(IpAddr::from((0x0a00_0000 + number).to_be_bytes()), now);
        }
        assert!(limit.sources.len() <= SOURCES);
        assert!(!limit.take(evil, now));
    }
}
