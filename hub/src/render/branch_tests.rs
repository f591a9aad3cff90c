//! Names of branches, against Git itself and against other clusters.

use proptest::prelude::*;

use super::*;

const UID: &str = "11111111-2222-3333-4444-555555555555";

fn key() -> ResponseKey {
    ResponseKey {
        cluster: "prod-eu".parse().unwrap(),
        uid: UID.parse().unwrap(),
    }
}

fn branch(
    requested: Option<&str>,
    rendered: Option<&str>,
    override_allowed: bool,
) -> Result<String, ResponseError> {
    decide(Wanted {
        key: &key(),
        prefix: "nabu/",
        base: None,
        requested,
        rendered,
        override_allowed,
    })
}

#[test]
fn without_wishes_a_branch_is_named_after_its_response() {
    assert_eq!(
        branch(None, None, false).unwrap(),
        format!("nabu/prod-eu/{UID}")
    );
    assert_eq!(
        branch(None, Some("../.."), false).unwrap(),
        format!("nabu/prod-eu/{UID}")
    );
}

#[test]
fn a_requested_branch_stays_in_its_clusters_own_room() {
    assert_eq!(
        branch(Some("nabu/prod-eu/fix"), None, false).unwrap(),
        "nabu/prod-eu/fix"
    );
    for requested in [
        "fix",
        "nabu/fix",
        "nabu/prod-us/fix",
        "nabu/prod-eu",
        "nabu/prod-eu-2/x",
        "nabu/prod-eu/a..b",
    ] {
        let error = branch(Some(requested), None, false).unwrap_err();
        assert_eq!(error.reason, "BranchNotAllowed", "{requested}");
    }
    assert_eq!(branch(Some("feature/x"), None, true).unwrap(), "feature/x");
    assert!(
        branch(Some(&format!("nabu/prod-us/{UID}")), None, true).is_err(),
        "another cluster's"
    );
}

#[test]
fn the_base_branch_is_never_taken() {
    for base in [None, Some("release"), Some("main")] {
        for requested in ["main", "Master", "HEAD", base.unwrap_or("main")] {
            let wanted = Wanted {
                key: &key(),
                prefix: "",
                base,
                requested: Some(requested),
                rendered: None,
                override_allowed: true,
            };
            assert_eq!(
                decide(wanted).unwrap_err().reason,
                "BranchNotAllowed",
                "{requested}"
            );
        }
    }
}

#[test]
fn a_template_gives_the_middle_of_the_name() {
    for (rendered, expected) in [
        (
            "ClusterAdminGranted",
            format!("nabu/prod-eu/ClusterAdminGranted/{UID}"),
        ),
        (&format!("prod-eu/{UID}"), format!("nabu/prod-eu/{UID}")),
        (&format!("fix-{UID}"), format!("nabu/prod-eu/fix-{UID}")),
        ("prod-us/x", format!("nabu/prod-eu/prod-us/x/{UID}")),
        ("a b\n/.c/../d.lock", format!("nabu/prod-eu/a-b/c/d/{UID}")),
    ] {
        assert_eq!(branch(None, Some(rendered), false).unwrap(), expected);
    }
    assert_eq!(
        branch(None, Some("just/this"), true).unwrap(),
        "nabu/just/this"
    );
}

#[test]
fn names_that_git_does_not_take_are_refused() {
    let long = "x".repeat(241);
    for name in [
        "",
        "-x",
        "@",
        "HEAD",
        "refs/heads/x",
        "a..b",
        "a@{b",
        "a.",
        "a b",
        "a~b",
        "a^b",
        "a:b",
        "a?b",
        "a*b",
        "a[b",
        "a\\b",
        "/a",
        "a/",
        "a//b",
        ".a",
        "a/.b",
        "a.lock",
        "a.lock/b",
        "a\u{7f}",
        "a\u{202e}b",
        &"a".repeat(40),
        &long,
    ] {
        assert!(check(name).is_err(), "{name:?}");
    }
}

/// The rules of git-check-ref-format(1).
#[expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "Git compares the case"
)]
fn git_takes(name: &str) -> bool {
    let control = |c: char| u32::from(c) < 0x20 || c == '\u{7f}' || " ~^:?*[\\".contains(c);
    name.split('/')
        .all(|part| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock"))
        && !name.contains("..")
        && !name.chars().any(control)
        && !name.ends_with('.')
        && !name.contains("@{")
        && name != "@"
}

proptest! {
    #[test]
    fn every_accepted_name_is_valid_to_git(name in prop_oneof![any::<String>(), "[a-c./@{~^:?*\\[\\\\ -]{0,12}(\\.lock)?"]) {
        if check(&name).is_ok() {
            prop_assert!(git_takes(&name) && !name.starts_with('-') && name.len() <= 240);
        }
    }

    #[test]
    fn every_rendered_name_is_valid_and_the_clusters_own(
        rendered in prop_oneof![any::<String>(), "[a-c./@-]{0,300}(\\.lock)?(/\\.\\.)?"],
    ) {
        let name = branch(None, Some(&rendered), false).unwrap();
        prop_assert!(git_takes(&name) && check(&name).is_ok());
        prop_assert!(name.starts_with("nabu/prod-eu/") && name.ends_with(UID));
    }
}

#[test]
fn git_itself_agrees() {
    use std::process::Command;
    for rendered in [
        "a",
        "a.lock",
        "..",
        "@",
        "x/@{y",
        "a//b",
        "-",
        "é",
        "a.lock.lock/b.",
        "~^:?*[\\",
    ] {
        let name = branch(None, Some(rendered), false).unwrap();
        let Ok(status) = Command::new("git")
            .args(["check-ref-format", "--branch", &name])
            .output()
        else {
            return;
        };
        assert!(status.status.success(), "{name}");
    }
}
