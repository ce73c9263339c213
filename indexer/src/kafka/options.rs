//! Which Kafka, which topic, and how librdkafka is set up for it.

use rdkafka::ClientConfig;
use std::collections::BTreeMap;

/// Which Kafka, and which topic of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Where to find it: `HOST:PORT`, several with commas between.
    pub brokers: String,
    /// The topic of the events.
    pub topic: String,
    /// Partitions of a topic that is made.
    pub partitions: u32,
    /// Copies of a topic that is made; `None`: as the cluster is configured.
    pub replication_factor: Option<u16>,
    /// How long a topic that is made keeps what it has, Unix ms by the time of the records.
    pub retention_ms: u64,
    /// More properties of librdkafka: TLS, SASL, sizes.
    pub properties: BTreeMap<String, String>,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        KafkaOptions {
            brokers: "127.0.0.1:9092".to_owned(),
            topic: "tallystone.events".to_owned(),
            partitions: 12,
            replication_factor: None,
            retention_ms: 7 * 86_400_000,
            properties: BTreeMap::new(),
        }
    }
}

/// Options that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KafkaConfigError {
    /// Tallystone's promises hang on it.
    #[error("the property {0} of Kafka cannot be changed: exactly once in the index hangs on it")]
    Fixed(String),
    /// librdkafka does not know it, or not this value.
    #[error("Kafka's client cannot be set up: {0}")]
    Refused(String),
    /// The topic's name, or its number of partitions.
    #[error("{field}: {why}")]
    Invalid {
        /// Which option.
        field: &'static str,
        /// What is wrong with it.
        why: String,
    },
}

/// What nobody may change, whichever client uses it.
const FIXED: [&str; 9] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "transactional.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "group.id",
    "bootstrap.servers",
];

impl KafkaOptions {
    /// Checks what can be checked without asking Kafka.
    pub fn check(&self) -> Result<(), KafkaConfigError> {
        let invalid = |field, why: String| Err(KafkaConfigError::Invalid { field, why });
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        // The longest that Kafka takes is 249; what is put behind it for dead letters counts too.
        if !(1..=240).contains(&self.topic.len()) || !self.topic.chars().all(legal) {
            return invalid("topic", format!("{:?}; 1 to 240 of A-Z a-z 0-9 . _ -", self.topic));
        }
        if !(1..=10_000).contains(&self.partitions) {
            return invalid("partitions", format!("is {}; from 1 to 10000", self.partitions));
        }
        if self.brokers.trim().is_empty() {
            return invalid("brokers", "is empty; HOST:PORT, several with commas between".to_owned());
        }
        match self.properties.keys().find(|name| FIXED.contains(&name.as_str())) {
            Some(name) => Err(KafkaConfigError::Fixed(name.clone())),
            None => Ok(()),
        }
    }

    /// Where records go that can never be indexed.
    pub fn dead_letter_topic(&self) -> String {
        format!("{}.dead", self.topic)
    }

    /// What every client has; `defaults` may be changed by the properties, `fixed` not.
    pub(super) fn client(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, KafkaConfigError> {
        self.check()?;
        let mut config = ClientConfig::new();
        config.set("client.id", "tallystone");
        // Back soon where Kafka was away.
        config.set("reconnect.backoff.max.ms", "1000");
        // More partitions are seen soon: without their watermarks no answer says how far it goes.
        config.set("topic.metadata.refresh.interval.ms", "10000");
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        config.set("bootstrap.servers", &self.brokers);
        for (name, value) in fixed {
            config.set(*name, *value);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_what_the_promises_hang_on_cannot_be_changed() {
        let options = |name: &str, value: &str| KafkaOptions {
            properties: [(name.to_owned(), value.to_owned())].into(),
            ..KafkaOptions::default()
        };
        assert_eq!(options("linger.ms", "50").check(), Ok(()));
        assert_eq!(options("acks", "1").check(), Err(KafkaConfigError::Fixed("acks".to_owned())));
        assert!(KafkaOptions { topic: "a b".to_owned(), ..KafkaOptions::default() }.check().is_err());
        assert!(KafkaOptions { partitions: 0, ..KafkaOptions::default() }.check().is_err());
        let changed = options("linger.ms", "50").client(&[("linger.ms", "5")], &[("acks", "all")]).unwrap();
        assert_eq!((changed.get("linger.ms"), changed.get("acks")), (Some("50"), Some("all")));
    }
}
