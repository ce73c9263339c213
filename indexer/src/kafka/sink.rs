//! The relay's sink: writes events, losses and watermarks to the topics of events. All events of a message go to one partition,
//! in order.

use crate::groups::longest_prefix;
use crate::wire::{self, EVENT, Encoder, LOSS, TYPE_HEADER, WATERMARK};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, OwnedHeaders};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tallystone_kafka::{KafkaConfigError, KafkaOptions, Producer, Record, Topic, is_topic_missing};
use tallystone_model::{Loss, QueueName, Recorded, Sink, SinkError};

/// How often a relay writes a watermark to every partition. An indexer makes its writes searchable and stores the newest
/// watermark at most once a second; twice as many watermarks make the newest one at most half a second old then
/// (docs/performance.md, `searchable`).
pub const WATERMARK_EVERY: Duration = Duration::from_millis(500);

/// Writes events to Kafka. It buffers at most 64 MiB, unless the property `queue.buffering.max.kbytes` differs.
pub struct KafkaSink {
    /// Each once.
    topics: Vec<Topic>,
    /// Prefixes of the names of queues, and their topics. The first one has all queues that no other one has.
    routes: Vec<(String, String)>,
    producer: Producer,
    /// Whether the topics existed at the last write.
    topics_exist: AtomicBool,
}

impl KafkaSink {
    /// Checks the options; connects to Kafka when there is something to deliver.
    pub fn new(options: &KafkaOptions) -> Result<KafkaSink, KafkaConfigError> {
        KafkaSink::with_topics(options, &[])
    }

    /// The same with further topics, each for the queues whose names begin with a prefix. The longest prefix applies.
    pub fn with_topics(options: &KafkaOptions, topics: &[(String, String)]) -> Result<KafkaSink, KafkaConfigError> {
        let others = (String::new(), options.topic.clone());
        let routes: Vec<(String, String)> = std::iter::once(&others).chain(topics).cloned().collect();
        let names: BTreeSet<&String> = routes.iter().map(|(_, topic)| topic).collect();
        let topic = |name: &String| Topic::events(&KafkaOptions { topic: name.clone(), ..options.clone() });
        let topics = names.into_iter().map(topic).collect::<Result<_, KafkaConfigError>>()?;
        Ok(KafkaSink { topics, routes, producer: Producer::new(options)?, topics_exist: AtomicBool::new(false) })
    }

    /// The topic of a queue.
    fn topic_of(&self, queue: &QueueName) -> &str {
        &longest_prefix(&self.routes, |(prefix, _)| prefix, queue.as_str()).1
    }

    async fn ensure_topics(&self) -> Result<(), KafkaError> {
        if !self.topics_exist.load(Ordering::Relaxed) {
            for topic in &self.topics {
                topic.ensure().await?;
            }
            self.topics_exist.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn send_events(&self, events: &[Recorded]) -> Result<(), KafkaError> {
        self.ensure_topics().await?;
        let delivery = self.producer.begin()?;
        let mut encoder = Encoder::default();
        for recorded in events {
            let (key, value) = encoder.encode(recorded);
            let record = Record {
                topic: self.topic_of(&recorded.shard.queue),
                partition: None,
                key: Some(key),
                value: Some(value),
                headers: type_header(EVENT),
                at_ms: Some(recorded.event.at_ms),
            };
            delivery.send(record).await?;
        }
        delivery.acknowledged().await
    }

    /// One record for each loss, in any partition: the watermark of an answer is that of all partitions.
    async fn send_losses(&self, losses: &[Loss]) -> Result<(), KafkaError> {
        self.ensure_topics().await?;
        let delivery = self.producer.begin()?;
        for loss in losses {
            let value = wire::encode_loss(loss);
            let record = Record {
                topic: self.topic_of(&loss.shard.queue),
                partition: None,
                key: Some(loss.shard.queue.as_str().as_bytes()),
                value: Some(&value),
                headers: type_header(LOSS),
                at_ms: Some(loss.lost_to_ms),
            };
            delivery.send(record).await?;
        }
        delivery.acknowledged().await
    }

    /// Into every partition of every topic.
    async fn send_watermark(&self, up_to_ms: u64) -> Result<(), KafkaError> {
        self.ensure_topics().await?;
        let value = wire::encode_watermark(up_to_ms);
        let mut partitions = Vec::new();
        for topic in &self.topics {
            partitions.push((topic, topic.partitions().await?));
        }
        let delivery = self.producer.begin()?;
        for (topic, count) in partitions {
            for partition in 0..count {
                let record = Record {
                    topic: topic.name(),
                    partition: Some(partition as i32),
                    key: None,
                    value: Some(&value),
                    headers: type_header(WATERMARK),
                    at_ms: Some(up_to_ms),
                };
                delivery.send(record).await?;
            }
        }
        delivery.acknowledged().await
    }

    /// Turns an error of Kafka into one of the sink. A missing topic is created again at the next delivery.
    async fn sink_error(&self, error: KafkaError) -> SinkError {
        if is_topic_missing(&error) {
            self.topics_exist.store(false, Ordering::Relaxed);
            for topic in &self.topics {
                topic.forget_partitions().await;
            }
        }
        SinkError(format!("Kafka: {error}"))
    }
}

impl Sink for KafkaSink {
    async fn deliver(&self, events: Arc<Vec<Recorded>>) -> Result<(), SinkError> {
        match self.send_events(&events).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.sink_error(error).await),
        }
    }

    async fn lost(&self, losses: Arc<Vec<Loss>>) -> Result<(), SinkError> {
        match self.send_losses(&losses).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.sink_error(error).await),
        }
    }

    async fn delivered_to(&self, up_to_ms: u64) -> Result<(), SinkError> {
        match self.send_watermark(up_to_ms).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.sink_error(error).await),
        }
    }
}

fn type_header(value: &[u8]) -> OwnedHeaders {
    OwnedHeaders::new_with_capacity(1).insert(Header { key: TYPE_HEADER, value: Some(value) })
}
