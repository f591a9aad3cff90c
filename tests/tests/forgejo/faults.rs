//! Writes whose answer is lost: the attempt looks for them, and never sends them again.

use nabu_hub::forge::{ForgeError, Made};
use nabu_hub::response::ErrorType;
use nabu_tests::fault_proxy::{Fault, FaultProxy};

use crate::bed::{BINDINGS, Bed, REVOKE, intent, target};

/// A server that people reach directly, and the hub through a proxy that fails.
struct Stage {
    bed: Bed,
    proxy: FaultProxy,
}

impl Stage {
    async fn new(name: &str) -> Self {
        let bed = Bed::new(name).await;
        let proxy = FaultProxy::start(&bed.forge.url()).await.unwrap();
        let stage = Self { bed, proxy };
        // From here on the hub knows what the server can do.
        assert!(stage.make("u-0").await.is_ok());
        stage
    }

    async fn make(&self, uid: &str) -> Result<Made, ForgeError> {
        let repository = &self.bed.repository.full_name;
        let intent = intent(target(&self.proxy.url(), repository), uid, &REVOKE);
        self.bed.make(&intent).await.0
    }

    /// Something happens to the n-th request of an attempt; whatever comes of that, after the next one there is one pull
    /// request with the change.
    async fn survives(
        &self,
        uid: &str,
        fault: impl Fn(u32) -> Fault,
        n: u32,
    ) -> Result<Made, ForgeError> {
        let fault = fault(self.proxy.requests() + n);
        self.proxy.add(fault);
        let made = self.make(uid).await;
        let again = self.make(uid).await;
        assert!(
            matches!(again, Ok(Made::PullRequest(_))),
            "{fault:?}: {again:?}"
        );
        let branch = format!("nabu/prod-eu/{uid}");
        let pulls = self.bed.repository.pull_requests().await.unwrap();
        let ours = pulls
            .iter()
            .filter(|pull| pull["head"]["ref"] == branch.as_str());
        assert_eq!(ours.count(), 1, "{fault:?}");
        let file = self.bed.repository.file(&branch, BINDINGS).await.unwrap();
        assert_eq!(file.as_deref(), Some("bindings: []\n"));
        made
    }
}

/// The lookup comes first, then the commit, then the pull request.
const WRITES: [u32; 2] = [2, 3];

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_was_done_is_found_in_the_same_attempt() {
    let stage = Stage::new("lost-answers").await;
    for write in WRITES {
        for (name, fault) in [
            ("cut", Fault::CutAfter as fn(u32) -> Fault),
            ("500", |n| Fault::AnswerAfter(n, 500)),
            ("502", |n| Fault::AnswerAfter(n, 502)),
            ("200", |n| Fault::AnswerAfter(n, 200)),
        ] {
            let uid = format!("after-{name}-{write}");
            let made = stage.survives(&uid, fault, write).await;
            let is_there = matches!(made, Ok(Made::PullRequest(_)));
            assert!(is_there, "{name} at {write}: {made:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_of_which_nothing_is_to_be_seen_is_left_to_the_next_attempt() {
    let stage = Stage::new("lost-requests").await;
    for number in [1, 2, 3] {
        let uid = format!("cut-{number}");
        let made = stage.survives(&uid, Fault::CutBefore, number).await;
        let Err(ForgeError::Failed(error)) = made else {
            panic!("{number}: {made:?}")
        };
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Transient, "ConnectionLost"));
        let uid = format!("down-{number}");
        let made = stage
            .survives(&uid, |n| Fault::Answer(n, 503), number)
            .await;
        let waits = matches!(made, Err(ForgeError::Unavailable { .. }));
        assert!(waits, "{number}: {made:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_the_server_has_forgotten_and_git_has_not_is_adopted() {
    let bed = Bed::new("forgotten").await;
    let intent = bed.intent("u-1", &REVOKE);
    // What is left when a server is interrupted between git's push and its own note of it.
    bed.commit_only(&intent, "bindings: []\n").await;
    let tip = bed.repository.commit(&intent.branch).await.unwrap();
    bed.forge
        .forget_branch(&bed.repository.full_name, &intent.branch)
        .unwrap();

    let (pull, _) = bed.pull(&intent).await;

    assert_eq!(pull.commit.as_ref(), Some(&tip.id));
    assert_eq!(bed.repository.pull_requests().await.unwrap().len(), 1);
}
