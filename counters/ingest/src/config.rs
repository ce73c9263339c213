//! `[ingest]`

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tallystone_client::CounterClient;
use tallystone_model::ConfigError;
use tallystone_serving::Listen;

/// `[ingest]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IngestConfig {
    /// Where health is served.
    pub listen: SocketAddr,
    /// Where Prometheus reads `/metrics`; `None`: not served.
    pub metrics_listen: Option<SocketAddr>,
    /// The topic with the adds; an ingest process needs one.
    pub topic: Option<String>,
    /// The topic of the records that are written again; `None`: `TOPIC.late`.
    pub late_topic: Option<String>,
    /// The topic of the records that cannot be counted; `None`: `TOPIC.dead`.
    pub dead_letter_topic: Option<String>,
    /// The consumer group.
    pub group: String,
    /// The name of this process in the group, unique in it; `None`: each start is a new member.
    pub instance: Option<String>,
    /// The server of the counters.
    pub counters_url: String,
    /// The namespace of records that name none; `None`: they must name one.
    pub namespace: Option<String>,
    /// The most records that are read, sent and decided together.
    pub batch_records_max: u32,
}

impl Default for IngestConfig {
    fn default() -> Self {
        IngestConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 7630)),
            metrics_listen: None,
            topic: None,
            late_topic: None,
            dead_letter_topic: None,
            group: "tallystone-ingest".to_owned(),
            instance: None,
            counters_url: "http://127.0.0.1:7610".to_owned(),
            namespace: None,
            batch_records_max: 5_000,
        }
    }
}

impl IngestConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        Listen { listen: self.listen, metrics_listen: self.metrics_listen }.check("ingest")?;
        CounterClient::builder(&self.counters_url)
            .check()
            .map_err(|error| ConfigError::new("ingest.counters_url", error.to_string()))?;
        ConfigError::unless_within("ingest.batch_records_max", self.batch_records_max.into(), 1..=100_000)?;
        if self.group.is_empty() {
            return Err(ConfigError::new("ingest.group", "is empty"));
        }
        if self.instance.as_ref().is_some_and(String::is_empty) {
            return Err(ConfigError::new("ingest.instance", "is empty"));
        }
        let Some(topics) = self.topics() else { return Ok(()) };
        let fields = ["ingest.topic", "ingest.late_topic", "ingest.dead_letter_topic"];
        for (number, field) in fields.iter().enumerate() {
            if topics[..number].contains(&topics[number]) {
                return Err(ConfigError::new(
                    *field,
                    format!("{:?} is another topic of ingest already", topics[number]),
                ));
            }
        }
        Ok(())
    }

    /// The topic, and those of late records and of dead letters; `None`: no topic is configured.
    pub fn topics(&self) -> Option<[String; 3]> {
        let topic = self.topic.as_ref()?;
        let or_suffix = |name: &Option<String>, suffix| name.clone().unwrap_or_else(|| format!("{topic}.{suffix}"));
        Some([topic.clone(), or_suffix(&self.late_topic, "late"), or_suffix(&self.dead_letter_topic, "dead")])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n17_each_bad_field_is_named() {
        let config = IngestConfig { topic: Some("adds".to_owned()), ..IngestConfig::default() };
        assert_eq!(config.check(), Ok(()));
        assert_eq!(config.topics().unwrap(), ["adds", "adds.late", "adds.dead"]);
        for (field, config) in [
            ("ingest.counters_url", IngestConfig { counters_url: "ftp://c".to_owned(), ..config.clone() }),
            ("ingest.batch_records_max", IngestConfig { batch_records_max: 0, ..config.clone() }),
            ("ingest.group", IngestConfig { group: String::new(), ..config.clone() }),
            ("ingest.instance", IngestConfig { instance: Some(String::new()), ..config.clone() }),
            ("ingest.late_topic", IngestConfig { late_topic: Some("adds".to_owned()), ..config.clone() }),
            (
                "ingest.dead_letter_topic",
                IngestConfig { dead_letter_topic: Some("adds.late".to_owned()), ..config.clone() },
            ),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }
}
