//! Writes the CRDs as YAML, one file for each: `crdgen --out charts/crds`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use nabu_common::{cli, crd};

/// Writes the CRDs that are made of the Rust types.
#[derive(Debug, Parser)]
#[command(name = "crdgen")]
struct Cli {
    /// The folder to write to.
    #[arg(long)]
    out: PathBuf,
}

fn main() -> std::process::ExitCode {
    cli::exit_with(write(&Cli::parse()))
}

fn write(cli: &Cli) -> anyhow::Result<()> {
    std::fs::create_dir_all(&cli.out)
        .with_context(|| format!("cannot make {}", cli.out.display()))?;
    for document in crd::all() {
        let path = cli.out.join(format!("{}.yaml", document.spec.names.plural));
        let yaml = serde_saphyr::to_string(&document)?;
        let text = format!(
            "# Generated from common/src/crd by `make crds`; change the types, not this file.\n{yaml}"
        );
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
