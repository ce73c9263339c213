//! The queue becomes a service of a [`Host`].

use crate::api::{Api, RPCS};
use crate::config::{QueueTemplates, ServerConfig, TenantConfigs};
use crate::engine::{Context, Engine, FairQueue, Rooms, WaitLimits};
use crate::health::StoreHealth;
use crate::metrics::Metrics;
use crate::outbox::{OutboxHealth, Relay, RelayOptions};
use crate::queue_metrics::{self, Board, QueueStates};
use crate::schedule::Schedule;
use crate::sharded::Sharded;
use crate::store::RedisStore;
use crate::sweeper::{LeaderLease, SweepTimes, Sweeper};
use crate::tenants::{KeptMessages, Tenants};
use std::sync::Arc;
use tallystone_model::{ConfigError, Sink};
use tallystone_proto::queue::v1::queue_admin_server::QueueAdminServer;
use tallystone_proto::queue::v1::queue_server::QueueServer;
use tallystone_serving::{BackgroundTask, Host, RpcMetrics, report_health};
use tonic::server::NamedService;
use uuid::Uuid;

/// [`attach_queue`] over Redis, compiled in this crate: its callers do not compile the whole server again.
pub fn attach_redis_queue(
    host: Host,
    store: Arc<RedisStore>,
    config: &ServerConfig,
    templates: QueueTemplates,
    tenants: &TenantConfigs,
) -> Result<Host, ConfigError> {
    attach_queue(host, store, config, templates, tenants)
}

/// Adds the queue over a store to a host: its two services, its sweeper and its health. When the host stops, waiting
/// Dequeues answer empty, Work streams end, and calls in flight are answered before the host ends.
pub fn attach_queue<S: SweepTimes + LeaderLease + QueueStates + KeptMessages>(
    host: Host,
    store: Arc<S>,
    config: &ServerConfig,
    templates: QueueTemplates,
    tenants: &TenantConfigs,
) -> Result<Host, ConfigError> {
    config.check()?;
    templates.check()?;
    tenants.check()?;
    let metrics = Arc::new(Metrics::new());
    let health = StoreHealth::of(store.partition_count());
    for (partition, status) in (0..).zip(store.statuses()) {
        host.spawn(health.clone().follow(partition, status));
    }
    let schedule = Arc::new(Schedule::of(store.partition_count()));
    let limits = host.bounds();
    let series_max = host.has_metrics().then_some(config.metrics_queues_max as usize);
    let queues = Board::new(series_max, store.partition_count());
    let store = Arc::new(Sharded::observed(store, schedule.clone(), health.clone()));
    let engine = Engine::new(Context {
        store: store.clone(),
        templates,
        create_on_enqueue: config.create_on_enqueue,
        sweeper: schedule.clone(),
        health: health.clone(),
        metrics: metrics.clone(),
        queues: queues.clone(),
        wait_limits: WaitLimits {
            subscriptions_max: limits.subscriptions_max,
            dequeues_max: limits.waiting_dequeues_max,
            waiters_max: limits.queue_waiters_max,
            filters_max: limits.queue_filters_max,
        },
        enqueue_stream_calls_max: limits.enqueue_stream_calls_max,
        fair_queue: FairQueue::default(),
        rooms: Rooms::new(config.waiting(), &metrics),
        tenants: Tenants::new(tenants, &store),
        stopping: host.stopping(),
    });
    if host.has_metrics() {
        host.spawn(queue_metrics::read_often(store.clone(), queues.clone(), health.clone()));
        let queues = queues.clone();
        host.collect(move |page| queue_metrics::write(&queues, page));
    }
    let sweeper = Sweeper {
        store,
        queues,
        schedule,
        lanes: engine.lanes.clone(),
        metrics: metrics.clone(),
        health: health.clone(),
        owner: Uuid::new_v4().to_string(),
        leader_lease_ms: config.sweeper_leader_lease_ms,
    };
    tokio::spawn(sweeper.run(host.stopping()));
    let services = &["", QueueServer::<()>::NAME, QueueAdminServer::<()>::NAME];
    host.spawn(report_health(host.health(), services, health.watch(), move |is_available| {
        metrics.store_available.set(if *is_available { 1.0 } else { 0.0 });
        *is_available
    }));
    let api = Api::new(engine.clone(), RpcMetrics::new(RPCS));
    Ok(host
        .service(api.queue())
        .service(api.admin())
        .drain("calls of the store", async move { engine.drained().await }))
}

/// Adds a relay to the host of a queue: the background task that moves events from the outboxes of this store to a sink,
/// and the health of the service `tallystone.outbox`.
pub fn attach_relay<K: Sink>(host: Host, store: Arc<RedisStore>, sink: K, options: RelayOptions) -> Host {
    let health = OutboxHealth::default();
    host.spawn(health.clone().report(host.health()));
    let relay = Relay::new(store, sink, options, health);
    host.task(BackgroundTask::new("relay", |stopping| relay.run(stopping)))
}
