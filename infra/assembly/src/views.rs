//! The process `tallystone views`: views of videos over HTTP, counted by the counters.

use crate::buckets::buckets;
use crate::client::ClientConfig;
use crate::{AssemblyError, Config};
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_ingest::{IngestOptions, Steps, run};
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host};
use tallystone_views::kafka::{KafkaLog, ViewTopics};
use tallystone_views::log::ViewLog;
use tallystone_views::{ViewService, api, counts_config};
use tokio::sync::watch;

/// How long a call of the counters may take. A call that changes something is repeated by the service, with the same bytes.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(2);

/// Deltas that are counted together, if the log is in Kafka.
const DELTAS_MAX: usize = 5_000;

/// The host of the view counter. Redis, or Kafka if it has the log, must answer at the start; the counters may start later.
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
    if let Some(topic) = &config.views.topic {
        return attach_to_kafka(host, config, topic, &counters).await;
    }
    let log = ViewLog::connect(&config.redis, config.views.partitions).await?;
    let (views, partitions) = ViewService::start(&config.views, log, &counters);
    for partition in partitions {
        host = host.task(BackgroundTask::new("views", |stopping| partition.run(stopping)));
    }
    Ok(api::attach(host, views))
}

/// With the log in Kafka. The deltas are counted by an ingest consumer in this process, in the same consumer group as those of
/// other processes.
async fn attach_to_kafka(
    mut host: Host,
    config: &Config,
    topic: &str,
    counters: &CounterClient,
) -> Result<Host, AssemblyError> {
    let missing = || ConfigError::new("kafka.brokers", "is not set, but views.topic is");
    let kafka = config.kafka.options()?.ok_or_else(missing)?;
    let log = KafkaLog::connect(&kafka, topic, config.views.partitions).await?;
    let (views, tasks, members) = ViewService::start_on_kafka(&config.views, log, counters);
    for _ in 0..members {
        let tasks = tasks.clone();
        host = host.task(BackgroundTask::new("views", move |stopping| tasks.run_member(stopping)));
    }
    let ViewTopics { deltas, late, dead, sink_group, .. } = ViewTopics::of(topic);
    let options = IngestOptions {
        kafka,
        topics: [deltas, late, dead],
        group: sink_group,
        instance: None,
        namespace: None,
        creation: Some(counts_config()),
        batch_records_max: DELTAS_MAX,
        undecided: tasks.waiting_deltas(),
        steps: Steps::default(),
    };
    let (prepared, counters) = (tasks.prepared(), counters.clone());
    host = host.task(BackgroundTask::fallible("views-sink", move |stopping| async move {
        if stopping.run_until_cancelled(prepared).await.is_none() {
            return Ok(());
        }
        // No health status depends on the sink: deltas wait while the counters are unavailable.
        let (is_serving, _) = watch::channel(false);
        run(options, counters, is_serving, stopping).await
    }));
    Ok(api::attach(host, views))
}
