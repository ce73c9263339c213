//! What a server runs and serves beside the queue, so that there is a history: the relay into Kafka or into the embedded
//! store, and the service that answers questions from the embedded store or from Elasticsearch.

use crate::error::CliError;
use futures::FutureExt;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_indexer::HistoryStore;
use tallystone_indexer::api::HistoryApi;
use tallystone_indexer::clock::now_ms;
use tallystone_indexer::elastic::{Elastic, ElasticOptions};
use tallystone_indexer::embedded::{Embedded, EmbeddedOptions};
use tallystone_indexer::kafka::{KafkaSink, WATERMARK_EVERY};
use tallystone_kafka::KafkaOptions;
use tallystone_model::Sink;
use tallystone_server::outbox::{OutboxHealth, Relay, RelayOptions};
use tallystone_server::store::RedisStore;
use tallystone_server::{Beside, BesideTask, ServerConfig};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// Between two looks for what is past its retention; and between two steps of dropping it.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
const PRUNE_STEP: Duration = Duration::from_millis(100);

/// Opened and checked, not yet at work.
#[derive(Default)]
pub(crate) struct History {
    embedded: Option<Arc<Embedded>>,
    kafka: Option<KafkaSink>,
    elastic: Option<Arc<Elastic>>,
    relay: Option<RelayOptions>,
}

impl History {
    /// What the configuration asks for.
    pub(crate) fn open(config: &ServerConfig) -> Result<History, CliError> {
        let mut history = History::default();
        if let Some(path) = &config.history_file {
            if let Some(dir) = path.parent() {
                std::fs::create_dir_all(dir)
                    .map_err(|error| CliError::usage(format!("cannot make {}: {error}", dir.display())))?;
            }
            let options = EmbeddedOptions {
                path: path.clone(),
                retention_ms: config.history_retention_ms,
                max_bytes: config.history_bytes_max,
            };
            history.embedded = Some(Arc::new(Embedded::open(options).map_err(CliError::usage)?));
        }
        if let Some(kafka) = kafka_options(config)? {
            history.kafka = Some(KafkaSink::new(&kafka).map_err(CliError::usage)?);
        }
        if let Some(options) = elastic_options(config) {
            history.elastic = Some(Arc::new(Elastic::new(options).map_err(CliError::usage)?));
        }
        // To the embedded store it is a row, and may come every time.
        let watermark_every = if history.kafka.is_some() { WATERMARK_EVERY } else { Duration::ZERO };
        history.relay = (history.kafka.is_some() || history.embedded.is_some()).then(|| RelayOptions {
            leader_lease_ms: config.relay_lead_ms,
            events_max: u64::from(tallystone_server::outbox_bound(config).events_max),
            watermark_every,
        });
        Ok(history)
    }

    /// At work, beside a server of this store.
    pub(crate) fn beside(self, store: &Arc<RedisStore>) -> Beside {
        let mut beside = Beside::default();
        if let Some(options) = self.relay {
            let health = OutboxHealth::default();
            beside.outbox_health = Some(health.clone());
            if let Some(embedded) = &self.embedded {
                beside.tasks.push(relay(store, embedded.clone(), options, health));
            } else if let Some(kafka) = self.kafka {
                beside.tasks.push(relay(store, kafka, options, health));
            }
        }
        if let Some(embedded) = self.embedded {
            beside.routes = Routes::new(HistoryApi::new(embedded.clone()).service());
            beside
                .tasks
                .push(Box::new(move |stopping| stopping.run_until_cancelled_owned(prune(embedded)).map(drop).boxed()));
        } else if let Some(elastic) = self.elastic {
            beside.routes = Routes::new(HistoryApi::new(elastic).service());
        }
        beside
    }
}

fn relay<K: Sink>(store: &Arc<RedisStore>, sink: K, options: RelayOptions, health: OutboxHealth) -> BesideTask {
    let store = store.clone();
    Box::new(move |stopping: CancellationToken| Relay::new(store, sink, options, health).run(stopping).boxed())
}

/// Which Kafka, if any.
pub(crate) fn kafka_options(config: &ServerConfig) -> Result<Option<KafkaOptions>, CliError> {
    let Some(brokers) = &config.kafka else { return Ok(None) };
    let brokers = brokers.strip_prefix("kafka://").unwrap_or(brokers);
    if brokers.contains("://") {
        return Err(CliError::usage(format!("kafka: {brokers:?} is not like HOST:PORT[,HOST:PORT]")));
    }
    let mut properties = BTreeMap::new();
    for property in &config.kafka_properties {
        let (key, value) = property
            .split_once('=')
            .ok_or_else(|| CliError::usage(format!("kafka_properties: '{property}' is not like key=value")))?;
        properties.insert(key.to_owned(), value.to_owned());
    }
    let options = KafkaOptions {
        brokers: brokers.to_owned(),
        topic: config.kafka_topic.clone(),
        partitions: config.kafka_partitions,
        replication_factor: u16::try_from(config.kafka_replicas).ok().filter(|replicas| *replicas > 0),
        retention_ms: config.kafka_retention_ms,
        properties,
    };
    options.check().map_err(CliError::usage)?;
    Ok(Some(options))
}

/// Which Elasticsearch, if any.
pub(crate) fn elastic_options(config: &ServerConfig) -> Option<ElasticOptions> {
    let url = config.elasticsearch.as_ref()?;
    Some(ElasticOptions {
        prefix: config.elasticsearch_prefix.clone(),
        shards: config.elasticsearch_shards,
        replicas: config.elasticsearch_replicas,
        retention_ms: config.history_retention_ms,
        ..ElasticOptions::new(url)
    })
}

/// Drops what is past its retention, for ever.
pub(crate) async fn prune<S: HistoryStore>(store: Arc<S>) {
    loop {
        match store.prune(now_ms()).await {
            Ok(true) => tokio::time::sleep(PRUNE_STEP).await,
            Ok(false) => tokio::time::sleep(PRUNE_EVERY).await,
            Err(error) => {
                tracing::warn!(%error, "history past its retention was not dropped");
                tokio::time::sleep(PRUNE_EVERY).await;
            }
        }
    }
}
