//! Whatever request of whichever member is cut, each member ends with one commit in the one pull request.

use nabu_tests::fault_proxy::Fault;

use crate::on_every_forge;
use crate::stage::Stage;

on_every_forge!(
    a_first_member_that_is_cut_anywhere_ends_in_the_one_pull_request,
    a_later_member_that_is_cut_anywhere_ends_in_the_one_pull_request,
);

type Make = fn(u32) -> Fault;

const FAULTS: [Make; 3] = [Fault::CutBefore, Fault::CutAfter, |number| {
    Fault::AnswerAfter(number, 502)
}];

async fn a_first_member_that_is_cut_anywhere_ends_in_the_one_pull_request(stage: &mut Stage) {
    for number in 1..=stage.first {
        for (kind, fault) in FAULTS.into_iter().enumerate() {
            round(stage, &format!("{number}-{kind}"), &[], fault, number).await;
        }
    }
}

async fn a_later_member_that_is_cut_anywhere_ends_in_the_one_pull_request(stage: &mut Stage) {
    for number in 1..=stage.later {
        for (kind, fault) in FAULTS.into_iter().enumerate() {
            round(stage, &format!("{number}-{kind}"), &["a"], fault, number).await;
        }
    }
}

/// In a group of its own, `before` are made undisturbed; then the fault meets the n-th request of one more.
async fn round(stage: &mut Stage, name: &str, before: &[&str], fault: Make, number: u32) {
    let branch = format!("nabu/prod-eu/group-{name}");
    stage.use_branch(&branch);
    for uid in before {
        stage.share(&stage.writer(&format!("{uid}-{name}"))).await;
    }
    let fault = fault(stage.proxy.requests() + number);
    stage.proxy.add(fault);
    insist(stage, &format!("z-{name}")).await;
    let pulls = stage.pulls().await;
    let of_group = pulls.iter().filter(|pull| pull.head == branch);
    let bodies: Vec<_> = of_group.map(|pull| pull.body.as_str()).collect();
    assert_eq!(bodies.len(), 1, "{fault:?}");
    let members = before.len() + 1;
    assert_eq!(
        stage.commits(&branch).await.len(),
        members,
        "{fault:?} at request {number}"
    );
    let sections = bodies[0].matches("### Change").count();
    assert_eq!(sections, members, "{fault:?} at request {number}");
    let own = pulls.iter().filter(|pull| pull.head.ends_with(name));
    assert_eq!(own.count(), 1, "{fault:?}: nobody went alone");
}

/// Attempts until it has worked, as a new process would; fails if that takes more than a few.
async fn insist(stage: &mut Stage, uid: &str) {
    let intent = stage.writer(uid);
    let mut made = stage.make(&intent).await.0;
    for _ in 0..3 {
        if made.is_ok() {
            return;
        }
        stage.forget();
        made = stage.make_again(&intent).await.0;
    }
    panic!("{made:?}");
}
