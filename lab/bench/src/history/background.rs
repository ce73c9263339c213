//! A relay, and a service that answers, beside a server of ours: as `tallystone server` has them.

use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::HistoryStore;
use tallystone_indexer::api::HistoryApi;
use tallystone_model::Sink;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::RedisStore;
use tallystone_server::{Beside, ServerConfig, outbox_bound};
use tonic::service::Routes;

/// Between two watermarks, at the least: to the embedded store it is a row.
pub(super) const EMBEDDED_WATERMARK: Duration = Duration::ZERO;

/// A relay into this sink.
pub(super) fn relay<K: Sink>(
    store: &Arc<RedisStore>,
    config: &ServerConfig,
    sink: K,
    watermark_every: Duration,
) -> Beside {
    let health = OutboxHealth::default();
    let options = RelayOptions {
        leader_lease_ms: config.relay_lead_ms,
        events_max: u64::from(outbox_bound(config).events_max),
        watermark_every,
    };
    let relay = Relay::new(store.clone(), sink, options, health.clone());
    let mut beside = Beside { outbox_health: Some(health), ..Beside::default() };
    beside.tasks.push(Box::new(|stopping| Box::pin(relay.run(stopping))));
    beside
}

/// The same, and answers from this store.
pub(super) fn answering<S: HistoryStore>(beside: Beside, store: Arc<S>) -> Beside {
    Beside { routes: Routes::new(HistoryApi::new(store).service()), ..beside }
}
