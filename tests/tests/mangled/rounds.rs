//! Each round spoils one answer of one attempt, then lets another hub try again undisturbed.

use std::env;

use nabu_hub::change::ProviderKind;
use nabu_hub::forge::{ForgeError, Made};
use nabu_tests::fault_proxy::Fault;

use crate::bed::{BYSTANDER, Bed};

/// Answers that an attempt reads, at most.
const REQUESTS: u64 = 4;

fn setting(name: &str, default: u64) -> u64 {
    let value = env::var(name).ok();
    value.map_or(default, |text| text.parse().expect("a number"))
}

async fn survives(kind: ProviderKind, rounds: u64) {
    let bed = Bed::of(kind).await;
    let tips = bed.foreign_tips().await;
    let first = setting("FUZZ_SEED", 0);
    let mut spoiled = 0;
    for seed in first..first + setting("FUZZ_ROUNDS", rounds) {
        let uid = format!("u-{seed}");
        let intent = bed.intent(&uid);
        let number = bed.proxy.requests() + 1 + u32::try_from(seed % REQUESTS).unwrap();
        bed.proxy.add(Fault::Mangle(number, seed));
        let (made, _) = bed.hub().make(&intent).await;
        spoiled += u32::from(bed.proxy.requests() >= number);
        bed.proxy.release();
        if let Ok(Made::PullRequest(pull)) = &made {
            assert!(pull.url.starts_with("http"), "seed {seed}: {}", pull.url);
        }
        if let Err(ForgeError::Failed(error)) = &made {
            assert!(error.detail.len() < 10_000, "seed {seed}");
            assert!(!error.detail.contains('\u{0}'), "seed {seed}: {error:?}");
        }
        assert!(bed.pulls(&intent.branch).await <= 1, "seed {seed}");

        let (pull, _) = bed.hub().pull(&intent).await;
        assert_eq!(bed.pulls(&intent.branch).await, 1, "seed {seed}: {pull:?}");
        let wanted = format!("bindings: [] # {uid}\n");
        let found = bed.file(&intent.branch).await;
        assert_eq!(found.as_deref(), Some(&*wanted), "seed {seed}: {made:?}");
    }
    assert!(spoiled > 0, "no answer was spoiled");
    assert_eq!(bed.foreign_tips().await, tips);
    let ours = |name: &String| name.starts_with("nabu/prod-eu/u-");
    let others: Vec<_> = bed
        .branches()
        .await
        .into_iter()
        .filter(|b| !ours(b))
        .collect();
    assert_eq!(others, [BYSTANDER, "main"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_answers_of_github_do_no_harm() {
    survives(ProviderKind::GithubToken, 80).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_answers_of_gitlab_do_no_harm() {
    survives(ProviderKind::GitlabToken, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spoiled_answers_of_gitea_do_no_harm() {
    survives(ProviderKind::ForgejoToken, 16).await;
}
