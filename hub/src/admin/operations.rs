//! The service about the hub itself: versions, configuration, forges, audit log, log level.

use jiff::Timestamp;
use nabu_common::build;
use nabu_common::telemetry;
use nabu_proto::admin_v1::operations_service_server::OperationsService;
use nabu_proto::admin_v1::{
    GetConfigStatusRequest, GetConfigStatusResponse, GetLogLevelRequest, GetLogLevelResponse,
    GetVersionRequest, GetVersionResponse, ListAuditEventsRequest, ListAuditEventsResponse,
    ListForgesRequest, ListForgesResponse, SetLogLevelRequest, SetLogLevelResponse,
};
use tonic::{Request, Response, Status};
use tracing::warn;

use super::caller::Caller;
use super::errors::{cluster_id, failed, invalid, refused};
use super::forges::{self, ForgeState};
use super::guard::Target;
use super::{Admin, convert, not_our_page, page_size, select};
use crate::response::Phase;
use crate::store::{AuditFilter, ResponseFilter};

/// Why an unfinished response waits for people, and not for a time.
const PARKED_REASONS: [&str; 2] = ["RepositoryArchived", "InstallationSuspended"];
/// Parked responses that are counted.
const PARKED: u32 = 10_000;

#[tonic::async_trait]
impl OperationsService for Admin {
    async fn get_version(
        &self,
        request: Request<GetVersionRequest>,
    ) -> Result<Response<GetVersionResponse>, Status> {
        let caller = request.extensions().get::<Caller>();
        Ok(Response::new(GetVersionResponse {
            version: build::VERSION.to_owned(),
            protocol_version: nabu_proto::PROTOCOL_VERSION,
            build_profile: build::PROFILE.to_owned(),
            target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            started_at: Some(convert::time(self.started_at)),
            now: Some(convert::time(Timestamp::now())),
            caller: caller
                .map(|caller| caller.actor.clone())
                .unwrap_or_default(),
            caller_role: caller
                .and_then(|caller| caller.role)
                .map(|role| role.to_string())
                .unwrap_or_default(),
            commit: build::COMMIT.to_owned(),
            rustc: build::RUSTC.to_owned(),
            validate_only_methods: nabu_proto::methods_with_field("nabu.admin.v1", "validate_only"),
            agents_url: self.agents.url.clone(),
            agent_certificate_lifetime: self
                .agents
                .certificate_lifetime
                .and_then(|lifetime| lifetime.try_into().ok()),
        }))
    }

    async fn get_config_status(
        &self,
        _: Request<GetConfigStatusRequest>,
    ) -> Result<Response<GetConfigStatusResponse>, Status> {
        let config = &self.operator.context().config;
        let answer = convert::config_status(config.in_force(), &config.table());
        Ok(Response::new(answer))
    }

    async fn list_forges(
        &self,
        _: Request<ListForgesRequest>,
    ) -> Result<Response<ListForgesResponse>, Status> {
        let context = self.operator.context();
        let routes = context.config.table();
        let filter = ResponseFilter {
            phases: vec![Phase::Pending],
            error_reasons: PARKED_REASONS.map(str::to_owned).to_vec(),
            ..ResponseFilter::default()
        };
        let parked = self.store.responses(&filter, None, PARKED).await;
        let parked: Vec<_> = parked
            .map_err(failed)?
            .into_iter()
            .filter_map(|summary| summary.routed)
            .filter_map(|routed| routes.by_id(&routed.route))
            .map(|route| crate::execute::lanes::LaneId::of(&route.target))
            .collect();
        let now = Timestamp::now();
        let forges = forges::lanes(&routes, context.known_lanes())
            .into_iter()
            .map(|(lane, routes)| {
                let waits = parked.iter().filter(|one| **one == lane).count();
                convert::forge(&ForgeState {
                    routes,
                    credential_present: forges::has_credential(&lane, context.config.credentials()),
                    standing: context.standing(&lane, now),
                    sighting: context.forges.sightings().of(&lane),
                    parked: u32::try_from(waits).unwrap_or(u32::MAX),
                    lane,
                })
            })
            .collect();
        Ok(Response::new(ListForgesResponse { forges }))
    }

    async fn list_audit_events(
        &self,
        request: Request<ListAuditEventsRequest>,
    ) -> Result<Response<ListAuditEventsResponse>, Status> {
        Target::note(&request, || request.get_ref().cluster_id.clone());
        let request = request.into_inner();
        let size = page_size(request.page_size)?;
        let some = |text: String| (!text.is_empty()).then_some(text);
        let before = some(request.page_token)
            .map(|token| token.parse::<u64>())
            .transpose();
        let before = before.map_err(|_| not_our_page())?;
        let filter = AuditFilter {
            actor: some(request.actor),
            action: some(request.action),
            outcome: some(request.outcome),
            cluster: some(request.cluster_id)
                .map(|id| cluster_id("cluster_id", &id))
                .transpose()?,
            since: request
                .since
                .map(|at| select::time("since", at))
                .transpose()?,
            admin_calls_only: request.admin_calls_only,
        };
        let lines = self.store.audit_log(&filter, before, size + 1).await;
        let mut lines = lines.map_err(failed)?;
        let more = lines.len() > size as usize;
        lines.truncate(size as usize);
        let next = lines
            .last()
            .filter(|_| more)
            .map(|last| last.id.to_string());
        Ok(Response::new(ListAuditEventsResponse {
            events: lines.into_iter().map(convert::audit_event).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn get_log_level(
        &self,
        _: Request<GetLogLevelRequest>,
    ) -> Result<Response<GetLogLevelResponse>, Status> {
        let level = telemetry::level();
        Ok(Response::new(GetLogLevelResponse {
            level: level.unwrap_or_default(),
        }))
    }

    async fn set_log_level(
        &self,
        request: Request<SetLogLevelRequest>,
    ) -> Result<Response<SetLogLevelResponse>, Status> {
        Target::note(&request, || request.get_ref().level.clone());
        let run = Target::run(&request, request.get_ref().validate_only);
        let level = request.into_inner().level;
        telemetry::check_level(&level).map_err(|error| invalid("level", error.to_string()))?;
        let previous_level = telemetry::level().unwrap_or_default();
        if !run.is_dry() {
            telemetry::set_level(&level)
                .map_err(|error| refused("LOG_NOT_STARTED", error.to_string()))?;
            warn!(level, previous_level, "the level of the log was set");
        }
        Ok(Response::new(SetLogLevelResponse {
            previous_level,
            level,
        }))
    }
}
