//! What each of many may have at one time, counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts what each has; clones share the counts.
#[derive(Debug)]
pub(super) struct Shares<K> {
    each: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K> Clone for Shares<K> {
    fn clone(&self) -> Self {
        Self {
            each: self.each,
            taken: Arc::clone(&self.taken),
        }
    }
}

impl<K: Clone + Eq + Hash> Shares<K> {
    /// So many for each.
    pub(super) fn new(each: usize) -> Self {
        Self {
            each,
            taken: Arc::default(),
        }
    }

    /// One for this; `None` if it has its share already.
    pub(super) fn take(&self, key: K) -> Option<Share<K>> {
        let mut taken = lock(&self.taken);
        let here = taken.entry(key.clone()).or_default();
        if *here >= self.each {
            return None;
        }
        *here += 1;
        Some(Share {
            taken: Arc::clone(&self.taken),
            key,
        })
    }
}

/// One of somebody's share; it comes back when this goes.
#[derive(Debug)]
pub(super) struct Share<K: Eq + Hash> {
    taken: Arc<Mutex<HashMap<K, usize>>>,
    key: K,
}

impl<K: Eq + Hash> Drop for Share<K> {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(here) = taken.get_mut(&self.key) {
            *here -= 1;
            if *here == 0 {
                taken.remove(&self.key);
            }
        }
    }
}

fn lock<K>(taken: &Mutex<HashMap<K, usize>>) -> MutexGuard<'_, HashMap<K, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_share_again_when_it_gives_back_and_nothing_is_remembered() {
        let shares = Shares::new(2);
        let one = shares.take("a");
        let two = shares.take("a");
        assert!(one.is_some() && two.is_some() && shares.take("a").is_none());
        assert!(shares.take("b").is_some());
        drop(one);
        assert!(shares.take("a").is_some());
        drop(two);
        assert!(lock(&shares.taken).is_empty());
    }
}
