//! The process `tallystone counters`: the counters of a Redis, over gRPC and HTTP.

use crate::buckets::buckets;
use crate::client::ClientConfig;
use crate::{AssemblyError, Config};
use std::time::Duration;
use tallystone_archive::ArchiveError;
use tallystone_client::Client;
use tallystone_counters::api;
use tallystone_counters::redis::RedisNamespaces;
use tallystone_counters::service::{CounterService, WaitingBounds};
use tallystone_link::RedisConfig;
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host};

/// How long a call of the queue may take.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(5);

/// The host of the counters. Nothing is opened before the configuration is checked, and no port before Redis is.
pub async fn counters(config: &Config) -> Result<Host, AssemblyError> {
    config.check_counters()?;
    let ports = config.ports()?;
    let queue = queue_client("counters.queue_url", &config.counters.queue_url, &config.client)?;
    let namespaces = connect_counters(config).await?;
    let host = Host::with_metrics(config.counters.metrics_listen, &buckets(), &ports)?;
    let host = host.http_hosts(&config.counters.http_hosts);
    Ok(attach_counters(host, namespaces, Some(queue), config.counters.waiting()))
}

/// Adds the counters of these namespaces to a host. Without a queue nothing requests rollups.
pub fn attach_counters(host: Host, namespaces: RedisNamespaces, queue: Option<Client>, waiting: WaitingBounds) -> Host {
    let counters = CounterService::new(namespaces, queue, waiting);
    let host = host.task(BackgroundTask::new("counters", {
        let counters = counters.clone();
        |stopping| counters.run(stopping)
    }));
    api::attach(host, counters)
}

/// Connects to the counters of a Redis, and to the archive of their events, as the region that is configured.
pub(crate) async fn connect_counters(config: &Config) -> Result<RedisNamespaces, AssemblyError> {
    let archive = config.archive.open()?;
    if let Some(archive) = &archive {
        let unusable = |error: ArchiveError| ConfigError::new("archive.url", error.to_string());
        archive.archive.check().await.map_err(unusable)?;
    }
    let region = config.regions.region()?;
    Ok(connect_namespaces(&config.redis).await?.with_archive(archive).with_region(region))
}

/// Connects to the counters of a Redis, without the archive of their events.
pub async fn connect_namespaces(redis: &RedisConfig) -> Result<RedisNamespaces, AssemblyError> {
    Ok(RedisNamespaces::connect(redis, redis.clock("counters")).await?)
}

/// A client of the queue, which may start later than its client. `field` names the address in the error.
pub fn queue_client(field: &str, url: &str, config: &ClientConfig) -> Result<Client, AssemblyError> {
    let client = config.apply(Client::builder(url).call_timeout(QUEUE_TIMEOUT)).connect_lazy();
    client.map_err(|error| ConfigError::new(field, error.to_string()).into())
}
