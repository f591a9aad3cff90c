//! What administrators do about the identities of clusters: join tokens, revocation, removal, binding.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use nabu_common::identity::Identity;
use nabu_common::ids::ClusterId;
use nabu_common::tls::PeerIdentity;
use nabu_proto::admin_v1::cluster_service_server::ClusterService;
use nabu_proto::admin_v1::{
    AddClusterRequest, AddClusterResponse, ListTokensRequest, ListTokensResponse,
    RebindClusterRequest, RebindClusterResponse, RemoveClusterRequest, RemoveClusterResponse,
    RestoreClusterRequest, RestoreClusterResponse, RevokeClusterRequest, RevokeClusterResponse,
    RevokeTokenRequest, RevokeTokenResponse, Token,
};
use secrecy::ExposeSecret as _;
use tonic::{Request, Response, Status};
use tracing::info;

use super::caller::Caller;
use super::errors::{cluster_id, exhausted, failed, invalid, missing, refused};
use super::guard::Target;
use super::{next_page, not_our_page, page_size_or};
use crate::authority::HubAuthority;
use crate::enrolment::{time, token};
use crate::execute::Dispatcher;
use crate::gateway::Gateway;
use crate::store::identity::{
    Added, ENDED_AT_ONCE, NewToken, SharedIdentities, TOKENS_OF_A_CLUSTER, is_kube_system_uid,
};
use crate::store::rehearsal::Run;
use crate::store::{AuditEvent, SharedStore, StoreError};

/// A token can be used for so long, unless somebody asks for another time.
const DEFAULT_TTL: Duration = Duration::from_hours(1);
/// No token can be used for longer.
const LONGEST_TTL: Duration = Duration::from_hours(24);
/// Tokens that a list shows.
const LISTED: i32 = 500;
/// Labels of a cluster.
const LABELS: usize = 64;

/// Answers administrators about identities of clusters.
#[derive(Clone)]
pub struct Clusters {
    pub(crate) store: SharedStore,
    pub(crate) identities: SharedIdentities,
    pub(crate) authority: Option<Arc<HubAuthority>>,
    pub(crate) gateway: Gateway,
    pub(crate) dispatcher: Dispatcher,
    pub(crate) agents_url: String,
}

/// Where a page of tokens ended: when the last one was made, and its id.
fn place(page_token: &str) -> Option<(Timestamp, &str)> {
    let (created_at, id) = page_token.split_once('.')?;
    let created_at = Timestamp::from_microsecond(created_at.parse().ok()?).ok()?;
    Some((created_at, id))
}

/// The administrator who asks, for the audit log.
pub(super) fn actor<T>(request: &Request<T>) -> String {
    let caller = request.extensions().get::<Caller>();
    caller.map_or_else(|| "nobody".to_owned(), |caller| caller.actor.clone())
}

/// The name of the administrator who asks.
pub(super) fn own_name<T>(request: &Request<T>) -> Option<String> {
    match &request.extensions().get::<PeerIdentity>()?.identity {
        Identity::Admin(name) => Some(name.clone()),
        _ => None,
    }
}

/// The line of the audit log about an act; one of a dry run is undone together with the act.
pub(super) fn audit_line(
    run: Run,
    actor: &str,
    action: &str,
    detail: impl Into<String>,
) -> AuditEvent {
    let event = AuditEvent {
        at: Timestamp::now(),
        actor: actor.to_owned(),
        action: action.to_owned(),
        detail: detail.into(),
    };
    if !run.is_dry() {
        info!(
            actor,
            action,
            detail = event.detail,
            "an administrator acts"
        );
    }
    event
}

fn unknown(cluster: &ClusterId) -> Status {
    let remedy = "`nabuctl cluster list` shows them";
    missing("cluster", cluster.as_str(), remedy)
}

fn ttl(asked: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(asked) = asked else {
        return Ok(DEFAULT_TTL);
    };
    Duration::try_from(asked)
        .ok()
        .filter(|ttl| (Duration::from_secs(1)..=LONGEST_TTL).contains(ttl))
        .ok_or_else(|| invalid("ttl", "must be from 1s to 24h"))
}

fn labels(
    asked: impl IntoIterator<Item = (String, String)>,
) -> Result<BTreeMap<String, String>, Status> {
    let labels: BTreeMap<_, _> = asked.into_iter().collect();
    let wrong =
        |(key, value): (&String, &String)| key.is_empty() || key.len() > 253 || value.len() > 253;
    if labels.len() > LABELS || labels.iter().any(wrong) {
        return Err(invalid(
            "labels",
            "at most 64, with keys of 1 to 253 characters and values of up to 253",
        ));
    }
    Ok(labels)
}

impl Clusters {
    /// Sessions of a cluster at this replica.
    fn sessions(&self, cluster: &ClusterId) -> u32 {
        self.gateway.is_connected(cluster).into()
    }

    /// Tokens of a cluster that somebody could still join with.
    async fn usable_tokens(&self, cluster: &ClusterId) -> Result<u32, Status> {
        let tokens = self.identities.tokens(Some(cluster), None, u32::MAX).await;
        let now = Timestamp::now();
        let usable = tokens.map_err(failed)?.into_iter();
        let usable = usable.filter(|record| token::state(record, now) == token::USABLE);
        Ok(u32::try_from(usable.count()).unwrap_or(u32::MAX))
    }

    async fn remove(
        &self,
        cluster: &ClusterId,
        run: Run,
        actor: &str,
    ) -> Result<RemoveClusterResponse, Status> {
        let tokens = self.usable_tokens(cluster).await?;
        let event = audit_line(run, actor, "ClusterRemoved", cluster.to_string());
        let identities = run.identities(&self.identities);
        let done = identities.remove_cluster(cluster, event).await;
        let done = done.map_err(failed)?;
        let sessions = self.sessions(cluster);
        if done && !run.is_dry() {
            self.gateway.dismiss_revoked(cluster);
        }
        let unfinished = self.store.unfinished_of(cluster).await.map_err(failed)?;
        // A removal that was interrupted is finished by the next start of the hub, or by the next one.
        if !done && unfinished.is_empty() {
            return Err(unknown(cluster));
        }
        let answer = RemoveClusterResponse {
            cancelled: unfinished.len() as u64,
            sessions,
            tokens,
        };
        if run.is_dry() {
            return Ok(answer);
        }
        loop {
            let ended = self.identities.finish_removals(ENDED_AT_ONCE).await;
            let ended = ended.map_err(failed)?;
            if ended.is_empty() {
                break;
            }
            for key in ended {
                self.dispatcher.changed(key);
            }
        }
        self.gateway.forget(cluster);
        Ok(answer)
    }
}

#[tonic::async_trait]
impl ClusterService for Clusters {
    async fn add_cluster(
        &self,
        request: Request<AddClusterRequest>,
    ) -> Result<Response<AddClusterResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let request = request.into_inner();
        let Some(authority) = &self.authority else {
            return Err(refused(
                "NO_AUTHORITY",
                "this hub does not certify: start it with --ca-encryption-key-file, or give the agent a certificate of your own \
                PKI (`nabuctl pki issue agent`)",
            ));
        };
        let cluster = cluster_id("cluster_id", &request.cluster_id)?;
        let labels = labels(request.labels)?;
        let now = Timestamp::now();
        let expires_at = now + ttl(request.ttl)?;
        let text = token::generate(&cluster);
        let new = NewToken {
            id: token::generate_id(),
            cluster: cluster.clone(),
            hash: token::hash(&text),
            created_by: actor.clone(),
            created_at: now,
            expires_at,
        };
        let token_id = new.id.clone();
        let detail = format!("token {token_id} for cluster {cluster}, until {expires_at}");
        let event = audit_line(run, &actor, "TokenCreated", detail);
        let identities = run.identities(&self.identities);
        let added = identities.add_cluster(labels, new, event).await;
        match added.map_err(failed)? {
            Added::Stored => {}
            Added::Revoked => {
                let message = format!(
                    "cluster {cluster} is revoked; `nabuctl cluster restore {cluster}` takes that back"
                );
                return Err(refused("CLUSTER_REVOKED", message));
            }
            Added::TooManyTokens => {
                let message = format!(
                    "cluster {cluster} has {TOKENS_OF_A_CLUSTER} tokens that can be used; revoke some: \
                    `nabuctl cluster token list`"
                );
                return Err(exhausted(&format!("tokens of cluster {cluster}"), message));
            }
        }
        // The token of a dry run is stored nowhere, and good for nothing.
        let (token, token_id) = match run {
            Run::Earnest => (text.expose_secret().to_owned(), token_id),
            Run::Dry => Default::default(),
        };
        Ok(Response::new(AddClusterResponse {
            token,
            token_id,
            expires_at: Some(time(expires_at)),
            agents_url: self.agents_url.clone(),
            ca_pins: authority.pins().iter().map(ToString::to_string).collect(),
            trust_domain: authority.trust_domain().to_string(),
        }))
    }

    async fn list_tokens(
        &self,
        request: Request<ListTokensRequest>,
    ) -> Result<Response<ListTokensResponse>, Status> {
        let request = request.into_inner();
        let cluster = match request.cluster_id.as_str() {
            "" => None,
            id => Some(cluster_id("cluster_id", id)?),
        };
        let size = page_size_or(LISTED, request.page_size)?;
        let after = match request.page_token.as_str() {
            "" => None,
            token => Some(place(token).ok_or_else(not_our_page)?),
        };
        let tokens = self.identities.tokens(cluster.as_ref(), after, size + 1);
        let mut tokens = tokens.await.map_err(failed)?;
        let next = next_page(&mut tokens, size, |last| {
            let token = &last.token;
            format!("{}.{}", token.created_at.as_microsecond(), token.id)
        });
        let now = Timestamp::now();
        let tokens = tokens.into_iter().map(|record| Token {
            state: token::state(&record, now).to_owned(),
            token_id: record.token.id,
            cluster_id: record.token.cluster.to_string(),
            created_by: record.token.created_by,
            created_at: Some(time(record.token.created_at)),
            expires_at: Some(time(record.token.expires_at)),
            used_at: record.used.map(|(at, _)| time(at)),
        });
        Ok(Response::new(ListTokensResponse {
            tokens: tokens.collect(),
            next_page_token: next,
        }))
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<RevokeTokenResponse>, Status> {
        Target::note(&request, || format!("token {}", request.get_ref().token_id));
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let id = request.into_inner().token_id;
        let shown: String = id.chars().take(80).collect();
        let event = audit_line(run, &actor, "TokenRevoked", format!("token {shown}"));
        let identities = run.identities(&self.identities);
        let revoked = identities.revoke_token(&id, event).await;
        let Some(cluster) = revoked.map_err(failed)? else {
            let remedy = "`nabuctl cluster token list` shows them";
            return Err(missing("token", &format!("{shown:?}"), remedy));
        };
        Ok(Response::new(RevokeTokenResponse {
            cluster_id: cluster.to_string(),
        }))
    }

    async fn revoke_cluster(
        &self,
        request: Request<RevokeClusterRequest>,
    ) -> Result<Response<RevokeClusterResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let cluster = cluster_id("cluster_id", &request.into_inner().cluster_id)?;
        let event = audit_line(run, &actor, "ClusterRevoked", cluster.to_string());
        let identities = run.identities(&self.identities);
        let done = identities.set_revoked(&cluster, true, event).await;
        if !done.map_err(failed)? {
            return Err(unknown(&cluster));
        }
        let sessions = self.sessions(&cluster);
        if !run.is_dry() {
            self.gateway.dismiss_revoked(&cluster);
        }
        Ok(Response::new(RevokeClusterResponse { sessions }))
    }

    async fn restore_cluster(
        &self,
        request: Request<RestoreClusterRequest>,
    ) -> Result<Response<RestoreClusterResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let cluster = cluster_id("cluster_id", &request.into_inner().cluster_id)?;
        let event = audit_line(run, &actor, "ClusterRestored", cluster.to_string());
        let identities = run.identities(&self.identities);
        let done = identities.set_revoked(&cluster, false, event).await;
        if !done.map_err(failed)? {
            return Err(unknown(&cluster));
        }
        Ok(Response::new(RestoreClusterResponse {}))
    }

    async fn remove_cluster(
        &self,
        request: Request<RemoveClusterRequest>,
    ) -> Result<Response<RemoveClusterResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let cluster = cluster_id("cluster_id", &request.into_inner().cluster_id)?;
        // Whoever asks may go away meanwhile: what is begun comes to its end all the same.
        let clusters = self.clone();
        let removed = tokio::spawn(async move { clusters.remove(&cluster, run, &actor).await });
        let removed = removed.await.map_err(|_| failed(StoreError::Closed))?;
        Ok(Response::new(removed?))
    }

    async fn rebind_cluster(
        &self,
        request: Request<RebindClusterRequest>,
    ) -> Result<Response<RebindClusterResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let actor = actor(&request);
        let run = Target::run(&request, request.get_ref().validate_only);
        let request = request.into_inner();
        let cluster = cluster_id("cluster_id", &request.cluster_id)?;
        let uid = request.kube_system_uid;
        if !is_kube_system_uid(&uid) {
            return Err(invalid(
                "kube_system_uid",
                "give metadata.uid of the namespace kube-system, or nothing",
            ));
        }
        let to = if uid.is_empty() {
            "the next cluster that comes"
        } else {
            &uid
        };
        let event = audit_line(run, &actor, "ClusterRebound", format!("{cluster} to {to}"));
        let identities = run.identities(&self.identities);
        let before = identities.rebind_cluster(&cluster, &uid, event).await;
        let Some(previous) = before.map_err(failed)? else {
            return Err(unknown(&cluster));
        };
        let ends = previous != uid;
        let sessions = if ends { self.sessions(&cluster) } else { 0 };
        if ends && !run.is_dry() {
            self.gateway.dismiss_rebound(&cluster);
        }
        Ok(Response::new(RebindClusterResponse {
            previous_kube_system_uid: previous,
            sessions,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_lives_an_hour_by_default_and_never_more_than_a_day() {
        let seconds = |seconds| {
            ttl(Some(prost_types::Duration { seconds, nanos: 0 })).map_err(|status| status.code())
        };
        assert_eq!(ttl(None).unwrap(), Duration::from_hours(1));
        assert_eq!(seconds(86_400), Ok(LONGEST_TTL));
        for wrong in [0, -1, 86_401, i64::MAX] {
            assert_eq!(seconds(wrong), Err(tonic::Code::InvalidArgument), "{wrong}");
        }
    }
}
