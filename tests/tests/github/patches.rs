//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::Made;
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault};
use nabu_tests::test_forge::github::File;

use crate::bed::Bed;

const APP: &str = "clusters/prod-eu/app.yaml";

const BEFORE: &str = "\
# Owned by team-a; ask before you scale.
kind: Deployment
spec:
    replicas: 3   # three, since the incident
# The end.
";

fn patching(bed: &Bed, uid: &str, lines: &str) -> Intent {
    let mut intent = bed.intent(uid, &[]);
    let patch = Patch::parse(PatchType::YamlSet, lines, None).unwrap();
    intent.files.push(FileChange {
        path: APP.to_owned(),
        action: FileAction::Patch { patch },
    });
    intent
}

async fn bed() -> Bed {
    let bed = Bed::new().await;
    bed.repository
        .add_files("main", &[File::plain(APP, BEFORE)])
        .unwrap();
    bed
}

fn after() -> String {
    BEFORE.replace("replicas: 3", "replicas: 5")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_takes_two_requests_keeps_every_other_byte_and_is_shown() {
    let mut bed = bed().await;
    let intent = patching(&bed, "u-1", "spec.replicas = 5");
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 2);
    assert_eq!(bed.file(&intent.branch, APP), Some(after()));
    let body = bed.repository.pulls().unwrap()[0].body.clone();
    assert!(body.contains("\n+    replicas: 5   # three"), "{body}");
    let last = body.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("<!-- nabu: "), "{last}");

    bed.forget();
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!((pull.adopted, requests), (true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_file_is_read_whole() {
    let bed = Bed::new().await;
    let long = format!("{BEFORE}{}", "# padding ä\n".repeat(60_000));
    bed.repository
        .add_files("main", &[File::plain(APP, long.clone())])
        .unwrap();
    let intent = patching(&bed, "u-1", "spec.replicas = 5");
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 3, "GitHub cuts texts of this length");
    let wanted = long.replace("replicas: 3", "replicas: 5");
    assert!(bed.file(&intent.branch, APP) == Some(wanted));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_ours_is_known_though_the_base_has_moved_on() {
    let mut bed = bed().await;
    let intent = patching(&bed, "u-1", "spec.replicas = 5");
    bed.github
        .fault(Fault::new(Effect::OnlyFirst(2)).operation("createRef"));
    let (first, _) = bed.make(&intent).await;
    bed.github.faults().clear();
    if matches!(first, Ok(Made::PullRequest(_))) {
        panic!("the pull request should be missing: {first:?}");
    }
    assert!(bed.repository.pulls().unwrap().is_empty());
    let moved = BEFORE.replace("kind: Deployment", "kind: StatefulSet");
    bed.repository
        .add_files("main", &[File::plain(APP, moved)])
        .unwrap();
    bed.forget();
    bed.pull(&intent).await;
    assert_eq!(bed.file(&intent.branch, APP), Some(after()));
    assert_eq!(bed.repository.pulls().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_goes_on_top_of_the_commit_that_it_was_made_from() {
    let bed = std::sync::Arc::new(bed().await);
    let intent = patching(&bed, "u-1", "spec.replicas = 5");
    bed.github
        .fault(Fault::new(Effect::HoldBefore).operation("createRef"));
    let attempt = tokio::spawn({
        let (bed, intent) = (std::sync::Arc::clone(&bed), intent.clone());
        async move { bed.pull(&intent).await }
    });
    bed.github.faults().reached().await;
    let moved = BEFORE.replace("kind: Deployment", "kind: StatefulSet");
    bed.repository
        .add_files("main", &[File::plain(APP, moved.clone())])
        .unwrap();
    bed.github.faults().release();
    attempt.await.unwrap();
    // The commit goes on top of the commit that was read, so that nothing of the other change is taken back by a merge.
    let base = bed.repository.git().unwrap();
    let tip = bed.repository.commit(&intent.branch).unwrap();
    let main = bed.repository.commit("main").unwrap();
    let below = base.merge_base(&tip.oid, &main.oid).unwrap();
    assert_eq!(below, tip.parents.first().cloned());
    assert_eq!(bed.file(&intent.branch, APP), Some(after()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_permanent_and_what_is_there_needs_nothing() {
    let bed = bed().await;
    let error = bed
        .failure(&patching(&bed, "u-1", "spec.replicas.x = 5"))
        .await;
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Permanent, "PatchDoesNotApply"),
        "{}",
        error.detail
    );
    let (made, requests) = bed.make(&patching(&bed, "u-2", "spec.replicas = 3")).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(requests, 1);
    bed.repository.remove_file("main", APP).unwrap();
    let error = bed
        .failure(&patching(&bed, "u-3", "spec.replicas = 5"))
        .await;
    assert_eq!(error.reason, "PatchDoesNotApply");
    assert_eq!(bed.repository.branches().unwrap(), ["main"]);
}
