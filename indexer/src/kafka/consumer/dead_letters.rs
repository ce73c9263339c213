//! The dead-letter topic: records that can never be indexed, unchanged, with the reason in a header.

use super::batch::DeadLetter;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use tallystone_kafka::{KafkaConfigError, KafkaOptions, Producer, Record, Topic, TopicSpec, is_topic_missing};

/// Longer reasons are cut; a store's error may quote a whole document.
const REASON_CHARS_MAX: usize = 1_000;

/// The name of the dead-letter topic of these options.
pub fn dead_letter_topic(options: &KafkaOptions) -> String {
    format!("{}.dead", options.topic)
}

/// Writes dead letters. Creates the topic at the first one, and again if it was deleted.
pub(super) struct DeadLetters {
    topic: Topic,
    producer: Producer,
    /// Whether the topic existed at the last write.
    topic_exists: AtomicBool,
}

impl DeadLetters {
    pub(super) fn new(options: &KafkaOptions) -> Result<DeadLetters, KafkaConfigError> {
        let spec = TopicSpec {
            name: dead_letter_topic(options),
            partitions: 1,
            retention_ms: None,
            // Room for the largest event and the headers.
            message_bytes_max: Some(2 * 1024 * 1024),
            has_append_time: false,
            is_compacted: false,
        };
        let (topic, producer) = (Topic::new(options, spec)?, Producer::new(options)?);
        Ok(DeadLetters { topic, producer, topic_exists: AtomicBool::new(false) })
    }

    /// Returns once Kafka has acknowledged all letters.
    pub(super) async fn send(&self, source_topic: &str, letters: &[DeadLetter]) -> Result<(), KafkaError> {
        if letters.is_empty() {
            return Ok(());
        }
        if !self.topic_exists.load(Relaxed) {
            self.topic.ensure().await?;
        }
        let sent = self.send_all(source_topic, letters).await;
        self.topic_exists.store(!sent.as_ref().is_err_and(is_topic_missing), Relaxed);
        sent
    }

    async fn send_all(&self, source_topic: &str, letters: &[DeadLetter]) -> Result<(), KafkaError> {
        match self.deliver(source_topic, letters, Content::Whole).await {
            // At least one is larger than Kafka accepts. Below, each is sent alone, and those without their content:
            // their headers name the source record.
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)) => {}
            sent => return sent,
        }
        for letter in letters {
            let letter = std::slice::from_ref(letter);
            match self.deliver(source_topic, letter, Content::Whole).await {
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)) => {
                    self.deliver(source_topic, letter, Content::HeadersOnly).await?;
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    async fn deliver(&self, source_topic: &str, letters: &[DeadLetter], content: Content) -> Result<(), KafkaError> {
        let is_whole = content == Content::Whole;
        let delivery = self.producer.begin()?;
        for letter in letters {
            let source = &letter.source;
            let (partition, offset) = (source.partition.to_string(), source.offset.to_string());
            let why = format!("{:.*}", REASON_CHARS_MAX, letter.why);
            let mut headers = OwnedHeaders::new_with_capacity(4);
            for (key, value) in [
                ("tallystone-reason", why.as_str()),
                ("tallystone-source-topic", source_topic),
                ("tallystone-source-partition", &partition),
                ("tallystone-source-offset", &offset),
            ] {
                headers = headers.insert(Header { key, value: Some(value) });
            }
            let record = Record {
                topic: self.topic.name(),
                partition: None,
                key: source.key.as_deref().filter(|_| is_whole),
                value: source.value.as_deref().filter(|_| is_whole),
                headers,
                at_ms: None,
            };
            delivery.send(record).await?;
        }
        delivery.acknowledged().await
    }
}

/// What a dead letter carries of its source record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Content {
    /// Key and value.
    Whole,
    /// Neither: the record is too large with the headers.
    HeadersOnly,
}
