//! A Redis, a server of counters and ingest processes, and the counts that are expected.

use super::topics::{Topics, Written};
use crate::crash::machines::{Redis, Server};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tallystone_client::{CounterClient, CounterType, NamespaceConfig};
use tallystone_tests::TestKafka;

/// The namespace of records that name none.
pub(super) const NAMESPACE: &str = "adds";

/// All of them.
pub(super) struct Stage {
    pub(super) redis: Redis,
    pub(super) counters: Server,
    pub(super) ingests: Vec<Server>,
    pub(super) topics: Topics,
    pub(super) client: CounterClient,
    /// What was written, by counter.
    expected: BTreeMap<String, i64>,
    _kafka: Arc<TestKafka>,
}

impl Stage {
    /// Without an ingest process. Counts are ACCURATE, so a read has every add that was acknowledged.
    pub(super) async fn start(test: &str, partitions: i32, accept_limit_ms: u64) -> Stage {
        let kafka = TestKafka::shared().await;
        let topics = Topics::create(kafka.address(), test, partitions).await;
        let redis = Redis::start().await;
        let counters = Server::start_as(&["counters", "--redis-url", &redis.url(), "--log", "error"]).await;
        let client = CounterClient::builder(counters.url()).retry_for(Duration::from_secs(60));
        let client = client.connect().await.expect("a server that listens");
        let stage =
            Stage { redis, counters, ingests: Vec::new(), topics, client, expected: BTreeMap::new(), _kafka: kafka };
        stage.namespace(NamespaceConfig { accept_limit_ms: Some(accept_limit_ms), ..NamespaceConfig::default() }).await;
        stage
    }

    /// Makes or changes the namespace.
    pub(super) async fn namespace(&self, config: NamespaceConfig) {
        let config = NamespaceConfig { counter_type: Some(CounterType::Accurate), ..config };
        self.client.put_namespace(NAMESPACE, config).await.expect("a namespace");
    }

    /// One more ingest process; with an instance name it gets its partitions back at once when it is started again.
    pub(super) async fn ingest(&mut self, instance: Option<&str>) {
        let counters = self.counters.url();
        self.ingest_to(&counters, instance).await;
    }

    /// The same, with the counters at this address.
    pub(super) async fn ingest_to(&mut self, counters: &str, instance: Option<&str>) {
        let topics = &self.topics;
        let group = topics.group();
        let mut args = vec!["ingest", "--kafka-brokers", &topics.brokers, "--topic", &topics.source];
        args.extend(["--group", &group, "--counters", counters, "--namespace", NAMESPACE, "--log", "error"]);
        args.extend(instance.iter().flat_map(|instance| ["--instance", instance]));
        let ingest = Server::start_with_metrics(&args).await;
        self.ingests.push(ingest);
    }

    /// Expects that these records count.
    pub(super) fn expect(&mut self, records: &[Written]) {
        for record in records {
            let add: serde_json::Value = serde_json::from_str(&record.value).expect("an add");
            let delta = add["delta"].as_i64().expect("a number");
            *self.expected.entry(record.key.clone()).or_default() += delta;
        }
    }

    /// Writes records that count.
    pub(super) async fn write(&mut self, records: &[Written]) {
        self.expect(records);
        self.topics.write(records).await;
    }

    /// Waits until all counts are right, and they must stay so until every record is decided. For topics that were created again:
    /// until Kafka forgets their old positions, records may seem to be decided.
    pub(super) async fn assert_becomes_exact(&self) {
        let give_up_at = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.wrong().await.is_some() && tokio::time::Instant::now() < give_up_at {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.assert_exact().await;
    }

    /// A counter whose count is not as expected: its name, its count, and what was expected.
    async fn wrong(&self) -> Option<(&str, i64, i64)> {
        for (counter, expected) in &self.expected {
            let counted = self.client.get(NAMESPACE, counter).await.expect("a count");
            if counted.count != *expected {
                return Some((counter, counted.count, *expected));
            }
        }
        None
    }

    /// Waits until every record is decided, and compares the counts.
    pub(super) async fn assert_exact(&self) {
        self.topics.until_decided().await;
        assert_eq!(self.wrong().await, None, "dead letters: {:?}", self.topics.dead_letters().await);
    }
}
