//! Private Kafka and Elasticsearch, started when a figure first needs them and shared by the figures.

use super::lives::Lives;
use anyhow::{Context, Result};
use elasticsearch::http::headers::HeaderMap;
use elasticsearch::http::transport::{SingleNodeConnectionPool, Transport, TransportBuilder};
use elasticsearch::http::{Method, Url};
use serde_json::Value;
use std::time::Duration;
use tallystone_indexer::kafka::KafkaSink;
use tallystone_indexer::{Elastic, ElasticOptions, Rollover};
use tallystone_kafka::{KafkaConfig, KafkaOptions};
use tallystone_local::{PrivateElasticsearch, PrivateElasticsearchOptions, PrivateKafka, PrivateKafkaOptions};
use tallystone_model::Sink;
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// Their names for the line below the table.
pub(super) const KAFKA: &str = "Kafka 4.1.0 (one broker, 12 partitions, heap 256 MiB)";
pub(super) const ELASTICSEARCH: &str = "Elasticsearch 8.19.21 (one node, one shard, refresh 1 s, heap 2 GiB)";
const HEAP_MIB: u32 = 2_048;
/// Events per delivery when a backlog is produced.
const PRODUCED_AT_ONCE: usize = 4_000;
/// The synthetic events are years old: Kafka must keep them.
const RETENTION_MS: u64 = 3_650 * 86_400_000;

/// Running services.
pub(super) struct Services {
    kafka: OnceCell<PrivateKafka>,
    elasticsearch: OnceCell<PrivateElasticsearch>,
    // Declared last, so that the services end before the folder is removed.
    dir: TempDir,
}

impl Services {
    pub(super) fn new() -> Result<Services> {
        Ok(Services { kafka: OnceCell::new(), elasticsearch: OnceCell::new(), dir: tempfile::tempdir()? })
    }

    pub(super) async fn kafka(&self) -> Result<&PrivateKafka> {
        let options = PrivateKafkaOptions::new(self.dir.path().join("kafka"));
        let start = async || PrivateKafka::start(options).await.context("cannot start a Kafka for the bench");
        self.kafka.get_or_try_init(start).await
    }

    pub(super) async fn elasticsearch(&self) -> Result<&PrivateElasticsearch> {
        let options = PrivateElasticsearchOptions {
            heap_mib: HEAP_MIB,
            ..PrivateElasticsearchOptions::new(self.dir.path().join("elasticsearch"))
        };
        let start =
            async || PrivateElasticsearch::start(options).await.context("cannot start an Elasticsearch for the bench");
        self.elasticsearch.get_or_try_init(start).await
    }

    /// A new topic.
    pub(super) async fn topic(&self, name: &str) -> Result<KafkaOptions> {
        Ok(KafkaOptions {
            brokers: self.kafka().await?.address(),
            topic: name.to_owned(),
            retention_ms: RETENTION_MS,
            ..KafkaOptions::default()
        })
    }

    /// New indices.
    pub(super) async fn indices(&self, prefix: &str) -> Result<Elastic> {
        self.rolling_indices(prefix, Rollover::default()).await
    }

    /// New indices that are followed by others as `rollover` says.
    pub(super) async fn rolling_indices(&self, prefix: &str, rollover: Rollover) -> Result<Elastic> {
        let url = self.elasticsearch().await?.url();
        let prefix = prefix.to_owned();
        Ok(Elastic::new(ElasticOptions { prefix, replicas: 0, rollover, ..ElasticOptions::new(url) })?)
    }

    /// A transport for requests that our client does not make.
    pub(super) async fn transport(&self) -> Result<Transport> {
        let url = Url::parse(&self.elasticsearch().await?.url())?;
        let builder = TransportBuilder::new(SingleNodeConnectionPool::new(url));
        Ok(builder.timeout(Duration::from_secs(120)).enable_meta_header(false).disable_proxy().build()?)
    }

    /// Removes the indices with this prefix, so that their merges do not slow the next sample.
    pub(super) async fn drop_indices(&self, prefix: &str) -> Result<()> {
        let transport = self.transport().await?;
        let send = async |method, path: &str, query: &[(&str, &str)]| {
            let sent = transport.send(method, path, HeaderMap::new(), Some(query), None::<String>, None).await?;
            anyhow::Ok(sent.error_for_status_code()?.json::<Value>().await?)
        };
        let path = format!("{prefix}-*/_settings");
        let found = send(Method::Get, &path, &[("filter_path", "*.settings.index.uuid")]).await?;
        for name in found.as_object().into_iter().flat_map(|indices| indices.keys()) {
            send(Method::Delete, name, &[]).await?;
        }
        Ok(())
    }

    pub(super) async fn stop(self) {
        if let Some(kafka) = self.kafka.into_inner() {
            kafka.stop().await;
        }
        if let Some(elasticsearch) = self.elasticsearch.into_inner() {
            elasticsearch.stop().await;
        }
    }
}

/// The section of a configuration that names this topic.
pub(super) fn kafka_section(topic: &KafkaOptions) -> KafkaConfig {
    KafkaConfig {
        brokers: Some(topic.brokers.clone()),
        topic: topic.topic.clone(),
        partitions: topic.partitions,
        retention_ms: topic.retention_ms,
        ..KafkaConfig::default()
    }
}

/// Writes at least `events` events to the topic, and a watermark after them. Returns their number and the watermark.
pub(super) async fn produce(topic: &KafkaOptions, events: u64) -> Result<(u64, u64)> {
    let sink = KafkaSink::new(topic)?;
    let mut lives = Lives::new("bench/history")?;
    let mut produced = 0;
    while produced < events {
        let left = usize::try_from(events - produced)?;
        let batch = lives.next(PRODUCED_AT_ONCE.min(left));
        produced += batch.len() as u64;
        sink.deliver(batch.into()).await?;
    }
    sink.delivered_to(lives.now_ms()).await?;
    Ok((produced, lives.now_ms()))
}
