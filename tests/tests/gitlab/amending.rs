//! A merge request that is made to show another content.

use nabu_hub::change::ForgeTarget;
use nabu_hub::forge::Amending;
use nabu_tests::amending::{self, Shown, Stage, Tip};
use nabu_tests::intents::HubForges;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};

use crate::bed::{BINDINGS, Bed, target};

impl Stage for Bed {
    fn hub(&self) -> &HubForges {
        &self.hub
    }
    fn target(&self) -> ForgeTarget {
        target(&self.gitlab.url(), &self.project.full_name)
    }
    async fn file(&self, branch: &str, path: &str) -> Option<String> {
        self.project.file(branch, path).unwrap()
    }
    async fn tip(&self, branch: &str) -> Tip {
        let commit = self.project.commit(branch).unwrap();
        Tip {
            oid: commit.oid,
            parents: commit.parents,
            message: commit.message,
        }
    }
    async fn shown(&self, number: u64) -> Shown {
        let all = self.project.merge_requests().unwrap();
        let one = all.into_iter().find(|one| one["iid"] == number).unwrap();
        let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
        Shown {
            open: text("state") == "opened",
            title: text("title"),
            body: text("description"),
        }
    }
    async fn add_file(&self, branch: &str, path: &str, contents: &str) {
        (self.project)
            .add_file_as_person(branch, branch, path, contents)
            .unwrap();
    }
    async fn merge(&self, number: u64) {
        self.project.merge(number).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_more_commit_shows_the_new_content_and_asking_again_changes_nothing() {
    amending::one_more_commit_shows_the_new_content(&Bed::new().await, 7, 4).await;
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
async fn what_people_have_marked_as_ready_stays_so_and_a_draft_stays_a_draft() {
    for ready in [false, true] {
        let bed = Bed::new().await;
        let mut one = bed.intent("u-1", &[(BINDINGS, Some("bindings: []\n"))]);
        one.draft = true;
        let (pull, _) = bed.pull(&one).await;
        assert!(bed.shown(1).await.title.starts_with("Draft: "));
        if ready {
            bed.project.retitle(1, "Revoke ops-admin").unwrap();
        }
        let mut two = bed.intent("u-1", &[(BINDINGS, Some("bindings: [b]\n"))]);
        two.draft = true;
        "Another".clone_into(&mut two.title);
        let wish = Amending {
            number: 1,
            commit: pull.commit.as_deref(),
            leftovers: &[],
            again: false,
        };
        bed.hub.amend(&two, &wish).await.0.unwrap();
        let expected = if ready { "Another" } else { "Draft: Another" };
        assert_eq!(bed.shown(1).await.title, expected);
    }
}

/// Whatever happens to a request, the next try ends with exactly one more commit and the text that goes with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_cut_before_or_after_any_request_leaves_one_more_commit() {
    for number in 1..=5 {
        for effect in [
            Effect::CutBefore,
            Effect::CutAfter,
            Effect::AnswerAfter(Reply::html(502)),
        ] {
            let bed = Bed::new().await;
            let one = bed.intent("u-1", &[(BINDINGS, Some("bindings: []\n"))]);
            let (pull, _) = bed.pull(&one).await;
            let mut two = bed.intent("u-1", &[(BINDINGS, Some("bindings: [b]\n"))]);
            "Another".clone_into(&mut two.title);
            let wish = Amending {
                number: 1,
                commit: pull.commit.as_deref(),
                leftovers: &[],
                again: false,
            };
            let before = u32::try_from(bed.gitlab.requests().len()).unwrap();
            bed.gitlab
                .fail(Fault::new(effect.clone()).at(before + number));
            let (first, _) = bed.hub.amend(&two, &wish).await;
            assert!(first.is_err(), "{effect:?} at {number}: {first:?}");
            let again = Amending {
                again: true,
                ..wish
            };
            let (second, _) = bed.hub.amend(&two, &again).await;
            second.unwrap();
            let tip = bed.project.commit(&one.branch).unwrap();
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
        }
    }
}
