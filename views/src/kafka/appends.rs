//! What accepts views for Kafka.

use crate::Refusal;
use crate::appends::AppendViews;
use crate::owner::PairsMemory;
use crate::view::View;
use futures::future::BoxFuture;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::OwnedHeaders;
use std::collections::BTreeMap;
use std::sync::Arc;
use tallystone_kafka::{Producer, Record};
use tallystone_model::Applied;

/// A partition of the topic of views.
pub(crate) struct KafkaPartition {
    pub(super) producer: Arc<Producer>,
    pub(super) topic: String,
    pub(super) number: i32,
    /// Of the members in this process.
    pub(super) memory: Arc<PairsMemory>,
}

impl KafkaPartition {
    /// Writes one record for each video, whose key is the video. They are durable when this returns, as far as the topic's
    /// replicas make them. This process chooses the partition, so no property of a client can move a video.
    async fn write(&self, views: &[u8]) -> Result<(), KafkaError> {
        let mut by_video: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut unread = views;
        while let Some((namespace, view)) = View::read(&mut unread) {
            match by_video.get_mut(&*view.video) {
                Some(value) => view.write(namespace, value),
                None => {
                    let mut value = Vec::new();
                    view.write(namespace, &mut value);
                    by_video.insert(view.video.into_owned(), value);
                }
            }
        }
        let records: Vec<_> = by_video.iter().map(|(video, value)| (Some(video.as_bytes()), &value[..])).collect();
        self.send(&records).await
    }

    /// Writes a record without views: only the time of the log advances.
    pub(super) async fn advance(&self) -> Result<(), KafkaError> {
        self.send(&[(None, &[])]).await
    }

    async fn send(&self, records: &[KeyAndValue<'_>]) -> Result<(), KafkaError> {
        send(&self.producer, &self.topic, self.number, records).await
    }
}

/// What a record has, which may be without a key.
pub(super) type KeyAndValue<'a> = (Option<&'a [u8]>, &'a [u8]);

/// Writes records to a partition, and returns when they are acknowledged.
pub(super) async fn send(
    producer: &Producer,
    topic: &str,
    partition: i32,
    records: &[KeyAndValue<'_>],
) -> Result<(), KafkaError> {
    let delivery = producer.begin()?;
    for (key, value) in records {
        let (partition, value, headers) = (Some(partition), Some(*value), OwnedHeaders::new());
        delivery.send(Record { topic, partition, key: *key, value, headers, at_ms: None }).await?;
    }
    delivery.acknowledged().await
}

impl AppendViews for KafkaPartition {
    fn append<'a>(&'a self, views: &'a [u8]) -> BoxFuture<'a, Result<bool, Refusal>> {
        Box::pin(async move {
            if self.memory.is_full() {
                return Ok(false);
            }
            self.write(views).await.map(|()| true).map_err(|error| refusal(&error))
        })
    }
}

/// What an error of a delivery means for its views.
fn refusal(error: &KafkaError) -> Refusal {
    use RDKafkaErrorCode::{MessageSizeTooLarge, PolicyViolation, TopicAuthorizationFailed};
    let why = format!("Kafka has not acknowledged the views: {error}");
    match error {
        KafkaError::MessageProduction(MessageSizeTooLarge | PolicyViolation | TopicAuthorizationFailed) => {
            Refusal::Internal(why)
        }
        // Some of them may be in the log.
        _ => Refusal::Unavailable { applied: Applied::Unknown, why },
    }
}
