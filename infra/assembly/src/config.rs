//! The whole configuration: the sections of every part. One file may serve all processes; each reads the sections that
//! it uses.

use crate::client::ClientConfig;
use crate::telemetry::TelemetryConfig;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_counters::{ArchiveConfig, CountersConfig};
use tallystone_indexer::{ElasticsearchConfig, HistoryConfig, IndexerConfig};
use tallystone_ingest::IngestConfig;
use tallystone_kafka::KafkaConfig;
use tallystone_link::{CompactConfig, ConnectError, RedisConfig};
use tallystone_model::ConfigError;
use tallystone_regions::{RegionOptions, RegionsConfig};
use tallystone_server::store::{OutboxBound, RedisOptions};
use tallystone_server::{OutboxConfig, QueueTemplates, ServerConfig, TenantConfigs};
use tallystone_serving::{AuditConfig, AuthConfig, JwtConfig, Limits, Ports, TlsConfig};
use tallystone_views::ViewsConfig;
use tallystone_views::kafka::ViewTopics;
use tallystone_workers::RollupWorkerConfig;

/// Every section, by its name in the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The queue's server.
    pub server: ServerConfig,
    /// Configurations of new queues.
    pub queue_templates: QueueTemplates,
    /// What the queues of each tenant may take.
    pub tenants: TenantConfigs,
    /// The Redis of queues and counters.
    pub redis: RedisConfig,
    /// What the callers of each port may take.
    pub limits: Limits,
    /// How the ports encrypt.
    pub tls: TlsConfig,
    /// Who may call, and what they may do.
    pub auth: AuthConfig,
    /// The tokens of an identity provider.
    pub jwt: JwtConfig,
    /// Which calls are recorded, and where.
    pub audit: AuditConfig,
    /// How this process calls servers.
    pub client: ClientConfig,
    /// Where traces go.
    pub telemetry: TelemetryConfig,
    /// What shards keep for history, and the relay.
    pub outbox: OutboxConfig,
    /// The embedded history store, and retention.
    pub history: HistoryConfig,
    /// The Kafka between relay and indexer.
    pub kafka: KafkaConfig,
    /// The Elasticsearch behind the indexer.
    pub elasticsearch: ElasticsearchConfig,
    /// The indexer.
    pub indexer: IndexerConfig,
    /// The counters' service.
    pub counters: CountersConfig,
    /// Where the events of counters are archived.
    pub archive: ArchiveConfig,
    /// The region of this installation.
    pub regions: RegionsConfig,
    /// The rollup worker.
    pub rollup_worker: RollupWorkerConfig,
    /// The view counter.
    pub views: ViewsConfig,
    /// Adds from a Kafka topic.
    pub ingest: IngestConfig,
    /// The Redis with the counter sets that the rollup worker publishes to.
    pub compact: CompactConfig,
}

impl Config {
    /// Checks the sections that a queue's server uses.
    pub fn check_queue(&self) -> Result<(), ConfigError> {
        self.server.check()?;
        self.check_ports("server", self.server.listen.into(), self.server.metrics_listen)?;
        self.queue_templates.check()?;
        self.tenants.check()?;
        self.redis.check()?;
        self.outbox.check()?;
        self.check_history()?;
        let is_twice = |other: &str| {
            let why = format!("is set together with {other}, but history has only one store");
            Err(ConfigError::new("history.file", why))
        };
        match (&self.history.file, &self.kafka.brokers, &self.elasticsearch.url) {
            (Some(_), Some(_), _) => is_twice("kafka.brokers"),
            (Some(_), _, Some(_)) => is_twice("elasticsearch.url"),
            _ => Ok(()),
        }
    }

    /// Checks the sections that the counters' service uses.
    pub fn check_counters(&self) -> Result<(), ConfigError> {
        self.counters.check()?;
        self.check_ports("counters", self.counters.listen.into(), self.counters.metrics_listen)?;
        self.archive.check()?;
        self.regions.check()?;
        self.client.check()?;
        self.redis.check()
    }

    /// Checks the sections that a rollup worker uses.
    pub fn check_rollup_worker(&self) -> Result<(), ConfigError> {
        self.rollup_worker.check()?;
        self.check_ports("rollup_worker", None, self.rollup_worker.metrics_listen)?;
        self.compact.check()?;
        self.archive.check()?;
        self.region_options()?;
        self.client.check()?;
        self.redis.check()
    }

    /// Checks the sections that the view counter uses.
    pub fn check_views(&self) -> Result<(), ConfigError> {
        self.views.check()?;
        self.check_ports("views", self.views.listen.into(), self.views.metrics_listen)?;
        self.client.check()?;
        let Some(topic) = &self.views.topic else { return self.redis.check() };
        self.kafka.check()?;
        // The longest of the topics that are named after it.
        self.check_topic("views.topic", ViewTopics::of(topic).late)
    }

    /// Checks the sections that an ingest process uses.
    pub fn check_ingest(&self) -> Result<(), ConfigError> {
        self.ingest.check()?;
        self.check_ports("ingest", self.ingest.listen.into(), self.ingest.metrics_listen)?;
        self.client.check()?;
        self.kafka.check()?;
        let [topic, late, dead] = self.ingest.topics().ok_or_else(|| {
            ConfigError::new("ingest.topic", "is not set, but an ingest process reads adds from a topic")
        })?;
        let fields = [("ingest.topic", topic), ("ingest.late_topic", late), ("ingest.dead_letter_topic", dead)];
        for (field, topic) in fields {
            self.check_topic(field, topic)?;
        }
        Ok(())
    }

    /// Checks the sections that an indexer uses.
    pub fn check_indexer(&self) -> Result<(), ConfigError> {
        self.indexer.check()?;
        self.check_ports("indexer", self.indexer.listen.into(), self.indexer.metrics_listen)?;
        self.check_history()
    }

    /// Checks the ports of a section, and what all ports share.
    fn check_ports(
        &self,
        section: &str,
        listen: Option<SocketAddr>,
        metrics_listen: Option<SocketAddr>,
    ) -> Result<(), ConfigError> {
        self.limits.check()?;
        self.tls.check()?;
        self.jwt.check()?;
        for (key, address) in [("listen", listen), ("metrics_listen", metrics_listen)] {
            if let Some(address) = address {
                self.tls.check_address(&format!("{section}.{key}"), address)?;
            }
        }
        Ok(())
    }

    /// Reads the certificates and the principals of this process, and opens its audit log.
    pub fn ports(&self) -> Result<Ports, ConfigError> {
        Ports::open(self.limits, &self.tls, &self.auth, &self.jwt, &self.audit)
    }

    fn check_history(&self) -> Result<(), ConfigError> {
        self.history.check()?;
        self.kafka.check()?;
        self.elasticsearch.check(&self.history.groups)?;
        self.check_topics()
    }

    /// The topics of groups are topics of the same Kafka.
    fn check_topics(&self) -> Result<(), ConfigError> {
        for (number, group) in self.history.groups.iter().enumerate() {
            let Some(topic) = &group.topic else { continue };
            let field = || format!("history.groups[{number}].topic");
            if *topic == self.kafka.topic {
                return Err(ConfigError::new(field(), format!("{topic:?} is kafka.topic")));
            }
            self.check_topic(&field(), topic.clone())?;
        }
        Ok(())
    }

    /// Checks the name of another topic of the same Kafka.
    fn check_topic(&self, field: &str, topic: String) -> Result<(), ConfigError> {
        let kafka = KafkaConfig { topic, ..self.kafka.clone() };
        let checked = kafka.options().map_err(|error| match error.field.as_str() {
            "kafka.topic" => ConfigError::new(field, error.why),
            _ => error,
        });
        checked.map(drop)
    }

    /// How a rollup worker publishes to other regions, and what it merges; `None`: this installation has no region.
    pub fn region_options(&self) -> Result<Option<RegionOptions>, ConfigError> {
        self.regions.check()?;
        let Some(region) = self.regions.region()? else { return Ok(None) };
        self.kafka.check()?;
        self.check_topic("regions.topic", self.regions.topic.clone())?;
        for (number, topic) in self.regions.topics.iter().enumerate() {
            self.check_topic(&format!("regions.topics[{number}]"), topic.clone())?;
        }
        let kafka = KafkaConfig { topic: self.regions.topic.clone(), ..self.kafka.clone() }.options()?;
        let kafka = kafka.ok_or_else(|| ConfigError::new("kafka.brokers", "is not set, but regions.name is"))?;
        Ok(Some(RegionOptions { region, kafka, topics: self.regions.topics.clone() }))
    }

    /// Whether a relay of this server reads the outboxes.
    pub fn has_relay(&self) -> bool {
        self.kafka.brokers.is_some() || self.history.file.is_some()
    }

    /// The bound of each outbox.
    pub fn outbox_bound(&self) -> OutboxBound {
        self.outbox.bound(self.has_relay())
    }

    /// How the queue's store reaches Redis.
    ///
    /// # Errors
    /// A file or folder of `[redis]` cannot be used.
    pub fn redis_options(&self) -> Result<RedisOptions, ConnectError> {
        let undeclared_entries_max = self.limits.undeclared_index_entries_max;
        Ok(RedisOptions { undeclared_entries_max, ..RedisOptions::new(&self.redis, self.outbox_bound())? })
    }
}
