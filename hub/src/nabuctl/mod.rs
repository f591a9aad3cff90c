//! The command line of administrators: a client of the admin API, and the maker of certificates.
//!
//! Flags and commands are here, the connection in [`client`], what people see in [`view`].

mod client;
mod pki;
mod view;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand, ValueEnum};
use nabu_common::ids::ClusterId;
use nabu_proto::admin_v1::{GetResponseRequest, ListClustersRequest, ListResponsesRequest};

/// Asks a Nabu hub about its clusters and responses, and makes certificates.
#[derive(Debug, Parser)]
#[command(
    name = "nabuctl",
    version,
    about = "Asks a Nabu hub about its clusters and responses, and makes certificates"
)]
pub struct Cli {
    /// The hub to ask.
    #[command(flatten)]
    pub connection: Connection,

    /// How to print.
    #[arg(short, long, global = true, value_enum, default_value_t)]
    pub output: Output,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where the hub is, and how to show who we are.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// Address of the hub's admin API, or `unix:PATH` of its socket (--admin-socket of nabu-hub).
    #[arg(
        long,
        global = true,
        env = "NABU_HUB",
        default_value = "https://localhost:8444",
        value_name = "URL"
    )]
    pub hub: String,

    /// Folder with ca.crt, tls.crt and tls.key of an administrator.
    #[arg(
        long,
        global = true,
        env = "NABU_TLS_DIR",
        default_value = "/etc/nabu/admin",
        value_name = "DIR"
    )]
    pub tls_dir: PathBuf,

    /// Name that the hub's certificate must have, if it is not the host of the address.
    #[arg(long, global = true, env = "NABU_HUB_SERVER_NAME", value_name = "NAME")]
    pub server_name: Option<String>,
}

/// How answers are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A table.
    #[default]
    Table,
    /// A table with more columns.
    Wide,
    /// JSON.
    Json,
    /// Names only, one on a line.
    Name,
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
    /// Make certificates.
    #[command(subcommand)]
    Pki(PkiCommand),
    /// Print these flags as Markdown, for the documentation.
    #[command(hide = true)]
    MarkdownHelp,
}

/// About clusters.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// List clusters.
    #[command(visible_alias = "ls")]
    List,
}

/// About responses.
#[derive(Debug, Subcommand)]
pub enum ResponseCommand {
    /// List responses, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Only of this cluster.
        #[arg(long)]
        cluster: Option<ClusterId>,
        /// Only in this phase: Pending, Running, Succeeded, Failed or Cancelled. Repeatable.
        #[arg(long = "phase")]
        phases: Vec<String>,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Explain one response: attempts, history, and the text of its pull request.
    #[command(visible_alias = "explain")]
    Get {
        /// The cluster of the EventResponse.
        cluster: ClusterId,
        /// metadata.name or metadata.uid of the EventResponse.
        name: String,
    },
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

/// Does what the command line says, and prints to `out`.
///
/// # Errors
/// If the hub cannot be reached or refuses; the text says what to do.
pub async fn run(cli: Cli, out: &mut (dyn Write + Send)) -> anyhow::Result<()> {
    let Cli {
        connection,
        output,
        command,
    } = cli;
    match command {
        Command::Pki(command) => pki::run(command, out),
        Command::Cluster(ClusterCommand::List) => {
            let mut client = client::connect(&connection).await?;
            let mut clusters = Vec::new();
            let mut request = ListClustersRequest::default();
            loop {
                let page = client
                    .list_clusters(request.clone())
                    .await
                    .map_err(client::explain)?
                    .into_inner();
                clusters.extend(page.clusters);
                if page.next_page_token.is_empty() {
                    break;
                }
                request.page_token = page.next_page_token;
            }
            view::clusters(&clusters, output, out)
        }
        Command::Response(ResponseCommand::List {
            cluster,
            phases,
            limit,
        }) => {
            let mut client = client::connect(&connection).await?;
            let mut responses = Vec::new();
            let mut request = ListResponsesRequest {
                cluster_id: cluster.map(String::from).unwrap_or_default(),
                phases,
                ..ListResponsesRequest::default()
            };
            while responses.len() < limit as usize {
                request.page_size =
                    i32::try_from(limit as usize - responses.len()).unwrap_or(i32::MAX);
                let page = client
                    .list_responses(request.clone())
                    .await
                    .map_err(client::explain)?
                    .into_inner();
                responses.extend(page.responses);
                if page.next_page_token.is_empty() {
                    break;
                }
                request.page_token = page.next_page_token;
            }
            view::responses(&responses, output, out)
        }
        Command::Response(ResponseCommand::Get { cluster, name }) => {
            let mut client = client::connect(&connection).await?;
            let request = GetResponseRequest {
                cluster_id: cluster.to_string(),
                uid_or_name: name,
            };
            let answer = client
                .get_response(request)
                .await
                .map_err(client::explain)?
                .into_inner();
            view::response(&answer, output, out)
        }
        Command::MarkdownHelp => out
            .write_all(nabu_common::cli::markdown_help::<Cli>().as_bytes())
            .context("cannot write to standard output"),
    }
}
