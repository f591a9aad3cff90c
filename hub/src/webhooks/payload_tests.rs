//! Documents as forges send them, and as nobody should.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const EVENTS: [(ForgeKind, &str, &str); 4] = [
    (ForgeKind::GitHub, "x-github-event", "pull_request"),
    (ForgeKind::Forgejo, "x-forgejo-event", "pull_request"),
    (ForgeKind::Forgejo, "x-gitea-event", "pull_request"),
    (ForgeKind::GitLab, "x-gitlab-event", "Merge Request Hook"),
];

fn read_as(
    forge: ForgeKind,
    header: &'static str,
    event: &str,
    body: &[u8],
) -> Result<Event, Invalid> {
    let mut headers = HeaderMap::new();
    headers.insert(header, event.parse().unwrap());
    read(forge, &headers, body)
}

fn read_json(forge: ForgeKind, body: &Value) -> Result<Event, Invalid> {
    let (_, header, event) = EVENTS
        .into_iter()
        .find(|(kind, ..)| *kind == forge)
        .unwrap();
    read_as(forge, header, event, body.to_string().as_bytes())
}

fn pull_request(repository: &str, branch: &str) -> Value {
    json!({"repository": {"full_name": repository}, "pull_request": {"head": {
        "ref": branch, "label": branch, "repo": {"full_name": repository},
    }}})
}

fn merge_request(repository: &str, branch: &str) -> Value {
    json!({
        "object_kind": "merge_request", "project": {"path_with_namespace": repository},
        "object_attributes": {"source_branch": branch, "source_project_id": 1, "target_project_id": 1},
    })
}

fn hint(forge: ForgeKind, repository: &str, branch: &str) -> Event {
    Event::Changed(Hint {
        forge,
        repository: repository.to_owned(),
        branch: branch.to_owned(),
    })
}

#[test]
fn the_head_of_github_is_ref_and_that_of_forgejo_is_label() {
    let mut body = pull_request("acme/gitops", "nabu/1");
    body["pull_request"]["head"]["label"] = json!("acme:nabu/1");
    let expected = Ok(hint(ForgeKind::GitHub, "acme/gitops", "nabu/1"));
    assert_eq!(read_json(ForgeKind::GitHub, &body), expected);

    let mut body = pull_request("acme/gitops", "nabu/1");
    body["pull_request"]["head"]["ref"] = json!("refs/pull/7/head");
    let expected = Ok(hint(ForgeKind::Forgejo, "acme/gitops", "nabu/1"));
    assert_eq!(read_json(ForgeKind::Forgejo, &body), expected);
}

#[test]
fn escapes_in_names_are_read() {
    let body = br#"{"object_kind":"merge\u005frequest","project":{"path_with_namespace":"a\/b\/c"},
        "object_attributes":{"source_branch":"n\u00e4bu","source_project_id":1,"target_project_id":1}}"#;
    let expected = Ok(hint(ForgeKind::GitLab, "a/b/c", "näbu"));
    assert_eq!(
        read_as(ForgeKind::GitLab, "x-gitlab-event", "System Hook", body),
        expected
    );
}

#[test]
fn forks_and_what_is_left_of_them_are_of_no_interest() {
    for repo in [json!({"full_name": "mallory/gitops"}), Value::Null] {
        let mut body = pull_request("acme/gitops", "nabu/1");
        body["pull_request"]["head"]["repo"] = repo;
        assert_eq!(read_json(ForgeKind::GitHub, &body), Ok(Event::Other));
        assert_eq!(read_json(ForgeKind::Forgejo, &body), Ok(Event::Other));
    }
    for source in [json!(2), Value::Null] {
        let mut body = merge_request("acme/gitops", "nabu/1");
        body["object_attributes"]["source_project_id"] = source;
        assert_eq!(read_json(ForgeKind::GitLab, &body), Ok(Event::Other));
    }
    let mut body = pull_request("acme/gitops", "nabu/1");
    body["pull_request"]["head"] = Value::Null;
    assert_eq!(read_json(ForgeKind::Forgejo, &body), Ok(Event::Other));
}

#[test]
fn other_events_are_of_no_interest_whatever_is_in_them() {
    let others = [
        (ForgeKind::GitHub, "x-github-event", "push"),
        (ForgeKind::GitHub, "x-gitea-event", "pull_request"),
        (ForgeKind::Forgejo, "x-gitea-event", "push"),
        (ForgeKind::GitLab, "x-gitlab-event", "Push Hook"),
    ];
    for (forge, header, event) in others {
        assert_eq!(read_as(forge, header, event, b"\xff"), Ok(Event::Other));
    }
    for body in [
        json!({"object_kind": "push"}),
        json!({"event_name": "project_create"}),
    ] {
        assert_eq!(read_json(ForgeKind::GitLab, &body), Ok(Event::Other));
    }
    assert_eq!(
        read_as(ForgeKind::GitHub, "x-github-event", "ping", b""),
        Ok(Event::Ping)
    );
}

#[test]
fn huge_empty_and_control_characters_are_refused() {
    let (long_repository, long_branch) = ("r".repeat(512), "b".repeat(1024));
    let documents = |repository: &str, branch: &str| {
        [
            read_json(ForgeKind::GitHub, &pull_request(repository, branch)),
            read_json(ForgeKind::Forgejo, &pull_request(repository, branch)),
            read_json(ForgeKind::GitLab, &merge_request(repository, branch)),
        ]
    };
    assert!(
        documents(&long_repository, &long_branch)
            .iter()
            .all(Result::is_ok)
    );
    let bad = [
        (format!("{long_repository}r"), "b".to_owned()),
        ("r".to_owned(), format!("{long_branch}b")),
        (String::new(), "b".to_owned()),
        ("r".to_owned(), String::new()),
        ("r\n".to_owned(), "b".to_owned()),
        ("r".to_owned(), "b\u{1b}[2J".to_owned()),
        ("r".to_owned(), "b\u{85}".to_owned()),
    ];
    for (repository, branch) in bad {
        let refused = [const { Err(Invalid) }; 3];
        assert_eq!(
            documents(&repository, &branch),
            refused,
            "{repository:?} {branch:?}"
        );
    }
}

#[test]
fn documents_of_another_shape_are_refused() {
    let deep = "[".repeat(100_000);
    for (forge, header, event) in EVENTS {
        for body in [
            "",
            "{",
            "null",
            "[]",
            "7",
            "\"x\"",
            &deep,
            r#"{"pull_request":7,"object_kind":7}"#,
        ] {
            let read = read_as(forge, header, event, body.as_bytes());
            assert_eq!(read, Err(Invalid), "{forge:?} {body:.50}");
        }
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(body in prop::collection::vec(any::<u8>(), 0..400)) {
        for (forge, header, event) in EVENTS {
            let _ = read_as(forge, header, event, &body);
        }
    }

    #[test]
    fn documents_that_were_tampered_with_never_panic_and_stay_bounded(
        at in any::<prop::sample::Index>(), byte in any::<u8>(), branch in ".{0,40}",
    ) {
        for (forge, header, event) in EVENTS {
            let document = match forge {
                ForgeKind::GitLab => merge_request("acme/gitops", &branch),
                _ => pull_request("acme/gitops", &branch),
            };
            let mut body = document.to_string().into_bytes();
            let index = at.index(body.len());
            body[index] = byte;
            if let Ok(Event::Changed(hint)) = read_as(forge, header, event, &body) {
                let texts = [hint.repository, hint.branch];
                prop_assert!(texts.iter().all(|text| !text.is_empty() && !text.contains(char::is_control)));
            }
        }
    }
}
