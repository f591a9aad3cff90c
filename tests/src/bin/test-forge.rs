//! A test forge for people and for programs in other languages: prints where it is, and runs until its stdin closes or
//! it is told to end.
//!
//!     test-forge github [--port N] [--public-paths]
//!     test-forge gitlab [--port N] [--below /path]

use anyhow::{Context as _, Result, bail};
use nabu_tests::test_forge::github::{self, Options, TestGithub};
use nabu_tests::test_forge::gitlab::{self, Role, TestGitlab};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("github") => run_github(options(arguments)?).await,
        Some("gitlab") => run_gitlab(arguments).await,
        _ => bail!(
            "usage: test-forge github [--port N] [--public-paths] | gitlab [--port N] [--below /path]"
        ),
    }
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options::default();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--port" => {
                let port = arguments.next().context("--port needs a number")?;
                options.port = port.parse().context("--port needs a number")?;
            }
            "--public-paths" => options.public_paths = true,
            other => bail!("no such option: {other}"),
        }
    }
    Ok(options)
}

async fn run_github(options: Options) -> Result<()> {
    let github = TestGithub::start_with(options).await?;
    let repository = format!("{}/gitops", github::ORGANISATION);
    github.create_repository(&repository).await?;
    let app = github.app();
    say(&json!({ "url": github.url() }));
    say(&json!({ "token": github.token(), "login": github::BOT }));
    say(&json!({ "token": github.person_token(), "login": github::PERSON }));
    say(&json!({
        "app_id": app.id,
        "client_id": app.client_id,
        "installation_id": app.installation_id,
        "private_key": app.private_key,
    }));
    say(&json!({ "repository": repository }));
    until_the_end().await?;
    for violation in github.violations() {
        say(&json!({ "violation": violation }));
    }
    Ok(())
}

async fn run_gitlab(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let (mut port, mut prefix) = (0, String::new());
    while let Some(argument) = arguments.next() {
        let value = arguments.next();
        let value = value.with_context(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--port" => port = value.parse().context("--port needs a number")?,
            "--below" => prefix = value,
            other => bail!("no such option: {other}"),
        }
    }
    let gitlab = TestGitlab::start_at(port, &prefix).await?;
    let project = gitlab.create_project("ninsun-labs/fleet/gitops")?;
    // So that a client may also merge.
    project.set_role(gitlab::BOT, Some(Role::Maintainer))?;
    say(&json!({ "url": gitlab.url() }));
    say(&json!({ "token": gitlab.token(), "login": gitlab::BOT }));
    say(&json!({ "token": gitlab.person_token(), "login": gitlab::PERSON }));
    say(&json!({ "repository": project.full_name }));
    until_the_end().await
}

#[expect(clippy::print_stdout, reason = "what it prints is what it is for")]
fn say(line: &serde_json::Value) {
    println!("{line}");
}

async fn until_the_end() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let (close, closed) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        close.send(())
    });
    tokio::select! {
        _ = closed => {}
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
