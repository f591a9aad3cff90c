//! How nabuctl prints: every command that lists or shows something honours `-o`; colours are for terminals alone; a watched
//! list outlives its hub.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::process::workspace_binary;
use serde_json::{Map, Value, json};

use crate::bed::{Agent, hub};
use crate::nabuctl::{command, run, text, with_a_response};

/// A value without what may differ between two questions: every leaf is its kind.
fn shape(value: &Value) -> Value {
    match value {
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(fields) => {
            let fields = fields.iter();
            let fields: Map<_, _> = fields
                .map(|(name, value)| (name.clone(), shape(value)))
                .collect();
            fields.into()
        }
        Value::String(_) => json!("text"),
        Value::Number(_) => json!(0),
        Value::Bool(_) => json!(true),
        Value::Null => Value::Null,
    }
}

fn assert_all_forms(hub: &TestHub, arguments: &[&str], names: &str) -> Result<()> {
    let print = |form: &str| -> Result<String> {
        let output = run(hub, &[arguments, &["-o", form]].concat())?;
        Ok(text(&output))
    };
    let json: Value = serde_json::from_str(&print("json")?)
        .with_context(|| format!("{arguments:?} -o json is no JSON"))?;
    let yaml: Value = serde_saphyr::from_str(&print("yaml")?)
        .with_context(|| format!("{arguments:?} -o yaml is no YAML"))?;
    assert_eq!(shape(&json), shape(&yaml), "{arguments:?}");
    let filled = json.as_array().is_none_or(|items| !items.is_empty());
    assert!(
        filled && !json.is_null(),
        "{arguments:?} has nothing: {json}"
    );
    assert_eq!(print("name")?, names, "{arguments:?}");
    let (table, wide) = (print("table")?, print("wide")?);
    assert_eq!(
        print("table")?.lines().next(),
        text(&run(hub, arguments)?).lines().next()
    );
    for form in [&table, &wide] {
        assert!(
            serde_json::from_str::<Value>(form).is_err(),
            "{arguments:?}: {form}"
        );
        assert!(form.lines().count() > 1, "{arguments:?}: {form}");
    }
    let widest = |form: &str| form.lines().map(str::len).max();
    assert!(
        widest(&wide) >= widest(&table),
        "{arguments:?}: {wide}{table}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_that_lists_or_shows_something_has_all_forms() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let version = format!("{}\n", nabu_common::build::VERSION);
    text(&run(&hub, &["log-level", "info"])?);
    let audit = ["audit", "list", "--action", "SetLogLevel"];
    let lines = text(&run(&hub, &[&audit[..], &["-o", "json"]].concat())?);
    let lines: Value = serde_json::from_str(&lines)?;
    let line = format!("{}\n", lines[0]["id"]);
    for (arguments, names) in [
        (&["cluster", "list"][..], "prod-eu\n"),
        (&["cluster", "get", "prod-eu"], "prod-eu\n"),
        (&["response", "list"], "prod-eu/er-1\n"),
        (&["response", "get", "prod-eu", "er-1"], "er-1\n"),
        (&["response", "explain", "prod-eu", "er-1"], "er-1\n"),
        (
            &["route", "test", "--cluster", "prod-eu", "--stored", "er-1"],
            "ugallu-system/default/0\n",
        ),
        (&["config", "status"], "ugallu-system/default\n"),
        (&["forge", "list"], "noop\n"),
        (&["context", "list"], "test\n"),
        (&["version"], &version),
        (&audit, &line),
    ] {
        assert_all_forms(&hub, arguments, names)?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_something_tells_programs_so() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let folder = hub.dir().join("made").display().to_string();
    for order in [
        &["cluster", "revoke", "prod-eu"][..],
        &["cluster", "restore", "prod-eu"],
        &["cluster", "rebind", "prod-eu"],
        &["cluster", "remove", "prod-eu"],
        &["admin", "revoke", "somebody"],
        &["admin", "restore", "somebody"],
        &["log-level", "debug"],
        &["pki", "init", "--dir", &folder],
    ] {
        for (more, is_dry) in [
            (&["-o", "yaml", "--dry-run"][..], true),
            (&["-o", "json"], false),
        ] {
            // JSON is YAML as well.
            let said = text(&run(&hub, &[order, more].concat())?);
            let said: Value = serde_saphyr::from_str(&said)?;
            assert_eq!(said["dryRun"], is_dry, "{order:?}: {said}");
            let message = said["message"].as_str().context("no message")?;
            assert!(!message.is_empty() && !message.contains("(dry run)"));
        }
    }
    for (form, level) in [
        ("name", json!("debug")),
        ("json", json!({"level": "debug"})),
    ] {
        let said = text(&run(&hub, &["log-level", "-o", form])?);
        let said: Value = serde_saphyr::from_str(&said)?;
        assert_eq!(said, level);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_listed_of_identities_has_all_forms() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    use_context(&hub)?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let token = format!("{}\n", added["tokenId"].as_str().context("no id")?);
    let rotation: Value = serde_json::from_str(&text(&run(
        &hub,
        &["ca", "rotate", "status", "-o", "json"],
    )?))?;
    let pin = rotation["authorities"][0]["pin"].as_str();
    let pin = format!("{}\n", pin.context("no pin")?);
    assert_all_forms(&hub, &["cluster", "token", "list"], &token)?;
    assert_all_forms(&hub, &["admin", "list"], "tester\n")?;
    assert_all_forms(&hub, &["ca", "rotate", "status"], &pin)?;
    let checked = text(&run(&hub, &["check", "-o", "name"])?);
    assert!(checked.starts_with("context\ncertificate\n"), "{checked}");
    assert_all_forms(&hub, &["check"], &checked)
}

/// Makes the context `test`.
fn use_context(hub: &TestHub) -> Result<()> {
    let tls = hub.admin_tls().display().to_string();
    let set = ["--hub", &hub.admin_url(), "--tls-dir", &tls];
    text(&run(
        hub,
        &[&set[..], &["context", "set", "test"]].concat(),
    )?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn colours_are_for_terminals_and_not_for_those_who_do_not_want_them() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let program = workspace_binary("nabuctl")?.display().to_string();
    let on_terminal = |no_color: Option<&str>, columns: u16| -> Result<String> {
        let mut terminal = Command::new("script");
        terminal
            .args(["--quiet", "--return", "--command"])
            .arg(format!(
                "stty rows 30 cols {columns}; exec {program} response list"
            ))
            .arg("/dev/null")
            .env("TERM", "xterm")
            .env("NABU_CONTEXTS", hub.dir().join("contexts.yaml"))
            .env_remove("NO_COLOR")
            .stdin(Stdio::null());
        if let Some(value) = no_color {
            terminal.env("NO_COLOR", value);
        }
        Ok(text(&terminal.output()?))
    };
    let coloured = on_terminal(None, 120)?;
    assert!(coloured.contains("\u{1b}[32m"), "{coloured:?}");
    assert!(
        on_terminal(Some(""), 120)?.contains("\u{1b}[32m"),
        "empty counts for nothing"
    );
    let plain = on_terminal(Some("1"), 120)?;
    assert!(
        !plain.contains('\u{1b}') && plain.contains("er-1"),
        "{plain:?}"
    );
    // A terminal cuts, and a pipe does not.
    let narrow = on_terminal(Some("1"), 60)?;
    let widest = |text: &str| {
        text.lines()
            .map(|line| line.trim_end().chars().count())
            .max()
    };
    assert!(widest(&narrow) <= Some(60), "{narrow}");
    let piped = text(&run(&hub, &["response", "list"])?);
    assert!(!piped.contains('\u{1b}'), "{piped:?}");
    assert!(widest(&piped) > widest(&narrow), "{piped}{narrow}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watched_list_of_clusters_goes_on_when_the_hub_was_away() -> Result<()> {
    let mut hub = hub(noop_config("o/r"), &[]).await?;
    let agent = with_a_response(&hub).await?;
    let mut watching = command(&hub, &["cluster", "list", "--watch", "-o", "name"])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(watching.stdout.take().context("no output")?).lines();
    assert_eq!(lines.next().context("no line")??, "prod-eu");
    drop(agent);
    hub.kill()?;
    // Whoever asks meanwhile meets this, and gets no answer.
    let port = hub.admin_url();
    let port: u16 = port.rsplit(':').next().context("no port")?.parse()?;
    let away = TcpListener::bind(("127.0.0.1", port))?;
    drop(away.accept()?);
    drop(away);
    ensure!(watching.try_wait()?.is_none(), "it has given up");
    hub.start_again().await?;
    let _agent = Agent::connect(&hub, "prod-us").await?;
    loop {
        match lines.next().context("it has given up")??.as_str() {
            "prod-us" => break,
            other => assert_eq!(other, "prod-eu", "that it is gone is news"),
        }
    }
    watching.kill()?;
    watching.wait()?;
    Ok(())
}
