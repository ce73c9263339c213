//! Which Kafka cluster and topic to use, and how librdkafka is configured for them.

use crate::access::KafkaAccess;
use crate::error::KafkaConfigError;
use rdkafka::ClientConfig;
use std::collections::BTreeMap;

/// A Kafka cluster and the events topic in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KafkaOptions {
    /// Bootstrap brokers: `HOST:PORT`, separated by commas.
    pub brokers: String,
    /// The events topic.
    pub topic: String,
    /// Partitions of the topic if this program creates it.
    pub partitions: u32,
    /// Replicas of the topic if this program creates it; `None`: the cluster's default.
    pub replication_factor: Option<u16>,
    /// Retention of the topic if this program creates it, in ms by record timestamp.
    pub retention_ms: u64,
    /// Encryption and user.
    pub access: KafkaAccess,
    /// More librdkafka properties, such as buffer sizes.
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
            access: KafkaAccess::default(),
            properties: BTreeMap::new(),
        }
    }
}

/// Properties that no configuration may change, whichever client uses them.
const FIXED: [&str; 10] = [
    "acks",
    "request.required.acks",
    "enable.idempotence",
    "transactional.id",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "auto.offset.reset",
    "group.id",
    "group.instance.id",
    "bootstrap.servers",
];

/// Kafka allows 249 bytes; the rest is room for a suffix such as `.dead`.
const TOPIC_BYTES_MAX: usize = 240;

/// `HOST:PORT`; an IPv6 host is in brackets.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = !host.is_empty() && (!host.contains(':') || (host.starts_with('[') && host.ends_with(']')));
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Properties of each member of a consumer group. After the session's time without a heartbeat the group takes a member for dead and
/// gives its partitions to others. They learn it with their next heartbeat. A shorter time would take a member for dead whose
/// process pauses for a moment. The poll interval also bounds how long a rebalance waits for one member.
pub(crate) const MEMBER: [(&str, &str); 6] = [
    ("queued.max.messages.kbytes", "16384"),
    // Fetch again soon after the prefetch buffer was full.
    ("fetch.queue.backoff.ms", "10"),
    ("session.timeout.ms", "8000"),
    ("heartbeat.interval.ms", "2000"),
    ("max.poll.interval.ms", "60000"),
    // A topic that is missing for a moment, because it is created again, may be noticed by nothing else: the client's default is
    // five minutes.
    ("topic.metadata.refresh.interval.ms", "5000"),
];

impl KafkaOptions {
    /// Checks everything that needs no connection to Kafka.
    pub fn check(&self) -> Result<(), KafkaConfigError> {
        let invalid = |field, why: String| Err(KafkaConfigError::Invalid { field, why });
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = !matches!(self.topic.as_str(), "." | "..") && self.topic.chars().all(legal);
        if !(1..=TOPIC_BYTES_MAX).contains(&self.topic.len()) || !is_name {
            return invalid(
                "topic",
                format!("is {:?}; must be 1 to {TOPIC_BYTES_MAX} characters of A-Z a-z 0-9 . _ -", self.topic),
            );
        }
        if !(1..=10_000).contains(&self.partitions) {
            return invalid("partitions", format!("is {}; must be from 1 to 10000", self.partitions));
        }
        if self.brokers.contains('@') {
            return invalid(
                "brokers",
                "has an @; the user is kafka.user, the password is in kafka.password_file".to_owned(),
            );
        }
        if let Some(bad) = self.brokers.split(',').find(|broker| !is_address(broker.trim())) {
            return invalid("brokers", format!("has {bad:?}; must be like HOST:PORT,HOST:PORT"));
        }
        match self.properties.keys().find(|name| FIXED.contains(&name.as_str())) {
            Some(name) => Err(KafkaConfigError::Fixed(name.clone())),
            None => self.access.check(self.properties.keys()),
        }
    }

    /// The configuration of one client. The user's properties override `defaults`; `fixed` overrides both.
    pub(crate) fn client_config(
        &self,
        defaults: &[(&str, &str)],
        fixed: &[(&str, &str)],
    ) -> Result<ClientConfig, KafkaConfigError> {
        self.check()?;
        let mut config = ClientConfig::new();
        config.set("client.id", "tallystone");
        // Reconnect soon after an outage.
        config.set("reconnect.backoff.max.ms", "1000");
        // Find added partitions soon: the history watermark does not advance until each partition has one.
        config.set("topic.metadata.refresh.interval.ms", "10000");
        for (name, value) in defaults {
            config.set(*name, *value);
        }
        for (name, value) in &self.properties {
            config.set(name, value);
        }
        self.access.apply(&mut config)?;
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
    fn q19_properties_behind_exactly_once_cannot_be_changed() {
        let options = |name: &str, value: &str| KafkaOptions {
            properties: [(name.to_owned(), value.to_owned())].into(),
            ..KafkaOptions::default()
        };
        assert_eq!(options("linger.ms", "50").check(), Ok(()));
        assert_eq!(options("acks", "1").check(), Err(KafkaConfigError::Fixed("acks".to_owned())));
        assert!(KafkaOptions { topic: "a b".to_owned(), ..KafkaOptions::default() }.check().is_err());
        assert!(KafkaOptions { partitions: 0, ..KafkaOptions::default() }.check().is_err());
        let changed = options("linger.ms", "50").client_config(&[("linger.ms", "5")], &[("acks", "all")]).unwrap();
        assert_eq!((changed.get("linger.ms"), changed.get("acks")), (Some("50"), Some("all")));
    }
}
