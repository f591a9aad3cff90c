//! The question and its answers, without a server.

use super::*;
use crate::change::{FileAction, FileChange};
use crate::edit::{Patch, PatchType};
use crate::fixtures;

fn intent(written: usize, patched: usize) -> Intent {
    let file = |path: String, action| FileChange { path, action };
    let mut intent = fixtures::intent();
    intent.files = (0..written)
        .map(|n| file(format!("w{n}.yaml"), FileAction::Delete))
        .collect();
    intent.files.extend((0..patched).map(|n| {
        let patch = Patch::parse(PatchType::YamlSet, "a = 1", None).unwrap();
        file(format!("p{n}.yaml"), FileAction::Patch { patch })
    }));
    intent
}

#[test]
fn a_question_names_every_path_once_and_is_no_longer_than_gitlab_takes() {
    for (written, patched) in [(1, 0), (0, 1), (100, 0), (0, 100), (50, 50)] {
        let (text, variables) = document("group/name", &intent(written, patched));
        // `MAX_QUERY_SIZE` of GitLab's graphql_controller.rb.
        assert!(text.len() <= 10_000, "{}", text.len());
        let variables = variables.as_object().unwrap();
        let paths = |prefix: &str| {
            let lists = variables
                .iter()
                .filter(|(name, _)| name.starts_with(prefix));
            lists.map(|(_, list)| list.as_array().unwrap().len()).sum()
        };
        let counts: (usize, usize) = (paths("files"), paths("patched"));
        assert_eq!(counts, (written, patched));
    }
}

#[test]
fn the_base_branch_is_only_named_if_the_route_names_one() {
    let mut intent = intent(1, 0);
    intent.base_branch = Some("main".to_owned());
    let (text, variables) = document("group/name", &intent);
    assert!(
        text.contains("$base: String") && text.contains("tree(ref: $base)"),
        "{text}"
    );
    assert_eq!(variables["base"], "main");
    intent.base_branch = None;
    let (text, variables) = document("group/name", &intent);
    assert!(!text.contains("$base"), "{text}");
    assert!(variables.get("base").is_none());
}

fn answer(before: &str, after: &str) -> Value {
    let blob = |path: &str, text: &str, oid: &str, mode: &str| json!({ "path": path, "oid": oid, "mode": mode, "lfsOid": null, "rawBlob": text });
    let hello = "ce013625030ba8dba906f756967f9e9ca394464a";
    let mut lfs = blob("lfs", "hello\n", hello, "100644");
    lfs["lfsOid"] = json!("00");
    json!({ "data": { "project": {
        "fullPath": "Group/Name", "archived": false, "mergeRequestsEnabled": true,
        "mergeRequests": { "pageInfo": { "hasNextPage": false }, "nodes": [{
            "iid": "7", "state": "opened", "webUrl": "https://x.invalid/7", "description": null, "sourceBranch": "b",
            "sourceProjectId": null, "targetProjectId": 1, "diffHeadSha": null, "autoMergeEnabled": false,
        }] },
        "repository": {
            "empty": false, "rootRef": "main",
            "before": { "lastCommit": { "sha": before } },
            "files0": { "nodes": [{ "path": "w", "oid": "01", "mode": "100755" }, { "path": "link", "oid": "02", "mode": "120000" }] },
            "patched0": { "nodes": [
                blob("whole", "hello\n", hello, "100644"), blob("cut", "hell", hello, "100644"), lfs,
                blob("link2", "hello\n", hello, "120000"), blob("dir", "", "03", "40000"),
            ] },
            "after": { "lastCommit": { "sha": after } },
        },
    } } })
}

fn reading(answer: Value) -> Reading {
    read(serde_json::from_value(answer).unwrap(), "group/name")
}

fn found(answer: Value) -> Found {
    match reading(answer) {
        Reading::Found(found) => *found,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_tells_what_is_at_each_path_and_only_whole_texts() {
    let found = found(answer("a", "a"));
    assert_eq!(
        (found.requests[0].iid, found.requests[0].state.as_str()),
        (7, "opened")
    );
    assert_eq!(found.default_branch.as_deref(), Some("main"));
    let base = found.base.unwrap();
    assert_eq!(base.tip.as_deref(), Some("a"));
    assert_eq!(base.tree["w"], AtPath::File("01".to_owned()));
    assert_eq!(
        (&base.tree["link"], &base.tree["link2"]),
        (&AtPath::Link, &AtPath::Link)
    );
    assert_eq!(base.tree["dir"], AtPath::Other("a folder"));
    let texts: Vec<(&str, &Text)> = base
        .texts
        .iter()
        .map(|(path, text)| (path.as_str(), text))
        .collect();
    let whole = Text::Whole("hello\n".to_owned());
    assert_eq!(texts, [("lfs", &Text::Elsewhere), ("whole", &whole)]);
}

#[test]
fn a_base_that_moved_while_it_was_looked_at_has_no_known_tip() {
    assert_eq!(found(answer("a", "b")).base.unwrap().tip, None);
    let mut none = answer("a", "a");
    none["data"]["project"]["repository"]["before"]["lastCommit"] = Value::Null;
    assert_eq!(found(none).base, None);
}

#[test]
fn what_is_hidden_moved_or_refused_is_left_to_the_rest_api() {
    let mut moved = answer("a", "a");
    moved["data"]["project"]["fullPath"] = json!("group/elsewhere");
    let mut unreadable = answer("a", "a");
    unreadable["data"]["project"]["repository"] = Value::Null;
    for hidden in [
        json!({ "data": { "project": null } }),
        json!({}),
        moved,
        unreadable,
    ] {
        assert_eq!(reading(hidden), Reading::Hidden);
    }
    let words = "Field 'mode' doesn't exist on type 'RepositoryBlob'";
    let refused = json!({ "errors": [{ "message": words, "path": ["query"] }] });
    assert_eq!(reading(refused), Reading::Refused(words.to_owned()));
}
