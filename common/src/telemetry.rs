//! Logs: text for people on a terminal, JSON for machines elsewhere, always on standard error.

use std::io::IsTerminal as _;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text if standard error is a terminal, JSON if not.
    #[default]
    Auto,
    /// One line of text for people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Flags of the log, the same in every server.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Format of log lines on standard error.
    #[arg(long, env = "NABU_LOG_FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,

    /// Level, or filter by module: info, debug, or for example `info,nabu_hub=debug`.
    #[arg(long, env = "NABU_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
}

/// kube logs every failed request by itself, without saying which; whoever made the request says it better.
fn directives(level: &str) -> String {
    if level.contains("kube_client") {
        level.to_owned()
    } else {
        format!("kube_client::client::builder=off,{level}")
    }
}

/// Starts logging.
///
/// # Errors
/// If the level is no filter, or logging was started before.
pub fn init(args: &LogArgs) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(directives(&args.log_level)).map_err(|error| {
        anyhow::anyhow!(
            "--log-level {:?}: {error}; use for example info or info,nabu_hub=debug",
            args.log_level
        )
    })?;
    let text = match args.log_format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = if text {
        logs.with_ansi(std::io::stderr().is_terminal()).try_init()
    } else {
        logs.json().flatten_event(true).try_init()
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
