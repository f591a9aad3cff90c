//! Owns the agent's flags. Each is an environment variable as well; both are checked here, before anything starts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use nabu_common::identity::TrustDomain;
use nabu_common::ids::ClusterId;
use nabu_common::san::ClusterSan;
use nabu_common::telemetry::LogArgs;
use nabu_common::tls::{CaPin, HttpProxy, TlsFiles};
use secrecy::SecretString;

/// Watches `EventResponses` in one cluster, streams them to the hub, and writes the results into their status.
#[derive(Debug, Parser)]
#[command(
    name = "nabu-agent",
    version = nabu_common::build::FACTS,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct Cli {
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Logging.
    #[command(flatten)]
    pub log: LogArgs,
    /// Everything else.
    #[command(flatten)]
    pub config: Option<Config>,
}

/// What the program does instead of serving.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Prints the reference of all flags as Markdown.
    #[command(hide = true)]
    MarkdownHelp,
    /// Ask a running server whether it is ready; exit code 0 if it is.
    Ready(nabu_common::ops::Probe),
}

/// How the agent serves.
#[derive(Clone, Debug, Args)]
pub struct Config {
    /// The id of this cluster: the one in the agent's certificate.
    #[arg(long, env = "NABU_AGENT_CLUSTER_ID")]
    pub cluster_id: ClusterId,

    /// What people call the cluster. The cluster id if not given.
    #[arg(long, env = "NABU_AGENT_CLUSTER_NAME", default_value = "")]
    pub cluster_name: String,

    /// The hub, for example `https://nabu-hub.example.com:8443`.
    #[arg(long, env = "NABU_AGENT_HUB", value_parser = parse_hub)]
    pub hub: http::Uri,

    /// The name in the hub's certificate, if it is not the host of --hub.
    #[arg(long, env = "NABU_AGENT_HUB_SERVER_NAME")]
    pub hub_server_name: Option<String>,

    /// An HTTP proxy through which the hub is reached: `http://[user:password@]host:port`. It passes TLS on and reads nothing of it.
    /// Other users of the machine may see command lines: with a password prefer the variable. The API server is reached
    /// without it.
    #[arg(long, env = "NABU_AGENT_HUB_PROXY", hide_env_values = true)]
    pub hub_proxy: Option<HttpProxy>,

    /// Serve `EventResponses` with this spec.responder.name. May be repeated; separated by commas in the variable.
    #[arg(
        long = "responder",
        env = "NABU_AGENT_RESPONDER",
        value_delimiter = ',',
        default_value = "ugallu-gitops-responder"
    )]
    pub responders: Vec<String>,

    /// How often everything unfinished is sent again, unless the hub says otherwise; for example 10m.
    #[arg(long, env = "NABU_AGENT_RESYNC", default_value = "10m", value_parser = parse_duration)]
    pub resync: Duration,

    /// How long to wait for a `SecurityEvent` that is not there before its EventResponse is sent without it.
    #[arg(long, env = "NABU_AGENT_SECURITY_EVENT_WAIT", default_value = "5s", value_parser = parse_duration)]
    pub security_event_wait: Duration,

    /// Certificates (PEM) of the authority that the hub is certified by.
    #[arg(
        long,
        env = "NABU_AGENT_TLS_CA",
        default_value = "/etc/nabu/tls/ca.crt"
    )]
    pub tls_ca: PathBuf,

    /// The agent's certificate chain (PEM). Read again when it changes.
    #[arg(
        long,
        env = "NABU_AGENT_TLS_CERT",
        default_value = "/etc/nabu/tls/tls.crt"
    )]
    pub tls_cert: PathBuf,

    /// The agent's private key (PEM). Read again when it changes.
    #[arg(
        long,
        env = "NABU_AGENT_TLS_KEY",
        default_value = "/etc/nabu/tls/tls.key"
    )]
    pub tls_key: PathBuf,

    /// The trust domain of the fleet's certificates.
    #[arg(long, env = "NABU_AGENT_TRUST_DOMAIN", default_value = "nabu")]
    pub trust_domain: TrustDomain,

    /// The URI name of agents' certificates, with {id} in the place of the cluster id, where your own PKI has another form;
    /// `{trust_domain}` stands for --trust-domain. The hub needs the same.
    #[arg(
        long,
        env = "NABU_AGENT_CLUSTER_SAN",
        value_name = "URI",
        conflicts_with_all = ["state_dir", "identity_secret"]
    )]
    pub cluster_san: Option<ClusterSan>,

    /// Folder in which the agent keeps its own key and certificate, which it gets with a join token and renews by
    /// itself. Instead of the three TLS files.
    #[arg(long, env = "NABU_AGENT_STATE_DIR", conflicts_with = "identity_secret")]
    pub state_dir: Option<PathBuf>,

    /// Secret of the agent's own namespace in which it keeps its key and certificate, instead of a folder. It must
    /// exist, and may be empty.
    #[arg(long, env = "NABU_AGENT_IDENTITY_SECRET")]
    pub identity_secret: Option<String>,

    /// File with the join token of `nabuctl cluster add`. Used once, while the agent has no certificate of its own;
    /// read again when another one is needed.
    #[arg(
        long,
        env = "NABU_AGENT_JOIN_TOKEN_FILE",
        conflicts_with = "join_token"
    )]
    pub join_token_file: Option<PathBuf>,

    /// The join token itself. Other users of the machine may see command lines: prefer the file, or the variable.
    #[arg(long, env = "NABU_AGENT_JOIN_TOKEN", hide_env_values = true)]
    pub join_token: Option<SecretString>,

    /// What the hub's authority must be when a join token is used: `sha256:` and 64 hex digits, as `nabuctl cluster add`
    /// prints it. May be repeated; separated by commas in the variable.
    #[arg(
        long = "hub-ca-pin",
        env = "NABU_AGENT_HUB_CA_PIN",
        value_delimiter = ','
    )]
    pub hub_ca_pins: Vec<CaPin>,

    /// Where /livez, /readyz and /metrics are served over HTTP.
    #[arg(long, env = "NABU_AGENT_LISTEN", default_value = "0.0.0.0:8081")]
    pub listen: SocketAddr,

    /// Be one of several replicas of which one is active. On by default inside a cluster.
    #[arg(
        long,
        env = "NABU_AGENT_LEADER_ELECT",
        default_value_t = inside_cluster(),
        hide_default_value = true,
        action = clap::ArgAction::Set,
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,

    /// The namespace of the Lease. The agent's own namespace if not given.
    #[arg(long, env = "NABU_AGENT_LEADER_ELECT_NAMESPACE")]
    pub leader_elect_namespace: Option<String>,

    /// The name of the Lease.
    #[arg(
        long,
        env = "NABU_AGENT_LEADER_ELECT_LEASE",
        default_value = "nabu-agent"
    )]
    pub leader_elect_lease: String,
}

impl Config {
    /// The TLS files.
    pub fn tls_files(&self) -> TlsFiles {
        TlsFiles {
            ca: self.tls_ca.clone(),
            cert: self.tls_cert.clone(),
            key: self.tls_key.clone(),
        }
    }
}

/// Where the agent keeps an identity that it enrols for and renews by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnIdentity {
    /// A folder on disk.
    Folder(PathBuf),
    /// A Secret of the agent's own namespace, by name.
    Secret(String),
}

impl Config {
    /// Where the agent keeps its own identity; `None` if it uses TLS files that others make.
    ///
    /// # Errors
    /// If flags of enrolment are given that do not fit together; the text says what to do.
    pub fn own_identity(&self) -> Result<Option<OwnIdentity>, String> {
        let own = match (&self.state_dir, &self.identity_secret) {
            (Some(folder), _) => Some(OwnIdentity::Folder(folder.clone())),
            (None, Some(name)) => Some(OwnIdentity::Secret(name.clone())),
            (None, None) => None,
        };
        let token = self.join_token.is_some() || self.join_token_file.is_some();
        if token && own.is_none() {
            return Err(
                "a join token is given, and no place for the certificate that it is used for: give --state-dir or \
                --identity-secret"
                    .to_owned(),
            );
        }
        if token && self.hub_ca_pins.is_empty() {
            return Err(
                "a join token is given without --hub-ca-pin: it must not be sent to a hub that nobody has checked; \
                `nabuctl cluster add` prints the pin"
                    .to_owned(),
            );
        }
        Ok(own)
    }
}

fn inside_cluster() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

fn parse_hub(text: &str) -> Result<http::Uri, String> {
    let example = "use for example https://nabu-hub.example.com:8443";
    let uri: http::Uri = text
        .parse()
        .map_err(|error| format!("{error}; {example}"))?;
    if uri.scheme_str() != Some("https") || uri.host().is_none() || uri.path() != "/" {
        return Err(format!("the address must be https://host:port; {example}"));
    }
    Ok(uri)
}

/// A number and a unit: `500ms`, `5s`, `10m`, `1h`.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|error| format!("{error}; use for example 500ms, 5s, 10m or 1h"))?;
    Duration::try_from(span)
        .ok()
        .filter(|span| !span.is_zero())
        .ok_or_else(|| "it must be more than zero".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(extra: &[&str]) -> Result<Config, clap::Error> {
        let base = [
            "nabu-agent",
            "--cluster-id",
            "prod-eu",
            "--hub",
            "https://hub:8443",
        ];
        Cli::try_parse_from(base.iter().chain(extra)).map(|cli| cli.config.unwrap())
    }

    #[test]
    fn the_flags_are_consistent_and_each_has_a_variable() {
        Cli::command().debug_assert();
        let command = Cli::command();
        let without: Vec<_> = command
            .get_arguments()
            .filter(|arg| {
                arg.get_env().is_none() && !["help", "version"].contains(&arg.get_id().as_str())
            })
            .map(|arg| arg.get_id().to_string())
            .collect();
        assert!(without.is_empty(), "{without:?}");
    }

    #[test]
    fn defaults_are_those_of_the_reference() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.responders, ["ugallu-gitops-responder"]);
        assert_eq!(config.resync, Duration::from_mins(10));
        assert_eq!(config.security_event_wait, Duration::from_secs(5));
        assert_eq!(config.listen.port(), 8081);
        assert!(!config.leader_elect);
    }

    #[test]
    fn leader_election_can_be_turned_on_and_off() {
        assert!(parse(&["--leader-elect"]).unwrap().leader_elect);
        assert!(!parse(&["--leader-elect=false"]).unwrap().leader_elect);
    }

    #[test]
    fn several_responders_may_be_served() {
        let config = parse(&["--responder", "a", "--responder", "b,c"]).unwrap();
        assert_eq!(config.responders, ["a", "b", "c"]);
    }

    #[test]
    fn a_join_token_is_only_used_with_a_pin_and_a_place_for_the_certificate() {
        let pin = format!("sha256:{}", "0a".repeat(32));
        let pinned = ["--join-token", "t", "--hub-ca-pin", &pin];
        let own = |extra: &[&str]| parse(extra).unwrap().own_identity();
        assert_eq!(own(&[]), Ok(None));
        assert!(own(&pinned).unwrap_err().contains("--state-dir"));
        let unpinned = own(&["--join-token", "t", "--state-dir", "s"]);
        assert!(unpinned.unwrap_err().contains("--hub-ca-pin"));
        let whole: Vec<_> = pinned
            .into_iter()
            .chain(["--identity-secret", "s"])
            .collect();
        assert_eq!(own(&whole), Ok(Some(OwnIdentity::Secret("s".to_owned()))));
        assert!(parse(&["--state-dir", "a", "--identity-secret", "b"]).is_err());
        assert!(parse(&["--hub-ca-pin", "sha256:12"]).is_err());
    }

    #[test]
    fn a_join_token_is_never_shown() {
        let config = parse(&["--join-token", "hush"]).unwrap();
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn a_wrong_value_is_answered_with_an_example() {
        for (flag, value) in [
            ("--hub", "hub:8443"),
            ("--hub", "http://hub"),
            ("--resync", "soon"),
            ("--resync", "0s"),
        ] {
            let error = parse(&[flag, value]).unwrap_err().to_string();
            assert!(error.contains(flag), "{error}");
        }
    }

    #[test]
    fn the_reference_can_be_printed_without_any_flag() {
        let cli = Cli::try_parse_from(["nabu-agent", "markdown-help"]).unwrap();
        assert!(matches!(cli.command, Some(Command::MarkdownHelp)) && cli.config.is_none());
    }
}
