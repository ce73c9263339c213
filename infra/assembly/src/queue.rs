//! The process `tallystone server`: the queue over a Redis, with its relay and its history.

use crate::buckets::buckets;
use crate::{AssemblyError, Config, History};
use std::sync::Arc;
use tallystone_server::attach_redis_queue;
use tallystone_server::store::RedisStore;
use tallystone_serving::{Host, Ports};

/// The host of a queue. Nothing is opened before the configuration is checked, and no port before Redis is.
pub async fn queue(config: &Config) -> Result<Host, AssemblyError> {
    config.check_queue()?;
    let ports = config.ports()?;
    let store = Arc::new(RedisStore::connect(config.redis_options()?).await?);
    queue_over(store, History::open(config)?, config, &ports)
}

/// The host of a queue over a store and history that are open already.
pub fn queue_over(
    store: Arc<RedisStore>,
    history: History,
    config: &Config,
    ports: &Ports,
) -> Result<Host, AssemblyError> {
    let host = Host::with_metrics(config.server.metrics_listen, &buckets(), ports)?;
    let host = history.attach(host, &store, config);
    Ok(attach_redis_queue(host, store, &config.server, config.queue_templates.clone(), &config.tenants)?)
}
