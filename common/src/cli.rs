//! What the binaries' command lines have in common: the end of a failed run, and flags as Markdown.

use std::io::Write as _;
use std::process::ExitCode;

/// Success, or one line on standard error that says what went wrong and why, and exit code 1.
pub fn exit_with(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let line = format!("{error:#}").replace('\n', " ");
            // Nothing is left to do if standard error is closed.
            let _ = writeln!(std::io::stderr(), "error: {line}");
            ExitCode::FAILURE
        }
    }
}

/// Asks a running server whether it is ready, and prints its checks.
///
/// # Errors
/// If it is not.
pub fn print_readiness(probe: &crate::ops::Probe) -> anyhow::Result<()> {
    let checks = probe.run()?;
    std::io::stdout().write_all(checks.as_bytes())?;
    Ok(())
}

/// Prints every flag of a command as Markdown: the source of the reference in the book.
///
/// # Errors
/// If standard output is closed.
pub fn print_markdown_help<C: clap::CommandFactory>() -> anyhow::Result<()> {
    std::io::stdout().write_all(markdown_help::<C>().as_bytes())?;
    Ok(())
}

/// Every flag of a command as Markdown, each with its environment variable.
pub fn markdown_help<C: clap::CommandFactory>() -> String {
    let options = clap_markdown::MarkdownOptions::new()
        .show_footer(false)
        .show_table_of_contents(false);
    let command = with_variables(C::command());
    clap_markdown::help_markdown_command_custom(&command, &options)
}

/// The library leaves environment variables out, so they become part of the text.
fn with_variables(command: clap::Command) -> clap::Command {
    command
        .mut_args(|argument| {
            let Some(variable) = argument.get_env().and_then(|name| name.to_str()) else {
                return argument;
            };
            let note = format!("Environment variable: `{variable}`");
            let help = argument.get_long_help().or(argument.get_help());
            let help = help.map_or(note.clone(), |help| format!("{help}\n\n{note}"));
            argument.long_help(help)
        })
        .mut_subcommands(with_variables)
}
