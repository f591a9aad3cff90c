//! The command line of `nabu-hub`: every flag is an environment variable as well.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use nabu_common::identity::TrustDomain;
use nabu_common::ids::ClusterId;
use nabu_common::san::{AdminSan, ClusterSan, Names};
use nabu_common::telemetry::LogArgs;

use crate::admin::roles::RoleRule;
use crate::execute::Settings;
use crate::execute::gate::Budget;
use crate::retention::Keep;

/// The hub of Nabu: takes EventResponses from the agents of a fleet and opens one pull request for each.
#[derive(Debug, Parser)]
#[command(
    name = "nabu-hub",
    version = nabu_common::build::FACTS,
    about = "The hub of Nabu: takes EventResponses from the agents of a fleet and opens one pull request for each",
    args_conflicts_with_subcommands = true
)]
pub struct Cli {
    /// Something else than serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Flags of the server.
    #[command(flatten)]
    pub config: Config,
    /// Flags of the log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Subcommands that do not serve.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Make the key and certificate of an administrator by the hub's own authority: ca.crt, tls.crt and tls.key. Works
    /// beside a hub that runs on the same database.
    InitAdmin {
        /// Who it is; ends up in the audit log.
        name: String,
        /// Folder to write to, or `-`: all three after one another on standard output, for `nabuctl context set --certificate -`.
        #[arg(long)]
        out: PathBuf,
        /// Where the hub has its database and its authority.
        #[command(flatten)]
        at: AuthorityArgs,
    },
    /// Copy the database as it is at this moment. Works beside a hub that runs on it.
    Backup {
        /// File to write to, which must not be there yet, or `-`: standard output.
        #[arg(long)]
        out: PathBuf,
        /// The SQLite database.
        #[arg(long, env = "NABU_HUB_STORE", default_value = "/var/lib/nabu/nabu.db")]
        store: PathBuf,
    },
    /// Print these flags as Markdown, for the documentation.
    #[command(hide = true)]
    MarkdownHelp,
    /// Ask a running server whether it is ready; exit code 0 if it is.
    Ready(nabu_common::ops::Probe),
}

/// What the server is told.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// Address that agents dial (gRPC, mutual TLS).
    #[arg(long, env = "NABU_HUB_LISTEN_AGENTS", default_value = "0.0.0.0:8443")]
    pub listen_agents: SocketAddr,

    /// Address that administrators dial (gRPC, mutual TLS).
    #[arg(long, env = "NABU_HUB_LISTEN_ADMIN", default_value = "0.0.0.0:8444")]
    pub listen_admin: SocketAddr,

    /// A role (viewer, operator or admin) of administrators whose name fits a pattern, in which `*` stands for any
    /// characters; the highest that fits counts. Repeatable; in the environment separated by commas. Without any, every
    /// administrator has the role admin.
    #[arg(
        long = "admin-role",
        env = "NABU_HUB_ADMIN_ROLE",
        value_name = "ROLE:PATTERN",
        value_delimiter = ','
    )]
    pub admin_roles: Vec<RoleRule>,

    /// A Unix socket for the admin API, for root and the hub's own user, without TLS. Off when not given.
    #[arg(long, env = "NABU_HUB_ADMIN_SOCKET", value_name = "PATH")]
    pub admin_socket: Option<PathBuf>,

    /// Address of /livez, /readyz and /metrics (HTTP).
    #[arg(long, env = "NABU_HUB_LISTEN_OPS", default_value = "0.0.0.0:8080")]
    pub listen_ops: SocketAddr,

    /// Address that forges send webhooks to (plain HTTP: end TLS in front of it, for example at an ingress). Off when
    /// not given.
    #[arg(long, env = "NABU_HUB_LISTEN_WEBHOOKS")]
    pub listen_webhooks: Option<SocketAddr>,

    /// Certificates (PEM) of the authorities that agents and administrators must be certified by.
    #[arg(long, env = "NABU_HUB_TLS_CA", default_value = "/etc/nabu/tls/ca.crt")]
    pub tls_ca: PathBuf,

    /// The hub's certificate chain (PEM). Read again when it changes.
    #[arg(
        long,
        env = "NABU_HUB_TLS_CERT",
        default_value = "/etc/nabu/tls/tls.crt"
    )]
    pub tls_cert: PathBuf,

    /// The hub's private key (PEM). Read again when it changes.
    #[arg(
        long,
        env = "NABU_HUB_TLS_KEY",
        default_value = "/etc/nabu/tls/tls.key"
    )]
    pub tls_key: PathBuf,

    /// The URI name of agents' certificates, with {id} in the place of the cluster id, where your own PKI has another form than
    /// `spiffe://{trust_domain}/cluster/{id}`; `{trust_domain}` stands for --trust-domain.
    #[arg(
        long,
        env = "NABU_HUB_CLUSTER_SAN",
        value_name = "URI",
        conflicts_with_all = ["ca_encryption_key_file", "ca_cert_file"]
    )]
    pub cluster_san: Option<ClusterSan>,

    /// The URI name of administrators' certificates, with {name} in the place of the name, where your own PKI has another form
    /// than `spiffe://{trust_domain}/admin/{name}`.
    #[arg(
        long,
        env = "NABU_HUB_ADMIN_SAN",
        value_name = "URI",
        conflicts_with_all = ["ca_encryption_key_file", "ca_cert_file"]
    )]
    pub admin_san: Option<AdminSan>,

    /// The database and the authority.
    #[command(flatten)]
    pub authority: AuthorityArgs,

    /// DNS name or IP address under which agents and administrators dial the hub, for the certificate that it makes for
    /// itself. Repeatable; in the environment separated by commas.
    #[arg(
        long = "server-name",
        env = "NABU_HUB_SERVER_NAMES",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    pub server_names: Vec<String>,

    /// Address of the hub in what `nabuctl cluster add` prints. `https://`, the first --server-name and the port of
    /// --listen-agents if not given.
    #[arg(long, env = "NABU_HUB_AGENTS_URL", value_name = "URL")]
    pub agents_url: Option<String>,

    /// How long certificates of agents live that the hub makes; at most 24h.
    #[arg(long, env = "NABU_HUB_AGENT_CERTIFICATE_LIFETIME", default_value = "24h", value_parser = parse_lifetime)]
    pub agent_certificate_lifetime: Duration,

    /// Folder with GitOpsResponderConfig and Secret documents (YAML), instead of objects in the hub's own cluster.
    #[arg(long, env = "NABU_HUB_CONFIG_DIR")]
    pub config_dir: Option<PathBuf>,

    /// Namespace of the hub's own cluster whose GitOpsResponderConfig objects and Secrets are watched. Used when
    /// --config-dir is not given.
    #[arg(
        long,
        env = "NABU_HUB_CONFIG_NAMESPACE",
        default_value = "ugallu-system"
    )]
    pub config_namespace: String,

    /// Attempts for every response; 0 leaves it to routes and EventResponses (3 if nobody says).
    #[arg(long, env = "NABU_HUB_MAX_ATTEMPTS", default_value_t = 0)]
    pub max_attempts: u32,

    /// Unfinished responses that one cluster may have, about; more are taken when some have ended. 0 stands for any number.
    #[arg(long, env = "NABU_HUB_MAX_UNFINISHED", default_value_t = 100_000)]
    pub max_unfinished: u64,

    /// Attempts that may begin in any minute with one credential of GitHub, which allows about 80 new contents; 0 stands
    /// for any number.
    #[arg(long, env = "NABU_HUB_GITHUB_PER_MINUTE", default_value_t = 75)]
    pub github_per_minute: u32,

    /// Attempts that may begin in any hour with one credential of GitHub, which allows about 500 new contents; 0 stands
    /// for any number.
    #[arg(long, env = "NABU_HUB_GITHUB_PER_HOUR", default_value_t = 480)]
    pub github_per_hour: u32,

    /// Requests that the hub leaves of a budget that a forge tells of with its answers (`x-ratelimit-remaining`,
    /// `RateLimit-Remaining`), but at most a tenth of the budget: with fewer, everything with that credential waits until the
    /// budget begins anew. 0 waits when nothing is left.
    #[arg(long, env = "NABU_HUB_RATE_LIMIT_RESERVE", default_value_t = 50)]
    pub rate_limit_reserve: u64,

    /// How often the hub looks at pull requests that wait for people, in seconds; older ones are looked at less often. 0
    /// leaves it to webhooks.
    #[arg(long, env = "NABU_HUB_FOLLOW_SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub follow_seconds: u32,

    /// How long the hub keeps responses that have ended, with their attempts, after their end and the last news of their pull
    /// request, for example 90d, 12h or 30m; 0 keeps them for ever. Those with an open pull request, or whose status the
    /// cluster has not stored, are kept longer.
    #[arg(
        long,
        env = "NABU_HUB_RETAIN_FINISHED",
        default_value = "90d",
        value_name = "TIME"
    )]
    pub retain_finished: Keep,

    /// How long the hub keeps lines of its audit log, in the same form; 0 keeps them for ever.
    #[arg(
        long,
        env = "NABU_HUB_RETAIN_AUDIT",
        default_value = "400d",
        value_name = "TIME"
    )]
    pub retain_audit: Keep,

    /// A label of a cluster, for routes that match clusters by label. It counts beside the labels that `nabuctl cluster
    /// add` gave, and instead of one of the same key. Repeatable; in the environment separated by commas.
    #[arg(
        long = "cluster-label",
        env = "NABU_HUB_CLUSTER_LABELS",
        value_name = "CLUSTER:KEY=VALUE",
        value_delimiter = ','
    )]
    pub cluster_labels: Vec<ClusterLabel>,

    /// How often agents send a heartbeat, in seconds.
    #[arg(long, env = "NABU_HUB_HEARTBEAT_SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=600))]
    pub heartbeat_seconds: u32,

    /// How often agents send their inventory again, in seconds.
    #[arg(long, env = "NABU_HUB_RESYNC_SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub resync_seconds: u32,

    /// How long running attempts may take to end after SIGTERM, in seconds.
    #[arg(long, env = "NABU_HUB_SHUTDOWN_GRACE_SECONDS", default_value_t = 7, value_parser = clap::value_parser!(u32).range(0..=300))]
    pub shutdown_grace_seconds: u32,
}

/// Where the hub has its database and its authority.
#[derive(Clone, Debug, Args)]
pub struct AuthorityArgs {
    /// Trust domain of the fleet: certificates carry `spiffe://<TRUST-DOMAIN>/…`.
    #[arg(long, env = "NABU_HUB_TRUST_DOMAIN", default_value = "nabu")]
    pub trust_domain: TrustDomain,

    /// File with the key (32 bytes in base64) that the built-in authority's private key is encrypted by in the database.
    /// Turns the built-in authority on: the hub certifies agents that join with a token, administrators, and itself, and
    /// the three TLS files are not used.
    #[arg(long, env = "NABU_HUB_CA_ENCRYPTION_KEY_FILE", conflicts_with_all = ["ca_cert_file", "ca_key_file"])]
    pub ca_encryption_key_file: Option<PathBuf>,

    /// File with the key before the one in --ca-encryption-key-file. What it has encrypted is encrypted by the new one at the
    /// next start; after that this flag is not needed any more.
    #[arg(
        long,
        env = "NABU_HUB_CA_OLD_ENCRYPTION_KEY_FILE",
        requires = "ca_encryption_key_file"
    )]
    pub ca_old_encryption_key_file: Option<PathBuf>,

    /// Certificate (PEM) of an authority of your own that the hub certifies agents, administrators and itself by, instead
    /// of the built-in one.
    #[arg(long, env = "NABU_HUB_CA_CERT_FILE", requires = "ca_key_file")]
    pub ca_cert_file: Option<PathBuf>,

    /// Private key (PEM) of --ca-cert-file.
    #[arg(long, env = "NABU_HUB_CA_KEY_FILE", requires = "ca_cert_file")]
    pub ca_key_file: Option<PathBuf>,

    /// The SQLite database; made when it is missing.
    #[arg(long, env = "NABU_HUB_STORE", default_value = "/var/lib/nabu/nabu.db")]
    pub store: PathBuf,
}

impl Config {
    /// What the executor is told.
    pub fn executor(&self) -> Settings {
        Settings {
            max_attempts: self.max_attempts,
            reserve: self.rate_limit_reserve,
        }
    }

    /// How certificates name whom they speak for.
    ///
    /// # Errors
    /// If --cluster-san and --admin-san could be taken for each other.
    pub fn names(&self) -> Result<Names, String> {
        let domain = self.authority.trust_domain.clone();
        Names::new(domain, self.cluster_san.as_ref(), self.admin_san.as_ref())
    }

    /// The labels of each cluster.
    pub fn labels_by_cluster(&self) -> HashMap<ClusterId, BTreeMap<String, String>> {
        let mut by_cluster: HashMap<_, BTreeMap<_, _>> = HashMap::new();
        for label in &self.cluster_labels {
            by_cluster
                .entry(label.cluster.clone())
                .or_default()
                .insert(label.key.clone(), label.value.clone());
        }
        by_cluster
    }

    /// See `--agents-url`.
    pub fn agents_url(&self) -> String {
        let port = self.listen_agents.port();
        match (&self.agents_url, self.server_names.first()) {
            (Some(url), _) => url.clone(),
            (None, Some(name)) if name.contains(':') => format!("https://[{name}]:{port}"),
            (None, Some(name)) => format!("https://{name}:{port}"),
            (None, None) => String::new(),
        }
    }

    /// See `--github-per-minute` and `--github-per-hour`.
    pub fn github_budget(&self) -> Budget {
        Budget {
            per_minute: self.github_per_minute,
            per_hour: self.github_per_hour,
        }
    }

    /// See `--shutdown-grace-seconds`.
    pub fn shutdown_grace(&self) -> Duration {
        Duration::from_secs(self.shutdown_grace_seconds.into())
    }
}

/// A number and a unit, from one second to one day.
fn parse_lifetime(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|error| format!("{error}; use for example 24h or 90m"))?;
    Duration::try_from(span)
        .ok()
        .filter(|span| (Duration::from_secs(1)..=Duration::from_hours(24)).contains(span))
        .ok_or_else(|| "it must be from 1s to 24h".to_owned())
}

/// One `--cluster-label`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterLabel {
    /// The cluster.
    pub cluster: ClusterId,
    /// The label's key.
    pub key: String,
    /// The label's value.
    pub value: String,
}

impl FromStr for ClusterLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!("{text:?} is not of the form CLUSTER:KEY=VALUE, for example prod-eu:env=prod")
        };
        let (cluster, label) = text.split_once(':').ok_or_else(wrong)?;
        let (key, value) = label
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(wrong)?;
        let cluster = cluster
            .parse()
            .map_err(|error| format!("{text:?}: {error}"))?;
        Ok(Self {
            cluster,
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_label_names_cluster_key_and_value() {
        let label: ClusterLabel = "prod-eu:env=prod=1".parse().unwrap();
        assert_eq!(
            (label.cluster.as_ref(), &*label.key, &*label.value),
            ("prod-eu", "env", "prod=1")
        );
    }

    #[test]
    fn a_malformed_cluster_label_is_refused_with_an_example() {
        for text in ["prod-eu", "prod-eu:env", "prod-eu:=x", "Prod EU:env=prod"] {
            let error = text.parse::<ClusterLabel>().unwrap_err();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn a_certificate_of_an_agent_lives_from_a_second_to_a_day() {
        let seconds = |text: &str| parse_lifetime(text).map(|lifetime| lifetime.as_secs());
        assert_eq!(seconds("1s"), Ok(1));
        assert_eq!(seconds("24h"), Ok(24 * 3600));
        for text in ["0s", "999ms", "-1h", "24h 1s", "25h", "86401s"] {
            let error = seconds(text).unwrap_err();
            assert!(error.contains("from 1s to 24h"), "{text}: {error}");
        }
        for text in ["", "soon", "24"] {
            let error = seconds(text).unwrap_err();
            assert!(error.contains("use for example"), "{text}: {error}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
