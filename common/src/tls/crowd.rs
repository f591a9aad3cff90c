//! Peers that have not shown who they are yet: how many there may be, and who gives way to whom.
//!
//! Whoever is honest is through within a second, whatever the machine has to do. So nobody who takes longer holds up
//! another: when there is no room, one that has stood there for longer gives way, the oldest from the address with the most of
//! them. A newcomer from an address with its share taken, of which nobody has stood there so long, is refused.
//!
//! Nor do a few addresses hold up the rest: when all are within their second, the address with the most gives way to one that
//! has fewer even then. Else others wait in the kernel's queue.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use super::refusals::Refusal;
use super::strangers::network;

/// So long nobody has to give way.
const GRACE: Duration = Duration::from_secs(1);

/// Those that were told to go may need a moment; more than so many are waited for.
pub(super) const LEAVING: usize = 32;

/// How many there may be.
#[derive(Clone, Copy, Debug)]
pub struct CrowdLimits {
    /// At one time.
    pub all: usize,
    /// At one time from one IPv4 address, or one IPv6 network of 64 bits. If one may have more than there are in all,
    /// addresses are not told apart.
    pub from_one_address: usize,
}

/// What becomes of a newcomer.
#[derive(Debug)]
enum Entry<T> {
    /// It has a place; the one that had it before goes.
    Enters { id: u64, gives_way: Option<T> },
    /// Its address has its share.
    Refused,
    /// There is no room before then, unless somebody leaves.
    Waits { until: Instant },
}

/// Who is there. `T` is how to tell one to go.
#[derive(Debug)]
struct Crowd<T> {
    limits: CrowdLimits,
    /// By arrival.
    present: BTreeMap<u64, Present<T>>,
    by_network: HashMap<IpAddr, BTreeSet<u64>>,
    next: u64,
}

#[derive(Debug)]
struct Present<T> {
    network: IpAddr,
    since: Instant,
    tell: T,
}

impl<T> Crowd<T> {
    fn new(limits: CrowdLimits) -> Self {
        Self {
            limits,
            present: BTreeMap::new(),
            by_network: HashMap::new(),
            next: 0,
        }
    }

    /// Decides on a newcomer, and lets it in if it may.
    fn enter(&mut self, address: IpAddr, now: Instant, tell: T) -> Entry<T> {
        let network = network(address);
        let patience = |id: u64| self.present.get(&id).map(|one| one.since + GRACE);
        let beside = self.by_network.get(&network);
        let mut gives_way = None;
        if let Some(beside) = beside.filter(|one| one.len() >= self.limits.from_one_address) {
            gives_way = beside.first().copied();
            if gives_way
                .and_then(patience)
                .is_some_and(|until| until > now)
            {
                return Entry::Refused;
            }
        } else if self.present.len() >= self.limits.all {
            // Whoever has had its time goes before anybody who has not.
            let here = beside.map_or(0, BTreeSet::len);
            let waited = |id: u64| patience(id).is_some_and(|until| until <= now);
            gives_way = self.of_the_largest(1, waited);
            if gives_way.is_none() && self.limits.from_one_address <= self.limits.all {
                gives_way = self.of_the_largest(here + 2, |_| true);
            }
            if gives_way.is_none()
                && let Some(until) = self.present.keys().next().copied().and_then(patience)
            {
                return Entry::Waits { until };
            }
        }
        let gives_way = gives_way.and_then(|id| self.leave(id));
        let id = self.next;
        self.next += 1;
        self.by_network.entry(network).or_default().insert(id);
        let since = now;
        let newcomer = Present {
            network,
            since,
            tell,
        };
        self.present.insert(id, newcomer);
        Entry::Enters { id, gives_way }
    }

    /// The oldest from the address with the most, of addresses that have `least` or more and whose oldest `may` go.
    fn of_the_largest(&self, least: usize, may: impl Fn(u64) -> bool) -> Option<u64> {
        self.by_network
            .values()
            .filter(|those| those.len() >= least)
            .filter_map(|those| Some((those.len(), *those.first()?)))
            .filter(|(_, oldest)| may(*oldest))
            .max_by_key(|(count, oldest)| (*count, Reverse(*oldest)))
            .map(|(_, oldest)| oldest)
    }

    /// Frees a place; gives how its owner can be told, if it was still there.
    fn leave(&mut self, id: u64) -> Option<T> {
        let Present { network, tell, .. } = self.present.remove(&id)?;
        if let Some(beside) = self.by_network.get_mut(&network) {
            beside.remove(&id);
            if beside.is_empty() {
                self.by_network.remove(&network);
            }
        }
        Some(tell)
    }
}

/// The place in front of a door; clones share it.
#[derive(Clone, Debug)]
pub struct Doorway {
    crowd: Arc<Mutex<Crowd<CancellationToken>>>,
    freed: Arc<Notify>,
    /// One for each that is there or has not left yet.
    bodies: Arc<Semaphore>,
}

impl Doorway {
    /// An empty one.
    pub fn new(limits: CrowdLimits) -> Self {
        Self {
            crowd: Arc::new(Mutex::new(Crowd::new(limits))),
            freed: Arc::default(),
            bodies: Arc::new(Semaphore::new(limits.all + LEAVING)),
        }
    }

    /// Waits for a place; `None` if the address has its share already.
    pub async fn enter(&self, address: IpAddr) -> Option<Standing> {
        let told = CancellationToken::new();
        loop {
            let entry = self.crowd().enter(address, Instant::now(), told.clone());
            match entry {
                Entry::Enters { id, gives_way } => {
                    if let Some(other) = gives_way {
                        other.cancel();
                    }
                    let doorway = self.clone();
                    let body = Arc::clone(&self.bodies).acquire_owned().await.ok()?;
                    return Some(Standing {
                        doorway,
                        id,
                        told,
                        _body: body,
                    });
                }
                Entry::Refused => return None,
                Entry::Waits { until } => {
                    let _ = tokio::time::timeout_at(until, self.freed.notified()).await;
                }
            }
        }
    }

    /// Takes a place now.
    ///
    /// # Errors
    /// If there is none.
    pub(super) fn enter_now(&self, address: IpAddr) -> Result<Standing, Refusal> {
        let body = Arc::clone(&self.bodies).try_acquire_owned();
        let body = body.map_err(|_| Refusal::NoRoom)?;
        let told = CancellationToken::new();
        let entry = self.crowd().enter(address, Instant::now(), told.clone());
        match entry {
            Entry::Enters { id, gives_way } => {
                if let Some(other) = gives_way {
                    other.cancel();
                }
                Ok(Standing {
                    doorway: self.clone(),
                    id,
                    told,
                    _body: body,
                })
            }
            Entry::Refused => Err(Refusal::AddressShare),
            Entry::Waits { .. } => Err(Refusal::NoRoom),
        }
    }

    fn crowd(&self) -> MutexGuard<'_, Crowd<CancellationToken>> {
        self.crowd.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Somebody's place; it is free when this goes.
#[derive(Debug)]
pub struct Standing {
    doorway: Doorway,
    id: u64,
    told: CancellationToken,
    _body: OwnedSemaphorePermit,
}

impl Standing {
    /// Waits until this one has to give way to others.
    pub async fn gives_way(&self) {
        self.told.cancelled().await;
    }

    /// The same for somebody who polls.
    pub(super) fn giving_way(&self) -> Pin<Box<WaitForCancellationFutureOwned>> {
        Box::pin(self.told.clone().cancelled_owned())
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        if self.doorway.crowd().leave(self.id).is_some() {
            self.doorway.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: CrowdLimits = CrowdLimits {
        all: 100,
        from_one_address: 10,
    };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn other(number: u32) -> IpAddr {
        IpAddr::from((0x0a00_0000 + number).to_be_bytes())
    }

    /// Who is told to go by each newcomer, of those that get a place.
    fn enter(crowd: &mut Crowd<u64>, address: IpAddr, now: Instant) -> Result<Option<u64>, String> {
        let tell = crowd.next;
        match crowd.enter(address, now, tell) {
            Entry::Enters { id, gives_way } => {
                assert_eq!(id, tell);
                Ok(gives_way)
            }
            Entry::Refused => Err("refused".to_owned()),
            Entry::Waits { until } => Err(format!("waits {:?}", until - now)),
        }
    }

    #[test]
    fn an_address_has_its_share_and_takes_nothing_from_others() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        let evil = address("192.0.2.1");
        let entered = (0..10_000).filter(|_| enter(&mut crowd, evil, now).is_ok());
        assert_eq!(entered.count(), 10);
        assert_eq!(enter(&mut crowd, address("192.0.2.2"), now), Ok(None));
    }

    #[test]
    fn whoever_stands_there_longest_gives_way_to_a_newcomer_of_the_same_address() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        let shared = address("192.0.2.1");
        for _ in 0..10 {
            assert_eq!(enter(&mut crowd, shared, now), Ok(None));
        }
        let later = now + GRACE;
        assert_eq!(
            enter(&mut crowd, shared, later - Duration::from_millis(1)),
            Err("refused".to_owned())
        );
        assert_eq!(enter(&mut crowd, shared, later), Ok(Some(0)));
        assert_eq!(enter(&mut crowd, shared, later), Ok(Some(1)));
        assert_eq!(crowd.present.len(), 10);
    }

    #[test]
    fn when_there_is_no_room_at_all_the_oldest_of_anybody_gives_way_after_its_second() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        for number in 0..100 {
            assert_eq!(enter(&mut crowd, other(number), now), Ok(None));
        }
        let half = now + GRACE / 2;
        assert_eq!(
            enter(&mut crowd, other(1000), half),
            Err("waits 500ms".to_owned())
        );
        assert_eq!(enter(&mut crowd, other(1000), now + GRACE), Ok(Some(0)));
        crowd.leave(50);
        assert_eq!(enter(&mut crowd, other(1001), half), Ok(None));
    }

    #[test]
    fn many_addresses_with_one_each_that_had_their_time_take_nothing_from_one_that_comes_with_many()
    {
        let limits = CrowdLimits {
            all: 8,
            from_one_address: 8,
        };
        let (mut crowd, start) = (Crowd::new(limits), Instant::now());
        for number in 0..6 {
            assert_eq!(enter(&mut crowd, other(number), start), Ok(None));
        }
        // A fleet behind one address.
        let (fleet, later) = (address("192.0.2.1"), start + GRACE);
        for _ in 0..2 {
            assert_eq!(enter(&mut crowd, fleet, later), Ok(None));
        }
        assert_eq!(enter(&mut crowd, other(50), later), Ok(Some(0)));
        assert_eq!(enter(&mut crowd, fleet, later), Ok(Some(1)));
    }

    #[test]
    fn a_few_addresses_that_have_everything_make_room_for_one_with_less_at_once() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        for number in 0..100 {
            assert_eq!(enter(&mut crowd, other(number % 10), now), Ok(None));
        }
        // The oldest of those with the most, as long as that makes it fairer.
        let newcomer = address("192.0.2.1");
        let gone = (0..9).map(|_| enter(&mut crowd, newcomer, now));
        assert_eq!(
            gone.collect::<Vec<_>>(),
            (0..9).map(|id| Ok(Some(id))).collect::<Vec<_>>()
        );
        assert_eq!(
            enter(&mut crowd, newcomer, now),
            Err("waits 1s".to_owned()),
            "it has as many as they have"
        );
        assert_eq!(enter(&mut crowd, other(1), now), Err("waits 1s".to_owned()));
        assert_eq!(crowd.present.len(), 100);
    }

    #[test]
    fn addresses_that_are_not_told_apart_take_nothing_from_each_other() {
        let limits = CrowdLimits {
            all: 10,
            from_one_address: 11,
        };
        let (mut crowd, now) = (Crowd::new(limits), Instant::now());
        for _ in 0..10 {
            assert_eq!(enter(&mut crowd, other(1), now), Ok(None));
        }
        assert_eq!(enter(&mut crowd, other(2), now), Err("waits 1s".to_owned()));
        assert_eq!(enter(&mut crowd, other(2), now + GRACE), Ok(Some(0)));
    }

    #[test]
    fn a_network_of_ipv6_is_one_address_and_ipv4_in_its_clothes_is_itself() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        let hosts = (0..100).map(|host| address(&format!("2001:db8::{host:x}")));
        let entered = hosts.filter(|host| enter(&mut crowd, *host, now).is_ok());
        assert_eq!(entered.count(), 10);
        assert!(enter(&mut crowd, address("2001:db8:0:1::1"), now).is_ok());
        for _ in 0..10 {
            assert!(enter(&mut crowd, address("192.0.2.9"), now).is_ok());
        }
        assert!(enter(&mut crowd, address("::ffff:192.0.2.9"), now).is_err());
    }

    #[test]
    fn nothing_is_remembered_of_those_who_left() {
        let (mut crowd, now) = (Crowd::new(LIMITS), Instant::now());
        for number in 0..50 {
            enter(&mut crowd, other(number), now).unwrap();
        }
        for id in 0..50 {
            assert_eq!(crowd.leave(id), Some(id));
            assert_eq!(crowd.leave(id), None);
        }
        assert!(crowd.present.is_empty() && crowd.by_network.is_empty());
    }

    #[tokio::test]
    async fn a_newcomer_waits_for_whoever_leaves_first_or_has_to() {
        let doorway = Doorway::new(CrowdLimits {
            all: 2,
            from_one_address: 2,
        });
        let one = doorway.enter(other(1)).await.unwrap();
        let two = doorway.enter(other(2)).await.unwrap();
        let leaving = async {
            tokio::task::yield_now().await;
            drop(two);
        };
        let (three, ()) = tokio::join!(doorway.enter(other(3)), leaving);
        assert!(!one.told.is_cancelled(), "there was room by itself");
        let four = doorway.enter(other(4)).await.unwrap();
        one.gives_way().await;
        drop((one, three, four));
        assert!(doorway.crowd().present.is_empty());
    }
}
