//! What ends up in git and on the pull request, and how many requests that takes.

use nabu_hub::change::MergeMethod;
use nabu_hub::forge::{Job, Made, PullRequestState};
use nabu_hub::response::ErrorType;
use nabu_tests::test_forge::github::{File, PERSON, Protection, Rule, TEAM};

use crate::bed::{BINDINGS, Bed, OBSOLETE, REVOKE};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_pull_request_takes_two_requests_and_a_second_look_one() {
    let mut bed = Bed::new().await;
    let intent = bed.intent("u-1", &REVOKE);
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 2);
    assert_eq!(
        bed.github.requests().len(),
        2,
        "{:?}",
        bed.github.requests()
    );
    assert!(!pull.adopted);
    assert_eq!(pull.state, PullRequestState::Open);

    let pulls = bed.repository.pulls().unwrap();
    assert_eq!(pulls.len(), 1);
    let there = &pulls[0];
    assert_eq!((&there.title, &there.body), (&intent.title, &intent.body));
    assert_eq!((there.base.as_str(), &there.head), ("main", &intent.branch));
    assert_eq!(pull.commit.as_ref(), Some(&there.head_oid));
    assert!(
        pull.url.ends_with(&format!("/{}", there.number)),
        "{}",
        pull.url
    );
    let commits = bed.repository.log(&intent.branch).unwrap();
    let message = commits[0].message.trim_end();
    assert_eq!(message, intent.commit_message.trim_end());
    let file = bed.file(&intent.branch, BINDINGS);
    assert_eq!(file.as_deref(), Some("bindings: []\n"));

    bed.forget();
    let (again, requests) = bed.pull(&intent).await;
    assert_eq!((again.url, again.adopted, requests), (pull.url, true, 1));
    assert_eq!(bed.repository.pulls().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_files_with_unusual_names_take_two_requests() {
    let bed = Bed::new().await;
    let names: Vec<String> = (0..50)
        .map(|number| match number {
            0 => "a b/ü ‑ \"quoted\" 'x'/100%.yaml".to_owned(),
            1 => "-dash/{braces}/$dollar".to_owned(),
            2 => "日本/語.yaml".to_owned(),
            number => format!("generated/{number}.yaml"),
        })
        .collect();
    let mut files: Vec<(&str, Option<&str>)> = names
        .iter()
        .map(|name| (name.as_str(), Some("kind: X\r\n\u{1}\u{7f}é")))
        .collect();
    files.push((OBSOLETE, None));
    files.push(("not/there.yaml", None));
    let intent = bed.intent("u-1", &files);
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 2);
    for name in &names {
        let file = bed.file(&intent.branch, name);
        assert_eq!(file.as_deref(), Some("kind: X\r\n\u{1}\u{7f}é"), "{name}");
    }
    assert_eq!(bed.file(&intent.branch, OBSOLETE), None);
    assert!(
        bed.file(&intent.branch, BINDINGS).is_some(),
        "the rest stays"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_needs_no_action_and_leaves_nothing() {
    let bed = Bed::new().await;
    let there: [(&str, Option<&str>); 2] = [
        (BINDINGS, Some("bindings: [ops-admin]\n")),
        ("not/there.yaml", None),
    ];
    let (made, requests) = bed.make(&bed.intent("u-1", &there)).await;
    assert!(matches!(made, Ok(Made::NoActionNeeded { .. })), "{made:?}");
    assert_eq!(requests, 1);
    assert_eq!(bed.repository.branches().unwrap(), ["main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn executable_files_keep_their_mode_and_a_link_is_never_written_to() {
    let bed = Bed::new().await;
    bed.repository
        .add_files(
            "main",
            &[
                File::executable("bin/run", "#!/bin/sh\n"),
                File::symlink("current", "clusters/prod-eu"),
            ],
        )
        .unwrap();
    let files = [
        ("bin/run", Some("#!/bin/sh\nexit 0\n")),
        ("plain.yaml", Some("kind: X\n")),
        (OBSOLETE, None),
    ];
    let intent = bed.intent("u-1", &files);
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 4);
    let tree = bed.repository.tree(&intent.branch).unwrap();
    let mode = |path: &str| {
        let entry = tree.iter().find(|(_, _, name)| name == path);
        entry.map(|(mode, _, _)| mode.as_str())
    };
    assert_eq!(mode("bin/run"), Some("100755"));
    assert_eq!(mode("plain.yaml"), Some("100644"));
    assert_eq!(mode(OBSOLETE), None);
    assert_eq!(mode(BINDINGS), Some("100644"), "the rest stays");
    let run = bed.file(&intent.branch, "bin/run");
    assert_eq!(run.as_deref(), Some("#!/bin/sh\nexit 0\n"));

    for target in ["clusters/prod-us", "clusters/prod-eu"] {
        let through = bed.intent("u-2", &[("current", Some(target))]);
        let error = bed.failure(&through).await;
        let said = (error.kind, error.reason.as_str());
        assert_eq!(said, (ErrorType::Permanent, "NotAFile"), "{target}");
        let words = "is a symbolic link, no file; create a new EventResponse that names a file";
        assert!(error.detail.contains(words), "{}", error.detail);
    }
    let away = bed.intent("u-3", &[("current", None)]);
    bed.pull(&away).await;
    let tree = bed.repository.tree(&away.branch).unwrap();
    assert!(tree.iter().all(|(_, _, name)| name != "current"));
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_people_and_auto_merge_take_one_request_more() {
    let bed = Bed::new().await;
    bed.repository.add_label("security").unwrap();
    bed.repository.allow_auto_merge(true).unwrap();
    // Something to wait for: else GitHub wants the merge itself.
    bed.repository
        .protect(Rule {
            branches: "main".to_owned(),
            protection: Protection::Branch,
            message: "Changes must be made through a pull request.".to_owned(),
        })
        .unwrap();
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.labels = vec!["security".to_owned(), "new label".to_owned()];
    intent.reviewers = vec![PERSON.to_owned(), "nobody".to_owned()];
    intent.options.team_reviewers = vec![TEAM.to_owned()];
    intent.options.assignees = vec![PERSON.to_owned()];
    intent.options.auto_merge = Some(MergeMethod::Squash);
    let (pull, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 3);
    assert_eq!(pull.notes.len(), 1, "{:?}", pull.notes);
    assert!(pull.notes[0].contains("nobody"), "{:?}", pull.notes);

    let there = &bed.repository.pulls().unwrap()[0];
    let mut labels = there.labels.clone();
    labels.sort();
    assert_eq!(labels, ["new label", "security"]);
    assert_eq!(there.reviewers.len(), 2, "{:?}", there.reviewers);
    assert_eq!(there.assignees, [PERSON]);
    assert!(there.auto_merge);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_a_draft() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.draft = true;
    bed.pull(&intent).await;
    assert!(bed.repository.pulls().unwrap()[0].draft);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_merge_that_is_not_allowed_is_told_and_costs_nothing_else() {
    let bed = Bed::new().await;
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.options.auto_merge = Some(MergeMethod::Merge);
    let (pull, _) = bed.pull(&intent).await;
    assert!(
        pull.notes[0].starts_with("auto-merge: "),
        "{:?}",
        pull.notes
    );
    assert_eq!(pull.state, PullRequestState::Open);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_base_branch_the_default_branch_is_taken() {
    let bed = Bed::new().await;
    bed.repository.add_branch("trunk", "main").unwrap();
    bed.repository.set_default_branch("trunk").unwrap();
    let mut intent = bed.intent("u-1", &REVOKE);
    intent.base_branch = None;
    let (_, requests) = bed.pull(&intent).await;
    assert_eq!(requests, 2);
    assert_eq!(bed.repository.pulls().unwrap()[0].base, "trunk");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_responses_that_wait_together_need_fewer_than_two_requests_each() {
    let bed = std::sync::Arc::new(Bed::new().await);
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..100 {
        let bed = std::sync::Arc::clone(&bed);
        tasks.spawn(async move {
            let path = format!("responses/{number}.yaml");
            let files = [(path.as_str(), Some("kind: X\n"))];
            let intent = bed.intent(&format!("u-{number}"), &files);
            bed.pull(&intent).await.1
        });
    }
    let requests: u32 = tasks.join_all().await.into_iter().sum();
    let served = bed.github.requests().len();
    assert_eq!(
        usize::try_from(requests).unwrap(),
        served,
        "every request is counted once"
    );
    assert!(served < 200, "{served} requests");
    assert_eq!(bed.repository.pulls().unwrap().len(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_became_of_many_pull_requests_takes_one_request() {
    let bed = Bed::new().await;
    let mut intents = Vec::new();
    for number in 0..25 {
        let path = format!("responses/{number}.yaml");
        let intent = bed.intent(
            &format!("u-{number}"),
            &[(path.as_str(), Some("kind: X\n"))],
        );
        bed.pull(&intent).await;
        intents.push(intent);
    }
    let merged = bed.repository.merge(1).unwrap();
    bed.repository.close(2).unwrap();
    bed.github.clear_requests();

    let key = nabu_tests::intents::key("u-0");
    let job = Job::new(&key, &intents[0]);
    let forge = bed.hub.forges.get(&bed.target()).unwrap();
    let numbers: Vec<u64> = (1..=26).collect();
    let observed = forge.observe(&job, &numbers).await.unwrap();
    assert_eq!(bed.github.requests().len(), 1);
    assert_eq!(observed.len(), 25, "one that does not exist is left out");
    let of = |number| observed.iter().find(|pull| pull.number == number).unwrap();
    assert_eq!(of(1).state, PullRequestState::Merged);
    assert_eq!(of(1).merge_commit.as_ref(), Some(&merged));
    assert!(of(1).ended_at.is_some());
    assert_eq!(of(2).state, PullRequestState::Closed);
    assert_eq!(of(3).state, PullRequestState::Open);

    forge.remove_branch(&job, 1).await.unwrap();
    forge.remove_branch(&job, 3).await.unwrap();
    let branches = bed.repository.branches().unwrap();
    assert!(!branches.contains(&intents[0].branch));
    assert!(branches.contains(&intents[2].branch), "it is not merged");
}
