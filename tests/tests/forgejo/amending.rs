//! A pull request that is made to show another content.

use nabu_hub::change::ForgeTarget;
use nabu_hub::forge::Amending;
use nabu_tests::amending::{self, Shown, Stage, Tip};
use nabu_tests::fault_proxy::{Fault, FaultProxy};
use nabu_tests::intents::HubForges;

use crate::bed::{BINDINGS, Bed, intent, target};

impl Stage for Bed {
    fn hub(&self) -> &HubForges {
        &self.hub
    }
    fn target(&self) -> ForgeTarget {
        target(&self.forge.url(), &self.repository.full_name)
    }
    async fn file(&self, branch: &str, path: &str) -> Option<String> {
        self.repository.file(branch, path).await.unwrap()
    }
    async fn tip(&self, branch: &str) -> Tip {
        let commit = self.repository.commit(branch).await.unwrap();
        Tip {
            oid: commit.id,
            parents: commit.parents,
            message: commit.message,
        }
    }
    async fn shown(&self, number: u64) -> Shown {
        let pull = self.repository.pull_request(number).await.unwrap();
        let text = |field: &str| pull[field].as_str().unwrap_or_default().to_owned();
        Shown {
            open: text("state") == "open",
            title: text("title"),
            body: text("body"),
        }
    }
    async fn add_file(&self, branch: &str, path: &str, contents: &str) {
        let file = self.repository.add_file(branch, path, contents);
        file.await.unwrap();
    }
    async fn merge(&self, number: u64) {
        self.repository.merge_pull_request(number).await.unwrap();
    }
}

/// One look at the pull request, one at the commits, one at each file that is named, two at each that is not any more, the
/// commit, the text.
#[tokio::test(flavor = "multi_thread")]
async fn one_more_commit_shows_the_new_content_and_asking_again_changes_nothing() {
    let bed = Bed::new("amending").await;
    amending::one_more_commit_shows_the_new_content(&bed, 10, 8).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_on_top_of_another_commit() {
    let bed = Bed::new("amending-foreign").await;
    amending::nothing_is_put_on_top_of_another_commit(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_nobody_noted_is_found() {
    let bed = Bed::new("amending-lost").await;
    amending::a_commit_that_nobody_noted_is_found(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_is_left_alone() {
    let bed = Bed::new("amending-ended").await;
    amending::what_has_ended_is_left_alone(&bed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_applies_to_the_file_below_our_commits() {
    let bed = Bed::new("amending-patch").await;
    amending::a_patch_applies_to_the_file_below_our_commits(&bed).await;
}

/// Whatever happens to a request, the next try ends with exactly one more commit and the text that goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_request_leaves_one_more_commit() {
    let bed = Bed::new("amending-cut").await;
    let proxy = FaultProxy::start(&bed.forge.url()).await.unwrap();
    let proxied = target(&proxy.url(), &bed.repository.full_name);
    let mut uid = 0;
    for number in 1..=5 {
        for fault in [Fault::CutBefore as fn(u32) -> Fault, Fault::CutAfter] {
            uid += 1;
            let name = format!("u-{uid}");
            let one = intent(
                proxied.clone(),
                &name,
                &[(BINDINGS, Some("bindings: []\n"))],
            );
            let (pull, _) = bed.pull(&one).await;
            let mut two = intent(
                proxied.clone(),
                &name,
                &[(BINDINGS, Some("bindings: [b]\n"))],
            );
            "Another".clone_into(&mut two.title);
            let wish = Amending {
                number: uid,
                commit: pull.commit.as_deref(),
                leftovers: &[],
                again: false,
            };
            let fault = fault(proxy.requests() + number);
            proxy.add(fault);
            let (first, _) = bed.hub.amend(&two, &wish).await;
            assert!(first.is_err(), "{fault:?}: {first:?}");
            let again = Amending {
                again: true,
                ..wish
            };
            let (second, _) = bed.hub.amend(&two, &again).await;
            second.unwrap();
            let tip = bed.repository.commit(&one.branch).await.unwrap();
            assert_eq!(tip.parents, [pull.commit.unwrap()], "{fault:?}");
            assert_eq!(bed.shown(uid).await.title, "Another", "{fault:?}");
        }
    }
}
