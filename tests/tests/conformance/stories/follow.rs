//! What became of pull requests after they were opened.

use nabu_hub::change::Intent;
use nabu_hub::forge::{Job, ObservedPull, PullRequestState};
use nabu_tests::intents::key;

use crate::bed::Bed;
use crate::forges::Server;

async fn observe(bed: &Bed<impl Server>, intent: &Intent, numbers: &[u64]) -> Vec<ObservedPull> {
    let key = key("u-1");
    let job = Job::new(&key, intent);
    let forge = bed.hub.forges.get(&intent.target).unwrap();
    let mut observed = forge.observe(&job, numbers).await.unwrap();
    observed.sort_by_key(|pull| pull.number);
    observed
}

pub(crate) async fn what_became_of_pull_requests_is_seen(bed: Bed<impl Server>) {
    let mut intents = Vec::new();
    for uid in ["u-1", "u-2", "u-3"] {
        let intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        bed.pull(&intent).await;
        intents.push(intent);
    }
    bed.server.merge(1).await;
    bed.server.close(2).await;

    let observed = observe(&bed, &intents[0], &[1, 2, 3, 99]).await;

    let states: Vec<_> = observed
        .iter()
        .map(|pull| (pull.number, pull.state))
        .collect();
    let expected = [
        (1, PullRequestState::Merged),
        (2, PullRequestState::Closed),
        (3, PullRequestState::Open),
    ];
    assert_eq!(states, expected, "one that does not exist is left out");
    let merged = bed.tip("main").oid;
    assert_eq!(observed[0].merge_commit.as_ref(), Some(&merged));
    let others = observed[1..].iter();
    assert!(others.clone().all(|pull| pull.merge_commit.is_none()));
    let ended: Vec<bool> = observed
        .iter()
        .map(|pull| pull.ended_at.is_some())
        .collect();
    assert_eq!(ended, [true, true, false]);
    assert_eq!(observe(&bed, &intents[0], &[1]).await, observed[..1]);
}

pub(crate) async fn the_branch_of_a_merged_one_goes_unless_somebody_has_put_something_on_it(
    bed: Bed<impl Server>,
) {
    let mut intents = Vec::new();
    for uid in ["u-1", "u-2", "u-3"] {
        let mut intent = bed.intent(uid, &[(&format!("{uid}.yaml"), Some("x\n"))]);
        intent.options.delete_branch_after_merge = true;
        bed.pull(&intent).await;
        intents.push(intent);
    }
    let touched = &intents[1].branch;
    let ours = bed.tip(touched).oid;
    bed.server.merge(1).await;
    bed.server.merge(2).await;
    // Where the forge has removed the branch, it is pushed again.
    bed.server.push(touched, &ours).await;
    bed.add_file(touched, "mine.txt", "mine\n").await;

    for (intent, number) in intents.iter().zip(1..) {
        let key = key(&format!("u-{number}"));
        let job = Job::new(&key, intent);
        let forge = bed.hub.forges.get(&intent.target).unwrap();
        for _ in 0..2 {
            forge.remove_branch(&job, number).await.unwrap();
        }
    }
    let branches = bed.branches();
    assert!(!branches.contains(&intents[0].branch), "{branches:?}");
    assert!(branches.contains(touched), "{branches:?}");
    assert!(branches.contains(&intents[2].branch), "it is not merged");
}
