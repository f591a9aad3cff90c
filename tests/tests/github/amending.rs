//! A pull request that is made to show another content.

use nabu_hub::change::ForgeTarget;
use nabu_hub::forge::Amending;
use nabu_tests::amending::{self, Shown, Stage, Tip};
use nabu_tests::intents::HubForges;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::github::File;

use crate::bed::{BINDINGS, Bed, REVOKE};

impl Stage for Bed {
    fn hub(&self) -> &HubForges {
        &self.hub
    }
    fn target(&self) -> ForgeTarget {
        Bed::target(self)
    }
    async fn file(&self, branch: &str, path: &str) -> Option<String> {
        Bed::file(self, branch, path)
    }
    async fn tip(&self, branch: &str) -> Tip {
        let commit = self.repository.commit(branch).unwrap();
        Tip {
            oid: commit.oid,
            parents: commit.parents,
            message: commit.message,
        }
    }
    async fn shown(&self, number: u64) -> Shown {
        let pulls = self.repository.pulls().unwrap();
        let pull = pulls
            .into_iter()
            .find(|pull| pull.number == number)
            .unwrap();
        Shown {
            open: pull.state == "open",
            title: pull.title,
            body: pull.body,
        }
    }
    async fn add_file(&self, branch: &str, path: &str, contents: &str) {
        let files = [File::plain(path, contents)];
        self.repository.add_files(branch, &files).unwrap();
    }
    async fn merge(&self, number: u64) {
        self.repository.merge(number).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_put_one_more_commit_on_it_and_one_more_asks_and_changes_nothing() {
    amending::one_more_commit_shows_the_new_content(&Bed::new().await, 2, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_put_on_top_of_another_commit() {
    amending::nothing_is_put_on_top_of_another_commit(&Bed::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_nobody_noted_is_found() {
    amending::a_commit_that_nobody_noted_is_found(&Bed::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_is_left_alone() {
    amending::what_has_ended_is_left_alone(&Bed::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_applies_to_the_file_below_our_commits() {
    amending::a_patch_applies_to_the_file_below_our_commits(&Bed::new().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_be_run_may_still_be_run() {
    let bed = Bed::new().await;
    let path = "run.sh";
    let script = [File::executable(path, "echo 1\n")];
    bed.repository.add_files("main", &script).unwrap();
    let one = bed.intent("u-1", &[(path, None)]);
    let (pull, _) = bed.pull(&one).await;
    let leftovers = [path.to_owned()];
    let wish = Amending {
        number: 1,
        commit: pull.commit.as_deref(),
        leftovers: &leftovers,
        again: false,
    };
    for files in [[(path, Some("echo 2\n"))], REVOKE] {
        let two = bed.intent("u-1", &files);
        let now = bed.repository.commit(&one.branch).unwrap().oid;
        let wish = Amending {
            commit: Some(&now),
            ..wish
        };
        bed.hub.amend(&two, &wish).await.0.unwrap();
        let tree = bed.repository.tree(&one.branch).unwrap();
        assert!(
            tree.iter()
                .any(|entry| format!("{entry:?}").contains("run.sh")
                    && format!("{entry:?}").contains("100755")),
            "{tree:?}"
        );
    }
    assert_eq!(bed.file(&one.branch, path).as_deref(), Some("echo 1\n"));
}

/// Whatever happens to a request, the next try ends with exactly one more commit and the text that goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_or_a_half_done_document_leaves_one_more_commit() {
    for number in 1..=2 {
        for effect in [
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::AnswerAfter(Reply::html(502)),
            Effect::OnlyFirst(1),
        ] {
            if number == 1 && effect == Effect::OnlyFirst(1) {
                continue;
            }
            let bed = Bed::new().await;
            let one = bed.intent("u-1", &REVOKE);
            let (pull, _) = bed.pull(&one).await;
            let mut two = bed.intent("u-1", &[(BINDINGS, Some("bindings: [b]\n"))]);
            "Another".clone_into(&mut two.title);
            let wish = Amending {
                number: 1,
                commit: pull.commit.as_deref(),
                leftovers: &[],
                again: false,
            };
            let before = u32::try_from(bed.github.requests().len()).unwrap();
            bed.github
                .fault(Fault::new(effect.clone()).at(before + number));
            let (first, _) = bed.hub.amend(&two, &wish).await;
            assert!(first.is_err(), "{effect:?} at {number}: {first:?}");
            let again = Amending {
                again: true,
                ..wish
            };
            let (second, _) = bed.hub.amend(&two, &again).await;
            second.unwrap();
            let tip = bed.repository.commit(&one.branch).unwrap();
            assert_eq!(
                tip.parents,
                [pull.commit.unwrap()],
                "{effect:?} at {number}"
            );
            assert_eq!(
                bed.shown(1).await.title,
                "Another",
                "{effect:?} at {number}"
            );
            let file = bed.file(&one.branch, BINDINGS);
            assert_eq!(file.as_deref(), Some("bindings: [b]\n"));
        }
    }
}

/// Somebody pushes between the look and the commit.
#[tokio::test(flavor = "multi_thread")]
async fn the_text_goes_back_with_a_commit_that_could_not_be_made() {
    let bed = Bed::new().await;
    let one = bed.intent("u-1", &REVOKE);
    let (pull, _) = bed.pull(&one).await;
    let mut two = bed.intent("u-1", &[(BINDINGS, Some("bindings: [b]\n"))]);
    "Another".clone_into(&mut two.title);
    let before = bed.shown(1).await;
    // The look sees an older picture.
    bed.github.freeze();
    bed.add_file(&one.branch, "mine.txt", "mine\n").await;
    bed.github
        .fault(Fault::new(Effect::Frozen).times(1).operation("repository"));
    let wish = Amending {
        number: 1,
        commit: pull.commit.as_deref(),
        leftovers: &[],
        again: false,
    };
    let (result, requests) = bed.hub.amend(&two, &wish).await;
    assert!(format!("{result:?}").contains("Behind"), "{result:?}");
    assert_eq!(requests, 3);
    assert_eq!(bed.shown(1).await, before);
    assert_eq!(
        bed.repository
            .commit(&one.branch)
            .unwrap()
            .message
            .trim_end(),
        "Add files"
    );
}
