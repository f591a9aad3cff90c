//! nabuctl as people use it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use nabu_tests::hub::TestHub;
use nabu_tests::objects::{event_response, noop_config, write_file};
use nabu_tests::process::workspace_binary;
use serde_json::{Value, json};

use crate::bed::{Agent, LIMIT, hub};

/// nabuctl with a context file of its own in the hub's folder, and nothing else of its surroundings.
pub(crate) fn command(hub: &TestHub, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(workspace_binary("nabuctl")?);
    command
        .args(arguments)
        .env("NABU_CONTEXTS", hub.dir().join("contexts.yaml"))
        .env_remove("NABU_HUB")
        .env_remove("NABU_TLS_DIR");
    Ok(command)
}

pub(crate) fn run(hub: &TestHub, arguments: &[&str]) -> Result<Output> {
    Ok(command(hub, arguments)?.output()?)
}

pub(crate) fn text(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes the context `test`, and a response that has succeeded.
pub(crate) async fn with_a_response(hub: &TestHub) -> Result<Agent> {
    let tls = hub.admin_tls().display().to_string();
    let set = [
        "--hub",
        &hub.admin_url(),
        "--tls-dir",
        &tls,
        "context",
        "set",
        "test",
    ];
    text(&run(hub, &set)?);
    let mut agent = Agent::connect(hub, "prod-eu").await?;
    let uid = agent
        .observe(1, write_file("x", "a.yaml", "a: 1\n"))
        .await?;
    agent
        .status(&uid, |status| status.completed_at.is_some())
        .await?;
    Ok(agent)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_says_where_the_hub_is_and_every_form_has_the_same_response() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let table = text(&run(&hub, &["response", "list"])?);
    assert!(table.starts_with("CLUSTER  NAME"), "{table}");
    assert!(
        !table.contains('\u{1b}'),
        "no colours outside of a terminal"
    );
    let json: Value =
        serde_json::from_str(&text(&run(&hub, &["response", "list", "-o", "json"])?))?;
    let yaml: Value =
        serde_saphyr::from_str(&text(&run(&hub, &["response", "list", "-o", "yaml"])?))?;
    assert_eq!(json, yaml);
    assert_eq!(json[0]["phase"], "Succeeded");
    assert_eq!(
        text(&run(&hub, &["response", "list", "-o", "name"])?),
        "prod-eu/er-1\n"
    );
    let none = [
        "response",
        "list",
        "-o",
        "name",
        "--error-type",
        "Transient",
    ];
    assert_eq!(text(&run(&hub, &none)?), "");
    let some = [
        "response",
        "list",
        "-o",
        "name",
        "--since",
        "1h",
        "--route",
        "*/default/*",
    ];
    assert_eq!(text(&run(&hub, &some)?), "prod-eu/er-1\n");
    let story = text(&run(&hub, &["response", "explain", "prod-eu", "er-1"])?);
    for part in [
        "Steps",
        "Observed",
        "Routed",
        "Attempt",
        "yes  ugallu-system/default/0",
    ] {
        assert!(story.contains(part), "{part}: {story}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_code_tells_what_kind_of_failure_it_was() -> Result<()> {
    let hub = hub(noop_config("o/r"), &["--admin-role", "viewer:tester"]).await?;
    let _agent = with_a_response(&hub).await?;
    let port = nabu_tests::process::free_port()?;
    let nowhere = format!("https://127.0.0.1:{port}");
    let tls = hub.admin_tls().display().to_string();
    for (arguments, code, words) in [
        (
            vec!["response", "get", "prod-eu", "nothing"],
            4,
            "there is no response",
        ),
        (
            vec!["response", "retry", "prod-eu", "er-1"],
            3,
            "needs the role operator",
        ),
        (vec!["response", "explode"], 2, "explode"),
        (
            vec!["--hub", &nowhere, "--tls-dir", &tls, "cluster", "list"],
            6,
            "cannot reach",
        ),
        (
            vec!["--context", "nothing", "cluster", "list"],
            1,
            "nabuctl context list",
        ),
    ] {
        let output = run(&hub, &arguments)?;
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_something_says_so_first_with_dry_run() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let refused = run(
        &hub,
        &["response", "cancel", "prod-eu", "er-1", "--dry-run"],
    )?;
    assert_eq!(refused.status.code(), Some(5));
    let level = text(&run(&hub, &["log-level", "debug", "--dry-run"])?);
    assert!(level.contains("(dry run)"), "{level}");
    assert!(!text(&run(&hub, &["log-level"])?).starts_with("debug\n"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_test_reads_files_and_fails_where_there_would_be_no_pull_request() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let file = hub.dir().join("er.json");
    let path = file.display().to_string();
    let mut object = json!({
        "kind": "EventResponse",
        "metadata": {"name": "er"},
        "spec": event_response("se", "ugallu-gitops-responder", write_file("x", "a.yaml", "a: 1")),
    });
    std::fs::write(&file, object.to_string())?;
    let test = ["route", "test", "--cluster", "prod-eu", "--file", &path];
    let shown = text(&run(&hub, &test)?);
    assert!(shown.contains("File:    a.yaml"), "{shown}");
    object["spec"]["action"]["parameters"]["path"] = json!("../x");
    std::fs::write(&file, object.to_string())?;
    let output = run(&hub, &test)?;
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("PathNotAllowed"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_goes_on_with_what_changes() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let agent = with_a_response(&hub).await?;
    let mut watching = command(&hub, &["response", "list", "--watch", "-o", "name"])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("no output")?).lines();
    assert_eq!(lines.next().context("no line")??, "prod-eu/er-1");
    agent
        .observe(2, write_file("x", "b.yaml", "b: 1\n"))
        .await?;
    assert_eq!(lines.next().context("no line")??, "prod-eu/er-2");
    watching.kill()?;
    watching.wait()?;
    Ok(())
}

#[test]
fn man_pages_are_written_for_every_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = Command::new(workspace_binary("nabuctl")?)
        .args(["man", "--out"])
        .arg(folder.path())
        .output()?;
    text(&output);
    for page in [
        "nabuctl.1",
        "nabuctl-response-explain.1",
        "nabuctl-route-test.1",
    ] {
        let page = std::fs::read_to_string(folder.path().join(page))?;
        assert!(page.contains(".SH NAME"), "{page}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_the_fleet_as_it_changes_on_a_real_terminal_and_ends_with_q() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let agent = with_a_response(&hub).await?;
    let program = workspace_binary("nabuctl")?.display().to_string();
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command"])
        .arg(format!(
            "stty rows 30 cols 120; exec {program} top --seconds 1"
        ))
        .arg("/dev/null")
        .env("TERM", "xterm")
        .env("NABU_CONTEXTS", hub.dir().join("contexts.yaml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut keyboard = terminal.stdin.take();
    ensure!(keyboard.is_some(), "no input");
    let mut screen = terminal.stdout.take().context("no output")?;
    let (shown, is_shown) = tokio::sync::oneshot::channel();
    let mut shown = Some(shown);
    let seen = tokio::task::spawn_blocking(move || {
        let (mut seen, mut part) = (String::new(), [0; 4096]);
        while let Ok(count @ 1..) = screen.read(&mut part) {
            seen.push_str(&String::from_utf8_lossy(&part[..count]));
            if seen.contains("prod-eu")
                && seen.contains("Succeeded")
                && let Some(shown) = shown.take()
            {
                let _ = shown.send(());
            }
            // Once: script waits for ever for somebody to read what is typed after the end.
            if seen.contains("777")
                && let Some(mut keyboard) = keyboard.take()
            {
                let _ = keyboard.write_all(b"q");
            }
        }
        seen
    });
    tokio::time::timeout(LIMIT, is_shown).await??;
    // What comes later is seen without a key being touched.
    agent
        .observe(777, write_file("x", "b.yaml", "b: 1\n"))
        .await?;
    let seen = tokio::time::timeout(LIMIT, seen).await??;
    assert!(terminal.wait()?.success(), "{seen}");
    // A terminal is told of what changes only, so that blanks are not among it.
    for part in ["Forges", "Newest", "unfinished"] {
        assert!(seen.contains(part), "{part}: {seen}");
    }
    Ok(())
}
