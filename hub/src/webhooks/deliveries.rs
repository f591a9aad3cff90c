//! Which deliveries were taken already, so that a repeated one is not taken twice: bounded in number and age.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use http::HeaderMap;

use super::ForgeKind;

/// More are not remembered; the oldest goes.
const MOST: usize = 10_000;
/// For how long one is remembered. More than twice the tolerance of a signed timestamp
/// ([`super::signature::TOLERANCE`]), so that what has one cannot be repeated at all.
const AGE: Duration = Duration::from_hours(1);
/// A longer id is no id: forges send UUIDs.
const LONGEST: usize = 128;

/// The id of one delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Delivery {
    forge: ForgeKind,
    id: String,
}

impl Delivery {
    /// The id that a forge gave a delivery, if it did.
    ///
    /// GitLab's `X-Gitlab-Event-UUID` is not one: all events that one request to GitLab causes share it, and so do all
    /// webhooks that a webhook causes (`lib/gitlab/web_hooks/recursion_detection/uuid.rb`). `Idempotency-Key` is, and
    /// `webhook-id` has the same value.
    pub(super) fn from_headers(forge: ForgeKind, headers: &HeaderMap) -> Option<Self> {
        let names: &[&str] = match forge {
            ForgeKind::GitHub => &["x-github-delivery"],
            ForgeKind::GitLab => &["webhook-id", "idempotency-key"],
            ForgeKind::Forgejo => &["x-forgejo-delivery", "x-gitea-delivery"],
        };
        let id = names.iter().find_map(|name| headers.get(*name))?;
        let id = id.to_str().ok()?;
        (1..=LONGEST).contains(&id.len()).then(|| Self {
            forge,
            id: id.to_owned(),
        })
    }
}

/// The deliveries that were taken lately.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    known: HashSet<Delivery>,
    oldest_first: VecDeque<(Instant, Delivery)>,
}

impl Deliveries {
    /// Remembers a delivery; `false` if it was known.
    pub(super) fn insert(&mut self, delivery: Delivery, now: Instant) -> bool {
        while self
            .oldest_first
            .front()
            .is_some_and(|(at, _)| now.saturating_duration_since(*at) >= AGE)
        {
            self.forget_oldest();
        }
        if !self.known.insert(delivery.clone()) {
            return false;
        }
        self.oldest_first.push_back((now, delivery));
        if self.oldest_first.len() > MOST {
            self.forget_oldest();
        }
        true
    }

    fn forget_oldest(&mut self) {
        if let Some((_, delivery)) = self.oldest_first.pop_front() {
            self.known.remove(&delivery);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delivery(forge: ForgeKind, id: &impl ToString) -> Delivery {
        Delivery {
            forge,
            id: id.to_string(),
        }
    }

    #[test]
    fn a_delivery_is_new_once_until_its_age_is_over() {
        let mut deliveries = Deliveries::default();
        let start = Instant::now();
        let one = delivery(ForgeKind::GitHub, &1);
        assert!(deliveries.insert(one.clone(), start));
        assert!(!deliveries.insert(one.clone(), start + AGE / 2));
        assert!(
            deliveries.insert(delivery(ForgeKind::GitLab, &1), start),
            "forges count for themselves"
        );
        assert!(deliveries.insert(one, start + AGE));
    }

    #[test]
    fn the_oldest_delivery_makes_room_for_one_too_many() {
        let mut deliveries = Deliveries::default();
        let now = Instant::now();
        for id in 0..=MOST {
            assert!(deliveries.insert(delivery(ForgeKind::GitHub, &id), now));
        }
        assert_eq!(
            (deliveries.known.len(), deliveries.oldest_first.len()),
            (MOST, MOST)
        );
        assert!(!deliveries.insert(delivery(ForgeKind::GitHub, &MOST), now));
        assert!(deliveries.insert(delivery(ForgeKind::GitHub, &0), now));
    }

    #[test]
    fn an_id_of_unreasonable_length_or_of_other_bytes_is_no_id() {
        let id = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-github-delivery", value.try_into().unwrap());
            Delivery::from_headers(ForgeKind::GitHub, &headers)
        };
        assert!(id(b"72d3162e-cc78-11e3-81ab-4c9367dc0958").is_some());
        for value in [&b""[..], &[b'x'; LONGEST + 1], b"\xff"] {
            assert!(id(value).is_none());
        }
    }

    #[test]
    fn the_id_of_a_request_to_gitlab_is_not_taken_for_that_of_a_delivery() {
        let mut headers = HeaderMap::new();
        headers.insert("x-gitlab-event-uuid", "a".try_into().unwrap());
        assert_eq!(Delivery::from_headers(ForgeKind::GitLab, &headers), None);
        headers.insert("idempotency-key", "b".try_into().unwrap());
        assert!(Delivery::from_headers(ForgeKind::GitLab, &headers).is_some());
    }
}
