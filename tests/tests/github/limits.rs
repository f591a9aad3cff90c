//! Limits in each of their forms become a wait, and nothing is lost by them.

use std::time::Duration;

use nabu_hub::forge::ForgeError;
use nabu_tests::test_forge::faults::{Effect, Fault, Limit};

use crate::bed::{Bed, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_limit_is_waited_for_as_long_as_it_says() {
    let minute = Duration::from_mins(1);
    for (limit, least, most) in [
        (
            Limit::Primary {
                status: 403,
                reset: 30 * minute,
            },
            29 * minute,
            31 * minute,
        ),
        (
            Limit::Primary {
                status: 429,
                reset: 30 * minute,
            },
            29 * minute,
            31 * minute,
        ),
        (
            Limit::PrimaryInGraphql { reset: 20 * minute },
            19 * minute,
            21 * minute,
        ),
        (
            Limit::Secondary {
                status: 403,
                retry_after: Some(2 * minute),
            },
            2 * minute,
            2 * minute,
        ),
        (
            Limit::Secondary {
                status: 429,
                retry_after: Some(2 * minute),
            },
            2 * minute,
            2 * minute,
        ),
        (
            Limit::Secondary {
                status: 403,
                retry_after: None,
            },
            minute,
            minute,
        ),
        (
            Limit::Secondary {
                status: 429,
                retry_after: None,
            },
            minute,
            minute,
        ),
    ] {
        for number in [1, 2] {
            let bed = Bed::new().await;
            let intent = bed.intent("u-1", &REVOKE);
            bed.github
                .fault(Fault::new(Effect::Limit(limit)).at(number));
            let (made, _) = bed.make(&intent).await;
            let Err(ForgeError::RateLimited {
                retry_after,
                detail,
            }) = made
            else {
                panic!("{limit:?} at {number}: {made:?}");
            };
            assert!(
                (least..=most).contains(&retry_after),
                "{limit:?} at {number}: {retry_after:?}, {detail}"
            );
            bed.pull(&intent).await;
            assert_eq!(bed.repository.pulls().unwrap().len(), 1);
        }
    }
}
