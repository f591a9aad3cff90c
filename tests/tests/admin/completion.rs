//! Completion in bash, zsh and fish, with the names that the hub knows.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result};
use nabu_tests::hub::{HubOptions, TestHub};
use nabu_tests::objects::noop_config;
use nabu_tests::process::workspace_binary;
use nabu_tests::wait::eventually;

use crate::bed::{LIMIT, hub};
use crate::nabuctl::{text, with_a_response};

/// So often a shell is asked: nabuctl leaves out the names that a hub does not tell within two seconds.
const TRIES: u32 = 5;

/// A shell that finds nabuctl, and the contexts of the hub.
fn shell(hub: &TestHub, program: &str) -> Result<Command> {
    let folder = workspace_binary("nabuctl")?;
    let folder = folder.parent().context("no folder")?;
    let path = format!("{}:{}", folder.display(), std::env::var("PATH")?);
    let mut command = Command::new(program);
    command
        .env("PATH", path)
        .env("HOME", hub.dir())
        .env("NABU_CONTEXTS", hub.dir().join("contexts.yaml"))
        .env_remove("NABU_HUB")
        .env_remove("NABU_TLS_DIR");
    Ok(command)
}

/// Asks a shell until it offers what is wanted.
fn offers(ask: impl Fn() -> Result<Output>, wanted: impl Fn(&[String]) -> bool) -> Result<()> {
    let mut last = None;
    for _ in 0..TRIES {
        let output = ask()?;
        if wanted(&lines(&text(&output))) {
            return Ok(());
        }
        last = Some(output);
    }
    anyhow::bail!("{last:?}")
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn bash_completes_the_names_that_the_hub_knows() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let script = r#"
        source <(nabuctl completion bash)
        complete_for() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
            _clap_complete_nabuctl nabuctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        }
        complete_for nabuctl response explain p
        complete_for nabuctl response explain prod-eu er
        complete_for nabuctl cluster get p
        complete_for nabuctl context use t
        complete_for nabuctl respo
    "#;
    let ask = || Ok(shell(&hub, "bash")?.args(["-c", script]).output()?);
    offers(ask, |offered| {
        let times = |name: &str| offered.iter().filter(|one| *one == name).count();
        let names = ["prod-eu", "er-1", "test", "response"];
        names.map(times) == [2, 1, 1, 1]
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_administrators_and_routes_are_completed_as_well() -> Result<()> {
    let documents = [("config.yaml", noop_config("o/r"))];
    let hub = TestHub::start(&documents, HubOptions::certifying(&[])).await?;
    let added = hub.add_cluster("prod-eu", &[])?;
    let token = added["tokenId"].as_str().context("no id")?;
    hub.nabuctl(&["admin", "revoke", "grace"])?;
    let script = r#"
        source <(nabuctl completion bash)
        complete_for() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9 COMPREPLY=()
            _clap_complete_nabuctl nabuctl "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        }
        complete_for nabuctl cluster token revoke "$1"
        complete_for nabuctl admin restore g
        complete_for nabuctl admin revoke t
        complete_for nabuctl response list --route u
    "#;
    let ask = || {
        let mut shell = shell(&hub, "bash")?;
        let shell = shell
            .args(["-c", script, "bash", &token[..2]])
            .env("NABU_HUB", hub.admin_url())
            .env("NABU_TLS_DIR", hub.admin_tls());
        Ok(shell.output()?)
    };
    let names = [token, "grace", "tester", "ugallu-system/default/0"];
    offers(ask, |offered| offered == names)
}

#[tokio::test(flavor = "multi_thread")]
async fn fish_completes_the_names_that_the_hub_knows() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let script = r"
        nabuctl completion fish | source
        complete -C 'nabuctl response explain p'
        complete -C 'nabuctl response explain prod-eu er'
        complete -C 'nabuctl context use t'
        complete -C 'nabuctl respo'
    ";
    let ask = || {
        let mut shell = shell(&hub, "fish")?;
        Ok(shell.args(["--no-config", "-c", script]).output()?)
    };
    offers(ask, |offered| {
        // A candidate, and what it means after a tab.
        let candidate = |line: &String| line.split('\t').next().map(str::to_owned);
        let names: Vec<_> = offered.iter().filter_map(candidate).collect();
        let wanted = ["prod-eu", "er-1", "test", "response"];
        wanted
            .iter()
            .all(|name| names.iter().any(|one| one == name))
    })
}

/// What zsh has on its line after each of these was typed and completed with the Tab key, on a real terminal.
async fn typed_in_zsh(hub: &TestHub, typed: &[&str]) -> Result<Vec<String>> {
    let (ready, seen) = (hub.dir().join("zsh.ready"), hub.dir().join("zsh.seen"));
    let setup = format!(
        "autoload -Uz compinit && compinit -u -D\n\
        source <(nabuctl completion zsh)\n\
        PS1=''\n\
        note() {{ print -r -- \"$BUFFER\" >> '{seen}'; BUFFER='' }}\n\
        zle -N note && bindkey '^Xn' note\n\
        zle-line-init() {{ : > '{ready}' }}\n\
        zle -N zle-line-init\n",
        seen = seen.display(),
        ready = ready.display(),
    );
    std::fs::write(hub.dir().join(".zshrc"), setup)?;
    for left in [&ready, &seen] {
        let _ = std::fs::remove_file(left);
    }
    let mut terminal = shell(hub, "script")?
        .args(["--quiet", "--return", "--flush", "--command"])
        .args(["stty rows 30 cols 120; exec zsh -d -i", "/dev/null"])
        .env("ZDOTDIR", hub.dir())
        .env("TERM", "xterm")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut keyboard = terminal.stdin.take().context("no input")?;
    eventually("zsh is ready", LIMIT, || async {
        ready.exists().then_some(())
    })
    .await?;
    let mut lines = Vec::new();
    for (number, line) in typed.iter().enumerate() {
        keyboard.write_all(format!("{line}\t\u{18}n").as_bytes())?;
        keyboard.flush()?;
        lines = eventually(&format!("zsh has completed {line:?}"), LIMIT, || async {
            let seen = std::fs::read_to_string(&seen).ok()?;
            let lines: Vec<_> = seen.lines().map(str::to_owned).collect();
            (seen.ends_with('\n') && lines.len() > number).then_some(lines)
        })
        .await?;
    }
    keyboard.write_all(b"exit\n")?;
    drop(keyboard);
    terminal.wait()?;
    Ok(lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn zsh_completes_the_names_that_the_hub_knows() -> Result<()> {
    let hub = hub(noop_config("o/r"), &[]).await?;
    let _agent = with_a_response(&hub).await?;
    let typed = [
        "nabuctl response explain p",
        "nabuctl response explain prod-eu er",
        "nabuctl context use t",
        "nabuctl respo",
    ];
    let expected = [
        "nabuctl response explain prod-eu",
        "nabuctl response explain prod-eu er-1",
        "nabuctl context use test",
        "nabuctl response",
    ];
    let mut last = Vec::new();
    for _ in 0..TRIES {
        last = typed_in_zsh(&hub, &typed).await?;
        if last.iter().map(|line| line.trim_end()).eq(expected) {
            return Ok(());
        }
    }
    anyhow::bail!("{last:?}")
}
