//! What ends up in git and on the pull request, and what it costs.

use nabu_hub::change::Author;
use nabu_hub::forge::{PullRequest, PullRequestState, number_of};
use nabu_tests::intents::{BINDINGS, OBSOLETE, REVOKE};

use crate::bed::Bed;
use crate::forges::Server;

const NEW: &str = "clusters/prod-eu/new/policy.yaml";

pub(crate) async fn a_change_is_one_commit_and_one_pull_request_and_the_second_time_nothing(
    mut bed: Bed<impl Server>,
) {
    let files = [
        (BINDINGS, Some("bindings: []\n")),
        (NEW, Some("ä: \u{1f512}\n")),
        (OBSOLETE, None),
    ];
    let intent = bed.intent("u-1", &files);
    let (before, untouched) = (bed.tip("main"), bed.files("main"));

    let (pull, requests) = bed.pull(&intent).await;

    assert_eq!(requests, bed.differs().open);
    assert_eq!((pull.state, pull.adopted), (PullRequestState::Open, false));
    assert_eq!(pull.notes, Vec::<String>::new());
    let commit = bed.tip(&intent.branch);
    assert_eq!(pull.commit.as_ref(), Some(&commit.oid));
    assert_eq!(commit.parents, [before.oid.as_str()]);
    assert_eq!(commit.message.trim(), intent.commit_message.trim());
    let file = |path| bed.file(&intent.branch, path);
    assert_eq!(file(BINDINGS).as_deref(), Some("bindings: []\n"));
    assert_eq!(file(NEW).as_deref(), Some("ä: \u{1f512}\n"));
    assert_eq!(file(OBSOLETE), None);
    let mut others = bed.files(&intent.branch);
    others.retain(|path, _| ![BINDINGS, NEW].map(str::as_bytes).contains(&&path[..]));
    let mut expected = untouched;
    expected.retain(|path, _| ![BINDINGS, OBSOLETE].map(str::as_bytes).contains(&&path[..]));
    assert_eq!(others, expected, "everything else stays");
    assert_eq!(bed.tip("main"), before);
    let seen = bed.only_pull().await;
    assert_eq!((&seen.title, &seen.body), (&intent.title, &intent.body));
    assert_eq!((seen.base.as_str(), &seen.head), ("main", &intent.branch));
    assert_eq!(number_of(&pull.url), Some(seen.number), "{}", pull.url);
    assert!(seen.labels.is_empty() && !seen.draft);

    let adopted = PullRequest {
        adopted: true,
        ..pull
    };
    assert_eq!(bed.pull(&intent).await, (adopted.clone(), 1));
    bed.forget();
    assert_eq!(bed.pull(&intent).await, (adopted, 1));
    assert_eq!(bed.tip(&intent.branch), commit);
    assert_eq!(bed.only_pull().await, seen);
}

pub(crate) async fn fifty_files_cost_what_one_costs(bed: Bed<impl Server>) {
    let names: Vec<String> = (0..50)
        .map(|number| format!("generated/{}/{number}.yaml", number % 7))
        .collect();
    let content = |number: usize| format!("number: {number}\n");
    let contents: Vec<String> = (0..50).map(content).collect();
    let files: Vec<(&str, Option<&str>)> = (names.iter().zip(&contents))
        .map(|(name, content)| (name.as_str(), Some(content.as_str())))
        .collect();
    let intent = bed.intent("u-1", &files);
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, bed.differs().open);
    for (name, content) in &files {
        assert_eq!(bed.file(&intent.branch, name).as_deref(), *content);
    }
    let there = bed.files("main").len();
    assert_eq!(bed.files(&intent.branch).len(), there + 50);
    let parents = bed.tip(&intent.branch).parents;
    assert_eq!(parents, [bed.tip("main").oid], "one commit");
}

pub(crate) async fn files_that_are_there_and_files_that_are_not_cost_the_same(
    bed: Bed<impl Server>,
) {
    for (number, files) in [
        &[(NEW, Some("deny: all\n"))][..],
        &REVOKE,
        &[(OBSOLETE, None)],
        &[
            (BINDINGS, Some("bindings: [a]\n")),
            (NEW, Some("deny: all\n")),
            (OBSOLETE, Some("kind: Secret\n")),
        ],
    ]
    .into_iter()
    .enumerate()
    {
        let intent = bed.intent(&format!("u-{number}"), files);
        let (_, requests) = bed.pull(&intent).await;
        assert_eq!(requests, bed.differs().open, "{files:?}");
        for (path, content) in files {
            assert_eq!(bed.file(&intent.branch, path).as_deref(), *content);
        }
    }
}

pub(crate) async fn a_file_that_went_meanwhile_is_made_anew(bed: Bed<impl Server>) {
    bed.pull(&bed.intent("u-1", &REVOKE)).await;
    bed.pull(&bed.intent("u-2", &[(BINDINGS, None)])).await;
    bed.server.merge(2).await;
    assert_eq!(bed.file("main", BINDINGS), None);
    let anew = bed.intent("u-3", &REVOKE);
    assert_eq!(bed.pull(&anew).await.1, bed.differs().open);
    let file = bed.file(&anew.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));
}

pub(crate) async fn what_is_there_already_needs_no_action_and_leaves_nothing(
    bed: Bed<impl Server>,
) {
    let there = [
        (BINDINGS, Some("bindings: [ops-admin]\n")),
        ("gone.yaml", None),
    ];
    for files in [&there[..], &there[..1], &there[1..], &[]] {
        bed.nothing(&bed.intent("u-1", files)).await;
    }
    assert_eq!(bed.branches(), ["main"]);
    assert!(bed.server.pulls().await.is_empty());
}

pub(crate) async fn deleting_what_is_not_there_does_not_stop_the_rest(bed: Bed<impl Server>) {
    let files = [
        ("gone.yaml", None),
        ("no/such/folder.yaml", None),
        (OBSOLETE, None),
        (BINDINGS, Some("bindings: []\n")),
    ];
    let intent = bed.intent("u-1", &files);
    bed.pull(&intent).await;
    assert_eq!(bed.file(&intent.branch, OBSOLETE), None);
    let file = bed.file(&intent.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));
    assert_eq!(bed.files(&intent.branch).len(), bed.files("main").len() - 1);
}

pub(crate) async fn without_a_base_branch_the_default_branch_is_taken_and_a_base_may_have_slashes(
    bed: Bed<impl Server>,
) {
    bed.add_branch("trunk", "main").await;
    bed.server.set_default_branch("trunk").await;
    let first = bed.add_file("trunk", "trunk.txt", "trunk\n").await;
    for (uid, expected) in [
        ("u-1", bed.differs().open_on_default_branch),
        ("u-2", bed.differs().open),
    ] {
        let mut intent = bed.intent(uid, &REVOKE);
        intent.base_branch = None;
        assert_eq!(bed.pull(&intent).await.1, expected, "{uid}");
        assert_eq!(bed.pull(&intent).await.1, 1, "{uid}");
        assert_eq!(bed.tip(&intent.branch).parents, [first.as_str()]);
    }
    bed.add_branch("release/1.0", "main").await;
    let mut intent = bed.intent("u-3", &REVOKE);
    intent.base_branch = Some("release/1.0".to_owned());
    assert_eq!(bed.pull(&intent).await.1, bed.differs().open);
    assert_eq!(bed.pull(&intent).await.1, 1);
    let pulls = bed.server.pulls().await;
    let bases: Vec<&str> = pulls.iter().map(|pull| pull.base.as_str()).collect();
    assert_eq!(bases, ["trunk", "trunk", "release/1.0"]);
}

pub(crate) async fn drafts_and_labels_arrive(bed: Bed<impl Server>) {
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.draft = true;
    intent.labels = vec!["security".to_owned(), "new label".to_owned()];
    intent.author = Some(Author {
        name: "Nabu".to_owned(),
        email: "nabu@ninsun.invalid".to_owned(),
    });
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, bed.differs().open_labelled);
    assert_eq!(pull.notes, Vec::<String>::new());
    let mut seen = bed.only_pull().await;
    seen.labels.sort();
    assert_eq!(seen.labels, ["new label", "security"]);
    assert!(seen.draft);
    assert_eq!(bed.pull(&intent).await.1, 1);
}
