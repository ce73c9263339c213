//! The relay's sink: events to the topic, one message's in one partition, in order.

use super::options::{KafkaConfigError, KafkaOptions};
use super::producer::{Producer, Record};
use super::topic::Topic;
use super::{EVENT, TYPE, WATERMARK};
use crate::wire::{self, Encoder};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tallystone_model::{Recorded, Sink, SinkError};

/// Events go to Kafka. It holds at most 64 MiB of them, unless `queue.buffering.max.kbytes` says otherwise.
pub struct KafkaSink {
    topic: Topic,
    producer: Producer,
    /// The topic has been there.
    is_there: AtomicBool,
}

impl KafkaSink {
    /// Checks the options; Kafka is asked when there is something to deliver.
    pub fn new(options: &KafkaOptions) -> Result<KafkaSink, KafkaConfigError> {
        let (topic, producer) = (Topic::events(options)?, Producer::new(options)?);
        Ok(KafkaSink { topic, producer, is_there: AtomicBool::new(false) })
    }

    async fn ensure_topic(&self) -> Result<(), KafkaError> {
        if !self.is_there.load(Ordering::Relaxed) {
            self.topic.ensure().await?;
            self.is_there.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn send_events(&self, events: &[Recorded]) -> Result<(), KafkaError> {
        self.ensure_topic().await?;
        let flight = self.producer.flight()?;
        let mut encoder = Encoder::default();
        for recorded in events {
            let (key, value) = encoder.encode(recorded);
            let record = Record {
                topic: self.topic.name(),
                partition: None,
                key: Some(key),
                value: Some(value),
                headers: of_type(EVENT),
                at_ms: Some(recorded.event.at_ms),
            };
            flight.send(record).await?;
        }
        flight.landed().await
    }

    async fn send_watermark(&self, up_to_ms: u64) -> Result<(), KafkaError> {
        self.ensure_topic().await?;
        let value = wire::encode_watermark(up_to_ms);
        let partitions = self.topic.partitions().await?;
        let flight = self.producer.flight()?;
        for partition in 0..partitions {
            let record = Record {
                topic: self.topic.name(),
                partition: Some(partition as i32),
                key: None,
                value: Some(&value),
                headers: of_type(WATERMARK),
                at_ms: Some(up_to_ms),
            };
            flight.send(record).await?;
        }
        flight.landed().await
    }

    async fn failed(&self, error: KafkaError) -> SinkError {
        use RDKafkaErrorCode::{UnknownPartition, UnknownTopic, UnknownTopicOrPartition};
        if matches!(error.rdkafka_error_code(), Some(UnknownPartition | UnknownTopic | UnknownTopicOrPartition)) {
            // Somebody has deleted it.
            self.is_there.store(false, Ordering::Relaxed);
            self.topic.forget().await;
        }
        SinkError(format!("Kafka: {error}"))
    }
}

impl Sink for KafkaSink {
    async fn deliver(&self, events: Arc<Vec<Recorded>>) -> Result<(), SinkError> {
        match self.send_events(&events).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error).await),
        }
    }

    async fn delivered_to(&self, up_to_ms: u64) -> Result<(), SinkError> {
        match self.send_watermark(up_to_ms).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.failed(error).await),
        }
    }
}

fn of_type(value: &[u8]) -> OwnedHeaders {
    OwnedHeaders::new_with_capacity(1).insert(Header { key: TYPE, value: Some(value) })
}
