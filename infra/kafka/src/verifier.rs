//! Reads the records before stored positions again, and compares them: a topic that was deleted and created again has
//! others there.

use crate::error::KafkaConfigError;
use crate::logging::LogContext;
use crate::options::KafkaOptions;
use crate::position::{Position, RecordMark};
use crate::renewed::Renewed;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::{Message, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one verification waits for Kafka.
const TIMEOUT: Duration = Duration::from_secs(5);

impl ConsumerContext for LogContext {}

/// What a partition has before a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The record that was read there.
    Same,
    /// Another record, or none because the log is shorter: the topic was deleted and created again.
    Different,
    /// No record: the log has none, or they are older than its retention.
    Empty,
    /// Kafka did not answer in time.
    Unanswered,
}

/// A consumer that is no member of a group.
pub(crate) struct Verifier {
    topic: String,
    consumer: Renewed<BaseConsumer<LogContext>>,
    /// One verification at a time.
    verifying: Mutex<()>,
}

impl Verifier {
    /// Checks the options; connects to Kafka in the background. It has the rights of the group, and does not join it.
    pub(crate) fn new(options: &KafkaOptions, group: &str) -> Result<Verifier, KafkaConfigError> {
        let fixed = [
            ("group.id", group),
            ("enable.auto.commit", "false"),
            ("enable.partition.eof", "true"),
            ("auto.offset.reset", "earliest"),
            // One record is read of each partition.
            ("queued.min.messages", "1"),
            // Else each verification but the first takes 1 s: the event that begins it already fills such a queue, and
            // librdkafka fetches only after this pause. Records that wait meanwhile become late.
            ("fetch.queue.backoff.ms", "1"),
            ("fetch.message.max.bytes", "65536"),
        ];
        let consumer = Renewed::new(options.client_config(&[], &fixed)?, || LogContext)?;
        Ok(Verifier { topic: options.topic.clone(), consumer, verifying: Mutex::new(()) })
    }

    /// The verifier's client, which the check of the group (`coverage`) also uses.
    pub(crate) fn client(&self) -> Arc<BaseConsumer<LogContext>> {
        self.consumer.current()
    }

    /// Blocks until Kafka has answered, for at most five seconds.
    pub(crate) fn verify(&self, positions: &BTreeMap<i32, Position>) -> BTreeMap<i32, Verdict> {
        let mut verdicts: BTreeMap<i32, Verdict> =
            positions.keys().map(|partition| (*partition, Verdict::Unanswered)).collect();
        let _one = self.verifying.lock().unwrap_or_else(PoisonError::into_inner);
        let consumer = self.consumer.current();
        if let Err(error) = self.read(&consumer, positions, &mut verdicts) {
            tracing::debug!(%error, "the positions in the topic are not verified");
        }
        // A consumer without an assignment fetches nothing.
        if let Err(error) = consumer.unassign() {
            tracing::debug!(%error, "the verifier keeps its assignment");
        }
        if verdicts.values().all(|verdict| *verdict == Verdict::Unanswered) {
            self.consumer.renew(&consumer);
        }
        verdicts
    }

    fn read(
        &self,
        consumer: &BaseConsumer<LogContext>,
        positions: &BTreeMap<i32, Position>,
        verdicts: &mut BTreeMap<i32, Verdict>,
    ) -> Result<(), KafkaError> {
        let mut assignment = TopicPartitionList::new();
        for (partition, position) in positions {
            let last = Offset::Offset((position.next_offset - 1).max(0));
            assignment.add_partition_offset(&self.topic, *partition, last)?;
        }
        consumer.assign(&assignment)?;
        let give_up_at = Instant::now() + TIMEOUT;
        let mut unanswered = positions.len();
        while unanswered > 0 {
            let left = give_up_at.saturating_duration_since(Instant::now());
            let (partition, verdict) = match consumer.poll(left) {
                None => return Ok(()),
                Some(Ok(record)) => {
                    let Some(position) = positions.get(&record.partition()) else { continue };
                    (record.partition(), compare(position, record.offset(), RecordMark::of(&record)))
                }
                Some(Err(KafkaError::PartitionEOF(partition))) => (partition, Verdict::Empty),
                Some(Err(error)) => return Err(error),
            };
            // The first record counts.
            if let Some(known @ Verdict::Unanswered) = verdicts.get_mut(&partition) {
                *known = verdict;
                unanswered -= 1;
            }
        }
        Ok(())
    }
}

/// What the first record says that was read from the offset before the position on.
fn compare(position: &Position, offset: i64, mark: RecordMark) -> Verdict {
    match offset.cmp(&(position.next_offset - 1)) {
        // The position is beyond the end of the log, so reading began at the start of the log.
        std::cmp::Ordering::Less => Verdict::Different,
        std::cmp::Ordering::Equal if mark == position.last => Verdict::Same,
        std::cmp::Ordering::Equal => Verdict::Different,
        // The log begins later.
        std::cmp::Ordering::Greater => Verdict::Empty,
    }
}
