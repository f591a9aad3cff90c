//! The service that explains responses, watches them, tests routes, and carries out operators' orders.

use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use jiff::Timestamp;
use nabu_common::ids::{ClusterId, ResponseKey};
use nabu_proto::admin_v1::response_service_server::ResponseService;
use nabu_proto::admin_v1::test_route_request::Source;
use nabu_proto::admin_v1::{
    CancelResponseRequest, CancelResponseResponse, ExplainResponseRequest, ExplainResponseResponse,
    RetryResponseRequest, RetryResponseResponse, TestRouteRequest, TestRouteResponse,
    WatchResponsesRequest, WatchResponsesResponse,
};
use tonic::{Request, Response, Status};

use super::caller::Caller;
use super::errors::{cluster_id, exhausted, failed, gone, invalid, refused};
use super::guard::Target;
use super::{Admin, convert, explain, select, trial, watch};
use crate::execute::clusters::ClusterFacts;
use crate::execute::lanes::LaneId;
use crate::execute::operate::{Carried, Operator, Order};
use crate::plan::Policy;
use crate::plan::operate::Wish;
use crate::response::Response as Record;
use crate::store::rehearsal::Run;

/// Audit lines that one response shows.
const HISTORY: u32 = 500;
/// Characters of a reason for a cancellation.
const LONGEST_REASON: usize = 200;
/// Bytes of the documents of a route test.
const LARGEST_DOCUMENTS: usize = 2 * 1024 * 1024;

type Watching = Pin<Box<dyn Stream<Item = Result<WatchResponsesResponse, Status>> + Send>>;

#[tonic::async_trait]
impl ResponseService for Admin {
    type WatchResponsesStream = Watching;

    async fn explain_response(
        &self,
        request: Request<ExplainResponseRequest>,
    ) -> Result<Response<ExplainResponseResponse>, Status> {
        let about = request.get_ref();
        Target::note(&request, || {
            about_response(&about.cluster_id, &about.uid_or_name)
        });
        let key = self.find(&about.cluster_id, &about.uid_or_name).await?;
        let record = self.record(&key).await?;
        let attempts = self.store.attempts(&key).await.map_err(failed)?;
        let history = self.store.history(&key, HISTORY).await.map_err(failed)?;
        let acknowledged_at = self.store.acknowledged_at(&key).await.map_err(failed)?;
        let context = self.operator.context();
        let cluster = context.clusters.facts(&self.store, &key.cluster).await;
        let (cluster, now) = (cluster.map_err(failed)?, Timestamp::now());
        let routes = context.config.table();
        let decision = trial::decision(
            &record,
            &Policy {
                routes: &routes,
                max_attempts: context.settings.max_attempts,
                cluster_name: &cluster.name,
                cluster_labels: &cluster.labels,
            },
        );
        let intent = record.progress.intent.as_ref();
        // Where it goes is decided when its turn has come; until then it stands in the line of the route that takes it.
        let route = decision.route().and_then(|id| routes.by_id(id));
        let target = intent.map(|intent| &intent.target);
        let target = target.or_else(|| route.map(|route| &route.target));
        let lane = target.map(|target| context.standing(&LaneId::of(target), now));
        let waiting = explain::waiting(
            &record.progress,
            lane.as_ref(),
            decision.route().is_some(),
            now,
        );
        let steps = explain::story(&record, &attempts, history, acknowledged_at);
        Ok(Response::new(ExplainResponseResponse {
            response: Some(convert::summary(&convert::summarised(&record))),
            steps: steps.into_iter().map(convert::step).collect(),
            waiting: waiting.map(convert::waiting),
            routing: Some(convert::decision(decision)),
            change: intent.map(convert::change),
        }))
    }

    async fn watch_responses(
        &self,
        request: Request<WatchResponsesRequest>,
    ) -> Result<Response<Watching>, Status> {
        Target::note(&request, || {
            super::clusters_of("", request.get_ref().filter.as_ref())
        });
        let request = request.into_inner();
        let slot = Arc::clone(&self.watches).try_acquire_owned().map_err(|_| {
            let message = format!(
                "{} watches are open already; end one, or try another time",
                watch::WATCHES
            );
            exhausted("watches", message)
        })?;
        let filter = self.filter(request.filter.unwrap_or_default()).await?;
        let newest = self.store.latest_change().await.map_err(failed)?;
        let after = match request.resume_token.as_str() {
            "" => newest,
            token => watch::place(token, newest)?,
        };
        let (store, shutdown) = (Arc::clone(&self.store), self.shutdown.clone());
        let changes = watch::watch(store, filter, after, slot, shutdown);
        Ok(Response::new(Box::pin(changes)))
    }

    async fn test_route(
        &self,
        request: Request<TestRouteRequest>,
    ) -> Result<Response<TestRouteResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let request = request.into_inner();
        if request.proposed_config.len() > LARGEST_DOCUMENTS {
            return Err(invalid("proposed_config", "is larger than 2 MiB"));
        }
        let observation = match request.source {
            None => return Err(invalid("source", "give objects or stored")),
            Some(Source::Objects(text)) if text.len() > LARGEST_DOCUMENTS => {
                return Err(invalid("objects", "are larger than 2 MiB"));
            }
            Some(Source::Objects(text)) => {
                let cluster = cluster_id("cluster_id", &request.cluster_id)?;
                trial::observation(&text, cluster).map_err(|why| invalid("objects", why))?
            }
            Some(Source::Stored(stored)) => {
                let key = self.find(&stored.cluster_id, &stored.uid_or_name).await?;
                self.record(&key).await?.observation
            }
        };
        let labels = request.cluster_labels;
        let cluster = self.facts(&observation.key.cluster, labels).await?;
        let context = self.operator.context();
        let mut findings = trial::unserved(&observation);
        let routes = if request.proposed_config.trim().is_empty() {
            context.config.table()
        } else {
            let in_force = context.config.in_force();
            let proposed =
                trial::proposed(in_force, &request.proposed_config, &self.config_namespace);
            let (table, found) = proposed.map_err(|why| invalid("proposed_config", why))?;
            findings.extend(found);
            Arc::new(table)
        };
        let max_attempts = context.settings.max_attempts;
        let trial = trial::trial(
            observation,
            &cluster,
            &routes,
            max_attempts,
            Timestamp::now(),
        );
        Ok(Response::new(convert::trial(trial, findings)))
    }

    async fn retry_response(
        &self,
        request: Request<RetryResponseRequest>,
    ) -> Result<Response<RetryResponseResponse>, Status> {
        let about = request.get_ref();
        Target::note(&request, || {
            about_response(&about.cluster_id, &about.uid_or_name)
        });
        let run = Target::run(&request, about.validate_only);
        let key = self.find(&about.cluster_id, &about.uid_or_name).await?;
        let order = Order::Retry;
        let (response, message) = self.order(&key, order, actor(&request), run).await?;
        Ok(Response::new(RetryResponseResponse {
            response: Some(response),
            message,
        }))
    }

    async fn cancel_response(
        &self,
        request: Request<CancelResponseRequest>,
    ) -> Result<Response<CancelResponseResponse>, Status> {
        let about = request.get_ref();
        Target::note(&request, || {
            about_response(&about.cluster_id, &about.uid_or_name)
        });
        let run = Target::run(&request, about.validate_only);
        let key = self.find(&about.cluster_id, &about.uid_or_name).await?;
        let actor = actor(&request);
        let order = Order::Cancel {
            reason: reason(&about.reason, &actor)?,
        };
        let (response, message) = self.order(&key, order, actor, run).await?;
        Ok(Response::new(CancelResponseResponse {
            response: Some(response),
            message,
        }))
    }
}

impl Admin {
    async fn record(&self, key: &ResponseKey) -> Result<Record, Status> {
        let record = self.store.response(key).await.map_err(failed)?;
        record.ok_or_else(|| gone(key))
    }

    /// What plan would know of a cluster, with labels laid over it.
    async fn facts(
        &self,
        cluster: &ClusterId,
        labels: std::collections::HashMap<String, String>,
    ) -> Result<ClusterFacts, Status> {
        let context = self.operator.context();
        let known = context.clusters.facts(&self.store, cluster).await;
        let mut facts = ClusterFacts::clone(&*known.map_err(failed)?);
        facts.labels.extend(labels);
        Ok(facts)
    }

    pub(super) async fn filter(
        &self,
        wire: nabu_proto::admin_v1::ResponseFilter,
    ) -> Result<crate::store::ResponseFilter, Status> {
        let context = self.operator.context();
        select::filter(wire, async |wanted| {
            let mut fitting = Vec::new();
            for record in self.store.clusters().await.map_err(failed)? {
                let id = record.facts.cluster;
                let facts = context.clusters.facts(&self.store, &id).await;
                let labels = &facts.map_err(failed)?.labels;
                if wanted
                    .iter()
                    .all(|(key, value)| labels.get(key) == Some(value))
                {
                    fitting.push(id);
                }
            }
            Ok(fitting)
        })
        .await
    }

    async fn order(
        &self,
        key: &ResponseKey,
        order: Order,
        actor: String,
        run: Run,
    ) -> Result<(nabu_proto::admin_v1::Response, String), Status> {
        let mut record = self.record(key).await?;
        let (wish, progress): Carried = if run.is_dry() {
            Operator::rehearse(&record, &order)
        } else {
            let carried = self.operator.carry_out(key, order, &actor).await;
            carried.map_err(failed)?.ok_or_else(|| gone(key))?
        };
        match wish {
            Wish::Refused { reason, message } => Err(refused(reason, message)),
            Wish::Granted(message) => {
                record.progress = progress;
                let summary = convert::summarised(&record);
                Ok((convert::summary(&summary), message))
            }
        }
    }
}

fn about_response(cluster: &str, uid_or_name: &str) -> String {
    format!("{cluster}/{uid_or_name}")
}

fn actor<T>(request: &Request<T>) -> String {
    let caller = request.extensions().get::<Caller>();
    caller.map_or_else(|| "nobody".to_owned(), |caller| caller.actor.clone())
}

/// The reason that status and audit log show. It ends up in the cluster, so that it says who wants it.
fn reason(asked: &str, actor: &str) -> Result<String, Status> {
    let asked = asked.trim();
    if asked.chars().count() > LONGEST_REASON {
        let message = format!("has more than {LONGEST_REASON} characters");
        return Err(invalid("reason", message));
    }
    if asked.chars().any(char::is_control) {
        return Err(invalid("reason", "has control characters"));
    }
    Ok(if asked.is_empty() {
        format!("cancelled by {actor}")
    } else {
        format!("cancelled by {actor}: {asked}")
    })
}
