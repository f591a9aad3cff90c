//! Completion in shells, with the names that the hub knows now. What cannot be asked within two seconds is left out.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::CompletionCandidate;
use clap_complete::env::Shells;
use nabu_proto::admin_v1::administrator_service_client::AdministratorServiceClient;
use nabu_proto::admin_v1::cluster_service_client::ClusterServiceClient;
use nabu_proto::admin_v1::{
    GetConfigStatusRequest, ListAdministratorsRequest, ListClustersRequest, ListResponsesRequest,
    ListTokensRequest,
};

use super::client;
use super::commands::Shell;
use super::context::{self, Contexts};
use super::output::Out;
use super::{Cli, Connection};

/// The variable by which a shell asks the program for candidates.
const VARIABLE: &str = "COMPLETE";
/// How long a shell waits for names.
const PATIENCE: Duration = Duration::from_secs(2);
/// Names of responses that are offered.
const NAMES: i32 = 200;

/// Answers a shell that asks for candidates, and ends the process then; else does nothing.
pub fn answer_shell() {
    clap_complete::CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .complete();
}

/// Writes what a shell has to source.
pub(super) fn register(shell: Shell, out: Out<'_>) -> anyhow::Result<()> {
    let shells = Shells::builtins();
    let completer = shells
        .completer(shell.as_str())
        .ok_or_else(|| anyhow::anyhow!("there is no completion for {}", shell.as_str()))?;
    let mut text = Vec::new();
    completer.write_registration(VARIABLE, "nabuctl", "nabuctl", "nabuctl", &mut text)?;
    out.write_all(&text)?;
    Ok(())
}

/// The connection that a shell's environment and the current context give; flags of the line are not seen.
fn connection() -> Connection {
    let text = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    Connection {
        context: text("NABU_CONTEXT"),
        contexts: text("NABU_CONTEXTS").map(Into::into),
        hub: text("NABU_HUB"),
        tls_dir: text("NABU_TLS_DIR").map(Into::into),
        server_name: text("NABU_HUB_SERVER_NAME"),
    }
}

fn ask<F: Future<Output = anyhow::Result<Vec<String>>>>(
    current: &OsStr,
    question: impl FnOnce(Connection) -> F,
) -> Vec<CompletionCandidate> {
    nabu_common::tls::install_crypto_provider();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let names = runtime.block_on(async {
        let names = tokio::time::timeout(PATIENCE, question(connection())).await;
        names.ok().and_then(Result::ok).unwrap_or_default()
    });
    begin_with(names, current)
}

fn begin_with(names: Vec<String>, current: &OsStr) -> Vec<CompletionCandidate> {
    let start = current.to_string_lossy();
    names
        .into_iter()
        .filter(|name| name.starts_with(&*start))
        .map(CompletionCandidate::new)
        .collect()
}

/// Clusters that the hub knows.
pub(super) fn cluster_names(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, |connection| async move {
        let mut client = client::connect(&connection).await?.clusters();
        let request = ListClustersRequest {
            page_size: 1000,
            ..ListClustersRequest::default()
        };
        let page = client.list_clusters(request).await?.into_inner();
        let names = page.clusters.into_iter();
        Ok(names.map(|cluster| cluster.cluster_id).collect())
    })
}

/// The newest responses.
pub(super) fn response_names(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, |connection| async move {
        let mut client = client::connect(&connection).await?.clusters();
        let request = ListResponsesRequest {
            page_size: NAMES,
            ..ListResponsesRequest::default()
        };
        let page = client.list_responses(request).await?.into_inner();
        Ok(page.responses.into_iter().map(|one| one.name).collect())
    })
}

/// Join tokens that can be used, by what the list calls them.
pub(super) fn token_names(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, |connection| async move {
        let hub = client::connect(&connection).await?;
        let mut client = ClusterServiceClient::new(hub.channel().clone());
        let tokens = client.list_tokens(ListTokensRequest::default()).await?;
        let tokens = tokens.into_inner().tokens.into_iter();
        let usable = tokens.filter(|token| token.state == "Usable");
        Ok(usable.map(|token| token.token_id).collect())
    })
}

/// Administrators that the hub has certified or refuses.
pub(super) fn administrator_names(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, |connection| async move {
        let hub = client::connect(&connection).await?;
        let mut client = AdministratorServiceClient::new(hub.channel().clone());
        let known = client.list_administrators(ListAdministratorsRequest::default());
        let known = known.await?.into_inner();
        let certified = known.certificates.into_iter().map(|one| one.name);
        let revoked = known.revocations.into_iter().map(|one| one.name);
        let names: BTreeSet<_> = certified
            .chain(revoked)
            .filter(|name| !name.is_empty())
            .collect();
        Ok(names.into_iter().collect())
    })
}

/// Routes in force.
pub(super) fn route_names(current: &OsStr) -> Vec<CompletionCandidate> {
    ask(current, |connection| async move {
        let mut client = client::connect(&connection).await?.operations();
        let status = client.get_config_status(GetConfigStatusRequest {}).await?;
        let routes = status.into_inner().routes.into_iter();
        Ok(routes.map(|route| route.route).collect())
    })
}

/// Contexts of the file.
pub(super) fn context_names(current: &OsStr) -> Vec<CompletionCandidate> {
    let contexts = Contexts::load(&context::path(&connection())).unwrap_or_default();
    begin_with(contexts.names(), current)
}
