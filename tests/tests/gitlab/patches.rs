//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::Made;
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::git::SYMLINK;
use serde_json::{Value, json};

use crate::bed::Bed;

const APP: &str = "clusters/prod-eu/app.yaml";

const BEFORE: &str = "\
# Owned by team-a; ask before you scale.
kind: Deployment
spec:
    replicas: 3   # three, since the incident
# The end.
";

fn patching(
    bed: &Bed,
    uid: &str,
    kind: PatchType,
    lines: &str,
    others: &[(&str, Option<&str>)],
) -> Intent {
    let mut intent = bed.intent(uid, others);
    let patch = Patch::parse(kind, lines, None).unwrap();
    intent.files.push(FileChange {
        path: APP.to_owned(),
        action: FileAction::Patch { patch },
    });
    intent
}

fn scaling(bed: &Bed, uid: &str) -> Intent {
    patching(bed, uid, PatchType::YamlSet, "spec.replicas = 5", &[])
}

async fn bed() -> Bed {
    let bed = Bed::new().await;
    bed.project.add_files("main", &[(APP, BEFORE)]).unwrap();
    bed
}

fn after() -> String {
    BEFORE.replace("replicas: 3", "replicas: 5")
}

fn patched(bed: &Bed, intent: &Intent) -> String {
    let file = bed.project.file(&intent.branch, APP).unwrap();
    file.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_patched_files_take_three_requests() {
    let bed = Bed::new().await;
    let paths: Vec<String> = (0..100).map(|n| format!("apps/{n}.yaml")).collect();
    let files: Vec<_> = paths.iter().map(|path| (path.as_str(), BEFORE)).collect();
    bed.project.add_files("main", &files).unwrap();
    let mut intent = bed.intent("u-1", &[]);
    for path in &paths {
        let patch = Patch::parse(PatchType::YamlSet, "spec.replicas = 5", None).unwrap();
        intent.files.push(FileChange {
            path: path.clone(),
            action: FileAction::Patch { patch },
        });
    }
    assert_eq!(bed.pull(&intent).await.1, 3);
    for path in &paths {
        let file = bed.project.file(&intent.branch, path).unwrap();
        assert_eq!(file, Some(after()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_does_not_come_whole_is_read_by_itself() {
    let bed = bed().await;
    let intent = scaling(&bed, "u-1");
    // The answer as it is, but with a text that is not the file.
    let asked = scaling(&bed, "u-0");
    bed.gitlab.fail(Fault::new(Effect::CutBefore).at(2));
    bed.make(&asked).await.0.unwrap_err();
    let mut answer: Value = serde_json::from_str(&bed.gitlab.requests()[0].answer).unwrap();
    answer["data"]["project"]["repository"]["patched0"]["nodes"][0]["rawBlob"] =
        json!("spec: {}\n");
    bed.gitlab
        .fail(Fault::new(Effect::Answer(Reply::json(200, &answer))));
    assert_eq!(bed.pull(&intent).await.1, 4);
    assert_eq!(patched(&bed, &intent), after());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_base_that_moves_while_it_is_looked_at_is_looked_at_again() {
    let bed = bed().await;
    let asked = scaling(&bed, "u-0");
    bed.gitlab.fail(Fault::new(Effect::CutBefore).at(2));
    bed.make(&asked).await.0.unwrap_err();
    let mut answer: Value = serde_json::from_str(&bed.gitlab.requests()[0].answer).unwrap();
    answer["data"]["project"]["repository"]["after"]["lastCommit"]["sha"] = json!("ab".repeat(20));
    let moved = Effect::Answer(Reply::json(200, &answer));

    bed.gitlab.fail(Fault::new(moved.clone()));
    let intent = scaling(&bed, "u-1");
    assert_eq!(bed.pull(&intent).await.1, 4, "one question more");
    assert_eq!(patched(&bed, &intent), after());

    bed.gitlab
        .fail(Fault::new(moved).path("/api/graphql").always());
    let busy = scaling(&bed, "u-2");
    bed.expect(&busy, ErrorType::Transient, "BaseBusy").await;
    assert!(!bed.project.branches().unwrap().contains(&busy.branch));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_goes_on_top_of_the_commit_that_it_was_made_from() {
    let bed = bed().await;
    let intent = scaling(&bed, "u-1");
    let below = bed.project.commit("main").unwrap();
    bed.gitlab
        .fail(Fault::new(Effect::HoldBefore).path("repository/commits"));
    let ((made, requests), ()) = tokio::join!(bed.make(&intent), async {
        bed.gitlab.faults().reached().await;
        let moved = BEFORE.replace("kind: Deployment", "kind: StatefulSet");
        bed.project.add_files("main", &[(APP, &moved)]).unwrap();
        bed.gitlab.faults().release();
    });
    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    assert_eq!(requests, 3);
    // Nothing of the other change is taken back by a merge.
    assert_eq!(
        bed.project.commit(&intent.branch).unwrap().parents,
        [below.oid]
    );
    assert_eq!(patched(&bed, &intent), after());
    bed.project.merge(1).unwrap();
    let merged = bed.project.file("main", APP).unwrap().unwrap();
    assert_eq!(merged, after().replace("Deployment", "StatefulSet"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_lies_in_git_lfs_is_not_patched() {
    let bed = bed().await;
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n";
    bed.project.add_files("main", &[(APP, pointer)]).unwrap();
    let error = bed.failure(&scaling(&bed, "u-1")).await;
    let said = (error.kind, error.reason.as_str());
    assert_eq!(said, (ErrorType::Permanent, "PatchDoesNotApply"));
    assert!(error.detail.contains("Git LFS"), "{}", error.detail);
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_graphql_serves_patches_too() {
    let bed = bed().await;
    let missing = Reply::json(404, &json!({ "message": "404 Not Found" }));
    let fault = Fault::new(Effect::Answer(missing)).path("/api/graphql");
    bed.gitlab.fail(fault.always());
    let others = [("new.yaml", Some("a\n"))];
    let intent = patching(
        &bed,
        "u-1",
        PatchType::YamlSet,
        "spec.replicas = 5",
        &others,
    );
    // The question, lookup, base branch, two folders, the file, commit, merge request.
    assert_eq!(bed.pull(&intent).await.1, 8);
    assert_eq!(patched(&bed, &intent), after());
    assert_eq!(bed.pull(&intent).await.1, 1);
    bed.project
        .add_entry("main", SYMLINK, APP, b"../x")
        .unwrap();
    let error = bed.failure(&scaling(&bed, "u-2")).await;
    assert_eq!(error.reason, "PatchDoesNotApply", "{}", error.detail);
}
