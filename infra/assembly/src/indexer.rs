//! The process `tallystone indexer`: events from Kafka into Elasticsearch, and the service `History` over it.

use crate::buckets::buckets;
use crate::history::attach_pruning;
use crate::{AssemblyError, Config};
use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::kafka::{IndexerOptions, run};
use tallystone_indexer::{Elastic, HistoryStore};
use tallystone_kafka::{KafkaOptions, Topic};
use tallystone_model::ConfigError;
use tallystone_serving::{BackgroundTask, Host, report_health};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// Between two probes of Kafka and of the store, and how long one may take.
const PROBE_EVERY: Duration = Duration::from_secs(1);
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The host of an indexer. Kafka and Elasticsearch may be away at the start.
pub fn indexer(config: &Config) -> Result<Host, AssemblyError> {
    config.check_indexer()?;
    let ports = config.ports()?;
    let missing = |field: &str| ConfigError::new(field, "is not set, but an indexer needs it");
    let kafka = config.kafka.options()?.ok_or_else(|| missing("kafka.brokers"))?;
    let elastic = config.elasticsearch.options(&config.history);
    let elastic = Arc::new(Elastic::new(elastic.ok_or_else(|| missing("elasticsearch.url"))?)?);
    let host = Host::with_metrics(config.indexer.metrics_listen, &buckets(), &ports)?;
    let host = host.service(HistoryApi::new(elastic.clone()).service());
    let (is_serving, served) = watch::channel(false);
    host.spawn(report_health(host.health(), &[""], served, |is_serving| *is_serving));
    let topic = Topic::events(&kafka).map_err(|error| AssemblyError::History(error.to_string()))?;
    host.spawn(probe(elastic.clone(), topic, is_serving));
    Ok(attach_indexers(host, elastic, config, kafka))
}

/// Finds out again and again whether Kafka has the topic and the store answers: without them the process reads and answers nothing.
async fn probe<S: HistoryStore>(store: Arc<S>, topic: Topic, is_serving: watch::Sender<bool>) {
    loop {
        let answers = async { topic.partitions().await.is_ok() && store.watermark().await.is_ok() };
        let serves = timeout(PROBE_TIMEOUT, answers).await.unwrap_or(false);
        is_serving.send_if_modified(|was| std::mem::replace(was, serves) != serves);
        sleep(PROBE_EVERY).await;
    }
}

/// Adds to a host the consumers of all topics, and the pruning of the store.
pub(crate) fn attach_indexers(host: Host, elastic: Arc<Elastic>, config: &Config, kafka: KafkaOptions) -> Host {
    let options = config.indexer.options(kafka);
    let mut host = attach_indexer(host, elastic.clone(), options.clone());
    for (number, group) in config.history.groups.iter().enumerate() {
        if let (Some(topic), Some(elastic)) = (&group.topic, elastic.of_topic(number)) {
            let kafka = KafkaOptions { topic: topic.clone(), ..options.kafka.clone() };
            // Members of one consumer group read the same topics.
            let consumers = format!("{}.{}", options.group, group.name);
            let options = IndexerOptions { kafka, group: consumers, ..options.clone() };
            host = host.task(consumer(Arc::new(elastic), options));
        }
    }
    host
}

fn consumer<S: HistoryStore>(store: Arc<S>, options: IndexerOptions) -> BackgroundTask {
    BackgroundTask::fallible("indexer", |stopping| run(store, options, stopping.cancelled_owned()))
}

/// Adds to a host the consumer that writes events into a store, and the pruning of that store. When the consumer fails
/// for good, the host ends with its error.
pub fn attach_indexer<S: HistoryStore>(host: Host, store: Arc<S>, options: IndexerOptions) -> Host {
    attach_pruning(host.task(consumer(store.clone(), options)), store)
}
