//! `nabuctl cluster`: what changes who may speak for a cluster.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::Duration;

use clap::Subcommand;
use clap_complete::ArgValueCompleter;
use nabu_common::ids::ClusterId;
use nabu_proto::admin_v1::cluster_service_client::ClusterServiceClient;
use nabu_proto::admin_v1::{
    AddClusterRequest, AddClusterResponse, ListTokensRequest, RebindClusterRequest,
    RemoveClusterRequest, RestoreClusterRequest, RevokeClusterRequest, RevokeTokenRequest,
};
use serde_json::json;
use tonic::transport::Channel;

use super::client::explain;
use super::dry_run::{channel_for, count, say};
use super::output::print_value;
use super::table::visible;
use super::{Connection, Output, view};

/// What `cluster add` is told.
#[derive(Debug, clap::Args)]
pub struct AddArgs {
    /// The cluster id.
    cluster: ClusterId,
    /// A label of the cluster, for routes that match clusters by label. One of the same key on the hub's command line
    /// (--cluster-label) goes before it. Repeatable.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// How long the token can be used, for example 15m; 24h is the most.
    #[arg(long, default_value = "1h", value_parser = parse_ttl)]
    ttl: Duration,
    /// Address of the hub for the agent, if it is not the one that the hub knows.
    #[arg(long, value_name = "URL")]
    agents_url: Option<String>,
    /// Name of the Helm chart.
    #[arg(long, default_value = "charts/nabu-agent")]
    chart: String,
    /// Print a values file for the chart instead of the command. The same as -o values.
    #[arg(long)]
    pub(super) values: bool,
    /// Only say what would happen.
    #[arg(long)]
    dry_run: bool,
}

/// About join tokens.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// List join tokens, newest first; never the tokens themselves.
    #[command(visible_alias = "ls")]
    List {
        /// Only of this cluster.
        #[arg(long)]
        cluster: Option<ClusterId>,
    },
    /// Make a join token useless.
    Revoke {
        /// The token, as the list names it.
        #[arg(add = ArgValueCompleter::new(super::completion::token_names))]
        token: String,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
    },
}

/// What is done to a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    Revoke,
    Restore,
    Remove,
}

impl Act {
    const fn method(self) -> &'static str {
        match self {
            Self::Revoke => "RevokeCluster",
            Self::Restore => "RestoreCluster",
            Self::Remove => "RemoveCluster",
        }
    }
}

/// Connects for an order by this method of the service.
async fn connect(
    connection: &Connection,
    dry_run: bool,
    method: &str,
) -> anyhow::Result<ClusterServiceClient<Channel>> {
    let method = format!("ClusterService/{method}");
    let channel = channel_for(connection, dry_run, &method).await?;
    Ok(ClusterServiceClient::new(channel))
}

pub(super) async fn add(
    connection: &Connection,
    args: AddArgs,
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    let dry_run = args.dry_run;
    let labels: BTreeMap<_, _> = args.labels.into_iter().collect();
    let request = AddClusterRequest {
        cluster_id: args.cluster.to_string(),
        labels: labels.clone().into_iter().collect(),
        ttl: Some(args.ttl.try_into()?),
        validate_only: dry_run,
    };
    let mut client = connect(connection, dry_run, "AddCluster").await?;
    let answer = client.add_cluster(request).await.map_err(explain)?;
    let mut answer = answer.into_inner();
    if let Some(url) = args.agents_url {
        answer.agents_url = url;
    }
    let join = Join {
        cluster: &args.cluster,
        answer: &answer,
        chart: &args.chart,
    };
    if matches!(output, Output::Json | Output::Yaml) {
        let value = if dry_run {
            join.json_of_dry_run(&labels)
        } else {
            join.json()
        };
        print_value(&value, output, out)?;
    } else if dry_run {
        say(&join.sentence(args.ttl, &labels), dry_run, output, out)?;
    } else if output == Output::Name {
        writeln!(out, "{}", visible(&answer.token_id))?;
    } else if args.values {
        out.write_all(join.values().as_bytes())?;
    } else {
        out.write_all(join.command().as_bytes())?;
    }
    Ok(())
}

/// Everything that an agent needs to join.
struct Join<'a> {
    cluster: &'a ClusterId,
    answer: &'a AddClusterResponse,
    chart: &'a str,
}

impl Join<'_> {
    fn expires_at(&self) -> String {
        view::time(self.answer.expires_at)
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "clusterId": self.cluster.to_string(),
            "token": self.answer.token,
            "tokenId": self.answer.token_id,
            "expiresAt": self.expires_at(),
            "hub": self.answer.agents_url,
            "caPins": self.answer.ca_pins,
            "trustDomain": self.answer.trust_domain,
        })
    }

    /// What would be made: no token, but everything else.
    fn json_of_dry_run(&self, labels: &BTreeMap<String, String>) -> serde_json::Value {
        json!({
            "dryRun": true,
            "clusterId": self.cluster.to_string(),
            "labels": labels,
            "expiresAt": self.expires_at(),
            "hub": self.answer.agents_url,
            "caPins": self.answer.ca_pins,
            "trustDomain": self.answer.trust_domain,
        })
    }

    fn sentence(&self, ttl: Duration, labels: &BTreeMap<String, String>) -> String {
        let labels = if labels.is_empty() {
            "keep its labels, if it has any".to_owned()
        } else {
            let pairs = labels.iter().map(|(key, value)| format!("{key}={value}"));
            format!("have the labels {}", pairs.collect::<Vec<_>>().join(", "))
        };
        let ttl = jiff::SignedDuration::try_from(ttl).unwrap_or_default();
        format!(
            "cluster {} would get a join token for one agent at {}, good for {ttl:#}, until {}, and {labels}",
            self.cluster,
            self.answer.agents_url,
            self.expires_at(),
        )
    }

    /// A command that can be pasted into a shell: nothing in it needs quoting but what is quoted.
    fn command(&self) -> String {
        let Self { answer, chart, .. } = self;
        // Helm takes a comma for the next value.
        let pins = answer.ca_pins.join("\\,");
        format!(
            "# Join token {id}, good until {until}, for one agent. It is shown only here.\n\
            helm install nabu-agent '{chart}' \\\n  \
            --namespace nabu-system --create-namespace \\\n  \
            --set 'clusterId={cluster}' \\\n  \
            --set 'hub.url={hub}' \\\n  \
            --set 'hub.caPin={pins}' \\\n  \
            --set 'hub.trustDomain={domain}' \\\n  \
            --set 'joinToken={token}'\n",
            id = answer.token_id,
            until = self.expires_at(),
            cluster = self.cluster,
            hub = answer.agents_url,
            domain = answer.trust_domain,
            token = answer.token,
        )
    }

    fn values(&self) -> String {
        let Self { answer, .. } = self;
        format!(
            "# Join token {id}, good until {until}, for one agent. It is shown only here.\n\
            clusterId: {cluster}\n\
            hub:\n  \
            url: {hub}\n  \
            caPin: {pins}\n  \
            trustDomain: {domain}\n\
            joinToken: {token}\n",
            id = answer.token_id,
            until = self.expires_at(),
            cluster = json!(self.cluster.to_string()),
            hub = json!(answer.agents_url),
            pins = json!(answer.ca_pins.join(",")),
            domain = json!(answer.trust_domain),
            token = json!(answer.token),
        )
    }
}

pub(super) async fn act(
    connection: &Connection,
    act: Act,
    cluster: ClusterId,
    dry_run: bool,
    (output, out): (Output, &mut (dyn Write + Send)),
) -> anyhow::Result<()> {
    let mut client = connect(connection, dry_run, act.method()).await?;
    let cluster_id = cluster.to_string();
    let message = match act {
        Act::Revoke => {
            let request = RevokeClusterRequest {
                cluster_id,
                validate_only: dry_run,
            };
            let answer = client.revoke_cluster(request).await.map_err(explain)?;
            let sessions = count(answer.into_inner().sessions, "session");
            if dry_run {
                format!("cluster {cluster} would be revoked; {sessions} would end")
            } else {
                format!("cluster {cluster} is revoked; its session ends, and it gets no other one")
            }
        }
        Act::Restore => {
            let request = RestoreClusterRequest {
                cluster_id,
                validate_only: dry_run,
            };
            client.restore_cluster(request).await.map_err(explain)?;
            if dry_run {
                format!("cluster {cluster} would be restored")
            } else {
                format!("cluster {cluster} is restored; its agent comes back within about a minute")
            }
        }
        Act::Remove => {
            let request = RemoveClusterRequest {
                cluster_id,
                validate_only: dry_run,
            };
            let answer = client.remove_cluster(request).await.map_err(explain)?;
            let answer = answer.into_inner();
            if dry_run {
                format!(
                    "cluster {cluster} would be removed, and its certificates revoked; {} would end, {} would be revoked, {} \
                    would be asked to end",
                    count(answer.sessions, "session"),
                    count(answer.tokens, "usable join token"),
                    count(answer.cancelled, "unfinished response"),
                )
            } else {
                let cancelled = answer.cancelled;
                format!(
                    "cluster {cluster} is removed; {cancelled} unfinished responses were asked to end"
                )
            }
        }
    };
    say(&message, dry_run, output, out)
}

pub(super) async fn rebind(
    connection: &Connection,
    cluster: ClusterId,
    uid: Option<String>,
    dry_run: bool,
    (output, out): (Output, &mut (dyn Write + Send)),
) -> anyhow::Result<()> {
    let to = uid.clone().unwrap_or_default();
    let request = RebindClusterRequest {
        cluster_id: cluster.to_string(),
        kube_system_uid: to,
        validate_only: dry_run,
    };
    let mut client = connect(connection, dry_run, "RebindCluster").await?;
    let answer = client.rebind_cluster(request).await.map_err(explain)?;
    let answer = answer.into_inner();
    let before = answer.previous_kube_system_uid;
    let before = if before.is_empty() {
        "nothing".to_owned()
    } else {
        before
    };
    let to = uid.unwrap_or_else(|| "the next cluster that opens a session".to_owned());
    let message = if dry_run {
        let sessions = count(answer.sessions, "session");
        format!(
            "cluster id {cluster} is bound to {before}, and would be to {to}; {sessions} would end"
        )
    } else {
        format!("cluster id {cluster} was bound to {before}, and is now to {to}")
    };
    say(&message, dry_run, output, out)
}

pub(super) async fn token(
    connection: &Connection,
    command: TokenCommand,
    output: Output,
    out: &mut (dyn Write + Send),
) -> anyhow::Result<()> {
    match command {
        TokenCommand::List { cluster } => {
            let mut client = connect(connection, false, "ListTokens").await?;
            let mut request = ListTokensRequest {
                cluster_id: cluster.map(String::from).unwrap_or_default(),
                ..ListTokensRequest::default()
            };
            let mut tokens = Vec::new();
            loop {
                let page = client.list_tokens(request.clone()).await;
                let page = page.map_err(explain)?.into_inner();
                tokens.extend(page.tokens);
                request.page_token = page.next_page_token;
                if request.page_token.is_empty() {
                    break;
                }
            }
            view::tokens(&tokens, output, out)
        }
        TokenCommand::Revoke { token, dry_run } => {
            let mut client = connect(connection, dry_run, "RevokeToken").await?;
            let request = RevokeTokenRequest {
                token_id: token.clone(),
                validate_only: dry_run,
            };
            let answer = client.revoke_token(request).await.map_err(explain)?;
            let message = if dry_run {
                let cluster = answer.into_inner().cluster_id;
                format!("token {token} of cluster {cluster} would be revoked")
            } else {
                format!("token {token} is revoked")
            };
            say(&message, dry_run, output, out)
        }
    }
}

fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| format!("{text:?} is not of the form KEY=VALUE, for example env=prod"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn parse_ttl(text: &str) -> Result<Duration, String> {
    let span: jiff::SignedDuration = text
        .parse()
        .map_err(|error| format!("{error}; use for example 15m or 1h"))?;
    Duration::try_from(span).map_err(|_| "it must be more than zero".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> AddClusterResponse {
        AddClusterResponse {
            token: "nabu1.prod-eu.abc".to_owned(),
            token_id: "0011".to_owned(),
            agents_url: "https://hub:8443".to_owned(),
            ca_pins: vec!["sha256:aa".to_owned(), "sha256:bb".to_owned()],
            trust_domain: "nabu".to_owned(),
            ..AddClusterResponse::default()
        }
    }

    #[test]
    fn the_values_are_yaml_that_says_everything_an_agent_needs() {
        let cluster = "prod-eu".parse().unwrap();
        let answer = answer();
        let join = Join {
            cluster: &cluster,
            answer: &answer,
            chart: "c",
        };
        let values: serde_json::Value = serde_saphyr::from_str(&join.values()).unwrap();
        assert_eq!(
            values,
            json!({
                "clusterId": "prod-eu",
                "hub": {"url": "https://hub:8443", "caPin": "sha256:aa,sha256:bb", "trustDomain": "nabu"},
                "joinToken": "nabu1.prod-eu.abc",
            })
        );
        let command = join.command();
        assert!(command.contains("helm install nabu-agent 'c'"), "{command}");
        assert!(
            command.contains(r"'hub.caPin=sha256:aa\,sha256:bb'"),
            "{command}"
        );
    }
}
