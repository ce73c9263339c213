//! Where records go that can never be indexed: a topic of their own, each as it was, with the reason beside it.

use super::batch::DeadLetter;
use crate::kafka::options::{KafkaConfigError, KafkaOptions};
use crate::kafka::producer::{Producer, Record};
use crate::kafka::topic::Topic;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use tokio::sync::OnceCell;

/// The dead-letter topic. Made when there is the first.
pub(super) struct DeadLetters {
    topic: Topic,
    producer: Producer,
    is_there: OnceCell<()>,
}

impl DeadLetters {
    pub(super) fn new(options: &KafkaOptions) -> Result<DeadLetters, KafkaConfigError> {
        let (topic, producer) = (Topic::dead_letters(options)?, Producer::new(options)?);
        Ok(DeadLetters { topic, producer, is_there: OnceCell::new() })
    }

    /// Answers when all of them are acknowledged.
    pub(super) async fn send(&self, source_topic: &str, letters: &[DeadLetter]) -> Result<(), KafkaError> {
        if letters.is_empty() {
            return Ok(());
        }
        self.is_there.get_or_try_init(|| self.topic.ensure()).await?;
        match self.fly(source_topic, letters, true).await {
            // One is larger with the reason than Kafka takes: the reason says where the record was.
            Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)) => {}
            sent => return sent,
        }
        for letter in letters {
            let letter = std::slice::from_ref(letter);
            match self.fly(source_topic, letter, true).await {
                Err(KafkaError::MessageProduction(RDKafkaErrorCode::MessageSizeTooLarge)) => {
                    self.fly(source_topic, letter, false).await?;
                }
                sent => sent?,
            }
        }
        Ok(())
    }

    /// Sends them together; without their keys and values if not `whole`.
    async fn fly(&self, source_topic: &str, letters: &[DeadLetter], whole: bool) -> Result<(), KafkaError> {
        let flight = self.producer.flight()?;
        for letter in letters {
            let original = &letter.original;
            let (partition, offset) = (original.partition.to_string(), original.offset.to_string());
            // A store may have much to say.
            let why = format!("{:.1000}", letter.why);
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
                key: original.key.as_deref().filter(|_| whole),
                value: original.value.as_deref().filter(|_| whole),
                headers,
                at_ms: None,
            };
            flight.send(record).await?;
        }
        flight.landed().await
    }
}
