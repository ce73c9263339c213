//! `[kafka]`: which Kafka, and the topic of events.

use crate::{KafkaAccess, KafkaConfigError, KafkaOptions, KafkaSecurity, SaslMechanism};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tallystone_model::{ConfigError, without_password};

/// `[kafka]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KafkaConfig {
    /// Bootstrap brokers: `HOST:PORT`, separated by commas; `None`: no Kafka.
    pub brokers: Option<String>,
    /// The events topic.
    pub topic: String,
    /// Partitions of the topic if it is created.
    pub partitions: u32,
    /// Replicas of the topic if it is created; 0: the cluster's default.
    pub replicas: u32,
    /// Retention of the topic if it is created.
    pub retention_ms: u64,
    /// The protocol; `None`: that of the properties, or plain text.
    pub security: Option<KafkaSecurity>,
    /// How the user is proved.
    pub sasl_mechanism: Option<SaslMechanism>,
    /// The user.
    pub user: Option<String>,
    /// The file with the password of the user.
    pub password_file: Option<PathBuf>,
    /// The CAs of the brokers, PEM; `None`: those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The certificate to show to the brokers, PEM.
    pub cert_file: Option<PathBuf>,
    /// Its private key, PEM.
    pub key_file: Option<PathBuf>,
    /// The file with the password of that key.
    pub key_password_file: Option<PathBuf>,
    /// Further librdkafka properties, each `key=value`.
    pub properties: Vec<String>,
}

impl Default for KafkaConfig {
    fn default() -> Self {
        let KafkaOptions { topic, partitions, retention_ms, .. } = KafkaOptions::default();
        KafkaConfig {
            brokers: None,
            topic,
            partitions,
            replicas: 0,
            retention_ms,
            security: None,
            sasl_mechanism: None,
            user: None,
            password_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            key_password_file: None,
            properties: Vec::new(),
        }
    }
}

impl KafkaConfig {
    /// Checks every field; the error names the first bad one.
    pub fn check(&self) -> Result<(), ConfigError> {
        ConfigError::unless_within("kafka.partitions", u64::from(self.partitions), 1..=1_000)?;
        ConfigError::unless_within("kafka.replicas", u64::from(self.replicas), 0..=16)?;
        ConfigError::unless_within("kafka.retention_ms", self.retention_ms, 60_000..=3_650 * 86_400_000)?;
        self.options().map(drop)
    }

    fn access(&self) -> KafkaAccess {
        let KafkaConfig { security, sasl_mechanism, user, password_file, .. } = self.clone();
        let KafkaConfig { ca_file, cert_file, key_file, key_password_file, .. } = self.clone();
        KafkaAccess { security, sasl_mechanism, user, password_file, ca_file, cert_file, key_file, key_password_file }
    }

    /// The options of clients; `None`: no Kafka is configured.
    pub fn options(&self) -> Result<Option<KafkaOptions>, ConfigError> {
        let Some(brokers) = &self.brokers else { return Ok(None) };
        let brokers = brokers.strip_prefix("kafka://").unwrap_or(brokers);
        if brokers.contains("://") {
            return Err(ConfigError::new(
                "kafka.brokers",
                format!("is {:?}; must be like HOST:PORT,HOST:PORT", without_password(brokers)),
            ));
        }
        // An item is not quoted, because it may have a password.
        let property = |(number, text): (usize, &String)| match text.split_once('=') {
            Some((key, value)) if is_property(key) => Ok((key.to_owned(), value.to_owned())),
            _ => Err(ConfigError::new(format!("kafka.properties[{number}]"), "must be like linger.ms=5")),
        };
        let options = KafkaOptions {
            brokers: brokers.to_owned(),
            topic: self.topic.clone(),
            partitions: self.partitions,
            replication_factor: u16::try_from(self.replicas).ok().filter(|replicas| *replicas > 0),
            retention_ms: self.retention_ms,
            access: self.access(),
            properties: self.properties.iter().enumerate().map(property).collect::<Result<BTreeMap<_, _>, _>>()?,
        };
        options.check().map_err(|error| match error {
            KafkaConfigError::Invalid { field, why } => ConfigError::new(format!("kafka.{field}"), why),
            KafkaConfigError::Fixed(_) | KafkaConfigError::Refused(_) => {
                ConfigError::new("kafka.properties", error.to_string())
            }
        })?;
        Ok(Some(options))
    }
}

/// Whether this may be the name of a property of librdkafka.
fn is_property(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bad_field_is_named() {
        assert_eq!(KafkaConfig::default().check(), Ok(()));
        let kafka = || KafkaConfig { brokers: Some("k:9092".to_owned()), ..KafkaConfig::default() };
        let property = |text: &str| KafkaConfig { properties: vec![text.to_owned()], ..kafka() };
        let brokers = |text: &str| KafkaConfig { brokers: Some(text.to_owned()), ..KafkaConfig::default() };
        for good in ["k:9092", "kafka://k:9092", "a:1, b:65535", "[::1]:9092"] {
            assert_eq!(brokers(good).check(), Ok(()), "{good}");
        }
        for (field, config) in [
            ("kafka.brokers", brokers("")),
            ("kafka.brokers", brokers(",")),
            ("kafka.brokers", brokers("k")),
            ("kafka.brokers", brokers("k:99999")),
            ("kafka.topic", KafkaConfig { topic: "..".to_owned(), ..kafka() }),
            ("kafka.brokers", KafkaConfig { brokers: Some("http://k:9092".to_owned()), ..kafka() }),
            ("kafka.topic", KafkaConfig { topic: "a b".to_owned(), ..kafka() }),
            ("kafka.partitions", KafkaConfig { partitions: 0, ..kafka() }),
            ("kafka.replicas", KafkaConfig { replicas: 17, ..kafka() }),
            ("kafka.retention_ms", KafkaConfig { retention_ms: 1, ..kafka() }),
            ("kafka.properties[0]", property("linger.ms")),
            ("kafka.properties[0]", property("sasl.password: S3cretPW=")),
            ("kafka.properties", property("acks=1")),
            ("kafka.properties", property("sasl.password=S3cretPW")),
            ("kafka.user", KafkaConfig { user: Some("u".to_owned()), ..kafka() }),
        ] {
            assert_eq!(config.check().unwrap_err().field, field);
        }
    }

    #[test]
    fn options_follow_the_section() {
        assert_eq!(KafkaConfig::default().options(), Ok(None));
        let config = KafkaConfig {
            brokers: Some("kafka://k:9092".to_owned()),
            replicas: 3,
            properties: vec!["linger.ms=50".to_owned()],
            ..KafkaConfig::default()
        };
        let options = config.options().unwrap().unwrap();
        assert_eq!((options.brokers.as_str(), options.replication_factor), ("k:9092", Some(3)));
        assert_eq!(options.properties["linger.ms"], "50");
    }
}
