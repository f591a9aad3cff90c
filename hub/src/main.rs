//! The `nabu-hub` binary: parses, installs the crypto provider, runs.

use clap::Parser as _;
use nabu_common::{cli, shutdown, telemetry, tls};
use nabu_hub::authority::first_admin;
use nabu_hub::config::{Cli, Command};
use nabu_hub::store::sqlite::backup;

fn main() -> std::process::ExitCode {
    cli::exit_with(start())
}

fn start() -> anyhow::Result<()> {
    let Cli {
        command,
        config,
        log,
    } = Cli::parse();
    tls::install_crypto_provider();
    match command {
        Some(Command::MarkdownHelp) => return cli::print_markdown_help::<Cli>(),
        Some(Command::Ready(probe)) => return cli::print_readiness(&probe),
        Some(Command::InitAdmin { name, out, at }) => {
            let runtime = tokio::runtime::Runtime::new()?;
            return runtime.block_on(first_admin::run(&at, &name, &out));
        }
        Some(Command::Backup { out, store }) => {
            let runtime = tokio::runtime::Runtime::new()?;
            return runtime.block_on(backup::run(&store, &out));
        }
        None => {}
    }
    let runtime = tokio::runtime::Runtime::new()?;
    telemetry::init(&log)?;
    runtime.block_on(async {
        let run = nabu_hub::run::run(config, shutdown::signal_token()?);
        Box::pin(run).await
    })
}
