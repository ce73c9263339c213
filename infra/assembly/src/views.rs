//! The process `tallystone views`: views of videos over HTTP, counted by the counters.

use crate::buckets::buckets;
use crate::client::ClientConfig;
use crate::{AssemblyError, Config};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host};
use tallystone_views::log::ViewLog;
use tallystone_views::{ViewService, api};

/// How long a call of the counters may take. A call that changes something is repeated by the service, with the same bytes.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(2);

/// The host of the view counter. Redis must answer at the start; the counters may start later.
pub async fn views(config: &Config) -> Result<Host, AssemblyError> {
    config.check_views()?;
    let ports = config.ports()?;
    let host = Host::with_metrics(config.views.metrics_listen, &buckets(), &ports)?;
    let host = host.http_hosts(&config.views.http_hosts);
    attach_views(host, config, &config.views.counters_url, &config.client).await
}

/// Adds the view counter to a host.
pub(crate) async fn attach_views(
    mut host: Host,
    config: &Config,
    counters_url: &str,
    client: &ClientConfig,
) -> Result<Host, AssemblyError> {
    let builder = CounterClient::builder(counters_url).call_timeout(COUNTERS_TIMEOUT).retry_for(Duration::ZERO);
    let counters = client.apply(builder).connect_lazy();
    let counters = counters.map_err(|error| ConfigError::new("views.counters_url", error.to_string()))?;
    let log = ViewLog::connect(&config.redis, config.views.partitions).await?;
    let (views, partitions) = ViewService::start(&config.views, log, &counters);
    for partition in partitions {
        host = host.task(BackgroundTask::new("views", |stopping| partition.run(stopping)));
    }
    Ok(api::attach(host, views))
}
