//! The `nabu-hub` binary: parses, installs the crypto provider, runs.

use clap::Parser as _;
use nabu_common::{cli, shutdown, telemetry, tls};
use nabu_hub::authority::first_admin;
use nabu_hub::config::{Cli, Command};

fn main() -> std::process::ExitCode {
    cli::exit_with(start())
}

fn start() -> anyhow::Result<()> {
    let Cli {
        command,
        config,
        log,
    } = Cli::parse();
    if let Some(Command::MarkdownHelp) = command {
        return cli::print_markdown_help::<Cli>();
    }
    tls::install_crypto_provider();
    let runtime = tokio::runtime::Runtime::new()?;
    if let Some(Command::InitAdmin { name, out, at }) = command {
        return runtime.block_on(first_admin::run(&at, &name, &out));
    }
    telemetry::init(&log)?;
    runtime.block_on(async {
        let run = nabu_hub::run::run(config, shutdown::signal_token()?);
        Box::pin(run).await
    })
}
