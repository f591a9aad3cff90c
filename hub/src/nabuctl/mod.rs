//! The command line of administrators: a client of the admin API, and the maker of certificates.
//!
//! Flags and commands are here and in [`commands`], the connection in [`client`] and [`context`], what is asked in
//! [`ask`], what people see in [`view`] and [`output`].

mod ask;
mod authority;
mod check;
mod client;
mod cluster;
mod commands;
mod completion;
mod context;
mod dry_run;
mod failure;
mod output;
mod pki;
mod table;
mod top;
mod view;

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use clap_complete::ArgValueCompleter;
use cluster::Act;
use nabu_common::ids::ClusterId;

pub use check::CheckArgs;
pub use commands::{
    AuditCommand, ConfigCommand, ContextCommand, ForgeCommand, ResponseCommand, RouteCommand, Shell,
};
pub use completion::answer_shell;
pub use failure::{Failure, exit_code};
pub use output::Form;
use output::{Out, Output};

/// Asks a Nabu hub about its clusters and responses, and makes certificates.
#[derive(Debug, Parser)]
#[command(
    name = "nabuctl",
    version = nabu_common::build::FACTS,
    about = "Asks a Nabu hub about its clusters and responses, and makes certificates"
)]
pub struct Cli {
    /// The hub to ask.
    #[command(flatten)]
    pub connection: Connection,

    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Form,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the hub is, and how to show who we are.
#[derive(Clone, Debug, Default, Args)]
pub struct Connection {
    /// The context to use, from the file of contexts, instead of the current one.
    #[arg(long, global = true, env = "NABU_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,

    /// The file of contexts. If not given: nabu/contexts.yaml in `$XDG_CONFIG_HOME` or ~/.config.
    #[arg(long, global = true, env = "NABU_CONTEXTS", value_name = "FILE")]
    pub contexts: Option<PathBuf>,

    /// Address of the hub's admin API, or `unix:PATH` of its socket (--admin-socket of nabu-hub). If not given: that of
    /// the context, else <https://localhost:8444>.
    #[arg(long, global = true, env = "NABU_HUB", value_name = "URL")]
    pub hub: Option<String>,

    /// Folder with ca.crt, tls.crt and tls.key of an administrator. If not given: that of the context, else
    /// /etc/nabu/admin.
    #[arg(long, global = true, env = "NABU_TLS_DIR", value_name = "DIR")]
    pub tls_dir: Option<PathBuf>,

    /// Name that the hub's certificate must have, if it is not the host of the address.
    #[arg(long, global = true, env = "NABU_HUB_SERVER_NAME", value_name = "NAME")]
    pub server_name: Option<String>,
}

/// What nabuctl can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Clusters that the hub knows.
    #[command(subcommand, visible_alias = "clusters")]
    Cluster(ClusterCommand),
    /// Responses: what became of EventResponses.
    #[command(subcommand, visible_alias = "responses")]
    Response(ResponseCommand),
    /// Routes: what would become of an EventResponse.
    #[command(subcommand, visible_alias = "routes")]
    Route(RouteCommand),
    /// The hub's configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Forges and credentials.
    #[command(subcommand, visible_alias = "forges")]
    Forge(ForgeCommand),
    /// The audit log.
    #[command(subcommand)]
    Audit(AuditCommand),
    /// Show the filter of the hub's log, or set it until the hub ends.
    LogLevel {
        /// A level, or a filter by module such as `info,nabu_hub=debug`.
        level: Option<String>,
        /// Only say what would happen.
        #[arg(long, requires = "level")]
        dry_run: bool,
    },
    /// Look at everything between this machine and the forges, and say of each thing whether it is well, or the command that
    /// mends it: context, certificates, addresses, role, clocks, versions, configuration, forges, clusters; with --kubernetes
    /// also the CRDs of a cluster, and with --agent-account and --hub-account the rights of agent and hub.
    Check(CheckArgs),
    /// Show the fleet as it is now: clusters, forges and the newest responses. q ends it.
    Top {
        /// How often the hub is asked, in seconds.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
        seconds: u64,
    },
    /// Show what runs here and at the hub, and who the hub takes us for.
    Version,
    /// Hubs to work with, by name.
    #[command(subcommand)]
    Context(ContextCommand),
    /// The hub's own authority.
    #[command(subcommand)]
    Ca(authority::CaCommand),
    /// Administrators: their certificates, by the hub's own authority, and their revocation.
    #[command(subcommand)]
    Admin(authority::AdminCommand),
    /// Make certificates.
    #[command(subcommand)]
    Pki(PkiCommand),
    /// Write the completion of a shell, for example `source <(nabuctl completion bash)`. Names of clusters, responses and
    /// contexts are completed too.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Write man pages.
    Man {
        /// Folder to write to.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print these flags as Markdown, for the documentation.
    #[command(hide = true)]
    MarkdownHelp,
}

/// About clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// List clusters.
    #[command(visible_alias = "ls")]
    List {
        /// Ask again every two seconds, and print what has changed, until it is interrupted.
        #[arg(short, long)]
        watch: bool,
    },
    /// Show everything that the hub knows of one cluster.
    Get {
        /// The cluster id.
        #[arg(add = ArgValueCompleter::new(completion::cluster_names))]
        cluster: ClusterId,
    },
    /// Add a cluster, or let it join again: prints the command that installs its agent, with a join token for one use.
    Add(cluster::AddArgs),
    /// End the session of a cluster, and let it open none, renew nothing and enrol with no token.
    Revoke {
        /// The cluster id.
        #[arg(add = ArgValueCompleter::new(completion::cluster_names))]
        cluster: ClusterId,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Take a revocation back.
    Restore {
        /// The cluster id.
        #[arg(add = ArgValueCompleter::new(completion::cluster_names))]
        cluster: ClusterId,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Forget a cluster: ends its session, revokes its certificates and tokens for good, cancels what is unfinished.
    Remove {
        /// The cluster id.
        #[arg(add = ArgValueCompleter::new(completion::cluster_names))]
        cluster: ClusterId,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Let another Kubernetes cluster take over a cluster id.
    Rebind {
        /// The cluster id.
        #[arg(add = ArgValueCompleter::new(completion::cluster_names))]
        cluster: ClusterId,
        /// UID of the namespace kube-system of the cluster that takes over. The next one that opens a session if not given.
        #[arg(long, value_name = "UID")]
        to: Option<String>,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Join tokens.
    #[command(subcommand)]
    Token(cluster::TokenCommand),
}

/// About certificates.
#[derive(Debug, Subcommand)]
pub enum PkiCommand {
    /// Make an authority: ca.crt and ca.key.
    Init {
        /// Folder to write to.
        #[arg(long, default_value = "pki")]
        dir: PathBuf,
        /// Trust domain of the fleet.
        #[arg(long, default_value = "nabu")]
        trust_domain: String,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make a certificate: ca.crt, tls.crt and tls.key.
    Issue {
        /// Folder of the authority.
        #[arg(long, default_value = "pki")]
        ca: PathBuf,
        /// Folder to write to.
        #[arg(long)]
        out: PathBuf,
        /// Days that it is valid.
        #[arg(long, default_value_t = crate::pki::DEFAULT_DAYS, value_parser = clap::value_parser!(u32).range(1..=3650))]
        days: u32,
        /// Only say what would happen.
        #[arg(long, global = true)]
        dry_run: bool,
        /// Whom it is for.
        #[command(subcommand)]
        subject: SubjectCommand,
    },
}

/// Whom a certificate is for.
#[derive(Debug, Subcommand)]
pub enum SubjectCommand {
    /// The agent of a cluster.
    Agent {
        /// The cluster id.
        cluster: ClusterId,
    },
    /// A hub.
    Hub {
        /// A name for people.
        #[arg(default_value = "hub")]
        name: String,
        /// DNS name under which agents or administrators dial it. Repeatable.
        #[arg(long)]
        dns: Vec<String>,
        /// IP address under which agents or administrators dial it. Repeatable.
        #[arg(long)]
        ip: Vec<std::net::IpAddr>,
    },
    /// An administrator.
    Admin {
        /// Who it is; ends up in the audit log.
        name: String,
    },
}

/// Gives a form that one command has to that command, and says so for any other.
fn in_form(mut command: Command, form: Form) -> anyhow::Result<(Command, Output)> {
    if let Some(output) = form.common() {
        return Ok((command, output));
    }
    if let Command::Cluster(ClusterCommand::Add(args)) = &mut command {
        args.values = true;
        return Ok((command, Output::Table));
    }
    let message = "-o values is for `nabuctl cluster add` only; give json, yaml, wide or name";
    Err(Failure::new(Failure::USAGE, message).into())
}

/// Does what the command line says, and prints to `out`.
///
/// # Errors
/// If the hub cannot be reached or refuses; the text says what to do.
pub async fn run(cli: Cli, out: Out<'_>) -> anyhow::Result<()> {
    let Cli {
        connection,
        output,
        command,
    } = cli;
    let asked = &connection;
    let (command, output) = in_form(command, output)?;
    match command {
        Command::Pki(command) => pki::run(command, output, out),
        Command::Ca(command) => authority::ca(&connection, command, output, out).await,
        Command::Admin(command) => authority::admin(&connection, command, output, out).await,
        Command::Cluster(ClusterCommand::Add(args)) => {
            cluster::add(&connection, args, output, out).await
        }
        Command::Cluster(ClusterCommand::Revoke { cluster, dry_run }) => {
            cluster::act(&connection, Act::Revoke, cluster, dry_run, (output, out)).await
        }
        Command::Cluster(ClusterCommand::Restore { cluster, dry_run }) => {
            cluster::act(&connection, Act::Restore, cluster, dry_run, (output, out)).await
        }
        Command::Cluster(ClusterCommand::Remove { cluster, dry_run }) => {
            cluster::act(&connection, Act::Remove, cluster, dry_run, (output, out)).await
        }
        Command::Cluster(ClusterCommand::Rebind {
            cluster,
            to,
            dry_run,
        }) => cluster::rebind(&connection, cluster, to, dry_run, (output, out)).await,
        Command::Cluster(ClusterCommand::Token(command)) => {
            cluster::token(&connection, command, output, out).await
        }
        Command::Cluster(ClusterCommand::Get { cluster }) => {
            ask::cluster(asked, cluster, output, out).await
        }
        Command::Cluster(ClusterCommand::List { watch }) => {
            ask::clusters(asked, watch, output, out).await
        }
        Command::Response(command) => ask::response(asked, command, output, out).await,
        Command::Route(command) => ask::route(asked, command, output, out).await,
        Command::Config(ConfigCommand::Status) => ask::config(asked, output, out).await,
        Command::Forge(ForgeCommand::List) => ask::forges(asked, output, out).await,
        Command::Audit(command) => ask::audit(asked, command, output, out).await,
        Command::LogLevel { level, dry_run } => {
            ask::log_level(asked, level, dry_run, (output, out)).await
        }
        Command::Check(arguments) => check::run(asked, arguments, output, out).await,
        Command::Top { seconds } => top::run(asked, std::time::Duration::from_secs(seconds)).await,
        Command::Version => ask::version(asked, output, out).await,
        Command::Context(command) => context::run(asked, command, output, out),
        Command::Completion { shell } => completion::register(shell, out),
        Command::Man { out: folder } => man(&folder, out),
        Command::MarkdownHelp => out
            .write_all(nabu_common::cli::markdown_help::<Cli>().as_bytes())
            .context("cannot write to standard output"),
    }
}

fn man(folder: &std::path::Path, out: Out<'_>) -> anyhow::Result<()> {
    let write = || {
        std::fs::create_dir_all(folder)?;
        clap_mangen::generate_to(<Cli as clap::CommandFactory>::command(), folder)
    };
    write().with_context(|| format!("cannot write to {}", folder.display()))?;
    writeln!(out, "wrote man pages to {}", folder.display())?;
    Ok(())
}
