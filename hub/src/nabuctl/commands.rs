//! Commands about responses, routes and the hub itself, as the command line has them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::ArgValueCompleter;
use jiff::Timestamp;
use nabu_common::ids::ClusterId;
use nabu_proto::admin_v1::ResponseFilter;

use super::completion::{cluster_names, context_names, response_names, route_names};

/// Which responses.
#[derive(Clone, Debug, Default, Args)]
pub struct Selection {
    /// Only of this cluster. Repeatable.
    #[arg(long = "cluster", add = ArgValueCompleter::new(cluster_names))]
    pub clusters: Vec<ClusterId>,
    /// Only of clusters with this label. Repeatable; all must hold.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    pub labels: Vec<(String, String)>,
    /// Only in this phase: Pending, Running, Succeeded, Failed or Cancelled. Repeatable.
    #[arg(long = "phase")]
    pub phases: Vec<String>,
    /// Only observed since then: a time such as 2026-11-21T15:00:00Z, or how long ago, such as 90s, 30m, 12h or 7d.
    #[arg(long, value_parser = since)]
    pub since: Option<Timestamp>,
    /// Only with this route, as NAMESPACE/CONFIG/ROUTE with * for any characters. Repeatable.
    #[arg(long = "route", add = ArgValueCompleter::new(route_names))]
    pub routes: Vec<String>,
    /// Only of this forge: github-app, github-token, gitlab-token, forgejo-token or noop. Repeatable.
    #[arg(long = "provider")]
    pub providers: Vec<String>,
    /// Only for this repository, as OWNER/NAME with * for any characters. Repeatable.
    #[arg(long = "repository")]
    pub repositories: Vec<String>,
    /// Only with an error of this type: Transient, Permanent, Conflicting or Unauthorized. Repeatable.
    #[arg(long = "error-type")]
    pub error_types: Vec<String>,
    /// Only with an error of this reason. Repeatable.
    #[arg(long = "reason")]
    pub error_reasons: Vec<String>,
}

impl Selection {
    pub(super) fn into_filter(self) -> ResponseFilter {
        ResponseFilter {
            cluster_ids: self.clusters.into_iter().map(String::from).collect(),
            cluster_labels: self.labels.into_iter().collect(),
            phases: self.phases,
            since: self.since.map(wire_time),
            routes: self.routes,
            providers: self.providers,
            repositories: self.repositories,
            error_types: self.error_types,
            error_reasons: self.error_reasons,
        }
    }
}

pub(super) fn wire_time(at: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: at.as_second(),
        nanos: at.subsec_nanosecond(),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn since(text: &str) -> Result<Timestamp, String> {
    since_then(text, Timestamp::now())
}

fn since_then(text: &str, now: Timestamp) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is neither a time such as 2026-11-21T15:00:00Z nor a span such as 90s, 30m, 12h or 7d"
        )
    };
    let Some((unit_at, unit)) = text.char_indices().next_back() else {
        return Err(wrong());
    };
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return text.parse().map_err(|_| wrong()),
    };
    let count: i64 = text[..unit_at].parse().map_err(|_| wrong())?;
    let span = count.checked_mul(seconds).ok_or_else(wrong)?;
    now.checked_sub(jiff::SignedDuration::from_secs(span))
        .map_err(|_| wrong())
}

/// One response.
#[derive(Clone, Debug, Args)]
pub struct Named {
    /// The cluster of the EventResponse.
    #[arg(add = ArgValueCompleter::new(cluster_names))]
    pub cluster: ClusterId,
    /// metadata.name or metadata.uid of the EventResponse.
    #[arg(add = ArgValueCompleter::new(response_names))]
    pub name: String,
}

/// About responses.
#[derive(Debug, Subcommand)]
pub enum ResponseCommand {
    /// List responses, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Which.
        #[command(flatten)]
        selection: Selection,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
        /// Go on with every change, until it is interrupted.
        #[arg(short, long)]
        watch: bool,
    },
    /// Show one response: attempts, history, and the text of its pull request.
    Get {
        /// Which.
        #[command(flatten)]
        named: Named,
    },
    /// Tell step by step what happened to one response, and why. With -o wide also the text of its pull request.
    Explain {
        /// Which.
        #[command(flatten)]
        named: Named,
    },
    /// Let a response that waits make its next attempt now.
    Retry {
        /// Which.
        #[command(flatten)]
        named: Named,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// End a response that has not ended.
    Cancel {
        /// Which.
        #[command(flatten)]
        named: Named,
        /// Why; ends up in the status of the EventResponse.
        #[arg(long, default_value = "")]
        reason: String,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
}

/// About routes.
#[derive(Debug, Subcommand)]
pub enum RouteCommand {
    /// Say what would become of an EventResponse: its route and why, the pull request, or why there is none.
    Test {
        /// The cluster that it is for.
        #[arg(long, add = ArgValueCompleter::new(cluster_names))]
        cluster: ClusterId,
        /// File with the EventResponse, and perhaps its SecurityEvent, as YAML or JSON; - reads standard input.
        #[arg(short, long, value_name = "FILE", required_unless_present = "stored")]
        file: Option<PathBuf>,
        /// An EventResponse that the hub has stored, by metadata.name or metadata.uid.
        #[arg(long, value_name = "NAME", conflicts_with = "file", add = ArgValueCompleter::new(response_names))]
        stored: Option<String>,
        /// File with GitOpsResponderConfig documents that are taken as if they were applied.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// A label of the cluster for this test. Repeatable.
        #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
        labels: Vec<(String, String)>,
    },
}

/// About the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every GitOpsResponderConfig, what is wrong with it, and the routes in force.
    Status,
}

/// About forges.
#[derive(Debug, Subcommand)]
pub enum ForgeCommand {
    /// List forges by credential, with their limits and what waits for them.
    #[command(visible_alias = "ls")]
    List,
}

/// About the audit log.
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List lines of the audit log, newest first.
    #[command(visible_alias = "ls")]
    List {
        /// Only of this actor: agent/CLUSTER, hub, admin/NAME or local/UID.
        #[arg(long)]
        actor: Option<String>,
        /// Only of this action, for example `RetryResponse` or `PullRequestMerged`.
        #[arg(long)]
        action: Option<String>,
        /// Only about this cluster or a response of it.
        #[arg(long, add = ArgValueCompleter::new(cluster_names))]
        cluster: Option<ClusterId>,
        /// Only calls with this gRPC code, for example `Ok` or `PermissionDenied`.
        #[arg(long)]
        outcome: Option<String>,
        /// Only since then, as with `response list`.
        #[arg(long, value_parser = since)]
        since: Option<Timestamp>,
        /// Only calls to the admin API.
        #[arg(long)]
        calls: bool,
        /// At most this many.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
}

/// About contexts.
#[derive(Debug, Subcommand)]
pub enum ContextCommand {
    /// List contexts.
    #[command(visible_alias = "ls")]
    List,
    /// Use a context where the command line names none.
    Use {
        /// Its name.
        #[arg(add = ArgValueCompleter::new(context_names))]
        name: String,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Make or change a context out of --hub, --tls-dir and --server-name.
    Set {
        /// Its name.
        name: String,
        /// What `nabu-hub init-admin --out -` has written, `-` for standard input: kept beside the contexts, in a folder of the
        /// context's name, instead of --tls-dir.
        #[arg(long)]
        certificate: Option<PathBuf>,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
    /// Delete a context.
    Delete {
        /// Its name.
        #[arg(add = ArgValueCompleter::new(context_names))]
        name: String,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Shells that completion is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// fish.
    Fish,
}

impl Shell {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Bash => "bash",
            Self::Zsh => "zsh",
            Self::Fish => "fish",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_given_as_such_or_as_how_long_ago() {
        let now: Timestamp = "2026-11-21T15:00:00Z".parse().unwrap();
        for (text, at) in [
            ("90s", "2026-11-21T14:58:30Z"),
            ("2h", "2026-11-21T13:00:00Z"),
            ("7d", "2026-11-14T15:00:00Z"),
            ("2026-11-01T00:00:00Z", "2026-11-01T00:00:00Z"),
        ] {
            assert_eq!(
                since_then(text, now).unwrap(),
                at.parse().unwrap(),
                "{text}"
            );
        }
        for text in ["", "h", "yesterday", "1w", "9223372036854775807d"] {
            assert!(since_then(text, now).is_err(), "{text}");
        }
    }
}
