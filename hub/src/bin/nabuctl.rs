//! The `nabuctl` binary: parses, installs the crypto provider, runs.

use std::process::ExitCode;

use clap::Parser as _;
use nabu_common::{cli, tls};
use nabu_hub::nabuctl::{self, Cli, Command};

fn main() -> ExitCode {
    nabuctl::answer_shell();
    let result = start();
    let code = result.as_ref().err().map(nabuctl::exit_code);
    let exit = cli::exit_with(result);
    code.map_or(exit, ExitCode::from)
}

fn start() -> anyhow::Result<()> {
    let cli = Cli::parse();
    if let Command::MarkdownHelp = cli.command {
        return cli::print_markdown_help::<Cli>();
    }
    tls::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(nabuctl::run(cli, &mut std::io::stdout()))
}
