//! The administrators' door: questions about clusters and responses, over mutual TLS, with health and reflection.
//!
//! Answers come from the store; wire types end in [`convert`].

pub mod authority;
pub mod clusters;
mod convert;

use jiff::Timestamp;
use nabu_common::identity::Identity;
use nabu_common::ids::{ClusterId, ResponseKey};
use nabu_common::tls::PeerIdentity;
use nabu_proto::admin_v1::admin_service_server::AdminService;
use nabu_proto::admin_v1::{
    GetResponseRequest, GetResponseResponse, ListClustersRequest, ListClustersResponse,
    ListResponsesRequest, ListResponsesResponse,
};
use tonic::{Request, Response, Status};
use tracing::error;

use crate::gateway::Gateway;
use crate::response::Phase;
use crate::store::identity::SharedIdentities;
use crate::store::{ResponseFilter, SharedStore, StoreError};

/// A page that does not say how long it should be.
const DEFAULT_PAGE: i32 = 100;
/// No page is longer.
const LARGEST_PAGE: i32 = 1000;
/// Audit lines that one response shows.
const HISTORY: u32 = 200;

/// Lets in whoever has an administrator's certificate.
///
/// # Errors
/// `PERMISSION_DENIED` for all others.
pub fn authorize(request: Request<()>) -> Result<Request<()>, Status> {
    match request
        .extensions()
        .get::<PeerIdentity>()
        .map(|peer| &peer.identity)
    {
        Some(Identity::Admin(_)) => Ok(request),
        _ => Err(Status::permission_denied(
            "this door is for administrators: the certificate's URI SAN must be spiffe://<trust-domain>/admin/<name>; \
            make one with `nabuctl pki issue admin NAME`",
        )),
    }
}

/// Answers administrators.
pub struct Admin {
    store: SharedStore,
    identities: SharedIdentities,
    gateway: Gateway,
}

impl Admin {
    /// Answers from this store, and knows from the gateway who is connected.
    pub fn new(store: SharedStore, identities: SharedIdentities, gateway: Gateway) -> Self {
        Self {
            store,
            identities,
            gateway,
        }
    }

    async fn find(&self, request: &GetResponseRequest) -> Result<ResponseKey, Status> {
        let cluster = cluster_id(&request.cluster_id)?;
        let wanted = &request.uid_or_name;
        let missing = || {
            Status::not_found(format!(
                "cluster {cluster} has no response {wanted:?}; `nabuctl response list --cluster {cluster}` shows them"
            ))
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

#[expect(clippy::needless_pass_by_value, reason = "used with map_err")]
fn failed(error: StoreError) -> Status {
    error!(%error, source = ?std::error::Error::source(&error).map(ToString::to_string), "cannot answer an administrator");
    Status::unavailable("the hub's store does not answer; its log says more")
}

fn cluster_id(text: &str) -> Result<ClusterId, Status> {
    text.parse()
        .map_err(|error| Status::invalid_argument(format!("cluster_id: {error}")))
}

fn page_size(asked: i32) -> Result<u32, Status> {
    match asked {
        0 => Ok(DEFAULT_PAGE.unsigned_abs()),
        1.. => Ok(asked.min(LARGEST_PAGE).unsigned_abs()),
        _ => Err(Status::invalid_argument("page_size: must not be negative")),
    }
}

#[tonic::async_trait]
impl AdminService for Admin {
    async fn list_clusters(
        &self,
        request: Request<ListClustersRequest>,
    ) -> Result<Response<ListClustersResponse>, Status> {
        let request = request.into_inner();
        let size = page_size(request.page_size)? as usize;
        let clusters = self.store.clusters().await.map_err(failed)?;
        let mut rest = clusters
            .iter()
            .filter(|cluster| cluster.facts.cluster.as_str() > request.page_token.as_str());
        let page: Vec<_> = rest.by_ref().take(size).collect();
        let next = if rest.next().is_some() {
            page.last().map(|last| last.facts.cluster.to_string())
        } else {
            None
        };
        let identities = self.identities.cluster_identities().await.map_err(failed)?;
        let clusters = page
            .into_iter()
            .map(|record| {
                let id = &record.facts.cluster;
                let identity = identities.get(id).cloned().unwrap_or_default();
                convert::cluster(record, &identity, self.gateway.is_connected(id))
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
        let request = request.into_inner();
        let size = page_size(request.page_size)?;
        let phases = request.phases.iter().map(|word| {
            Phase::parse(word).ok_or_else(|| {
                Status::invalid_argument(format!(
                    "phases: {word:?} is none of Pending, Running, Succeeded, Failed, Cancelled"
                ))
            })
        });
        let filter = ResponseFilter {
            cluster: Some(&request.cluster_id)
                .filter(|id| !id.is_empty())
                .map(|id| cluster_id(id))
                .transpose()?,
            phases: phases.collect::<Result<_, _>>()?,
        };
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
        }))
    }

    async fn get_response(
        &self,
        request: Request<GetResponseRequest>,
    ) -> Result<Response<GetResponseResponse>, Status> {
        let key = self.find(&request.into_inner()).await?;
        let response = self.store.response(&key).await.map_err(failed)?;
        let response = response.ok_or_else(|| Status::not_found("the response is gone"))?;
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
