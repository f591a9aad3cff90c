//! Patches of files that are in the repository.

use nabu_hub::change::{FileAction, FileChange, Intent, content_digest};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::response::ErrorType;
use nabu_tests::intents::{BINDINGS, OBSOLETE};
use nabu_tests::test_forge::git::{EXECUTABLE, PLAIN, SYMLINK};

use crate::bed::{Bed, of_mode, plain};
use crate::forges::Server;

const APP: &str = "clusters/prod-eu/app.yaml";

const BEFORE: &str = "\
# Owned by team-a; ask before you scale.
kind: Deployment
spec:
    replicas: 3   # three, since the incident
    template: {spec: {containers: [{name: app, image: 'registry/app:1.0'}]}}
# The end.
";

fn after() -> String {
    BEFORE.replace("replicas: 3", "replicas: 5")
}

/// A change that patches one file and does these things to others.
fn patching(
    bed: &Bed<impl Server>,
    uid: &str,
    path: &str,
    (kind, lines): (PatchType, &str),
    others: &[(&str, Option<&str>)],
) -> Intent {
    let mut intent = bed.intent(uid, others);
    intent.files.push(FileChange {
        path: path.to_owned(),
        action: FileAction::Patch {
            patch: Patch::parse(kind, lines, None).unwrap(),
        },
    });
    let repository = &intent.target.repository;
    let digest = content_digest(repository, Some("main"), &intent.branch, &intent.files);
    intent.body = intent.body.replace(&intent.digest, &digest);
    intent.digest = digest;
    intent
}

fn scaling(bed: &Bed<impl Server>, uid: &str) -> Intent {
    let lines = (PatchType::YamlSet, "spec.replicas = 5");
    patching(bed, uid, APP, lines, &[])
}

pub(crate) async fn a_patch_keeps_every_other_byte_and_is_shown(mut bed: Bed<impl Server>) {
    bed.add_file("main", APP, BEFORE).await;
    let json = r#"[{"op": "replace", "path": "/spec/replicas", "value": 5}]"#;
    for (number, patch) in [
        (1, (PatchType::YamlSet, "spec.replicas = 5")),
        (2, (PatchType::Merge, "spec: {replicas: 5}")),
        (3, (PatchType::Json6902, json)),
    ] {
        let others = [(OBSOLETE, None), ("new.yaml", Some("a\n"))];
        let intent = patching(&bed, &format!("u-{number}"), APP, patch, &others);

        let (pull, requests) = bed.pull(&intent).await;

        assert_eq!(requests, bed.differs().open_patched, "{patch:?}");
        let file = |path| bed.file(&intent.branch, path);
        assert_eq!(file(APP), Some(after()), "{patch:?}");
        assert_eq!(file(OBSOLETE), None);
        assert_eq!(file("new.yaml").as_deref(), Some("a\n"));
        let body = bed.server.pulls().await.pop().unwrap().body;
        let diff = "-    replicas: 3   # three, since the incident\n+    replicas: 5   # three, since the incident\n";
        assert!(body.contains(diff), "{body}");
        let marker = intent.body.lines().last().unwrap();
        assert!(body.trim_end().ends_with(marker), "{body}");
        bed.forget();
        let (again, requests) = bed.pull(&intent).await;
        assert_eq!((again.url, again.adopted, requests), (pull.url, true, 1));
    }
}

pub(crate) async fn a_patch_keeps_the_mode_and_bytes_that_are_no_text(bed: Bed<impl Server>) {
    let lines = |text: &str| text.replace('\n', "\r\n");
    let marked = |text: &str| [b"\xef\xbb\xbf", lines(text).as_bytes()].concat();
    let odd = marked(BEFORE);
    let file = of_mode(EXECUTABLE, APP, &odd);
    bed.commit("main", "main", "Add it", &[file]).await;
    let intent = scaling(&bed, "u-1");
    bed.pull(&intent).await;
    assert_eq!(bed.bytes(&intent.branch, APP), Some(marked(&after())));
    let mode = bed.mode(&intent.branch, APP);
    assert_eq!(mode.as_deref(), Some(EXECUTABLE));
}

pub(crate) async fn a_patch_of_what_is_so_already_needs_no_action(bed: Bed<impl Server>) {
    bed.add_file("main", APP, BEFORE).await;
    for others in [&[][..], &[(BINDINGS, Some("bindings: [ops-admin]\n"))]] {
        let same = (PatchType::YamlSet, "spec.replicas = 3");
        bed.nothing(&patching(&bed, "u-1", APP, same, others)).await;
    }
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_patch_that_does_not_fit_leaves_nothing_behind(bed: Bed<impl Server>) {
    let files = [
        plain(APP, BEFORE),
        plain("broken.yaml", "a: [\n"),
        of_mode(PLAIN, "binary.yaml", b"\x00\xff\xfe"),
        of_mode(SYMLINK, "link.yaml", b"broken.yaml"),
    ];
    bed.commit("main", "main", "Add files", &files).await;
    for (path, lines, words) in [
        (APP, "spec.replicas.x = 5", "/spec/replicas"),
        (APP, "spec.containers[0].image = x", "/spec/containers"),
        ("gone.yaml", "a = 1", "does not exist"),
        ("clusters.yaml", "a = 1", "does not exist"),
        ("broken.yaml", "a = 1", "cannot be read as YAML"),
        ("binary.yaml", "a = 1", ""),
        ("link.yaml", "a = 1", "link"),
    ] {
        let patch = (PatchType::YamlSet, lines);
        let intent = patching(&bed, "u-1", path, patch, &[(OBSOLETE, None)]);
        let detail = bed
            .fails(&intent, ErrorType::Permanent, "PatchDoesNotApply")
            .await;
        assert!(
            detail.contains(path) && detail.contains(words),
            "{path}: {detail}"
        );
    }
    let mut elsewhere = scaling(&bed, "u-2");
    elsewhere.base_branch = Some("nowhere".to_owned());
    bed.fails(&elsewhere, ErrorType::Permanent, "BaseBranchNotFound")
        .await;
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_commit_of_ours_is_known_whatever_became_of_the_base(bed: Bed<impl Server>) {
    for (uid, on_main) in [
        ("u-1", BEFORE.to_owned()),
        ("u-2", BEFORE.replace("team-a", "team-b")),
        ("u-3", after()),
        // The patch would not even apply any more.
        ("u-4", "not: [\n".to_owned()),
    ] {
        bed.add_file("main", APP, &format!("{BEFORE}# {uid}\n"))
            .await;
        let intent = scaling(&bed, uid);
        let wanted = format!("{}# {uid}\n", after());
        let commit = bed.commit_of(&intent, &[plain(APP, &wanted)]).await;
        bed.add_file("main", APP, &on_main).await;

        let (pull, _) = bed.pull(&intent).await;

        assert_eq!(pull.commit, Some(commit), "{uid}");
        let pulls = bed.server.pulls().await;
        let body = &pulls.last().unwrap().body;
        assert!(body.contains("\n+    replicas: 5   # three"), "{body}");
    }
    bed.add_file("main", APP, BEFORE).await;
    let other = scaling(&bed, "u-5");
    let wrong = BEFORE.replace("replicas: 3", "replicas: 50");
    bed.commit_of(&other, &[plain(APP, &wrong)]).await;
    let detail = bed.is_taken(&other).await;
    assert!(detail.contains(APP), "{detail}");
}
