//! The process `tallystone indexer`: events from Kafka into Elasticsearch, and the service `History` over it.

use crate::history::attach_pruning;
use crate::{AssemblyError, Config};
use std::sync::Arc;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::kafka::{IndexerOptions, run};
use tallystone_indexer::{Elastic, HistoryStore};
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host};

/// The host of an indexer. Kafka and Elasticsearch may be away at the start.
pub fn indexer(config: &Config) -> Result<Host, AssemblyError> {
    config.check_indexer()?;
    let missing = |field: &str| ConfigError::new(field, "is not set, but an indexer needs it");
    let kafka = config.kafka.options()?.ok_or_else(|| missing("kafka.brokers"))?;
    let elastic = config.elasticsearch.options(config.history.retention_ms);
    let elastic = Arc::new(Elastic::new(elastic.ok_or_else(|| missing("elasticsearch.url"))?)?);
    let host = Host::with_metrics(config.indexer.metrics_listen, &[])?;
    let host = host.service(HistoryApi::new(elastic.clone()).service());
    Ok(attach_indexer(host, elastic, config.indexer.options(kafka)))
}

/// Adds to a host the consumer that writes events into a store, and the pruning of that store. When the consumer fails
/// for good, the host ends with its error.
pub fn attach_indexer<S: HistoryStore>(host: Host, store: Arc<S>, options: IndexerOptions) -> Host {
    let consumed = store.clone();
    let task = BackgroundTask::fallible("indexer", |stopping| run(consumed, options, stopping.cancelled_owned()));
    attach_pruning(host.task(task), store)
}
