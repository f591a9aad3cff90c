//! The administrators' door: questions about clusters and responses, over mutual TLS, with health and reflection.
//!
//! Everybody passes the [`guard`], which knows who calls ([`caller`]), what they may ([`roles`]) and who may nothing any more
//! ([`barred`]), and writes it down
//! ([`journal`]). Answers come from the store; wire types end in [`convert`], refusals are made in [`errors`].

pub mod administrators;
pub mod authority;
pub mod barred;
pub mod caller;
pub mod clusters;
mod convert;
pub mod errors;
mod explain;
mod forges;
pub mod guard;
pub mod journal;
pub mod local;
mod operations;
mod responses;
pub mod roles;
mod select;
pub mod server;
mod trial;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::ids::ResponseKey;
use nabu_proto::admin_v1::admin_service_server::AdminService;
use nabu_proto::admin_v1::{
    GetResponseRequest, GetResponseResponse, ListClustersRequest, ListClustersResponse,
    ListResponsesRequest, ListResponsesResponse, ResponseFilter,
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::execute::operate::Operator;
use crate::gateway::Gateway;
use crate::store::SharedStore;
use crate::store::identity::SharedIdentities;
use errors::{DOMAIN, cluster_id, failed, gone, invalid, missing, shortened};
use guard::Target;

/// A page that does not say how long it should be.
const DEFAULT_PAGE: i32 = 100;
/// No page is longer.
const LARGEST_PAGE: i32 = 1000;
/// Audit lines that one response shows.
const HISTORY: u32 = 200;

/// What is told of the door for agents.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    /// The address that they dial; empty if nobody has said.
    pub url: String,
    /// How long their certificates live, if the hub makes them.
    pub certificate_lifetime: Option<Duration>,
}

/// Answers administrators.
pub struct Admin {
    store: SharedStore,
    identities: SharedIdentities,
    gateway: Gateway,
    operator: Operator,
    config_namespace: String,
    agents: AgentFacts,
    watches: Arc<Semaphore>,
    started_at: Timestamp,
    shutdown: CancellationToken,
}

impl Admin {
    /// Answers from what the operator's executor sees, and knows from the gateway who is connected. Streams end with
    /// `shutdown`.
    pub fn new(
        operator: Operator,
        identities: SharedIdentities,
        gateway: Gateway,
        config_namespace: String,
        agents: AgentFacts,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            store: Arc::clone(&operator.context().store),
            identities,
            gateway,
            operator,
            config_namespace,
            agents,
            watches: Arc::new(Semaphore::new(watch::WATCHES)),
            started_at: Timestamp::now(),
            shutdown,
        }
    }

    async fn find(&self, cluster: &str, wanted: &str) -> Result<ResponseKey, Status> {
        let cluster = cluster_id("cluster_id", cluster)?;
        let missing = || {
            let remedy = format!("`nabuctl response list --cluster {cluster}` shows them");
            missing(
                "response",
                &format!("{cluster}/{}", shortened(wanted)),
                &remedy,
            )
        };
        if let Ok(uid) = wanted.parse() {
            let key = ResponseKey {
                cluster: cluster.clone(),
                uid,
            };
            if self.store.response(&key).await.map_err(failed)?.is_some() {
                return Ok(key);
            }
        }
        self.store
            .response_by_name(&cluster, wanted)
            .await
            .map_err(failed)?
            .ok_or_else(missing)
    }
}

/// The clusters that a question names, for the audit log.
fn clusters_of(one: &str, filter: Option<&ResponseFilter>) -> String {
    let more = filter.into_iter().flat_map(|filter| &filter.cluster_ids);
    let named = more.map(String::as_str).chain([one]);
    let named: Vec<_> = named.filter(|id| !id.is_empty()).collect();
    named.join(",")
}

fn page_size(asked: i32) -> Result<u32, Status> {
    page_size_or(DEFAULT_PAGE, asked)
}

/// With another size for those who ask for none.
fn page_size_or(default: i32, asked: i32) -> Result<u32, Status> {
    match asked {
        0 => Ok(default.unsigned_abs()),
        1.. => Ok(asked.min(LARGEST_PAGE).unsigned_abs()),
        _ => Err(invalid("page_size", "must not be negative")),
    }
}

fn not_our_page() -> Status {
    let description = "is none that this hub gave; leave it out for the first page";
    invalid("page_token", description)
}

/// Cuts what was read with one more than a page has; gives the token of the next page, empty on the last one.
fn next_page<T>(read: &mut Vec<T>, size: u32, token: impl Fn(&T) -> String) -> String {
    let more = read.len() > size as usize;
    read.truncate(size as usize);
    let last = read.last().filter(|_| more);
    last.map(token).unwrap_or_default()
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let request = request.into_inner();
        let size = page_size(request.page_size)? as usize;
        let only = Some(&request.cluster_id)
            .filter(|id| !id.is_empty())
            .map(|id| cluster_id("cluster_id", id))
            .transpose()?;
        let clusters = self.store.clusters().await.map_err(failed)?;
        let mut rest = clusters.iter().filter(|cluster| {
            let id = &cluster.facts.cluster;
            id.as_str() > request.page_token.as_str() && only.as_ref().is_none_or(|only| only == id)
        });
        let page: Vec<_> = rest.by_ref().take(size).collect();
        let next = if rest.next().is_some() {
            page.last().map(|last| last.facts.cluster.to_string())
        } else {
            None
        };
        let identities = self.identities.cluster_identities().await.map_err(failed)?;
        if let (Some(only), true) = (&only, page.is_empty()) {
            let remedy = "`nabuctl cluster list` shows them";
            return Err(missing("cluster", only.as_str(), remedy));
        }
        let directory = &self.operator.context().clusters;
        let clusters = page
            .into_iter()
            .map(|record| {
                let id = &record.facts.cluster;
                let mut identity = identities.get(id).cloned().unwrap_or_default();
                // One of somebody's own PKI is nowhere else, and the hub's own may be older than the one that is used.
                if let Some(until) = self.gateway.certified_until(id) {
                    identity.certificate_not_after = Some(until);
                }
                let labels = directory.labels(id, record.labels.clone());
                convert::cluster(record, &identity, self.gateway.said(id), &labels)
            })
            .collect();
        Ok(Response::new(ListClustersResponse {
            clusters,
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn list_responses(
        &self,
        request: Request<ListResponsesRequest>,
    ) -> Result<Response<ListResponsesResponse>, Status> {
        Target::note(&request, || {
            let ListResponsesRequest {
                cluster_id, filter, ..
            } = request.get_ref();
            clusters_of(cluster_id, filter.as_ref())
        });
        let request = request.into_inner();
        let size = page_size(request.page_size)?;
        // Before the list, so that a watch from there misses nothing.
        let newest = self.store.latest_change().await.map_err(failed)?;
        let mut filter = self.filter(request.filter.unwrap_or_default()).await?;
        filter.cluster = Some(&request.cluster_id)
            .filter(|id| !id.is_empty())
            .map(|id| cluster_id("cluster_id", id))
            .transpose()?;
        let phases = select::phases("phases", &request.phases)?;
        if filter.phases.is_empty() {
            filter.phases = phases;
        } else if !phases.is_empty() {
            return Err(invalid(
                "phases",
                "give phases here or in filter, not in both",
            ));
        }
        let before = convert::position(&request.page_token)?;
        let mut responses = self
            .store
            .responses(&filter, before, size + 1)
            .await
            .map_err(failed)?;
        let more = responses.len() > size as usize;
        responses.truncate(size as usize);
        let next = responses.last().filter(|_| more).map(convert::page_token);
        Ok(Response::new(ListResponsesResponse {
            responses: responses.iter().map(convert::summary).collect(),
            next_page_token: next.unwrap_or_default(),
            resume_token: watch::token(newest),
        }))
    }

    async fn get_response(
        &self,
        request: Request<GetResponseRequest>,
    ) -> Result<Response<GetResponseResponse>, Status> {
        Target::note(&request, || {
            let GetResponseRequest {
                cluster_id,
                uid_or_name,
            } = request.get_ref();
            format!("{cluster_id}/{uid_or_name}")
        });
        let request = request.into_inner();
        let key = self.find(&request.cluster_id, &request.uid_or_name).await?;
        let response = self.store.response(&key).await.map_err(failed)?;
        let response = response.ok_or_else(|| gone(&key))?;
        let attempts = self.store.attempts(&key).await.map_err(failed)?;
        let history = self.store.history(&key, HISTORY).await.map_err(failed)?;
        Ok(Response::new(convert::response(
            &response,
            &attempts,
            history,
            Timestamp::now(),
        )))
    }
}
