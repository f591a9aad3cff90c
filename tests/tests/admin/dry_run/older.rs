//! A hub of an older version, which does not know the field `validate_only` and would carry out what is only to be rehearsed.

use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};
use futures::stream;
use nabu_proto::admin_v1::cluster_service_server::{ClusterService, ClusterServiceServer};
use nabu_proto::admin_v1::operations_service_server::{OperationsService, OperationsServiceServer};
use nabu_proto::admin_v1::*;
use nabu_tests::process::workspace_binary;
use tokio::net::UnixListener;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

/// Does as it is told, whatever `validate_only` says, and remembers that.
#[derive(Clone, Default)]
struct Older {
    obeyed: Arc<AtomicBool>,
}

/// As `async_trait` writes methods.
macro_rules! obeys {
    ($($method:ident($request:ident) -> $response:ident),* $(,)?) => {
        $(
            fn $method<'a, 'b>(
                &'a self,
                _: Request<$request>,
            ) -> Pin<Box<dyn Future<Output = Result<Response<$response>, Status>> + Send + 'b>>
            where
                'a: 'b,
                Self: 'b,
            {
                self.obeyed.store(true, Ordering::SeqCst);
                Box::pin(async { Ok(Response::new($response::default())) })
            }
        )*
    };
}

#[tonic::async_trait]
impl OperationsService for Older {
    async fn get_version(
        &self,
        _: Request<GetVersionRequest>,
    ) -> Result<Response<GetVersionResponse>, Status> {
        Ok(Response::new(GetVersionResponse {
            version: "0.0.1".to_owned(),
            ..GetVersionResponse::default()
        }))
    }

    obeys! {
        get_config_status(GetConfigStatusRequest) -> GetConfigStatusResponse,
        list_forges(ListForgesRequest) -> ListForgesResponse,
        list_audit_events(ListAuditEventsRequest) -> ListAuditEventsResponse,
        get_log_level(GetLogLevelRequest) -> GetLogLevelResponse,
        set_log_level(SetLogLevelRequest) -> SetLogLevelResponse,
    }
}

#[tonic::async_trait]
impl ClusterService for Older {
    obeys! {
        remove_cluster(RemoveClusterRequest) -> RemoveClusterResponse,
        add_cluster(AddClusterRequest) -> AddClusterResponse,
        list_tokens(ListTokensRequest) -> ListTokensResponse,
        revoke_token(RevokeTokenRequest) -> RevokeTokenResponse,
        revoke_cluster(RevokeClusterRequest) -> RevokeClusterResponse,
        restore_cluster(RestoreClusterRequest) -> RestoreClusterResponse,
        rebind_cluster(RebindClusterRequest) -> RebindClusterResponse,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_would_take_a_rehearsal_for_an_order_is_not_asked_for_one() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("admin.sock");
    let listener = UnixListener::bind(&socket)?;
    let connections = stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| stream);
        Some((accepted, listener))
    });
    let older = Older::default();
    let server = Server::builder()
        .add_service(OperationsServiceServer::new(older.clone()))
        .add_service(ClusterServiceServer::new(older.clone()))
        .serve_with_incoming(connections);
    let server = tokio::spawn(server);
    let run = |arguments: &[&str]| {
        Command::new(workspace_binary("nabuctl")?)
            .args(["--hub", &format!("unix:{}", socket.display())])
            .args(arguments)
            .env("NABU_CONTEXTS", folder.path().join("none"))
            .output()
            .map_err(anyhow::Error::from)
    };
    for order in [
        &["cluster", "remove", "prod-eu"][..],
        &["response", "cancel", "prod-eu", "er-1"],
        &["log-level", "debug"],
        &["admin", "revoke", "grace"],
        &["ca", "rotate", "start"],
    ] {
        let output = run(&[order, &["--dry-run"]].concat())?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(5), "{order:?}: {error}");
        ensure!(error.contains("version 0.0.1"), "{order:?}: {error}");
    }
    ensure!(!older.obeyed.load(Ordering::SeqCst), "it was removed");
    let output = run(&["cluster", "remove", "prod-eu"])?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(older.obeyed.load(Ordering::SeqCst));
    server.abort();
    Ok(())
}
