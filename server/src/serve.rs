//! From configuration to an orderly end.

use crate::apart::apart;
use crate::api::{Api, RPCS};
use crate::config::{ConfigError, ServerConfig};
use crate::engine::{Context, Engine};
use crate::health::StoreHealth;
use crate::metrics::{self, Metrics};
use crate::outbox::OutboxHealth;
use crate::store::{ConnectError, OutboxBound, OutboxFull, RedisOptions, RedisStore};
use crate::sweeper::{LeaderLease, Schedule, Sweeper};
use futures::TryStreamExt;
use futures::future::BoxFuture;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tallystone_model::Store;
use tallystone_proto::queue::v1::queue_admin_server::QueueAdminServer;
use tallystone_proto::queue::v1::queue_server::QueueServer;
use tallystone_proto::{Corked, FILE_DESCRIPTOR_SET};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::server::TcpIncoming;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use uuid::Uuid;

/// Events that a shard's outbox holds where no relay is configured.
const UNREAD_EVENTS_MAX: u64 = 100_000;
pub(crate) const WELL_FORMED: &str = "descriptor sets made by the build are well-formed";
/// How often an idle connection is asked whether it still lives, and how long it may take to say so.
pub(crate) const KEEPALIVE: Duration = Duration::from_secs(20);
/// Unary calls that one connection may hold open: a pool of waiting workers often shares one.
pub(crate) const STREAMS_PER_CONNECTION: u32 = 10_000;
/// Calls given up before the server has looked at them, at which a connection is cut off: workers that give up waiting
/// are no attack.
const GIVEN_UP_PER_CONNECTION: usize = 1_000;
/// Flow-control windows, so that a batch of 4 MiB does not wait for the peer half way.
pub(crate) const STREAM_WINDOW_BYTES: u32 = 2 * 1024 * 1024;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 8 * 1024 * 1024;
/// How long connections, and then lanes, may take to finish when the server stops.
pub(crate) const STOP_WAIT: Duration = Duration::from_secs(5);

/// Why a server did not start, or did not go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Redis cannot be served from.
    #[error(transparent)]
    Redis(#[from] ConnectError),
    /// The address cannot be served on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// `/metrics` cannot be served.
    #[error("cannot serve metrics on {address}: {why}")]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// Why.
        why: String,
    },
    /// What runs beside the queue has failed.
    #[error("what runs beside the queue has failed: {0}")]
    Beside(String),
    /// gRPC failed.
    #[error("the gRPC server failed: {0}")]
    Grpc(#[from] tonic::transport::Error),
}

/// Serves the queue from the Redis of the configuration until `shutdown` ends. Nothing is opened before the
/// configuration and Redis have been checked.
pub async fn serve(
    config: ServerConfig,
    beside: impl FnOnce(&Arc<RedisStore>) -> Beside,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    config.check()?;
    let store = Arc::new(RedisStore::connect(redis_options(&config)).await?);
    let address = config.listen;
    let listener = TcpListener::bind(address).await.map_err(|source| ServeError::Listen { address, source })?;
    let beside = beside(&store);
    serve_redis(store, listener, config, beside, Box::pin(shutdown)).await
}

/// [`serve_on`] for the one store there is, compiled here: whoever calls it need not compile the whole server anew.
pub fn serve_redis<'a>(
    store: Arc<RedisStore>,
    listener: TcpListener,
    config: ServerConfig,
    beside: Beside,
    shutdown: BoxFuture<'a, ()>,
) -> BoxFuture<'a, Result<(), ServeError>> {
    Box::pin(serve_on(store, listener, config, beside, shutdown))
}

/// What the configuration says of Redis.
pub fn redis_options(config: &ServerConfig) -> RedisOptions {
    RedisOptions {
        url: config.redis_url.clone(),
        allow_volatile: config.allow_volatile,
        replicas_min: config.replicas_min,
        replica_wait_ms: config.replica_wait_ms,
        outbox: outbox_bound(config),
        ..RedisOptions::default()
    }
}

/// What the configuration says of the outboxes.
pub fn outbox_bound(config: &ServerConfig) -> OutboxBound {
    // Nobody reads the outbox: refusing new messages would help nobody, and a relay that comes later finds the newest.
    let unread = config.kafka.is_none() && config.history_file.is_none();
    let default = if unread { UNREAD_EVENTS_MAX } else { u64::from(OutboxBound::default().events_max) };
    OutboxBound {
        events_max: config.outbox_events_max.unwrap_or(default) as u32,
        full: if unread { OutboxFull::GiveUpHistory } else { config.outbox_full },
        payload_bytes_kept: config.history_payload_bytes as u16,
    }
}

/// What a server runs and serves beside the queue.
#[derive(Default)]
pub struct Beside {
    /// Further gRPC services, on the same port.
    pub routes: Routes,
    /// Of the relay among the tasks, if there is one.
    pub outbox_health: Option<OutboxHealth>,
    /// What runs until the token is cancelled, each on a thread of its own; the server waits for their ends.
    pub tasks: Vec<BesideTask>,
}

/// One of them.
pub type BesideTask = Box<dyn FnOnce(CancellationToken) -> BoxFuture<'static, ()> + Send>;

/// Serves the queue from any store on a bound listener until `shutdown` ends, then stops in order: held Dequeues answer
/// empty, Work streams end, what is on its way is answered.
pub async fn serve_on<S: Store + LeaderLease>(
    store: Arc<S>,
    listener: TcpListener,
    config: ServerConfig,
    beside: Beside,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    config.check()?;
    let stopping = CancellationToken::new();
    let _stop_in_any_case = stopping.clone().drop_guard();
    if let Some(address) = config.metrics_listen {
        let listener = metrics::listen(address).map_err(|why| ServeError::Metrics { address, why })?;
        tokio::spawn(stopping.clone().run_until_cancelled_owned(listener));
    }
    let metrics = Arc::new(Metrics::new(RPCS));
    let health = StoreHealth::new();
    let schedule = Arc::new(Schedule::default());
    let engine = Engine::new(Context {
        store: store.clone(),
        config: Arc::new(config.clone()),
        sweeper: schedule.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
        stopping: stopping.clone(),
    });
    let sweeper = Sweeper {
        store,
        schedule,
        lanes: engine.lanes.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
        owner: Uuid::new_v4().to_string(),
        leader_lease_ms: config.sweep_lead_ms,
    };
    tokio::spawn(sweeper.run(stopping.clone()));

    let tasks = beside.tasks.into_iter();
    let mut tasks: JoinSet<()> = tasks.map(|task| apart("beside", task(stopping.clone()))).collect();

    let api = Api::new(engine.clone());
    let (reporter, health_service) = tonic_health::server::health_reporter();
    if let Some(outbox) = beside.outbox_health {
        tokio::spawn(stopping.clone().run_until_cancelled_owned(outbox.report(reporter.clone())));
    }
    tokio::spawn(stopping.clone().run_until_cancelled_owned(report_health(health, reporter, metrics)));
    let reflection = described().build_v1().expect(WELL_FORMED);
    // Older clients know no other.
    let reflection_v1alpha = described().build_v1alpha().expect(WELL_FORMED);
    let address = listener.local_addr().map_err(|source| ServeError::Listen { address: config.listen, source })?;
    tracing::info!(%address, "serving");
    let server = tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .http2_max_pending_accept_reset_streams(Some(GIVEN_UP_PER_CONNECTION))
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .add_routes(beside.routes)
        .add_service(api.queue())
        .add_service(api.admin())
        .add_service(health_service)
        .add_service(reflection)
        .add_service(reflection_v1alpha)
        .serve_with_incoming_shutdown(
            TcpIncoming::from(listener).with_nodelay(Some(true)).map_ok(Corked::new),
            stopping.clone().cancelled_owned(),
        );
    let mut server = std::pin::pin!(server);
    // One that panics must not be missed: without a relay the outboxes would fill.
    let failed = async {
        while let Some(joined) = tasks.join_next().await {
            if let Err(error) = joined {
                return error.to_string();
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        served = &mut server => served?,
        why = failed => return Err(ServeError::Beside(why)),
        () = shutdown => {
            tracing::info!(%address, "stopping");
            stopping.cancel();
            // A client that does not let go of its connection does not keep the server.
            if let Ok(served) = tokio::time::timeout(STOP_WAIT, server).await {
                served?;
            }
        }
    }
    stopping.cancel();
    if tokio::time::timeout(STOP_WAIT, engine.drained()).await.is_err() {
        tracing::warn!("stopped before the store had answered everything");
    }
    if tokio::time::timeout(STOP_WAIT, async { while tasks.join_next().await.is_some() {} }).await.is_err() {
        tracing::warn!("stopped before all that ran beside the queue had ended");
    }
    Ok(())
}

/// What reflection tells of.
pub(crate) fn described() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The details of errors, which no message names: clients unpack them by reflection.
        .register_encoded_file_descriptor_set(tonic_types::pb::FILE_DESCRIPTOR_SET)
}

/// Serving while the store answers.
async fn report_health(health: StoreHealth, reporter: HealthReporter, metrics: Arc<Metrics>) {
    let mut available = health.watch();
    loop {
        let now = *available.borrow_and_update();
        let status = if now { ServingStatus::Serving } else { ServingStatus::NotServing };
        for service in ["", QueueServer::<()>::NAME, QueueAdminServer::<()>::NAME] {
            reporter.set_service_status(service, status).await;
        }
        metrics.store_available.set(if now { 1.0 } else { 0.0 });
        if available.changed().await.is_err() {
            return;
        }
    }
}
