//! The sections of the configuration that belong to history: `[history]`, `[elasticsearch]`, `[indexer]`.

use crate::elastic::{ElasticAccess, ElasticGroup, ElasticOptions, Rollover, check_prefix, index_days, parse_url};
use crate::embedded::EmbeddedOptions;
use crate::groups::{HistoryGroup, check, check_index_prefixes};
use crate::kafka::IndexerOptions;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use tallystone_kafka::KafkaOptions;
use tallystone_model::ConfigError;
use tallystone_serving::Listen;

/// `[history]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HistoryConfig {
    /// The file of the embedded history store, written by this server's relay; `None`: no embedded store.
    pub file: Option<PathBuf>,
    /// How long history is kept, in either store, ms.
    pub retention_ms: u64,
    /// The largest size of the file in bytes.
    pub bytes_max: u64,
    /// Queues with separate history.
    pub groups: Vec<HistoryGroup>,
}

impl Default for HistoryConfig {
    fn default() -> Self {
        HistoryConfig {
            file: None,
            retention_ms: 7 * 86_400_000,
            bytes_max: 10 * 1024 * 1024 * 1024,
            groups: Vec::new(),
        }
    }
}

impl HistoryConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::unless_within("history.retention_ms", self.retention_ms, 60_000..=3_650 * 86_400_000)?;
        ConfigError::unless_within("history.bytes_max", self.bytes_max, 64 * 1024 * 1024..=1 << 50)?;
        check(&self.groups)
    }

    /// The options of the embedded store; `None`: none is configured.
    pub fn options(&self) -> Option<EmbeddedOptions> {
        let path = self.file.clone()?;
        // Also of groups without their own: a shorter prefix would apply to their queues.
        let retention = |group: &HistoryGroup| (group.prefix.clone(), group.retention_ms.unwrap_or(self.retention_ms));
        let retentions = self.groups.iter().map(retention).collect();
        Some(EmbeddedOptions { path, retention_ms: self.retention_ms, retentions, max_bytes: self.bytes_max })
    }

    /// The prefixes of queues, and the topics of their events. `others`: the topic of a group without its own, so that the topic of a
    /// shorter prefix does not apply to its queues.
    pub fn topics(&self, others: &str) -> Vec<(String, String)> {
        let topic = |group: &HistoryGroup| group.topic.clone().unwrap_or_else(|| others.to_owned());
        self.groups.iter().map(|group| (group.prefix.clone(), topic(group))).collect()
    }
}

/// `[elasticsearch]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElasticsearchConfig {
    /// Elasticsearch or OpenSearch. A server reads history from it, an indexer also writes it. `None`: neither.
    pub url: Option<String>,
    /// The file with an encoded API key.
    pub api_key_file: Option<PathBuf>,
    /// The user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The CAs that the server may have in addition to the public ones, PEM.
    pub ca_file: Option<PathBuf>,
    /// The prefix of every index name.
    pub index_prefix: String,
    /// Primary shards of a new index.
    pub shards: u16,
    /// Replicas of each primary shard.
    pub replicas: u16,
    /// The most days in one index of messages or transitions. `None`: a seventh of the retention, at least one.
    pub index_days: Option<u16>,
    /// The most documents of each primary shard of such an index. It may exceed them by those of an hour.
    pub shard_documents_max: u64,
    /// The most bytes of each primary shard of such an index. It may exceed them by those of an hour.
    pub shard_bytes_max: u64,
}

impl Default for ElasticsearchConfig {
    fn default() -> Self {
        let Rollover { documents_max, bytes_max, .. } = Rollover::default();
        ElasticsearchConfig {
            url: None,
            api_key_file: None,
            user: None,
            password_file: None,
            ca_file: None,
            index_prefix: "tallystone".to_owned(),
            shards: 1,
            replicas: 1,
            index_days: None,
            shard_documents_max: documents_max,
            shard_bytes_max: bytes_max,
        }
    }
}

impl ElasticsearchConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self, groups: &[HistoryGroup]) -> Result<(), ConfigError> {
        if let Some(url) = &self.url {
            parse_url(url).map_err(|why| ConfigError::new("elasticsearch.url", why))?;
            self.access().check(url)?;
        }
        check_prefix(&self.index_prefix).map_err(|why| ConfigError::new("elasticsearch.index_prefix", why))?;
        check_index_prefixes(groups, &self.index_prefix)?;
        ConfigError::unless_within("elasticsearch.shards", u64::from(self.shards), 1..=1_024)?;
        ConfigError::unless_within("elasticsearch.replicas", u64::from(self.replicas), 0..=16)?;
        ConfigError::unless_within("elasticsearch.index_days", self.index_days.map_or(1, u64::from), 1..=31)?;
        // A shard holds at most 2^31 documents, deleted ones included; the rest is room for those of an hour.
        let documents = 1..=1_000_000_000;
        ConfigError::unless_within("elasticsearch.shard_documents_max", self.shard_documents_max, documents)?;
        ConfigError::unless_within("elasticsearch.shard_bytes_max", self.shard_bytes_max, 1 << 20..=1 << 40)
    }

    fn access(&self) -> ElasticAccess {
        let ElasticsearchConfig { api_key_file, user, password_file, ca_file, .. } = self.clone();
        ElasticAccess { api_key_file, user, password_file, ca_file }
    }

    /// The options of the store; `None`: none is configured.
    pub fn options(&self, history: &HistoryConfig) -> Option<ElasticOptions> {
        let retention_ms = history.retention_ms;
        let days = |retention_ms| self.index_days.unwrap_or_else(|| index_days(retention_ms));
        let group = |group: &HistoryGroup| {
            let retention_ms = group.retention_ms.unwrap_or(retention_ms);
            ElasticGroup {
                queue_prefix: group.prefix.clone(),
                prefix: group.index_prefix(&self.index_prefix),
                retention_ms,
                index_days: days(retention_ms),
                has_topic: group.topic.is_some(),
            }
        };
        Some(ElasticOptions {
            access: self.access(),
            groups: history.groups.iter().map(group).collect(),
            prefix: self.index_prefix.clone(),
            shards: self.shards,
            replicas: self.replicas,
            rollover: Rollover {
                days: days(retention_ms),
                documents_max: self.shard_documents_max,
                bytes_max: self.shard_bytes_max,
            },
            retention_ms,
            ..ElasticOptions::new(self.url.as_ref()?)
        })
    }
}

/// `[indexer]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IndexerConfig {
    /// Where the service `History` is served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: nowhere.
    pub metrics_listen: Option<SocketAddr>,
    /// The consumer group, the same for all indexers of one Elasticsearch.
    pub group: String,
    /// The name by which the group knows this indexer across restarts; `None`: each start is a new member.
    pub instance: Option<String>,
    /// Events that are written to Elasticsearch at a time.
    pub batch_events: usize,
    /// The same in bytes as stored in Kafka; it bounds the indexer's memory.
    pub batch_bytes: usize,
}

impl Default for IndexerConfig {
    fn default() -> Self {
        let IndexerOptions { group, batch_events_max, batch_bytes_max, .. } = IndexerOptions::default();
        IndexerConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7601)),
            metrics_listen: None,
            group,
            instance: None,
            batch_events: batch_events_max,
            batch_bytes: batch_bytes_max,
        }
    }
}

/// Kafka's bound of a `group.instance.id`.
const INSTANCE_BYTES_MAX: usize = 249;

/// Whether Kafka accepts the character in a `group.instance.id`.
fn is_legal(c: char) -> bool {
    c.is_ascii_alphanumeric() || "._-".contains(c)
}

fn is_instance(name: &str) -> bool {
    (1..=INSTANCE_BYTES_MAX).contains(&name.len()) && name.chars().all(is_legal) && !matches!(name, "." | "..")
}

impl IndexerConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("indexer")?;
        if self.group.is_empty() {
            return Err(ConfigError::new("indexer.group", "is empty"));
        }
        if let Some(instance) = &self.instance
            && !is_instance(instance)
        {
            let why = format!("is {instance:?}; must be 1 to {INSTANCE_BYTES_MAX} characters of A-Z a-z 0-9 . _ -");
            return Err(ConfigError::new("indexer.instance", why));
        }
        ConfigError::unless_within("indexer.batch_events", self.batch_events as u64, 1..=100_000)?;
        ConfigError::unless_within("indexer.batch_bytes", self.batch_bytes as u64, 64 * 1024..=1 << 30)
    }

    /// The options of the consumer of this Kafka.
    pub fn options(&self, kafka: KafkaOptions) -> IndexerOptions {
        IndexerOptions {
            group: self.group.clone(),
            instance: self.instance.clone(),
            batch_events_max: self.batch_events,
            batch_bytes_max: self.batch_bytes,
            ..IndexerOptions { kafka, ..IndexerOptions::default() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        let (history, elasticsearch, indexer) =
            (HistoryConfig::default(), ElasticsearchConfig::default(), IndexerConfig::default());
        assert_eq!((history.check(), elasticsearch.check(&[]), indexer.check()), (Ok(()), Ok(()), Ok(())));
        for (field, checked) in [
            ("history.retention_ms", HistoryConfig { retention_ms: 1, ..history.clone() }.check()),
            ("history.bytes_max", HistoryConfig { bytes_max: 1, ..history }.check()),
            (
                "elasticsearch.url",
                ElasticsearchConfig { url: Some("es:9200".to_owned()), ..elasticsearch.clone() }.check(&[]),
            ),
            (
                "elasticsearch.index_prefix",
                ElasticsearchConfig { index_prefix: "A".to_owned(), ..elasticsearch.clone() }.check(&[]),
            ),
            ("elasticsearch.shards", ElasticsearchConfig { shards: 0, ..elasticsearch.clone() }.check(&[])),
            ("elasticsearch.replicas", ElasticsearchConfig { replicas: 17, ..elasticsearch.clone() }.check(&[])),
            (
                "elasticsearch.index_days",
                ElasticsearchConfig { index_days: Some(0), ..elasticsearch.clone() }.check(&[]),
            ),
            (
                "elasticsearch.shard_documents_max",
                ElasticsearchConfig { shard_documents_max: 1 << 31, ..elasticsearch.clone() }.check(&[]),
            ),
            ("elasticsearch.shard_bytes_max", ElasticsearchConfig { shard_bytes_max: 1, ..elasticsearch }.check(&[])),
            ("indexer.group", IndexerConfig { group: String::new(), ..indexer.clone() }.check()),
            ("indexer.instance", IndexerConfig { instance: Some("a b".to_owned()), ..indexer.clone() }.check()),
            ("indexer.batch_events", IndexerConfig { batch_events: 0, ..indexer.clone() }.check()),
            ("indexer.batch_bytes", IndexerConfig { batch_bytes: 1, ..indexer.clone() }.check()),
            ("indexer.metrics_listen", IndexerConfig { metrics_listen: Some(indexer.listen), ..indexer }.check()),
        ] {
            assert_eq!(checked.unwrap_err().field, field);
        }
    }
}
