//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
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
