//! Puts the hub together, serves, and takes it apart in the right order.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use nabu_common::build;
use nabu_common::ops::{self, Check, Health};
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tracing::{error, info};

use crate::admin::administrators::Administrators;
use crate::admin::barred::BarredAdmins;
use crate::admin::guard::Guard;
use crate::admin::journal::{Journal, journal};
use crate::admin::local::LocalListener;
use crate::admin::roles::Roles;
use crate::admin::server::{Doors, Services};
use crate::admin::{self, Admin};
use crate::config::Config;
use crate::credentials::Credentials;
use crate::door::Door;
use crate::execute::clusters::ClusterDirectory;
use crate::execute::lanes::Lanes;
use crate::execute::metrics::ExecuteMetrics;
use crate::execute::operate::Operator;
use crate::execute::{self, Context, Dispatcher};
use crate::follow::metrics::FollowMetrics;
use crate::follow::{self, Hints};
use crate::forge::metrics::ForgeMetrics;
use crate::forge::registry::Forges;
use crate::gateway::metrics::GatewayMetrics;
use crate::gateway::{self, Gateway};
use crate::queue_metrics::QueueMetrics;
use crate::retention::Retention;
use crate::routes::ConfigHandle;
use crate::routes::folder::ConfigFolder;
use crate::routes::handle::ConfigMetrics;
use crate::routes::watch::ConfigWatch;
use crate::store::SharedStore;
use crate::store::sqlite::SqliteStore;
use crate::webhooks::{self, Receiver};

/// Observed frames that an agent may send before it needs credit; with the size of a frame, the bound on what one agent
/// can make the hub hold.
const CREDIT: u32 = 64;
/// How long connections may take to close after their streams have ended.
const CLOSING: Duration = Duration::from_secs(2);
/// Pings on connections where nothing else is heard.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How long a ping may be without an answer.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The doors of a hub.
pub struct Listeners {
    agents: TcpListener,
    admin: Doors,
    ops: TcpListener,
    webhooks: Option<TcpListener>,
}

impl Listeners {
    /// Opens the addresses of a configuration.
    ///
    /// # Errors
    /// If one is taken; the text names the flag.
    pub async fn bind(config: &Config) -> anyhow::Result<Self> {
        let bind = async |flag: &str, address: SocketAddr| {
            TcpListener::bind(address).await.with_context(|| {
                format!("cannot listen on {address} ({flag}); is the port in use? Choose another address")
            })
        };
        Ok(Self {
            agents: bind("--listen-agents", config.listen_agents).await?,
            admin: Doors {
                port: bind("--listen-admin", config.listen_admin).await?,
                socket: config
                    .admin_socket
                    .as_deref()
                    .map(LocalListener::bind)
                    .transpose()?,
            },
            ops: bind("--listen-ops", config.listen_ops).await?,
            webhooks: match config.listen_webhooks {
                Some(address) => Some(bind("--listen-webhooks", address).await?),
                None => None,
            },
        })
    }
}

/// Runs a hub until `shutdown`.
///
/// # Errors
/// If it cannot start; the text says what to do.
pub async fn run(config: Config, shutdown: CancellationToken) -> anyhow::Result<()> {
    let listeners = Listeners::bind(&config).await?;
    Box::pin(serve(config, listeners, shutdown)).await
}

/// Serves on listeners that are open already.
///
/// # Errors
/// See [`run`].
pub async fn serve(
    config: Config,
    listeners: Listeners,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut registry = Registry::default();
    ops::register_process_metrics(&mut registry, "nabu_hub");
    let health = Health::default();
    let store_check = health.check("store");
    let sqlite = SqliteStore::open(&config.authority.store).await?;
    let store: SharedStore = Arc::clone(&sqlite) as SharedStore;
    store_check.set_ready();
    let door = Door::open(&config, sqlite, &store, &mut registry).await?;

    let tasks = TaskTracker::new();
    let routes = ConfigHandle::new(
        Credentials::default(),
        ConfigMetrics::register(&mut registry),
    );
    let loaded = follow_config(&config, &routes, health.check("config"), &tasks, &shutdown).await?;

    let (dispatcher, inbox) = execute::channel();
    let gateway = Gateway::new(
        Arc::clone(&store),
        door.identities(),
        dispatcher.clone(),
        gateway::Settings {
            heartbeat: Duration::from_secs(config.heartbeat_seconds.into()),
            resync: Duration::from_secs(config.resync_seconds.into()),
            credit: CREDIT,
            max_unfinished: config.max_unfinished,
        },
        GatewayMetrics::register(&mut registry),
        shutdown.clone(),
    );
    let gates = store.gates().await?;
    let hints = Hints::default();
    let receiver = Receiver::new(routes.clone(), Arc::new(hints.clone()), &mut registry);
    if let Some(listener) = listeners.webhooks {
        let receiver = (receiver, door.refusals("webhooks"));
        tasks.spawn(webhooks::serve(listener, receiver, shutdown.clone()));
    }
    let metrics = ForgeMetrics::register(&mut registry);
    let context = Context {
        store: Arc::clone(&store),
        forges: Arc::new(Forges::new(routes.credentials().clone(), metrics)),
        config: routes,
        clusters: ClusterDirectory::new(config.labels_by_cluster()),
        statuses: Arc::new(gateway.clone()),
        metrics: ExecuteMetrics::register(&mut registry),
        settings: config.executor(),
        lanes: std::sync::Mutex::new(Lanes::new(config.github_budget(), gates)),
        called: std::sync::Mutex::default(),
        woken: std::sync::Mutex::default(),
        groups: crate::execute::Turns::default(),
    };
    let kept = (Arc::clone(&store), store_check);
    keep_house(&config, kept, &mut registry, &tasks, &shutdown);
    let follow_metrics = FollowMetrics::register(&mut registry);
    door.keep_fresh(&tasks, &gateway, &shutdown);
    let context = Arc::new(context);
    let operator = Operator::new(Arc::clone(&context), dispatcher.clone());
    let following = Duration::from_secs(config.follow_seconds.into());
    let follower = (Arc::clone(&context), hints, follow_metrics);
    let (stop, grace) = (shutdown.clone(), config.shutdown_grace());
    let executor = tokio::spawn(async move {
        // Without routes and Secrets, every response that is under way would fail for want of them.
        if stop.run_until_cancelled(loaded.cancelled()).await.is_some() {
            let follower = follow::run(follower, following, stop.clone());
            tokio::join!(execute::run(context, inbox, stop, grace), follower);
        }
    });
    let agents = door.serve_agents(listeners.agents, gateway.clone(), shutdown.clone());
    let (journal, scribe) = journal(&mut registry);
    let audit = scribe.start(Arc::clone(&store));
    let (guard, doors) = administrators(&config, &door, journal, (&tasks, &shutdown)).await?;
    let services = services(&config, doors, operator, &gateway, &dispatcher, &shutdown);
    let admin = admin::server::serve(
        listeners.admin,
        (door.tls(), door.refusals("admin")),
        guard,
        services,
        shutdown.clone(),
    );

    let ops = ops::serve(listeners.ops, health, Arc::new(registry), shutdown.clone());
    info!(
        version = build::VERSION, commit = build::COMMIT, agents = %config.listen_agents, admin = %config.listen_admin,
        ops = %config.listen_ops, store = %config.authority.store.display(), "the hub serves"
    );
    let servers = async { tokio::try_join!(async { Ok(ops.await?) }, agents, admin) };
    let served = stop_with(
        Box::pin(servers),
        &shutdown,
        config.shutdown_grace() + CLOSING,
    )
    .await;
    // One that failed takes the others with it.
    shutdown.cancel();
    ended(executor).await;
    gateway.drained().await;
    // Nobody is answered any more; what was answered is written down.
    audit.finish().await;
    tasks.close();
    tasks.wait().await;
    store.close().await;
    info!("the hub has stopped");
    served
}

/// What looks at the store now and then: its own health, queues, and what is kept long enough.
fn keep_house(
    config: &Config,
    (store, check): (SharedStore, Check),
    registry: &mut Registry,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) {
    let queue = QueueMetrics::register(registry);
    tasks.spawn(queue.keep_fresh(Arc::clone(&store), check, shutdown.clone()));
    let retention = Retention::new(config.retain_finished, config.retain_audit, registry);
    tasks.spawn(retention.keep_pruning(store, shutdown.clone()));
}

async fn ended(executor: tokio::task::JoinHandle<()>) {
    if let Err(error) = executor.await {
        error!(%error, "the executor was lost");
    }
}

/// Who is let in, and who answers about that.
async fn administrators<'d>(
    config: &Config,
    door: &'d Door,
    journal: Journal,
    (tasks, shutdown): (&TaskTracker, &CancellationToken),
) -> anyhow::Result<(Guard, (&'d Door, Administrators))> {
    let roles = Arc::new(Roles::new(config.admin_roles.clone()));
    let identities = door.identities().store;
    let barred = BarredAdmins::load(Arc::clone(&identities), door.tls()).await?;
    tasks.spawn(barred.clone().keep_fresh(shutdown.clone()));
    let administrators = Administrators::new(identities, Arc::clone(&roles), barred.clone());
    let own_uid = rustix::process::getuid().as_raw();
    let guard = Guard::new(roles, barred, journal, own_uid);
    Ok((guard, (door, administrators)))
}

/// What administrators are offered.
fn services(
    config: &Config,
    (door, administrators): (&Door, Administrators),
    operator: Operator,
    gateway: &Gateway,
    dispatcher: &Dispatcher,
    shutdown: &CancellationToken,
) -> Services {
    let store = &operator.context().store;
    let (clusters, authority) = door.admin_services(store, gateway, dispatcher);
    Services {
        admin: Admin::new(
            operator,
            door.identities().store,
            gateway.clone(),
            config.config_namespace.clone(),
            door.agent_facts(),
            shutdown.clone(),
        ),
        clusters,
        administrators,
        authority,
    }
}

/// Runs servers to their end, which has to come within `limit` after `shutdown`.
async fn stop_with<T>(
    servers: impl Future<Output = anyhow::Result<T>>,
    shutdown: &CancellationToken,
    limit: Duration,
) -> anyhow::Result<()> {
    let overdue = async {
        shutdown.cancelled().await;
        tokio::time::sleep(limit).await;
    };
    tokio::select! {
        served = servers => served.map(drop),
        () = overdue => {
            info!("connections that do not close are cut");
            Ok(())
        }
    }
}

async fn follow_config(
    config: &Config,
    routes: &ConfigHandle,
    check: Check,
    tasks: &TaskTracker,
    shutdown: &CancellationToken,
) -> anyhow::Result<CancellationToken> {
    let loaded = CancellationToken::new();
    if let Some(path) = &config.config_dir {
        let folder = ConfigFolder::new(path.clone(), config.config_namespace.clone());
        folder.load(routes).with_context(|| {
            format!(
                "cannot read --config-dir {}; it must be a folder",
                path.display()
            )
        })?;
        check.set_ready();
        tasks.spawn(folder.keep_fresh(routes.clone(), shutdown.clone()));
        loaded.cancel();
        return Ok(loaded);
    }
    let client = kube::Client::try_default().await.context(
        "no --config-dir is given, and no Kubernetes cluster is configured to watch GitOpsResponderConfig objects in",
    )?;
    let version = tokio::time::timeout(Duration::from_secs(10), client.apiserver_version()).await;
    version.context("no answer within 10 s").and_then(|answer| Ok(answer?)).context(
        "the API server of the hub's own cluster cannot be reached to watch GitOpsResponderConfig objects; \
        check it, or use --config-dir",
    )?;
    let watch = ConfigWatch::new(client, &config.config_namespace);
    tasks.spawn(watch.run(routes.clone(), (check, loaded.clone()), shutdown.clone()));
    Ok(loaded)
}

pub(crate) fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
}
