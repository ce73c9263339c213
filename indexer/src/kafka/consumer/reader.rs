//! Kafka's consumer: how it is set up, how it ends, and what it tells on the side.

use super::metrics::Metrics;
use super::{GRACE, IndexerOptions};
use crate::kafka::client::{complain, log};
use crate::kafka::options::KafkaConfigError;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext, Rebalance, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::statistics::Statistics;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Kafka's consumer. Its end waits for Kafka, which a drop in the middle of a program must not.
pub(super) struct Reader(Option<Arc<StreamConsumer<Watch>>>);

impl Reader {
    pub(super) fn new(options: &IndexerOptions, metrics: Metrics) -> Result<Reader, KafkaConfigError> {
        let defaults = [
            ("queued.max.messages.kbytes", "16384"),
            // Where what was fetched ahead is as much as may be, look again soon.
            ("fetch.queue.backoff.ms", "10"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("auto.commit.interval.ms", "1000"),
            ("statistics.interval.ms", "5000"),
        ];
        let fixed = [
            ("group.id", options.group.as_str()),
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
        ];
        let config = options.kafka.client(&defaults, &fixed)?;
        let consumer = config.create_with_context(Watch { metrics, topic: options.kafka.topic.clone() });
        Ok(Reader(Some(Arc::new(consumer.map_err(|error| KafkaConfigError::Refused(error.to_string()))?))))
    }

    pub(super) fn get(&self) -> &StreamConsumer<Watch> {
        self.0.as_ref().expect("it is there until it is closed")
    }

    /// Commits and leaves the group, if Kafka answers.
    pub(super) async fn close(mut self) {
        let Some(consumer) = self.0.take() else { return };
        let (closed, is_closed) = oneshot::channel();
        // A thread of its own: the end of the program does not wait for it, nor for a Kafka that does not answer.
        std::thread::spawn(move || {
            match consumer.commit_consumer_state(CommitMode::Sync) {
                Ok(()) | Err(KafkaError::ConsumerCommit(RDKafkaErrorCode::NoOffset)) => {}
                Err(error) => {
                    tracing::warn!(%error, "the last offsets are not committed: some events will be read again")
                }
            }
            drop(consumer);
            let _ = closed.send(());
        });
        if tokio::time::timeout(GRACE, is_closed).await.is_err() {
            tracing::warn!("Kafka does not answer; left the group without a word");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(consumer) = self.0.take() {
            std::thread::spawn(move || drop(consumer));
        }
    }
}

/// What the client tells on the side.
pub(super) struct Watch {
    metrics: Metrics,
    topic: String,
}

impl ClientContext for Watch {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        complain(&error, reason);
    }

    fn stats(&self, statistics: Statistics) {
        let Some(topic) = statistics.topics.get(&self.topic) else { return };
        let lags: BTreeMap<i32, i64> = topic
            .partitions
            .iter()
            .filter(|(number, partition)| **number >= 0 && partition.consumer_lag_stored >= 0)
            .map(|(number, partition)| (*number, partition.consumer_lag_stored))
            .collect();
        self.metrics.lag(&lags);
    }
}

impl ConsumerContext for Watch {
    fn post_rebalance(&self, _: &BaseConsumer<Self>, rebalance: &Rebalance<'_>) {
        match rebalance {
            Rebalance::Assign(partitions) => tracing::info!(count = partitions.count(), "partitions given"),
            Rebalance::Revoke(partitions) => {
                tracing::info!(count = partitions.count(), "partitions taken away");
                self.metrics.forget(partitions.elements().iter().map(|partition| partition.partition()));
            }
            Rebalance::Error(error) => tracing::warn!(%error, "the group"),
        }
    }
}
