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
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{mpsc, oneshot};

/// Kafka's consumer. Its end waits for Kafka, which a drop in the middle of a program must not.
pub(super) struct Reader(Option<Arc<StreamConsumer<Watch>>>);

impl Reader {
    /// And the partitions that it has stopped reading, from now on.
    pub(super) fn new(
        options: &IndexerOptions,
        metrics: Metrics,
    ) -> Result<(Reader, mpsc::UnboundedReceiver<Stuck>), KafkaConfigError> {
        let defaults = [
            ("queued.max.messages.kbytes", "16384"),
            // Where what was fetched ahead is as much as may be, look again soon.
            ("fetch.queue.backoff.ms", "10"),
            ("partition.assignment.strategy", "cooperative-sticky"),
            ("auto.commit.interval.ms", "1000"),
        ];
        let fixed = [
            ("group.id", options.group.as_str()),
            ("enable.auto.commit", "true"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            // Metrics, and what is stuck, come of it.
            ("statistics.interval.ms", "5000"),
        ];
        let config = options.kafka.client(&defaults, &fixed)?;
        let (stuck, told) = mpsc::unbounded_channel();
        let topic = options.kafka.topic.clone();
        let consumer = config.create_with_context(Watch { metrics, topic, validating: Mutex::default(), stuck });
        let consumer = consumer.map_err(|error| KafkaConfigError::Refused(error.to_string()))?;
        Ok((Reader(Some(Arc::new(consumer))), told))
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

/// A partition that nothing is read from any more: where it stands is to be confirmed by Kafka, which was lost while it was
/// asked, and the client waits for that answer for ever (librdkafka #4492).
pub(super) struct Stuck {
    pub(super) partition: i32,
    /// What is committed of it, if anything.
    pub(super) committed: Option<i64>,
}

/// The state of such a partition, and how many looks in a row it is given: Kafka may only be away.
const VALIDATING: &str = "validate-epoch-wait";
const LOOKS: u32 = 3;

/// How often in a row partitions were seen waiting so.
#[derive(Default)]
struct Validating(BTreeMap<i32, u32>);

impl Validating {
    /// Whether a partition that is seen in this state has to be read anew.
    fn look(&mut self, partition: i32, state: &str) -> bool {
        if state != VALIDATING {
            self.0.remove(&partition);
            return false;
        }
        let looks = self.0.entry(partition).or_default();
        *looks += 1;
        looks.is_multiple_of(LOOKS)
    }
}

/// What the client tells on the side.
pub(super) struct Watch {
    metrics: Metrics,
    topic: String,
    validating: Mutex<Validating>,
    stuck: mpsc::UnboundedSender<Stuck>,
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
        let mut validating = self.validating.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, partition) in &topic.partitions {
            if validating.look(*number, &partition.fetch_state) {
                let committed = u64::try_from(partition.committed_offset).is_ok().then_some(partition.committed_offset);
                // Nobody reads any more: then it is ending.
                let _ = self.stuck.send(Stuck { partition: *number, committed });
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q19_a_partition_is_read_anew_when_it_was_seen_waiting_three_times_in_a_row() {
        let mut validating = Validating::default();
        let mut look = |partition, state| validating.look(partition, state);
        assert_eq!([look(1, VALIDATING), look(1, VALIDATING), look(1, "active")], [false; 3]);
        assert_eq!([look(1, VALIDATING), look(2, VALIDATING), look(1, VALIDATING)], [false; 3]);
        assert!(look(1, VALIDATING));
        assert!(!look(2, VALIDATING));
        // It may be stuck again.
        assert_eq!([look(1, VALIDATING), look(1, VALIDATING), look(1, VALIDATING)], [false, false, true]);
    }
}
