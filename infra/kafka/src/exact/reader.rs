//! A member of a consumer group that reads several topics, and begins where the ledgers say.

use super::ExactOptions;
use super::context::{Assignment, ExactContext, ExactObserver, note};
use super::ledger::{Ledger, TopicPartition};
use super::start::{Positions, verdicts};
use crate::coverage::Coverage;
use crate::error::KafkaConfigError;
use crate::logging::LogContext;
use crate::options::{KafkaOptions, MEMBER};
use crate::position::Position;
use crate::stuck::ValidationWaits;
use crate::verifier::Verifier;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::KafkaError;
use rdkafka::message::BorrowedMessage;
use rdkafka::{Message, Offset, TopicPartitionList};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// For how long a partition may have no member: two checks.
const UNCOVERED_MAX: Duration = Duration::from_secs(4);
/// How long [`ExactReader::close`] waits for Kafka.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why outputs must not be written.
#[derive(Debug, thiserror::Error)]
pub enum NotVerified {
    /// A topic was deleted and created again while it was read.
    #[error("a topic was created again")]
    CreatedAgain,
    /// Kafka does not answer.
    #[error("the log is not verified: {0}")]
    Unanswered(#[from] KafkaError),
}

/// The member. One thread uses it: it must poll at least once a minute.
pub struct ExactReader<O: ExactObserver> {
    consumer: BaseConsumer<ExactContext<O>>,
}

impl<O: ExactObserver> ExactReader<O> {
    /// Checks the options and joins the group in the background. The topics must exist.
    ///
    /// # Errors
    /// An option cannot be used.
    pub fn join(options: &ExactOptions, observer: O) -> Result<ExactReader<O>, KafkaConfigError> {
        let mut fixed = vec![
            ("group.id", options.group.as_str()),
            ("enable.auto.commit", "false"),
            ("enable.auto.offset.store", "false"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", "read_committed"),
            // One member gets the partitions of the same number of all topics.
            ("partition.assignment.strategy", "range"),
            ("statistics.interval.ms", "5000"),
        ];
        fixed.extend(options.instance.as_deref().map(|instance| ("group.instance.id", instance)));
        let config = options.client_config(&MEMBER, &fixed)?;
        let decided_group = options.decided_group();
        let fixed = [
            ("group.id", decided_group.as_str()),
            ("enable.auto.commit", "false"),
            ("isolation.level", "read_committed"),
        ];
        let decided: BaseConsumer<LogContext> = options.client_config(&[], &fixed)?.create_with_context(LogContext)?;
        let verifier = |topic: &String| {
            Verifier::new(&KafkaOptions { topic: topic.clone(), ..options.kafka.clone() }, &options.group)
        };
        let verifiers = options.topics.iter().map(verifier).collect::<Result<_, _>>()?;
        let positions = Positions { topics: options.topics.clone(), decided, verifiers };
        let waits = Mutex::new(options.topics.iter().map(|_| ValidationWaits::default()).collect());
        let coverage = Coverage::new(&options.group, &options.topics, &config, UNCOVERED_MAX);
        let context = ExactContext { observer, positions, coverage, assignment: Mutex::default(), waits };
        let consumer: BaseConsumer<ExactContext<O>> = config.create_with_context(context)?;
        let topics: Vec<&str> = options.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics)?;
        Ok(ExactReader { consumer })
    }

    /// The next record; waits at most for this long, except during a rebalance, which happens within this call.
    pub fn poll(&self, wait: Duration) -> Option<Result<BorrowedMessage<'_>, KafkaError>> {
        self.consumer.poll(wait)
    }

    /// The partition of a record of this reader.
    pub fn topic_partition(&self, record: &impl Message) -> Option<TopicPartition> {
        let topic = self.topics().iter().position(|topic| topic == record.topic())?;
        Some(TopicPartition { topic, partition: record.partition() })
    }

    /// The number of the assignment. It rises when partitions are given or taken: whatever was read before is void.
    pub fn assignment_number(&self) -> u64 {
        self.assignment().number
    }

    /// The assigned partitions, and what was durable of each when it was assigned.
    pub fn ledgers(&self) -> BTreeMap<TopicPartition, Option<Ledger>> {
        self.assignment().ledgers.clone()
    }

    /// Why this reader cannot continue. Another one can.
    pub fn failed(&self) -> Option<String> {
        let failed = self.assignment().failed.clone();
        failed.or_else(|| self.consumer.client().fatal_error().map(|(_, why)| why))
    }

    fn assignment(&self) -> std::sync::MutexGuard<'_, Assignment> {
        self.consumer.context().assignment()
    }

    fn topics(&self) -> &[String] {
        &self.consumer.context().positions.topics
    }

    /// Verifies that the logs of these partitions still have these records, so that what was read before this call is of the
    /// same topics. Blocks for some seconds at most.
    ///
    /// # Errors
    /// A topic was created again, or Kafka has not answered.
    pub fn verify(&self, marks: &BTreeMap<TopicPartition, Position>) -> Result<(), NotVerified> {
        let verdicts = verdicts(&self.consumer.context().positions, marks)?;
        if verdicts.values().all(|is_same| *is_same) { Ok(()) } else { Err(NotVerified::CreatedAgain) }
    }

    /// Stops or continues reading the assigned partitions that are chosen.
    ///
    /// # Errors
    /// The client has failed.
    pub fn pause(&self, is_paused: bool, is_chosen: impl Fn(TopicPartition) -> bool) -> Result<(), KafkaError> {
        let mut chosen = TopicPartitionList::new();
        for place in self.assignment().ledgers.keys().filter(|place| is_chosen(**place)) {
            chosen.add_partition(&self.topics()[place.topic], place.partition);
        }
        if chosen.count() == 0 {
            return Ok(());
        }
        if is_paused { self.consumer.pause(&chosen) } else { self.consumer.resume(&chosen) }
    }

    /// The offsets of ledgers, with their text.
    pub(super) fn offsets(&self, ledgers: &BTreeMap<TopicPartition, Ledger>) -> Result<TopicPartitionList, KafkaError> {
        let mut offsets = TopicPartitionList::new();
        for (place, ledger) in ledgers {
            let mut decided = offsets.add_partition(&self.topics()[place.topic], place.partition);
            decided.set_offset(Offset::Offset(ledger.next_offset))?;
            decided.set_metadata(ledger.metadata());
        }
        Ok(offsets)
    }

    /// The member of the group as which this reader has its partitions, and that of the decided group, which has no members.
    pub(super) fn members(&self) -> Option<(Arc<ConsumerGroupMetadata>, ConsumerGroupMetadata)> {
        let decided = self.consumer.context().positions.decided.group_metadata()?;
        Some((self.assignment().member.clone()?, decided))
    }

    /// A transaction has come to this point.
    pub(super) fn reached(&self, step: &'static str) {
        self.consumer.context().observer.reached(step);
    }

    /// What is decided, for the statistics.
    pub(super) fn note(&self, decided: &TopicPartitionList) {
        note(&self.consumer, decided);
    }

    /// Leaves the group, unless this member has an instance name. Waits some seconds at most for Kafka.
    pub fn close(self) {
        let (closed, is_closed) = mpsc::channel();
        std::thread::spawn(move || {
            drop(self);
            let _ = closed.send(());
        });
        if is_closed.recv_timeout(CLOSE_TIMEOUT).is_err() {
            tracing::warn!("Kafka did not answer; the group removes this consumer when its session times out");
        }
    }
}
