//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent, content_digest};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::Made;
use nabu_hub::response::ErrorType;
use nabu_tests::fault_proxy::{Fault, FaultProxy};

use crate::bed::{BINDINGS, Bed, OBSOLETE, failure, make};

const APP: &str = "clusters/prod-eu/app.yaml";

const BEFORE: &str = "\
# Owned by team-a; ask before you scale.
kind: Deployment
spec:
    replicas: 3   # three, since the incident
    template: {spec: {containers: [{name: app, image: 'registry/app:1.0'}]}}
# The end.
";

/// A change that patches one file and does these things to others.
fn patching(
    bed: &Bed,
    uid: &str,
    path: &str,
    lines: &str,
    others: &[(&str, Option<&str>)],
) -> Intent {
    let mut intent = bed.intent(uid, others);
    let action = FileAction::Patch {
        patch: Patch::parse(PatchType::YamlSet, lines, None).unwrap(),
    };
    intent.files.push(FileChange {
        path: path.to_owned(),
        action,
    });
    let digest = content_digest(
        &intent.target.repository,
        Some("main"),
        &intent.branch,
        &intent.files,
    );
    intent.body = intent.body.replace(&intent.digest, &digest);
    intent.digest = digest;
    intent
}

async fn bed(name: &str) -> Bed {
    let bed = Bed::new(name).await;
    bed.repository.add_file("main", APP, BEFORE).await.unwrap();
    bed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_changes_its_place_and_keeps_every_other_byte() {
    let bed = bed("patch-bytes").await;
    let intent = patching(
        &bed,
        "u-1",
        APP,
        "spec.replicas = 5",
        &[(OBSOLETE, None), ("new.yaml", Some("a\n"))],
    );

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(requests, 4);
    let file = |path| bed.repository.file(&intent.branch, path);
    assert_eq!(
        file(APP).await.unwrap(),
        Some(BEFORE.replace("replicas: 3", "replicas: 5"))
    );
    assert_eq!(file(OBSOLETE).await.unwrap(), None);
    assert_eq!(file("new.yaml").await.unwrap().as_deref(), Some("a\n"));
    let pulls = bed.repository.pull_requests().await.unwrap();
    let body = pulls[0]["body"].as_str().unwrap();
    let diff = "-    replicas: 3   # three, since the incident\n+    replicas: 5   # three, since the incident\n";
    assert!(body.contains(diff), "{body}");
    assert!(
        body.ends_with(intent.body.lines().last().unwrap()),
        "{body}"
    );
    let (again, requests) = bed.pull(&intent).await;
    assert_eq!((again.url, again.adopted, requests), (pull.url, true, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_that_does_not_fit_leaves_nothing_behind() {
    let bed = bed("patch-misfit").await;
    bed.repository
        .add_file("main", "broken.yaml", "a: [\n")
        .await
        .unwrap();
    for (uid, path, lines, what) in [
        (
            "u-1",
            APP,
            "spec.containers[0].image = x",
            "at /spec/containers: ",
        ),
        ("u-2", "gone.yaml", "a = 1", "does not exist"),
        ("u-3", "broken.yaml", "a = 1", "cannot be read as YAML"),
        ("u-4", "clusters.yaml", "a = 1", "does not exist"),
    ] {
        let error = bed
            .failure(&patching(&bed, uid, path, lines, &[(OBSOLETE, None)]))
            .await;
        assert_eq!(
            (error.kind, error.reason.as_str()),
            (ErrorType::Permanent, "PatchDoesNotApply")
        );
        assert!(
            error.detail.contains(what) && error.detail.contains(path),
            "{}",
            error.detail
        );
    }
    let mut elsewhere = patching(&bed, "u-5", APP, "a = 1", &[]);
    elsewhere.base_branch = Some("nowhere".to_owned());
    assert_eq!(bed.failure(&elsewhere).await.reason, "BaseBranchNotFound");
    assert_eq!(bed.repository.branches().await.unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_patch_of_what_is_so_already_leaves_nothing_behind() {
    let bed = bed("patch-no-action").await;
    for others in [&[][..], &[(BINDINGS, Some("bindings: [ops-admin]\n"))]] {
        let intent = patching(&bed, "u-1", APP, "spec.replicas = 3", others);
        let (made, _) = bed.make(&intent).await;
        assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    }
    assert_eq!(bed.repository.branches().await.unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_meanwhile_is_read_again() {
    let bed = bed("patch-meanwhile").await;
    let proxy = FaultProxy::start(&bed.forge.url()).await.unwrap();
    proxy.add(Fault::HoldAfter(2));
    let mut intent = patching(&bed, "u-1", APP, "spec.replicas = 5", &[]);
    intent.target.base_url = Some(proxy.url());
    let changed = BEFORE.replace("registry/app:1.0", "registry/app:2.0");

    let meanwhile = async {
        proxy.reached().await.unwrap();
        bed.repository
            .add_file("main", APP, &changed)
            .await
            .unwrap();
        proxy.release();
    };
    let ((made, requests), ()) = tokio::join!(make(&bed.hub.forges, &intent), meanwhile);

    assert!(matches!(made, Ok(Made::PullRequest(_))), "{made:?}");
    assert_eq!(requests, 6);
    let file = bed.repository.file(&intent.branch, APP).await.unwrap();
    assert_eq!(file, Some(changed.replace("replicas: 3", "replicas: 5")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_ours_is_adopted_whatever_became_of_the_base() {
    let bed = bed("patch-adopt").await;
    for (uid, on_main) in [
        ("u-1", BEFORE.to_owned()),
        ("u-2", BEFORE.replace("team-a", "team-b")),
        ("u-3", BEFORE.replace("replicas: 3", "replicas: 5")),
        ("u-4", "not: [\n".to_owned()),
    ] {
        bed.repository
            .add_file("main", APP, &format!("{BEFORE}# {uid}\n"))
            .await
            .unwrap();
        let intent = patching(&bed, uid, APP, "spec.replicas = 5", &[]);
        let wanted = format!("{}# {uid}\n", BEFORE.replace("replicas: 3", "replicas: 5"));
        let (branch, message) = (&intent.branch, &intent.commit_message);
        let files = [(APP, wanted.as_str())];
        bed.repository
            .add_commit_on_new_branch("main", branch, message, &files)
            .await
            .unwrap();
        let tip = bed.repository.commit(branch).await.unwrap();
        bed.repository
            .add_file("main", APP, &on_main)
            .await
            .unwrap();

        let (pull, _) = bed.pull(&intent).await;

        assert_eq!(pull.commit, Some(tip.id), "{uid}");
        let pulls = bed.repository.pull_requests().await.unwrap();
        let body = |pull: &serde_json::Value| pull["body"].as_str().unwrap().to_owned();
        assert!(
            pulls
                .iter()
                .any(|pull| body(pull).contains("+    replicas: 5")),
            "{uid}"
        );
    }
    let other = patching(&bed, "u-5", BINDINGS, "bindings = []", &[]);
    bed.commit_only(&other, "bindings: [somebody]\n").await;
    let error = failure(bed.make(&other).await.0);
    assert_eq!(
        (error.kind, error.reason.as_str()),
        (ErrorType::Conflicting, "BranchTaken")
    );
}
