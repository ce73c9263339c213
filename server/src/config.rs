//! What one server is told at its start. Everything is checked by [`ServerConfig::check`] before a port opens.

use crate::store::OutboxFull;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use tallystone_model::limits::PAYLOAD_BYTES_MAX;
use tallystone_model::{QueueConfig, QueueName, Refusal};

/// The configuration of one server; flags, environment and file give the same names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where gRPC is served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The Redis that holds the queues.
    pub redis_url: String,
    /// Serve from a Redis that may lose acknowledged writes (Q16).
    pub allow_volatile: bool,
    /// Replicas that must have each write before it is acknowledged (Q16); 0: none.
    pub replicas_min: u32,
    /// How long to wait for them.
    pub replica_wait_ms: u64,
    /// Events that the outbox of one queue shard holds for a history store that does not take them (Q19).
    /// `None`: a million, or 100,000 where no relay is configured and the oldest are given up.
    pub outbox_events_max: Option<u64>,
    /// What happens at that bound.
    pub outbox_full: OutboxFull,
    /// How long a relay's turn lasts: another server takes over when it is not renewed within.
    pub relay_lead_ms: u64,
    /// Bytes of each payload that history keeps; 0: none.
    pub history_payload_bytes: u64,
    /// Kafka's bootstrap servers, to which the relay produces; `None`: no Kafka.
    pub kafka: Option<String>,
    /// The topic of events.
    pub kafka_topic: String,
    /// Partitions of the topic, if it has to be made.
    pub kafka_partitions: u32,
    /// Replicas of each, if it has to be made; 0: the broker's default.
    pub kafka_replicas: u32,
    /// How long the topic keeps events, if it has to be made.
    pub kafka_retention_ms: u64,
    /// Further properties of librdkafka, `key=value`.
    pub kafka_properties: Vec<String>,
    /// Elasticsearch or OpenSearch, of which this server answers questions about history; `None`: not from there.
    pub elasticsearch: Option<String>,
    /// What the names of its indices begin with.
    pub elasticsearch_prefix: String,
    /// Primary shards of a new index.
    pub elasticsearch_shards: u16,
    /// Copies of each, besides the primary.
    pub elasticsearch_replicas: u16,
    /// The embedded history store, fed by this server's relay; `None`: there is none.
    pub history_file: Option<PathBuf>,
    /// How long history is kept.
    pub history_retention_ms: u64,
    /// How large the embedded store's file may grow.
    pub history_bytes_max: u64,
    /// How long a sweeper's turn lasts: another server takes over when it is not renewed within.
    pub sweep_lead_ms: u64,
    /// Configurations of queues made by their first Enqueue, or created with fields absent (Q1): the longest
    /// prefix of the queue's name decides.
    pub queue_templates: Vec<QueueTemplate>,
}

/// The configuration of queues whose names begin with a prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueTemplate {
    /// Empty: every queue.
    pub prefix: String,
    /// What they get.
    pub config: QueueConfig,
}

/// A field of the configuration that cannot be served with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("configuration field {field}: {why}")]
pub struct ConfigError {
    /// As the file names it, such as `queue_templates[1].config.lease_ms`.
    pub field: String,
    /// What is wrong and what would be right.
    pub why: String,
}

impl Default for ServerConfig {
    fn default() -> Self {
        ServerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7600)),
            metrics_listen: None,
            redis_url: "redis://127.0.0.1:6379".to_owned(),
            allow_volatile: false,
            replicas_min: 0,
            replica_wait_ms: 1_000,
            outbox_events_max: None,
            outbox_full: OutboxFull::RefuseEnqueue,
            relay_lead_ms: 5_000,
            history_payload_bytes: 0,
            kafka: None,
            kafka_topic: "tallystone.events".to_owned(),
            kafka_partitions: 12,
            kafka_replicas: 0,
            kafka_retention_ms: 7 * 86_400_000,
            kafka_properties: Vec::new(),
            elasticsearch: None,
            elasticsearch_prefix: "tallystone".to_owned(),
            elasticsearch_shards: 1,
            elasticsearch_replicas: 1,
            history_file: None,
            history_retention_ms: 7 * 86_400_000,
            history_bytes_max: 10 * 1024 * 1024 * 1024,
            sweep_lead_ms: 5_000,
            queue_templates: Vec::new(),
        }
    }
}

impl ServerConfig {
    /// Checks every field; the first bad one is named.
    pub fn check(&self) -> Result<(), ConfigError> {
        let bad = |field: &str, why: String| Err(ConfigError { field: field.to_owned(), why });
        let within = |field: &str, value: u64, min: u64, max: u64| match (min..=max).contains(&value) {
            true => Ok(()),
            false => bad(field, format!("is {value}; from {min} to {max}")),
        };
        if let Some(metrics) = self.metrics_listen
            && metrics == self.listen
            && metrics.port() != 0
        {
            return bad("metrics_listen", format!("is {metrics}, where gRPC is served; choose another port"));
        }
        if let Err(error) = redis::IntoConnectionInfo::into_connection_info(self.redis_url.as_str()) {
            return bad("redis_url", format!("is {:?}: {error}; such as redis://127.0.0.1:6379", self.redis_url));
        }
        within("replicas_min", u64::from(self.replicas_min), 0, 16)?;
        within("replica_wait_ms", self.replica_wait_ms, 1, 60_000)?;
        if let Some(events_max) = self.outbox_events_max {
            within("outbox_events_max", events_max, 1_000, 1_000_000_000)?;
        }
        within("relay_lead_ms", self.relay_lead_ms, 1_000, 600_000)?;
        within("history_payload_bytes", self.history_payload_bytes, 0, PAYLOAD_BYTES_MAX as u64)?;
        within("kafka_partitions", u64::from(self.kafka_partitions), 1, 1_000)?;
        within("kafka_replicas", u64::from(self.kafka_replicas), 0, 16)?;
        within("kafka_retention_ms", self.kafka_retention_ms, 60_000, 3_650 * 86_400_000)?;
        within("elasticsearch_shards", u64::from(self.elasticsearch_shards), 1, 1_024)?;
        within("elasticsearch_replicas", u64::from(self.elasticsearch_replicas), 0, 16)?;
        within("history_retention_ms", self.history_retention_ms, 60_000, 3_650 * 86_400_000)?;
        within("history_bytes_max", self.history_bytes_max, 64 * 1024 * 1024, 1 << 50)?;
        if self.kafka.is_some() && self.history_file.is_some() {
            return bad("history_file", "is set beside kafka: events go to one of them".to_owned());
        }
        if self.elasticsearch.is_some() && self.history_file.is_some() {
            return bad(
                "history_file",
                "is set beside elasticsearch: questions are answered from one of them".to_owned(),
            );
        }
        within("sweep_lead_ms", self.sweep_lead_ms, 1_000, 600_000)?;
        for (i, template) in self.queue_templates.iter().enumerate() {
            let at = |field: &str, refusal: Refusal| match refusal {
                Refusal::Invalid { field: inner, why } if field == "config" => {
                    ConfigError { field: format!("queue_templates[{i}].config.{inner}"), why }
                }
                Refusal::Invalid { why, .. } => ConfigError { field: format!("queue_templates[{i}].{field}"), why },
                other => ConfigError { field: format!("queue_templates[{i}].{field}"), why: other.to_string() },
            };
            if !template.prefix.is_empty() {
                QueueName::parse("prefix", &template.prefix).map_err(|refusal| at("prefix", refusal))?;
            }
            template.config.check().map_err(|refusal| at("config", refusal))?;
            if self.queue_templates[..i].iter().any(|other| other.prefix == template.prefix) {
                return bad(&format!("queue_templates[{i}].prefix"), format!("{:?} is there twice", template.prefix));
            }
        }
        Ok(())
    }

    /// The configuration of a queue that is not described otherwise (Q1).
    pub fn template(&self, name: &QueueName) -> QueueConfig {
        self.queue_templates
            .iter()
            .filter(|template| name.as_str().starts_with(&template.prefix))
            .max_by_key(|template| template.prefix.len())
            .map(|template| template.config.clone())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tallystone_model::QueueType;

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(ServerConfig::default().check(), Ok(()));
        let bad_template = |template: QueueTemplate| ServerConfig {
            queue_templates: vec![QueueTemplate::default(), template],
            ..ServerConfig::default()
        };
        let short_lease =
            QueueTemplate { prefix: "a".to_owned(), config: QueueConfig { lease_ms: 1, ..QueueConfig::default() } };
        let here = ServerConfig::default().listen;
        for (field, config) in [
            ("metrics_listen", ServerConfig { metrics_listen: Some(here), ..ServerConfig::default() }),
            ("redis_url", ServerConfig { redis_url: "http://x".to_owned(), ..ServerConfig::default() }),
            ("replicas_min", ServerConfig { replicas_min: 17, ..ServerConfig::default() }),
            ("replica_wait_ms", ServerConfig { replica_wait_ms: 0, ..ServerConfig::default() }),
            ("outbox_events_max", ServerConfig { outbox_events_max: Some(1), ..ServerConfig::default() }),
            (
                "history_file",
                ServerConfig {
                    kafka: Some("k:1".to_owned()),
                    history_file: Some("h".into()),
                    ..ServerConfig::default()
                },
            ),
            ("sweep_lead_ms", ServerConfig { sweep_lead_ms: 0, ..ServerConfig::default() }),
            ("queue_templates[1].config.lease_ms", bad_template(short_lease)),
            ("queue_templates[1].prefix", bad_template(QueueTemplate::default())),
            (
                "queue_templates[1].prefix",
                bad_template(QueueTemplate { prefix: "a b".to_owned(), ..QueueTemplate::default() }),
            ),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn q1_the_longest_prefix_decides() {
        let template = |prefix: &str, key: &str| QueueTemplate {
            prefix: prefix.to_owned(),
            config: QueueConfig { queue_type: QueueType::Exclusive { key: key.to_owned() }, ..QueueConfig::default() },
        };
        let config = ServerConfig {
            queue_templates: vec![template("jobs/eu/", "b"), template("jobs/", "a")],
            ..ServerConfig::default()
        };
        let key = |name: &str| {
            let name = QueueName::parse("queue", name).unwrap();
            config.template(&name).queue_type.key().map(str::to_owned)
        };
        assert_eq!(key("jobs/eu/1").as_deref(), Some("b"));
        assert_eq!(key("jobs/us/1").as_deref(), Some("a"));
        assert_eq!(key("other"), None);
    }
}
