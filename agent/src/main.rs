//! The program nabu-agent.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use nabu_agent::config::{Cli, Command};
use nabu_common::{cli, shutdown, telemetry};
use tokio::net::TcpListener;

fn main() -> ExitCode {
    cli::exit_with(start(Cli::parse()))
}

fn start(cli: Cli) -> anyhow::Result<()> {
    let Some(config) = cli.config.filter(|_| cli.command.is_none()) else {
        return match cli.command.context("no flags given")? {
            Command::MarkdownHelp => cli::print_markdown_help::<Cli>(),
            Command::Ready(probe) => cli::print_readiness(&probe),
        };
    };
    telemetry::init(&cli.log)?;
    // Two threads are plenty for one cluster, and each costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let shutdown = shutdown::signal_token()?;
        let listener = TcpListener::bind(config.listen).await.with_context(|| {
            format!(
                "cannot listen on {}; choose another address with --listen",
                config.listen
            )
        })?;
        nabu_agent::run(config, shutdown, listener).await
    })
}
