//! People merge just while the hub is at work: at each request of it once, so also between its look and its commit.

use nabu_hub::change::Intent;
use nabu_hub::forge::{Amended, Amending, ForgeError, Made, PullRequestState, Shared};
use nabu_hub::group::Group;
use nabu_tests::fault_proxy::{Fault, FaultProxy};
use nabu_tests::intents::make_again;

use crate::bed::Bed;
use crate::forges::Server;

/// A stop before the n-th request, and a way to the forge that has it.
async fn stop_at(bed: &Bed<impl Server>, number: u32, intent: &mut Intent) -> FaultProxy {
    let proxy = FaultProxy::start(&bed.server.url()).await.unwrap();
    intent.target = bed.target_through(&proxy);
    proxy.add(Fault::HoldBefore(number));
    proxy
}

/// Lets people merge while the work is stopped; `None` if the work ended before it came to that.
async fn merged_meanwhile<T>(
    bed: &Bed<impl Server>,
    proxy: &FaultProxy,
    pull: u64,
    work: impl Future<Output = T>,
) -> Option<T> {
    tokio::pin!(work);
    tokio::select! {
        biased;
        _ = &mut work => return None,
        reached = proxy.reached() => reached.unwrap(),
    }
    bed.server.merge(pull).await;
    proxy.release();
    Some(work.await)
}

/// Fails if an update counts that did not get merged; says whether it counts.
fn counts(
    bed: &Bed<impl Server>,
    path: &str,
    result: &Result<Option<Amended>, ForgeError>,
) -> bool {
    match result {
        Ok(Some(Amended::Updated { .. })) => {
            assert_eq!(bed.file("main", path).as_deref(), Some("x: 2\n"));
            true
        }
        Ok(Some(Amended::Ended(ended))) => {
            assert_eq!(ended.pull.state, PullRequestState::Merged);
            false
        }
        Ok(None) => panic!("the pull request is not found"),
        Err(_) => false,
    }
}

pub(crate) async fn a_merge_at_any_moment_of_an_update_counts_nothing_that_is_not_merged(
    bed: Bed<impl Server>,
) {
    for number in 1..50 {
        let (uid, pull) = (format!("u-{number}"), u64::from(number));
        let path = format!("new/{uid}.yaml");
        let one = bed.intent(&uid, &[(&path, Some("x: 1\n"))]);
        let (opened, _) = bed.pull(&one).await;
        let mut two = bed.intent(&uid, &[(&path, Some("x: 2\n"))]);
        let proxy = stop_at(&bed, number, &mut two).await;
        let leftovers = [path.clone()];
        let wish = Amending {
            number: pull,
            commit: opened.commit.as_deref(),
            leftovers: &leftovers,
            again: false,
        };
        let work = bed.hub.amend(&two, &wish);
        let Some((result, _)) = merged_meanwhile(&bed, &proxy, pull, work).await else {
            assert!(number > 2, "it was never stopped where it writes");
            return;
        };
        counts(&bed, &path, &result);
        let again = Amending {
            again: true,
            ..wish
        };
        let (result, _) = bed.other_hub().amend(&two, &again).await;
        counts(&bed, &path, &result);
        assert!(
            result.is_ok(),
            "stopped at {number}, it is clear afterwards: {result:?}"
        );
        let pulls = bed.server.pulls().await;
        assert_eq!(pulls.len() as u64, pull, "no other was opened");
        assert_eq!(pulls.last().unwrap().state, PullRequestState::Merged);
    }
    panic!("an update takes no fifty requests");
}

/// A member of a group that writes a file of its own.
fn member(bed: &Bed<impl Server>, group: u32, uid: &str) -> Intent {
    let path = format!("new/{uid}.yaml");
    let group = Group {
        branch: format!("nabu/prod-eu/group-{group}"),
        title: "Changes in prod-eu".to_owned(),
        introduction: "Each commit is the change of one EventResponse.".to_owned(),
        max_responses: 20,
    };
    Intent {
        group: Some(group),
        ..bed.intent(uid, &[(&path, Some("x: 1\n"))])
    }
}

pub(crate) async fn a_merge_at_any_moment_of_joining_a_group_loses_nothing(bed: Bed<impl Server>) {
    for number in 1..50 {
        let (first, second) = (format!("a-{number}"), format!("b-{number}"));
        let (made, _) = bed.hub.make(&member(&bed, number, &first)).await;
        assert!(matches!(made, Ok(Made::Shared(_))), "{made:?}");
        let before = bed.server.pulls().await.len();
        let mut joins = member(&bed, number, &second);
        let proxy = stop_at(&bed, number, &mut joins).await;
        let work = bed.hub.make(&joins);
        let pull = u64::try_from(before).unwrap();
        let Some((mut made, _)) = merged_meanwhile(&bed, &proxy, pull, work).await else {
            assert!(number > 2, "it was never stopped where it writes");
            return;
        };
        for _ in 0..3 {
            if made.is_err() {
                made = make_again(&bed.other_hub().forges, &joins).await.0;
            }
        }
        let path = format!("new/{second}.yaml");
        let on_main = bed.file("main", &path);
        let url = match made {
            Ok(Made::Shared(Shared { pull, .. })) => {
                assert!(on_main.is_some(), "it was not merged with the others");
                pull.url
            }
            Ok(Made::PullRequest(own)) => {
                assert_eq!((own.state, on_main), (PullRequestState::Open, None));
                assert!(bed.file(&joins.branch, &path).is_some());
                own.url
            }
            other => panic!("stopped at {number}: {other:?}"),
        };
        let (again, _) = make_again(&bed.other_hub().forges, &joins).await;
        let Ok(Made::Shared(Shared { pull, .. }) | Made::PullRequest(pull)) = again else {
            panic!("stopped at {number}: {again:?}")
        };
        assert_eq!(pull.url, url);
        let own = usize::from(bed.branches().contains(&joins.branch));
        assert_eq!(bed.server.pulls().await.len(), before + own);
    }
    panic!("joining takes no fifty requests");
}
