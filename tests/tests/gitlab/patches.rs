//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::Made;
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::faults::{Effect, Fault, Reply};
use nabu_tests::test_forge::git::{EXECUTABLE, SYMLINK};
use serde_json::{Value, json};

use crate::bed::{Bed, OBSOLETE};

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
async fn a_patch_takes_three_requests_keeps_every_other_byte_and_is_shown() {
    let bed = bed().await;
    for (uid, kind, lines) in [
        ("u-1", PatchType::YamlSet, "spec.replicas = 5"),
        ("u-2", PatchType::Merge, "spec: {replicas: 5}"),
        (
            "u-3",
            PatchType::Json6902,
            r#"[{"op": "replace", "path": "/spec/replicas", "value": 5}]"#,
        ),
    ] {
        let others = [(OBSOLETE, None), ("new.yaml", Some("a\n"))];
        let intent = patching(&bed, uid, kind, lines, &others);
        let (pull, requests) = bed.pull(&intent).await;
        assert_eq!(requests, 3, "{kind:?}");
        assert_eq!(patched(&bed, &intent), after(), "{kind:?}");
        let file = |path| bed.project.file(&intent.branch, path).unwrap();
        assert_eq!(
            (file(OBSOLETE), file("new.yaml").as_deref()),
            (None, Some("a\n"))
        );
        let all = bed.project.merge_requests().unwrap();
        let body = all.last().unwrap()["description"].as_str().unwrap();
        assert!(body.contains("\n+    replicas: 5   # three"), "{body}");
        let last = body.trim_end().lines().last().unwrap_or_default();
        assert!(last.starts_with("<!-- nabu: "), "{last}");
        let (again, requests) = bed.pull(&intent).await;
        assert_eq!((again.url, again.adopted, requests), (pull.url, true, 1));
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
async fn a_commit_of_ours_is_known_though_the_base_has_moved_on() {
    for moved in [
        BEFORE.replace("kind: Deployment", "kind: StatefulSet"),
        // The patch would not even apply any more.
        "spec: []\n".to_owned(),
    ] {
        let bed = bed().await;
        let intent = scaling(&bed, "u-1");
        bed.gitlab.fail(Fault::new(Effect::CutBefore).at(3));
        bed.make(&intent).await.0.unwrap_err();
        assert!(bed.project.merge_requests().unwrap().is_empty());
        bed.project.add_files("main", &[(APP, &moved)]).unwrap();
        bed.pull(&intent).await;
        assert_eq!(patched(&bed, &intent), after());
        let all = bed.project.merge_requests().unwrap();
        assert_eq!(all.len(), 1);
        let body = all[0]["description"].as_str().unwrap();
        assert!(body.contains("\n+    replicas: 5   # three"), "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_commit_with_other_contents_is_not_passed_off_as_the_patch() {
    let bed = bed().await;
    let intent = scaling(&bed, "u-1");
    bed.commit_only(&intent, APP, &BEFORE.replace("replicas: 3", "replicas: 50"));
    let detail = bed
        .expect(&intent, ErrorType::Conflicting, "BranchTaken")
        .await;
    assert!(detail.contains(APP), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_is_permanent_and_what_is_there_needs_nothing() {
    let bed = bed().await;
    let misfit = async |intent: &Intent, words: &str| {
        let error = bed.failure(intent).await;
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Permanent, "PatchDoesNotApply"));
        assert!(
            error.detail.contains(APP) && error.detail.contains(words),
            "{}",
            error.detail
        );
    };
    let set = |uid, lines| patching(&bed, uid, PatchType::YamlSet, lines, &[]);
    misfit(&set("u-1", "spec.replicas.x = 5"), "/spec/replicas").await;
    let (made, requests) = bed.make(&set("u-2", "spec.replicas = 3")).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(requests, 2);
    for (mode, contents, words) in [
        (SYMLINK, "../x", "a link"),
        (
            EXECUTABLE,
            "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7\n",
            "Git LFS",
        ),
    ] {
        bed.project
            .add_entry("main", mode, APP, contents.as_bytes())
            .unwrap();
        misfit(&scaling(&bed, "u-3"), words).await;
    }
    bed.project.delete_file("main", APP).unwrap();
    misfit(&scaling(&bed, "u-4"), "does not exist").await;
    assert_eq!(bed.project.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_keeps_the_mode_and_bytes_that_are_no_text() {
    let bed = bed().await;
    let odd = [
        b"\xef\xbb\xbf".as_slice(),
        BEFORE.replace('\n', "\r\n").as_bytes(),
    ]
    .concat();
    bed.project
        .add_entry("main", EXECUTABLE, APP, &odd)
        .unwrap();
    let intent = scaling(&bed, "u-1");
    bed.pull(&intent).await;
    let bytes = bed.project.bytes(&intent.branch, APP).unwrap().unwrap();
    assert!(bytes.starts_with(b"\xef\xbb\xbf"));
    let wanted = after().replace('\n', "\r\n");
    assert_eq!(&bytes[3..], wanted.as_bytes());
    let mode = bed.project.mode(&intent.branch, APP).unwrap();
    assert_eq!(mode.as_deref(), Some(EXECUTABLE));
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
