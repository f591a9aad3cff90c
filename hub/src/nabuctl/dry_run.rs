//! Dry runs: looks first whether the hub knows them, and marks what is said of them.

use anyhow::Result;
use nabu_proto::admin_v1::GetVersionRequest;
use nabu_proto::admin_v1::operations_service_client::OperationsServiceClient;
use serde_json::json;
use tonic::transport::Channel;

use super::client::{channel, explain};
use super::output::{Out, Output, print_value};
use super::table::visible;
use super::{Connection, Failure};

const PACKAGE: &str = "nabu.admin.v1";

/// A connection for an order by this method, as `ClusterService/AddCluster`; see [`look_first`].
pub(super) async fn channel_for(
    connection: &Connection,
    dry_run: bool,
    method: &str,
) -> Result<Channel> {
    let channel = channel(connection).await?;
    look_first(&channel, dry_run, method).await?;
    Ok(channel)
}

/// Refuses a dry run that the hub would take for an order: one of an older version does not see the field
/// `validate_only`, and does what it is asked to.
pub(super) async fn look_first(channel: &Channel, dry_run: bool, method: &str) -> Result<()> {
    if !dry_run {
        return Ok(());
    }
    let mut operations = OperationsServiceClient::new(channel.clone());
    let answer = operations.get_version(GetVersionRequest {}).await;
    let answer = answer.map_err(explain)?.into_inner();
    let method = format!("{PACKAGE}.{method}");
    if answer.validate_only_methods.contains(&method) {
        return Ok(());
    }
    let message = format!(
        "the hub (version {}) does not say that it knows a dry run of {method} and might do it in earnest, so it was not asked to; update \
        the hub",
        visible(&answer.version)
    );
    Err(Failure::new(Failure::REFUSED, message).into())
}

/// Prints a sentence, with a mark if nothing has happened; for programs as an object.
pub(super) fn say(message: &str, dry_run: bool, output: Output, out: Out<'_>) -> Result<()> {
    match output {
        Output::Json | Output::Yaml => {
            let value = json!({ "message": message, "dryRun": dry_run });
            print_value(&value, output, out)
        }
        Output::Table | Output::Wide | Output::Name => {
            Ok(writeln!(out, "{}{}", visible(message), mark(dry_run))?)
        }
    }
}

/// What stands at the end of a line about something that has not happened.
pub(super) const fn mark(dry_run: bool) -> &'static str {
    if dry_run { " (dry run)" } else { "" }
}

/// A number of things; `one` is what a single one is called.
pub(super) fn count(number: impl Into<u64>, one: &str) -> String {
    match number.into() {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        number => format!("{number} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory as _};

    use super::super::Cli;
    use super::*;

    /// Commands that change nothing. `man` writes files, but only what it was asked for.
    const READ_ONLY: [&str; 19] = [
        "admin list",
        "audit list",
        "ca rotate status",
        "check",
        "cluster get",
        "cluster list",
        "cluster token list",
        "completion",
        "config status",
        "context list",
        "forge list",
        "man",
        "markdown-help",
        "response explain",
        "response get",
        "response list",
        "route test",
        "top",
        "version",
    ];

    /// The commands without --dry-run, their own or one of a command above them.
    fn without_dry_run(command: &Command, path: &str, found: &mut Vec<String>) {
        if command.get_arguments().any(|one| one.get_id() == "dry_run") {
            return;
        }
        if !command.has_subcommands() {
            found.push(path.to_owned());
        }
        for below in command.get_subcommands() {
            let path = format!("{path} {}", below.get_name());
            without_dry_run(below, path.trim(), found);
        }
    }

    #[test]
    fn every_command_that_changes_something_has_dry_run() {
        let mut found = Vec::new();
        without_dry_run(&Cli::command(), "", &mut found);
        found.sort();
        assert_eq!(found, READ_ONLY);
    }

    #[test]
    fn things_are_counted_as_people_do() {
        let words = [0_u32, 1, 2].map(|number| count(number, "session"));
        assert_eq!(words, ["no session", "1 session", "2 sessions"]);
    }
}
