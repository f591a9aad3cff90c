//! What must hold on every forge when the pull request of a response is made to show another content. Written once: each
//! forge's tests hand in a [`Stage`] and what a step may cost.

use nabu_hub::change::{FileAction, FileChange, ForgeTarget, Intent, content_digest};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::{Amended, Amending, ForgeError, PullRequestState};
use nabu_hub::response::ErrorType;

use crate::intents::{BINDINGS, HubForges, OBSOLETE, intent, key};

const EXTRA: &str = "clusters/prod-eu/extra.yaml";
const OTHER: &str = "clusters/prod-eu/other.yaml";

/// The commit at the tip of a branch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tip {
    /// Its id.
    pub oid: String,
    /// The ids of those before it.
    pub parents: Vec<String>,
    /// Its message.
    pub message: String,
}

/// A pull request as people see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Whether it waits.
    pub open: bool,
    /// Its title.
    pub title: String,
    /// Its body.
    pub body: String,
}

/// A repository with the usual files on `main`, and a hub's forges.
pub trait Stage: Sync {
    /// The forges of the hub.
    fn hub(&self) -> &HubForges;
    /// Where changes go.
    fn target(&self) -> ForgeTarget;
    /// What a file says on a branch.
    fn file(&self, branch: &str, path: &str) -> impl Future<Output = Option<String>> + Send;
    /// The tip of a branch.
    fn tip(&self, branch: &str) -> impl Future<Output = Tip> + Send;
    /// A pull request.
    fn shown(&self, number: u64) -> impl Future<Output = Shown> + Send;
    /// Somebody commits a file to a branch.
    fn add_file(&self, branch: &str, path: &str, contents: &str)
    -> impl Future<Output = ()> + Send;
    /// Somebody merges a pull request.
    fn merge(&self, number: u64) -> impl Future<Output = ()> + Send;
}

/// What the pull request was opened with.
fn first(stage: &impl Stage) -> Intent {
    let files = [
        (BINDINGS, Some("bindings: []\n")),
        (EXTRA, Some("extra: true\n")),
        (OBSOLETE, None),
    ];
    intent(stage.target(), "u-1", &files)
}

/// What it is to show.
fn second(stage: &impl Stage) -> Intent {
    let files = [
        (BINDINGS, Some("bindings: [reader]\n")),
        (OTHER, Some("other: true\n")),
    ];
    titled(intent(stage.target(), "u-1", &files), "Bind a reader")
}

fn titled(mut intent: Intent, title: &str) -> Intent {
    title.clone_into(&mut intent.title);
    let digest = content_digest(
        &intent.target.repository,
        Some("main"),
        &intent.branch,
        &intent.files,
    );
    let marker = Intent::marker(&key("u-1"), &digest);
    intent.body = format!("## {title}\n\nFor a reason.\n\n{marker}");
    let (_, rest) = intent.commit_message.split_once('\n').unwrap_or_default();
    intent.commit_message = format!("{title}\n{rest}");
    intent
}

fn paths(intent: &Intent) -> Vec<String> {
    intent.files.iter().map(|file| file.path.clone()).collect()
}

fn amending<'a>(commit: Option<&'a str>, leftovers: &'a [String]) -> Amending<'a> {
    Amending {
        number: 1,
        commit,
        leftovers,
        again: false,
    }
}

/// The commit that a pull request shows now.
fn updated(result: Result<Option<Amended>, ForgeError>) -> String {
    match result {
        Ok(Some(Amended::Updated {
            commit: Some(commit),
            notes,
            ..
        })) => {
            assert_eq!(notes, Vec::<String>::new());
            commit
        }
        other => panic!("not updated: {other:?}"),
    }
}

fn refused(result: &Result<Option<Amended>, ForgeError>) {
    let error = match result {
        Err(ForgeError::Failed(error)) => error,
        other => panic!("not refused: {other:?}"),
    };
    let what = (error.kind, error.reason.as_str());
    assert_eq!(
        what,
        (ErrorType::Conflicting, "BranchTaken"),
        "{}",
        error.detail
    );
}

async fn assert_shows_second(stage: &impl Stage, intent: &Intent) {
    let file = async |path| stage.file(&intent.branch, path).await;
    let before = stage.file("main", OBSOLETE).await;
    assert!(before.is_some());
    assert_eq!(
        file(BINDINGS).await.as_deref(),
        Some("bindings: [reader]\n")
    );
    assert_eq!(file(OTHER).await.as_deref(), Some("other: true\n"));
    assert_eq!(file(EXTRA).await, None, "it was not there before");
    assert_eq!(file(OBSOLETE).await, before, "it is back");
    let shown = stage.shown(1).await;
    assert!(shown.open && shown.title == intent.title, "{shown:?}");
    assert_eq!(shown.body.trim_end(), intent.body);
}

/// One more commit on top of ours makes it show the new content, and the title and body are new; asking again costs a
/// look and changes nothing.
///
/// # Panics
/// If that does not hold.
pub async fn one_more_commit_shows_the_new_content(stage: &impl Stage, cost: u32, look: u32) {
    let (one, two) = (first(stage), second(stage));
    let (pull, _) = stage.hub().pull(&one).await;
    let old = stage.tip(&one.branch).await;
    assert_eq!(pull.commit.as_ref(), Some(&old.oid));
    // The base branch goes on, which is none of our business.
    stage.add_file("main", "elsewhere.txt", "x\n").await;
    let leftovers = paths(&one);
    let wish = amending(Some(&old.oid), &leftovers);
    let (result, requests) = stage.hub().amend(&two, &wish).await;
    let commit = updated(result);
    assert_eq!(requests, cost);
    let tip = stage.tip(&one.branch).await;
    assert_eq!((&tip.oid, &tip.parents), (&commit, &vec![old.oid.clone()]));
    assert!(
        tip.message.starts_with("Bind a reader\n"),
        "{}",
        tip.message
    );
    assert!(
        tip.message.contains("Nabu-Response: u-1"),
        "{}",
        tip.message
    );
    assert_shows_second(stage, &two).await;

    let again = Amending {
        again: true,
        ..wish
    };
    let (result, requests) = stage.hub().amend(&two, &again).await;
    assert_eq!((updated(result), requests), (commit.clone(), look));
    assert_eq!(stage.tip(&one.branch).await.oid, commit);
    // Only the text is another.
    let text = titled(two.clone(), "Bind a reader, please");
    let (result, _) = stage
        .hub()
        .amend(&text, &amending(Some(&commit), &leftovers))
        .await;
    assert_eq!(updated(result), commit);
    assert_shows_second(stage, &text).await;
}

/// A commit of somebody else on top of ours, or one of ours that nobody knows of, is left alone; so is the text.
///
/// # Panics
/// If that does not hold.
pub async fn nothing_is_put_on_top_of_another_commit(stage: &impl Stage) {
    let (one, two) = (first(stage), second(stage));
    let (pull, _) = stage.hub().pull(&one).await;
    let leftovers = paths(&one);
    let unknown = amending(Some("0123456789012345678901234567890123456789"), &leftovers);
    let before = stage.shown(1).await;
    refused(&stage.hub().amend(&two, &unknown).await.0);
    let again = Amending {
        again: true,
        ..unknown
    };
    refused(&stage.hub().amend(&two, &again).await.0);
    stage.add_file(&one.branch, "mine.txt", "mine\n").await;
    let tip = stage.tip(&one.branch).await;
    for again in [false, true] {
        let wish = Amending {
            again,
            ..amending(pull.commit.as_deref(), &leftovers)
        };
        refused(&stage.hub().amend(&two, &wish).await.0);
    }
    assert_eq!(stage.tip(&one.branch).await, tip);
    assert_eq!(stage.shown(1).await, before);
}

/// A commit that an interrupted try has made is found, and a further content goes on top of it.
///
/// # Panics
/// If that does not hold.
pub async fn a_commit_that_nobody_noted_is_found(stage: &impl Stage) {
    let (one, two) = (first(stage), second(stage));
    let (pull, _) = stage.hub().pull(&one).await;
    let known = pull.commit.as_deref();
    let leftovers = paths(&one);
    let lost = updated(
        stage
            .hub()
            .amend(&two, &amending(known, &leftovers))
            .await
            .0,
    );
    let mut three = titled(
        intent(stage.target(), "u-1", &[(EXTRA, Some("third\n"))]),
        "Third",
    );
    three.files.sort_by(|a, b| a.path.cmp(&b.path));
    let leftovers = [paths(&one), paths(&two)].concat();
    refused(
        &stage
            .hub()
            .amend(&three, &amending(known, &leftovers))
            .await
            .0,
    );
    let again = Amending {
        again: true,
        ..amending(known, &leftovers)
    };
    let commit = updated(stage.hub().amend(&three, &again).await.0);
    let tip = stage.tip(&one.branch).await;
    assert_eq!((tip.oid, tip.parents), (commit, vec![lost]));
    for path in [BINDINGS, OTHER, OBSOLETE] {
        let there = stage.file("main", path).await;
        assert_eq!(stage.file(&one.branch, path).await, there, "{path}");
    }
    let extra = stage.file(&one.branch, EXTRA).await;
    assert_eq!(extra.as_deref(), Some("third\n"));
}

/// One that was merged is left as it is, and one that is not shown is said to be none.
///
/// # Panics
/// If that does not hold.
pub async fn what_has_ended_is_left_alone(stage: &impl Stage) {
    let (one, two) = (first(stage), second(stage));
    let (pull, _) = stage.hub().pull(&one).await;
    stage.merge(1).await;
    let before = stage.shown(1).await;
    let leftovers = paths(&one);
    let wish = amending(pull.commit.as_deref(), &leftovers);
    match stage.hub().amend(&two, &wish).await {
        (Ok(Some(Amended::Ended(ended))), 1) => {
            assert_eq!(ended.pull.state, PullRequestState::Merged);
            assert_eq!(ended.url, pull.url);
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stage.shown(1).await, before);
    let nobody = Amending { number: 9, ..wish };
    assert_eq!(stage.hub().amend(&two, &nobody).await.0, Ok(None));
}

/// A patch applies to the file below our commits, whatever the base branch has become, and the diff is in the body.
///
/// # Panics
/// If that does not hold.
pub async fn a_patch_applies_to_the_file_below_our_commits(stage: &impl Stage) {
    let app = "clusters/prod-eu/app.yaml";
    let before = "replicas: 3 # since the incident\nimage: a\n";
    stage.add_file("main", app, before).await;
    let patching = |lines: &str| {
        let mut intent = titled(intent(stage.target(), "u-1", &[]), "Scale");
        let patch = Patch::parse(PatchType::YamlSet, lines, None).expect("a patch");
        intent.files.push(FileChange {
            path: app.to_owned(),
            action: FileAction::Patch { patch },
        });
        intent
    };
    let one = patching("replicas = 5");
    let (pull, _) = stage.hub().pull(&one).await;
    let two = patching("image = b");
    let leftovers = paths(&one);
    let wish = amending(pull.commit.as_deref(), &leftovers);
    updated(stage.hub().amend(&two, &wish).await.0);
    let file = stage.file(&one.branch, app).await;
    let expected = "replicas: 3 # since the incident\nimage: b\n";
    assert_eq!(file.as_deref(), Some(expected));
    let body = stage.shown(1).await.body;
    assert!(body.contains("\n+image: b"), "{body}");
    assert!(!body.contains("replicas: 5"), "{body}");
}
