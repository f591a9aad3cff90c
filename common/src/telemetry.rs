//! Logs: text for people on a terminal, JSON for machines elsewhere, always on standard error. The level may be changed
//! while the process runs.

use std::io::IsTerminal as _;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

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
    let filter = filter(&args.log_level).context("--log-level")?;
    let text = match args.log_format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let (filter, handle) = reload::Layer::new(filter);
    let logs = fmt::layer().with_writer(std::io::stderr);
    let logs = if text {
        logs.with_ansi(std::io::stderr().is_terminal()).boxed()
    } else {
        logs.json().flatten_event(true).boxed()
    };
    tracing_subscriber::registry()
        .with(filter)
        .with(logs)
        .try_init()
        .map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    let control = Control {
        handle,
        level: Mutex::new(args.log_level.clone()),
    };
    // Only one log can be started, so that only one is controlled.
    let _ = CONTROL.set(control);
    Ok(())
}

/// The log of the process, once it is started.
static CONTROL: OnceLock<Control> = OnceLock::new();

struct Control {
    handle: reload::Handle<EnvFilter, Registry>,
    level: Mutex<String>,
}

fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    EnvFilter::try_new(directives(level)).map_err(|error| {
        anyhow::anyhow!("{level:?}: {error}; use for example info or info,nabu_hub=debug")
    })
}

/// The level or filter that is in force; `None` before logging was started.
pub fn level() -> Option<String> {
    let control = CONTROL.get()?;
    let level = control.level.lock();
    Some(level.unwrap_or_else(PoisonError::into_inner).clone())
}

/// Checks a level or filter.
///
/// # Errors
/// If it is none.
pub fn check_level(level: &str) -> anyhow::Result<()> {
    filter(level).map(drop)
}

/// Puts another level or filter in force, until the process ends.
///
/// # Errors
/// If it is none, or logging was not started.
pub fn set_level(level: &str) -> anyhow::Result<()> {
    let filter = filter(level)?;
    let control = CONTROL.get().context("logging was not started")?;
    control.handle.reload(filter)?;
    let mut current = control.level.lock().unwrap_or_else(PoisonError::into_inner);
    level.clone_into(&mut current);
    Ok(())
}
