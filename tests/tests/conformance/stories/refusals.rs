//! What a forge refuses or does not have, and what the hub says of it.

use std::collections::HashMap;

use nabu_hub::change::Intent;
use nabu_hub::forge::ForgeError;
use nabu_hub::response::ErrorType;
use nabu_tests::intents::{BINDINGS, OBSOLETE, REVOKE, set_secret};

use crate::bed::{Bed, plain};
use crate::forges::Server;

/// Every kind of change, since each may find out in its own way that something is missing.
const KINDS: [&[(&str, Option<&str>)]; 4] = [
    &REVOKE,
    &[("new.yaml", Some("kind: New\n"))],
    &[("gone.yaml", None)],
    &[],
];

fn on(intent: &Intent, base: &str) -> Intent {
    Intent {
        base_branch: Some(base.to_owned()),
        ..intent.clone()
    }
}

pub(crate) async fn a_base_branch_that_never_was_is_named(bed: Bed<impl Server>) {
    for files in KINDS {
        let intent = on(&bed.intent("u-1", files), "release");
        let detail = bed
            .fails(&intent, ErrorType::Permanent, "BaseBranchNotFound")
            .await;
        let repository = bed.server.repository();
        for words in ["\"release\"", "provider.baseBranch", &repository] {
            assert!(detail.contains(words), "{detail}");
        }
    }
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_base_branch_that_went_is_named_and_leaves_nothing(mut bed: Bed<impl Server>) {
    bed.add_branch("release", "main").await;
    // Ours is there in every state that an attempt may have left: nothing, a branch, a commit.
    let nothing = on(&bed.intent("u-1", &REVOKE), "release");
    let branch = on(&bed.intent("u-2", &REVOKE), "release");
    bed.add_branch(&branch.branch, "release").await;
    let commit = on(&bed.intent("u-3", &REVOKE), "release");
    bed.commit_of(&commit, &[plain(BINDINGS, "bindings: []\n")])
        .await;
    // The hub has worked with the base before it goes.
    bed.pull(&on(&bed.intent("u-0", &[(OBSOLETE, None)]), "release"))
        .await;
    bed.server.close(1).await;
    bed.server.delete_branch("release").await;
    for forgets in [false, true] {
        if forgets {
            bed.forget();
        }
        for intent in [&nothing, &branch, &commit] {
            let detail = bed
                .fails(intent, ErrorType::Permanent, "BaseBranchNotFound")
                .await;
            assert!(detail.contains("\"release\""), "{detail}");
        }
    }
    assert_eq!(bed.server.pulls().await.len(), 1);
    assert!(!bed.branches().contains(&nothing.branch));
}

pub(crate) async fn a_repository_that_is_not_there_is_named(bed: Bed<impl Server>) {
    for files in KINDS {
        let mut intent = bed.intent("u-1", files);
        "ninsun-labs/nowhere".clone_into(&mut intent.target.repository);
        for base in [None, Some("main".to_owned())] {
            intent.base_branch = base;
            let detail = bed
                .fails(&intent, ErrorType::Permanent, "RepositoryNotFound")
                .await;
            for words in ["ninsun-labs/nowhere", "ugallu-system/forge-token"] {
                assert!(detail.contains(words), "{detail}");
            }
        }
    }
}

pub(crate) async fn a_repository_without_a_commit_is_named(bed: Bed<impl Server>) {
    let (empty, git) = bed.server.empty_repository().await;
    let permanent = ErrorType::Permanent;
    for base in [None, Some("main".to_owned())] {
        for files in KINDS {
            let mut intent = bed.intent("u-1", files);
            intent.target.repository.clone_from(&empty);
            intent.base_branch.clone_from(&base);
            let detail = bed.fails(&intent, permanent, "RepositoryEmpty").await;
            assert!(detail.contains(&empty), "{detail}");
            if base.is_some() && !bed.differs().sees_empty_repository {
                assert!(detail.contains(&intent.branch), "{detail}");
                return;
            }
            assert!(git.refs().unwrap().is_empty(), "{files:?}");
        }
    }
}

pub(crate) async fn an_archived_repository_parks(mut bed: Bed<impl Server>) {
    let before = bed.intent("u-0", &REVOKE);
    let (there, _) = bed.pull(&before).await;
    bed.server.archive().await;
    for forgets in [false, true] {
        if forgets {
            bed.forget();
        }
        let (made, _) = bed.make(&bed.intent("u-1", &REVOKE)).await;
        let Err(ForgeError::Parked(error)) = made else {
            panic!("not parked: {made:?}");
        };
        assert_eq!(error.reason, "RepositoryArchived", "{}", error.detail);
        let repository = bed.server.repository();
        assert!(error.detail.contains(&repository), "{}", error.detail);
    }
    let (pull, requests) = bed.pull(&before).await;
    assert_eq!((pull.url, requests), (there.url, 1), "it can still be seen");
    assert_eq!(bed.branches(), ["main", before.branch.as_str()]);
}

pub(crate) async fn a_token_that_may_only_read_is_told_so(bed: Bed<impl Server>) {
    let reader = bed.server.reader().await;
    set_secret(&bed.hub.credentials, &[("token", &reader)]);
    let intent = bed.intent("u-1", &REVOKE);
    let detail = bed
        .fails(&intent, ErrorType::Unauthorized, "PermissionDenied")
        .await;
    assert!(detail.contains("give "), "no remedy: {detail}");
    assert_eq!(bed.branches(), ["main"]);
}

pub(crate) async fn a_rotated_token_needs_no_restart_and_no_token_is_ever_shown(
    bed: Bed<impl Server>,
) {
    let intent = bed.intent("u-1", &REVOKE);
    let unauthorized = ErrorType::Unauthorized;
    bed.hub.credentials.replace(HashMap::new());
    let detail = bed.fails(&intent, unauthorized, "CredentialMissing").await;
    for words in ["ugallu-system/forge-token", "GITHUB_TOKEN"] {
        assert!(detail.contains(words), "{detail}");
    }

    let revoked = "0123456789abcdef0123456789abcdef01234567";
    set_secret(&bed.hub.credentials, &[("token", revoked)]);
    let detail = bed.fails(&intent, unauthorized, "CredentialRejected").await;
    assert!(!format!("{detail} {:?}", bed.hub.forges).contains(revoked));
    set_secret(&bed.hub.credentials, &[("token", "a\nb")]);
    let detail = bed.fails(&intent, unauthorized, "CredentialRejected").await;
    assert!(!detail.contains("a\nb"), "{detail}");

    set_secret(&bed.hub.credentials, &[("token", &bed.server.token())]);
    bed.pull(&intent).await;
}
