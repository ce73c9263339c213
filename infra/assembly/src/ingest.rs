//! The process `tallystone ingest`: adds from a Kafka topic, counted by the counters.

use crate::buckets::buckets;
use crate::{AssemblyError, Config};
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::CounterClient;
use tallystone_ingest::{IngestOptions, Steps, run};
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host, report_health};
use tokio::sync::watch;

/// How long a call of the counters may take. A call without an answer is repeated by the process, with the same bytes.
const COUNTERS_TIMEOUT: Duration = Duration::from_secs(5);

/// The host of an ingest process. Kafka and the counters may be away at the start.
pub fn ingest(config: &Config) -> Result<Host, AssemblyError> {
    config.check_ingest()?;
    let ports = config.ports()?;
    let missing = |field: &str| ConfigError::new(field, "is not set, but an ingest process needs it");
    let section = &config.ingest;
    let options = IngestOptions {
        kafka: config.kafka.options()?.ok_or_else(|| missing("kafka.brokers"))?,
        topics: section.topics().ok_or_else(|| missing("ingest.topic"))?,
        group: section.group.clone(),
        instance: section.instance.clone(),
        namespace: section.namespace.clone(),
        creation: None,
        batch_records_max: section.batch_records_max as usize,
        undecided: Arc::default(),
        steps: Steps::default(),
    };
    let builder =
        CounterClient::builder(&section.counters_url).call_timeout(COUNTERS_TIMEOUT).retry_for(Duration::ZERO);
    let counters = config.client.apply(builder).connect_lazy();
    let counters = counters.map_err(|error| ConfigError::new("ingest.counters_url", error.to_string()))?;
    let host = Host::with_metrics(section.metrics_listen, &buckets(), &ports)?;
    let (is_serving, served) = watch::channel(false);
    host.spawn(report_health(host.health(), &[""], served, |is_serving| *is_serving));
    Ok(host.task(BackgroundTask::fallible("ingest", move |stopping| run(options, counters, is_serving, stopping))))
}
