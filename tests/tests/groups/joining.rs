//! Who shares, who goes its own way, and what it costs.

use nabu_hub::change::{FileAction, FileChange, Intent};
use nabu_hub::edit::{Patch, PatchType};
use nabu_hub::forge::{Made, PullRequestState, Shared};
use nabu_tests::intents::BINDINGS;

use crate::on_every_forge;
use crate::stage::{BRANCH, Stage, make};

on_every_forge!(
    members_share_one_pull_request_and_keep_a_commit_and_a_section_each,
    a_store_that_was_lost_finds_every_member_again,
    a_group_that_is_full_leaves_the_next_one_alone,
    after_a_merge_members_are_found_and_the_next_one_goes_alone,
    after_a_close_the_next_one_goes_alone,
    a_commit_of_somebody_else_is_kept_and_the_next_one_goes_alone,
    a_member_builds_on_what_the_others_have_made,
    what_another_member_has_done_is_done,
    what_the_base_has_already_needs_no_group,
    a_patch_that_the_others_have_made_impossible_goes_alone,
    two_hubs_at_once_lose_no_commit,
);

async fn members_share_one_pull_request_and_keep_a_commit_and_a_section_each(stage: &mut Stage) {
    let (first, requests) = stage.share(&stage.writer("u-1")).await;
    assert_eq!(requests, stage.first);
    assert!(!first.adopted && first.commit.is_some());
    for uid in ["u-2", "u-3"] {
        let (later, requests) = stage.share(&stage.writer(uid)).await;
        assert_eq!((later.url.as_str(), requests), (&*first.url, stage.later));
        assert!(later.commit.is_some() && later.commit != first.commit);
    }
    let pull = stage.the_pull().await;
    assert_eq!((&*pull.title, &*pull.head), ("Changes in prod-eu", BRANCH));
    assert!(pull.body.starts_with("Each commit is"), "{}", pull.body);
    for uid in ["u-1", "u-2", "u-3"] {
        assert_eq!(pull.body.matches(&format!("uid={uid} ")).count(), 1);
        assert!(
            pull.body.contains(&format!("### Change {uid}\n")),
            "{}",
            pull.body
        );
        let file = stage.file(BRANCH, &format!("new/{uid}.yaml")).await;
        assert_eq!(file.as_deref(), Some("x: 1\n"));
    }
    assert_eq!(stage.members().await, ["u-1", "u-2", "u-3"]);
}

async fn a_store_that_was_lost_finds_every_member_again(stage: &mut Stage) {
    let mut commits = Vec::new();
    for uid in ["u-1", "u-2"] {
        commits.push(stage.share(&stage.writer(uid)).await.0.commit);
    }
    stage.forget();
    for uid in ["u-1", "u-2"] {
        let (again, _) = stage.share(&stage.writer(uid)).await;
        assert!(again.adopted);
    }
    assert_eq!(stage.members().await, ["u-1", "u-2"]);
    stage.share(&stage.writer("u-3")).await;
    assert_eq!(stage.members().await, ["u-1", "u-2", "u-3"]);
    let body = stage.the_pull().await.body;
    assert_eq!(body.matches("### Change").count(), 3, "{body}");
}

async fn a_group_that_is_full_leaves_the_next_one_alone(stage: &mut Stage) {
    let [one, two, three] = ["u-1", "u-2", "u-3"].map(|uid| {
        let mut intent = stage.writer(uid);
        intent.group.as_mut().unwrap().max_responses = 2;
        intent
    });
    for member in [&one, &two] {
        stage.share(member).await;
    }
    let own = stage.alone(&three).await;
    stage.forget();
    let again = stage.alone(&three).await;
    assert_eq!((again.url, again.adopted), (own.url, true));
    let (still, _) = stage.share(&one).await;
    assert!(still.adopted);
    assert_eq!(stage.pulls().await.len(), 2);
    assert_eq!(stage.members().await, ["u-1", "u-2"]);
}

async fn after_a_merge_members_are_found_and_the_next_one_goes_alone(stage: &mut Stage) {
    let (first, _) = stage.share(&stage.writer("u-1")).await;
    stage.share(&stage.writer("u-2")).await;
    stage.merge(stage.the_pull().await.number).await;
    let own = stage.alone(&stage.writer("u-3")).await;
    assert_ne!(own.url, first.url);
    stage.forget();
    for uid in ["u-1", "u-2"] {
        let (again, _) = stage.share(&stage.writer(uid)).await;
        assert_eq!(
            (again.state, again.url.as_str()),
            (PullRequestState::Merged, &*first.url)
        );
    }
    assert_eq!(stage.pulls().await.len(), 2);
}

async fn after_a_close_the_next_one_goes_alone(stage: &mut Stage) {
    let (first, _) = stage.share(&stage.writer("u-1")).await;
    stage.close_as_person(stage.the_pull().await.number).await;
    let own = stage.alone(&stage.writer("u-2")).await;
    assert_ne!(own.url, first.url);
    let (again, _) = stage.share(&stage.writer("u-1")).await;
    assert_eq!(again.state, PullRequestState::Closed);
}

async fn a_commit_of_somebody_else_is_kept_and_the_next_one_goes_alone(stage: &mut Stage) {
    stage.share(&stage.writer("u-1")).await;
    stage.commit_as_person(BRANCH, "mine.txt", "mine\n").await;
    stage.alone(&stage.writer("u-2")).await;
    stage.forget();
    let (again, _) = stage.share(&stage.writer("u-1")).await;
    assert!(again.adopted, "who is in it stays in it");
    assert_eq!(stage.members().await, ["somebody else", "u-1"]);
    let mine = stage.file(BRANCH, "mine.txt").await;
    assert_eq!(mine.as_deref(), Some("mine\n"));
}

fn patching(stage: &Stage, uid: &str, lines: &str) -> Intent {
    let patch = Patch::parse(PatchType::YamlSet, lines, None).unwrap();
    let file = FileChange {
        path: "app.yaml".to_owned(),
        action: FileAction::Patch { patch },
    };
    Intent {
        files: vec![file],
        ..stage.writer(uid)
    }
}

async fn a_member_builds_on_what_the_others_have_made(stage: &mut Stage) {
    stage
        .commit_as_person("main", "app.yaml", "a: 1 # one\nb: 1\n")
        .await;
    stage.share(&patching(stage, "u-1", "a = 2")).await;
    let (_, requests) = stage.share(&patching(stage, "u-2", "b = 3")).await;
    let more = u32::from(stage.finds_out_late());
    assert_eq!(requests, stage.later + more, "a patched file is read");
    let file = stage.file(BRANCH, "app.yaml").await;
    assert_eq!(file.as_deref(), Some("a: 2 # one\nb: 3\n"));
    let body = stage.the_pull().await.body;
    assert!(
        body.contains("+a: 2 # one") && body.contains("+b: 3"),
        "{body}"
    );
    // One that deletes what another has written.
    let delete = stage.member("u-3", &[("app.yaml", None)]);
    stage.share(&delete).await;
    assert_eq!(stage.file(BRANCH, "app.yaml").await, None);
}

async fn what_another_member_has_done_is_done(stage: &mut Stage) {
    let same = [("new/same.yaml", Some("x: 1\n"))];
    let (first, _) = stage.share(&stage.member("u-1", &same)).await;
    let (made, _) = stage.make(&stage.member("u-2", &same)).await;
    let Ok(Made::Shared(Shared { pull, done_before })) = made else {
        panic!("{made:?}")
    };
    assert_eq!(pull.url, first.url);
    // Forgejo and Gitea do not say beforehand that a commit would be empty.
    assert_eq!(done_before, !stage.finds_out_late());
    assert_eq!(stage.pulls().await.len(), 1);
}

async fn what_the_base_has_already_needs_no_group(stage: &mut Stage) {
    stage.commit_as_person("main", "there.yaml", "x: 1\n").await;
    let first = stage.member("u-1", &[("there.yaml", Some("x: 1\n"))]);
    let (made, _) = stage.make(&first).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    stage.share(&stage.writer("u-2")).await;
    let later = stage.member("u-3", &[("gone.yaml", None)]);
    let (made, _) = stage.make(&later).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(stage.members().await, ["u-2"]);
}

async fn a_patch_that_the_others_have_made_impossible_goes_alone(stage: &mut Stage) {
    stage
        .commit_as_person("main", "app.yaml", "a: {b: 1}\n")
        .await;
    let whole = stage.member("u-1", &[("app.yaml", Some("- a list\n"))]);
    stage.share(&whole).await;
    stage.alone(&patching(stage, "u-2", "a.b = 2")).await;
    assert_eq!(stage.members().await, ["u-1"]);
}

async fn two_hubs_at_once_lose_no_commit(stage: &mut Stage) {
    stage.share(&stage.writer("u-0")).await;
    let other = stage.another_hub();
    let (one, two) = (stage.writer("u-1"), stage.writer("u-2"));
    let (first, second) = tokio::join!(stage.make(&one), make(&other, &two, false));
    let mut members = vec!["u-0"];
    for (uid, made) in [("u-1", first.0), ("u-2", second.0)] {
        match made {
            Ok(Made::Shared(_)) => members.push(uid),
            // Whoever was too late says so, and the next attempt finds its place.
            Err(_) => {
                let intent = stage.writer(uid);
                stage.make_again(&intent).await.0.unwrap();
                members.push(uid);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stage.members().await, members);
    let bindings = stage.file(BRANCH, BINDINGS).await;
    assert_eq!(bindings, stage.file("main", BINDINGS).await);
}
