//! `kubectl get` and `kubectl describe` answer what happened and where the pull request is. `make charts` writes the files again.

use anyhow::Result;
use nabu_tests::agent::TestAgent;
use nabu_tests::charts::kubectl_on;
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::{config, event_response, security_event, token_secret, write_file};
use nabu_tests::process::repository_root;
use nabu_tests::wait::eventually;
use serde_json::Value;

use crate::bed::{LIMIT, shared};
use crate::generated::check;

/// The text without what is another in every run: ids, times, ages, and the space that they take.
fn settled(text: &str) -> String {
    let mut settled = String::new();
    for line in text.lines() {
        let words = line.split(' ').map(|word| {
            let word = word.trim_end();
            let id = word.len() > 30
                && word.matches('-').count() == 4
                && word.starts_with(|c: char| c.is_ascii_hexdigit());
            let time = word.len() >= 19
                && word.as_bytes()[4] == b'-'
                && word.contains('T')
                && word.starts_with("20");
            let age = word.len() < 6
                && word.starts_with(|c: char| c.is_ascii_digit())
                && word.ends_with(['s', 'm']);
            match (id, time, age) {
                (true, ..) => "UID".to_owned(),
                (_, true, _) => "TIME".to_owned(),
                (.., true) => "AGE".to_owned(),
                _ => without_uid(word),
            }
        });
        let mut words = words.collect::<Vec<_>>();
        // The space behind an age fills what is left of its column.
        if let Some(age) = words.iter().position(|word| word == "AGE") {
            let blanks = words[age + 1..].iter().take_while(|word| word.is_empty());
            let blanks = blanks.count();
            words.drain(age + 1..age + 1 + blanks);
        }
        let mut line = words.join(" ");
        // The headings of Events are as far from each other as the longest age is long.
        if line.starts_with("  Type ") && line.contains(" Age ") || line.starts_with("  ----") {
            let headings: Vec<_> = line.split_whitespace().collect();
            line = format!("  {}", headings.join(" "));
        }
        let line = if line.trim_start().starts_with("Resource Version:") {
            "  Resource Version:  NUMBER".to_owned()
        } else {
            line
        };
        settled.push_str(line.trim_end());
        settled.push('\n');
    }
    settled
}

/// A UID at the end of an address.
fn without_uid(word: &str) -> String {
    match word.rsplit_once('/') {
        Some((rest, last)) if last.len() == 36 && last.matches('-').count() == 4 => {
            format!("{rest}/UID")
        }
        _ => word.to_owned(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_tells_what_happened_and_where_the_pull_request_is() -> Result<()> {
    let cluster = shared().await;
    // Nobody listens on port 9, so what goes there waits.
    let routes = "  routes:\n    - match: { actionRef: known }\n      provider: { kind: noop, repository: o/r, baseBranch: main }\n    \
        - match: { actionRef: down }\n      provider: { kind: forgejo-token, baseURL: 'http://127.0.0.1:9', repository: o/r, \
        baseBranch: main, credentialsRef: { name: bot } }\n";
    let documents = [
        ("config.yaml", config(routes)),
        ("secret.yaml", token_secret("bot", "t")),
    ];
    let hub = TestHub::start(&documents, HubOptions::default()).await?;
    let arguments = ["--leader-elect=false", "--responder", "kubectl"];
    let _agent = TestAgent::start(cluster, "kubectl", &hub, &arguments).await?;
    cluster
        .create_security_event("kubectl", security_event("ClusterAdminGranted", "evil"))
        .await?;
    for (name, action) in [("kubectl-done", "known"), ("kubectl-failed", "unknown")] {
        let spec = event_response("kubectl", "kubectl", write_file(action, "a.yaml", "a: 1\n"));
        cluster.create_event_response(name, spec).await?;
        cluster.finished(name, LIMIT).await?;
    }
    let spec = event_response("kubectl", "kubectl", write_file("down", "a.yaml", "a: 1\n"));
    cluster
        .create_event_response("kubectl-waiting", spec)
        .await?;
    let waits = |status: &Value| {
        status["error"]["reason"].is_string() && status["nextAttemptAt"].is_string()
    };
    cluster
        .status_where("kubectl-waiting", "waits for its forge", LIMIT, waits)
        .await?;
    let kubectl = |arguments: &[&str]| {
        Ok::<_, anyhow::Error>(kubectl_on(&cluster.kubeconfig(), arguments)?.0)
    };
    for name in ["kubectl-done", "kubectl-failed"] {
        eventually("the Event is told", LIMIT, || async {
            let told = kubectl(&["describe", "eventresponse", name]).ok()?;
            (!told.contains("Events:  <none>") && told.contains("nabu-agent")).then_some(())
        })
        .await?;
    }
    let folder = repository_root().join("tests/snapshots/kubectl");
    let names = ["kubectl-done", "kubectl-failed", "kubectl-waiting"];
    for (file, arguments) in [
        (
            "get.txt",
            vec!["get", "eventresponse", names[0], names[1], names[2]],
        ),
        (
            "get-wide.txt",
            vec![
                "get",
                "eventresponse",
                names[0],
                names[1],
                names[2],
                "-o",
                "wide",
            ],
        ),
        (
            "describe-done.txt",
            vec!["describe", "eventresponse", names[0]],
        ),
        (
            "describe-failed.txt",
            vec!["describe", "eventresponse", names[1]],
        ),
        (
            "describe-waiting.txt",
            vec!["describe", "eventresponse", names[2]],
        ),
    ] {
        // What waits is tried again now and then.
        let text = eventually("nothing runs", LIMIT, || async {
            let text = kubectl(&arguments).ok()?;
            (!text.contains("Running")).then_some(text)
        })
        .await?;
        check(&folder.join(file), &settled(&text))?;
    }
    Ok(())
}
