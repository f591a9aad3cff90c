//! Questions and orders to the hub, one function for each command.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use nabu_common::ids::ClusterId;
use nabu_proto::admin_v1::test_route_request::Source;
use nabu_proto::admin_v1::{
    CancelResponseRequest, Cluster, ExplainResponseRequest, GetConfigStatusRequest,
    GetLogLevelRequest, GetResponseRequest, GetVersionRequest, ListAuditEventsRequest,
    ListClustersRequest, ListForgesRequest, ListResponsesRequest, ResponseFilter,
    RetryResponseRequest, SetLogLevelRequest, StoredResponse, TestRouteRequest,
    WatchResponsesRequest,
};
use serde_json::json;
use tonic::Code;

use super::client::{self, Hub, explain};
use super::commands::{AuditCommand, Named, ResponseCommand, RouteCommand, wire_time};
use super::dry_run::{look_first, say};
use super::output::{Out, Output, print_value};
use super::table::visible;
use super::{Connection, view};

/// How often a list is asked for again.
const AGAIN: Duration = Duration::from_secs(2);
/// Pause before a watch that broke goes on.
const PAUSE: Duration = Duration::from_secs(1);

pub(super) async fn all_clusters(hub: &Hub) -> anyhow::Result<Vec<Cluster>> {
    clusters_now(hub).await.map_err(explain)
}

async fn clusters_now(hub: &Hub) -> Result<Vec<Cluster>, tonic::Status> {
    let mut clusters = Vec::new();
    let mut request = ListClustersRequest::default();
    loop {
        let page = hub.clusters().list_clusters(request.clone()).await;
        let page = page?.into_inner();
        clusters.extend(page.clusters);
        if page.next_page_token.is_empty() {
            return Ok(clusters);
        }
        request.page_token = page.next_page_token;
    }
}

pub(super) async fn clusters(
    connection: &Connection,
    watch: bool,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let mut known = all_clusters(&hub).await?;
    view::clusters(&known).print(output, out)?;
    if !watch {
        return Ok(());
    }
    out.flush()?;
    loop {
        tokio::time::sleep(AGAIN).await;
        let now = match clusters_now(&hub).await {
            Ok(now) => now,
            Err(status) if passes(&status) => continue,
            Err(status) => return Err(explain(status)),
        };
        let news: Vec<_> = now
            .iter()
            .filter(|one| !known.contains(one))
            .cloned()
            .collect();
        view::clusters(&news).print_more(output, out)?;
        known = now;
    }
}

pub(super) async fn cluster(
    connection: &Connection,
    cluster: ClusterId,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let request = ListClustersRequest {
        cluster_id: cluster.to_string(),
        ..ListClustersRequest::default()
    };
    let answer = hub.clusters().list_clusters(request).await;
    let clusters = answer.map_err(explain)?.into_inner().clusters;
    // A hub that does not know the field yet gives all of them.
    let mut clusters = clusters.into_iter();
    let one = clusters.find(|one| one.cluster_id == cluster.as_str());
    let one = one.with_context(|| format!("the hub knows no cluster {cluster}"))?;
    view::cluster(&one, output, out)
}

pub(super) async fn response(
    connection: &Connection,
    command: ResponseCommand,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    match command {
        ResponseCommand::List {
            selection,
            limit,
            watch,
        } => {
            let filter = selection.into_filter();
            let token = list(&hub, filter.clone(), limit, output, out).await?;
            if watch {
                follow(&hub, filter, token, output, out).await?;
            }
            Ok(())
        }
        ResponseCommand::Get { named } => {
            let Named { cluster, name } = named;
            let request = GetResponseRequest {
                cluster_id: cluster.to_string(),
                uid_or_name: name,
            };
            let answer = hub.clusters().get_response(request).await;
            view::response(&answer.map_err(explain)?.into_inner(), output, out)
        }
        ResponseCommand::Explain { named } => {
            let Named { cluster, name } = named;
            let request = ExplainResponseRequest {
                cluster_id: cluster.to_string(),
                uid_or_name: name,
            };
            let answer = hub.responses().explain_response(request).await;
            view::story(&answer.map_err(explain)?.into_inner(), output, out)
        }
        ResponseCommand::Retry { named, dry_run } => {
            let Named { cluster, name } = named;
            let request = RetryResponseRequest {
                cluster_id: cluster.to_string(),
                uid_or_name: name,
                validate_only: dry_run,
            };
            look_first(hub.channel(), dry_run, "ResponseService/RetryResponse").await?;
            let answer = hub.responses().retry_response(request).await;
            say(
                &answer.map_err(explain)?.into_inner().message,
                dry_run,
                output,
                out,
            )
        }
        ResponseCommand::Cancel {
            named,
            reason,
            dry_run,
        } => {
            let Named { cluster, name } = named;
            let request = CancelResponseRequest {
                cluster_id: cluster.to_string(),
                uid_or_name: name,
                reason,
                validate_only: dry_run,
            };
            look_first(hub.channel(), dry_run, "ResponseService/CancelResponse").await?;
            let answer = hub.responses().cancel_response(request).await;
            say(
                &answer.map_err(explain)?.into_inner().message,
                dry_run,
                output,
                out,
            )
        }
    }
}

/// Prints a list, and gives the place where a watch goes on.
async fn list(
    hub: &Hub,
    filter: ResponseFilter,
    limit: u32,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<String> {
    let mut responses = Vec::new();
    let mut place = String::new();
    let mut request = ListResponsesRequest {
        filter: Some(filter),
        ..ListResponsesRequest::default()
    };
    while responses.len() < limit as usize {
        request.page_size = i32::try_from(limit as usize - responses.len()).unwrap_or(i32::MAX);
        let page = hub.clusters().list_responses(request.clone()).await;
        let page = page.map_err(explain)?.into_inner();
        responses.extend(page.responses);
        if place.is_empty() {
            place = page.resume_token;
        }
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    view::list(&responses).print(output, out)?;
    Ok(place)
}

/// Prints every change. A watch that breaks goes on where it was.
async fn follow(
    hub: &Hub,
    filter: ResponseFilter,
    mut resume_token: String,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    out.flush()?;
    loop {
        let request = WatchResponsesRequest {
            resume_token: resume_token.clone(),
            filter: Some(filter.clone()),
        };
        let mut changes = match hub.responses().watch_responses(request).await {
            Ok(changes) => changes.into_inner(),
            Err(status) if passes(&status) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
            Err(status) => return Err(explain(status)),
        };
        loop {
            match changes.message().await {
                Ok(Some(change)) => {
                    resume_token = change.resume_token;
                    if let Some(response) = change.response {
                        view::list(&[response]).print_more(output, out)?;
                    }
                }
                Ok(None) => break,
                Err(status) if passes(&status) => break,
                Err(status) => return Err(explain(status)),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Whether a watch may go on after this.
fn passes(status: &tonic::Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::ResourceExhausted | Code::Unknown | Code::Cancelled
    )
}

pub(super) async fn route(
    connection: &Connection,
    command: RouteCommand,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let RouteCommand::Test {
        cluster,
        file,
        stored,
        config,
        labels,
    } = command;
    let source = match (file, stored) {
        (_, Some(name)) => Source::Stored(StoredResponse {
            cluster_id: cluster.to_string(),
            uid_or_name: name,
        }),
        (Some(path), None) => Source::Objects(read(&path)?),
        (None, None) => anyhow::bail!("give --file or --stored"),
    };
    let request = TestRouteRequest {
        source: Some(source),
        cluster_id: cluster.to_string(),
        proposed_config: config.as_deref().map(read).transpose()?.unwrap_or_default(),
        cluster_labels: labels.into_iter().collect(),
    };
    let hub = client::connect(connection).await?;
    let answer = hub.responses().test_route(request).await;
    let answer = answer.map_err(explain)?.into_inner();
    view::trial(&answer, output, out)?;
    let errors = answer.findings.iter().any(|one| one.severity == "error");
    if errors || !answer.error_reason.is_empty() {
        let message = "there would be no pull request, or a document cannot be used; see above";
        return Err(super::Failure::new(super::Failure::REFUSED, message).into());
    }
    Ok(())
}

fn read(path: &Path) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .context("cannot read standard input")?;
        return Ok(text);
    }
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(super) async fn config(
    connection: &Connection,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let answer = hub
        .operations()
        .get_config_status(GetConfigStatusRequest {})
        .await;
    view::config(&answer.map_err(explain)?.into_inner(), output, out)
}

pub(super) async fn forges(
    connection: &Connection,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let answer = hub.operations().list_forges(ListForgesRequest {}).await;
    let forges = answer.map_err(explain)?.into_inner().forges;
    view::forges(&forges).print(output, out)
}

pub(super) async fn audit(
    connection: &Connection,
    command: AuditCommand,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let AuditCommand::List {
        actor,
        action,
        cluster,
        outcome,
        since,
        calls,
        limit,
    } = command;
    let hub = client::connect(connection).await?;
    let mut request = ListAuditEventsRequest {
        actor: actor.unwrap_or_default(),
        action: action.unwrap_or_default(),
        cluster_id: cluster.map(String::from).unwrap_or_default(),
        outcome: outcome.unwrap_or_default(),
        since: since.map(wire_time),
        admin_calls_only: calls,
        ..ListAuditEventsRequest::default()
    };
    let mut events = Vec::new();
    while events.len() < limit as usize {
        request.page_size = i32::try_from(limit as usize - events.len()).unwrap_or(i32::MAX);
        let page = hub.operations().list_audit_events(request.clone()).await;
        let page = page.map_err(explain)?.into_inner();
        events.extend(page.events);
        if page.next_page_token.is_empty() {
            break;
        }
        request.page_token = page.next_page_token;
    }
    view::audit(&events).print(output, out)
}

pub(super) async fn log_level(
    connection: &Connection,
    level: Option<String>,
    dry_run: bool,
    (output, out): (Output, Out<'_>),
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let Some(level) = level else {
        let answer = hub.operations().get_log_level(GetLogLevelRequest {}).await;
        let level = answer.map_err(explain)?.into_inner().level;
        return match output {
            Output::Json | Output::Yaml => print_value(&json!({ "level": level }), output, out),
            Output::Table | Output::Wide | Output::Name => {
                Ok(writeln!(out, "{}", visible(&level))?)
            }
        };
    };
    let request = SetLogLevelRequest {
        level,
        validate_only: dry_run,
    };
    look_first(hub.channel(), dry_run, "OperationsService/SetLogLevel").await?;
    let answer = hub.operations().set_log_level(request).await;
    let answer = answer.map_err(explain)?.into_inner();
    let message = format!("{} instead of {}", answer.level, answer.previous_level);
    say(&message, dry_run, output, out)
}

pub(super) async fn version(
    connection: &Connection,
    output: Output,
    out: Out<'_>,
) -> anyhow::Result<()> {
    let hub = client::connect(connection).await?;
    let answer = hub.operations().get_version(GetVersionRequest {}).await;
    view::version(&answer.map_err(explain)?.into_inner(), output, out)
}
